//! Active probes: whether a provider answers at all, asked beside its traffic.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// So many probes in a row must fail before a provider gets no more requests: one lost packet is
/// no outage. The first good one brings it back.
const FALL: u32 = 2;
/// After a first failure the next probe comes this soon, for an outage to be seen in time.
const AGAIN: Duration = Duration::from_secs(1);

/// `health = { … }` of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Behind the provider's base URL, asked with GET. Any answer below 500 is a sign of life.
    pub path: String,
    /// From the end of one probe to the next.
    pub every: Duration,
    /// For the connection and the answer's header together.
    pub timeout: Duration,
}

/// What the probes of one provider have found: how many in a row have failed.
#[derive(Debug, Default)]
pub struct Pulse(AtomicU32);

impl Pulse {
    /// It gets no requests now.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= FALL
    }

    /// A probe has ended. True or false where the provider is up or down from now on; `None` where
    /// that is no news.
    pub fn note(&self, alive: bool) -> Option<bool> {
        let before = if alive {
            self.0.swap(0, Ordering::Relaxed)
        } else {
            // One prober writes, so what was read is what is there.
            let failures = self.0.load(Ordering::Relaxed);
            self.0.store(failures.saturating_add(1), Ordering::Relaxed);
            failures
        };
        match alive {
            true => (before >= FALL).then_some(true),
            false => (before + 1 == FALL).then_some(false),
        }
    }

    /// Nobody probes it any more, so nothing is known of it.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// How long until the next probe.
    #[must_use]
    pub fn wait(&self, health: &Health) -> Duration {
        let first = self.0.load(Ordering::Relaxed) == 1;
        if first { health.every.min(AGAIN) } else { health.every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_in_a_row_put_it_out_and_one_success_brings_it_back() {
        let pulse = Pulse::default();
        let health = Health {
            path: "/".into(),
            every: Duration::from_secs(30),
            timeout: Duration::from_secs(5),
        };
        let check = |alive: bool, news: Option<bool>, down: bool, wait: u64| {
            assert_eq!((pulse.note(alive), pulse.is_down()), (news, down));
            assert_eq!(pulse.wait(&health), Duration::from_secs(wait));
        };
        check(true, None, false, 30);
        check(false, None, false, 1);
        check(true, None, false, 30);
        check(false, None, false, 1);
        check(false, Some(false), true, 30);
        check(false, None, true, 30);
        check(true, Some(true), false, 30);
        check(true, None, false, 30);
    }
}
