//! Every counter of the process, by its rule's id, in shards: all rules of a request are checked
//! and taken under their shards' locks at once, so that a refusal has moved nothing.

use super::counter::{Frame, Hold, Now, Standing, State, Why, reaches};
use super::rule::{Downgrade, Hashed, Key, Kind, Measure, Rule};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counters beyond those of the rules in force: of keys and teams that were there before.
const SPARE: usize = 10_000;
/// One bit of a word for each shard, so that a set of them is a number.
const SHARDS: usize = 64;

type Counters = HashMap<Key, State, BuildHasherDefault<Hashed>>;

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

/// The counters.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Counters>]>,
    started: Instant,
}

/// The locked shards of some rules.
struct Locked<'a> {
    mask: u64,
    guards: Vec<MutexGuard<'a, Counters>>,
}

impl Locked<'_> {
    fn state(&mut self, rule: &Rule, f: &Frame) -> Option<&mut State> {
        let below = self.mask & (bit(rule) - 1);
        let counters = self.guards.get_mut(below.count_ones() as usize)?;
        Some(counter(counters, rule, f))
    }
}

/// The counter of a rule, brought to this moment; made where there is none.
fn counter<'a>(counters: &'a mut Counters, rule: &Rule, f: &Frame) -> &'a mut State {
    if !counters.contains_key(rule.key()) {
        counters.insert(rule.key().clone(), State::new(rule, f));
    }
    let state = counters.entry(rule.key().clone()).or_insert_with(|| State::new(rule, f));
    state.roll(rule, f);
    state
}

fn bit(rule: &Rule) -> u64 {
    1 << (rule.key().spread() % SHARDS as u64)
}

impl Table {
    pub fn new(started: Instant) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), started }
    }

    pub fn frame(&self, now: Now, nodes: u64) -> Frame {
        Frame { now, started: self.started, nodes }
    }

    /// Counters there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Counters there may be where so many rules are in force: about 200 bytes each.
    pub fn most(rules: usize) -> usize {
        2 * rules + SPARE
    }

    /// Drops the counters of all other rules, but for those that hold something.
    pub fn keep(&self, rules: &HashSet<Key>) {
        for shard in &self.shards {
            let mut counters = shard.lock();
            counters.retain(|key, state| rules.contains(key) || state.holds());
            counters.shrink_to_fit();
        }
    }

    /// Shards are locked in their order, so that no two requests wait for each other.
    fn lock(&self, rules: &[Arc<Rule>]) -> Locked<'_> {
        let mask = rules.iter().fold(0, |mask, rule| mask | bit(rule));
        let mut guards = Vec::with_capacity(mask.count_ones() as usize);
        let mut left = mask;
        while left != 0 {
            let shard = left.trailing_zeros() as usize;
            left &= left - 1;
            guards.extend(self.shards.get(shard).map(Mutex::lock));
        }
        Locked { mask, guards }
    }

    fn with<T>(&self, rule: &Rule, f: &Frame, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        let shard = self.shards.get(bit(rule).trailing_zeros() as usize)?;
        Some(act(counter(&mut shard.lock(), rule, f)))
    }

    /// Takes what is asked of every rule, or nothing of any. A refusal names the rule that heals
    /// last, by its place in `rules`.
    pub fn reserve(
        &self,
        rules: &[Arc<Rule>],
        ask: &Ask,
        f: &Frame,
    ) -> Result<Vec<Hold>, (usize, Why)> {
        let mut locked = self.lock(rules);
        let mut worst: Option<(usize, Why)> = None;
        for (i, rule) in rules.iter().enumerate() {
            let amount = ask.of(rule, f.capacity(rule));
            let Some(state) = locked.state(rule, f) else { continue };
            if let Err(why) = state.fits(rule, amount, f)
                && worst.is_none_or(|(_, other)| gravity(why) > gravity(other))
            {
                worst = Some((i, why));
            }
        }
        if let Some((i, why)) = worst {
            return Err((i, rest(&mut locked, rules, i, f).unwrap_or(why)));
        }
        let take = |rule: &Arc<Rule>| {
            let amount = ask.of(rule, f.capacity(rule));
            locked.state(rule, f).map(|state| state.take(rule, amount)).unwrap_or_default()
        };
        Ok(rules.iter().map(take).collect())
    }

    /// The key rests where the rule it ran into says so.
    pub fn punish(&self, rules: &[Arc<Rule>], i: usize, f: &Frame) -> Option<Why> {
        rest(&mut self.lock(rules), rules, i, f)
    }

    /// Takes `amount` of one rule, whether it fits or not.
    pub fn take(&self, rule: &Rule, amount: u64, f: &Frame) -> Hold {
        self.with(rule, f, |state| state.take(rule, amount)).unwrap_or_default()
    }

    /// Whether `amount` fits into one rule.
    pub fn fits(&self, rule: &Rule, amount: u64, f: &Frame) -> Result<(), Why> {
        self.with(rule, f, |state| state.fits(rule, amount, f)).unwrap_or(Ok(()))
    }

    /// Gives a hold back.
    pub fn give(&self, rule: &Rule, hold: Hold) {
        // Without a clock: what a bucket gets back late is refilled late, and never more.
        let Some(shard) = self.shards.get(bit(rule).trailing_zeros() as usize) else { return };
        if let Some(state) = shard.lock().get_mut(rule.key()) {
            state.give(rule, hold);
        }
    }

    /// Books what was used instead of a hold; true when an alert is due.
    pub fn settle(&self, rule: &Rule, hold: Hold, used: u64, f: &Frame) -> bool {
        self.with(rule, f, |state| state.settle(rule, hold, used, f)).unwrap_or(false)
    }

    /// How a rule stands.
    pub fn standing(&self, rule: &Rule, f: &Frame) -> Option<Standing> {
        self.with(rule, f, |state| state.standing(rule, f))
    }

    /// Whether a rule has a counter.
    pub fn knows(&self, rule: &Rule) -> bool {
        let shard = self.shards.get(bit(rule).trailing_zeros() as usize);
        shard.is_some_and(|s| s.lock().contains_key(rule.key()))
    }

    /// Sets what a budget has used in this period, before its first request. An alert whose
    /// threshold lies below it was given then.
    pub fn seed(&self, rule: &Rule, used: u64, f: &Frame) -> bool {
        let seed = |state: &mut State| {
            let State::Budget(purse) = state else { return false };
            purse.used = used;
            purse.seen = used;
            purse.alert(rule, rule.capacity())
        };
        self.with(rule, f, seed).unwrap_or(false)
    }

    /// What all nodes together have used of a budget, as Redis said: while this node counts
    /// alone it gets its part of what was left.
    pub fn saw(&self, rule: &Rule, used: u64, f: &Frame) {
        self.with(rule, f, |state| {
            if let State::Budget(purse) = state {
                purse.seen = used;
                let left = rule.capacity().saturating_sub(used) / f.nodes.max(1);
                purse.alone = Some(purse.used.saturating_add(purse.held).saturating_add(left));
            }
        });
    }

    /// The most that is known to be used of a budget by all nodes, and its period's start.
    pub fn known(&self, rule: &Rule, f: &Frame) -> u64 {
        let known = self.with(rule, f, |state| match state {
            State::Budget(purse) => purse.used.max(purse.seen),
            _ => 0,
        });
        known.unwrap_or(0)
    }

    /// The cheaper model of a budget that is nearly spent.
    pub fn downgrade<'r>(&self, rule: &'r Rule, f: &Frame) -> Option<&'r Downgrade> {
        let downgrade = rule.downgrade.as_ref()?;
        let used = self.known(rule, f);
        reaches(used, rule.capacity(), downgrade.at).then_some(downgrade)
    }
}

impl Frame {
    /// What a rule has at most here.
    pub fn capacity(&self, rule: &Rule) -> u64 {
        let all = rule.capacity();
        if self.nodes > 1 && !rule.is_budget() { (all / self.nodes).max(1) } else { all }
    }
}

/// Refusals in the order in which they heal.
fn gravity(why: Why) -> (u8, Duration) {
    match why {
        Why::Wait(wait) => (1, wait),
        Why::Rests(wait) => (2, wait),
        Why::Spent { resets, .. } => {
            let at = resets.and_then(|at| u64::try_from(at).ok());
            (3, at.map_or(Duration::MAX, Duration::from_secs))
        }
        Why::Never => (4, Duration::MAX),
    }
}

fn rest(locked: &mut Locked<'_>, rules: &[Arc<Rule>], i: usize, f: &Frame) -> Option<Why> {
    let penalty = rules.get(i)?.penalty?;
    let rest = rules.iter().find(|r| r.kind == Kind::Rest)?;
    if let State::Rest { until } = locked.state(rest, f)? {
        *until = f.now.at.checked_add(penalty);
    }
    Some(Why::Rests(penalty))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::limit::{Limits, Owner, Rules, Scope, Spec};
    use jiff::tz::TimeZone;

    fn rule(name: &str, kind: Kind) -> Arc<Rule> {
        Arc::new(Rule::new(&Owner::new(Scope::Key, name), "rule", "rule", kind))
    }

    #[test]
    fn counters_of_keys_that_are_gone_make_way_and_running_requests_keep_theirs() {
        let at = Instant::now();
        let now = Now { at, wall: jiff::Timestamp::UNIX_EPOCH };
        let limits = Limits::new(at);
        let ask = |rule: &Arc<Rule>| limits.reserve_here(vec![rule.clone()], &Ask::default(), now);
        let slots = |name: &str| rule(name, Kind::Concurrent { amount: 9 });
        let running = slots("running");
        let held = ask(&running).unwrap();
        // Keys that were made, used once, and deleted.
        for i in 0..SPARE + 50 {
            drop(ask(&slots(&format!("key-{i}"))).unwrap());
        }
        assert_eq!(limits.table.len(), SPARE + 51);
        let mut rules = Rules::new(TimeZone::UTC, crate::limit::DefaultOutput::default());
        limits.adopt(&rules);
        assert_eq!(limits.table.len(), 1, "but for the one that holds a slot");
        assert_eq!(limits.standing(&running, now).unwrap().held, 1);
        drop(held);
        assert_eq!(limits.standing(&running, now).unwrap().held, 0);
        // Few are left where they are: a key that comes back finds its own.
        rules.add(&Owner::new(Scope::Key, "running"), Spec::default()).unwrap();
        limits.adopt(&rules);
        let (entries, most) = limits.size(&rules);
        assert_eq!((entries, most), (1, SPARE + 2));
    }
}
