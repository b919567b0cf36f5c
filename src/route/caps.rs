//! What one credential may be asked: requests and tokens of a minute, and calls at once.
//!
//! All three are looked at and taken under one lock, and what was taken is given back by a guard.
//! Pure: time is handed in. A bucket holds a minute's worth and fills evenly, as the providers'
//! own do.

use crate::base::Caps;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The unit of `rpm` and `tpm`.
const MINUTE: u128 = 60 * 1_000_000_000;
/// When a call that runs will end is not known: what is waited before a free place is looked for
/// again.
const PLACE_WAIT: Duration = Duration::from_millis(250);

/// Nothing more may be asked of it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Full {
    /// For so long, unless a call gives something back.
    pub wait: Duration,
    /// Too many calls run; else a minute's requests or tokens are used up.
    pub busy: bool,
}

/// The counters of one credential.
#[derive(Debug)]
pub struct Seats(Mutex<Counts>);

/// What is used and has not flowed back yet, in units times a minute's nanoseconds, so that no
/// refill is rounded.
#[derive(Debug)]
struct Counts {
    at: Instant,
    requests: u128,
    tokens: u128,
    running: u64,
}

impl Counts {
    fn refill(&mut self, caps: &Caps, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        let less = |debt: u128, rate: Option<u64>| match rate {
            Some(rate) => debt.saturating_sub(passed.saturating_mul(u128::from(rate))),
            None => 0,
        };
        self.requests = less(self.requests, caps.rpm);
        self.tokens = less(self.tokens, caps.tpm);
        self.at = self.at.max(now);
    }

    /// Whether a call of so many tokens fits. One that asks for more than a whole minute's fits
    /// where nothing is used: it would never fit otherwise, and the provider knows better.
    fn fits(&self, caps: &Caps, tokens: u64) -> Result<(), Full> {
        if caps.concurrent.is_some_and(|most| self.running >= most) {
            return Err(Full { wait: PLACE_WAIT, busy: true });
        }
        let wait = |debt: u128, rate: Option<u64>, more: u64| {
            let rate = rate.map_or(u128::MAX, u128::from);
            let asked = debt + u128::from(more).min(rate) * MINUTE;
            asked.saturating_sub(rate.saturating_mul(MINUTE)).div_ceil(rate)
        };
        let most = wait(self.requests, caps.rpm, 1).max(wait(self.tokens, caps.tpm, tokens));
        if most == 0 {
            return Ok(());
        }
        let wait = Duration::from_nanos(u64::try_from(most).unwrap_or(u64::MAX));
        Err(Full { wait, busy: false })
    }
}

impl Seats {
    /// Nothing used.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(Counts { at: now, requests: 0, tokens: 0, running: 0 }))
    }

    /// Whether a call of so many tokens would be let through, without taking anything.
    ///
    /// # Errors
    /// What is used up.
    pub fn room(&self, caps: &Caps, tokens: u64, now: Instant) -> Result<(), Full> {
        let mut counts = self.0.lock();
        counts.refill(caps, now);
        counts.fits(caps, tokens)
    }

    /// Takes a call of so many tokens, in one step.
    ///
    /// # Errors
    /// What is used up; nothing was taken.
    pub fn take(self: &Arc<Self>, caps: &Caps, tokens: u64, now: Instant) -> Result<Seat, Full> {
        let mut counts = self.0.lock();
        counts.refill(caps, now);
        counts.fits(caps, tokens)?;
        counts.requests += MINUTE;
        counts.tokens += u128::from(tokens) * MINUTE;
        counts.running += 1;
        drop(counts);
        Ok(Seat { seats: self.clone(), tokens, open: true })
    }
}

/// What one call took of its credential. Dropped without [`Seat::settle`] it gives all of it back.
#[derive(Debug)]
#[must_use]
pub struct Seat {
    seats: Arc<Seats>,
    tokens: u64,
    open: bool,
}

impl Seat {
    /// The call is over and counts, with so many tokens in place of those that were taken; `None`:
    /// what it used is not known, and what was taken stands.
    pub fn settle(mut self, used: Option<u64>) {
        self.open = false;
        let mut counts = self.seats.0.lock();
        counts.running = counts.running.saturating_sub(1);
        if let Some(used) = used {
            // Not back and then forth: the debt must not be cut at zero in between.
            let total = counts.tokens.saturating_add(u128::from(used) * MINUTE);
            counts.tokens = total.saturating_sub(u128::from(self.tokens) * MINUTE);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if std::mem::replace(&mut self.open, false) {
            let mut counts = self.seats.0.lock();
            counts.running = counts.running.saturating_sub(1);
            counts.requests = counts.requests.saturating_sub(MINUTE);
            counts.tokens = counts.tokens.saturating_sub(u128::from(self.tokens) * MINUTE);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn caps(rpm: Option<u64>, tpm: Option<u64>, concurrent: Option<u64>) -> Caps {
        Caps { rpm, tpm, concurrent }
    }

    #[test]
    fn a_minute_s_requests_pass_and_then_as_many_as_flow_back() {
        let (rule, now) = (caps(Some(6), None, None), Instant::now());
        let seats = Arc::new(Seats::new(now));
        for _ in 0..6 {
            seats.take(&rule, 1_000_000, now).unwrap().settle(Some(5));
        }
        let full = seats.take(&rule, 1, now).unwrap_err();
        assert_eq!(full, Full { wait: 10 * SECOND, busy: false });
        assert!(seats.room(&rule, 1, now + 10 * SECOND).is_ok());
        seats.take(&rule, 1, now + 10 * SECOND).unwrap().settle(None);
        assert!(seats.room(&rule, 1, now + 10 * SECOND).is_err());
    }

    #[test]
    fn tokens_are_corrected_by_what_was_used_and_a_huge_request_waits_for_an_empty_minute() {
        let (rule, now) = (caps(None, Some(600), None), Instant::now());
        let seats = Arc::new(Seats::new(now));
        seats.take(&rule, 500, now).unwrap().settle(Some(100));
        seats.take(&rule, 500, now).unwrap().settle(Some(500));
        assert_eq!(seats.room(&rule, 60, now).unwrap_err().wait, 6 * SECOND);
        assert!(seats.room(&rule, 10_000, now + 59 * SECOND).is_err());
        seats.take(&rule, 10_000, now + 60 * SECOND).unwrap().settle(Some(1_200));
        assert_eq!(seats.room(&rule, 600, now + 60 * SECOND).unwrap_err().wait, 120 * SECOND);
    }

    #[test]
    fn a_place_is_free_again_however_its_call_ends_and_an_unsent_one_never_was() {
        let (rule, now) = (caps(Some(3), Some(30), Some(2)), Instant::now());
        let seats = Arc::new(Seats::new(now));
        let (one, two) = (seats.take(&rule, 10, now).unwrap(), seats.take(&rule, 10, now).unwrap());
        assert!(seats.take(&rule, 10, now).unwrap_err().busy);
        one.settle(Some(10));
        drop(two);
        seats.take(&rule, 10, now).unwrap().settle(None);
        seats.take(&rule, 10, now).unwrap().settle(None);
        assert!(!seats.take(&rule, 1, now).unwrap_err().busy);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
        /// Over any stretch no more begins than its share of a minute and one whole bucket, never
        /// more run at once than may, and when all is given back nothing is left taken.
        #[test]
        fn no_order_of_calls_outgrows_the_caps(
            steps in prop::collection::vec((0u64..3_000, 0u8..4, 1u64..50), 1..2_000),
            rpm in 1u64..200,
            concurrent in 1u64..5,
        ) {
            let (rule, start) = (caps(Some(rpm), None, Some(concurrent)), Instant::now());
            let seats = Arc::new(Seats::new(start));
            let (mut now, mut open, mut begun) = (start, Vec::new(), 0u64);
            for (wait, what, tokens) in steps {
                now += Duration::from_millis(wait);
                match what {
                    0 | 1 => if let Ok(seat) = seats.take(&rule, tokens, now) {
                        begun += 1;
                        open.push(seat);
                    },
                    2 => if let Some(seat) = open.pop() { seat.settle(Some(tokens)); },
                    _ => if let Some(seat) = open.pop() { begun -= 1; drop(seat); },
                }
                prop_assert!(open.len() as u64 <= concurrent);
                let most = rpm + (now - start).as_millis() as u64 * rpm / 60_000 + 1;
                prop_assert!(begun <= most, "{begun} of {most}");
            }
            open.into_iter().for_each(drop);
            let later = now + Duration::from_secs(60);
            prop_assert!(seats.room(&rule, 1, later).is_ok());
            prop_assert_eq!(seats.0.lock().running, 0);
        }
    }
}
