//! How many retries a provider gets: a share of its requests, so that no storm feeds itself.

use parking_lot::Mutex;
use std::time::Instant;

/// What each first try adds: one retry for five requests.
const SHARE: f64 = 0.2;
/// What each second adds, so that a quiet gateway may retry as well.
const PER_SECOND: f64 = 10.0;
/// The most that can be saved up, and what there is at first.
const MOST: f64 = 100.0;

/// The retries of one provider.
#[derive(Debug)]
pub struct Retries(Mutex<(f64, Instant)>);

impl Retries {
    /// Full.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new((MOST, now)))
    }

    /// A first try is made.
    pub fn earn(&self) {
        let mut held = self.0.lock();
        held.0 = (held.0 + SHARE).min(MOST);
    }

    /// A retry is wanted: whether it may be made.
    #[must_use]
    pub fn spend(&self, now: Instant) -> bool {
        let mut held = self.0.lock();
        let gone = now.saturating_duration_since(held.1).as_secs_f64();
        *held = ((held.0 + gone * PER_SECOND).min(MOST), held.1.max(now));
        let enough = held.0 >= 1.0;
        if enough {
            held.0 -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_storm_gets_one_retry_in_five_and_a_trickle_gets_all() {
        let mut now = Instant::now();
        let retries = Retries::new(now);
        let mut given = 0;
        for _ in 0..10_000 {
            retries.earn();
            given += u32::from(retries.spend(now));
        }
        assert!((2_000..=2_200).contains(&given), "{given}");
        for _ in 0..100 {
            now += Duration::from_secs(1);
            assert!(retries.spend(now));
        }
    }
}
