//! Sums of events by hour and by day, under everything that a report may group by.
//!
//! What groups them stands once, in `groups`, under a number that is the hash of it; the sums have
//! that number. They are added in the transaction that inserts the rows, so both agree always.

use super::event::Event;
use super::histogram::Histogram;
use super::rows::{json, number};
use ring::digest::{SHA256, digest};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};
use std::collections::HashMap;

/// Seconds.
pub const HOUR: i64 = 3_600;
/// Seconds.
pub const DAY: i64 = 24 * HOUR;

/// Tables of sums, the length of their stretches in seconds, and how they are read and written.
pub const TABLES: [(&str, i64); 2] = [("rollups", HOUR), ("rollups_daily", DAY)];

/// What a report may group by, as `groups` and `events` name it.
const NAMES: [&str; 12] = [
    "department",
    "team",
    "user",
    "end_user",
    "key_id",
    "key_name",
    "task_type",
    "endpoint",
    "requested_model",
    "provider",
    "credential",
    "model",
];

/// Requests, five token classes, cost, requests without a price, wasted cost.
type Numbers = [i64; 9];

/// What one group's events add up to.
#[derive(Debug, Default, Clone)]
struct Figures {
    numbers: Numbers,
    /// The last event, microseconds since 1970.
    last: i64,
    ttft: Histogram,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        for (sum, n) in self.numbers.iter_mut().zip(other.numbers) {
            *sum = sum.saturating_add(n);
        }
        self.last = self.last.max(other.last);
        self.ttft.merge(&other.ttft);
    }
}

/// What one event is summed under.
struct Group<'a> {
    names: [Option<&'a str>; 12],
    tags: &'a str,
    status: i64,
    outcome: &'a str,
}

impl Group<'_> {
    /// All of it, so that no two groups are alike.
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        let mut put = |text: Option<&str>| {
            bytes.push(u8::from(text.is_some()));
            let text = text.unwrap_or_default();
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        };
        self.names.iter().for_each(|name| put(*name));
        put(Some(self.tags));
        put(Some(self.outcome));
        bytes.extend_from_slice(&self.status.to_le_bytes());
    }

    fn insert(&self, db: &Connection, id: i64) -> Result<()> {
        let mut insert = db.prepare_cached(
            "INSERT OR IGNORE INTO groups VALUES
             (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?;
        insert.raw_bind_parameter(1, id)?;
        for (i, name) in self.names.iter().enumerate() {
            insert.raw_bind_parameter(2 + i, name)?;
        }
        insert.raw_bind_parameter(14, self.tags)?;
        insert.raw_bind_parameter(15, self.status)?;
        insert.raw_bind_parameter(16, self.outcome)?;
        insert.raw_execute().map(drop)
    }
}

/// A group's number: the same in every database, and of no two groups alike.
fn number_of(group: &[u8]) -> i64 {
    let hash = digest(&SHA256, group);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_ref()[..8]);
    i64::from_le_bytes(first)
}

/// Sums of the rows of one transaction, until they are added to the ledger's.
#[derive(Debug, Default)]
pub struct Rollups {
    /// By the hour's first second and the group's number.
    hours: HashMap<(i64, i64), Figures>,
    /// Numbers of the groups met so far.
    known: HashMap<Vec<u8>, i64>,
    group: Vec<u8>,
}

impl Rollups {
    /// Adds a row that was really inserted.
    ///
    /// # Errors
    /// The database's.
    pub fn add(&mut self, db: &Connection, e: &Event) -> Result<()> {
        let tags = json(&e.tags);
        let group = Group {
            names: [
                e.department.as_deref(),
                e.team.as_deref(),
                e.user.as_deref(),
                e.end_user.as_deref(),
                e.key_id.as_deref(),
                e.key_name.as_deref(),
                e.task_type.as_deref(),
                Some(&e.endpoint),
                e.requested_model.as_deref(),
                e.provider.as_deref(),
                e.credential.as_deref(),
                e.model.as_deref(),
            ],
            tags: &tags,
            status: i64::from(e.status),
            outcome: e.outcome.as_str(),
        };
        let numbers = [
            1,
            number(e.input_tokens),
            number(e.cached_tokens),
            number(e.cache_write_tokens),
            number(e.output_tokens),
            number(e.reasoning_tokens),
            e.cost_nano_usd.map_or(0, |c| number(c.0)),
            i64::from(e.cost_nano_usd.is_none()),
            number(e.wasted_cost_nano_usd.0),
        ];
        self.one(db, &group, e.ts.as_microsecond(), (numbers, e.ttft_ms))
    }

    fn one(
        &mut self,
        db: &Connection,
        group: &Group<'_>,
        ts: i64,
        (numbers, ttft): (Numbers, Option<u64>),
    ) -> Result<()> {
        group.write(&mut self.group);
        let id = match self.known.get(&self.group) {
            Some(id) => *id,
            None => {
                let id = number_of(&self.group);
                group.insert(db, id)?;
                self.known.insert(self.group.clone(), id);
                id
            }
        };
        let hour = ts.div_euclid(1_000_000).div_euclid(HOUR) * HOUR;
        let mut figures = Figures { numbers, last: ts, ttft: Histogram::default() };
        ttft.into_iter().for_each(|ms| figures.ttft.add(ms));
        self.hours.entry((hour, id)).or_default().add(&figures);
        Ok(())
    }

    /// Adds them to the ledger's.
    ///
    /// # Errors
    /// The database's.
    pub fn write(&self, db: &Connection) -> Result<()> {
        for (table, length) in TABLES {
            let mut all: HashMap<(i64, i64), Figures> = HashMap::new();
            for ((hour, id), figures) in &self.hours {
                let start = hour.div_euclid(length) * length;
                all.entry((start, *id)).or_default().add(figures);
            }
            for ((start, id), figures) in &mut all {
                merge(db, table, (*start, *id), figures)?;
            }
        }
        Ok(())
    }
}

fn merge(db: &Connection, table: &str, key: (i64, i64), figures: &mut Figures) -> Result<()> {
    if !figures.ttft.is_empty() {
        let old = format!("SELECT ttft FROM {table} WHERE start = ?1 AND group_id = ?2");
        let mut old = db.prepare_cached(&old)?;
        let old: Option<Vec<u8>> =
            old.query_row(params![key.0, key.1], |row| row.get(0)).optional()?;
        old.iter().for_each(|old| figures.ttft.merge(&Histogram::unpack(old)));
    }
    let mut add = db.prepare_cached(&format!(
        "INSERT INTO {table} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT DO UPDATE SET requests = requests + excluded.requests,
            input_tokens = input_tokens + excluded.input_tokens,
            cached_tokens = cached_tokens + excluded.cached_tokens,
            cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
            output_tokens = output_tokens + excluded.output_tokens,
            reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
            cost_nano_usd = cost_nano_usd + excluded.cost_nano_usd,
            unpriced = unpriced + excluded.unpriced,
            wasted_cost_nano_usd = wasted_cost_nano_usd + excluded.wasted_cost_nano_usd,
            last = max(last, excluded.last),
            ttft = CASE WHEN length(excluded.ttft) > 0 THEN excluded.ttft ELSE ttft END"
    ))?;
    add.raw_bind_parameter(1, key.0)?;
    add.raw_bind_parameter(2, key.1)?;
    for (i, n) in figures.numbers.iter().enumerate() {
        add.raw_bind_parameter(3 + i, n)?;
    }
    add.raw_bind_parameter(12, figures.last)?;
    add.raw_bind_parameter(13, figures.ttft.pack())?;
    add.raw_execute().map(drop)
}

/// Makes the sums of a ledger whose schema has just got them, out of its rows. Does nothing where
/// there are sums, or no rows.
///
/// # Errors
/// The database's.
pub fn rebuild(db: &mut Connection) -> Result<()> {
    let missing = "SELECT EXISTS (SELECT 1 FROM events) AND NOT EXISTS (SELECT 1 FROM rollups)";
    if !db.query_row(missing, [], |row| row.get::<_, bool>(0))? {
        return Ok(());
    }
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let mut sums = Rollups::default();
    {
        let mut select = tx.prepare(&format!(
            "SELECT {}, tags, status, outcome, ts, ttft_ms, input_tokens, cached_tokens,
                cache_write_tokens, output_tokens, reasoning_tokens, cost_nano_usd,
                wasted_cost_nano_usd FROM events",
            NAMES.join(", ")
        ))?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            again(&tx, row, &mut sums)?;
        }
    }
    sums.write(&tx)?;
    tx.commit()
}

fn again(db: &Connection, row: &Row<'_>, sums: &mut Rollups) -> Result<()> {
    let mut names = [None; 12];
    for (i, name) in names.iter_mut().enumerate() {
        *name = row.get_ref(i)?.as_str_or_null()?;
    }
    let (tags, outcome) = (row.get_ref(12)?.as_str()?, row.get_ref(14)?.as_str()?);
    let group = Group { names, tags, status: row.get(13)?, outcome };
    let cost: Option<i64> = row.get(22)?;
    let numbers = [
        1,
        row.get(17)?,
        row.get(18)?,
        row.get(19)?,
        row.get(20)?,
        row.get(21)?,
        cost.unwrap_or(0),
        i64::from(cost.is_none()),
        row.get(23)?,
    ];
    let ttft: Option<i64> = row.get(16)?;
    sums.one(db, &group, row.get(15)?, (numbers, ttft.map(i64::unsigned_abs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_s_number_tells_absent_from_empty_and_one_name_from_the_next() {
        let group = |team, user| {
            let mut names = [None; 12];
            (names[1], names[2]) = (team, user);
            let mut bytes = Vec::new();
            Group { names, tags: "[]", status: 200, outcome: "success" }.write(&mut bytes);
            number_of(&bytes)
        };
        let all = [
            group(None, None),
            group(Some(""), None),
            group(None, Some("")),
            group(Some("a"), None),
            group(None, Some("a")),
            group(Some("ab"), Some("")),
            group(Some("a"), Some("b")),
        ];
        let distinct: std::collections::HashSet<i64> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(group(Some("a"), None), group(Some("a"), None));
    }
}
