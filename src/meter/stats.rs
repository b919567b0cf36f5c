//! Numbers of the spool and the ledger, as atomics that `observe` reads at scrape.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a fault that lasts is said in the log.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Shared by a spool and a ledger of one process; all of it since the process began.
#[derive(Debug, Default)]
pub struct Stats {
    lines: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    skipped: AtomicU64,
    spool_bytes: AtomicU64,
    lag: AtomicU64,
    later: AtomicU64,
    store_up: AtomicBool,
    spool_failing: AtomicBool,
}

impl Stats {
    /// Lines appended by this process, those of admitted streams too.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }
    /// Bytes appended by this process.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    /// Events that could not be written: `weir_events_lost_total`.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
    /// Lines that the ledger could not read (torn ones, or of an unknown form).
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }
    /// Size of the spool's folder at the ledger's last look: `weir_spool_bytes`.
    #[must_use]
    pub fn spool_bytes(&self) -> u64 {
        self.spool_bytes.load(Ordering::Relaxed)
    }
    /// Lines in the spool that are not yet in the ledger: `weir_ledger_lag_events`.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.lag.load(Ordering::Relaxed)
    }
    /// Segments that a later version wrote, at the ledger's last look:
    /// `weir_spool_later_segments`.
    #[must_use]
    pub fn later(&self) -> u64 {
        self.later.load(Ordering::Relaxed)
    }
    /// Whether the ledger's last pass worked: `weir_store_up`.
    #[must_use]
    pub fn store_up(&self) -> bool {
        self.store_up.load(Ordering::Relaxed)
    }
    /// Whether the last write to the spool failed.
    #[must_use]
    pub fn spool_failing(&self) -> bool {
        self.spool_failing.load(Ordering::Relaxed)
    }

    pub(super) fn wrote(&self, lines: u64, bytes: u64) {
        self.lines.fetch_add(lines, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(super) fn set_spool_sound(&self) {
        if self.spool_failing.load(Ordering::Relaxed) {
            self.spool_failing.store(false, Ordering::Relaxed);
        }
    }
    pub(super) fn lose(&self, events: u64) {
        self.lost.fetch_add(events, Ordering::Relaxed);
    }
    pub(super) fn skip(&self, lines: u64) {
        self.skipped.fetch_add(lines, Ordering::Relaxed);
    }
    pub(super) fn set_spool_failing(&self) {
        self.spool_failing.store(true, Ordering::Relaxed);
    }
    pub(super) fn set_spool_bytes(&self, bytes: u64) {
        self.spool_bytes.store(bytes, Ordering::Relaxed);
    }
    pub(super) fn set_lag(&self, lines: u64) {
        self.lag.store(lines, Ordering::Relaxed);
    }
    pub(super) fn set_later(&self, segments: u64) {
        self.later.store(segments, Ordering::Relaxed);
    }
    pub(super) fn set_store_up(&self, up: bool) {
        self.store_up.store(up, Ordering::Relaxed);
    }
}

/// Lets one message a minute through.
#[derive(Debug, Default)]
pub(super) struct Minute(Mutex<Option<Instant>>);

impl Minute {
    /// Whether to speak now.
    pub(super) fn may(&self, now: Instant) -> bool {
        let mut last = self.0.lock();
        let may = last.is_none_or(|l| now.saturating_duration_since(l) >= SAY_EVERY);
        if may {
            *last = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_fault_is_said_once_a_minute() {
        let (minute, t) = (Minute::default(), Instant::now());
        let said = (0..600).filter(|s| minute.may(t + Duration::from_secs(*s))).count();
        assert_eq!(said, 10);
    }
}
