//! Append-only segments of events: one `write(2)` a line, in order, before the last byte leaves.

use super::event::{Admitted, Event};
use std::io;
use std::path::Path;

/// The process's open segment.
#[derive(Debug)]
pub struct Spool {}

impl Spool {
    /// Opens a new segment, named `<uuidv7>-<pid>`, in `dir` (made if absent).
    ///
    /// # Errors
    /// The folder or the file cannot be made.
    pub fn open(_dir: &Path) -> io::Result<Self> {
        unimplemented!()
    }
    /// Appends one event. A failed write is counted, said once a minute, and never fails the request.
    pub fn append(&self, _event: &Event) {
        unimplemented!()
    }
    /// Appends the line of an admitted stream.
    pub fn admit(&self, _line: &Admitted) {
        unimplemented!()
    }
}
