//! What a request needs of a target, and what a target lacks for it.

use super::Offer;
use std::time::Duration;

/// How far an estimate of tokens may be above a model's context before it is certain that the
/// prompt does not fit: text of long runs of blanks takes a third of its estimate.
const DOUBT: u64 = 2;

/// What a request needs, as its head and body say.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own about the body
pub struct Need {
    /// Estimated prompt tokens.
    pub prompt: u64,
    /// `max_tokens`, where given.
    pub output: Option<u64>,
    /// A stream is asked for.
    pub stream: bool,
    /// Tools are given.
    pub tools: bool,
    /// Images are given.
    pub images: bool,
    /// An answer by a JSON schema is asked for.
    pub schema: bool,
    /// `task_type`.
    pub task: Option<String>,
    /// `budget_tier`.
    pub tier: Option<String>,
    /// The highest tier that the caller may be served by.
    pub max_tier: Option<String>,
    /// `x-weir-max-latency-ms`.
    pub max_latency: Option<Duration>,
    /// What requests that should meet the same target have in common.
    pub affinity: Option<u64>,
    /// The caller waits no longer than this since it came.
    pub patience: Option<Duration>,
    /// `x-weir-retry: none`: one call to one provider, whatever becomes of it.
    pub once: bool,
}

/// Tokens that an answer is taken to have where the request gives no limit.
pub const OUTPUT_GUESS: u64 = 1024;

impl Need {
    /// Estimated tokens of the prompt and the answer.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.prompt.saturating_add(self.output.unwrap_or(OUTPUT_GUESS))
    }
}

/// What a target lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// The prompt, or the prompt and its answer, are estimated to be too long.
    Context(u64),
    /// More tokens are asked for than it generates.
    Output(u64),
    /// It takes no tools.
    Tools,
    /// It takes no images.
    Images,
    /// It takes no JSON schema.
    Schema,
    /// The prompt is too long without any doubt.
    Far(u64),
}

impl Lack {
    /// It comes from an estimate: where nobody else is left, the provider's word decides.
    #[must_use]
    pub fn is_doubtful(self) -> bool {
        matches!(self, Self::Context(_) | Self::Output(_))
    }

    /// In a few words.
    #[must_use]
    pub fn say(self) -> String {
        match self {
            Self::Context(max) | Self::Far(max) => format!("its context holds {max} tokens"),
            Self::Output(max) => format!("it generates at most {max} tokens"),
            Self::Tools => "it takes no tools".into(),
            Self::Images => "it takes no images".into(),
            Self::Schema => "it takes no JSON schema".into(),
        }
    }
}

/// The gravest thing that an offer lacks for this request; what it does not tell it has.
#[must_use]
pub fn lack(offer: &Offer, need: &Need) -> Option<Lack> {
    let output = need.output.unwrap_or(0);
    let context = offer.context.filter(|max| need.prompt.saturating_add(output) > *max);
    let far = offer.context.filter(|max| need.prompt / DOUBT > *max);
    let short = offer.max_output.filter(|max| output > *max);
    far.map(Lack::Far)
        .or((need.images && !offer.images).then_some(Lack::Images))
        .or((need.tools && !offer.tools).then_some(Lack::Tools))
        .or((need.schema && !offer.schema).then_some(Lack::Schema))
        .or(context.map(Lack::Context))
        .or(short.map(Lack::Output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Glob;

    #[test]
    fn what_a_model_cannot_do_is_named_and_what_is_unknown_is_no_lack() {
        let offer = Offer {
            context: Some(1000),
            max_output: Some(100),
            images: false,
            schema: false,
            ..Offer::new(Glob::new("m"))
        };
        let need = |prompt, output| Need { prompt, output, ..Need::default() };
        assert_eq!(lack(&offer, &need(900, Some(100))), None);
        assert_eq!(lack(&offer, &need(901, Some(100))), Some(Lack::Context(1000)));
        assert_eq!(lack(&offer, &need(2001, None)), Some(Lack::Context(1000)));
        assert_eq!(lack(&offer, &need(2002, None)), Some(Lack::Far(1000)));
        assert_eq!(lack(&offer, &need(1, Some(101))), Some(Lack::Output(100)));
        assert_eq!(lack(&offer, &Need { images: true, ..need(1, None) }), Some(Lack::Images));
        assert_eq!(lack(&offer, &Need { schema: true, ..need(1, None) }), Some(Lack::Schema));
        assert_eq!(lack(&offer, &Need { tools: true, ..need(1, None) }), None);
        let all =
            Need { tools: true, images: true, schema: true, ..need(u64::MAX, Some(u64::MAX)) };
        assert_eq!(lack(&Offer::new(Glob::new("m")), &all), None);
    }
}
