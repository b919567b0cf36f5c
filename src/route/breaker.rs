//! When a target is left alone: a sliding window of outcomes, an open time, counted probes.
//!
//! Pure: time is handed in. One breaker stands for one provider and model. A pass is taken before
//! a try and settled when its answer has ended; what was admitted under an earlier phase tells
//! nothing about a later one, so a slow failure from before cannot close or open it again.

use std::time::{Duration, Instant};

/// The window moves in this many steps: a tenth of it is forgotten at a time.
const SLICES: usize = 10;
/// A probe that nobody settled is given up after this, or after `open_for` where that is longer.
/// Guards settle theirs when dropped; this is the net for a try that hangs without a timeout.
const PROBE_LOST: Duration = Duration::from_secs(60);
/// What callers are told to wait while probes run.
const PROBING: Duration = Duration::from_secs(1);
/// The share of its traffic that a target gets back at once when it has closed again.
const SHARE_FIRST: f64 = 0.1;

/// `breaker = { … }` of a provider.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// How far back outcomes count.
    pub window: Duration,
    /// Fewer outcomes than this in the window open nothing.
    pub min_requests: u32,
    /// Bad outcomes among all, 0 to 1, from which it opens.
    pub error_rate: f64,
    /// So many bad ones in a row open it as well; 0: off.
    pub consecutive: u32,
    /// How long it stays open, and how long its traffic then takes to come back whole.
    pub open_for: Duration,
    /// Tries that decide whether it closes again, all of which must succeed.
    pub probes: u32,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            min_requests: 10,
            error_rate: 0.5,
            consecutive: 0,
            open_for: Duration::from_secs(10),
            probes: 1,
        }
    }
}

/// What a try says of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered, to the end.
    Good,
    /// A timeout, a cut, a reset, a 5xx, a 200 that is no answer.
    Bad,
    /// Nothing: the caller's mistake or abort, a refused credential, a limit.
    Neutral,
}

/// What the metric shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Traffic passes.
    Closed = 0,
    /// Probes pass.
    HalfOpen = 1,
    /// Nothing passes.
    Open = 2,
}

/// Leave to try, given by [`Breaker::enter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    epoch: u64,
    probe: Option<u64>,
    heard: bool,
}

impl Pass {
    /// It decides whether the breaker closes.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Closed,
    Open {
        until: Instant,
    },
    /// Probes that run, each with the moment it counts as lost, and how many have succeeded.
    HalfOpen {
        out: Vec<(u64, Instant)>,
        good: u32,
    },
    /// Closed, and its traffic grows again since then.
    Returning {
        since: Instant,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    number: u64,
    good: u32,
    bad: u32,
}

/// The breaker of one target.
#[derive(Debug, Clone)]
pub struct Breaker {
    phase: Phase,
    /// Moves with each change between letting pass and not.
    epoch: u64,
    probes_given: u64,
    base: Instant,
    slices: [Slice; SLICES],
    in_a_row: u32,
}

impl Breaker {
    /// Closed, without a past.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Closed,
            epoch: 0,
            probes_given: 0,
            base: now,
            slices: [Slice::default(); SLICES],
            in_a_row: 0,
        }
    }

    /// Asks for leave to try.
    ///
    /// # Errors
    /// No: how long until it is worth asking again.
    pub fn enter(&mut self, rule: &Rule, now: Instant) -> Result<Pass, Duration> {
        self.check(rule, now)?;
        if let Phase::Open { .. } = self.phase {
            self.turn(Phase::HalfOpen { out: Vec::new(), good: 0 });
        }
        if let Phase::Returning { since } = self.phase
            && now.saturating_duration_since(since) >= rule.open_for
        {
            self.phase = Phase::Closed;
        }
        let mut pass = Pass { epoch: self.epoch, probe: None, heard: false };
        if let Phase::HalfOpen { out, .. } = &mut self.phase {
            out.retain(|(_, lost)| *lost > now);
            self.probes_given += 1;
            out.push((self.probes_given, now + PROBE_LOST.max(rule.open_for)));
            pass.probe = Some(self.probes_given);
        }
        Ok(pass)
    }

    /// Whether [`Breaker::enter`] would say yes, without asking it.
    ///
    /// # Errors
    /// No: how long until it is worth asking.
    pub fn check(&self, rule: &Rule, now: Instant) -> Result<(), Duration> {
        match &self.phase {
            Phase::Closed | Phase::Returning { .. } => Ok(()),
            Phase::Open { until } if *until > now => Err(*until - now),
            Phase::Open { .. } => Ok(()),
            Phase::HalfOpen { out, good } => {
                let running = out.iter().filter(|(_, lost)| *lost > now).count();
                let given = u32::try_from(running).unwrap_or(u32::MAX).saturating_add(*good);
                if given < rule.probes.max(1) { Ok(()) } else { Err(PROBING) }
            }
        }
    }

    /// The first content of a try has come. For a probe that is success enough to let others
    /// pass; should its answer be cut later, it opens the breaker again.
    pub fn started(&mut self, rule: &Rule, pass: &mut Pass, now: Instant) {
        if pass.heard || pass.epoch != self.epoch {
            return;
        }
        let Some(probe) = pass.probe else { return };
        if let Phase::HalfOpen { out, good } = &mut self.phase {
            pass.heard = true;
            out.retain(|(other, _)| *other != probe);
            *good += 1;
            if *good >= rule.probes.max(1) {
                self.turn(Phase::Returning { since: now });
            }
        }
    }

    /// A try is over. `outcome` is what its whole answer said, so it comes at a stream's end.
    pub fn settle(&mut self, rule: &Rule, mut pass: Pass, outcome: Outcome, now: Instant) {
        if outcome == Outcome::Good {
            self.started(rule, &mut pass, now);
        }
        if let (Phase::HalfOpen { out, .. }, Some(probe)) = (&mut self.phase, pass.probe) {
            out.retain(|(other, _)| *other != probe);
        }
        // A probe outlives the half-open phase that it ended.
        let known = pass.epoch == self.epoch || (pass.heard && pass.epoch + 1 == self.epoch);
        if !known || outcome == Outcome::Neutral {
            return;
        }
        match self.phase {
            Phase::Open { .. } => {}
            Phase::HalfOpen { .. } | Phase::Returning { .. }
                if pass.probe.is_some() && outcome == Outcome::Bad =>
            {
                self.open(rule, now);
            }
            Phase::HalfOpen { .. } => {}
            Phase::Closed | Phase::Returning { .. } => self.count(rule, outcome, now),
        }
    }

    /// A probe is given back as if it had never been: its try ended without a word on its target.
    pub fn give_back(&mut self, pass: &Pass) {
        if let (Phase::HalfOpen { out, .. }, Some(probe)) = (&mut self.phase, pass.probe) {
            out.retain(|(other, _)| *other != probe);
        }
    }

    /// The share of its usual traffic that it should get now: below 1 while it returns.
    #[must_use]
    pub fn share(&self, rule: &Rule, now: Instant) -> f64 {
        let Phase::Returning { since } = self.phase else { return 1.0 };
        let gone = now.saturating_duration_since(since).as_secs_f64();
        (gone / rule.open_for.as_secs_f64().max(0.001)).clamp(SHARE_FIRST, 1.0)
    }

    /// As the metric shows it.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed | Phase::Returning { .. } => State::Closed,
            Phase::HalfOpen { .. } => State::HalfOpen,
            Phase::Open { .. } => State::Open,
        }
    }

    /// Nothing about it need be asked before a try: closed, and all traffic is back.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.phase == Phase::Closed
    }

    fn turn(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch += 1;
        self.slices = [Slice::default(); SLICES];
        self.in_a_row = 0;
    }

    fn open(&mut self, rule: &Rule, now: Instant) {
        self.turn(Phase::Open { until: now + rule.open_for });
    }

    fn count(&mut self, rule: &Rule, outcome: Outcome, now: Instant) {
        let step = (rule.window / SLICES as u32).max(Duration::from_millis(1)).as_nanos();
        let gone = now.saturating_duration_since(self.base).as_nanos();
        let number = u64::try_from(gone / step).unwrap_or(u64::MAX);
        let slice = &mut self.slices[(number % SLICES as u64) as usize];
        if slice.number != number {
            *slice = Slice { number, ..Slice::default() };
        }
        if outcome == Outcome::Good {
            slice.good = slice.good.saturating_add(1);
            self.in_a_row = 0;
            return;
        }
        slice.bad = slice.bad.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let row = rule.consecutive > 0 && self.in_a_row >= rule.consecutive;
        if row || self.is_bad(rule, number) {
            self.open(rule, now);
        }
    }

    fn is_bad(&self, rule: &Rule, number: u64) -> bool {
        let recent = self.slices.iter().filter(|s| number - s.number.min(number) < SLICES as u64);
        let (good, bad) = recent.fold((0u64, 0u64), |(good, bad), s| {
            (good + u64::from(s.good), bad + u64::from(s.bad))
        });
        let all = good + bad;
        // Counts of ten seconds are far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let rate = bad as f64 / all.max(1) as f64;
        all >= u64::from(rule.min_requests) && rate >= rule.error_rate
    }
}

#[cfg(test)]
mod tests;
