//! The way out: readiness red, listeners closed, streams to their end or to the limit, then exit.

use crate::flow::{Gateway, Phase};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// How often the last requests are counted.
const LOOK: Duration = Duration::from_millis(10);
/// Nobody in flight for so long is nobody left: a request that was in the kernel's queue when the
/// listeners closed has shown by then, and an h2 connection has written its last frames.
const QUIET: Duration = Duration::from_millis(50);
/// What cut streams get to write their error event and their row.
const CUT_MAX: Duration = Duration::from_secs(2);

/// How the process was asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Not at all.
    Stay,
    /// Streams may end by themselves, up to `server.drain`.
    Drain,
    /// Streams are cut, settled and metered now.
    Fast,
}

/// The one who asks.
#[derive(Debug, Clone)]
pub struct Ask(Arc<watch::Sender<Way>>);

impl Ask {
    /// Goes this way, unless a faster one was taken already.
    pub fn take(&self, way: Way) {
        self.0.send_if_modified(|now| {
            let faster = way > *now;
            *now = way.max(*now);
            faster
        });
    }
}

/// The asking and the listening end.
pub fn way() -> (Ask, watch::Receiver<Way>) {
    let (ask, leaving) = watch::channel(Way::Stay);
    (Ask(Arc::new(ask)), leaving)
}

/// Walks the whole way out, from the moment someone asks for it. `close` closes the listeners.
/// Returns when nothing is in flight, or cannot be waited for any longer.
pub async fn leave(gateway: &Gateway, mut way: watch::Receiver<Way>, close: &watch::Sender<bool>) {
    // An error means that nobody can ask any more: then this is the end as well.
    let _ = way.wait_for(|w| *w != Way::Stay).await;
    gateway.drain.advance(Phase::Leaving);
    let (delay, drain) = {
        let server = &gateway.snapshot.load().server;
        (server.drain_delay, server.drain)
    };
    log::info!(drain_delay:? = delay, drain:? = drain, in_flight = gateway.in_flight(); "leaving");
    let fast = async {
        let _ = way.wait_for(|w| *w == Way::Fast).await;
    };
    tokio::pin!(fast);
    tokio::select! {
        biased;
        () = &mut fast => gateway.drain.advance(Phase::Cut),
        () = sleep(delay) => {
            gateway.drain.advance(Phase::Closing);
            close.send_replace(true);
            tokio::select! {
                biased;
                () = &mut fast => gateway.drain.advance(Phase::Cut),
                () = quiet(gateway) => return,
                () = sleep(drain) => {
                    let left = gateway.in_flight();
                    log::warn!(in_flight = left; "the drain time is over: cutting what runs");
                    gateway.drain.advance(Phase::Cut);
                }
            }
        }
    }
    close.send_replace(true);
    if timeout(CUT_MAX, quiet(gateway)).await.is_err() {
        log::error!(in_flight = gateway.in_flight(); "some requests did not end");
    }
}

/// Until nothing has been in flight for [`QUIET`].
async fn quiet(gateway: &Gateway) {
    let mut since = Instant::now();
    loop {
        sleep(LOOK).await;
        let now = Instant::now();
        if gateway.in_flight() > 0 {
            since = now;
        } else if now.duration_since(since) >= QUIET {
            return;
        }
    }
}
