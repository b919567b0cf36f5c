//! Which target of a request is tried next, and what follows a failed try.

mod blocked;
mod keys;

use super::live::TargetLive;
use super::need::{Lack, Need, lack};
use super::rest::Why;
use super::strategy::Tagged;
use super::{Fault, Model, Provider, Smart, Strategy, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So often a request looks again whether a token has come that it cannot do without: 3 seconds.
const TOKEN_WAITS: u32 = 10;

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
    pub(super) model: Arc<Model>,
    pub(super) asked: Arc<str>,
    pub(super) need: Arc<Need>,
    pub(super) arrived: Instant,
    pub(super) seed: u64,
    pub(super) strategy: Strategy,
    /// Which tags its targets must have.
    pub(super) tagged: Tagged,
    /// Targets that may lack something by an estimate are asked too.
    pub(super) lenient: bool,
    /// Targets that are done with; empty until there is one.
    gone: Vec<bool>,
    current: Option<(usize, Choice)>,
    /// The current target is asked although all its credentials rest by our own guess.
    insist: bool,
    tries_here: u32,
    /// Pooled connections to it that had died, as it seemed.
    dead_here: u32,
    keys_here: usize,
    /// How often this request has waited for a credential.
    waits: u32,
    /// A refused token has been fetched anew for this request.
    renewed: bool,
    tried: usize,
    counted: bool,
    /// Another model may be asked when this one is used up.
    spare: bool,
}

impl Plan {
    /// Over the targets of a model that was asked for by this name, for a request that came at
    /// `arrived`. `seed` is any random number.
    #[must_use]
    pub fn new(
        model: &Arc<Model>,
        asked: &str,
        need: &Arc<Need>,
        arrived: Instant,
        seed: u64,
    ) -> Self {
        let mut plan = Self {
            model: model.clone(),
            asked: asked.into(),
            need: need.clone(),
            arrived,
            seed,
            strategy: model.strategy,
            tagged: Tagged::Any,
            lenient: false,
            gone: Vec::new(),
            current: None,
            insist: false,
            tries_here: 0,
            dead_here: 0,
            keys_here: 0,
            waits: 0,
            renewed: false,
            tried: 0,
            counted: false,
            spare: !model.fallback.is_empty(),
        };
        plan.weigh_smartly();
        plan
    }

    /// Where no target is tagged for the request, the cheapest takes it, or nobody.
    fn weigh_smartly(&mut self) {
        if self.strategy != Strategy::Smart {
            return;
        }
        let smart: &Smart = &self.model.smart;
        let fits = |target: &Target, tagged| {
            smart.matches(self.model.offer(target, &self.asked), &self.need, tagged)
        };
        let any = |tagged| self.model.targets.iter().any(|target| fits(target, tagged));
        self.tagged = smart.tagged(&self.need, any);
        if self.tagged == Tagged::Any {
            self.strategy = Strategy::Cost;
        }
    }

    /// The model it is a plan of.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Goes on where another plan of the same request ends. `spare`: a third may follow.
    #[must_use]
    pub fn after(mut self, other: &Self, spare: bool) -> Self {
        self.tried = other.targets_tried();
        self.waits = other.waits;
        self.spare = spare;
        self
    }

    /// What a try of it is estimated to use.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.need.tokens()
    }

    /// Its place among the model's targets.
    pub(super) fn at(&self) -> Option<usize> {
        self.current.as_ref().map(|(at, _)| *at)
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

    /// From now on targets that lack something by an estimate only may be asked: nobody else is
    /// left, and the provider knows better. False: it was so before.
    pub fn relax(&mut self) -> bool {
        !std::mem::replace(&mut self.lenient, true)
    }

    /// What the targets that nobody has asked lack, the least of it.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        let left = self
            .model
            .targets
            .iter()
            .enumerate()
            .filter(|(i, t)| t.weight > 0 && !self.is_gone(*i));
        left.filter_map(|(_, t)| self.lacks(t)).min()
    }

    /// Nobody is tagged for this request's task and tier, and `[smart]` refuses it then.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        !self.model.targets.iter().any(|target| self.is_tagged(target))
    }

    /// Every target is of a higher tier than the caller may have.
    #[must_use]
    pub fn is_above(&self) -> bool {
        let allowed = |target: &Target| {
            self.model.smart.allows(self.model.offer(target, &self.asked), &self.need)
        };
        self.model.strategy == Strategy::Smart && !self.model.targets.iter().any(allowed)
    }

    pub(super) fn is_tagged(&self, target: &Target) -> bool {
        let offer = self.model.offer(target, &self.asked);
        self.model.strategy != Strategy::Smart
            || self.model.smart.matches(offer, &self.need, self.tagged)
    }

    pub(super) fn lacks(&self, target: &Target) -> Option<Lack> {
        self.model.offer(target, &self.asked).and_then(|offer| lack(offer, &self.need))
    }

    /// The caller has given up by then.
    fn is_late(&self, then: Instant) -> bool {
        let gone = then.saturating_duration_since(self.arrived);
        self.need.patience.is_some_and(|most| gone >= most)
    }

    /// A try on the current target begins.
    pub fn begin(&mut self) {
        self.tries_here += 1;
    }

    /// The try that has begun does not count: its pooled connection had died before it.
    pub fn unbegin(&mut self) {
        self.tries_here = self.tries_here.saturating_sub(1);
        self.dead_here += 1;
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

    /// Whether the model has another target than the one that is being tried, or an equivalent.
    #[must_use]
    pub fn has_other(&self) -> bool {
        self.model.targets.len() > 1 || !self.model.fallback.is_empty()
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

    /// The current try has failed. `jitter` gives a number in `0..=its argument` (milliseconds); a
    /// provider's own `asked` wait is respected as a minimum where it fits into `max_backoff`, else
    /// the same target is not asked again. Nothing begins when the caller has given up, and no
    /// retry for which its provider has none left.
    pub fn failed(
        &mut self,
        fault: Fault,
        now: Instant,
        asked: Option<Duration>,
        jitter: impl FnOnce(u64) -> u64,
    ) -> Next {
        let Some(choice) = self.current() else { return Next::Stop };
        let provider = choice.provider.clone();
        if fault == Fault::ResetBeforeHeaders {
            // A new connection is closed as well: then it was no accident of the pooled one, and
            // that has most likely had the request too.
            self.tries_here += std::mem::take(&mut self.dead_here);
        }
        let retry = &provider.retry;
        let given_up = self.model.return_429 && fault == Fault::Status(429);
        let patient = asked.is_none_or(|wait| wait <= retry.max_backoff);
        let heals = !matches!(fault, Fault::Auth | Fault::Quota) && !given_up && !self.need.once;
        if heals && patient && self.tries_here < retry.attempts && retry.on.holds(fault) {
            let doubled = retry.backoff.saturating_mul(1 << (self.tries_here.max(1) - 1).min(16));
            let wait = Duration::from_millis(jitter(millis(doubled.min(retry.max_backoff))));
            // On top of what was asked: callers that were turned away together must not come back
            // together.
            let wait = wait.saturating_add(asked.unwrap_or_default());
            let late = now.checked_add(wait).is_none_or(|then| self.is_late(then));
            if !late && provider.live(now).retries.spend(now) {
                return Next::Again(wait);
            }
        }
        let goes_on =
            provider.failover.on.holds(fault) && self.is_young(&provider, now) && !given_up;
        self.leave();
        let goes_on = goes_on && !self.need.once && (self.has_more() || self.spare);
        if goes_on { Next::Other } else { Next::Stop }
    }

    fn go(&mut self, at: usize, now: Instant) {
        let Some(target) = self.model.targets.get(at) else { return };
        let provider = target.provider.clone();
        let model = target.model.clone().unwrap_or_else(|| self.asked.clone());
        let live = target.live.get().cloned();
        let live = live.unwrap_or_else(|| provider.live(now).target(&model, now));
        self.current = Some((at, Choice { provider, model, live }));
        if let Some((_, choice)) = &self.current {
            choice.live.latency(self.need.stream).touch(now);
            choice.provider.live(now).retries.earn();
        }
        (self.tries_here, self.dead_here) = (0, 0);
        (self.keys_here, self.counted, self.insist) = (0, false, false);
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

    pub(super) fn is_gone(&self, at: usize) -> bool {
        self.gone.get(at).copied().unwrap_or(false)
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
