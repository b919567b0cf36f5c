//! What one request holds of its rules: settled once by what it used, given back when dropped.

use super::counter::{Hold, Now, Standing, Why};
use super::remote::Shared;
use super::rule::{Exhausted, Measure, Rule};
use super::table::{Ask, Used};
use super::{Limits, Refusal};
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
        if let Why::Wait(wait) = refusal.why {
            let limit = rule.capacity();
            let reset = Some(wait);
            *place = Some(Standing { limit, used: limit, held: 0, remaining: 0, reset });
        }
        self
    }

    /// Of these standings.
    pub(super) fn of<'a>(all: impl Iterator<Item = (&'a Arc<Rule>, Standing)>) -> Self {
        let mut tightest = Self::default();
        for (rule, standing) in all.filter(|(rule, _)| !rule.is_budget()) {
            let place = match rule.measure() {
                Some(Measure::Requests) => &mut tightest.requests,
                Some(Measure::Tokens) => &mut tightest.tokens,
                Some(Measure::Money) | None => continue,
            };
            if place.is_none_or(|other| standing.remaining < other.remaining) {
                *place = Some(standing);
            }
        }
        tightest
    }
}

/// What one request holds. Dropped without [`Reservation::settle`] it gives everything back.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    limits: Arc<Limits>,
    rules: Vec<Arc<Rule>>,
    holds: Vec<Hold>,
    /// How Redis knows it, where there is one.
    shared: Option<Shared>,
    /// How the rules stood in Redis when it was made.
    seen: Vec<Standing>,
    open: bool,
}

impl Reservation {
    pub(super) fn new(limits: Arc<Limits>, rules: Vec<Arc<Rule>>, holds: Vec<Hold>) -> Self {
        Self { limits, rules, holds, shared: None, seen: Vec::new(), open: true }
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
        let table = &self.limits.table;
        let missing = |rule: &Rule, hold: &Hold| match rule.measure() {
            Some(Measure::Tokens | Measure::Money) => used.of(rule).saturating_sub(hold.amount),
            _ => 0,
        };
        for (rule, hold) in self.rules.iter().zip(&self.holds) {
            let more = missing(rule, hold);
            if more > 0
                && rule.exhausted == Exhausted::Cut
                && let Err(why) = table.fits(rule, more, &frame)
            {
                return Err(Refusal { rule: rule.clone(), why });
            }
        }
        let before = self.holds.clone();
        let mut grown = Vec::new();
        for (rule, hold) in self.rules.iter().zip(self.holds.iter_mut()) {
            let more = missing(rule, hold);
            if more > 0 {
                let taken = table.take(rule, more, &frame);
                // A period that began meanwhile takes the growth; the old one's hold is gone.
                let old = if taken.period == hold.period { hold.amount } else { 0 };
                *hold = Hold { amount: old.saturating_add(more), period: taken.period };
            }
            grown.push(more);
        }
        let remote = self.limits.remote.get();
        if let (Some(remote), Some(shared)) = (remote, self.shared.as_ref().filter(|s| s.taken)) {
            remote.grow(shared, &self.rules, &before, &grown);
        }
        Ok(())
    }

    /// Books what was used in place of what was held. Later calls do nothing.
    pub fn settle(&mut self, used: &Used, now: Now) -> Vec<Alert> {
        if !std::mem::replace(&mut self.open, false) {
            return Vec::new();
        }
        let frame = self.limits.frame(now);
        let mut alerts = Vec::new();
        for (rule, hold) in self.rules.iter().zip(&self.holds) {
            if self.limits.table.settle(rule, *hold, used.of(rule), &frame) {
                let used = self.limits.table.known(rule, &frame);
                alerts.push(Alert { rule: rule.clone(), used });
            }
        }
        // Where Redis counts for all nodes it alone knows when a threshold is reached.
        if let (Some(remote), Some(shared)) = (self.limits.remote.get(), &self.shared) {
            remote.settle(shared, &self.rules, &self.holds, used);
            alerts.clear();
        }
        alerts
    }

    /// How the tightest rules stand now.
    #[must_use]
    pub fn tightest(&self, now: Now) -> Tightest {
        if !self.seen.is_empty() {
            return Tightest::of(self.rules.iter().zip(self.seen.iter().copied()));
        }
        self.limits.tightest(&self.rules, now)
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
            for (rule, hold) in self.rules.iter().zip(&self.holds) {
                self.limits.table.give(rule, *hold);
            }
            let remote = self.limits.remote.get();
            if let (Some(remote), Some(shared)) = (remote, self.shared.as_ref().filter(|s| s.taken))
            {
                remote.give(shared, &self.rules, &self.holds);
            }
        }
    }
}
