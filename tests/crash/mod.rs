//! The real binary, killed, filled up, locked out and told to leave: what was promised of its
//! events and its streams holds.

mod disk;
mod drain;
#[cfg(debug_assertions)] // fail points
mod kill;
#[cfg(debug_assertions)]
mod panics;
mod random;
mod reload;
mod store;

use crate::harness::binary::Tables;
use crate::harness::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A stream's event with one word.
fn word(text: &str) -> Action {
    Action::Sse(json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

/// A stream that says one word, and then nothing until its reader leaves.
fn endless() -> Vec<Action> {
    vec![Action::stream(), word("endless"), Action::Hang]
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    request: String,
    outcome: String,
    status: u16,
    input: u64,
    output: u64,
}

/// Every row of a ledger, by its event's id, read as SQLite has it.
fn ledger(weir: &Weir) -> BTreeMap<String, Row> {
    let Ok(db) = rusqlite::Connection::open(weir.path().join("weir.db")) else {
        return BTreeMap::new();
    };
    let sql = "SELECT hex(event_id), request_id, outcome, status, input_tokens, output_tokens \
               FROM events";
    // No table yet, or the writer's lock: looked at again.
    let Ok(mut select) = db.prepare(sql) else { return BTreeMap::new() };
    let rows = select.query_map([], |r| {
        let row = Row {
            request: r.get(1)?,
            outcome: r.get(2)?,
            status: r.get(3)?,
            input: r.get::<_, i64>(4)?.cast_unsigned(),
            output: r.get::<_, i64>(5)?.cast_unsigned(),
        };
        Ok((r.get(0)?, row))
    });
    rows.map(|rows| rows.filter_map(Result::ok).collect()).unwrap_or_default()
}

/// Waits until the ledger has `n` rows.
async fn rows(weir: &Weir, n: usize) -> Vec<Row> {
    let enough = || {
        let rows: Vec<Row> = ledger(weir).into_values().collect();
        (rows.len() >= n).then_some(rows)
    };
    found(&format!("{n} rows"), enough).await
}

/// The number of requests in the hourly sums, which reports are made of.
fn summed(weir: &Weir) -> u64 {
    let db = rusqlite::Connection::open(weir.path().join("weir.db")).unwrap();
    let sum = db.query_row("SELECT sum(requests) FROM rollups", [], |r| r.get::<_, i64>(0));
    sum.unwrap().cast_unsigned()
}

/// Identities of the spool's events, each as often as it stands there.
fn ids(events: &[Value]) -> Vec<&str> {
    events.iter().map(|e| e["event_id"].as_str().expect("an event_id")).collect()
}
