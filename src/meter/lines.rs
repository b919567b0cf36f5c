//! What a segment's bytes say: events, admitted streams, and what can be saved of torn lines.

use super::event::{Admitted, Event};
use super::segment;
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
    if line.is_empty() || segment::is_head(line) {
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

/// Newlines between two offsets, the head's left out; none where a later version wrote them.
///
/// # Errors
/// The file's.
pub fn count(file: &File, from: u64, to: u64) -> io::Result<u64> {
    let mut buffer = vec![0; 64 << 10];
    let mut at = from;
    if from == 0 {
        match segment::version(file)? {
            0 => {}
            later if later > segment::VERSION => return Ok(0),
            _ => at = segment::HEAD.len() as u64,
        }
    }
    let mut lines = 0;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(request_id: &str) -> String {
        let id = crate::base::EventId::now();
        format!(
            "{{\"event_id\":\"{id}\",\"ts\":\"2026-11-30T08:00:00Z\",\"endpoint\":\"chat\",\
             \"status\":200,\"outcome\":\"success\",\"request_id\":{request_id:?}}}"
        )
    }

    fn ids(batch: &Batch) -> Vec<(char, String)> {
        let one = |l: &Line| match l {
            Line::Event(e) => ('e', e.request_id.clone()),
            Line::Admitted(e) => ('a', e.request_id.clone()),
        };
        batch.lines.iter().map(one).collect()
    }

    #[test]
    fn a_line_glued_to_a_torn_one_is_saved_at_every_cut() {
        // A caller's text that looks like a beginning is escaped, so it is none.
        let evil = line("{\"event_id\":\"x\",\"admitted\":{");
        let admitted = format!("{{\"admitted\":{}}}", line("first"));
        for torn in [&evil, &admitted] {
            for whole in [line("second"), format!("{{\"admitted\":{}}}", line("second"))] {
                let kind = if whole.starts_with("{\"a") { 'a' } else { 'e' };
                for cut in 1..torn.len() {
                    let text = format!("{}{whole}\n", &torn[..cut]);
                    let batch = parse(text.as_bytes(), false);
                    if &torn.as_bytes()[..cut] == ADMITTED && kind == 'e' {
                        // Just what a stream's line without its last brace looks like.
                        assert_eq!((batch.lines.len(), batch.skipped), (0, 1));
                        continue;
                    }
                    assert_eq!(ids(&batch), [(kind, "second".to_string())], "{text}");
                    assert_eq!((batch.skipped, batch.bytes), (1, text.len() as u64));
                }
            }
        }
    }

    #[test]
    fn an_unfinished_line_waits_unless_nobody_will_finish_it() {
        let text = format!("{}\n{}", line("a"), line("b"));
        let first = text.find('\n').unwrap() as u64 + 1;
        let living = parse(text.as_bytes(), false);
        assert_eq!((living.lines.len(), living.bytes), (1, first));
        let dead = parse(text.as_bytes(), true);
        assert_eq!((dead.lines.len(), dead.bytes), (2, text.len() as u64));
    }

    #[test]
    fn bytes_that_are_no_lines_at_all_are_passed_over() {
        let file = tempfile::tempfile().unwrap();
        let good = format!("\n{}\n", line("good"));
        let junk = 3 * LINE_BYTES_MAX as u64 + 17;
        file.set_len(junk).unwrap(); // zeros, as a file system may leave them after a power failure
        file.write_all_at(good.as_bytes(), junk).unwrap();
        let end = junk + good.len() as u64;
        let (mut at, mut good, mut skipped) = (0, 0, 0);
        loop {
            let batch = read(&file, at, end, false).unwrap();
            if batch.bytes == 0 {
                break;
            }
            at += batch.bytes;
            good += batch.lines.len();
            skipped += batch.skipped;
        }
        assert_eq!((at, good, skipped), (end, 1, 4));
    }

    #[test]
    fn a_batch_is_bounded() {
        let text = format!("{}\n", line("x")).repeat(LINES_MAX + 5);
        let batch = parse(text.as_bytes(), true);
        assert_eq!(batch.lines.len(), LINES_MAX);
        let rest = parse(&text.as_bytes()[usize::try_from(batch.bytes).unwrap()..], true);
        assert_eq!(rest.lines.len(), 5);
    }

    #[test]
    fn lines_are_counted_between_offsets() {
        let file = tempfile::tempfile().unwrap();
        let text = "ab\n".repeat(50_000);
        file.write_all_at(text.as_bytes(), 0).unwrap();
        assert_eq!(count(&file, 0, 150_000).unwrap(), 50_000);
        assert_eq!(count(&file, 3, 6).unwrap(), 1);
        assert_eq!(count(&file, 150_000, 999_999).unwrap(), 0, "nothing is beyond the end");
    }
}
