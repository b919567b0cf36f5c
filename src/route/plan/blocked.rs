//! Targets that cannot be asked now: why, which of them are asked all the same, and for how long
//! one is waited for.

use super::{Plan, TOKEN_WAITS, millis};
use crate::route::live::Block;
use crate::route::rest::Why;
use crate::route::{Fault, Target};
use std::time::{Duration, Instant};

impl Plan {
    /// Takes a target that nobody but ourselves says is too fast. False: there is none.
    pub fn force(&mut self, now: Instant) -> bool {
        let guessed = |block| matches!(block, Block::Resting(rest) if rest.is_guess());
        if self.need.once && self.tried > 0 {
            return false;
        }
        let found = self.blocks(now).into_iter().find(|(_, _, block)| guessed(*block));
        let Some((at, ..)) = found else { return false };
        self.go(at, now);
        self.insist = true;
        true
    }

    /// How long this request may wait for a target whose provider has named a time, or whose
    /// credentials are in full use, counted as one of its tries: the shortest wait that its `retry`
    /// has patience for.
    pub fn patience(&mut self, now: Instant, jitter: impl FnOnce(u64) -> u64) -> Option<Duration> {
        let wait = |(_, target, block): (usize, &Target, Block)| {
            let retry = &target.provider.retry;
            let mut token = false;
            let (left, heals) = match block {
                Block::Resting(rest) if rest.heals() => {
                    token = rest.why == Why::Token;
                    let named = retry.on.holds(Fault::Status(429));
                    (rest.until.saturating_duration_since(now), named)
                }
                Block::Full(full) => (full.wait, true),
                Block::Resting(_) | Block::Open(_) | Block::Down => return None,
            };
            let (most, backoff) =
                if token { (TOKEN_WAITS, Duration::ZERO) } else { (retry.attempts, retry.backoff) };
            let ready = self.waits + 1 < most && left <= retry.max_backoff;
            (heals && ready && (token || !self.model.return_429)).then_some((left, backoff))
        };
        let (left, backoff) = self.blocks(now).into_iter().filter_map(wait).min()?;
        let wait = left + Duration::from_millis(jitter(millis(backoff)));
        if self.need.once || self.is_late(now + wait) {
            return None;
        }
        self.waits += 1;
        Some(wait)
    }

    /// The targets that are not done with and cannot be asked now, each with the reason.
    #[must_use]
    pub fn blocks(&self, now: Instant) -> Vec<(usize, &Target, Block)> {
        (self.model.targets.iter().enumerate())
            .filter(|(i, target)| target.weight > 0 && !self.is_gone(*i))
            .filter(|(_, target)| {
                self.lacks(target).is_none_or(|l| self.lenient && l.is_doubtful())
            })
            .filter(|(_, target)| self.is_tagged(target))
            .filter_map(|(i, target)| Some((i, target, self.check(target, now).err()?)))
            .collect()
    }

    pub(in crate::route) fn check(&self, target: &Target, now: Instant) -> Result<(), Block> {
        let provider = target.provider.live(now);
        let (rule, tokens) = (&target.provider.breaker, self.need.tokens());
        let found = match target.live.get() {
            Some(live) => provider.check(live, rule, tokens, now),
            None => {
                let model = target.model.as_deref().unwrap_or(&self.asked);
                provider.check(&provider.target(model, now), rule, tokens, now)
            }
        };
        match found {
            // Whoever wants the 429 itself gets it from the provider, or from its own words.
            Err(Block::Resting(rest)) if self.model.return_429 && rest.is_rate() => Ok(()),
            other => other,
        }
    }
}
