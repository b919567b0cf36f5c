//! Whether the target that failed is asked once more with another credential, or another token.

use super::{Fault, Plan, Provider, TOKEN_WAITS, Why};
use crate::route::live::{Block, Wanted};
use std::time::{Duration, Instant};

impl Plan {
    /// The current try has failed on its credential, and another one is free: whether it is asked
    /// at once. It is not a further try of the target.
    pub fn other_key(&mut self, fault: Fault, now: Instant) -> bool {
        let Some(choice) = self.current() else { return false };
        let provider = choice.provider.clone();
        let young = self.is_young(&provider, now) && !self.need.once;
        self.keys_here += 1;
        let ask = provider.failover.on.holds(fault)
            && young
            && self.keys_here < provider.credentials.len();
        if ask {
            self.unbegin();
        }
        ask
    }

    /// Whether the current target may be asked once more, now that its token was refused and
    /// another one is fetched.
    pub fn renew(&mut self, now: Instant) -> bool {
        let Some(choice) = self.current() else { return false };
        let provider = choice.provider.clone();
        let again = !self.need.once && !self.renewed && self.is_young(&provider, now);
        self.renewed |= again;
        if again {
            self.unbegin();
        }
        again
    }

    /// How long to wait for the new token that [`Self::renew`] promised, before the current target
    /// is asked with it.
    pub fn awaits_token(&mut self, now: Instant) -> Option<Duration> {
        let choice = self.current().filter(|_| self.renewed)?;
        let wanted = Wanted { insist: false, tokens: self.need.tokens() };
        let provider = choice.provider.live(now);
        let Err(Block::Resting(rest)) = provider.credential(&choice.live, wanted, now) else {
            return None;
        };
        let waits = rest.why == Why::Token && self.waits < TOKEN_WAITS && !self.is_late(rest.until);
        self.waits += u32::from(waits);
        waits.then(|| rest.until.saturating_duration_since(now))
    }

    pub(super) fn is_young(&self, provider: &Provider, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.arrived);
        !self.is_late(now) && provider.failover.max_elapsed.is_none_or(|most| elapsed < most)
    }
}
