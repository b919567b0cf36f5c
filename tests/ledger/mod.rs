//! The spool and the ledger: exactly once, whatever dies, and what the report makes of it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod crash;
mod life;
mod report;
mod store;
mod versions;

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use weir::base::EventId;
use weir::meter::{Admitted, Event, Ledger, Spool};
use weir_filters::usage::NanoUsd;

/// A line with the least that one must have: a later version's members have defaults.
fn event() -> Event {
    let id = EventId::now();
    let line = format!(
        r#"{{"event_id":"{id}","ts":"2026-11-30T08:15:00.000001Z","request_id":"r-{id}",
        "endpoint":"chat","status":200,"outcome":"success","team":"search","key_name":"ci",
        "model":"m","provider":"a","input_tokens":10,"output_tokens":3,"cost_nano_usd":100000000}}"#
    );
    serde_json::from_str(&line).unwrap()
}

/// What is written when the stream of `event` begins: its prompt, and nothing generated.
fn beginning(event: &Event) -> Admitted {
    let mut begun = event.clone();
    begun.output_tokens = 0;
    begun.cost_nano_usd = Some(NanoUsd(7));
    Admitted { admitted: Box::new(begun) }
}

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// A folder with a ledger and a spool.
struct Home(tempfile::TempDir);

impl Home {
    /// In memory where the system has a place for that: hundreds of them wait for no disk.
    fn new() -> Self {
        tempfile::tempdir_in("/dev/shm").map_or_else(|_| Self::on_disk(), Self)
    }
    fn on_disk() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn db(&self) -> PathBuf {
        self.0.path().join("weir.db")
    }
    fn spool_dir(&self) -> PathBuf {
        self.0.path().join("spool")
    }
    fn spool(&self) -> Spool {
        Spool::open(&self.spool_dir()).unwrap()
    }
    fn ledger(&self) -> Ledger {
        Ledger::open(&self.db()).unwrap()
    }
    fn query<T: rusqlite::types::FromSql>(&self, sql: &str) -> T {
        weir::store::open_read(&self.db()).unwrap().query_row(sql, [], |r| r.get(0)).unwrap()
    }
    /// Outcome and output tokens of every row, by event id.
    fn rows(&self) -> BTreeMap<String, (String, u64)> {
        let db = weir::store::open_read(&self.db()).unwrap();
        let mut select =
            db.prepare("SELECT lower(hex(event_id)), outcome, output_tokens FROM events").unwrap();
        let rows = select
            .query_map([], |r| Ok((r.get(0)?, (r.get(1)?, r.get::<_, i64>(2)?.cast_unsigned()))));
        rows.unwrap().map(Result::unwrap).collect()
    }
    /// How often each event stands in the spool.
    fn lines(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for file in files(&self.spool_dir()) {
            for line in fs::read_to_string(file).unwrap().lines() {
                let Ok(event) = serde_json::from_str::<Event>(line) else { continue };
                *all.entry(hex(&event)).or_default() += 1;
            }
        }
        all
    }
    /// The disk as a `kill -9` at this moment leaves it; locks die with their process.
    fn image(&self) -> Self {
        let copy = Self::new();
        fs::create_dir(copy.spool_dir()).unwrap();
        for file in files(&self.spool_dir()) {
            fs::copy(&file, copy.spool_dir().join(file.file_name().unwrap())).unwrap();
        }
        for file in files(self.0.path()) {
            if !file.to_string_lossy().ends_with("-shm") {
                fs::copy(&file, copy.0.path().join(file.file_name().unwrap())).unwrap();
            }
        }
        copy
    }
    /// Starts a process that applies what is there, and ends it.
    fn restart(&self) {
        let spool = self.spool();
        self.ledger().apply_all(&spool, now()).unwrap();
        assert_eq!(spool.stats().lag(), 0);
    }
    /// Hourly sums say what the rows say.
    fn check_sums(&self) {
        let sums = "coalesce(sum(output_tokens),0) || ' ' || coalesce(sum(cost_nano_usd),0)";
        let rows: String = self.query(&format!("SELECT count(*) || ' ' || {sums} FROM events"));
        let requests = "coalesce(sum(requests),0)";
        for table in ["rollups", "rollups_daily"] {
            let summed: String =
                self.query(&format!("SELECT {requests} || ' ' || {sums} FROM {table}"));
            assert_eq!(rows, summed, "{table}");
        }
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut all: Vec<PathBuf> =
        entries.map(|e| e.unwrap().path()).filter(|p| p.is_file()).collect();
    all.sort();
    all
}

fn hex(event: &Event) -> String {
    event.event_id.0.simple().to_string()
}
