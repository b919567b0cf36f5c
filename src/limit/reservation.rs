//! What one request holds of its rules: settled once by what it used, given back when dropped.

use super::counter::{Hold, Now, Why};
use super::remote::{Held, Shared};
use super::rule::{Exhausted, Measure, Rule};
use super::seats::Seats;
use super::standing::Standing;
use super::table::{Ask, Used};
use super::{Group, Limits, Refusal};
use std::sync::Arc;

/// A budget has reached its alert's threshold, for the first time in its period.
#[derive(Debug, Clone)]
pub struct Alert {
    /// Which budget.
    pub rule: Arc<Rule>,
    /// What is used of it.
    pub used: u64,
}

/// How the tightest rules of a request stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tightest {
    /// Of those that count requests.
    pub requests: Option<Standing>,
    /// Of those that count tokens in a rate or a window.
    pub tokens: Option<Standing>,
}

impl Tightest {
    /// The same with nothing left of the rule that refused.
    #[must_use]
    pub fn without(mut self, refusal: &Refusal) -> Self {
        let rule = &refusal.rule;
        let place = match rule.measure() {
            Some(Measure::Requests) if !rule.is_budget() => &mut self.requests,
            Some(Measure::Tokens) if !rule.is_budget() => &mut self.tokens,
            _ => return self,
        };
        if let Why::Wait(wait) | Why::Rests(wait) = refusal.why {
            let limit = rule.capacity();
            let reset = Some(wait);
            *place = Some(Standing { limit, used: limit, held: 0, remaining: 0, reset });
        }
        self
    }

    /// With one more rule, if it is one that counts here.
    pub(super) fn add(&mut self, rule: &Rule, standing: impl FnOnce() -> Standing) {
        let place = match rule.measure().filter(|_| !rule.is_budget()) {
            Some(Measure::Requests) => &mut self.requests,
            Some(Measure::Tokens) => &mut self.tokens,
            Some(Measure::Money) | None => return,
        };
        let standing = standing();
        if place.is_none_or(|other| standing.remaining < other.remaining) {
            *place = Some(standing);
        }
    }
}

/// What one request holds. Dropped without [`Reservation::settle`] it gives everything back.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    limits: Arc<Limits>,
    rules: Group,
    seats: Seats,
    holds: Vec<Hold>,
    /// How Redis knows it, where there is one.
    shared: Option<Shared>,
    /// How the rules stood in Redis when it was made.
    seen: Vec<Standing>,
    /// How they stand once it is settled.
    told: Option<Tightest>,
    open: bool,
}

impl Reservation {
    pub(super) fn new(limits: Arc<Limits>, rules: Group, seats: Seats, holds: Vec<Hold>) -> Self {
        let (shared, seen, told) = (None, Vec::new(), None);
        Self { limits, rules, seats, holds, shared, seen, told, open: true }
    }

    pub(super) fn shared(mut self, shared: Shared, seen: Vec<Standing>) -> Self {
        self.shared = Some(shared);
        self.seen = seen;
        self
    }

    /// Nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any rule counts tokens or money, so that a stream can outgrow its hold.
    #[must_use]
    pub fn watches(&self) -> bool {
        let counts = |r: &Arc<Rule>| matches!(r.measure(), Some(Measure::Tokens | Measure::Money));
        self.rules.iter().any(counts)
    }

    /// The least that is held of any rule that counts tokens; `None` where none does.
    #[must_use]
    pub fn tokens_held(&self) -> Option<u64> {
        self.held(Measure::Tokens)
    }

    /// The same in nano-USD.
    #[must_use]
    pub fn money_held(&self) -> Option<u64> {
        self.held(Measure::Money)
    }

    fn held(&self, measure: Measure) -> Option<u64> {
        let counts = self.rules.iter().zip(&self.holds);
        counts.filter(|(r, _)| r.measure() == Some(measure)).map(|(_, h)| h.amount).min()
    }

    /// A running stream has used more than it holds: takes what is missing up to `used`, of every
    /// rule. Rules that finish owe it; when one that cuts has too little, nothing is taken.
    ///
    /// # Errors
    /// The rule that cuts.
    pub fn grow(&mut self, used: &Used, now: Now) -> Result<(), Refusal> {
        let frame = self.limits.frame(now);
        let missing = |rule: &Rule, hold: &Hold| match rule.measure() {
            Some(Measure::Tokens | Measure::Money) => used.of(rule).saturating_sub(hold.amount),
            _ => 0,
        };
        let mut locked = self.seats.lock(&self.rules);
        let mut refusal = None;
        locked.each(&frame, |i, rule, state| {
            let more = self.holds.get(i).map_or(0, |hold| missing(rule, hold));
            if more > 0
                && rule.exhausted == Exhausted::Cut
                && let Err(why) = state.fits(rule, more, &frame)
            {
                refusal.get_or_insert_with(|| Refusal { rule: rule.clone(), why });
            }
        });
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let before = self.holds.clone();
        let bases = self.shared.as_ref().map(|_| locked.bases()).unwrap_or_default();
        let mut grown = vec![0; before.len()];
        locked.each(&frame, |i, rule, state| {
            let (Some(hold), Some(grown)) = (self.holds.get_mut(i), grown.get_mut(i)) else {
                return;
            };
            *grown = missing(rule, hold);
            if *grown > 0 {
                let taken = state.take(rule, *grown);
                // A period that began meanwhile takes the growth; the old one's hold is gone.
                let old = if taken.period == hold.period { hold.amount } else { 0 };
                *hold = Hold { amount: old.saturating_add(*grown), period: taken.period };
            }
        });
        drop(locked);
        let remote = self.limits.remote.get();
        if let (Some(remote), Some(shared)) = (remote, self.shared.as_ref().filter(|s| s.taken)) {
            let held = Held { rules: &self.rules, holds: &before, bases: &bases };
            remote.grow(shared, &held, &grown);
        }
        Ok(())
    }

    /// Books what was used in place of what was held. Later calls do nothing.
    pub fn settle(&mut self, used: &Used, now: Now) -> Vec<Alert> {
        self.settle_by(used, now, |_, _| {})
    }

    /// The same where [`Reservation::tightest`] is asked next: it is found in the same walk.
    pub fn settle_and_tell(&mut self, used: &Used, now: Now) -> Vec<Alert> {
        let mut told = Tightest::default();
        let alerts = self.settle_by(used, now, |rule, standing| told.add(rule, standing));
        // What stands in Redis was told when it was held.
        self.told = self.seen.is_empty().then_some(told);
        alerts
    }

    fn settle_by(
        &mut self,
        used: &Used,
        now: Now,
        mut tell: impl FnMut(&Rule, &dyn Fn() -> Standing),
    ) -> Vec<Alert> {
        if !std::mem::replace(&mut self.open, false) {
            return Vec::new();
        }
        let frame = self.limits.frame(now);
        let mut alerts = Vec::new();
        let mut locked = self.seats.lock(&self.rules);
        let bases = self.shared.as_ref().map(|_| locked.bases()).unwrap_or_default();
        locked.each(&frame, |i, rule, state| {
            let hold = self.holds.get(i).copied().unwrap_or_default();
            if state.settle(rule, hold, used.of(rule), &frame) {
                alerts.push(Alert { rule: rule.clone(), used: state.known() });
            }
            tell(rule, &|| state.standing(rule, &frame));
        });
        drop(locked);
        // Where Redis counts for all nodes it alone knows when a threshold is reached.
        if let (Some(remote), Some(shared)) = (self.limits.remote.get(), &self.shared) {
            let held = Held { rules: &self.rules, holds: &self.holds, bases: &bases };
            remote.settle(shared, &held, used);
            alerts.clear();
        }
        alerts
    }

    /// How the tightest rules stand now.
    #[must_use]
    pub fn tightest(&self) -> Tightest {
        match self.told {
            Some(told) => told,
            None => self.tightest_by(Now::read(), |_, _, standing| standing),
        }
    }

    /// How they will stand when the request has failed: what it holds comes back, its place among
    /// requests only where nobody was `asked`.
    #[must_use]
    pub fn tightest_of_failure(&self, asked: bool, now: Now) -> Tightest {
        self.tightest_by(now, |rule, hold, standing| {
            let stays = asked && rule.measure() == Some(Measure::Requests);
            if stays || !self.open { standing } else { standing.freed(hold.amount) }
        })
    }

    fn tightest_by(&self, now: Now, seen: impl Fn(&Rule, Hold, Standing) -> Standing) -> Tightest {
        let mut tightest = Tightest::default();
        let hold = |i: usize| self.holds.get(i).copied().unwrap_or_default();
        if self.seen.is_empty() {
            let frame = self.limits.frame(now);
            self.seats.lock(&self.rules).each(&frame, |i, rule, state| {
                tightest.add(rule, || seen(rule, hold(i), state.standing(rule, &frame)));
            });
            return tightest;
        }
        for (i, (rule, standing)) in self.rules.iter().zip(&self.seen).enumerate() {
            tightest.add(rule, || seen(rule, hold(i), *standing));
        }
        tightest
    }

    /// What is held of rules that count tokens, for the event.
    #[must_use]
    pub fn reserved_tokens(&self, ask: &Ask) -> u64 {
        let held = self.rules.iter().zip(&self.holds);
        let tokens = held.filter(|(r, _)| r.measure() == Some(Measure::Tokens));
        let most = tokens.map(|(_, h)| h.amount).max();
        most.unwrap_or(0).min(ask.tokens.sure.saturating_add(ask.tokens.guess))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if std::mem::replace(&mut self.open, false) {
            let mut locked = self.seats.lock(&self.rules);
            locked.give(&self.holds);
            let bases = self.shared.as_ref().map(|_| locked.bases()).unwrap_or_default();
            drop(locked);
            let remote = self.limits.remote.get();
            if let (Some(remote), Some(shared)) = (remote, self.shared.as_ref().filter(|s| s.taken))
            {
                let held = Held { rules: &self.rules, holds: &self.holds, bases: &bases };
                remote.give(shared, &held);
            }
        }
    }
}
