//! Leaving: how far the process is on its way out, and a bell for those who wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// How far the way out has been walked. Only ever forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// At work.
    Serving = 0,
    /// Readiness is red and connections are asked to close, but every request is served.
    Leaving = 1,
    /// Listeners are closed; requests that still come in on open connections get 503.
    Closing = 2,
    /// The drain time is over: running streams end now, with an error event and their row.
    Cut = 3,
}

/// The process's phase.
#[derive(Debug, Default)]
pub struct Drain {
    phase: AtomicU8,
    bell: Arc<Notify>,
}

impl Drain {
    /// Where we are.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Serving,
            1 => Phase::Leaving,
            2 => Phase::Closing,
            _ => Phase::Cut,
        }
    }
    /// Goes on to `phase` (never back), and rings the bell at [`Phase::Cut`].
    pub fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        if phase == Phase::Cut {
            self.bell.notify_waiters();
        }
    }
    /// Rings at [`Phase::Cut`]. Take it first, then look at [`Drain::phase`]: what rang in between
    /// is not lost.
    pub fn bell(&self) -> OwnedNotified {
        self.bell.clone().notified_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_never_goes_back() {
        let drain = Drain::default();
        drain.advance(Phase::Cut);
        drain.advance(Phase::Leaving);
        assert_eq!(drain.phase(), Phase::Cut);
    }

    #[tokio::test]
    async fn a_bell_taken_before_the_cut_rings() {
        let drain = Drain::default();
        let bell = drain.bell();
        drain.advance(Phase::Cut);
        bell.await;
    }
}
