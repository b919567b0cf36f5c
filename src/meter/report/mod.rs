//! `weir report`: usage and cost from the ledger, as text.

mod events;
mod figures;
mod find;
mod names;
mod print;
mod query;
mod read;
mod span;
mod spent;

pub use events::{Filter, events};
pub use find::find;
pub use query::{Column, Currency, Format, Query, column, columns, currency, moment};
pub use spent::{Owner, Spent, spent, spent_by};

use crate::store;
use figures::Sums;
use names::{Key, Names};
use std::path::Path;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bad usage: exit 64.
    #[error("{0}")]
    Usage(String),
    /// The ledger cannot be read: exit 69.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Reads the ledger at `db` on a connection of its own, and what still waits in `spool`.
///
/// # Errors
/// [`Error::Store`].
pub fn report(db: &Path, spool: &Path, query: &Query) -> Result<String, Error> {
    let mut table = read::table(db, spool, query)?;
    Ok(match query.format {
        Format::Table => print::table(&mut table, query),
        Format::Csv => print::csv(&mut table, query),
        Format::Json => print::json(&mut table, query),
    })
}

/// What the ledger says.
#[derive(Debug)]
struct Table {
    /// The grouping columns.
    by: Vec<String>,
    /// Names of a group's figures.
    figures: Vec<String>,
    /// The groups' values.
    names: Names,
    /// In order of the grouping columns.
    rows: Vec<(Key, Sums)>,
    /// All rows together.
    total: Sums,
    /// Events in the spool that are in no row yet.
    lag: u64,
}
