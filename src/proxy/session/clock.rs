//! A request's deadlines as plain numbers, so that moving one is an atomic store and no timer.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// What runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Timer {
    /// No content since the provider was connected.
    FirstToken = 1,
    /// No content since the last one; comments are none.
    Idle = 2,
    /// No whole answer since the provider was connected.
    Reply = 3,
    /// The body of an error reply does not end.
    ErrorBody = 4,
    /// The answer is complete, but the provider keeps its stream open.
    Linger = 5,
    /// The whole request is too old.
    Total = 6,
}

impl Timer {
    /// As an error names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstToken => "first-token",
            Self::Idle => "idle",
            Self::Reply => "reply",
            Self::ErrorBody => "error-body",
            Self::Linger => "linger",
            Self::Total => "total",
        }
    }

    fn from_number(n: u8) -> Self {
        match n {
            1 => Self::FirstToken,
            2 => Self::Idle,
            3 => Self::Reply,
            4 => Self::ErrorBody,
            _ => Self::Linger,
        }
    }
}

/// One deadline of the try, one of the request. Milliseconds since the clock was made.
#[derive(Debug)]
pub struct Clock {
    base: Instant,
    at: AtomicU64,
    timer: AtomicU8,
    total: AtomicU64,
}

impl Clock {
    /// Nothing armed.
    #[must_use]
    pub fn new(base: Instant) -> Self {
        Self {
            base,
            at: AtomicU64::new(NEVER),
            timer: AtomicU8::new(Timer::Linger as u8),
            total: AtomicU64::new(NEVER),
        }
    }

    /// Sets the try's deadline `after` from `now`; `None` disarms it.
    pub fn arm(&self, timer: Timer, now: Instant, after: Option<Duration>) {
        self.timer.store(timer as u8, Ordering::Relaxed);
        self.at.store(self.point(now, after), Ordering::Release);
    }

    /// No deadline for the try; the request's stays.
    pub fn disarm(&self) {
        self.at.store(NEVER, Ordering::Release);
    }

    /// Gives the try's deadline `more` time; without one there is none afterwards either.
    pub fn postpone(&self, more: Duration) {
        let more = u64::try_from(more.as_millis()).unwrap_or(NEVER);
        let at = self.at.load(Ordering::Acquire);
        if at != NEVER {
            self.at.store(at.saturating_add(more).min(NEVER - 1), Ordering::Release);
        }
    }

    /// Sets the request's deadline.
    pub fn arm_total(&self, from: Instant, after: Option<Duration>) {
        self.total.store(self.point(from, after), Ordering::Release);
    }

    /// No deadline at all.
    pub fn stop(&self) {
        self.disarm();
        self.total.store(NEVER, Ordering::Release);
    }

    /// The next deadline and whose it is.
    #[must_use]
    pub fn next(&self) -> Option<(Instant, Timer)> {
        let at = self.at.load(Ordering::Acquire);
        let total = self.total.load(Ordering::Acquire);
        let timer = Timer::from_number(self.timer.load(Ordering::Relaxed));
        let (ms, timer) = if total <= at { (total, Timer::Total) } else { (at, timer) };
        (ms != NEVER).then(|| (self.base + Duration::from_millis(ms), timer))
    }

    /// What is left of the request's time.
    #[must_use]
    pub fn total_left(&self, now: Instant) -> Option<Duration> {
        let total = self.total.load(Ordering::Acquire);
        let end = self.base + Duration::from_millis(total.min(u64::from(u32::MAX)));
        (total != NEVER).then(|| end.saturating_duration_since(now))
    }

    fn point(&self, from: Instant, after: Option<Duration>) -> u64 {
        let Some(after) = after else { return NEVER };
        let since = from.saturating_duration_since(self.base).saturating_add(after);
        u64::try_from(since.as_millis()).unwrap_or(NEVER - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_deadline_is_next_and_total_wins_a_tie() {
        let base = Instant::now();
        let clock = Clock::new(base);
        assert_eq!(clock.next(), None);
        let second = Duration::from_secs(1);
        clock.arm(Timer::FirstToken, base + second, Some(second));
        assert_eq!(clock.next(), Some((base + second * 2, Timer::FirstToken)));
        clock.arm_total(base, Some(second * 2));
        assert_eq!(clock.next(), Some((base + second * 2, Timer::Total)));
        clock.arm(Timer::Idle, base, Some(second));
        assert_eq!(clock.next(), Some((base + second, Timer::Idle)));
        clock.disarm();
        assert_eq!(clock.next(), Some((base + second * 2, Timer::Total)));
        assert_eq!(clock.total_left(base + second * 3), Some(Duration::ZERO));
        clock.stop();
        assert_eq!(clock.next(), None);
    }

    #[test]
    fn only_the_try_s_deadline_is_postponed_and_none_is_made() {
        let (base, second) = (Instant::now(), Duration::from_secs(1));
        let clock = Clock::new(base);
        clock.postpone(second);
        assert_eq!(clock.next(), None);
        clock.arm_total(base, Some(second * 4));
        clock.arm(Timer::Idle, base, Some(second));
        clock.postpone(second * 2);
        assert_eq!(clock.next(), Some((base + second * 3, Timer::Idle)));
        clock.postpone(second * 2);
        assert_eq!(clock.next(), Some((base + second * 4, Timer::Total)));
    }
}
