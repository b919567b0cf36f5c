//! The process's budget of bytes held in bodies: taken piece by piece, given back on Drop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of request and reply bodies in memory now, for all requests together.
#[derive(Debug, Default)]
pub struct ByteBudget {
    open: AtomicUsize,
}

impl ByteBudget {
    /// Bytes held now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// What one request holds of the budget.
#[derive(Debug)]
#[must_use]
pub struct Held {
    budget: Arc<ByteBudget>,
    bytes: usize,
    max: usize,
}

impl Held {
    /// Nothing yet, of a budget of `max` bytes.
    pub fn none(budget: Arc<ByteBudget>, max: usize) -> Self {
        Self { budget, bytes: 0, max }
    }

    /// Takes `more` bytes in one step, or none. It never waits: half-read bodies that wait for
    /// each other's bytes would wait for ever.
    #[must_use]
    pub fn take(&mut self, more: usize) -> bool {
        let max = self.max;
        let taken = self.budget.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
            open.checked_add(more).filter(|sum| *sum <= max)
        });
        self.bytes += if taken.is_ok() { more } else { 0 };
        taken.is_ok()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.open.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_and_a_refusal_takes_nothing() {
        let budget = Arc::new(ByteBudget::default());
        let mut a = Held::none(budget.clone(), 100);
        let mut b = Held::none(budget.clone(), 100);
        assert!(a.take(60) && !b.take(41) && b.take(40));
        assert_eq!(budget.open(), 100);
        drop(a);
        assert_eq!(budget.open(), 40);
        assert!(b.take(60) && !b.take(usize::MAX));
        drop(b);
        assert_eq!(budget.open(), 0);
    }
}
