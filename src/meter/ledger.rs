//! The ledger's one writer: a thread that applies the spool, deletes what is old, and says how far
//! behind it is. Whatever the database does, the spool keeps growing and requests go on.
//!
//! - Locked by another program, or its disk full: the gateway starts, `weir_store_up` is 0, every
//!   pass tries again.
//! - Damaged, of a later version, or where none can be: at the start refused with the file's name;
//!   while running as above, opened anew at every pass.
//! - Deleted or moved away: made anew, and filled from what the spool still has.
//! - Applied by another gateway of the same store: left to it, taken over when it ends.

use super::apply::{self, Applier, Fault, Known, Probe};
use super::lines;
use super::segment::{self, Name};
use super::spool::Spool;
use super::stats::Minute;
use super::stop::Stop;
use super::sums;
use crate::store::{self, Error};
use jiff::Timestamp;
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a new event waits at most before it is applied.
const EVERY: Duration = Duration::from_millis(200);
/// How long a segment stays after its last line was applied.
const SPOOL_KEEP: Duration = Duration::from_secs(24 * 3600);
/// Rows deleted at once: a few milliseconds of the writer's time.
const SWEEP_ROWS: u32 = 1_000;
/// How often the ledger is swept once nothing more is too old.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The ledger of a running gateway.
pub struct Ledger {
    path: PathBuf,
    db: Option<Db>,
    /// Held while this process is the one that applies.
    lock: Option<File>,
    retention: Option<Duration>,
    spool_keep: Duration,
    swept: Option<Timestamp>,
    /// Segments that wait for an upgrade.
    later: HashSet<Name>,
    /// Offsets at the last time the database could be asked.
    known: Known,
    backlog: Backlog,
    probe: Option<Probe>,
    said: Minute,
}

/// A connection, and the file it is to.
struct Db {
    connection: Connection,
    inode: u64,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Opens the ledger, made if absent. One that is locked or whose disk is full will do: it is
    /// tried again at every pass.
    ///
    /// # Errors
    /// What waiting does not heal: a damaged file, one of a later version, a place for none.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut ledger = Self {
            path: path.to_path_buf(),
            db: None,
            lock: None,
            retention: None,
            spool_keep: SPOOL_KEEP,
            swept: None,
            later: HashSet::new(),
            known: Known::new(),
            backlog: Backlog::default(),
            probe: None,
            said: Minute::default(),
        };
        match ledger.connect() {
            Err(e) if !e.is_passing() => Err(e),
            _ => Ok(ledger),
        }
    }
    /// `[store] retention`: older rows are deleted; `None` keeps all.
    #[must_use]
    pub fn retention(mut self, retention: Option<Duration>) -> Self {
        self.retention = retention;
        self
    }
    /// How long an applied segment stays, a day by default.
    #[must_use]
    pub fn spool_keep(mut self, keep: Duration) -> Self {
        self.spool_keep = keep;
        self
    }
    /// Calls `probe` at each step of a pass: where tests take images of the disk.
    #[must_use]
    pub fn probe(mut self, probe: Probe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Applies all that dead processes left and all appended so far, and books their streams. To
    /// be called before the first request.
    ///
    /// # Errors
    /// What waiting does not heal. Anything else is logged, and tried again by [`Ledger::run`].
    pub fn apply_all(&mut self, spool: &Spool, now: Timestamp) -> Result<(), Error> {
        match self.pass(spool, now) {
            Err(e) if !e.is_passing() => Err(e),
            _ => Ok(()),
        }
    }

    /// Applies until `stop`, then a last time. For a thread of its own.
    pub fn run(mut self, spool: &Spool, stop: &Stop) {
        loop {
            let last = stop.wait(EVERY);
            let _ = self.pass(spool, Timestamp::now()); // said and counted there
            if last {
                return;
            }
        }
    }

    /// One pass. A fault is in [`super::Stats`] and, once a minute, in the log.
    ///
    /// # Errors
    /// The database's, or that the spool's folder cannot be read.
    pub fn pass(&mut self, spool: &Spool, now: Timestamp) -> Result<(), Error> {
        let done = self.try_pass(spool, now);
        spool.stats().set_store_up(done.is_ok());
        if let Err(e) = &done {
            if !matches!(e, Error::Busy(_)) {
                self.db = None; // a new connection at the next pass, in case it heals
            }
            if self.said.may(Instant::now()) {
                let lag = spool.stats().lag();
                log::error!("ledger {e}; requests go on, {lag} events wait in the spool");
            }
        }
        done
    }

    fn try_pass(&mut self, spool: &Spool, now: Timestamp) -> Result<(), Error> {
        let listing = segment::list(spool.dir()).map_err(|e| self.failed(&e))?;
        spool.stats().set_spool_bytes(listing.iter().map(|(_, size)| size).sum());
        let offsets = self.connect().and_then(|()| self.ask(apply::offsets));
        if let Ok(known) = &offsets {
            self.known.clone_from(known);
        }
        spool.stats().set_lag(self.backlog.count(spool.dir(), &listing, &self.known));
        offsets?;
        if !self.is_mine().map_err(|e| self.failed(&e))? {
            return Ok(()); // another process of this store applies
        }
        let Some(db) = &mut self.db else { return Ok(()) };
        let mut applier = Applier {
            db: &mut db.connection,
            spool,
            probe: &mut self.probe,
            spool_keep: self.spool_keep,
            now,
            later: &mut self.later,
        };
        let done = applier.pass(&listing, &mut self.known);
        done.map_err(|fault| match fault {
            Fault::Sql(e) => Error::of(&self.path, &e),
            Fault::Spool(e) => Error::Failed { path: spool.dir().into(), why: e.to_string() },
        })?;
        self.sweep(now)
    }

    fn failed(&self, e: &io::Error) -> Error {
        Error::Failed { path: self.path.clone(), why: e.to_string() }
    }

    fn ask<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let Some(db) = &self.db else { return Err(Error::Busy(self.path.clone())) };
        f(&db.connection).map_err(|e| Error::of(&self.path, &e))
    }

    /// A connection to the file that has the name now: a ledger that was moved away is made anew,
    /// and filled from what the spool still has.
    fn connect(&mut self) -> Result<(), Error> {
        let inode = |path: &Path| std::fs::metadata(path).map(|m| m.ino());
        let there = inode(&self.path);
        if self.db.as_ref().is_some_and(|db| there.as_ref().is_ok_and(|i| *i == db.inode)) {
            return Ok(());
        }
        self.db = None;
        let mut connection = store::open(&self.path)?;
        sums::rebuild(&mut connection).map_err(|e| Error::of(&self.path, &e))?;
        let inode = inode(&self.path).map_err(|e| self.failed(&e))?;
        self.db = Some(Db { connection, inode });
        Ok(())
    }

    /// Whether this process is the one that applies. The kernel frees the lock of a dead one.
    fn is_mine(&mut self) -> io::Result<bool> {
        if self.lock.is_some() {
            return Ok(true);
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".lock");
        let file = File::options().create(true).append(true).open(name)?;
        match file.try_lock() {
            Ok(()) => self.lock = Some(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(e),
        }
        Ok(self.lock.is_some())
    }

    /// Deletes rows older than the retention, a batch a pass. Their sums stay: they are few, and
    /// what was spent is asked for longer than who asked what.
    fn sweep(&mut self, now: Timestamp) -> Result<(), Error> {
        let rested = self.swept.is_none_or(|at| {
            Duration::try_from(now.duration_since(at)).is_ok_and(|d| d >= SWEEP_EVERY)
        });
        let (Some(retention), true) = (self.retention, rested) else { return Ok(()) };
        let Ok(cutoff) = now.checked_sub(retention) else { return Ok(()) };
        let rows = self.ask(|db| {
            db.execute(
                "DELETE FROM events WHERE rowid IN
                 (SELECT rowid FROM events WHERE ts < ?1 ORDER BY ts LIMIT ?2)",
                rusqlite::params![cutoff.as_microsecond(), SWEEP_ROWS],
            )
        })?;
        if rows < SWEEP_ROWS as usize {
            self.swept = Some(now);
        }
        Ok(())
    }
}

/// Lines beyond the applied offsets, counted once each however long the database is away.
#[derive(Debug, Default)]
struct Backlog(HashMap<Name, Counted>);

#[derive(Debug, Default, Clone, Copy)]
struct Counted {
    from: u64,
    to: u64,
    lines: u64,
}

impl Backlog {
    fn count(&mut self, dir: &Path, listing: &[(Name, u64)], known: &Known) -> u64 {
        let mut now = HashMap::new();
        for (name, size) in listing {
            let from = known.get(name).map_or(0, |p| p.bytes);
            let mut counted = match self.0.get(name) {
                Some(c) if c.from == from => *c,
                _ => Counted { from, to: from, lines: 0 },
            };
            // A file that cannot be read now is counted by the next pass.
            if counted.to < *size
                && let Ok(more) = File::open(dir.join(name.to_string()))
                    .and_then(|file| lines::count(&file, counted.to, *size))
            {
                counted = Counted { to: *size, lines: counted.lines + more, ..counted };
            }
            if counted.lines > 0 {
                now.insert(*name, counted);
            }
        }
        self.0 = now;
        self.0.values().map(|c| c.lines).sum()
    }
}
