//! What a segment's bytes say: events, admitted streams, and what can be saved of torn lines.

use super::event::{Admitted, Event};
use super::spool::LINE_BYTES_MAX;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Lines of one transaction.
const LINES_MAX: usize = 1_000;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// A finished request.
    Event(Box<Event>),
    /// A stream that began; what is booked if its event never comes.
    Admitted(Box<Event>),
}

/// A piece of a segment.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// What could be read, in order.
    pub lines: Vec<Line>,
    /// What could not: torn lines, or ones of an unknown form.
    pub skipped: u64,
    /// Bytes from the offset that this accounts for; 0 when no whole line is there.
    pub bytes: u64,
}

/// Reads whole lines between `offset` and `end`. A last line without its newline waits for it,
/// unless the segment's writer is dead: then it is taken if it is whole, else it is torn.
///
/// # Errors
/// The file's.
pub fn read(file: &File, offset: u64, end: u64, dead: bool) -> io::Result<Batch> {
    let want = end.saturating_sub(offset).min(LINE_BYTES_MAX as u64);
    let mut bytes = vec![0; usize::try_from(want).unwrap_or(LINE_BYTES_MAX)];
    let got = read_at(file, &mut bytes, offset)?;
    bytes.truncate(got);
    // No newline in a whole piece is no line of ours: passing over it finds the next one.
    let all = got == LINE_BYTES_MAX || (dead && offset + got as u64 >= end);
    Ok(parse(&bytes, all))
}

/// As [`read`], of bytes; `all` says that what follows the last newline is a line too.
fn parse(bytes: &[u8], all: bool) -> Batch {
    let mut batch = Batch::default();
    let mut rest = bytes;
    for _ in 0..LINES_MAX {
        let Some(end) = memchr::memchr(b'\n', rest) else {
            if all && (batch.bytes == 0 || bytes.len() < LINE_BYTES_MAX) {
                take(rest, &mut batch);
                batch.bytes = bytes.len() as u64;
            }
            break;
        };
        take(&rest[..end], &mut batch);
        rest = &rest[end + 1..];
        batch.bytes += end as u64 + 1;
    }
    batch
}

/// Takes a line. A writer's half line may have another writer's line glued to it.
fn take(line: &[u8], batch: &mut Batch) {
    let line = line.trim_ascii();
    if line.is_empty() {
        return;
    }
    if let Some(whole) = one(line) {
        batch.lines.push(whole);
        return;
    }
    let starts = starts(line);
    batch.skipped += u64::from(starts.first() != Some(&0));
    for (i, start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(line.len());
        match one(&line[*start..end]) {
            Some(whole) => batch.lines.push(whole),
            None => batch.skipped += 1,
        }
    }
}

fn one(line: &[u8]) -> Option<Line> {
    if line.starts_with(ADMITTED) {
        serde_json::from_slice::<Admitted>(line).ok().map(|a| Line::Admitted(a.admitted))
    } else {
        serde_json::from_slice(line).ok().map(|e| Line::Event(Box::new(e)))
    }
}

const ADMITTED: &[u8] = b"{\"admitted\":";
const EVENT: &[u8] = b"{\"event_id\":\"";

/// Where lines begin. A quote inside a JSON string is escaped, so neither mark can be text of a
/// caller's; the event inside an admitted line is no beginning.
fn starts(line: &[u8]) -> Vec<usize> {
    let event = memchr::memmem::find_iter(line, EVENT)
        .filter(|at| !line[..*at].ends_with(b"{\"admitted\":"));
    let mut all: Vec<usize> = event.chain(memchr::memmem::find_iter(line, ADMITTED)).collect();
    all.sort_unstable();
    all
}

/// Newlines between two offsets.
///
/// # Errors
/// The file's.
pub fn count(file: &File, from: u64, to: u64) -> io::Result<u64> {
    let mut buffer = vec![0; 64 << 10];
    let (mut at, mut lines) = (from, 0);
    while at < to {
        let want = usize::try_from(to - at).unwrap_or(usize::MAX).min(buffer.len());
        let got = read_at(file, &mut buffer[..want], at)?;
        if got == 0 {
            break;
        }
        lines += memchr::memchr_iter(b'\n', &buffer[..got]).count() as u64;
        at += got as u64;
    }
    Ok(lines)
}

/// Fills `buffer` as far as the file goes.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
