//! The database of keys, vault and ledger: connections, migrations, health.

pub mod alerts;
pub mod keys;
mod migrate;
pub mod vault;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a statement waits for another process's lock. The one writer tries again by itself.
const BUSY: Duration = Duration::from_secs(1);

/// The write-ahead log moves into the database at this many pages (16 MiB): the only moment at
/// which the writer waits for the disk, and SQLite's own 1,000 make four times as many of them.
const WAL_PAGES: u32 = 4_000;

/// What a database can do to us.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is only read, and is not there.
    #[error("{}: no ledger here yet; `weir run` makes it", .0.display())]
    Missing(PathBuf),
    /// It is no database, or a damaged one.
    #[error("{}: not a sound SQLite database ({why}); move it away, and weir makes a new one and \
             fills it from the spool", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
    /// A later version of weir wrote it.
    #[error("{}: a later weir wrote it (schema {found}, this one knows {known})", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: usize,
        /// Ours.
        known: usize,
    },
    /// Another process holds it.
    #[error("{}: locked by another process", .0.display())]
    Busy(PathBuf),
    /// The disk is full.
    #[error("{}: the disk is full", .0.display())]
    Full(PathBuf),
    /// Anything else.
    #[error("{}: {why}", .path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What the system or SQLite says.
        why: String,
    },
}

impl Error {
    /// Names the file and the kind of a fault.
    #[must_use]
    pub fn of(path: &Path, e: &rusqlite::Error) -> Self {
        let (path, why) = (path.to_path_buf(), e.to_string());
        match e.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt { path, why }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(path),
            Some(ErrorCode::DiskFull) => Self::Full(path),
            _ => Self::Failed { path, why },
        }
    }
    /// Whether waiting may heal it; what does not heal is no reason to stop a running gateway,
    /// but one not to start it.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Full(_))
    }
}

/// Opens the database for its one writer: made if absent, brought to this version's schema.
/// WAL with `synchronous = NORMAL`: a power failure may take the last transactions, whole ones,
/// and the spool still has what was in them.
///
/// # Errors
/// Every kind but [`Error::Missing`].
pub fn open(path: &Path) -> Result<Connection, Error> {
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir)
            .map_err(|e| Error::Failed { path: path.to_path_buf(), why: e.to_string() })?;
    }
    // Who used what is for nobody else to read; the journals take over its permissions.
    let file = std::fs::File::options().create(true).append(true).mode(0o600).open(path);
    file.map_err(|e| Error::Failed { path: path.to_path_buf(), why: e.to_string() })?;
    let sql = |e: rusqlite::Error| Error::of(path, &e);
    let mut db = Connection::open(path).map_err(sql)?;
    db.busy_timeout(BUSY).map_err(sql)?;
    db.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).map_err(sql)?;
    db.pragma_update(None, "synchronous", "normal").map_err(sql)?;
    db.pragma_update(None, "wal_autocheckpoint", WAL_PAGES).map_err(sql)?;
    db.set_prepared_statement_cache_capacity(32);
    // Immediate: of two processes that start at once, one waits and then finds it done.
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
    let found = version(&tx).map_err(sql)?;
    migrate_from(&tx, path, found)?;
    tx.commit().map_err(sql)?;
    Ok(db)
}

/// Opens the database for a reader, which never waits for the writer nor holds it up.
///
/// # Errors
/// [`Error::Missing`], and a database that cannot be read or is of a later version.
pub fn open_read(path: &Path) -> Result<Connection, Error> {
    if !path.exists() {
        return Err(Error::Missing(path.to_path_buf()));
    }
    let sql = |e: rusqlite::Error| Error::of(path, &e);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(sql)?;
    db.busy_timeout(BUSY).map_err(sql)?;
    let found = version(&db).map_err(sql)?;
    match found {
        0 => Err(Error::Missing(path.to_path_buf())),
        v if v > migrate::STEPS.len() => Err(newer(path, v)),
        _ => Ok(db),
    }
}

fn version(db: &Connection) -> rusqlite::Result<usize> {
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX)) // a negative one is nobody's
}

fn newer(path: &Path, found: usize) -> Error {
    Error::Newer { path: path.to_path_buf(), found, known: migrate::STEPS.len() }
}

fn migrate_from(tx: &Connection, path: &Path, found: usize) -> Result<(), Error> {
    let Some(steps) = migrate::STEPS.get(found..) else { return Err(newer(path, found)) };
    if steps.is_empty() {
        return Ok(());
    }
    steps
        .iter()
        .try_for_each(|step| tx.execute_batch(step))
        .and_then(|()| tx.pragma_update(None, "user_version", migrate::STEPS.len() as i64))
        .map_err(|e| Error::of(path, &e))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_database_is_made_and_opens_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/weir.db");
        assert!(matches!(open_read(&path), Err(Error::Missing(_))));
        for _ in 0..2 {
            let db = open(&path).unwrap();
            assert_eq!(version(&db).unwrap(), migrate::STEPS.len());
            for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
                let mode = file.unwrap().metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o077, 0, "for nobody else");
            }
        }
        open_read(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_no_database_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.db");
        std::fs::write(&path, "these are not the pages you are looking for\n".repeat(200)).unwrap();
        for error in [open(&path).unwrap_err(), open_read(&path).unwrap_err()] {
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains("weir.db") && !error.is_passing(), "{error}");
        }
    }

    #[test]
    fn a_database_of_a_later_version_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.db");
        open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        for error in [open(&path).unwrap_err(), open_read(&path).unwrap_err()] {
            assert!(matches!(error, Error::Newer { found: 99, .. }), "{error}");
        }
    }

    #[test]
    fn two_that_open_at_once_both_find_the_schema() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.db");
        std::thread::scope(|s| {
            let both: Vec<_> = (0..2).map(|_| s.spawn(|| open(&path).map(drop))).collect();
            for one in both {
                match one.join().unwrap() {
                    Ok(()) | Err(Error::Busy(_)) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        });
        open(&path).unwrap();
    }
}
