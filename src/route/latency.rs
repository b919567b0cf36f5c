//! How fast a target has been: a moving average of times to first content, fading when idle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An idle target's average halves in this time, so that it is tried again before long.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// The weight of a new time that is above the average: slowness is believed at once.
const UP: f64 = 0.5;
/// The weight of one below it.
const DOWN: f64 = 0.3;

/// The average of one target. Two writers at once may lose a time; it is an average.
#[derive(Debug)]
pub struct Latency {
    base: Instant,
    /// Microseconds; 0: none yet.
    average: AtomicU64,
    /// Milliseconds since `base` of the last time or pick, and 1; 0: none yet.
    touched: AtomicU64,
}

impl Latency {
    /// Nothing is known.
    #[must_use]
    pub fn new(base: Instant) -> Self {
        Self { base, average: AtomicU64::new(0), touched: AtomicU64::new(0) }
    }

    /// A try has had its first content after this time.
    pub fn note(&self, time: Duration, now: Instant) {
        let new = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).clamp(1, 1 << 50);
        let old = self.average.load(Ordering::Relaxed);
        let weight = if new > old { UP } else { DOWN };
        // Below 2^50, exact in a float.
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
        let mixed = (old as f64 + weight * (new as f64 - old as f64)) as u64;
        self.average.store(if old == 0 { new } else { mixed.max(1) }, Ordering::Relaxed);
        self.touch(now);
    }

    /// It is about to be tried: others need not probe it meanwhile.
    pub fn touch(&self, now: Instant) {
        self.touched.store(self.at(now), Ordering::Relaxed);
    }

    /// The average itself; `None` before the first time.
    #[must_use]
    pub fn average(&self) -> Option<Duration> {
        let average = self.average.load(Ordering::Relaxed);
        (average > 0).then(|| Duration::from_micros(average))
    }

    /// Seconds to compare targets by: the average, faded by the time since it was last asked. One
    /// that was never asked counts as fast as can be, and as `unseen` while it is being tried.
    #[must_use]
    pub fn score(&self, unseen: Duration, now: Instant) -> f64 {
        let touched = self.touched.load(Ordering::Relaxed);
        if touched == 0 {
            return 0.0;
        }
        let idle = Duration::from_millis(self.at(now).saturating_sub(touched));
        let fading = (-idle.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        self.average().unwrap_or(unseen).as_secs_f64() * fading
    }

    fn at(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.base).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const UNSEEN: Duration = Duration::from_secs(3);

    #[test]
    fn slowness_is_believed_at_once_and_forgotten_when_idle() {
        let now = Instant::now();
        let (a, b) = (Latency::new(now), Latency::new(now));
        assert!(a.score(UNSEEN, now) == 0.0 && a.average().is_none());
        a.touch(now);
        assert!((a.score(UNSEEN, now) - 3.0).abs() < 0.01, "its first try runs");
        a.note(100 * MS, now);
        b.note(10 * MS, now);
        assert_eq!(a.average(), Some(100 * MS));
        b.note(400 * MS, now);
        assert_eq!(b.average(), Some(205 * MS));
        assert!(a.score(UNSEEN, now) < b.score(UNSEEN, now));
        let later = now + 30 * HALF_LIFE / 10;
        a.note(100 * MS, later);
        assert!(b.score(UNSEEN, later) < a.score(UNSEEN, later), "the idle one is probed");
        b.touch(later);
        assert!(b.score(UNSEEN, later) > a.score(UNSEEN, later), "by one request");
    }
}
