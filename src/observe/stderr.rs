//! Standard error that holds no request up: what a blocked pipe cannot take is dropped, counted.

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// A pipe that polls writable takes this much at once without blocking (PIPE_BUF, pipe(7)).
pub const LINE_BYTES_MAX: usize = 4096;

static GATE: Mutex<()> = Mutex::new(());
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Writes one line, its newline included, with one `write(2)`. A longer line than
/// [`LINE_BYTES_MAX`] is cut.
///
/// # Errors
/// `WouldBlock` when the reader at the other end does not read; what `write(2)` says otherwise.
pub fn write_line(line: &[u8]) -> io::Result<()> {
    let done = write_now(line);
    if done.is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
    done
}

/// Lines dropped since the start.
#[must_use]
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Whether a person reads it.
#[must_use]
pub fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

fn write_now(line: &[u8]) -> io::Result<()> {
    let mut out = io::stderr();
    // One at a time between the poll and the write, else two lines share one promise of room.
    let _alone = GATE.lock();
    let regular = rustix::fs::fstat(&out)
        .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile);
    if !regular {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&out, PollFlags::OUT)];
        if poll(&mut fds, Some(&now))? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
    }
    if line.len() <= LINE_BYTES_MAX {
        return out.write_all(line);
    }
    out.write_all(&line[..LINE_BYTES_MAX - 1])?;
    out.write_all(b"\n")
}
