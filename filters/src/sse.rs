//! Server-sent events: bytes in at any cut, whole events out.

use bytes::Bytes;

/// Longer is an attack, not a reply.
pub const EVENT_BYTES_MAX: usize = 8 << 20;

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The exact bytes it came as, the blank line included: what a pass-through forwards.
    pub raw: Bytes,
    /// The last `event:` field.
    pub name: Option<Bytes>,
    /// The `data:` lines joined by LF; `None` when the event had none (comments, `retry:` alone).
    pub data: Option<Bytes>,
    /// It had a comment line and nothing else.
    pub comment: bool,
}

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {EVENT_BYTES_MAX} bytes")]
pub struct TooLong;

/// Splits a byte stream into events by the WHATWG grammar (LF, CRLF, lone CR, BOM, comments).
#[derive(Debug, Default)]
pub struct Decoder {}

impl Decoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Takes the next bytes of the stream. Whole events inside one chunk are slices of it, not copies.
    pub fn push(&mut self, _chunk: Bytes) {
        unimplemented!()
    }
    /// The next whole event, if there is one.
    ///
    /// # Errors
    /// [`TooLong`] once, when an unfinished event has outgrown the cap; the decoder is then dead.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        unimplemented!()
    }
    /// The stream has ended: an event without its blank line that has data, if there is one.
    pub fn finish(&mut self) -> Option<Event> {
        unimplemented!()
    }
}
