//! Where a debug build dies when it is told to: how tests show that no instruction between an
//! answer's last byte and its row can lose either. Release builds have none of this.
//!
//! `WEIR_FAIL=after-append` kills the process at its first pass of that point, `after-append:3` at
//! its third. `panic-in-filter` panics instead, `hold-in-filter` never returns: the process lives
//! on.

use rustix::process::{Signal, getpid, kill_process};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that names a point.
const VARIABLE: &str = "WEIR_FAIL";

/// A place in the life of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The event is made and not written; the caller has no end of its answer.
    BeforeAppend,
    /// The event is in the spool; the caller still has no end.
    AfterAppend,
    /// The caller's last bytes are with the kernel.
    AfterWrite,
    /// The provider's bytes are about to be read.
    PanicInFilter,
    /// The same place.
    HoldInFilter,
}

impl Point {
    const ALL: [(&str, Self); 5] = [
        ("before-append", Self::BeforeAppend),
        ("after-append", Self::AfterAppend),
        ("after-write", Self::AfterWrite),
        ("panic-in-filter", Self::PanicInFilter),
        ("hold-in-filter", Self::HoldInFilter),
    ];
}

/// A point, and how many passes of it are left until it fails.
struct Armed {
    point: Point,
    left: AtomicU64,
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

/// A request passes the points at which a provider's bytes are about to be read.
pub fn in_filter() {
    pass(Point::PanicInFilter);
    pass(Point::HoldInFilter);
}

/// A request passes a point: fails where the environment says so.
pub fn pass(point: Point) {
    let armed = ARMED.get_or_init(|| parse(&std::env::var(VARIABLE).ok()?));
    let Some(armed) = armed.as_ref().filter(|a| a.point == point) else { return };
    if armed.left.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    if point == Point::PanicInFilter {
        #[allow(clippy::panic)] // what this point is for
        std::panic::panic_any("WEIR_FAIL=panic-in-filter");
    }
    if point == Point::HoldInFilter {
        loop {
            std::thread::park();
        }
    }
    // SIGKILL runs no destructor and no handler: what is not with the kernel by now is lost.
    let _ = kill_process(getpid(), Signal::KILL);
}

fn parse(text: &str) -> Option<Armed> {
    let (name, pass) = text.split_once(':').unwrap_or((text, "1"));
    let (_, point) = Point::ALL.iter().find(|(n, _)| *n == name)?;
    Some(Armed { point: *point, left: AtomicU64::new(pass.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_named_with_or_without_its_pass() {
        let read = |text: &str| parse(text).map(|a| (a.point, a.left.into_inner()));
        for (name, point) in Point::ALL {
            assert_eq!(read(name), Some((point, 1)));
        }
        assert_eq!(read("after-write:3"), Some((Point::AfterWrite, 3)));
        assert_eq!((read("after"), read("after-write:x")), (None, None));
    }
}
