//! Memory for text that waits to be counted: one pool for all streams of the process.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What all streams hold beyond the small tail that each has of its own. Where it is used up,
/// text is counted as it passes, which costs time and no memory.
const POOL_BYTES: usize = 32 << 20;
/// What one text may have of it: more than models say in one answer. Where no usage is told it is
/// counted in one go at the end, which takes some milliseconds and must not take many.
const LEASE_BYTES_MAX: usize = 512 << 10;

/// Bytes that nobody has.
#[derive(Debug)]
pub(super) struct Pool(AtomicUsize);

static ALL: Pool = Pool::new(POOL_BYTES);

impl Pool {
    pub(super) const fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }
}

/// A part of the pool; it comes back with its drop.
#[derive(Debug)]
pub(super) struct Lease {
    pool: &'static Pool,
    bytes: usize,
}

impl Default for Lease {
    fn default() -> Self {
        Self::of(&ALL)
    }
}

impl Lease {
    /// Nothing, yet.
    pub(super) const fn of(pool: &'static Pool) -> Self {
        Self { pool, bytes: 0 }
    }

    /// How much it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes it `bytes` in all, or leaves it as it is where the pool has too little.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let take = |left: usize| left.checked_sub(more);
        // The number guards nothing but itself, so its order among other memory is of no account.
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = bytes <= LEASE_BYTES_MAX && self.pool.0.fetch_update(set, get, take).is_ok();
        if taken {
            self.bytes += more;
        }
        taken
    }

    /// Gives all of it back.
    pub(super) fn end(&mut self) {
        self.pool.0.fetch_add(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_never_overdrawn_and_is_whole_again_at_the_end() {
        static POOL: Pool = Pool::new(100);
        let left = || POOL.0.load(Ordering::Relaxed);
        let (mut one, mut other) = (Lease::of(&POOL), Lease::of(&POOL));
        assert!(one.grow(60) && other.grow(40) && one.grow(60));
        assert_eq!((one.bytes(), other.bytes(), left()), (60, 40, 0));
        assert!(!other.grow(41));
        assert_eq!(other.bytes(), 40);
        one.end();
        assert!(other.grow(100) && !one.grow(1));
        drop(other);
        assert_eq!(left(), 100);
        drop(one);
        assert_eq!(left(), 100);
    }

    #[test]
    fn no_text_has_the_pool_for_itself() {
        static POOL: Pool = Pool::new(POOL_BYTES);
        let mut lease = Lease::of(&POOL);
        assert!(lease.grow(LEASE_BYTES_MAX) && !lease.grow(LEASE_BYTES_MAX + 1));
    }

    #[test]
    fn threads_that_take_and_give_lose_no_byte() {
        static POOL: Pool = Pool::new(64);
        let work = || {
            for n in 0..10_000 {
                Lease::of(&POOL).grow(1 + n % 64);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(work);
            scope.spawn(work);
        });
        assert_eq!(POOL.0.load(Ordering::Relaxed), 64);
    }
}
