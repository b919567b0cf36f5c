//! Proof of life: what shows that the runtime which serves clients still does, and who is told.
//!
//! Not an exchange over a socket: a process without a descriptor left serves its open streams, and
//! a watchdog that ended it for that would cut them all.

use super::notify;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// A runtime that has ended says so at once, and is not asked in a circle.
const AGAIN: Duration = Duration::from_millis(100);

/// The clients' runtime, known from its first connection on. It is Pingora's, which tells nobody
/// of it (pingora-core 0.9.1, server/mod.rs `create_runtime`).
#[derive(Debug, Default)]
pub struct Pulse(OnceLock<Handle>);

impl Pulse {
    /// To be called on the runtime that is meant.
    pub fn is_here(&self) {
        self.0.get_or_init(Handle::current);
    }
    /// Whether a task of it is scheduled, and its timers run, within `limit`. One that has served
    /// nobody yet holds up nobody.
    async fn beats(&self, limit: Duration) -> bool {
        let Some(runtime) = self.0.get() else { return true };
        let task = runtime.spawn(sleep(Duration::from_millis(1)));
        matches!(timeout(limit, task).await, Ok(Ok(())))
    }
    /// Tells systemd `WATCHDOG=1` twice per allowed silence, as long as it is true. To be run on
    /// another runtime; returns at once where nobody watches.
    pub async fn run(&self) {
        let Some(silence) = notify::watchdog() else { return };
        let half = silence / 2;
        loop {
            if self.beats(half).await {
                notify::notify(notify::WATCHDOG);
                sleep(half).await;
            } else {
                log::error!(within:? = half; "the clients' runtime does not answer");
                sleep(AGAIN).await;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    #[test]
    fn a_runtime_whose_threads_are_all_held_does_not_beat() {
        let one = || {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).enable_all().build().unwrap()
        };
        let (watched, watching) = (one(), one());
        let pulse = Pulse::default();
        watched.block_on(async { pulse.is_here() });
        assert!(watching.block_on(pulse.beats(Duration::from_secs(30))));
        let (free, held) = std::sync::mpsc::channel::<()>();
        let _task = watched.spawn(async move { _ = held.recv() });
        assert!(!watching.block_on(pulse.beats(SOON)));
        drop(free);
        assert!(watching.block_on(pulse.beats(Duration::from_secs(30))), "it is free again");
    }
}
