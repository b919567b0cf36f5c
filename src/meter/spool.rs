//! Append-only segments of events: whole lines, in order, before the last byte leaves.
//!
//! The write is the one blocking call that a request makes by itself (2.5–3.6 µs on ext4, against
//! 20 µs for a hand-over to a thread), and those that end together make it once (`gather`). A
//! `kill -9` loses nothing that was appended, a power failure at most one `store.sync`; with
//! `sync = "always"` every write waits for the disk.

use super::event::{Admitted, Event};
use super::gather::Slots;
use super::segment::{HEAD, Name};
use super::stats::{Minute, Stats};
use super::stop::Stop;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Where a segment ends and the next begins; looked at once per sync interval.
const SEGMENT_BYTES: u64 = 64 << 20;
/// A segment that is not empty ends after this time, so that old ones can be deleted.
const SEGMENT_AGE: Duration = Duration::from_secs(3600);
/// A longer line is shortened: readers take no longer one.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;
/// What a thread's line buffer may keep.
pub(super) const BUFFER_KEEP: usize = 64 << 10;
/// Written while writing fails, to see whether it does still: a line that readers pass over, with
/// room for a few events.
const BLANK: [u8; 4096] = {
    let mut line = [b' '; 4096];
    line[0] = b'\n';
    line[4095] = b'\n';
    line
};
/// How often segments are synced unless config says otherwise.
const SYNC: Duration = Duration::from_secs(1);

thread_local! {
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What a segment is written to.
trait Disk: Send + Sync {
    /// One `write(2)`, at the end.
    fn write(&self, line: &[u8]) -> io::Result<usize>;
    /// Until the device has it.
    fn sync(&self) -> io::Result<()>;
    /// Whether the file has lost its name.
    fn is_gone(&self) -> bool;
}

impl Disk for File {
    fn write(&self, line: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(line)
    }
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
    fn is_gone(&self) -> bool {
        self.metadata().is_ok_and(|m| m.nlink() == 0)
    }
}

type Opener = fn(&Path, Name) -> io::Result<Box<dyn Disk>>;

/// One open file.
struct Segment {
    disk: Box<dyn Disk>,
    born: Instant,
    /// Bytes in it.
    bytes: AtomicU64,
    /// Bytes of it that the last sync covered.
    synced: AtomicU64,
    /// The last write was cut short: the next line begins with a newline of its own.
    torn: AtomicBool,
}

/// What only the thread that rotates needs.
struct Rotation {
    /// Of the open segment.
    seq: u32,
    /// The one before, until the next sync: a writer may have been in the middle of its call.
    previous: Option<Arc<Segment>>,
}

/// The process's open segment.
pub struct Spool {
    dir: PathBuf,
    process: Uuid,
    open: ArcSwap<Segment>,
    /// Events that wait for the others that end with them.
    pub(super) slots: Slots,
    rotation: Mutex<Rotation>,
    /// `None`: after every line.
    sync: Option<Duration>,
    pub(super) stats: Arc<Stats>,
    opener: Opener,
    /// The last failed write was for want of space, which a new file does not heal.
    full: AtomicBool,
    said: Minute,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("dir", &self.dir).field("process", &self.process).finish()
    }
}

impl Spool {
    /// Opens a new segment, named `<uuidv7>-<pid>.jsonl`, in `dir` (made if absent), and holds a
    /// lock on it while the process lives. It is synced every second; see [`Spool::sync_every`].
    ///
    /// # Errors
    /// The folder or the file cannot be made.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Self::open_on(dir, create)
    }

    fn open_on(dir: &Path, opener: Opener) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let name = Name { process: Uuid::now_v7(), pid: std::process::id(), seq: 1 };
        let segment = Segment::new(opener(dir, name)?);
        Ok(Self {
            dir: dir.to_path_buf(),
            process: name.process,
            open: ArcSwap::from_pointee(segment),
            slots: Slots::default(),
            rotation: Mutex::new(Rotation { seq: 1, previous: None }),
            sync: Some(SYNC),
            stats: Arc::default(),
            opener,
            full: AtomicBool::new(false),
            said: Minute::default(),
        })
    }

    /// `[store] sync`: the interval, or `None` for after every line.
    #[must_use]
    pub fn sync_every(mut self, sync: Option<Duration>) -> Self {
        self.sync = sync;
        self
    }
    /// Its numbers, to be shared with the ledger and `observe`.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }
    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Whether the last write failed; it ends with the first that works.
    #[must_use]
    pub fn failing(&self) -> bool {
        self.stats.spool_failing()
    }

    /// Appends the line of an admitted stream. Without it only a `kill -9` loses anything, so a
    /// failed write is no lost event.
    pub fn admit(&self, line: &Admitted) {
        let written = self.put(|out| line.write(out), LINE_BYTES_MAX).and_then(|fits| match fits {
            true => Ok(true),
            false => self.put(|out| line.shortened().write(out), usize::MAX),
        });
        if let Err(e) = written {
            self.say(&e);
        }
    }

    /// [`Spool::append`] for callers that can try again.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn put_event(&self, event: &Event) -> io::Result<()> {
        if !self.put(|out| event.write(out), LINE_BYTES_MAX)? {
            self.put(|out| event.shortened().write(out), usize::MAX)?;
        }
        Ok(())
    }

    /// One line, one write; `false` when it would be longer than `max` bytes.
    fn put(&self, value: impl Fn(&mut Vec<u8>), max: usize) -> io::Result<bool> {
        // A thread that is being torn down has no buffer any more, but may still owe an event.
        let mut line = LINE.try_with(Cell::take).unwrap_or_default();
        line.clear();
        line.push(b'\n');
        value(&mut line);
        line.push(b'\n');
        let fits = line.len() <= max;
        let written = if fits { self.write(&line).1 } else { Ok(()) };
        line.shrink_to(BUFFER_KEEP);
        let _ = LINE.try_with(|l| l.set(line)); // torn down: nothing to keep
        written.map(|()| fits)
    }

    /// Writes `lines`, whose first byte is a newline that is only needed after a torn line, and
    /// says how many of them are in the file whole.
    pub(super) fn write(&self, lines: &[u8]) -> (usize, io::Result<()>) {
        let segment = self.open.load();
        let torn = segment.torn.load(Ordering::Acquire);
        let out = if torn { lines } else { &lines[1..] };
        let wrote = loop {
            match segment.disk.write(out) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let n = match wrote {
            Ok(n) => n,
            Err(e) => {
                self.full.store(is_full(&e), Ordering::Relaxed);
                return (0, Err(e));
            }
        };
        let whole = memchr::memchr_iter(b'\n', &out[..n]).count() - usize::from(torn && n > 0);
        segment.bytes.fetch_add(n as u64, Ordering::Release);
        self.stats.wrote(whole as u64, n as u64);
        if n < out.len() {
            segment.torn.store(n > 0 || torn, Ordering::Release);
            self.full.store(true, Ordering::Relaxed);
        } else {
            if torn {
                segment.torn.store(false, Ordering::Release);
            }
            self.stats.set_spool_sound();
        }
        if self.sync.is_none()
            && whole > 0
            && let Err(e) = segment.sync()
        {
            self.say(&e); // the lines are in the file, and a kill -9 will not take them
        }
        if n < out.len() {
            let e = io::Error::new(ErrorKind::StorageFull, "only a part was written");
            return (whole, Err(e));
        }
        (whole, Ok(()))
    }

    /// Waits until the device has every line appended so far.
    ///
    /// # Errors
    /// The device's.
    pub fn sync(&self) -> io::Result<()> {
        let previous = self.rotation.lock().previous.take();
        let open = self.open.load_full().sync();
        previous.map_or(Ok(()), |p| p.sync()).and(open)
    }

    /// The work of each interval: sync, then a new segment where the open one is large, old,
    /// deleted by somebody or unwritable.
    pub fn tick(&self, now: Instant) {
        if let Err(e) = self.sync() {
            self.say(&e);
        }
        let segment = self.open.load_full();
        let bytes = segment.bytes.load(Ordering::Relaxed);
        let old = bytes > 0 && now.saturating_duration_since(segment.born) >= SEGMENT_AGE;
        let broken = self.failing() && !self.full.load(Ordering::Relaxed);
        if (old || broken || bytes >= SEGMENT_BYTES || segment.disk.is_gone())
            && let Err(e) = self.rotate(now)
        {
            self.say(&e);
        }
        // Who is not ready may get no request whose event would show that it could be.
        if self.failing()
            && let Err(e) = self.write(&BLANK).1
        {
            self.say(&e);
        }
    }

    /// The next segment is open, locked and named before this one is let go, so that at every
    /// moment a living process holds one.
    fn rotate(&self, now: Instant) -> io::Result<()> {
        let mut rotation = self.rotation.lock();
        let seq = rotation.seq.saturating_add(1);
        let name = Name { process: self.process, pid: std::process::id(), seq };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let next = Segment { born: now, ..Segment::new((self.opener)(&self.dir, name)?) };
        rotation.seq = seq;
        rotation.previous = Some(self.open.swap(Arc::new(next)));
        Ok(())
    }

    /// Ticks until `stop`, then syncs a last time. For a thread of its own.
    pub fn run(&self, stop: &Stop) {
        while !stop.wait(self.sync.unwrap_or(SYNC)) {
            self.tick(Instant::now());
        }
        if let Err(e) = self.sync() {
            self.say(&e);
        }
    }

    pub(super) fn say(&self, e: &io::Error) {
        self.stats.set_spool_failing();
        if self.said.may(Instant::now()) {
            let (dir, lost) = (self.dir.display(), self.stats.lost());
            log::error!("spool {dir}: {e}; requests go on, {lost} events lost since the start");
        }
    }
}

impl Segment {
    fn new(disk: Box<dyn Disk>) -> Self {
        Self {
            disk,
            born: Instant::now(),
            bytes: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            torn: AtomicBool::new(false),
        }
    }
    fn sync(&self) -> io::Result<()> {
        let bytes = self.bytes.load(Ordering::Acquire); // counted after it was written
        if self.synced.load(Ordering::Relaxed) != bytes {
            self.disk.sync()?;
            self.synced.store(bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A segment gets its name only once it is locked: who sees it sees that it lives.
fn create(dir: &Path, name: Name) -> io::Result<Box<dyn Disk>> {
    let path = dir.join(name.to_string());
    let new = path.with_extension("new");
    let file = File::options().append(true).create_new(true).mode(0o600).open(&new)?;
    // On a full disk a segment without a head will do: it is read as well.
    if Disk::write(&file, HEAD).ok() != Some(HEAD.len()) {
        let _ = file.set_len(0); // what stays of it is a torn line, which costs itself alone
    }
    if let Err(e) = file.lock().and_then(|()| fs::rename(&new, &path)) {
        let _ = fs::remove_file(&new); // the first error is the one to tell
        return Err(e);
    }
    let _ = File::open(dir).and_then(|d| d.sync_all()); // some file systems cannot sync folders
    Ok(Box::new(file))
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::event::tests::event;
    use super::*;
    use crate::meter::lines::{self, Line};

    /// A disk with room for so many bytes more, and a switch that breaks it.
    struct Small {
        file: File,
        room: &'static Mutex<usize>,
        fault: &'static AtomicBool,
    }

    impl Disk for Small {
        fn write(&self, line: &[u8]) -> io::Result<usize> {
            if self.fault.load(Ordering::Relaxed) {
                return Err(io::Error::other("input/output error"));
            }
            let mut room = self.room.lock();
            let n = line.len().min(*room);
            if n == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            *room -= n;
            Disk::write(&self.file, &line[..n])
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn is_gone(&self) -> bool {
            false
        }
    }

    macro_rules! small {
        ($opener:ident, $room:ident, $fault:ident) => {
            static $room: Mutex<usize> = Mutex::new(0);
            static $fault: AtomicBool = AtomicBool::new(false);
            fn $opener(dir: &Path, name: Name) -> io::Result<Box<dyn Disk>> {
                let path = dir.join(name.to_string());
                let file = File::options().append(true).create_new(true).open(path)?;
                file.lock()?;
                Ok(Box::new(Small { file, room: &$room, fault: &$fault }))
            }
        };
    }

    /// Every readable event of a folder in order, and how many lines were not.
    fn read(dir: &Path) -> (Vec<Event>, u64) {
        let (mut events, mut skipped) = (Vec::new(), 0);
        for (name, size) in super::super::segment::list(dir).unwrap() {
            let file = File::open(dir.join(name.to_string())).unwrap();
            let batch = lines::read(&file, 0, size, true).unwrap();
            assert_eq!(batch.bytes, size);
            skipped += batch.skipped;
            events.extend(batch.lines.into_iter().map(|line| match line {
                Line::Event(e) | Line::Admitted(e) => *e,
            }));
        }
        (events, skipped)
    }

    #[test]
    fn a_full_disk_costs_counted_events_and_it_recovers_by_itself() {
        small!(open, ROOM, FAULT);
        let dir = tempfile::tempdir().unwrap();
        let line = serde_json::to_string(&event()).unwrap().len() + 1;
        // Full after 1 line and every possible part of the second.
        for part in 0..=line {
            let dir = dir.path().join(part.to_string());
            let spool = Spool::open_on(&dir, open).unwrap();
            *ROOM.lock() = line + part;
            let events: Vec<Event> = (0..5).map(|_| event()).collect();
            events[..3].iter().for_each(|e| spool.append(e));
            let fits = 1 + part / line;
            assert_eq!((spool.stats().lost(), spool.failing()), (3 - fits as u64, true));
            spool.tick(Instant::now());
            *ROOM.lock() = 10 * line;
            events[3..].iter().for_each(|e| spool.append(e));
            assert!(!spool.failing() && spool.stats().lines() == fits as u64 + 2);
            let (read, skipped) = read(&dir);
            // A line that lacks only its newline is whole all the same.
            let whole = if part == line - 1 { 2 } else { fits };
            assert_eq!(read, [&events[..whole], &events[3..]].concat(), "{part}");
            assert_eq!(skipped, u64::from(part > 0 && part < line - 1), "{part}");
            assert!(!FAULT.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn of_events_that_leave_together_a_full_disk_takes_the_first_and_counts_the_others() {
        small!(open, ROOM, FAULT);
        let dir = tempfile::tempdir().unwrap();
        let line = serde_json::to_string(&event()).unwrap().len() + 1;
        for part in 0..line - 1 {
            let dir = dir.path().join(part.to_string());
            let spool = Spool::open_on(&dir, open).unwrap();
            *ROOM.lock() = line + part;
            let events: Vec<Event> = (0..4).map(|_| event()).collect();
            let pending: Vec<_> = events[..3].iter().map(|e| spool.gather(e)).collect();
            pending.into_iter().for_each(|p| spool.settle(p));
            assert_eq!((spool.stats().lost(), spool.stats().lines()), (2, 1));
            *ROOM.lock() = 10 * line;
            spool.append(&events[3]);
            let (read, skipped) = read(&dir);
            assert_eq!(read, [events[0].clone(), events[3].clone()], "{part}");
            assert_eq!(skipped, u64::from(part > 0), "{part}");
            assert!(!FAULT.load(Ordering::Relaxed) && !spool.failing());
        }
    }

    #[test]
    fn always_waits_for_the_disk_after_every_line_and_an_interval_once_for_all_of_them() {
        static SYNCS: AtomicU64 = AtomicU64::new(0);
        struct Counted(File);
        impl Disk for Counted {
            fn write(&self, line: &[u8]) -> io::Result<usize> {
                Disk::write(&self.0, line)
            }
            fn sync(&self) -> io::Result<()> {
                SYNCS.fetch_add(1, Ordering::Relaxed);
                self.0.sync_data()
            }
            fn is_gone(&self) -> bool {
                false
            }
        }
        fn open(dir: &Path, name: Name) -> io::Result<Box<dyn Disk>> {
            Ok(Box::new(Counted(File::create(dir.join(name.to_string()))?)))
        }
        let dir = tempfile::tempdir().unwrap();
        let synced = |spool: &Spool| {
            SYNCS.store(0, Ordering::Relaxed);
            (0..5).for_each(|_| spool.append(&event()));
            SYNCS.load(Ordering::Relaxed)
        };
        let always = Spool::open_on(dir.path(), open).unwrap().sync_every(None);
        assert_eq!(synced(&always), 5);
        let every = Spool::open_on(dir.path(), open).unwrap().sync_every(Some(SYNC));
        assert_eq!(synced(&every), 0);
        every.tick(Instant::now());
        every.tick(Instant::now());
        assert_eq!(SYNCS.load(Ordering::Relaxed), 1, "the second tick has nothing to sync");
    }

    #[test]
    fn what_is_whole_of_a_group_that_is_cut_short_waits_for_the_disk_as_well() {
        static SYNCS: AtomicU64 = AtomicU64::new(0);
        static ROOM: AtomicU64 = AtomicU64::new(0);
        struct Short(File);
        impl Disk for Short {
            fn write(&self, lines: &[u8]) -> io::Result<usize> {
                let room = usize::try_from(ROOM.load(Ordering::Relaxed)).unwrap();
                Disk::write(&self.0, &lines[..lines.len().min(room)])
            }
            fn sync(&self) -> io::Result<()> {
                SYNCS.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            fn is_gone(&self) -> bool {
                false
            }
        }
        fn open(dir: &Path, name: Name) -> io::Result<Box<dyn Disk>> {
            Ok(Box::new(Short(File::create(dir.join(name.to_string()))?)))
        }
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open_on(dir.path(), open).unwrap().sync_every(None);
        let line = serde_json::to_string(&event()).unwrap().len() as u64 + 1;
        for (room, whole) in [(line + line / 2, 1), (line / 2, 0)] {
            ROOM.store(room, Ordering::Relaxed);
            let (lost, lines) = (spool.stats().lost(), spool.stats().lines());
            SYNCS.store(0, Ordering::Relaxed);
            let (one, two) = (spool.gather(&event()), spool.gather(&event()));
            spool.settle(one);
            spool.settle(two);
            assert_eq!(spool.stats().lines() - lines, whole);
            assert_eq!(spool.stats().lost() - lost, 2 - whole);
            assert_eq!(SYNCS.load(Ordering::Relaxed), whole);
        }
    }

    #[test]
    fn a_disk_that_fails_gets_a_new_file_at_the_next_tick() {
        small!(open, ROOM, FAULT);
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open_on(dir.path(), open).unwrap();
        *ROOM.lock() = usize::MAX;
        FAULT.store(true, Ordering::Relaxed);
        spool.append(&event());
        spool.tick(Instant::now());
        FAULT.store(false, Ordering::Relaxed);
        spool.append(&event());
        assert_eq!((spool.stats().lost(), spool.failing()), (1, false));
        let sizes: Vec<bool> =
            super::super::segment::list(dir.path()).unwrap().iter().map(|s| s.1 > 0).collect();
        assert_eq!(sizes, [false, true]);
    }

    #[test]
    fn a_failed_first_line_of_a_stream_is_no_lost_event() {
        small!(open, ROOM, FAULT);
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open_on(dir.path(), open).unwrap();
        spool.admit(&Admitted { admitted: Box::new(event()) });
        assert_eq!((spool.stats().lost(), spool.failing()), (0, true));
        assert!(*ROOM.lock() == 0 && !FAULT.load(Ordering::Relaxed));
    }

    #[test]
    fn a_segment_lives_as_long_as_its_spool() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let (name, _) = super::super::segment::list(dir.path()).unwrap()[0];
        let path = dir.path().join(name.to_string());
        assert!(!super::super::segment::is_dead(&path).unwrap());
        drop(spool);
        assert!(super::super::segment::is_dead(&path).unwrap());
    }

    #[test]
    fn an_age_or_a_size_ends_a_segment_but_an_empty_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let segments = || super::super::segment::list(dir.path()).unwrap().len();
        let start = Instant::now();
        spool.tick(start + 2 * SEGMENT_AGE);
        assert_eq!(segments(), 1, "nothing is in it");
        spool.append(&event());
        spool.tick(start + SEGMENT_AGE / 2);
        assert_eq!(segments(), 1);
        spool.tick(start + 2 * SEGMENT_AGE);
        assert_eq!(segments(), 2);
        spool.open.load().bytes.store(SEGMENT_BYTES, Ordering::Relaxed);
        spool.tick(start + 2 * SEGMENT_AGE);
        assert_eq!(segments(), 3);
    }

    #[test]
    fn the_line_of_a_stream_is_no_event_for_those_who_read_the_spool() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        spool.admit(&Admitted { admitted: Box::new(event()) });
        let (name, _) = super::super::segment::list(dir.path()).unwrap()[0];
        let text = fs::read_to_string(dir.path().join(name.to_string())).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        assert!(line.get("request_id").is_none() && line["admitted"]["request_id"].is_string());
        assert!(text.as_bytes().starts_with(HEAD) && text.matches('\n').count() == 2);
    }
}
