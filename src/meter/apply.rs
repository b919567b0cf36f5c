//! The spool into the ledger: each line exactly once, whatever dies at whatever instruction.
//!
//! One transaction holds the rows of a batch, their hourly sums, the streams that began and have
//! not ended, and how far the segment is read. A stream whose process died without its event gets
//! one: it is appended to the living spool and comes back by the usual road, so that spool and
//! ledger agree.

use super::event::{Event, Outcome};
use super::lines::{self, Batch, Line};
use super::rows;
use super::segment::{self, Name};
use super::spool::Spool;
use super::stats::Stats;
use super::sums::Rollups;
use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior, params};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;
use weir_filters::usage::Source;

/// Where a pass can die. Tests take an image of the disk at each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The folder was listed, nothing read.
    Listed,
    /// Rows are in the transaction, sums and offset are not.
    Inserted,
    /// All of it is, but not committed.
    Moved,
    /// A batch is committed.
    Committed,
    /// A dead stream's event is in the spool, not in the ledger.
    Booked,
    /// A segment is deleted, its offset is not.
    Unlinked,
    /// Its offset too.
    Forgotten,
}

/// Called at each step.
pub type Probe = Box<dyn FnMut(Step) + Send>;

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    #[error(transparent)]
    Spool(#[from] io::Error),
}

/// How far a segment is applied.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) bytes: u64,
    skipped: u64,
    /// When its last byte was, in microseconds since 1970; its writer was dead by then.
    done_at: Option<i64>,
}

pub(super) type Known = HashMap<Name, Progress>;

/// Segments of which some lines could not be read stay for people to look at.
const SKIPPED_KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// Applied segments make way, oldest first, once the folder is larger.
const SPOOL_BYTES_KEEP: u64 = 4 << 30;

/// One pass's hands.
pub(super) struct Applier<'a> {
    pub(super) db: &'a mut Connection,
    pub(super) spool: &'a Spool,
    pub(super) probe: &'a mut Option<Probe>,
    pub(super) spool_keep: Duration,
    pub(super) now: Timestamp,
    /// Segments of a later version that have been told about.
    pub(super) later: &'a mut HashSet<Name>,
}

/// Offsets as the database has them.
pub(super) fn offsets(db: &Connection) -> rusqlite::Result<Known> {
    let mut select =
        db.prepare_cached("SELECT name, applied_bytes, skipped, done_at FROM segments")?;
    let rows = select.query_map([], |row| {
        let bytes: i64 = row.get(1)?;
        let skipped: i64 = row.get(2)?;
        let progress = Progress {
            bytes: u64::try_from(bytes).unwrap_or_default(),
            skipped: u64::try_from(skipped).unwrap_or_default(),
            done_at: row.get(3)?,
        };
        Ok((row.get::<_, String>(0)?, progress))
    })?;
    let mut known = Known::new();
    for row in rows {
        let (name, progress) = row?;
        if let Some(name) = Name::parse(&name) {
            known.insert(name, progress);
        }
    }
    Ok(known)
}

impl Applier<'_> {
    /// Applies what `listing` had when it was made, books the dead, deletes what is old.
    pub(super) fn pass(&mut self, listing: &[(Name, u64)], known: &mut Known) -> Result<(), Fault> {
        self.step(Step::Listed);
        self.later.retain(|name| listing.iter().any(|(there, _)| there == name));
        // Before the first byte is read: who is dead now has written all that it ever will.
        let living = living(self.spool.dir(), known)?;
        for (name, _) in listing {
            let progress = known.entry(*name).or_default();
            if progress.done_at.is_none() {
                self.segment(*name, living.contains(&name.process), progress)?;
            }
        }
        if self.book(&living)? {
            for (name, _) in segment::list(self.spool.dir())? {
                let progress = known.entry(name).or_default();
                if living.contains(&name.process) && progress.done_at.is_none() {
                    self.segment(name, true, progress)?;
                }
            }
        }
        self.stats().set_later(self.later.len() as u64);
        self.delete(listing, known)?;
        Ok(())
    }

    fn step(&mut self, step: Step) {
        if let Some(probe) = self.probe {
            probe(step);
        }
    }

    /// Applies one segment up to the end it has now.
    fn segment(&mut self, name: Name, living: bool, progress: &mut Progress) -> Result<(), Fault> {
        let path = self.spool.dir().join(name.to_string());
        // A living process may have let go of this one, so the file itself is asked.
        let dead = !living || segment::is_dead(&path)?;
        let file = File::open(&path)?;
        if progress.bytes == 0 && self.is_later(name, &file)? {
            return Ok(());
        }
        let end = file.metadata()?.len();
        loop {
            let batch = lines::read(&file, progress.bytes, end, dead)?;
            let done = dead && progress.bytes + batch.bytes >= end;
            if batch.bytes == 0 && !done {
                return Ok(());
            }
            *progress = self.commit(name, &batch, *progress, done)?;
            if batch.skipped > 0 {
                self.stats().skip(batch.skipped);
                let skipped = batch.skipped;
                log::warn!("{}: {skipped} lines could not be read", path.display());
            }
            if done {
                return Ok(());
            }
        }
    }

    /// Whether a later version wrote the segment: what its lines mean is not known here, so that
    /// it is neither applied nor deleted, and waits for an upgrade.
    fn is_later(&mut self, name: Name, file: &File) -> io::Result<bool> {
        let version = segment::version(file)?;
        if version <= segment::VERSION {
            self.later.remove(&name);
            return Ok(false);
        }
        if self.later.insert(name) {
            let (dir, reads) = (self.spool.dir().display(), segment::VERSION);
            log::error!(
                "{dir}/{name}: a later version of weir wrote it (spool version {version}, this \
                 one reads {reads}); it is left alone, and booked after an upgrade"
            );
        }
        Ok(true)
    }

    fn stats(&self) -> &Stats {
        self.spool.stats()
    }

    /// One transaction; returns how far the segment is now.
    fn commit(
        &mut self,
        name: Name,
        batch: &Batch,
        from: Progress,
        done: bool,
    ) -> rusqlite::Result<Progress> {
        let to = Progress {
            bytes: from.bytes + batch.bytes,
            skipped: from.skipped + batch.skipped,
            done_at: done.then_some(self.now.as_microsecond()),
        };
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut sums = Rollups::default();
        for line in &batch.lines {
            match line {
                Line::Event(event) => {
                    if rows::insert(&tx, event)? {
                        sums.add(&tx, event)?;
                    }
                    tx.prepare_cached("DELETE FROM admitted WHERE event_id = ?1")?
                        .execute([event.event_id.0.as_bytes()])?;
                }
                Line::Admitted(event) => admit(&tx, event, name.process)?,
            }
        }
        step(self.probe, Step::Inserted);
        sums.write(&tx)?;
        tx.prepare_cached("INSERT OR REPLACE INTO segments VALUES (?1, ?2, ?3, ?4)")?.execute(
            params![name.to_string(), to.bytes.cast_signed(), to.skipped.cast_signed(), to.done_at],
        )?;
        step(self.probe, Step::Moved);
        tx.commit()?;
        step(self.probe, Step::Committed);
        let lines = batch.lines.len() as u64 + batch.skipped;
        self.stats().set_lag(self.stats().lag().saturating_sub(lines));
        Ok(to)
    }

    /// Appends the event of every stream whose process is dead; true when there were any. The
    /// living spool has been read by now, so what an earlier pass appended is a row already.
    fn book(&mut self, living: &HashSet<Uuid>) -> Result<bool, Fault> {
        let orphans = orphans(self.db, living)?;
        for event in &orphans {
            self.spool.put_event(&interrupted(event))?;
            self.step(Step::Booked);
        }
        Ok(!orphans.is_empty())
    }

    /// Deletes segments that are done for long enough, then what the ledger knew of them.
    fn delete(&mut self, listing: &[(Name, u64)], known: &mut Known) -> Result<(), Fault> {
        let mut total: u64 = listing.iter().map(|(_, size)| size).sum();
        let mut gone = Vec::new();
        for (name, size) in listing {
            let Some(progress) = known.get(name) else { continue };
            if self.may_go(progress, total) {
                total -= size;
                gone.push(*name);
            }
        }
        // Until it is out of the write-ahead log, a power failure may take an offset back.
        if !gone.is_empty() && !checkpointed(self.db)? {
            return Ok(());
        }
        for name in &gone {
            match fs::remove_file(self.spool.dir().join(name.to_string())) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
                _ => self.step(Step::Unlinked),
            }
        }
        let there: HashSet<Name> = listing.iter().map(|(name, _)| *name).collect();
        let dir = self.spool.dir();
        let lost = |name: &&Name| !there.contains(name) && !dir.join(name.to_string()).exists();
        gone.extend(known.keys().filter(lost));
        for name in gone {
            self.db
                .prepare_cached("DELETE FROM segments WHERE name = ?1")?
                .execute([name.to_string()])?;
            known.remove(&name);
            self.step(Step::Forgotten);
        }
        Ok(())
    }

    /// Whether a segment may be deleted from a folder of `total` bytes.
    fn may_go(&self, progress: &Progress, total: u64) -> bool {
        let Some(done_at) = progress.done_at else { return false };
        let keep = match progress {
            // A start that served nobody.
            Progress { bytes, .. } if *bytes <= segment::HEAD.len() as u64 => return true,
            Progress { skipped: 0, .. } => self.spool_keep,
            _ => SKIPPED_KEEP.max(self.spool_keep),
        };
        let age = self.now.as_microsecond().saturating_sub(done_at);
        total > SPOOL_BYTES_KEEP || u128::try_from(age).is_ok_and(|a| a >= keep.as_micros())
    }
}

fn step(probe: &mut Option<Probe>, step: Step) {
    if let Some(probe) = probe {
        probe(step);
    }
}

/// Remembers a stream that began. Its event may have come by a later segment already.
fn admit(tx: &Connection, event: &Event, process: Uuid) -> rusqlite::Result<()> {
    let id = event.event_id.0;
    let line = serde_json::to_string(event).unwrap_or_default();
    tx.prepare_cached(
        "INSERT OR IGNORE INTO admitted SELECT ?1, ?2, ?3
         WHERE NOT EXISTS (SELECT 1 FROM events WHERE event_id = ?1)",
    )?
    .execute(params![id.as_bytes().as_slice(), process.to_string(), line])?;
    Ok(())
}

/// Streams without an event whose process is dead.
fn orphans(db: &Connection, living: &HashSet<Uuid>) -> rusqlite::Result<Vec<Event>> {
    let mut select = db.prepare_cached("SELECT process, line FROM admitted")?;
    let rows = select.query_map([], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?)))?;
    let mut orphans = Vec::new();
    for row in rows {
        let (process, line) = row?;
        if Uuid::try_parse(&process).is_ok_and(|p| !living.contains(&p))
            && let Ok(event) = serde_json::from_str(&line)
        {
            orphans.push(event);
        }
    }
    Ok(orphans)
}

/// What is booked for a stream that died with its process: what its prompt was worth by the
/// estimate it was admitted with. What it streamed is lost.
fn interrupted(admitted: &Event) -> Event {
    Event {
        outcome: Outcome::Interrupted,
        usage_source: Source::Estimated,
        // The caller's connection broke without an answer or in the middle of one, by our fault.
        status: if admitted.status >= 400 { admitted.status } else { 500 },
        ..admitted.clone()
    }
}

/// Processes that hold a segment. A rotation opens the next before it lets the last go, so a
/// process that lives is missed only if that happens between the list and the look: the lists
/// before and after the look must agree.
fn living(dir: &Path, known: &Known) -> io::Result<HashSet<Uuid>> {
    let mut names = segment::list(dir)?;
    loop {
        let mut living = HashSet::new();
        let done = |name: &Name| known.get(name).is_some_and(|p| p.done_at.is_some());
        for (name, _) in names.iter().filter(|(name, _)| !done(name)) {
            match segment::is_dead(&dir.join(name.to_string())) {
                Ok(true) => {}
                Ok(false) => _ = living.insert(name.process),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        let again = segment::list(dir)?;
        if again.iter().map(|(n, _)| n).eq(names.iter().map(|(n, _)| n)) {
            return Ok(living);
        }
        names = again;
    }
}

/// Moves the write-ahead log into the database; false while a reader holds it up.
fn checkpointed(db: &Connection) -> rusqlite::Result<bool> {
    let (busy, log, done): (i64, i64, i64) =
        db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?))
        })?;
    Ok(busy == 0 && log == done)
}
