//! How long a credential rests: after a refusal, an empty account, or a provider's "too fast".

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `cooldown = { … }` of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooldown {
    /// After a 402 and its kin.
    pub quota: Duration,
    /// After a 401 or 403.
    pub auth: Duration,
    /// After a 429 that names no time.
    pub rate: Duration,
}

impl Default for Cooldown {
    fn default() -> Self {
        Self {
            quota: Duration::from_secs(600),
            auth: Duration::from_secs(300),
            rate: Duration::from_secs(10),
        }
    }
}

/// Why a credential rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Why {
    /// Too fast. Limits are a model's, so this rest is for one model only.
    Rate = 1,
    /// The account is out of money or quota.
    Quota = 2,
    /// It was refused.
    Auth = 3,
    /// It is exchanged for a token, which is being fetched.
    Token = 4,
}

/// One rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// Its end.
    pub until: Instant,
    /// Its reason.
    pub why: Why,
    /// The provider named the time itself; else it is our guess, and no reason to refuse a
    /// request that nobody else can take.
    pub named: bool,
}

impl Rest {
    /// Too fast, no worse.
    #[must_use]
    pub fn is_rate(&self) -> bool {
        self.why == Why::Rate
    }

    /// Over soon, if it is not too long: a rate, or a token on its way.
    #[must_use]
    pub fn heals(&self) -> bool {
        matches!(self.why, Why::Rate | Why::Token)
    }

    /// Too fast by our guess of its length.
    #[must_use]
    pub fn is_guess(&self) -> bool {
        self.is_rate() && !self.named
    }
}

/// Rests of several credentials by their number, with a flag that is read without a lock.
#[derive(Debug, Default)]
pub struct Rests {
    any: AtomicBool,
    list: Mutex<Vec<(u64, Rest)>>,
}

impl Rests {
    /// Nobody rests, at a glance.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// The rest that holds for this one.
    #[must_use]
    pub fn of(&self, id: u64, now: Instant) -> Option<Rest> {
        if self.is_empty() {
            return None;
        }
        let mut list = self.list.lock();
        list.retain(|(_, rest)| rest.until > now);
        self.any.store(!list.is_empty(), Ordering::Release);
        list.iter().find(|(other, _)| *other == id).map(|(_, rest)| *rest)
    }

    /// This one rests until then. A later end or a graver reason that holds already stays. True
    /// where it did not rest before, or for a lighter reason.
    pub fn lie_down(&self, id: u64, new: Rest, now: Instant) -> bool {
        let mut list = self.list.lock();
        list.retain(|(_, rest)| rest.until > now);
        self.any.store(true, Ordering::Release);
        let Some((_, old)) = list.iter_mut().find(|(other, _)| *other == id) else {
            list.push((id, new));
            return true;
        };
        let news = old.why < new.why;
        // What a provider has named stands against any guess of ours.
        let longer = (old.named, old.until) < (new.named, new.until);
        if news || (old.why == new.why && longer) {
            *old = new;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_later_of_two_ends_holds_and_then_it_is_over() {
        let (bed, now) = (Rests::default(), Instant::now());
        let rest =
            |seconds: u64, why| Rest { until: now + seconds as u32 * SECOND, why, named: true };
        assert!(bed.lie_down(1, rest(5, Why::Rate), now));
        assert!(!bed.lie_down(1, rest(1, Why::Rate), now), "a shorter one changes nothing");
        assert_eq!(bed.of(1, now + 4 * SECOND), Some(rest(5, Why::Rate)));
        assert!(!bed.lie_down(1, rest(7, Why::Rate), now + 4 * SECOND));
        assert_eq!(bed.of(1, now + 6 * SECOND), Some(rest(7, Why::Rate)));
        assert_eq!((bed.of(2, now), bed.of(1, now + 7 * SECOND)), (None, None));
        assert!(bed.is_empty());
    }

    #[test]
    fn a_named_time_stands_against_a_longer_guess() {
        let (bed, now) = (Rests::default(), Instant::now());
        let rest = |n: u32, named| Rest { until: now + n * SECOND, why: Why::Rate, named };
        bed.lie_down(1, rest(60, false), now);
        bed.lie_down(1, rest(7, true), now);
        bed.lie_down(1, rest(90, false), now);
        assert_eq!(bed.of(1, now), Some(rest(7, true)));
    }

    #[test]
    fn a_graver_reason_is_not_covered_by_a_lighter_one() {
        let (bed, now) = (Rests::default(), Instant::now());
        let rest =
            |seconds: u64, why| Rest { until: now + seconds as u32 * SECOND, why, named: true };
        assert!(bed.lie_down(1, rest(3, Why::Rate), now));
        assert!(bed.lie_down(1, rest(2, Why::Auth), now));
        assert!(!bed.lie_down(1, rest(9, Why::Rate), now));
        assert_eq!(bed.of(1, now), Some(rest(2, Why::Auth)));
    }
}
