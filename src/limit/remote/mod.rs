//! Limits that all nodes share: one script on Redis for all rules of a request.
//!
//! A call that is late or fails is answered by this node's own counters, at its share of each
//! limit, until a sign of life comes back in time. Whatever is settled is queued, and told to
//! Redis when it listens again: by the hold's id, so that nothing is told twice.

mod call;
mod link;

pub use call::Caller;
pub use link::{Link, client};

use super::counter::{Frame, Hold, Now, Seen};
use super::reservation::Alert;
use super::rule::{Kind, Rule};
use super::seats::Seats;
use super::standing::Standing;
use super::table::Used;
use super::{Group, Limits, Refusal};
use call::{Call, Op, Said, Total, Units, said};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Settlements that wait for Redis. At a thousand requests a second this is a minute; what does
/// not fit is lost to Redis only, and its holds end by themselves.
pub(super) const QUEUE_MAX: usize = 1 << 16;
/// Late answers in a row after which Redis is away. One alone may be the network's.
const LATE_MAX: u32 = 2;
/// Timeouts that one call may take while others are answered: a burst queues up at a Redis that is
/// well, and its exact answer is worth the wait. One that answers nobody is waited for once.
const PATIENCE: u32 = 20;

/// What Redis is reached by, and how long it is waited for.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Before every key.
    pub prefix: String,
    /// For one call.
    pub timeout: Duration,
    /// How long a hold lives in Redis: longer than any request.
    pub hold: Duration,
}

/// Who hears of it.
pub struct Hooks {
    /// A budget has reached its threshold, for the first time on any node.
    pub alert: Box<dyn Fn(&Alert) + Send + Sync>,
    /// A call was answered, in this time; or was not.
    pub called: Box<dyn Fn(Option<Duration>) + Send + Sync>,
}

/// Redis, as reservations see it.
pub struct Remote {
    settings: Settings,
    hooks: Hooks,
    /// Whose counters hear what Redis says.
    limits: Weak<Limits>,
    link: arc_swap::ArcSwapOption<Link>,
    up: AtomicBool,
    /// What is wrong with it, as last said.
    why: parking_lot::Mutex<String>,
    late: AtomicU32,
    nodes: AtomicU64,
    queue: mpsc::Sender<Call>,
    /// Settlements that were taken from the queue and not told yet, and those that are in it.
    waiting: AtomicU64,
    /// Settlements that nobody could take.
    lost: AtomicU64,
    /// When the last call was answered, in microseconds since `began`.
    answered: AtomicU64,
    began: Instant,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("up", &self.is_up()).finish_non_exhaustive()
    }
}

/// What a request holds, and what Redis had said of each rule, should it have forgotten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held<'a> {
    pub rules: &'a Group,
    pub holds: &'a [Hold],
    pub bases: &'a [Seen],
}

/// How a request is known to Redis.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub caller: Caller,
    /// Redis holds it; else it only hears what was used.
    pub taken: bool,
}

impl Shared {
    /// A request that Redis did not answer in time. Its own id is that of a release, which may
    /// still be under way; a UUID of version 7 has its first bit set in the year 6429.
    pub fn after_release(mut caller: Caller) -> Self {
        caller.id ^= 1 << 127;
        Self { caller, taken: false }
    }
}

/// Why Redis gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Away {
    /// It is known to be away.
    Down,
    /// It did not answer in time, or the connection broke.
    Failed,
}

impl Remote {
    /// Redis, not connected yet; and what [`link::run`] tells it.
    pub(super) fn new(
        settings: Settings,
        hooks: Hooks,
        limits: Weak<Limits>,
    ) -> (Arc<Self>, mpsc::Receiver<Call>) {
        let (queue, calls) = mpsc::channel(QUEUE_MAX);
        let remote = Self {
            settings,
            hooks,
            limits,
            link: arc_swap::ArcSwapOption::empty(),
            up: AtomicBool::new(false),
            why: parking_lot::Mutex::default(),
            late: AtomicU32::new(0),
            nodes: AtomicU64::new(1),
            queue,
            waiting: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            began: Instant::now(),
        };
        (Arc::new(remote), calls)
    }

    /// Whether Redis counts now.
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Among how many nodes a limit is shared while they cannot count together.
    pub(super) fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    /// Settlements that Redis has not heard of yet.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Redis cannot be reached, or refuses us: said once for each reason until it counts again.
    fn fails(&self, error: &redis::RedisError) {
        let why = error.to_string();
        let mut last = self.why.lock();
        if *last != why {
            log::warn!(why = why.as_str(); "redis cannot be asked");
            *last = why;
        }
    }

    fn set_up(&self, up: bool) {
        self.late.store(0, Ordering::Relaxed);
        if up {
            self.why.lock().clear();
        }
        if self.up.swap(up, Ordering::AcqRel) == up {
            return;
        }
        if up {
            log::info!(nodes = self.nodes(); "redis counts for all nodes");
        } else {
            let nodes = self.nodes();
            log::warn!(nodes; "redis is away: this node counts by itself, at its share of limits");
        }
    }

    /// Takes `amounts` of every rule in Redis, or nothing of any.
    pub(super) async fn reserve(
        &self,
        (rules, seats): (&Group, &Seats),
        amounts: &[u64],
        caller: &Caller,
        frame: &Frame,
    ) -> Result<Result<Vec<Standing>, Refusal>, Away> {
        if !self.is_up() {
            return Err(Away::Down);
        }
        let frame = Frame { nodes: self.nodes(), ..*frame };
        let mut call = self.call(Op::Reserve, caller);
        seats.lock(rules).each(&frame, |i, rule, state| {
            // What is there of a rest is each node's own.
            if let Some(n) = amounts.get(i).filter(|_| rule.kind != Kind::Rest) {
                let units = Units { n: *n, base: state.seen(), ..Units::default() };
                self.add(&mut call, rule, units, caller);
            }
        });
        let answer = match self.link.load_full() {
            Some(link) => self.timed(link.invoke(&call)).await,
            None => None,
        };
        match answer.map(|value| said(&call, value)) {
            Some(Said::Taken(said)) => {
                seats.lock(rules).each(&frame, |i, rule, state| {
                    if let Some((standing, epoch)) = said.get(i) {
                        state.saw(rule, Seen { used: standing.used, epoch: *epoch }, &frame);
                    }
                });
                Ok(Ok(said.into_iter().map(|(standing, _)| standing).collect()))
            }
            Some(Said::Refused(rule, why)) => Ok(Err(Refusal { rule, why })),
            Some(Said::Late | Said::Odd) | None => {
                // It may have run all the same, or still will.
                let holds = amounts.iter().map(|n| Hold { amount: *n, period: 0 });
                let mut release = self.call(Op::Release, caller);
                let mut holds = holds;
                seats.lock(rules).each(&frame, |_, rule, state| {
                    if rule.kind != Kind::Rest
                        && let Some(hold) = holds.next()
                    {
                        let units = Units { hold, base: state.seen(), ..Units::default() };
                        self.release(&mut release, (rule, units), caller, frame.now);
                    }
                });
                self.tell(release);
                Err(Away::Failed)
            }
        }
    }

    /// How rules stand, each given with what Redis had said of it; `None` where it does not say.
    pub(super) async fn standings(
        &self,
        rules: &[(Arc<Rule>, Seen)],
        caller: &Caller,
    ) -> Option<Vec<Standing>> {
        let link = self.link.load_full().filter(|_| self.is_up() && !rules.is_empty())?;
        let mut call = self.call(Op::Query, caller);
        for (rule, base) in rules {
            self.add(&mut call, rule, Units { base: *base, ..Units::default() }, caller);
        }
        match said(&call, self.timed(link.invoke(&call)).await?) {
            Said::Taken(said) => Some(said.into_iter().map(|(standing, _)| standing).collect()),
            _ => None,
        }
    }

    /// A release names the hold by the period that this node thinks it is in.
    fn release(
        &self,
        call: &mut Call,
        (rule, mut units): (&Arc<Rule>, Units),
        caller: &Caller,
        now: Now,
    ) {
        if let Kind::Budget { per, zone, .. } = &rule.kind {
            units.hold.period = per.at(now.wall, zone).start;
        }
        self.add(call, rule, units, caller);
    }

    /// Somebody was answered within the last timeout.
    fn answers(&self) -> bool {
        let last = Duration::from_micros(self.answered.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last) < self.settings.timeout
    }

    async fn timed<T>(
        &self,
        call: impl Future<Output = Result<T, redis::RedisError>>,
    ) -> Option<T> {
        let (start, timeout) = (Instant::now(), self.settings.timeout);
        let mut call = std::pin::pin!(call);
        let mut round = start;
        let answer = loop {
            let answer = tokio::time::timeout(timeout, &mut call).await;
            // A timer that rings late means that this process had no time: so may have been the
            // one that would have read the answer.
            let starved = round.elapsed() > timeout * 3 / 2;
            let waits = (starved || self.answers()) && start.elapsed() < timeout * PATIENCE;
            if answer.is_ok() || !waits {
                break answer;
            }
            round = Instant::now();
        };
        match answer {
            Ok(Ok(value)) => {
                self.late.store(0, Ordering::Relaxed);
                let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.answered.store(micros, Ordering::Relaxed);
                (self.hooks.called)(Some(start.elapsed()));
                return Some(value);
            }
            Ok(Err(error)) => {
                self.fails(&error);
                self.set_up(false);
            }
            Err(_) => {
                if self.late.fetch_add(1, Ordering::Relaxed) + 1 >= LATE_MAX {
                    self.set_up(false);
                }
            }
        }
        (self.hooks.called)(None);
        None
    }

    /// Books what was used, when Redis can hear it.
    pub(super) fn settle(&self, shared_by: &Shared, held: &Held<'_>, used: &Used) {
        self.each(Op::Settle, shared_by, held, |_, rule| used.of(rule));
    }

    /// Gives everything back, when Redis can hear it.
    pub(super) fn give(&self, shared_by: &Shared, held: &Held<'_>) {
        self.each(Op::Release, shared_by, held, |_, _| 0);
    }

    /// Adds to a hold, which is given as it was before.
    pub(super) fn grow(&self, shared_by: &Shared, held: &Held<'_>, more: &[u64]) {
        self.each(Op::Grow, shared_by, held, |i, _| more.get(i).copied().unwrap_or(0));
    }

    fn each(&self, op: Op, by: &Shared, held: &Held<'_>, n: impl Fn(usize, &Rule) -> u64) {
        let mut call = self.call(op, &by.caller);
        for (i, (rule, hold)) in held.rules.iter().zip(held.holds.iter().copied()).enumerate() {
            if rule.kind != Kind::Rest {
                let base = held.bases.get(i).copied().unwrap_or_default();
                let units = Units { n: n(i, rule), hold, base };
                self.add(&mut call, rule, units, &by.caller);
            }
        }
        self.tell(call);
    }

    fn call(&self, op: Op, caller: &Caller) -> Call {
        Call::new(op, caller, &self.settings.prefix, self.settings.hold)
    }

    fn add(&self, call: &mut Call, rule: &Arc<Rule>, units: Units, caller: &Caller) {
        call.add(rule, units, (&caller.tag, &self.settings.prefix), Now::read());
    }

    fn tell(&self, call: Call) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        if self.queue.try_send(call).is_err() {
            self.told();
            if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                log::error!("redis is away for too long: its counters will miss what is used now");
            }
        }
    }

    /// What a settlement's answer says: how much is used of budgets, and which of them reached
    /// their threshold.
    fn heard(&self, call: &Call, value: redis::Value) {
        let limits = self.limits.upgrade();
        for Total { rule, seen, alert } in call::totals(call, value) {
            if let Some(limits) = &limits {
                limits.heard(&rule, seen);
            }
            if alert {
                (self.hooks.alert)(&Alert { rule, used: seen.used });
            }
        }
    }

    fn told(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The rules that Redis counts: a key's rest is each node's own.
pub(super) fn shared(rules: &Group) -> impl Iterator<Item = &Arc<Rule>> {
    rules.iter().filter(|r| r.kind != Kind::Rest)
}

/// Keeps the connection and tells Redis what is settled, for ever. For a thread of its own.
pub(super) async fn run(remote: Arc<Remote>, calls: mpsc::Receiver<Call>, client: redis::Client) {
    link::run(remote, calls, client).await;
}
