//! Sealed credentials in the store; what seals and opens them is not its business.

use super::keys::{What, changed, write};
use rusqlite::{Connection, OptionalExtension as _, Result, Transaction, params};

/// One value of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultRow {
    /// The entry's name.
    pub name: String,
    /// Counts up, and is never used again, so that a seal fits one value alone.
    pub version: i64,
    /// True for the value in use; false for the candidate.
    pub current: bool,
    /// The seal.
    pub sealed: Vec<u8>,
    /// Microseconds since 1970.
    pub created: i64,
}

/// Every value, by name and version.
///
/// # Errors
/// SQLite's.
pub fn all(db: &Connection) -> Result<Vec<VaultRow>> {
    let sql = "SELECT name, version, current, sealed, created FROM vault ORDER BY name, version";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([], row)?;
    rows.collect()
}

/// The value in use.
///
/// # Errors
/// SQLite's.
pub fn current(db: &Connection, name: &str) -> Result<Option<VaultRow>> {
    let sql = "SELECT name, version, current, sealed, created FROM vault
               WHERE name = ?1 AND current = 1";
    db.prepare_cached(sql)?.query_row([name], row).optional()
}

fn row(row: &rusqlite::Row<'_>) -> Result<VaultRow> {
    Ok(VaultRow {
        name: row.get(0)?,
        version: row.get(1)?,
        current: row.get(2)?,
        sealed: row.get(3)?,
        created: row.get(4)?,
    })
}

/// Puts a value in: in use, or as the candidate, in place of the one before. `seal` is given the
/// version that the value gets. False where a candidate has nothing to stand beside.
///
/// # Errors
/// SQLite's, and `seal`'s.
pub fn put<E: From<rusqlite::Error>>(
    db: &mut Connection,
    name: &str,
    (current, now): (bool, i64),
    seal: impl FnOnce(i64) -> std::result::Result<Vec<u8>, E>,
) -> std::result::Result<bool, E> {
    let tx = write(db)?;
    if !current && self::current(&tx, name)?.is_none() {
        return Ok(false);
    }
    let version = next_version(&tx, name)?;
    let sealed = seal(version)?;
    tx.execute("DELETE FROM vault WHERE name = ?1 AND current = ?2", params![name, current])?;
    let sql = "INSERT INTO vault (name, version, current, sealed, created)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    tx.execute(sql, params![name, version, current, sealed, now])?;
    Ok(done(tx)?)
}

fn next_version(tx: &Transaction<'_>, name: &str) -> Result<i64> {
    let sql = "INSERT INTO vault_versions (name, last) VALUES (?1, 1)
               ON CONFLICT (name) DO UPDATE SET last = last + 1 RETURNING last";
    tx.query_row(sql, [name], |row| row.get(0))
}

/// Makes the candidate the value in use; false where there is none.
///
/// # Errors
/// SQLite's.
pub fn promote(db: &mut Connection, name: &str) -> Result<bool> {
    let tx = write(db)?;
    let sql = "DELETE FROM vault WHERE name = ?1 AND current = 1
               AND EXISTS (SELECT 1 FROM vault WHERE name = ?1 AND current = 0)";
    if tx.execute(sql, [name])? == 0 {
        return Ok(false);
    }
    tx.execute("UPDATE vault SET current = 1 WHERE name = ?1", [name])?;
    done(tx)
}

/// Forgets an entry; false where there is none.
///
/// # Errors
/// SQLite's.
pub fn delete(db: &mut Connection, name: &str) -> Result<bool> {
    let tx = write(db)?;
    if tx.execute("DELETE FROM vault WHERE name = ?1", [name])? == 0 {
        return Ok(false);
    }
    done(tx)
}

fn done(tx: Transaction<'_>) -> Result<bool> {
    changed(&tx, What::Vault)?;
    tx.commit()?;
    Ok(true)
}
