//! Every counter of the process, by owner and rule.

use super::counter::{Frame, Now, Seen, State, reaches};
use super::owned::{Group, Link, Owned, Part, SCOPES};
use super::rule::{Downgrade, Measure, Owner, Rule, Scope};
use super::rules::Rules;
use super::seats::{Account, Seats, Slots};
use super::standing::Standing;
use foldhash::quality::RandomState;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Counters beyond those of the rules in force: of keys and teams that were there before.
const SPARE: usize = 10_000;

/// Units that are asked for: `sure` by what the request says, `guess` for what it leaves open. A
/// guess is cut to what a rule has at most: it may make a request wait, never make it impossible.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Known.
    pub sure: u64,
    /// Guessed.
    pub guess: u64,
}

/// What a request asks for at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ask {
    /// Prompt and output.
    pub tokens: Amount,
    /// The same in nano-USD.
    pub money: Amount,
}

/// What a request has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// 1, or 0 where nobody was asked.
    pub requests: u64,
    /// Prompt and output.
    pub tokens: u64,
    /// Nano-USD.
    pub money: u64,
}

impl Used {
    /// The part that a rule counts.
    #[must_use]
    pub fn of(&self, rule: &Rule) -> u64 {
        match rule.measure() {
            Some(Measure::Requests) => self.requests,
            Some(Measure::Tokens) => self.tokens,
            Some(Measure::Money) => self.money,
            None => 0,
        }
    }
}

impl Ask {
    /// What of it a rule holds, when it has at most `capacity`.
    #[must_use]
    pub fn of(&self, rule: &Rule, capacity: u64) -> u64 {
        let amount = match rule.measure() {
            Some(Measure::Tokens) => self.tokens,
            Some(Measure::Money) => self.money,
            Some(Measure::Requests) | None => Amount { sure: 1, guess: 0 },
        };
        let full = amount.sure.saturating_add(amount.guess);
        if amount.guess > 0 { full.min(capacity.max(amount.sure)) } else { full }
    }
}

/// By their owners' names.
type Accounts = HashMap<Arc<str>, Arc<Account>, RandomState>;

/// The counters.
#[derive(Debug)]
pub(super) struct Table {
    /// No other table of the process has it.
    id: u64,
    /// Of each scope, by the owner's name.
    accounts: [RwLock<Accounts>; SCOPES],
    counters: AtomicUsize,
    started: Instant,
}

impl Table {
    pub fn new(started: Instant) -> Self {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let id = TABLES.fetch_add(1, Ordering::Relaxed);
        Self { id, accounts: Default::default(), counters: AtomicUsize::new(0), started }
    }

    pub fn frame(&self, now: Now, nodes: u64) -> Frame {
        Frame { now, started: self.started, nodes }
    }

    /// Counters there are.
    pub fn len(&self) -> usize {
        self.counters.load(Ordering::Relaxed)
    }

    /// Counters there may be where so many rules are in force: about 200 bytes each.
    pub fn most(rules: usize) -> usize {
        2 * rules + SPARE
    }

    /// Drops the counters of owners that these rules do not have, and of rules that an owner no
    /// longer has, but for those of who holds something.
    pub fn keep(&self, rules: &Rules) {
        const ALL: [Scope; SCOPES] =
            [Scope::Gateway, Scope::Department, Scope::Team, Scope::User, Scope::Key];
        for (scope, accounts) in ALL.into_iter().zip(&self.accounts) {
            let mut accounts = accounts.write();
            accounts.retain(|name, account| {
                let slots = account.0.lock();
                let before = slots.states.len();
                if slots.states.iter().any(State::holds) {
                    return true;
                }
                let Some(owned) = rules.owned(scope, name) else {
                    self.counters.fetch_sub(before, Ordering::Relaxed);
                    return false;
                };
                let counted = owned.counted();
                // Places that were handed out stay as they are.
                if before > counted.len() && !owned.is_linked() {
                    let only = slots.only(counted);
                    self.counters.fetch_sub(before - only.states.len(), Ordering::Relaxed);
                    drop(slots);
                    *account = Arc::new(Account(Mutex::new(only)));
                }
                true
            });
            accounts.shrink_to_fit();
        }
    }

    fn account(&self, owner: &Owner) -> Arc<Account> {
        let accounts = &self.accounts[owner.scope as usize];
        if let Some(account) = accounts.read().get(&owner.name) {
            return account.clone();
        }
        accounts.write().entry(owner.name.clone()).or_default().clone()
    }

    /// The place of a rule's counter; made where there is none.
    fn place(&self, slots: &mut Slots, rule: &Rule, f: &Frame) -> usize {
        let found = slots.ids.iter().position(|id| *id == rule.id);
        found.unwrap_or_else(|| {
            slots.ids.push(rule.id.clone());
            slots.states.push(State::new(rule, f));
            self.counters.fetch_add(1, Ordering::Relaxed);
            slots.states.len() - 1
        })
    }

    fn link(&self, owned: &Owned, f: &Frame) -> Link {
        let account = self.account(&owned.owner);
        let mut slots = account.0.lock();
        let mut place = |rule: &Arc<Rule>| u32::try_from(self.place(&mut slots, rule, f)).ok();
        let places = owned.counted().iter().map(|r| place(r).unwrap_or(u32::MAX)).collect();
        drop(slots);
        Link { table: self.id, account, places }
    }

    /// Where a group is counted.
    pub fn seats(&self, group: &Group, f: &Frame) -> Seats {
        let seat = |part: &Option<Part>| {
            let owned = &part.as_ref()?.owned;
            Some(owned.link(self.id, || self.link(owned, f)))
        };
        Seats(group.by_scope().each_ref().map(seat))
    }

    /// One rule's counter, whoever else's are beside it.
    fn with<T>(&self, rule: &Rule, f: &Frame, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        let account = self.account(&rule.owner);
        let mut slots = account.0.lock();
        let place = self.place(&mut slots, rule, f);
        let state = slots.states.get_mut(place)?;
        state.roll(rule, f);
        Some(act(state))
    }

    /// How a rule stands.
    pub fn standing(&self, rule: &Rule, f: &Frame) -> Option<Standing> {
        self.with(rule, f, |state| state.standing(rule, f))
    }

    /// What Redis has said is used of a budget.
    pub fn seen(&self, rule: &Rule, f: &Frame) -> Seen {
        self.with(rule, f, |state| state.seen()).unwrap_or_default()
    }

    /// Whether a rule has a counter.
    pub fn knows(&self, rule: &Rule) -> bool {
        let accounts = self.accounts[rule.owner.scope as usize].read();
        accounts.get(&rule.owner.name).is_some_and(|a| a.0.lock().ids.contains(&rule.id))
    }

    /// What all nodes have used of a budget, as Redis said after a settlement.
    pub fn heard(&self, rule: &Rule, seen: Seen, f: &Frame) {
        let account =
            self.accounts[rule.owner.scope as usize].read().get(&rule.owner.name).cloned();
        let Some(account) = account else { return };
        let mut slots = account.0.lock();
        let place = slots.ids.iter().position(|id| *id == rule.id);
        if let Some(state) = place.and_then(|place| slots.states.get_mut(place)) {
            state.roll(rule, f);
            state.hear(seen);
        }
    }

    /// Sets what a budget has used in this period, before its first request. An alert whose
    /// threshold lies below it was given then.
    pub fn seed(&self, rule: &Rule, used: u64, f: &Frame) -> bool {
        let seed = |state: &mut State| {
            let State::Budget(purse) = state else { return false };
            purse.used = used;
            purse.seen = Seen { used, epoch: 0 };
            purse.alert(rule, rule.capacity())
        };
        self.with(rule, f, seed).unwrap_or(false)
    }
}

impl State {
    /// What all nodes together have used of a budget, as Redis said: while this node counts
    /// alone it gets its part of what was left.
    pub fn saw(&mut self, rule: &Rule, seen: Seen, f: &Frame) {
        self.hear(seen);
        if let Self::Budget(purse) = self {
            let left = rule.capacity().saturating_sub(seen.used) / f.nodes.max(1);
            purse.alone = Some(purse.used.saturating_add(purse.held).saturating_add(left));
        }
    }

    /// The same where nothing is asked for. Answers may overtake each other.
    pub fn hear(&mut self, seen: Seen) {
        if let Self::Budget(purse) = self
            && (purse.seen.epoch != seen.epoch || purse.seen.used < seen.used)
        {
            purse.seen = seen;
        }
    }

    /// What Redis has said of a budget in this period, or the ledger before it; nothing elsewhere.
    /// What this node has not told Redis yet is no part of it.
    pub fn seen(&self) -> Seen {
        match self {
            Self::Budget(purse) => purse.seen,
            _ => Seen::default(),
        }
    }

    /// The most that is known to be used of a budget by all nodes.
    pub fn known(&self) -> u64 {
        match self {
            Self::Budget(purse) => purse.used.max(purse.seen.used),
            _ => 0,
        }
    }

    /// Whether a budget is so nearly spent that its cheaper model serves.
    pub fn downgrades(&self, rule: &Rule) -> bool {
        let reached = |d: &Downgrade| reaches(self.known(), rule.capacity(), d.at);
        rule.downgrade.as_deref().is_some_and(reached)
    }
}

impl Frame {
    /// What a rule has at most here.
    pub fn capacity(&self, rule: &Rule) -> u64 {
        let all = rule.capacity();
        if self.nodes > 1 && !rule.is_budget() { (all / self.nodes).max(1) } else { all }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::limit::rule::Kind;
    use crate::limit::{Limits, Spec};
    use jiff::tz::TimeZone;

    fn rule(name: &str, kind: Kind) -> Arc<Rule> {
        Arc::new(Rule::new(&Owner::new(Scope::Key, name), "rule", "rule", kind))
    }

    #[test]
    fn counters_of_keys_that_are_gone_make_way_and_running_requests_keep_theirs() {
        let at = Instant::now();
        let now = Now { at, wall: jiff::Timestamp::UNIX_EPOCH };
        let limits = Limits::new(at);
        let ask =
            |rule: &Arc<Rule>| limits.reserve_here([rule.clone()][..].into(), &Ask::default(), now);
        let slots = |name: &str| rule(name, Kind::Concurrent { amount: 9 });
        let running = slots("running");
        let held = ask(&running).unwrap();
        // Keys that were made, used once, and deleted, each with its rest.
        for i in 0..SPARE / 2 + 50 {
            drop(ask(&slots(&format!("key-{i}"))).unwrap());
        }
        assert_eq!(limits.table.len(), SPARE + 102);
        let mut rules = Rules::new(TimeZone::UTC, crate::limit::DefaultOutput::default());
        limits.adopt(&rules);
        assert_eq!(limits.table.len(), 2, "but for the one that holds a slot");
        assert_eq!(limits.standing(&running, now).unwrap().held, 1);
        drop(held);
        assert_eq!(limits.standing(&running, now).unwrap().held, 0);
        // Few are left where they are: a key that comes back finds its own.
        rules.add(&Owner::new(Scope::Key, "running"), Spec::default()).unwrap();
        limits.adopt(&rules);
        let (entries, most) = limits.size(&rules);
        assert_eq!((entries, most), (2, SPARE + 2));
    }
    #[test]
    fn counters_of_rules_that_changed_make_way_and_the_others_keep_what_was_used() {
        let at = Instant::now();
        let now = Now { at, wall: jiff::Timestamp::UNIX_EPOCH };
        let limits = Limits::new(at);
        let zone = TimeZone::UTC;
        let owners: Vec<_> = (0..200).map(|i| Owner::new(Scope::Key, &format!("k{i}"))).collect();
        // A budget that stays, and one whose models are others in each config.
        let rules = |n: u32| {
            let budget = |models: Vec<String>| super::super::Budget {
                measure: Measure::Tokens,
                amount: 100,
                per: crate::limit::Per::Ever,
                alert: None,
                downgrade: None,
                common: crate::limit::Common { models, ..Default::default() },
            };
            let mut rules = Rules::new(zone.clone(), crate::limit::DefaultOutput::default());
            for owner in &owners {
                let budgets = vec![budget(Vec::new()), budget(vec![format!("m{n}")])];
                let spec = Spec { budgets: Some(budgets), ..Spec::default() };
                rules.add(owner, spec).unwrap();
            }
            rules
        };
        let tokens = Amount { sure: 1, guess: 0 };
        for n in 0..60 {
            let rules = rules(n);
            limits.adopt(&rules);
            for owner in &owners {
                let group = rules.gather([(Scope::Key, &*owner.name)], &format!("m{n}"), "chat");
                let ask = Ask { tokens, ..Ask::default() };
                let mut held = limits.reserve_here(group, &ask, now).unwrap();
                let _ = held.settle(&Used { requests: 1, tokens: 1, money: 0 }, now);
            }
            let (entries, most) = limits.size(&rules);
            assert!(entries <= most + 3 * owners.len(), "{entries} of {most} after {n}");
            let first = rules.of(Scope::Key, "k0").next().unwrap();
            let standing = limits.standing(first, now).unwrap();
            assert_eq!((standing.used, standing.held), (u64::from(n) + 1, 0));
        }
    }
}
