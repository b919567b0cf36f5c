//! How a rule stands: what is used, held and left of it.

use std::time::Duration;

/// How a rule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The most there ever is.
    pub limit: u64,
    /// Used and not yet refilled or reset.
    pub used: u64,
    /// Held for running requests; 0 in a bucket, where it is part of `used`.
    pub held: u64,
    /// What is left.
    pub remaining: u64,
    /// Until all of it is there again; absent where it never is.
    pub reset: Option<Duration>,
}

impl Standing {
    /// The same once `amount` is given back, of which nothing was used.
    #[must_use]
    pub fn freed(self, amount: u64) -> Self {
        let held = self.held.saturating_sub(amount);
        let used = self.used.saturating_sub(amount.saturating_sub(self.held));
        let remaining = self.limit.saturating_sub(used.saturating_add(held));
        // A bucket fills evenly.
        let reset = match (used, self.used) {
            (0, _) if held == 0 => Some(Duration::ZERO),
            (now, before) if now < before => {
                self.reset.map(|reset| reset.mul_f64(now as f64 / before as f64))
            }
            _ => self.reset,
        };
        Self { limit: self.limit, used, held, remaining, reset }
    }
}
