//! The thread that looks at the store: what other processes change there acts here.

use super::reload::Reloads;
use crate::flow::Gateway;
use crate::meter::Stop;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often; a change acts within a second, and a look costs two rows of one page.
const LOOK: Duration = Duration::from_millis(300);

/// Starts it.
pub fn spawn(gateway: Arc<Gateway>, reloads: Reloads, stop: Stop) -> Option<JoinHandle<()>> {
    super::spawn("weir-store", move || {
        while !stop.wait(LOOK) {
            if gateway.look_at_store() {
                log::info!("the vault has changed");
                drop(reloads.ask()); // the reload tells by itself how it went
            }
        }
    })
}
