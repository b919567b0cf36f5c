//! What owners have spent since a moment: for budgets after a start.

use super::Error;
use crate::store;
use rusqlite::params;
use std::path::Path;

/// Whose spending is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// By department.
    Department,
    /// By team.
    Team,
    /// By user.
    User,
    /// By the key's id.
    Key,
}

/// What one owner has used of one model at one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// The owner's name.
    pub owner: String,
    /// As it was asked for.
    pub model: String,
    /// The endpoint's label.
    pub endpoint: String,
    /// Requests that reached a provider.
    pub requests: u64,
    /// Prompt tokens by class (uncached, cached, written to the cache), output, reasoning.
    pub classes: [u64; 5],
    /// Prompt and output.
    pub tokens: u64,
    /// Nano-USD.
    pub cost: u64,
}

/// Sums the ledger's rows since a second (`None`: all of them) by owner, model and endpoint. One
/// pass over the rows of that time by their index.
///
/// # Errors
/// The ledger cannot be read. One that is not there yet has nothing spent.
pub fn spent(db: &Path, owner: Owner, since: Option<i64>) -> Result<Vec<Spent>, Error> {
    rows(db, owner, since, None)
}

/// The same of one owner alone.
///
/// # Errors
/// As above.
pub fn spent_by(
    db: &Path,
    owner: Owner,
    name: &str,
    since: Option<i64>,
) -> Result<Vec<Spent>, Error> {
    rows(db, owner, since, Some(name))
}

fn rows(
    db: &Path,
    owner: Owner,
    since: Option<i64>,
    name: Option<&str>,
) -> Result<Vec<Spent>, Error> {
    let connection = match store::open_read(db) {
        Err(store::Error::Missing(_)) => return Ok(Vec::new()),
        opened => opened?,
    };
    let column = match owner {
        Owner::Department => "department",
        Owner::Team => "team",
        Owner::User => "user",
        Owner::Key => "key_id",
    };
    let sql = |e: rusqlite::Error| Error::from(store::Error::of(db, &e));
    // A total is a float: it cannot overflow, and is exact below 9 million dollars.
    let select = format!(
        "SELECT {column}, coalesce(requested_model, ''), endpoint, count(*), total(input_tokens),
            total(cached_tokens), total(cache_write_tokens), total(output_tokens),
            total(reasoning_tokens), total(cost_nano_usd)
         FROM events WHERE ts >= ?1 AND {column} IS NOT NULL AND (?2 IS NULL OR {column} = ?2)
         GROUP BY 1, 2, 3"
    );
    let mut select = connection.prepare(&select).map_err(sql)?;
    let micros = since.map_or(i64::MIN, |s| s.saturating_mul(1_000_000));
    let found = select.query_map(params![micros, name], |row| {
        // Never negative.
        let number = |i| row.get::<_, f64>(i).map(|n| n as u64);
        let classes = [number(4)?, number(5)?, number(6)?, number(7)?, number(8)?];
        Ok(Spent {
            owner: row.get(0)?,
            model: row.get(1)?,
            endpoint: row.get(2)?,
            requests: row.get::<_, i64>(3)?.unsigned_abs(),
            classes,
            tokens: classes[..4].iter().sum(),
            cost: number(9)?,
        })
    });
    found.map_err(sql)?.collect::<Result<_, _>>().map_err(sql)
}
