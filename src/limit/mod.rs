//! What callers may use: rules, the counters behind them, and reservations that always come back.
//!
//! A request takes what it may use at most of every [`Rule`] of all its owners in one step, or
//! nothing of any. What it really used is settled when it ends; a [`Reservation`] that is dropped
//! gives everything back. Counters are known by their rule's id, so they outlive a reload, and an
//! amount that changed acts on what was used before.

mod counter;
pub mod learned;
mod owned;
pub mod period;
mod remote;
mod reservation;
mod rule;
mod rules;
mod seats;
mod spec;
mod standing;
mod table;

pub use counter::{Now, Why};
pub use learned::Outputs;
pub use owned::Group;
pub use period::{Per, Period};
pub use remote::{Caller, Hooks, Settings, client};
pub use reservation::{Alert, Reservation, Tightest};
pub use rule::{Downgrade, Exhausted, Kind, Measure, Owner, Rule, Scope};
pub use rules::{DefaultOutput, Rules};
pub use spec::{Budget, Common, Limit, Spec, Twice, Window};
pub use standing::Standing;
pub use table::{Amount, Ask, Used};

use counter::{Frame, Seen};
use remote::{Away, Remote, Shared};
use seats::{Locked, Seats};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use table::Table;

/// A request is refused, and nothing was taken.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// By which rule.
    pub rule: Arc<Rule>,
    /// Why.
    pub why: Why,
}

/// Every counter of the process.
#[derive(Debug)]
pub struct Limits {
    table: Table,
    /// What models usually say.
    pub outputs: Outputs,
    /// The counters that all nodes share.
    remote: OnceLock<Arc<Remote>>,
}

impl Limits {
    /// All counters at zero.
    #[must_use]
    pub fn new(started: Instant) -> Arc<Self> {
        Arc::new(Self {
            table: Table::new(started),
            outputs: Outputs::default(),
            remote: OnceLock::new(),
        })
    }

    fn frame(&self, now: Now) -> Frame {
        let alone = self.remote.get().filter(|remote| !remote.is_up());
        self.table.frame(now, alone.map_or(1, |remote| remote.nodes()))
    }

    /// From now on Redis counts, for as long as it answers. What is returned keeps the connection
    /// and must run for as long as the process, on a runtime of its own. The second call is none.
    pub fn share(
        self: &Arc<Self>,
        client: redis::Client,
        settings: Settings,
        hooks: Hooks,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (remote, calls) = Remote::new(settings, hooks, Arc::downgrade(self));
        let first = self.remote.set(remote.clone()).is_ok();
        async move {
            if first {
                remote::run(remote, calls, client).await;
            }
        }
    }

    /// Takes what is asked of every rule in one step: in Redis where it counts, else here.
    ///
    /// # Errors
    /// The rule that heals last; no counter has moved.
    pub async fn reserve(
        self: &Arc<Self>,
        rules: Group,
        ask: &Ask,
        caller: Caller,
        now: Now,
    ) -> Result<Reservation, Refusal> {
        let Some(remote) = self.remote.get() else { return self.reserve_here(rules, ask, now) };
        let frame = self.frame(now);
        let seats = self.table.seats(&rules, &frame);
        if let Some(refusal) = rests(&mut seats.lock(&rules), ask, &frame) {
            return Err(refusal);
        }
        let amount = |rule: &Arc<Rule>| ask.of(rule, rule.capacity());
        let amounts: Vec<u64> = remote::shared(&rules).map(amount).collect();
        let shared = match remote.reserve((&rules, &seats), &amounts, &caller, &frame).await {
            Ok(Ok(seen)) => {
                let holds = seats.lock(&rules).take(&amounts, &frame);
                let shared = Shared { caller, taken: true };
                let held = Reservation::new(self.clone(), rules, seats, holds);
                return Ok(held.shared(shared, seen));
            }
            Ok(Err(refusal)) => return Err(seats.lock(&rules).punish(refusal, &frame)),
            Err(Away::Down) => Shared { caller, taken: false },
            Err(Away::Failed) => Shared::after_release(caller),
        };
        // At this node's share, also where Redis was late only once.
        let frame = self.table.frame(now, remote.nodes());
        Ok(self.take(rules, seats, ask, &frame)?.shared(shared, Vec::new()))
    }

    /// The same by this process's own counters.
    ///
    /// # Errors
    /// As above.
    pub fn reserve_here(
        self: &Arc<Self>,
        rules: Group,
        ask: &Ask,
        now: Now,
    ) -> Result<Reservation, Refusal> {
        let frame = self.frame(now);
        let seats = self.table.seats(&rules, &frame);
        self.take(rules, seats, ask, &frame)
    }

    fn take(
        self: &Arc<Self>,
        rules: Group,
        seats: Seats,
        ask: &Ask,
        frame: &Frame,
    ) -> Result<Reservation, Refusal> {
        let holds = seats.lock(&rules).reserve(ask, frame)?;
        Ok(Reservation::new(self.clone(), rules, seats, holds))
    }

    /// Whether Redis counts; `None` where there is none.
    #[must_use]
    pub fn redis_up(&self) -> Option<bool> {
        self.remote.get().map(|remote| remote.is_up())
    }

    /// Settlements that Redis has not heard of yet.
    #[must_use]
    pub fn unsettled(&self) -> u64 {
        self.remote.get().map_or(0, |remote| remote.waiting())
    }

    /// How many of those may wait.
    #[must_use]
    pub fn unsettled_max(&self) -> usize {
        remote::QUEUE_MAX
    }

    /// Counters, and how many there may be under these rules.
    #[must_use]
    pub fn size(&self, rules: &Rules) -> (usize, usize) {
        (self.table.len(), Table::most(rules.count()))
    }

    /// Rules have changed: where counters of owners and rules that are gone are many, those that
    /// hold nothing make way. An owner that comes back begins as a new one, its budgets at what the
    /// ledger knows.
    pub fn adopt(&self, rules: &Rules) {
        if self.table.len() > Table::most(rules.count()) {
            self.table.keep(rules);
        }
    }

    /// What all nodes have used of a budget, as Redis said.
    fn heard(&self, rule: &Rule, seen: Seen) {
        self.table.heard(rule, seen, &self.frame(Now::read()));
    }

    /// How a rule stands.
    #[must_use]
    pub fn standing(&self, rule: &Rule, now: Now) -> Option<Standing> {
        self.table.standing(rule, &self.frame(now))
    }

    /// How rules stand for all nodes, or here where Redis does not say.
    pub async fn standings(
        &self,
        rules: Vec<Arc<Rule>>,
        caller: &Caller,
        now: Now,
    ) -> Vec<(Arc<Rule>, Standing)> {
        let frame = self.frame(now);
        if let Some(remote) = self.remote.get() {
            let base = |rule: &Arc<Rule>| self.table.seen(rule, &frame);
            let asked: Vec<_> = rules.iter().map(|rule| (rule.clone(), base(rule))).collect();
            if let Some(all) = remote.standings(&asked, caller).await {
                return rules.into_iter().zip(all).collect();
            }
        }
        let here = |rule: Arc<Rule>| Some((rule.clone(), self.table.standing(&rule, &frame)?));
        rules.into_iter().filter_map(here).collect()
    }

    /// How the tightest of some rules stand.
    #[must_use]
    pub fn tightest(&self, rules: &Group, now: Now) -> Tightest {
        let frame = self.frame(now);
        let seats = self.table.seats(rules, &frame);
        self.tightest_of(rules, &seats, &frame)
    }

    fn tightest_of(&self, rules: &Group, seats: &Seats, frame: &Frame) -> Tightest {
        let mut tightest = Tightest::default();
        seats.lock(rules).each(frame, |_, rule, state| {
            tightest.add(rule, || state.standing(rule, frame));
        });
        tightest
    }

    /// The cheaper model that one of these budgets asks for, being nearly spent.
    #[must_use]
    pub fn downgrade(&self, rules: &Group, now: Now) -> Option<Box<Downgrade>> {
        if rules.iter().all(|rule| rule.downgrade.is_none()) {
            return None;
        }
        let frame = self.frame(now);
        let mut found = None;
        self.table.seats(rules, &frame).lock(rules).each(&frame, |_, rule, state| {
            if found.is_none() && state.downgrades(rule) {
                found.clone_from(&rule.downgrade);
            }
        });
        found
    }

    /// Budgets among these rules that have no counter yet, each with its running period: what the
    /// ledger knows of them is to be given to [`Limits::seed`].
    #[must_use]
    pub fn unseeded<'r>(
        &self,
        rules: impl Iterator<Item = &'r Arc<Rule>>,
        now: Now,
    ) -> Vec<(Arc<Rule>, Period)> {
        let new = rules.filter(|r| r.is_budget() && !self.table.knows(r));
        let period = |rule: &Arc<Rule>| match &rule.kind {
            Kind::Budget { per, zone, .. } => Some((rule.clone(), per.at(now.wall, zone))),
            _ => None,
        };
        new.filter_map(period).collect()
    }

    /// What a budget has used in its running period. True where its alert was given by then.
    pub fn seed(&self, rule: &Rule, used: u64, now: Now) -> bool {
        self.table.seed(rule, used, &self.frame(now))
    }
}

/// A key that rests is refused here, whoever counts: for as long as it rests, or as a rule that
/// this node knows to be exhausted takes to heal.
fn rests(locked: &mut Locked<'_>, ask: &Ask, frame: &Frame) -> Option<Refusal> {
    let mut rests = false;
    locked.each(frame, |_, rule, state| {
        rests |= rule.kind == Kind::Rest && state.fits(rule, 1, frame).is_err();
    });
    if !rests {
        return None;
    }
    locked.refusal(ask, frame).map(|(refusal, _)| refusal)
}

#[cfg(test)]
mod tests;
