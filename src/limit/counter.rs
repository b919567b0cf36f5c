//! The counter behind one rule: what is used, what is held, what is left.

use super::period::Period;
use super::rule::{Kind, Rule};
use super::standing::Standing;
use jiff::Timestamp;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A moment: the steady clock for buckets and windows, the wall's for the calendar.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Steady.
    pub at: Instant,
    /// On the wall.
    pub wall: Timestamp,
}

impl Now {
    /// This moment.
    #[must_use]
    pub fn read() -> Self {
        Self { at: Instant::now(), wall: Timestamp::now() }
    }
}

/// A window's length is counted in so many parts: what is used leaves it at most a part late.
const PARTS: u32 = 60;

/// A concurrency slot's true wait is not known: somebody must finish first.
const SLOT_WAIT: Duration = Duration::from_secs(1);

/// Why a rule refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Not now; after this time it fits if nobody else comes.
    Wait(Duration),
    /// It never fits: more is asked than the rule ever has.
    Never,
    /// The budget is spent, or the rest of it is held for running requests.
    Spent {
        /// Settled.
        used: u64,
        /// Held for running requests.
        held: u64,
        /// Seconds since 1970; absent where it never does.
        resets: Option<i64>,
    },
    /// The owner rests.
    Rests(Duration),
}

/// What one reservation took of one rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hold {
    /// Units.
    pub amount: u64,
    /// The start of a budget's period, 0 elsewhere.
    pub period: i64,
}

/// A counter. A new one has nothing used.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// `debt` is in units times nanoseconds of the rule's period, so that no refill is rounded.
    Bucket { debt: u128, at: Instant },
    /// Requests now running.
    Slots { open: u64 },
    /// Parts in order, each with its number and what was used in it.
    Window { parts: VecDeque<(u64, u64)>, used: u64, held: u64 },
    /// One period of the calendar.
    Budget(Purse),
    /// Until when the owner rests.
    Rest { until: Option<Instant> },
}

/// What Redis has said is used of a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Units.
    pub used: u64,
    /// The milliseconds since 1970 at which Redis began to count it, which tell a Redis that has
    /// lost everything from the one before; 0 where it has said nothing yet.
    pub epoch: u64,
}

/// A budget in one period.
#[derive(Debug, Clone)]
pub(super) struct Purse {
    pub period: Period,
    pub used: u64,
    pub held: u64,
    /// Its alert was given in this period.
    pub alerted: bool,
    /// The most that other nodes and this one were known to have used.
    pub seen: Seen,
    /// What this node may use in all while it must count alone.
    pub alone: Option<u64>,
}

impl Purse {
    fn new(period: Period) -> Self {
        Self { period, used: 0, held: 0, alerted: false, seen: Seen::default(), alone: None }
    }
}

/// What a counter must know beside its rule: the moment, the process's start, and among how many
/// nodes a limit is shared while they cannot count together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub now: Now,
    pub started: Instant,
    pub nodes: u64,
}

impl Frame {
    fn share(&self, amount: u64) -> u64 {
        if self.nodes > 1 { (amount / self.nodes).max(1) } else { amount }
    }
    fn part(&self, length: Duration) -> u64 {
        // 64 bits are 584 years, and a division of 128 is a loop.
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let since = self.now.at.saturating_duration_since(self.started);
        nanos(since) / (nanos(length) / u64::from(PARTS)).max(1)
    }
}

impl State {
    pub fn new(rule: &Rule, f: &Frame) -> Self {
        match &rule.kind {
            Kind::Bucket { .. } => Self::Bucket { debt: 0, at: f.now.at },
            Kind::Concurrent { .. } => Self::Slots { open: 0 },
            Kind::Window { .. } => Self::Window { parts: VecDeque::new(), used: 0, held: 0 },
            Kind::Budget { per, zone, .. } => Self::Budget(Purse::new(per.at(f.now.wall, zone))),
            Kind::Rest => Self::Rest { until: None },
        }
    }

    /// Whether a running request has a part of it that is to come back.
    pub fn holds(&self) -> bool {
        match self {
            Self::Slots { open } => *open > 0,
            Self::Window { held, .. } => *held > 0,
            Self::Budget(purse) => purse.held > 0,
            Self::Bucket { .. } | Self::Rest { .. } => false,
        }
    }

    /// Brings the counter to this moment: refills, forgets, begins the next period.
    pub fn roll(&mut self, rule: &Rule, f: &Frame) {
        match (self, &rule.kind) {
            (Self::Bucket { debt, at }, Kind::Bucket { amount, .. }) => {
                let passed = f.now.at.saturating_duration_since(*at).as_nanos();
                *debt = debt.saturating_sub(passed * u128::from(f.share(*amount)));
                *at = f.now.at.max(*at);
            }
            (Self::Window { parts, used, .. }, Kind::Window { length, .. }) => {
                let oldest = f.part(*length).saturating_sub(u64::from(PARTS));
                while let Some((_, amount)) = parts.front().filter(|(n, _)| *n < oldest) {
                    *used = used.saturating_sub(*amount);
                    parts.pop_front();
                }
            }
            // A wall clock that steps back does not bring an old period back.
            (Self::Budget(purse), Kind::Budget { per, zone, .. })
                if purse.period.end.is_some_and(|end| f.now.wall.as_second() >= end) =>
            {
                *purse = Purse::new(per.at(f.now.wall, zone));
            }
            _ => {}
        }
    }

    /// Whether `amount` more fits now.
    pub fn fits(&self, rule: &Rule, amount: u64, f: &Frame) -> Result<(), Why> {
        match (self, &rule.kind) {
            (Self::Bucket { debt, .. }, Kind::Bucket { amount: rate, period, burst, .. }) => {
                let (rate, burst) = (f.share(*rate), f.share(*burst));
                if amount > burst {
                    return Err(Why::Never);
                }
                let unit = period.as_nanos();
                let full =
                    (*debt + u128::from(amount) * unit).saturating_sub(u128::from(burst) * unit);
                let wait = full.div_ceil(u128::from(rate));
                if wait == 0 { Ok(()) } else { Err(Why::Wait(nanos(wait))) }
            }
            (Self::Slots { open }, Kind::Concurrent { amount: most }) => {
                let free = *open + amount <= f.share(*most);
                if free { Ok(()) } else { Err(Why::Wait(SLOT_WAIT)) }
            }
            (Self::Window { parts, used, held }, Kind::Window { amount: most, length, .. }) => {
                let most = f.share(*most);
                if amount > most {
                    return Err(Why::Never);
                }
                let over = used.saturating_add(*held).saturating_add(amount).saturating_sub(most);
                if over == 0 { Ok(()) } else { Err(Why::Wait(leaves(parts, over, *length, f))) }
            }
            (Self::Budget(purse), Kind::Budget { amount: most, .. }) => {
                purse.fits(amount, *most, f)
            }
            (Self::Rest { until }, Kind::Rest) => {
                let left = until.map(|u| u.saturating_duration_since(f.now.at));
                match left.filter(|l| !l.is_zero()) {
                    Some(left) => Err(Why::Rests(left)),
                    None => Ok(()),
                }
            }
            // A rule that changed its kind has another id, so this is never reached.
            _ => Ok(()),
        }
    }

    /// Takes `amount`, whether it fits or not.
    pub fn take(&mut self, rule: &Rule, amount: u64) -> Hold {
        let mut hold = Hold { amount, period: 0 };
        match self {
            Self::Bucket { debt, .. } => {
                *debt = debt.saturating_add(u128::from(amount) * unit(rule));
            }
            Self::Slots { open } => *open = open.saturating_add(amount),
            Self::Window { held, .. } => *held = held.saturating_add(amount),
            Self::Budget(purse) => {
                purse.held = purse.held.saturating_add(amount);
                hold.period = purse.period.start;
            }
            Self::Rest { .. } => {}
        }
        hold
    }

    /// Gives a hold back.
    pub fn give(&mut self, rule: &Rule, hold: Hold) {
        match self {
            Self::Bucket { debt, .. } => {
                *debt = debt.saturating_sub(u128::from(hold.amount) * unit(rule));
            }
            Self::Slots { open } => *open = open.saturating_sub(hold.amount),
            Self::Window { held, .. } => *held = held.saturating_sub(hold.amount),
            // What was held in a period that is over is gone with it.
            Self::Budget(purse) if purse.period.start == hold.period => {
                purse.held = purse.held.saturating_sub(hold.amount);
            }
            Self::Budget(_) | Self::Rest { .. } => {}
        }
    }

    /// Books what was really used, for a hold that is given back. True when a budget's alert
    /// is due.
    pub fn settle(&mut self, rule: &Rule, hold: Hold, used: u64, f: &Frame) -> bool {
        if let Self::Bucket { debt, .. } = self {
            // Not back and then forth: the debt must not be cut at zero in between.
            let total = debt.saturating_add(u128::from(used) * unit(rule));
            *debt = total.saturating_sub(u128::from(hold.amount) * unit(rule));
            return false;
        }
        self.give(rule, hold);
        match (self, &rule.kind) {
            (Self::Window { parts, used: sum, .. }, Kind::Window { length, .. }) if used > 0 => {
                let part = f.part(*length);
                *sum = sum.saturating_add(used);
                match parts.back_mut().filter(|(n, _)| *n >= part) {
                    Some((_, amount)) => *amount = amount.saturating_add(used),
                    None => parts.push_back((part, used)),
                }
                false
            }
            (Self::Budget(purse), Kind::Budget { amount, .. })
                if purse.period.start == hold.period =>
            {
                purse.used = purse.used.saturating_add(used);
                purse.alert(rule, *amount)
            }
            _ => false,
        }
    }

    /// How it stands.
    pub fn standing(&self, rule: &Rule, f: &Frame) -> Standing {
        match (self, &rule.kind) {
            (Self::Bucket { debt, .. }, Kind::Bucket { amount, period, burst, .. }) => {
                let (rate, burst) = (f.share(*amount), f.share(*burst));
                let used = u64::try_from(debt.div_ceil(period.as_nanos())).unwrap_or(u64::MAX);
                let reset = nanos(debt.div_ceil(u128::from(rate)));
                let remaining = burst.saturating_sub(used);
                Standing { limit: burst, used, held: 0, remaining, reset: Some(reset) }
            }
            (Self::Window { parts, used, held }, Kind::Window { amount, length, .. }) => {
                let limit = f.share(*amount);
                let remaining = limit.saturating_sub(used.saturating_add(*held));
                let reset = leaves(parts, *used, *length, f);
                Standing { limit, used: *used, held: *held, remaining, reset: Some(reset) }
            }
            (Self::Budget(purse), Kind::Budget { amount, .. }) => {
                // With Redis, what all nodes have used as far as this one knows.
                let (used, held) = (purse.used.max(purse.seen.used), purse.held);
                let spent = used.saturating_add(held);
                let reset = purse.period.end.map(|end| until(end, f));
                let remaining = amount.saturating_sub(spent);
                Standing { limit: *amount, used, held, remaining, reset }
            }
            (Self::Slots { open }, _) => {
                let limit = f.share(rule.capacity());
                let remaining = limit.saturating_sub(*open);
                Standing { limit, used: 0, held: *open, remaining, reset: Some(Duration::ZERO) }
            }
            _ => Standing { limit: 1, used: 0, held: 0, remaining: 1, reset: Some(Duration::ZERO) },
        }
    }
}

impl Purse {
    fn fits(&self, amount: u64, most: u64, f: &Frame) -> Result<(), Why> {
        // What costs nothing passes a spent budget.
        if amount == 0 {
            return Ok(());
        }
        // A budget of nothing is spent, whoever asks.
        if amount > most && most > 0 {
            return Err(Why::Never);
        }
        let most = match self.alone.filter(|_| f.nodes > 1) {
            Some(alone) => alone.min(most),
            None => f.share(most).min(most),
        };
        let asked = self.used.saturating_add(self.held).saturating_add(amount);
        if asked <= most {
            return Ok(());
        }
        Err(Why::Spent { used: self.used, held: self.held, resets: self.period.end })
    }

    /// Once in a period, when what is used reaches the alert's part of the amount.
    pub fn alert(&mut self, rule: &Rule, amount: u64) -> bool {
        let Some(part) = rule.alert.filter(|_| !self.alerted) else { return false };
        self.alerted = reaches(self.used, amount, part);
        self.alerted
    }
}

/// Whether `used` is at least `part` millionths of `amount`.
pub(super) fn reaches(used: u64, amount: u64, part: u32) -> bool {
    u128::from(used) * 1_000_000 >= u128::from(amount) * u128::from(part)
}

/// When `amount` of what is used will have left the window: its oldest parts go first.
fn leaves(parts: &VecDeque<(u64, u64)>, amount: u64, length: Duration, f: &Frame) -> Duration {
    let part = length / PARTS;
    let mut left = amount;
    for (n, used) in parts {
        left = left.saturating_sub(*used);
        if left == 0 {
            let end = u128::from(n + u64::from(PARTS) + 1) * part.as_nanos().max(1);
            let since = f.now.at.saturating_duration_since(f.started).as_nanos();
            return nanos(end.saturating_sub(since));
        }
    }
    // The rest is held by running requests, which may give it back at any time.
    if amount == 0 { Duration::ZERO } else { SLOT_WAIT }
}

fn until(second: i64, f: &Frame) -> Duration {
    let now = f.now.wall.as_nanosecond();
    let left = i128::from(second).saturating_mul(1_000_000_000).saturating_sub(now);
    nanos(u128::try_from(left).unwrap_or(0))
}

/// The units of a bucket's debt; 1 elsewhere.
fn unit(rule: &Rule) -> u128 {
    match &rule.kind {
        Kind::Bucket { period, .. } => period.as_nanos(),
        _ => 1,
    }
}

fn nanos(n: u128) -> Duration {
    Duration::from_nanos(u64::try_from(n).unwrap_or(u64::MAX))
}
