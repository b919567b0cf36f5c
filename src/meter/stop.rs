//! The bell that tells background threads to finish their work and end.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Rung once; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Tells every waiter to end.
    pub fn ring(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
    /// Waits for the bell, at most `limit`; true when it was rung.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let mut rung = self.0.0.lock();
        if !*rung {
            self.0.1.wait_for(&mut rung, limit);
        }
        *rung
    }
}
