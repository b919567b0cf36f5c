//! Rows of the ledger, grouped and summed.
//!
//! A short span is read row by row, and its percentiles are exact; a long one from the sums of
//! hours and days, where times from 128 ms on are exact to a hundredth.

use super::Table;
use super::figures::{self, Sums};
use super::names::{ABSENT, Groups, Key, Names};
use super::query::{Column, Query};
use super::span::{From, MICROS, Piece, pieces};
use crate::meter::segment::{self, Name};
use crate::meter::sums::HOUR;
use crate::meter::{apply, lines};
use crate::store::{self, Error};
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, params};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::path::Path;

/// What a row is: its tags, and whether it is an error. Grouping columns follow.
const KIND: &str = "tags, outcome NOT IN ('success', 'cache_hit', 'replay')";
/// How many columns that is.
const KIND_LEN: usize = 2;
/// A row's time and figures. What it is follows.
const OF_EVENTS: &str = "ts, 1, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
    reasoning_tokens, cost_nano_usd, wasted_cost_nano_usd, ttft_ms";
/// The same of a sum; the number of its group follows.
const OF_SUMS: &str = "start, requests, input_tokens, cached_tokens, cache_write_tokens,
    output_tokens, reasoning_tokens, CASE WHEN requests > unpriced THEN cost_nano_usd END,
    wasted_cost_nano_usd, ttft";
/// How many columns these have.
const FIGURES_LEN: usize = 10;
/// Up to so many rows are read one by one: well below a second.
const ROWS_MAX: i64 = 50_000;

/// Groups the ledger's rows.
pub(super) fn table(db: &Path, spool: &Path, query: &Query) -> Result<Table, Error> {
    let connection = store::open_read(db)?;
    let sql = |e: rusqlite::Error| Error::of(db, &e);
    // One view of the database: offsets and rows of the same moment.
    connection.execute_batch("BEGIN").map_err(sql)?;
    let known = apply::offsets(&connection).map_err(sql)?;
    let (names, rows) = groups(&connection, query).map_err(sql)?.sorted();
    let mut total = Sums::default();
    rows.iter().for_each(|(_, sums)| total.add(sums));
    Ok(Table {
        by: query.by.iter().map(Column::name).collect(),
        figures: figures::names(query.currency.as_ref()),
        names,
        rows,
        total,
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

fn groups(db: &Connection, query: &Query) -> rusqlite::Result<Groups> {
    let since = query.since.map_or(i64::MIN, Timestamp::as_microsecond);
    let until = query.until.map_or(i64::MAX, Timestamp::as_microsecond);
    let pieces = if has_sums(db)? && !is_short(db, since, until)? {
        pieces(since, until, !query.by.iter().any(|c| c.name() == "hour"))
    } else {
        vec![(From::Events, since, until)]
    };
    let mut groups = Groups::default();
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

/// The plain columns of a query, each after a comma.
fn plain(query: &Query) -> String {
    let sql = |c: &Column| match c {
        Column::Plain(_, sql) => format!(", {sql}"),
        Column::Tag(_) | Column::Time(..) => String::new(),
    };
    query.by.iter().map(sql).collect()
}

fn read(db: &Connection, query: &Query, piece: Piece, to: &mut Groups) -> rusqlite::Result<()> {
    match piece {
        (From::Events, since, until) => rows(db, query, (since, until), to),
        (From::Hours, since, until) => sums(db, query, ("rollups", since, until), to),
        (From::Days, since, until) => sums(db, query, ("rollups_daily", since, until), to),
    }
}

/// Events, one by one.
fn rows(
    db: &Connection,
    query: &Query,
    (since, until): (i64, i64),
    to: &mut Groups,
) -> rusqlite::Result<()> {
    let plain = plain(query);
    let sql = format!("SELECT {OF_EVENTS}, {KIND}{plain} FROM events WHERE ts >= ?1 AND ts < ?2");
    let mut select = db.prepare(&sql)?;
    let mut rows = select.query(params![since, until])?;
    let mut times = Times::default();
    while let Some(row) = rows.next()? {
        let mut kind = Kind::read(row, FIGURES_LEN, query, &mut to.names)?;
        times.fill(&mut kind.key, query, row.get(0)?, &mut to.names);
        to.at(&kind.key).row(row, kind.error)?;
    }
    Ok(())
}

/// Sums of hours or days. What groups them is looked up once each.
fn sums(
    db: &Connection,
    query: &Query,
    (table, since, until): (&str, i64, i64),
    to: &mut Groups,
) -> rusqlite::Result<()> {
    let plain = plain(query);
    let sql = format!("SELECT {OF_SUMS}, group_id FROM {table} WHERE start >= ?1 AND start < ?2");
    let mut select = db.prepare(&sql)?;
    let (since, until) = (since.div_euclid(MICROS), until.div_euclid(MICROS));
    let mut rows = select.query(params![since, until])?;
    let mut group =
        db.prepare_cached(&format!("SELECT {KIND}{plain} FROM groups WHERE id = ?1"))?;
    let mut known: HashMap<i64, Option<Kind>> = HashMap::new();
    let mut times = Times::default();
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(FIGURES_LEN)?;
        let kind = match known.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Kind::of(&mut group, id, query, &mut to.names)?),
        };
        // The ledger takes no group away while it has sums.
        let Some(kind) = kind else { continue };
        let start = row.get::<_, i64>(0)?.saturating_mul(MICROS);
        times.fill(&mut kind.key, query, start, &mut to.names);
        to.at(&kind.key).row(row, kind.error)?;
    }
    Ok(())
}

/// What a row is.
#[derive(Debug)]
struct Kind {
    /// Its values; those of times are filled in for each row.
    key: Key,
    error: bool,
}

impl Kind {
    /// What stands in a row from this place on.
    fn read(row: &Row<'_>, at: usize, query: &Query, names: &mut Names) -> rusqlite::Result<Self> {
        let mut plain = at + KIND_LEN..;
        let mut tags: Option<Vec<String>> = None;
        let mut key = Vec::with_capacity(query.by.len());
        for column in &query.by {
            key.push(match column {
                Column::Plain(..) => names.of(row.get_ref(plain.next().unwrap_or_default())?),
                Column::Tag(name) => {
                    let text = row.get_ref(at)?.as_str()?;
                    let read = || serde_json::from_str(text).unwrap_or_default();
                    let found = tag(tags.get_or_insert_with(read), name);
                    found.map_or(ABSENT, |found| names.text(found))
                }
                Column::Time(..) => ABSENT,
            });
        }
        Ok(Self { key: key.into(), error: row.get(at + 1)? })
    }

    /// A group of sums; `None` where there is none of this number.
    fn of(
        select: &mut CachedStatement<'_>,
        id: i64,
        query: &Query,
        names: &mut Names,
    ) -> rusqlite::Result<Option<Self>> {
        select.query_row([id], |row| Self::read(row, 0, query, names)).optional()
    }
}

/// The last row's time as the report writes it: many rows in a row have the same.
#[derive(Debug, Default)]
struct Times {
    last: Option<i64>,
    values: Vec<u32>,
}

impl Times {
    /// Puts a row's time into its key.
    fn fill(&mut self, key: &mut [u32], query: &Query, micros: i64, names: &mut Names) {
        let columns = query.by.iter().zip(key).filter_map(|(column, place)| match column {
            Column::Time(_, len) => Some((*len, place)),
            Column::Plain(..) | Column::Tag(_) => None,
        });
        if self.last != Some(micros) {
            self.values.clear();
        }
        self.last = Some(micros);
        for (i, (len, place)) in columns.enumerate() {
            if self.values.len() <= i {
                self.values.push(time(micros, len).map_or(ABSENT, |text| names.text(&text)));
            }
            *place = self.values.get(i).copied().unwrap_or(ABSENT);
        }
    }
}

/// `2026-11-30T08:00:00Z` for hours, its beginning for days and months.
fn time(micros: i64, len: usize) -> Option<String> {
    let mut text = Timestamp::from_microsecond(micros).ok()?.to_string();
    text.truncate(len);
    if text.contains('T') {
        text.push_str(":00:00Z");
    }
    Some(text)
}

/// What follows `NAME=` or `NAME:`, or `true` for a bare tag.
fn tag<'a>(tags: &'a [String], name: &str) -> Option<&'a str> {
    tags.iter().find_map(|tag| {
        let rest = tag.strip_prefix(name)?;
        if rest.is_empty() { Some("true") } else { rest.strip_prefix(['=', ':']) }
    })
}

impl Sums {
    /// Adds a row, whose figures come first.
    fn row(&mut self, row: &Row<'_>, error: bool) -> rusqlite::Result<()> {
        let number = |i| row.get::<_, i64>(i).map(|n| u128::try_from(n).unwrap_or_default());
        let requests = number(1)?;
        self.requests += requests;
        self.errors += if error { requests } else { 0 };
        for (i, sum) in self.tokens.iter_mut().enumerate() {
            *sum += number(2 + i)?;
        }
        if row.get_ref(7)? != ValueRef::Null {
            *self.cost.get_or_insert_default() += number(7)?;
        }
        self.wasted += number(8)?;
        match row.get_ref(9)? {
            ValueRef::Integer(ms) => self.ttft_ms.push(ms.unsigned_abs()),
            ValueRef::Blob(packed) => self.rough.add_packed(packed),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_a_value_or_is_there() {
        let tags = ["batch", "cost-center=42", "env:prod", "batchy=no"].map(String::from);
        assert_eq!(tag(&tags, "batch"), Some("true"));
        assert_eq!(tag(&tags, "cost-center"), Some("42"));
        assert_eq!(tag(&tags, "env"), Some("prod"));
        assert_eq!(tag(&tags, "cost"), None);
    }
}
