//! A segment's file: its name, its version, and who still holds it.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use uuid::Uuid;

/// What this version writes, and the last that it reads. New members of a line do not raise it:
/// they have defaults. It rises when a line would be misread without knowing more.
pub const VERSION: u32 = 1;
/// A segment's first line. Those from before there were heads have none.
pub const HEAD: &[u8] = b"{\"weir_spool\":1}\n";
/// How a head of any version begins.
const MARK: &[u8] = b"{\"weir_spool\":";
/// More than any head before its number ends.
const MARK_BYTES_MAX: usize = 64;

/// `<uuidv7 of the process's start>-<pid>.jsonl`, then `<…>.2.jsonl` and so on. They sort by
/// process, then in the order they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The process, by the moment it opened its spool; a pid alone comes back (in a container it
    /// is always 1).
    pub process: Uuid,
    /// Its pid, for people.
    pub pid: u32,
    /// 1 and up.
    pub seq: u32,
}

impl Name {
    /// Reads a file's name; `None` for anything that is no segment.
    #[must_use]
    pub fn parse(file: &str) -> Option<Self> {
        let stem = file.strip_suffix(".jsonl")?;
        let process = Uuid::try_parse(stem.get(..36)?).ok()?;
        let rest = stem.get(36..)?.strip_prefix('-')?;
        let (pid, seq) = match rest.split_once('.') {
            Some((pid, seq)) => (pid, seq.parse().ok().filter(|s| *s > 1)?),
            None => (rest, 1),
        };
        Some(Self { process, pid: pid.parse().ok()?, seq })
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.process, self.pid)?;
        if self.seq > 1 {
            write!(f, ".{}", self.seq)?;
        }
        f.write_str(".jsonl")
    }
}

/// Whether nobody writes to the segment any more. Its writer holds an advisory lock on it from
/// before it has its name until the last write is done, and the kernel drops the lock at a kill -9.
///
/// # Errors
/// The file cannot be opened.
pub fn is_dead(path: &Path) -> io::Result<bool> {
    match File::open(path)?.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// Whether a line is a segment's head.
#[must_use]
pub fn is_head(line: &[u8]) -> bool {
    line.starts_with(MARK)
}

/// The version in a segment's head; 0 where it has none.
///
/// # Errors
/// The file's.
pub fn version(file: &File) -> io::Result<u32> {
    let mut start = [0; MARK_BYTES_MAX];
    let mut got = 0;
    loop {
        match file.read_at(&mut start[got..], got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let Some(rest) = start[..got].strip_prefix(MARK) else { return Ok(0) };
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    // A head that says its version in another way is of one that we do not know.
    let number = std::str::from_utf8(&rest[..digits]).ok().and_then(|n| n.parse().ok());
    Ok(number.unwrap_or(u32::MAX))
}

/// Every segment of a folder in order, with its size in bytes. A folder that is not there has none.
///
/// # Errors
/// The folder cannot be read.
pub fn list(dir: &Path) -> io::Result<Vec<(Name, u64)>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut out = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().and_then(Name::parse) else {
            continue;
        };
        match entry.metadata() {
            Ok(meta) => out.push((name, meta.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {} // deleted since
            Err(e) => return Err(e),
        }
    }
    out.sort_unstable();
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_being_written_and_read() {
        let process = Uuid::now_v7();
        for seq in [1, 2, 10, 4_000_000] {
            let name = Name { process, pid: 7, seq };
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        let ten = Name { process, pid: 7, seq: 10 };
        assert!(Name { process, pid: 7, seq: 9 } < ten, "in the order of writing");
    }

    #[test]
    fn other_files_are_no_segments() {
        let u = Uuid::nil();
        for other in
            ["", "x.jsonl", &format!("{u}-1.new"), &format!("{u}.jsonl"), &format!("{u}-1.1.jsonl")]
        {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        assert_eq!(Name::parse("日本日本日本日本日本日本日本日本日本日本.jsonl"), None);
    }

    #[test]
    fn a_head_says_its_version_and_what_has_none_is_of_the_first() {
        let check = |text: &[u8], want: u32| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(text, 0).unwrap();
            assert_eq!(version(&file).unwrap(), want, "{}", text.escape_ascii());
        };
        check(HEAD, VERSION);
        check(b"{\"weir_spool\":12,\"more\":1}\n{\"event_id\":\"x\"}\n", 12);
        check(b"{\"weir_spool\":{\"of\":3}}\n", u32::MAX);
        check(b"{\"weir_spool\":99999999999}\n", u32::MAX);
        for none in [&b""[..], b"{\"event_id\":\"x\"}\n", b"{\"weir_sp", b"\n"] {
            check(none, 0);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_segments() {
        assert!(list(Path::new("/nonexistent/spool")).unwrap().is_empty());
    }
}
