//! Events of requests that end together leave with one `write(2)`.
//!
//! A request's event is gathered when the request ends, and settled just before its last byte
//! leaves. What other requests of the thread gathered between is written with it. So an event is in
//! the spool before its caller sees the end, and a write is paid for once by many.

use super::event::Event;
use super::spool::{BUFFER_KEEP, LINE_BYTES_MAX, Spool};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More threads than this share.
const SLOTS: usize = 32;
/// More bytes than this wait for nobody.
const GATHER_BYTES_MAX: usize = 32 << 10;

thread_local! {
    static SLOT: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS)
    };
}

/// An event that is gathered, and in the file after [`Spool::settle`].
#[must_use = "an event that is not settled is not written"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    slot: usize,
    round: u64,
}

/// What the threads have gathered.
pub(super) struct Slots(Box<[Slot]>);

/// One thread's, on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Slot(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    /// A newline, then whole lines.
    lines: Vec<u8>,
    events: usize,
    /// How many times they have been written.
    round: u64,
}

impl Default for Slots {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Slot::default()).collect())
    }
}

impl Spool {
    /// Appends one event. A failed write is counted, said once a minute, and fails no request.
    pub fn append(&self, event: &Event) {
        self.settle(self.gather(event));
    }

    /// Puts an event to those of this thread that are to be written.
    pub fn gather(&self, event: &Event) -> Pending {
        // A thread that is being torn down may still owe an event.
        let slot = SLOT.try_with(Cell::get).unwrap_or_default();
        let mut gathered = self.slots.0[slot].0.lock();
        if gathered.lines.is_empty() {
            gathered.lines.push(b'\n');
        }
        let start = gathered.lines.len();
        event.write(&mut gathered.lines);
        if gathered.lines.len() - start >= LINE_BYTES_MAX {
            gathered.lines.truncate(start);
            event.shortened().write(&mut gathered.lines);
        }
        gathered.lines.push(b'\n');
        gathered.events += 1;
        let pending = Pending { slot, round: gathered.round };
        if gathered.lines.len() >= GATHER_BYTES_MAX {
            self.flush(&mut gathered);
        }
        pending
    }

    /// Writes what was gathered with an event, where that has not been done for another one.
    pub fn settle(&self, pending: Pending) {
        let mut gathered = self.slots.0[pending.slot].0.lock();
        if gathered.round == pending.round {
            self.flush(&mut gathered);
        }
    }

    fn flush(&self, gathered: &mut Gathered) {
        gathered.round += 1;
        let events = std::mem::take(&mut gathered.events);
        let (whole, written) = self.write(&gathered.lines);
        if let Err(e) = written {
            self.stats.lose(events.saturating_sub(whole) as u64);
            self.say(&e);
        }
        gathered.lines.clear();
        gathered.lines.shrink_to(BUFFER_KEEP);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::event::tests::event;
    use super::*;
    use std::path::Path;

    fn lines(dir: &Path) -> usize {
        let (name, _) = super::super::segment::list(dir).unwrap()[0];
        std::fs::read_to_string(dir.join(name.to_string())).unwrap().lines().count() - 1
    }

    #[test]
    fn the_first_of_a_thread_that_is_settled_writes_all_that_are_gathered() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let pending: Vec<Pending> = (0..3).map(|_| spool.gather(&event())).collect();
        assert_eq!(lines(dir.path()), 0);
        spool.settle(pending[1]);
        assert_eq!(lines(dir.path()), 3);
        let later = spool.gather(&event());
        spool.settle(pending[0]);
        spool.settle(pending[2]);
        assert_eq!(lines(dir.path()), 3, "what came later waits for its own settling");
        spool.settle(later);
        assert_eq!((lines(dir.path()), spool.stats().lines()), (4, 4));
    }

    #[test]
    fn an_event_may_be_settled_on_another_thread_than_the_one_it_was_gathered_on() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let ours = spool.gather(&event());
        std::thread::scope(|s| {
            // Of many threads some share a slot.
            let mut shared = 0;
            let theirs = loop {
                let pending = s.spawn(|| spool.gather(&event())).join().unwrap();
                if pending.slot != ours.slot {
                    break pending;
                }
                shared += 1;
            };
            s.spawn(|| spool.settle(ours)).join().unwrap();
            assert_eq!(lines(dir.path()), 1 + shared);
            spool.settle(theirs);
            assert_eq!(lines(dir.path()), 2 + shared);
        });
    }

    #[test]
    fn many_bytes_wait_for_nobody_and_a_long_line_is_shortened_among_others() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let first = spool.gather(&event());
        let long = Event { price_source: Some("x".repeat(LINE_BYTES_MAX).into()), ..event() };
        let second = spool.gather(&long);
        spool.settle(first);
        let wide = Event { price_source: Some("x".repeat(GATHER_BYTES_MAX).into()), ..event() };
        let third = spool.gather(&wide);
        assert_eq!(lines(dir.path()), 3);
        spool.settle(second);
        spool.settle(third);
        assert_eq!((lines(dir.path()), spool.stats().lost()), (3, 0));
    }
}
