//! `weir report`: usage and cost from the ledger, as text.

mod events;
mod find;
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
    let table = read::table(db, spool, query)?;
    Ok(match query.format {
        Format::Table => print::table(&table, query),
        Format::Csv => print::csv(&table),
        Format::Json => print::json(&table, query),
    })
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    /// There is none.
    Null,
    Text(String),
    /// A number, exact, as JSON writes it.
    Number(String),
}

/// What the ledger says.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    /// Names of the grouping columns, then of the figures.
    columns: Vec<String>,
    /// How many of them group.
    by: usize,
    /// In order of the grouping columns.
    rows: Vec<Vec<Cell>>,
    /// The figures of all rows together.
    total: Vec<Cell>,
    /// Events in the spool that are in no row yet.
    lag: u64,
}
