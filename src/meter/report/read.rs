//! Rows of the ledger, grouped and summed. Sums are wider than any row.
//!
//! A short span is read row by row, and its percentiles are exact; a long one from the sums of
//! hours and days, where times from 128 ms on are exact to a hundredth.

use super::query::{Column, Currency, Query};
use super::span::{From, Piece, pieces};
use super::{Cell, Table};
use crate::meter::histogram::Histogram;
use crate::meter::segment::{self, Name};
use crate::meter::sums::HOUR;
use crate::meter::{apply, lines};
use crate::store::{self, Error};
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Figures of a group; `cost` is `None` while no row of it had a price.
#[derive(Debug, Default, Clone)]
struct Sums {
    requests: u128,
    errors: u128,
    /// Input, cached, cache writes, output, reasoning.
    tokens: [u128; 5],
    cost: Option<u128>,
    wasted: u128,
    ttft_ms: Vec<u64>,
    /// The same out of sums.
    rough: Histogram,
}

/// A group's place in the order: absent values first, numbers by value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Null,
    Number(i64),
    Text(String),
}

/// A row's time, tags, requests, errors and figures.
const OF_EVENTS: &str = "ts, tags, 1, outcome NOT IN ('success', 'cache_hit', 'replay'),
    input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
    cost_nano_usd, wasted_cost_nano_usd, ttft_ms";
/// The same of a sum.
const OF_SUMS: &str = "start * 1000000, tags, requests,
    requests * (outcome NOT IN ('success', 'cache_hit', 'replay')), input_tokens, cached_tokens,
    cache_write_tokens, output_tokens, reasoning_tokens,
    CASE WHEN requests > unpriced THEN cost_nano_usd END, wasted_cost_nano_usd, ttft";
/// How many columns these have.
const FIGURES_LEN: usize = 12;
/// Up to so many rows are read one by one: well below a second.
const ROWS_MAX: i64 = 50_000;

/// Groups the ledger's rows.
pub(super) fn table(db: &Path, spool: &Path, query: &Query) -> Result<Table, Error> {
    let connection = store::open_read(db)?;
    let sql = |e: rusqlite::Error| Error::of(db, &e);
    // One view of the database: offsets and rows of the same moment.
    connection.execute_batch("BEGIN").map_err(sql)?;
    let known = apply::offsets(&connection).map_err(sql)?;
    let groups = groups(&connection, query).map_err(sql)?;
    let mut total = Sums::default();
    let mut rows = Vec::with_capacity(groups.len());
    for (values, mut sums) in groups {
        total.add(&sums);
        let mut row: Vec<Cell> = values.into_iter().map(Cell::from).collect();
        row.extend(sums.cells(query.currency.as_ref()));
        rows.push(row);
    }
    let columns = query.by.iter().map(Column::name).chain(figures(query.currency.as_ref()));
    Ok(Table {
        columns: columns.collect(),
        by: query.by.len(),
        rows,
        total: total.cells(query.currency.as_ref()),
        lag: lag(spool, &known),
    })
}

/// Lines beyond the applied offsets. A segment that is deleted meanwhile has none.
fn lag(spool: &Path, known: &apply::Known) -> u64 {
    let waiting = |name: &Name, size: u64| {
        let from = known.get(name).map_or(0, |p| p.bytes);
        if from >= size {
            return 0;
        }
        let file = File::open(spool.join(name.to_string()));
        file.and_then(|f| lines::count(&f, from, size)).unwrap_or_default()
    };
    let segments = segment::list(spool).unwrap_or_default();
    segments.iter().map(|(name, size)| waiting(name, *size)).sum()
}

type Groups = BTreeMap<Vec<Value>, Sums>;

fn groups(db: &Connection, query: &Query) -> rusqlite::Result<Groups> {
    let since = query.since.map_or(i64::MIN, Timestamp::as_microsecond);
    let until = query.until.map_or(i64::MAX, Timestamp::as_microsecond);
    let pieces = if has_sums(db)? && !is_short(db, since, until)? {
        pieces(since, until, !query.by.iter().any(|c| c.name() == "hour"))
    } else {
        vec![(From::Events, since, until)]
    };
    let mut groups = Groups::new();
    for piece in pieces {
        read(db, query, piece, &mut groups)?;
    }
    Ok(groups)
}

/// A ledger that no gateway of this version has opened yet has none.
pub(super) fn has_sums(db: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'rollups_daily'";
    db.query_row(sql, [], |row| Ok(row.get::<_, i64>(0)? == 1))
}

/// Few enough rows, and all of them are still there.
fn is_short(db: &Connection, since: i64, until: i64) -> rusqlite::Result<bool> {
    let first: Option<i64> = db.query_row("SELECT min(ts) FROM events", [], |r| r.get(0))?;
    let sums: Option<i64> = db.query_row("SELECT min(start) FROM rollups", [], |r| r.get(0))?;
    let swept = match (first, sums) {
        (Some(first), Some(sums)) => {
            sums < first.div_euclid(1_000_000).div_euclid(HOUR) * HOUR && since < first
        }
        (first, sums) => first.is_none() && sums.is_some(),
    };
    let count = "SELECT count(*) FROM (SELECT 1 FROM events WHERE ts >= ?1 AND ts < ?2 LIMIT ?3)";
    let rows: i64 = db.query_row(count, params![since, until, ROWS_MAX + 1], |row| row.get(0))?;
    Ok(!swept && rows <= ROWS_MAX)
}

fn read(
    db: &Connection,
    query: &Query,
    (from, since, until): Piece,
    groups: &mut Groups,
) -> rusqlite::Result<()> {
    let figures = if from == From::Events { OF_EVENTS } else { OF_SUMS };
    let (table, time, unit) = from.table();
    let plain = query.by.iter().filter_map(|c| match c {
        Column::Plain(_, sql) => Some(*sql),
        _ => None,
    });
    let columns: Vec<&str> = std::iter::once(figures).chain(plain).collect();
    let columns = columns.join(", ");
    let mut select =
        db.prepare(&format!("SELECT {columns} FROM {table} WHERE {time} >= ?1 AND {time} < ?2"))?;
    let mut rows = select.query(params![since.div_euclid(unit), until.div_euclid(unit)])?;
    let mut key = Vec::new();
    while let Some(row) = rows.next()? {
        key.clear();
        let mut plain = FIGURES_LEN..;
        for column in &query.by {
            key.push(value(column, row, &mut plain)?);
        }
        match groups.get_mut(&key) {
            Some(sums) => sums.row(row)?,
            None => groups.entry(key.clone()).or_default().row(row)?,
        }
    }
    Ok(())
}

fn value(
    column: &Column,
    row: &Row<'_>,
    plain: &mut std::ops::RangeFrom<usize>,
) -> rusqlite::Result<Value> {
    use rusqlite::types::Value as Sql;
    Ok(match column {
        Column::Plain(..) => match row.get(plain.next().unwrap_or_default())? {
            Sql::Text(text) => Value::Text(text),
            Sql::Integer(n) => Value::Number(n),
            _ => Value::Null,
        },
        Column::Tag(name) => tag(row.get_ref(1)?.as_str()?, name),
        Column::Time(_, len) => time(row.get(0)?, *len),
    })
}

/// `2026-11-30T08:00:00Z` for hours, its beginning for days and months.
fn time(micros: i64, len: usize) -> Value {
    let Ok(moment) = Timestamp::from_microsecond(micros) else { return Value::Null };
    let mut text = moment.to_string();
    text.truncate(len);
    if text.contains('T') {
        text.push_str(":00:00Z");
    }
    Value::Text(text)
}

fn tag(tags: &str, name: &str) -> Value {
    let tags: Vec<String> = serde_json::from_str(tags).unwrap_or_default();
    let found = tags.iter().find_map(|tag| {
        let rest = tag.strip_prefix(name)?;
        if rest.is_empty() { Some("true") } else { rest.strip_prefix(['=', ':']) }
    });
    found.map_or(Value::Null, |v| Value::Text(v.into()))
}

impl Sums {
    fn row(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let number = |i| row.get::<_, i64>(i).map(|n| u128::try_from(n).unwrap_or_default());
        self.requests += number(2)?;
        self.errors += number(3)?;
        for (i, sum) in self.tokens.iter_mut().enumerate() {
            *sum += number(4 + i)?;
        }
        if row.get_ref(9)? != ValueRef::Null {
            *self.cost.get_or_insert_default() += number(9)?;
        }
        self.wasted += number(10)?;
        match row.get_ref(11)? {
            ValueRef::Integer(ms) => self.ttft_ms.push(ms.unsigned_abs()),
            ValueRef::Blob(packed) => self.rough.merge(&Histogram::unpack(packed)),
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        for (sum, n) in self.tokens.iter_mut().zip(other.tokens) {
            *sum += n;
        }
        if let Some(cost) = other.cost {
            *self.cost.get_or_insert_default() += cost;
        }
        self.wasted += other.wasted;
        self.ttft_ms.extend(&other.ttft_ms);
        self.rough.merge(&other.rough);
    }

    /// In the order of [`figures`].
    fn cells(&mut self, currency: Option<&Currency>) -> Vec<Cell> {
        self.ttft_ms.sort_unstable();
        let number = |n: u128| Cell::Number(n.to_string());
        let or_null = |n: Option<String>| n.map_or(Cell::Null, Cell::Number);
        let mut cells = vec![number(self.requests), number(self.errors)];
        cells.extend(self.tokens.map(number));
        // Nothing asked is nothing spent; something asked without a price is not known.
        let cost = if self.requests == 0 { Some(0) } else { self.cost };
        cells.push(or_null(cost.map(|c| c.to_string())));
        cells.push(or_null(cost.map(|c| decimal(c, NANO))));
        if let Some(c) = currency {
            let rate = u128::from(c.nano_usd.get());
            cells.push(or_null(cost.map(|n| decimal((n * NANO + rate / 2) / rate, NANO))));
        }
        cells.push(number(self.wasted));
        let rate = (self.errors * MILLION + self.requests / 2).checked_div(self.requests);
        cells.push(Cell::Number(decimal(rate.unwrap_or_default(), MILLION)));
        if !self.rough.is_empty() {
            self.ttft_ms.drain(..).for_each(|ms| self.rough.add(ms));
        }
        for percent in [50, 95] {
            let ms = match self.rough.is_empty() {
                true => percentile(&self.ttft_ms, percent),
                false => self.rough.percentile(percent as u64),
            };
            cells.push(or_null(ms.map(|ms| ms.to_string())));
        }
        cells
    }
}

/// Names of a group's figures.
fn figures(currency: Option<&Currency>) -> Vec<String> {
    let mut names: Vec<String> = [
        "requests",
        "errors",
        "input_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "cost_nano_usd",
        "cost_usd",
        "wasted_cost_nano_usd",
        "error_rate",
        "ttft_ms_p50",
        "ttft_ms_p95",
    ]
    .map(String::from)
    .into();
    if let Some(currency) = currency {
        names.insert(9, format!("cost_{}", currency.code.to_lowercase()));
    }
    names
}

const NANO: u128 = 1_000_000_000;
const MILLION: u128 = 1_000_000;

/// `n / scale`, exact, without zeros at its end; `scale` is a power of ten.
fn decimal(n: u128, scale: u128) -> String {
    let (whole, part) = (n / scale, n % scale);
    if part == 0 {
        return whole.to_string();
    }
    let digits = scale.ilog10() as usize;
    let text = format!("{whole}.{part:0digits$}");
    text.trim_end_matches('0').into()
}

/// The smallest value that at least so many percent of all are not above (nearest rank).
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

impl std::convert::From<Value> for Cell {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Number(n) => Self::Number(n.to_string()),
            Value::Text(text) => Self::Text(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_written_exactly() {
        for (nano, usd) in [
            (0, "0"),
            (1, "0.000000001"),
            (1_000_000_000, "1"),
            (2_500_000_000, "2.5"),
            (10 * 100_000_000, "1"),
            (u128::from(u64::MAX), "18446744073.709551615"),
        ] {
            assert_eq!(decimal(nano, NANO), usd);
        }
    }

    #[test]
    fn a_percentile_is_a_value_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), Some(50));
        assert_eq!(percentile(&hundred, 95), Some(95));
        assert_eq!(percentile(&[7], 95), Some(7));
        assert_eq!(percentile(&[1, 2, 3], 50), Some(2));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_tag_has_a_value_or_is_there() {
        let tags = r#"["batch","cost-center=42","env:prod","batchy=no"]"#;
        let text = |v: &str| Value::Text(v.into());
        assert_eq!(tag(tags, "batch"), text("true"));
        assert_eq!(tag(tags, "cost-center"), text("42"));
        assert_eq!(tag(tags, "env"), text("prod"));
        assert_eq!(tag(tags, "cost"), Value::Null);
    }
}
