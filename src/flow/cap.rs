//! The bound on the output of a request that names none, where its owners bound a whole request.

use super::ticket::Ticket;
use crate::route::Choice;
use weir_filters::error::ApiError;
use weir_filters::peek::Peek;

/// Members of `params.defaults` that bound the output.
const BOUNDS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

impl Ticket {
    /// The body with what `max_tokens_per_request` leaves for each answer; `None` where nothing is
    /// to be added: the caller names a bound, nobody asks for one, or the model has a smaller one.
    pub(super) fn capped(&self, choice: &Choice) -> Result<Option<Peek>, ApiError> {
        let (Some(cap), Some(admission)) = (self.taken.cap, self.admission.as_ref()) else {
            return Ok(None);
        };
        let provider = &choice.provider;
        let offer = provider.offer(&choice.model);
        let by_config = || {
            let said = BOUNDS.iter().filter_map(|name| provider.params.defaults.get(*name));
            said.filter_map(|raw| raw.trim().parse::<u64>().ok()).any(|most| most <= cap)
        };
        if offer.and_then(|o| o.max_output).is_some_and(|most| most <= cap) || by_config() {
            return Ok(None);
        }
        // Some refuse a bound that does not fit beside the prompt.
        let room = offer.and_then(|o| o.context);
        let room = room.map(|context| context.saturating_sub(admission.prompt_tokens).max(1));
        let most = room.map_or(cap, |room| room.min(cap));
        self.arrival.api.capped(&admission.peek, most, (provider.wire, &choice.model))
    }
}
