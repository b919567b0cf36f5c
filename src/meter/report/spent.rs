//! What owners have spent since a moment: for budgets after a start.

use super::Error;
use super::read::has_sums;
use super::span::{From, pieces};
use crate::store;
use rusqlite::{Row, params};
use std::collections::BTreeMap;
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

/// Sums what the ledger has since a second (`None`: all of it) by owner, model and endpoint: whole
/// days and hours from their sums, the rest by row.
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
    let micros = since.map_or(i64::MIN, |s| s.saturating_mul(1_000_000));
    let pieces = match has_sums(&connection).map_err(sql)? {
        true => pieces(micros, i64::MAX, true),
        false => vec![(From::Events, micros, i64::MAX)],
    };
    let mut all: BTreeMap<[String; 3], Spent> = BTreeMap::new();
    for (from, since, until) in pieces {
        let requests = if from == From::Events { "count(*)" } else { "sum(requests)" };
        let (table, time, unit) = from.table();
        // A total is a float: it cannot overflow, and is exact below 9 million dollars.
        let select = format!(
            "SELECT {column}, coalesce(requested_model, ''), endpoint, {requests},
                total(input_tokens), total(cached_tokens), total(cache_write_tokens),
                total(output_tokens), total(reasoning_tokens), total(cost_nano_usd)
             FROM {table} WHERE {time} >= ?1 AND {time} < ?2 AND {column} IS NOT NULL
                AND (?3 IS NULL OR {column} = ?3)
             GROUP BY 1, 2, 3"
        );
        let mut select = connection.prepare(&select).map_err(sql)?;
        let found = select
            .query_map(params![since.div_euclid(unit), until.div_euclid(unit), name], row)
            .map_err(sql)?;
        for row in found {
            let row = row.map_err(sql)?;
            let key = [row.owner.clone(), row.model.clone(), row.endpoint.clone()];
            match all.get_mut(&key) {
                Some(sum) => sum.add(&row),
                None => drop(all.insert(key, row)),
            }
        }
    }
    Ok(all.into_values().collect())
}

fn row(row: &Row<'_>) -> rusqlite::Result<Spent> {
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
}

impl Spent {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        for (sum, n) in self.classes.iter_mut().zip(other.classes) {
            *sum = sum.saturating_add(n);
        }
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost = self.cost.saturating_add(other.cost);
    }
}
