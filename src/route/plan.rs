//! Which target of a request is tried next, and what follows a failed try.

use super::live::{Block, TargetLive};
use super::{Fault, Model, Provider, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One target of one request.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Whose.
    pub provider: Arc<Provider>,
    /// The provider's name of the model.
    pub model: Arc<str>,
    /// What is known of it.
    pub live: Arc<TargetLive>,
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

/// The targets of one request, which of them are done with, and where we are among them. Targets
/// are picked one by one, when they are needed, by what is known of them then.
#[derive(Debug, Clone)]
pub struct Plan {
    model: Arc<Model>,
    asked: Arc<str>,
    seed: u64,
    /// Targets that are done with; empty until there is one.
    gone: Vec<bool>,
    current: Option<(usize, Choice)>,
    /// The current target is asked although all its credentials rest by our own guess.
    insist: bool,
    tries_here: u32,
    keys_here: usize,
    /// How often this request has waited for a credential.
    waits: u32,
    tried: usize,
    counted: bool,
}

impl Plan {
    /// Over a model's targets. `seed` is any random number.
    #[must_use]
    pub fn new(model: &Arc<Model>, asked: &str, seed: u64) -> Self {
        Self {
            model: model.clone(),
            asked: asked.into(),
            seed,
            gone: Vec::new(),
            current: None,
            insist: false,
            tries_here: 0,
            keys_here: 0,
            waits: 0,
            tried: 0,
            counted: false,
        }
    }

    /// The target that is being tried.
    #[must_use]
    pub fn current(&self) -> Option<&Choice> {
        self.current.as_ref().map(|(_, choice)| choice)
    }

    /// The target to try now: the current one while its tries last, else the next one that can be
    /// asked.
    pub fn choose(&mut self, now: Instant) -> Option<Choice> {
        if self.current.is_none() {
            let at = self.pick(now)?;
            self.go(at, now);
        }
        self.current().cloned()
    }

    /// The current target may be asked with a credential that rests by our own guess: this
    /// request has asked it already, or nobody else is left.
    #[must_use]
    pub fn insists(&self) -> bool {
        self.insist || self.tries_here > 0 || self.model.return_429
    }

    /// Takes a target that nobody but ourselves says is too fast. False: there is none.
    pub fn force(&mut self, now: Instant) -> bool {
        let guessed = |block| matches!(block, Block::Resting(rest) if rest.is_guess());
        let found = self.blocks(now).into_iter().find(|(_, _, block)| guessed(*block));
        let Some((at, ..)) = found else { return false };
        self.go(at, now);
        self.insist = true;
        true
    }

    /// How long this request may wait for a target whose provider has named a time, counted as
    /// one of its tries: the shortest wait that its `retry` has patience for.
    pub fn patience(&mut self, now: Instant, jitter: impl FnOnce(u64) -> u64) -> Option<Duration> {
        let wait = |(_, target, block): (usize, &Target, Block)| {
            let retry = &target.provider.retry;
            let Block::Resting(rest) = block else { return None };
            let left = rest.until.saturating_duration_since(now);
            let heals = rest.is_rate() && retry.on.holds(Fault::Status(429));
            let ready = self.waits + 1 < retry.attempts && left <= retry.max_backoff;
            (heals && ready && !self.model.return_429).then_some((left, retry.backoff))
        };
        let (left, backoff) = self.blocks(now).into_iter().filter_map(wait).min()?;
        self.waits += 1;
        Some(left + Duration::from_millis(jitter(millis(backoff))))
    }

    /// The targets that are not done with and cannot be asked now, each with the reason.
    #[must_use]
    pub fn blocks(&self, now: Instant) -> Vec<(usize, &Target, Block)> {
        (self.model.targets.iter().enumerate())
            .filter(|(i, target)| target.weight > 0 && !self.is_gone(*i))
            .filter_map(|(i, target)| Some((i, target, self.check(target, now).err()?)))
            .collect()
    }

    /// A try on the current target begins.
    pub fn begin(&mut self) {
        self.tries_here += 1;
    }

    /// The try that has begun does not count: its pooled connection had died before it.
    pub fn unbegin(&mut self) {
        self.tries_here = self.tries_here.saturating_sub(1);
    }

    /// The current target is done with, without a try.
    pub fn skip(&mut self) {
        let was = self.tried;
        self.leave();
        self.tried = was + usize::from(self.tries_here > 0);
        self.tries_here = 0;
    }

    /// Leaves only the targets that `keep` names.
    pub fn retain(&mut self, mut keep: impl FnMut(&Provider, &str) -> bool) {
        for (i, target) in self.model.clone().targets.iter().enumerate() {
            let model = target.model.as_deref().unwrap_or(&self.asked);
            if !keep(&target.provider, model) {
                self.lose(i);
            }
        }
    }

    /// Whether a target is left that has not been tried, asked or not.
    #[must_use]
    pub fn has_more(&self) -> bool {
        (self.model.targets.iter().enumerate()).any(|(i, t)| t.weight > 0 && !self.is_gone(i))
    }

    /// How many targets have been tried so far.
    #[must_use]
    pub fn targets_tried(&self) -> usize {
        self.tried + usize::from(self.tries_here > 0 && self.current.is_some())
    }

    /// Whether a bad outcome of the current target is its first of this request. One request that
    /// breaks a target again and again counts once.
    pub fn first_bad(&mut self) -> bool {
        !std::mem::replace(&mut self.counted, true)
    }

    /// The current try has failed on its credential, and another one is free: whether it is asked
    /// at once. It is not a further try of the target.
    pub fn other_key(&mut self, fault: Fault, elapsed: Duration) -> bool {
        let Some(choice) = self.current() else { return false };
        let provider = choice.provider.clone();
        let young = provider.failover.max_elapsed.is_none_or(|most| elapsed < most);
        self.keys_here += 1;
        let ask = provider.failover.on.holds(fault)
            && young
            && self.keys_here < provider.credentials.len();
        if ask {
            self.unbegin();
        }
        ask
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
        let given_up = self.model.return_429 && fault == Fault::Status(429);
        let patient = asked.is_none_or(|wait| wait <= retry.max_backoff);
        let heals = !matches!(fault, Fault::Auth | Fault::Quota) && !given_up;
        if heals && patient && self.tries_here < retry.attempts && retry.on.holds(fault) {
            let doubled = retry.backoff.saturating_mul(1 << (self.tries_here.max(1) - 1).min(16));
            let wait = Duration::from_millis(jitter(millis(doubled.min(retry.max_backoff))));
            // On top of what was asked: callers that were turned away together must not come back
            // together.
            return Next::Again(wait.saturating_add(asked.unwrap_or_default()));
        }
        let failover = &provider.failover;
        let young = failover.max_elapsed.is_none_or(|most| elapsed < most);
        self.leave();
        let goes_on = failover.on.holds(fault) && young && !given_up && self.has_more();
        if goes_on { Next::Other } else { Next::Stop }
    }

    fn go(&mut self, at: usize, now: Instant) {
        let Some(target) = self.model.targets.get(at) else { return };
        let provider = target.provider.clone();
        let model = target.model.clone().unwrap_or_else(|| self.asked.clone());
        let live = target.live.get().cloned();
        let live = live.unwrap_or_else(|| provider.live().target(&model, now));
        self.current = Some((at, Choice { provider, model, live }));
        (self.tries_here, self.keys_here, self.counted, self.insist) = (0, 0, false, false);
    }

    fn leave(&mut self) {
        if let Some((at, _)) = self.current.take() {
            self.tried += 1;
            self.lose(at);
        }
    }

    fn lose(&mut self, at: usize) {
        if self.gone.is_empty() {
            self.gone = vec![false; self.model.targets.len()];
        }
        if let Some(gone) = self.gone.get_mut(at) {
            *gone = true;
        }
    }

    fn is_gone(&self, at: usize) -> bool {
        self.gone.get(at).copied().unwrap_or(false)
    }

    fn check(&self, target: &Target, now: Instant) -> Result<(), Block> {
        let provider = target.provider.live();
        let found = match target.live.get() {
            Some(live) => provider.check(live, &target.provider.breaker, now),
            None => {
                let model = target.model.as_deref().unwrap_or(&self.asked);
                provider.check(&provider.target(model, now), &target.provider.breaker, now)
            }
        };
        match found {
            // Whoever wants the 429 itself gets it from the provider, or from its own words.
            Err(Block::Resting(rest)) if self.model.return_429 && rest.is_rate() => Ok(()),
            other => other,
        }
    }

    /// The next target in the lowest group that has one; inside a group each in its share. A
    /// target that has just come back gets its share step by step: a draw decides whether this
    /// request is among those that it gets already.
    fn pick(&self, now: Instant) -> Option<usize> {
        self.pick_among(now, true).or_else(|| self.pick_among(now, false))
    }

    fn pick_among(&self, now: Instant, gently: bool) -> Option<usize> {
        let usable = |i: usize, target: &Target| {
            target.weight > 0
                && !self.is_gone(i)
                && self.check(target, now).is_ok()
                && !(gently && self.is_held_back(i, target, now))
        };
        let (mut group, mut sum, mut first) = (u32::MAX, 0, None);
        for (i, target) in self.model.targets.iter().enumerate() {
            if target.priority > group || !usable(i, target) {
                continue;
            }
            if target.priority < group {
                (group, sum, first) = (target.priority, 0, Some(i));
            }
            sum += u64::from(target.weight);
        }
        let first = first?;
        if sum == u64::from(self.model.targets.get(first)?.weight) {
            return Some(first);
        }
        let mut turn = self.model.turns.get().map_or(self.seed % sum, |turns| turns.next(sum));
        for (i, target) in self.model.targets.iter().enumerate() {
            if target.priority != group || !usable(i, target) {
                continue;
            }
            match turn.checked_sub(u64::from(target.weight)) {
                Some(left) => turn = left,
                None => return Some(i),
            }
        }
        Some(first)
    }

    fn is_held_back(&self, at: usize, target: &Target, now: Instant) -> bool {
        let Some(live) = target.live.get() else { return false };
        let share = live.share(&target.provider.breaker, now);
        // A number of its own for each target, out of the request's.
        let draw = (self.seed ^ at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11;
        // 53 bits are exact in a float.
        #[allow(clippy::cast_precision_loss)]
        let draw = draw as f64 / (1u64 << 53) as f64;
        share < 1.0 && draw >= share
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
