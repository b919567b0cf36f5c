//! Server-sent events: bytes in at any cut, whole events out.
//!
//! The grammar is WHATWG HTML, section 9.2.6 (server-sent events, interpreting an event stream).

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;
use std::ops::Range;

/// Longer is an attack, not a reply.
pub const EVENT_BYTES_MAX: usize = 8 << 20;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The exact bytes it came as, the blank line included: what a pass-through forwards. Blank
    /// lines before the event, and a LF whose CR ended the event before, stand at its start.
    pub raw: Bytes,
    /// The last `event:` field.
    pub name: Option<Bytes>,
    /// The `data:` lines joined by LF; `None` when the event had none (comments, `retry:` alone).
    pub data: Option<Bytes>,
    /// It had a comment line and nothing else.
    pub comment: bool,
}

impl Event {
    /// The bytes to forward, when the event is nothing but one data line or one comment closed by
    /// two LFs: then they are the same at every cut of the stream, and every client reads them.
    /// Blank lines in front are left out.
    #[must_use]
    pub fn plain(&self) -> Option<Bytes> {
        let lead = self.raw.iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
        let bytes = &self.raw[lead..];
        let line = bytes.strip_suffix(b"\n\n")?;
        let plain = match &self.data {
            Some(data) => {
                let rest = line.strip_prefix(b"data:")?;
                rest.strip_prefix(b" ").unwrap_or(rest).len() == data.len()
            }
            None => self.comment && memchr2(b'\n', b'\r', line).is_none(),
        };
        plain.then(|| self.raw.slice(lead..))
    }
}

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {EVENT_BYTES_MAX} bytes")]
pub struct TooLong;

/// Splits a byte stream into events by the WHATWG grammar (LF, CRLF, lone CR, BOM, comments).
#[derive(Debug, Default)]
pub struct Decoder {
    /// The unfinished event's bytes out of earlier chunks.
    held: BytesMut,
    /// What is left of the newest chunk.
    chunk: Bytes,
    scan: Scan,
    /// An event has been given, so a BOM is no BOM any more.
    begun: bool,
    dead: bool,
}

/// What the bytes searched so far have shown; it survives the end of a chunk.
#[derive(Debug, Default, Clone, Copy)]
struct Scan {
    /// The unfinished line has bytes.
    line: bool,
    /// The unfinished event has a line that is not blank.
    block: bool,
    /// The last byte was a CR: a LF now belongs to it.
    cr: bool,
}

impl Scan {
    /// The length of `bytes` up to the end of the event, if it ends here.
    fn event_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.cr && at < bytes.len() {
                self.cr = false;
                at += usize::from(bytes[at] == b'\n');
            }
            let rest = bytes.get(at..)?;
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                self.line |= !rest.is_empty();
                return None;
            };
            let blank = end == 0 && !self.line;
            self.line = false;
            self.cr = rest[end] == b'\r';
            at += end + 1;
            if self.cr && bytes.get(at) == Some(&b'\n') {
                self.cr = false;
                at += 1;
            }
            if blank && self.block {
                self.block = false;
                return Some(at);
            }
            self.block |= !blank;
        }
    }
}

impl Decoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream. Whole events inside one chunk are slices of it, not
    /// copies.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.chunk = [self.chunk.as_ref(), chunk.as_ref()].concat().into();
        }
    }

    /// The next whole event, if there is one. A CR ends its line at once: no event waits for the
    /// LF that may follow.
    ///
    /// # Errors
    /// [`TooLong`] once, when an unfinished event has outgrown the cap; the decoder is then dead.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLong> {
        if self.dead || self.chunk.is_empty() {
            return Ok(None);
        }
        if let Some(end) = self.scan.event_end(&self.chunk) {
            let raw = if self.held.is_empty() {
                self.chunk.split_to(end)
            } else {
                self.held.extend_from_slice(&self.chunk[..end]);
                self.chunk.advance(end);
                self.held.split().freeze()
            };
            return Ok(Some(self.parse(raw)));
        }
        if self.held.len() + self.chunk.len() > EVENT_BYTES_MAX {
            *self = Self { dead: true, ..Self::default() };
            return Err(TooLong);
        }
        self.held.extend_from_slice(&self.chunk);
        self.chunk = Bytes::new();
        Ok(None)
    }

    /// The stream has ended: an event without its blank line that has data, if there is one.
    pub fn finish(&mut self) -> Option<Event> {
        self.held.extend_from_slice(&self.chunk);
        self.chunk = Bytes::new();
        self.scan = Scan::default();
        let raw = self.held.split().freeze();
        let event = self.parse(raw);
        event.data.is_some().then_some(event)
    }

    fn parse(&mut self, raw: Bytes) -> Event {
        let mut event = Event::default();
        let (mut comment, mut field) = (false, false);
        let mut at = if !self.begun && raw.starts_with(BOM) { BOM.len() } else { 0 };
        self.begun = true;
        while at < raw.len() {
            let end = memchr2(b'\n', b'\r', &raw[at..]).map_or(raw.len(), |n| at + n);
            let (name, value) = split_field(&raw, at..end);
            match name {
                b"data" => event.data = Some(join(event.data.take(), raw.slice(value))),
                b"event" => event.name = Some(raw.slice(value)),
                _ => {}
            }
            if end > at {
                comment |= name.is_empty();
                field |= !name.is_empty();
            }
            at = end + 1;
        }
        event.comment = comment && !field;
        event.raw = raw;
        event
    }
}

/// A line's field name and where its value lies: after the colon and one space.
fn split_field(raw: &[u8], line: Range<usize>) -> (&[u8], Range<usize>) {
    let bytes = &raw[line.clone()];
    let Some(colon) = memchr::memchr(b':', bytes) else { return (bytes, line.end..line.end) };
    let space = usize::from(bytes.get(colon + 1) == Some(&b' '));
    (&bytes[..colon], line.start + colon + 1 + space..line.end)
}

fn join(before: Option<Bytes>, line: Bytes) -> Bytes {
    match before {
        None => line,
        Some(before) => [before.as_ref(), b"\n", line.as_ref()].concat().into(),
    }
}

/// Gathers what leaves a filter: neighbours inside one chunk leave as one slice of it.
#[derive(Debug, Default)]
pub struct Run {
    chunk: Bytes,
    open: Range<usize>,
}

impl Run {
    /// A run over the chunk that was fed.
    #[must_use]
    pub fn of(chunk: Bytes) -> Self {
        Self { chunk, open: 0..0 }
    }

    /// Passes bytes on as they are.
    pub fn pass(&mut self, piece: &Bytes, out: &mut Vec<Bytes>) {
        // An address below the chunk's wraps round and is then larger than any chunk.
        let at = (piece.as_ptr() as usize).wrapping_sub(self.chunk.as_ptr() as usize);
        let end = at.saturating_add(piece.len());
        if end > self.chunk.len() {
            self.write(piece.clone(), out);
        } else if at == self.open.end && !self.open.is_empty() {
            self.open.end = end;
        } else {
            self.flush(out);
            self.open = at..end;
        }
    }

    /// Adds bytes of our own making.
    pub fn write(&mut self, made: Bytes, out: &mut Vec<Bytes>) {
        self.flush(out);
        if !made.is_empty() {
            out.push(made);
        }
    }

    /// Ends the run; call it once after the last event of a chunk.
    pub fn flush(&mut self, out: &mut Vec<Bytes>) {
        let open = std::mem::take(&mut self.open);
        if !open.is_empty() {
            out.push(self.chunk.slice(open));
        }
    }
}
