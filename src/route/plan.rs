//! The order in which a request's targets are tried, and what follows a failed try.

use super::{Fault, Model, Provider, Target};
use std::sync::Arc;
use std::time::Duration;

/// One target of one request.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Whose.
    pub provider: Arc<Provider>,
    /// The provider's name of the model.
    pub model: Arc<str>,
}

/// What follows a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The same target, after this wait.
    Again(Duration),
    /// The next target, at once.
    Other,
    /// Nobody is left who may be asked.
    Stop,
}

/// The targets of one request in the order they are tried, and where we are among them.
#[derive(Debug, Clone)]
pub struct Plan {
    choices: Vec<Choice>,
    at: usize,
    tries_here: u32,
}

impl Plan {
    /// Priority groups in order; inside a group a weighted shuffle by `random`, a source of numbers
    /// below its argument. Targets of weight 0 are left out.
    #[must_use]
    pub fn new(model: &Model, asked: &str, mut random: impl FnMut(u64) -> u64) -> Self {
        let mut left: Vec<&Target> = model.targets.iter().filter(|t| t.weight > 0).collect();
        left.sort_by_key(|t| t.priority);
        let mut choices = Vec::with_capacity(left.len());
        while let Some(first) = left.first() {
            let group = left.iter().take_while(|t| t.priority == first.priority).count();
            let sum: u64 = left[..group].iter().map(|t| u64::from(t.weight)).sum();
            let mut ticket = if group == 1 { 0 } else { random(sum) };
            let mut pick = 0;
            for (i, t) in left[..group].iter().enumerate() {
                pick = i;
                match ticket.checked_sub(u64::from(t.weight)) {
                    Some(rest) => ticket = rest,
                    None => break,
                }
            }
            let target = left.remove(pick);
            let model = target.model.clone().unwrap_or_else(|| asked.into());
            choices.push(Choice { provider: target.provider.clone(), model });
        }
        Self { choices, at: 0, tries_here: 0 }
    }

    /// The target to try now.
    #[must_use]
    pub fn current(&self) -> Option<&Choice> {
        self.choices.get(self.at)
    }

    /// A try on the current target begins.
    pub fn begin(&mut self) {
        self.tries_here += 1;
    }

    /// The try that has begun does not count: its pooled connection had died before it.
    pub fn unbegin(&mut self) {
        self.tries_here = self.tries_here.saturating_sub(1);
    }

    /// Leaves only the choices that `keep` names.
    pub fn retain(&mut self, keep: impl FnMut(&Choice) -> bool) {
        self.choices.retain(keep);
    }

    /// How many targets have been tried so far.
    #[must_use]
    pub fn targets_tried(&self) -> usize {
        self.at + usize::from(self.tries_here > 0 && self.at < self.choices.len())
    }

    /// The current try has failed, `elapsed` after the request came. `jitter` gives a number in
    /// `0..=its argument` (milliseconds); a provider's own `asked` wait is respected as a minimum
    /// where it fits into `max_backoff`, else the same target is not asked again.
    pub fn failed(
        &mut self,
        fault: Fault,
        elapsed: Duration,
        asked: Option<Duration>,
        jitter: impl FnOnce(u64) -> u64,
    ) -> Next {
        let Some(choice) = self.current() else { return Next::Stop };
        let provider = choice.provider.clone();
        let retry = &provider.retry;
        let patient = asked.is_none_or(|wait| wait <= retry.max_backoff);
        let heals = !matches!(fault, Fault::Auth | Fault::Quota);
        if heals && patient && self.tries_here < retry.attempts && retry.on.holds(fault) {
            let doubled = retry.backoff.saturating_mul(1 << (self.tries_here - 1).min(16));
            let most = doubled.min(retry.max_backoff);
            let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
            let wait = Duration::from_millis(jitter(most));
            return Next::Again(wait.max(asked.unwrap_or_default()));
        }
        let failover = &provider.failover;
        let young = failover.max_elapsed.is_none_or(|most| elapsed < most);
        self.at += 1;
        self.tries_here = 0;
        if failover.on.holds(fault) && young && self.at < self.choices.len() {
            return Next::Other;
        }
        self.at = self.choices.len();
        Next::Stop
    }
}
