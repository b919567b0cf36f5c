//! The spool and the ledger: exactly once, whatever dies, and what the report makes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir::base::EventId;
use weir::meter::report::{self, Format, Query};
use weir::meter::{Admitted, Event, Ledger, Outcome, Spool, Step, Stop};
use weir::store;
use weir_filters::usage::{NanoUsd, Source};

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
    begun.usage.output_tokens = 0;
    begun.cost_nano_usd = Some(NanoUsd(7));
    Admitted { admitted: Box::new(begun) }
}

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// A folder with a ledger and a spool.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
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
        store::open_read(&self.db()).unwrap().query_row(sql, [], |r| r.get(0)).unwrap()
    }
    /// Outcome and output tokens of every row, by event id.
    fn rows(&self) -> BTreeMap<String, (String, u64)> {
        let db = store::open_read(&self.db()).unwrap();
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
        let rollups: String =
            self.query(&format!("SELECT {requests} || ' ' || {sums} FROM rollups"));
        assert_eq!(rows, rollups);
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

/// Images of the disk at every step of the passes of a ledger that has this probe.
fn images(home: &Arc<Home>) -> (Arc<Mutex<Vec<(Step, Home)>>>, weir::meter::Probe) {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (home, into) = (Arc::clone(home), Arc::clone(&taken));
    (taken, Box::new(move |step| into.lock().unwrap().push((step, home.image()))))
}

#[test]
fn a_kill_at_any_step_loses_no_event_and_books_none_twice() {
    let home = Arc::new(Home::new());
    let dead = home.spool();
    let (done, begun, left, running) = (event(), event(), event(), event());
    dead.append(&done);
    dead.admit(&beginning(&begun));
    dead.admit(&beginning(&left));
    dead.append(&begun);
    drop(dead);
    let spool = home.spool();
    spool.admit(&beginning(&running));
    let (taken, probe) = images(&home);
    let mut ledger = home.ledger().spool_keep(Duration::ZERO).probe(probe);
    ledger.pass(&spool, now()).unwrap();

    let check = |home: &Home, running_died: bool| {
        let row = |e: &Event, outcome: &str, output| (hex(e), (outcome.to_string(), output));
        let mut want = BTreeMap::from([
            row(&done, "success", 3),
            row(&begun, "success", 3),
            row(&left, "interrupted", 0),
        ]);
        want.extend(running_died.then(|| row(&running, "interrupted", 0)));
        assert_eq!(home.rows(), want);
        home.check_sums();
    };
    check(&home, false);
    let taken = std::mem::take(&mut *taken.lock().unwrap());
    let steps: std::collections::HashSet<Step> = taken.iter().map(|(s, _)| *s).collect();
    assert_eq!(steps.len(), 7, "every step was met: {steps:?}");
    for (step, image) in taken {
        // Killed again at every step of the recovery.
        let image = Arc::new(image);
        let again = {
            let spool = image.spool();
            let (taken, probe) = images(&image);
            image.ledger().probe(probe).apply_all(&spool, now()).unwrap();
            std::mem::take(&mut *taken.lock().unwrap())
        };
        check(&image, true);
        for (second, image) in again {
            println!("killed at {step:?}, then at {second:?}");
            image.restart();
            check(&image, true);
            assert!(image.lines().values().all(|n| *n == 1), "spool and ledger agree");
        }
    }
}

#[test]
fn an_interrupted_stream_is_booked_from_its_first_line() {
    let home = Home::new();
    let stream = event();
    let spool = home.spool();
    spool.admit(&beginning(&stream));
    drop(spool);
    home.restart();
    let row: String = home.query(
        "SELECT outcome || ' ' || status || ' ' || usage_source || ' ' || input_tokens || ' ' ||
         output_tokens || ' ' || cost_nano_usd || ' ' || request_id FROM events",
    );
    assert_eq!(row, format!("interrupted 500 estimated 10 0 7 {}", stream.request_id));
    assert_eq!(home.lines().len(), 1, "it is an event of the spool too");
    assert_eq!(home.query::<i64>("SELECT count(*) FROM admitted"), 0);
}

#[test]
fn a_stream_of_a_living_process_is_not_interrupted() {
    let home = Home::new();
    let (old, new) = (home.spool(), home.spool());
    let stream = event();
    old.admit(&beginning(&stream));
    let mut ledger = home.ledger();
    ledger.apply_all(&new, now()).unwrap();
    // Rotated away from the segment that has its first line.
    old.tick(Instant::now() + Duration::from_secs(7200));
    old.tick(Instant::now());
    ledger.pass(&new, now()).unwrap();
    assert!(home.rows().is_empty());
    old.append(&stream);
    ledger.pass(&new, now()).unwrap();
    assert_eq!(home.rows(), BTreeMap::from([(hex(&stream), ("success".into(), 3))]));
}

#[test]
fn a_line_torn_at_any_byte_costs_only_itself() {
    let home = Home::new();
    fs::create_dir(home.spool_dir()).unwrap();
    let whole = serde_json::to_string(&event()).unwrap();
    for cut in 0..=whole.len() {
        let (first, last) = (event(), event());
        let mut text = serde_json::to_string(&first).unwrap() + "\n";
        text += &serde_json::to_string(&last).unwrap()[..cut.min(whole.len())];
        let name = format!("{}-1.jsonl", uuid::Uuid::now_v7());
        fs::write(home.spool_dir().join(name), text).unwrap();
    }
    let spool = home.spool();
    home.ledger().apply_all(&spool, now()).unwrap();
    // Every first line, and the last one that lacks nothing but its newline.
    assert_eq!(home.rows().len(), whole.len() + 1 + 1);
    assert_eq!(spool.stats().skipped(), whole.len() as u64 - 1);
}

#[test]
fn a_torn_line_at_the_end_of_a_living_segment_waits_for_its_rest() {
    let home = Home::new();
    let spool = home.spool();
    spool.append(&event());
    let late = event();
    let line = serde_json::to_string(&late).unwrap() + "\n";
    let (head, tail) = line.split_at(100);
    let segment = files(&home.spool_dir()).remove(0);
    let add = |text: &str| {
        use std::io::Write;
        fs::File::options()
            .append(true)
            .open(&segment)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    };
    let mut ledger = home.ledger();
    add(head);
    ledger.pass(&spool, now()).unwrap();
    assert_eq!((home.rows().len(), spool.stats().skipped()), (1, 0));
    add(tail);
    ledger.pass(&spool, now()).unwrap();
    assert_eq!((home.rows().len(), spool.stats().skipped()), (2, 0));
}

#[test]
fn a_line_that_comes_twice_is_one_row_and_counts_once() {
    let home = Home::new();
    let twice = event();
    for _ in 0..2 {
        let spool = home.spool();
        spool.append(&twice);
        spool.append(&twice);
    }
    home.restart();
    assert_eq!(home.rows().len(), 1);
    home.check_sums();
}

#[test]
fn two_requests_with_the_same_request_id_are_two_rows() {
    let home = Home::new();
    let spool = home.spool();
    for _ in 0..2 {
        spool.append(&Event { request_id: "mine".into(), ..event() });
    }
    home.ledger().apply_all(&spool, now()).unwrap();
    assert_eq!(home.rows().len(), 2);
}

#[test]
fn of_two_appliers_one_applies_and_the_other_takes_over() {
    let home = Home::new();
    let (one, two) = (home.spool(), home.spool());
    let (mut first, mut second) = (home.ledger(), home.ledger());
    one.append(&event());
    two.append(&event());
    first.pass(&one, now()).unwrap();
    assert_eq!(home.rows().len(), 2, "of both spools");
    two.append(&event());
    second.pass(&two, now()).unwrap();
    assert_eq!((home.rows().len(), two.stats().lag(), two.stats().store_up()), (2, 1, true));
    drop(first);
    second.pass(&two, now()).unwrap();
    assert_eq!((home.rows().len(), two.stats().lag()), (3, 0));
    home.check_sums();
}

#[test]
fn threads_that_append_while_segments_rotate_lose_nothing() {
    const THREADS: usize = 4;
    const EACH: usize = 2_000;
    let home = Home::new();
    let spool = home.spool();
    let mut ledger = home.ledger();
    std::thread::scope(|s| {
        let spool = &spool;
        let writers: Vec<_> = (0..THREADS)
            .map(|_| s.spawn(move || (0..EACH).for_each(|_| spool.append(&event()))))
            .collect();
        let mut hours = 0;
        while !writers.iter().all(|w| w.is_finished()) {
            hours += 2;
            spool.tick(Instant::now() + Duration::from_secs(3600 * hours));
            ledger.pass(spool, now()).unwrap();
        }
    });
    spool.tick(Instant::now());
    ledger.pass(&spool, now()).unwrap();
    let stats = spool.stats();
    assert_eq!((stats.lost(), stats.skipped(), stats.lag()), (0, 0, 0));
    assert_eq!(home.rows().len(), THREADS * EACH);
    assert!(files(&home.spool_dir()).len() > 1, "it rotated");
    home.check_sums();
}

#[test]
fn events_wait_in_the_spool_while_the_store_is_locked_and_none_is_lost() {
    let home = Home::new();
    let spool = home.spool();
    let mut ledger = home.ledger();
    ledger.apply_all(&spool, now()).unwrap();
    let other = rusqlite::Connection::open(home.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    (0..5_000).for_each(|_| spool.append(&event()));
    assert!(matches!(ledger.pass(&spool, now()), Err(store::Error::Busy(_))));
    let stats = spool.stats();
    assert_eq!((stats.store_up(), stats.lag(), stats.lost()), (false, 5_000, 0));
    other.execute_batch("ROLLBACK").unwrap();
    ledger.pass(&spool, now()).unwrap();
    assert_eq!((stats.store_up(), stats.lag()), (true, 0));
    assert_eq!(home.rows().len(), 5_000);
}

#[test]
fn a_gateway_starts_beside_a_locked_store_but_not_on_a_damaged_one() {
    let home = Home::new();
    home.restart();
    let other = rusqlite::Connection::open(home.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let spool = home.spool();
    let mut ledger = Ledger::open(&home.db()).unwrap();
    spool.append(&event());
    ledger.apply_all(&spool, now()).unwrap();
    assert!(!spool.stats().store_up());
    drop(other);
    ledger.apply_all(&spool, now()).unwrap();
    assert_eq!(home.rows().len(), 1);
    drop(ledger);

    fs::write(home.db(), "no database".repeat(1_000)).unwrap();
    let error = Ledger::open(&home.db()).unwrap_err();
    assert!(error.to_string().contains("weir.db: not a sound SQLite database"), "{error}");
    assert!(Ledger::open(home.0.path()).is_err(), "a folder is no place for a ledger");
}

#[test]
fn a_store_that_breaks_while_running_is_filled_again_from_the_spool() {
    let home = Home::new();
    let spool = home.spool();
    let mut ledger = home.ledger();
    spool.append(&event());
    ledger.pass(&spool, now()).unwrap();
    // Another file under its name, as a bad restore makes it.
    let journal = |end: &str| home.0.path().join(format!("weir.db-{end}"));
    ["wal", "shm"].into_iter().for_each(|end| fs::remove_file(journal(end)).unwrap());
    let bad = home.0.path().join("bad");
    fs::write(&bad, "no database".repeat(1_000)).unwrap();
    fs::rename(&bad, home.db()).unwrap();
    spool.append(&event());
    assert!(matches!(ledger.pass(&spool, now()), Err(store::Error::Corrupt { .. })));
    assert_eq!((spool.stats().store_up(), spool.stats().lag()), (false, 1));
    fs::remove_file(home.db()).unwrap();
    ledger.pass(&spool, now()).unwrap();
    assert_eq!((home.rows().len(), spool.stats().store_up()), (2, true));
}

#[test]
fn a_spool_folder_that_is_deleted_is_made_again() {
    let home = Home::new();
    let spool = home.spool();
    let mut ledger = home.ledger();
    fs::remove_dir_all(home.spool_dir()).unwrap();
    spool.tick(Instant::now());
    spool.append(&event());
    ledger.pass(&spool, now()).unwrap();
    assert_eq!(home.rows().len(), 1);
}

#[test]
fn segments_go_once_they_are_applied_dead_and_old() {
    let home = Home::new();
    home.spool().append(&event());
    let spool = home.spool();
    spool.append(&event());
    let mut ledger = home.ledger();
    let at = |hours: i64| now() + SignedDuration::from_hours(hours);
    ledger.pass(&spool, at(0)).unwrap();
    ledger.pass(&spool, at(23)).unwrap();
    assert_eq!(files(&home.spool_dir()).len(), 2);
    ledger.pass(&spool, at(24)).unwrap();
    assert_eq!(files(&home.spool_dir()).len(), 1, "the living one stays");
    assert_eq!(home.query::<i64>("SELECT count(*) FROM segments"), 1);
    assert_eq!(home.rows().len(), 2);
    ledger.pass(&spool, at(2_400)).unwrap();
    assert_eq!(files(&home.spool_dir()).len(), 1);
}

#[test]
fn a_start_that_served_nobody_leaves_no_segment() {
    let home = Home::new();
    (0..5).for_each(|_| home.restart());
    assert_eq!(files(&home.spool_dir()).len(), 1, "the last one's");
}

#[test]
fn a_line_of_another_version_is_read_as_far_as_it_goes() {
    let home = Home::new();
    fs::create_dir(home.spool_dir()).unwrap();
    let id = EventId::now();
    let least = format!(
        "{{\"event_id\":\"{id}\",\"ts\":\"2026-11-30T08:00:00Z\",\"endpoint\":\"chat\",\
         \"status\":200,\"outcome\":\"success\",\"from_the_future\":{{\"a\":[1]}}}}\n"
    );
    let unknown = "{\"event_id\":\"x\",\"outcome\":\"teleported\"}\n";
    let name = format!("{}-1.jsonl", uuid::Uuid::now_v7());
    fs::write(home.spool_dir().join(name), least + unknown).unwrap();
    let spool = home.spool();
    let mut ledger = home.ledger();
    ledger.apply_all(&spool, now()).unwrap();
    assert_eq!((home.rows().len(), spool.stats().skipped()), (1, 1));
    ledger.pass(&spool, now() + SignedDuration::from_hours(29 * 24)).unwrap();
    assert_eq!(files(&home.spool_dir()).len(), 2, "what could not be read stays for a month");
}

#[test]
fn rows_older_than_the_retention_go_and_their_sums_too() {
    let home = Home::new();
    let spool = home.spool();
    for day in 0..10 {
        for _ in 0..300 {
            let ts = now() - SignedDuration::from_hours(24 * day);
            spool.append(&Event { ts, ..event() });
        }
    }
    let mut ledger = home.ledger().retention(Some(Duration::from_secs(5 * 24 * 3600)));
    // 1,200 rows are too old: two batches, and one hour of sums a pass.
    (0..2).for_each(|_| ledger.pass(&spool, now()).unwrap());
    assert_eq!(home.query::<i64>("SELECT count(*) FROM events"), 6 * 300);
    for minutes in 1..=4 {
        ledger.pass(&spool, now() + SignedDuration::from_mins(minutes)).unwrap();
    }
    assert_eq!(home.query::<i64>("SELECT sum(requests) FROM rollups"), 6 * 300);
}

#[test]
fn a_background_thread_applies_and_ends_with_nothing_left() {
    let home = Home::new();
    let (spool, stop) = (home.spool().sync_every(None), Stop::default());
    let ledger = home.ledger();
    std::thread::scope(|s| {
        s.spawn(|| ledger.run(&spool, &stop));
        s.spawn(|| spool.run(&stop));
        (0..100).for_each(|_| spool.append(&event()));
        stop.ring();
    });
    assert_eq!((home.rows().len(), spool.stats().lag(), spool.stats().lines()), (100, 0, 100));
}

#[test]
fn ten_times_the_rows_take_about_ten_times_as_long() {
    let time = |rows: usize| {
        let home = Home::new();
        let spool = home.spool();
        (0..rows).for_each(|_| spool.append(&event()));
        let mut ledger = home.ledger();
        let start = Instant::now();
        ledger.pass(&spool, now()).unwrap();
        let took = start.elapsed();
        assert_eq!(home.query::<i64>("SELECT count(*) FROM events"), rows as i64);
        took
    };
    let (few, many) = (time(10_000), time(100_000));
    println!("10,000 rows in {few:?}, 100,000 in {many:?}");
    assert!(many < few * 40, "10,000 rows in {few:?}, 100,000 in {many:?}");
}

#[test]
fn a_name_of_a_megabyte_is_cut_and_its_event_is_not_lost() {
    let home = Home::new();
    let spool = home.spool();
    let model = Some("模".repeat(1 << 20));
    spool.append(&Event { requested_model: model, status: 404, ..event() });
    let nan = weir::meter::event::Units { seconds: f64::NAN, ..Default::default() };
    spool.append(&Event { units: nan, ..event() });
    home.ledger().apply_all(&spool, now()).unwrap();
    assert_eq!((home.rows().len(), spool.stats().skipped()), (2, 0));
    assert_eq!(home.query::<i64>("SELECT max(length(requested_model)) FROM events"), 85);
}

#[test]
fn numbers_that_no_provider_can_mean_do_not_overflow_sums() {
    let home = Home::new();
    let spool = home.spool();
    for _ in 0..3 {
        let mut absurd = Event { cost_nano_usd: Some(NanoUsd(u64::MAX)), ..event() };
        absurd.usage.input_tokens = u64::MAX;
        absurd.duration_ms = u64::MAX;
        spool.append(&absurd);
    }
    home.ledger().apply_all(&spool, now()).unwrap();
    home.check_sums();
    report::report(&home.db(), &home.spool_dir(), &Query::default()).unwrap();
}

/// What can happen to a gateway.
#[derive(Debug, Clone)]
enum Act {
    Append,
    Admit,
    /// The oldest running stream ends.
    Finish,
    /// A line that was appended before is appended again.
    Repeat,
    Rotate,
    Pass,
    /// `kill -9` at the n-th step of a pass, or after it, and a new process.
    Kill(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::Append),
        3 => Just(Act::Admit),
        2 => Just(Act::Finish),
        1 => Just(Act::Repeat),
        1 => Just(Act::Rotate),
        2 => Just(Act::Pass),
        2 => (0usize..12).prop_map(Act::Kill),
    ]
}

/// A gateway's process: what it holds.
struct Process {
    home: Arc<Home>,
    spool: Spool,
    ledger: Ledger,
    hours: u64,
    /// Counts steps down to the one at which an image is taken.
    at: Arc<Mutex<(usize, Option<Home>)>>,
}

impl Process {
    fn start(home: Home) -> Self {
        let (home, at) = (Arc::new(home), Arc::new(Mutex::new((usize::MAX, None))));
        let spool = home.spool();
        let (of, into) = (Arc::clone(&home), Arc::clone(&at));
        let probe = Box::new(move |_| {
            let mut at = into.lock().unwrap();
            at.0 = at.0.saturating_sub(1);
            if at.0 == 0 && at.1.is_none() {
                at.1 = Some(of.image());
            }
        });
        let mut ledger = home.ledger().spool_keep(Duration::ZERO).probe(probe);
        ledger.apply_all(&spool, now()).unwrap();
        Self { home, spool, ledger, hours: 0, at }
    }
    fn kill(mut self, step: usize) -> Self {
        *self.at.lock().unwrap() = (step + 1, None);
        self.ledger.pass(&self.spool, now()).unwrap();
        let image = self.at.lock().unwrap().1.take();
        Self::start(image.unwrap_or_else(|| self.home.image()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_life_of_a_gateway_gives_one_row_per_request(acts in prop::collection::vec(act(), 1..40)) {
        let mut process = Process::start(Home::new());
        let (mut want, mut running, mut old) = (BTreeMap::new(), Vec::new(), Vec::<Event>::new());
        for act in acts {
            match act {
                Act::Append => old.push(event()),
                Act::Admit => {
                    running.push(event());
                    process.spool.admit(&beginning(running.last().unwrap()));
                    continue;
                }
                Act::Finish if !running.is_empty() => old.push(running.remove(0)),
                Act::Repeat if !old.is_empty() => {}
                Act::Finish | Act::Repeat => continue,
                Act::Rotate => {
                    process.hours += 2;
                    process.spool.tick(Instant::now() + Duration::from_secs(3600 * process.hours));
                    continue;
                }
                Act::Pass => {
                    process.ledger.pass(&process.spool, now()).unwrap();
                    continue;
                }
                Act::Kill(step) => {
                    process = process.kill(step);
                    let dead = running.drain(..);
                    want.extend(dead.map(|e| (hex(&e), ("interrupted".to_string(), 0))));
                    old.retain(|e| want[&hex(e)].0 == "success");
                    continue;
                }
            }
            let event = old.last().unwrap();
            process.spool.append(event);
            want.insert(hex(event), ("success".to_string(), 3));
        }
        let process = process.kill(usize::MAX - 1);
        want.extend(running.iter().map(|e| (hex(e), ("interrupted".to_string(), 0))));
        prop_assert_eq!(process.home.rows(), want);
        process.home.check_sums();
        prop_assert_eq!(process.spool.stats().skipped(), 0);
    }
}

// ---------------------------------------------------------------- report

/// A ledger with a known week in it.
fn week() -> Home {
    let home = Home::new();
    let spool = home.spool();
    for i in 0..10u64 {
        let ts = "2026-11-20T10:00:00Z".parse::<Timestamp>().unwrap();
        let mut e = Event {
            ts: ts + SignedDuration::from_hours(24 * i64::try_from(i).unwrap()),
            ..event()
        };
        e.ttft_ms = Some(10 * (i + 1));
        e.tags = vec!["batch".into(), format!("cost-center={}", i % 2)];
        e.end_user = Some(if i == 0 { "=cmd|' /C calc'!A0,\"x\"".into() } else { format!("u{i}") });
        spool.append(&e);
    }
    let refused = Event {
        outcome: Outcome::Refused,
        status: 403,
        team: None,
        key_name: None,
        key_id: Some("id-7".into()),
        model: None,
        provider: None,
        cost_nano_usd: None,
        usage: Default::default(),
        usage_source: Source::Estimated,
        ts: "2026-11-25T10:00:00Z".parse().unwrap(),
        ..event()
    };
    spool.append(&refused);
    home.ledger().apply_all(&spool, now()).unwrap();
    home
}

fn ask(home: &Home, by: &str, format: Format) -> String {
    let query = Query { by: report::columns(by).unwrap(), format, ..Query::default() };
    report::report(&home.db(), &home.spool_dir(), &query).unwrap()
}

fn json(home: &Home, by: &str) -> serde_json::Value {
    serde_json::from_str(&ask(home, by, Format::Json)).unwrap()
}

#[test]
fn a_report_adds_up_exactly() {
    let home = week();
    let text = ask(&home, "team", Format::Json);
    assert!(text.contains("\"cost_usd\":1,"), "ten times 0.1 is 1: {text}");
    let report = json(&home, "team");
    assert_eq!(report["by"], serde_json::json!(["team"]));
    assert_eq!(report["lag_events"], 0);
    assert!(report["since"].is_null() && report["until"].is_null());
    let want = serde_json::json!([
        {"team": null, "requests": 1, "errors": 1, "input_tokens": 0, "cached_tokens": 0,
         "cache_write_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0,
         "cost_nano_usd": null, "cost_usd": null, "wasted_cost_nano_usd": 0, "error_rate": 1,
         "ttft_ms_p50": null, "ttft_ms_p95": null},
        {"team": "search", "requests": 10, "errors": 0, "input_tokens": 100, "cached_tokens": 0,
         "cache_write_tokens": 0, "output_tokens": 30, "reasoning_tokens": 0,
         "cost_nano_usd": 1_000_000_000, "cost_usd": 1, "wasted_cost_nano_usd": 0,
         "error_rate": 0, "ttft_ms_p50": 50, "ttft_ms_p95": 100},
    ]);
    assert_eq!(report["rows"], want);
    assert_eq!(report["total"]["requests"], 11);
    assert_eq!(report["total"]["error_rate"].to_string(), "0.090909");
    assert!(report["total"].get("team").is_none());
}

#[test]
fn a_report_groups_by_every_column() {
    let home = week();
    let check = |by: &str, values: &[&str]| {
        let report = json(&home, by);
        let rows = report["rows"].as_array().unwrap();
        let got: Vec<String> = rows.iter().map(|r| r[by].to_string().replace('"', "")).collect();
        assert_eq!(got, values, "{by}");
        let requests: u64 = rows.iter().map(|r| r["requests"].as_u64().unwrap()).sum();
        assert_eq!(requests, 11, "{by}");
    };
    check("key", &["ci", "id-7"]);
    check("model", &["null", "m"]);
    check("provider", &["null", "a"]);
    check("status", &["200", "403"]);
    check("endpoint", &["chat"]);
    check("month", &["2026-11"]);
    check("tag:batch", &["null", "true"]);
    check("tag:cost-center", &["null", "0", "1"]);
    for by in ["department", "user", "credential", "task_type", "requested_model"] {
        check(by, &["null"]);
    }
    assert_eq!(json(&home, "day")["rows"].as_array().unwrap().len(), 10);
    assert_eq!(json(&home, "hour")["rows"][0]["hour"], "2026-11-20T10:00:00Z");
    assert_eq!(json(&home, "end_user")["rows"].as_array().unwrap().len(), 11);
    assert_eq!(json(&home, "")["rows"].as_array().unwrap().len(), 1, "no column is one row");
}

#[test]
fn a_report_takes_the_span_from_since_up_to_until() {
    let home = week();
    let at = |t: &str| Some(report::moment(t, now()).unwrap());
    let requests = |since, until| {
        let query = Query { since, until, format: Format::Json, ..Query::default() };
        let text = report::report(&home.db(), &home.spool_dir(), &query).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["total"]["requests"].clone()
    };
    assert_eq!(requests(at("2026-11-24"), at("2026-11-26")), 3);
    assert_eq!(requests(at("7d"), None), 7);
    assert_eq!(requests(at("2026-11-29T10:00:00Z"), None), 1, "since is in it");
    assert_eq!(requests(None, at("2026-11-20T10:00:00Z")), 0, "until is not");
    assert_eq!(requests(at("2098-01-01T00:00:00Z"), None), 0);
}

#[test]
fn a_report_names_what_still_waits_in_the_spool() {
    let home = week();
    let spool = home.spool();
    (0..3).for_each(|_| spool.append(&event()));
    let report = json(&home, "team");
    assert_eq!((&report["lag_events"], &report["total"]["requests"]), (&3.into(), &11.into()));
    assert!(ask(&home, "team", Format::Table).contains("3 events wait in the spool"));
}

#[test]
fn a_report_is_a_table_or_csv_and_costs_in_another_currency() {
    let home = week();
    let table = ask(&home, "team,key", Format::Table);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("team    key   requests  errors"), "{table}");
    assert!(lines[1].starts_with("-       id-7         1       1"), "{table}");
    assert!(lines[3].starts_with("total               11       1"), "{table}");
    let csv = ask(&home, "end_user", Format::Csv);
    assert!(csv.starts_with("end_user,requests,errors,input_tokens,"), "{csv}");
    assert!(csv.contains("\"'=cmd|' /C calc'!A0,\"\"x\"\"\",1,0,10,"), "no formula: {csv}");
    assert_eq!(csv.lines().count(), 12);
    let currency =
        Some(report::Currency { code: "CNY".into(), nano_usd: 140_000_000.try_into().unwrap() });
    let query = Query { currency, format: Format::Json, ..Query::default() };
    let text = report::report(&home.db(), &home.spool_dir(), &query).unwrap();
    assert!(text.contains("\"cost_usd\":1,\"cost_cny\":7.142857143,"), "{text}");
}

#[test]
fn a_report_without_a_ledger_says_so_and_makes_none() {
    let home = Home::new();
    let error = report::report(&home.db(), &home.spool_dir(), &Query::default()).unwrap_err();
    assert!(matches!(error, report::Error::Store(store::Error::Missing(_))), "{error}");
    assert!(error.to_string().contains("weir.db: no ledger here yet"), "{error}");
    assert!(!home.db().exists());
}

#[test]
fn a_report_runs_beside_a_writer_in_the_middle_of_its_work() {
    let home = week();
    let writer = rusqlite::Connection::open(home.db()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; DELETE FROM events").unwrap();
    assert_eq!(json(&home, "team")["total"]["requests"], 11);
}
