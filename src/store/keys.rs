//! Virtual keys in the store: hashes of their secrets, never a secret.

use rusqlite::{Connection, OptionalExtension as _, Result, Transaction, params};

/// What can be changed under a running gateway, each with its own count of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Virtual keys.
    Keys,
    /// Sealed credentials.
    Vault,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Vault => "vault",
        }
    }
}

/// One secret of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// Its SHA-256.
    pub hash: [u8; 32],
    /// Microseconds since 1970 from which it opens nothing; an old secret in its days of grace.
    pub until: Option<i64>,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its identity, which no later key of the same name has.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What a table of `[keys]` would say, as a JSON object.
    pub definition: String,
    /// False: refused.
    pub enabled: bool,
    /// Microseconds since 1970.
    pub created: i64,
    /// Its secrets.
    pub secrets: Vec<SecretRow>,
}

/// How often something has been changed.
///
/// # Errors
/// SQLite's.
pub fn changes(db: &Connection, what: What) -> Result<i64> {
    let mut statement = db.prepare_cached("SELECT n FROM changes WHERE what = ?1")?;
    statement.query_row([what.as_str()], |row| row.get(0))
}

pub(super) fn changed(tx: &Transaction<'_>, what: What) -> Result<()> {
    tx.execute("UPDATE changes SET n = n + 1 WHERE what = ?1", [what.as_str()]).map(drop)
}

/// Every key, by name, and the count of changes it was read at.
///
/// # Errors
/// SQLite's.
pub fn all(db: &mut Connection) -> Result<(i64, Vec<KeyRow>)> {
    let tx = db.transaction()?; // one state of the database for all three reads
    let n = changes(&tx, What::Keys)?;
    let mut keys = rows(&tx)?;
    let mut statement = tx.prepare_cached("SELECT hash, key_id, until FROM key_secrets")?;
    let secrets = statement.query_map([], |row| {
        let secret = SecretRow { hash: row.get(0)?, until: row.get(2)? };
        Ok((row.get::<_, String>(1)?, secret))
    })?;
    let mut by_key = std::collections::HashMap::<String, Vec<SecretRow>>::new();
    for secret in secrets {
        let (id, secret) = secret?;
        by_key.entry(id).or_default().push(secret);
    }
    for key in &mut keys {
        key.secrets = by_key.remove(&key.id).unwrap_or_default();
    }
    Ok((n, keys))
}

fn rows(db: &Connection) -> Result<Vec<KeyRow>> {
    let sql = "SELECT id, name, definition, enabled, created FROM keys ORDER BY name";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(KeyRow {
            id: row.get(0)?,
            name: row.get(1)?,
            definition: row.get(2)?,
            enabled: row.get(3)?,
            created: row.get(4)?,
            secrets: Vec::new(),
        })
    })?;
    rows.collect()
}

/// Adds a key with its secrets; false where the name is taken.
///
/// # Errors
/// SQLite's.
pub fn insert(db: &mut Connection, key: &KeyRow) -> Result<bool> {
    let tx = write(db)?;
    let sql = "INSERT INTO keys (id, name, definition, enabled, created)
               VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
    let values = params![key.id, key.name, key.definition, key.enabled, key.created];
    if tx.execute(sql, values)? == 0 {
        return Ok(false);
    }
    for secret in &key.secrets {
        add_secret(&tx, &key.id, secret)?;
    }
    done(tx)
}

fn add_secret(tx: &Transaction<'_>, id: &str, secret: &SecretRow) -> Result<()> {
    let sql = "INSERT INTO key_secrets (hash, key_id, until) VALUES (?1, ?2, ?3)";
    tx.execute(sql, params![secret.hash, id, secret.until]).map(drop)
}

/// Switches a key on or off; false where there is none.
///
/// # Errors
/// SQLite's.
pub fn enable(db: &mut Connection, id: &str, enabled: bool) -> Result<bool> {
    let tx = write(db)?;
    if tx.execute("UPDATE keys SET enabled = ?2 WHERE id = ?1", params![id, enabled])? == 0 {
        return Ok(false);
    }
    done(tx)
}

/// Gives a key a new secret. Those it had end at `until`, or at once; one that ends earlier by
/// an older rotation keeps its end. False where there is no such key.
///
/// # Errors
/// SQLite's.
pub fn rotate(db: &mut Connection, id: &str, new: [u8; 32], until: Option<i64>) -> Result<bool> {
    let tx = write(db)?;
    let known = tx.query_row("SELECT 1 FROM keys WHERE id = ?1", [id], |_| Ok(())).optional()?;
    if known.is_none() {
        return Ok(false);
    }
    match until {
        Some(until) => tx.execute(
            "UPDATE key_secrets SET until = MIN(COALESCE(until, ?2), ?2) WHERE key_id = ?1",
            params![id, until],
        )?,
        None => tx.execute("DELETE FROM key_secrets WHERE key_id = ?1", [id])?,
    };
    add_secret(&tx, id, &SecretRow { hash: new, until: None })?;
    done(tx)
}

/// Forgets a key and its secrets; false where there is none.
///
/// # Errors
/// SQLite's.
pub fn delete(db: &mut Connection, id: &str) -> Result<bool> {
    let tx = write(db)?;
    tx.execute("DELETE FROM key_secrets WHERE key_id = ?1", [id])?;
    if tx.execute("DELETE FROM keys WHERE id = ?1", [id])? == 0 {
        return Ok(false);
    }
    done(tx)
}

/// When each key was last used, by id, in microseconds since 1970, as the ledger's sums say.
///
/// # Errors
/// SQLite's.
pub fn last_used(db: &Connection) -> Result<std::collections::HashMap<String, i64>> {
    let sql = "SELECT g.key_id, MAX(r.last) FROM rollups_daily r JOIN groups g ON g.id = r.group_id
               WHERE g.key_id IS NOT NULL GROUP BY g.key_id";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

pub(super) fn write(db: &mut Connection) -> Result<Transaction<'_>> {
    db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
}

fn done(tx: Transaction<'_>) -> Result<bool> {
    changed(&tx, What::Keys)?;
    tx.commit()?;
    Ok(true)
}
