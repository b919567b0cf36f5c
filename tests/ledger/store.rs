//! A store that is locked, damaged, deleted, old or large; a spool that is, too.

use super::{Home, event, files, now};
use jiff::SignedDuration;
use std::fs;
use std::time::{Duration, Instant};
use weir::base::EventId;
use weir::meter::report::{self, Query};
use weir::meter::{Event, Ledger, Stop};
use weir::store;
use weir_filters::usage::NanoUsd;

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
fn a_segment_that_a_living_process_has_left_goes_too() {
    let home = Home::new();
    let spool = home.spool();
    spool.append(&event());
    spool.tick(Instant::now() + Duration::from_secs(7200));
    spool.append(&event());
    spool.tick(Instant::now());
    let mut ledger = home.ledger().spool_keep(Duration::ZERO);
    ledger.pass(&spool, now()).unwrap();
    assert_eq!((files(&home.spool_dir()).len(), home.rows().len()), (1, 2));
    spool.append(&event());
    ledger.pass(&spool, now()).unwrap();
    assert_eq!(home.rows().len(), 3);
}

#[test]
fn a_start_that_served_nobody_leaves_no_segment() {
    let home = Home::new();
    (0..5).for_each(|_| home.restart());
    assert_eq!(files(&home.spool_dir()).len(), 1, "the last one's");
}

#[test]
fn rows_older_than_the_retention_go_and_their_sums_stay() {
    let home = Home::new();
    let spool = home.spool();
    for day in 0..10 {
        for _ in 0..300 {
            let ts = now() - SignedDuration::from_hours(24 * day);
            spool.append(&Event { ts, ..event() });
        }
    }
    let mut ledger = home.ledger().retention(Some(Duration::from_secs(5 * 24 * 3600)));
    // 1,200 rows are too old: two batches.
    (0..2).for_each(|_| ledger.pass(&spool, now()).unwrap());
    assert_eq!(home.query::<i64>("SELECT count(*) FROM events"), 6 * 300);
    for minutes in 1..=4 {
        ledger.pass(&spool, now() + SignedDuration::from_mins(minutes)).unwrap();
    }
    assert!(home.query::<i64>("SELECT count(*) FROM events") < 10 * 300);
    assert_eq!(home.query::<i64>("SELECT sum(requests) FROM rollups"), 10 * 300);
    let report = report::report(&home.db(), &home.spool_dir(), &Query::default()).unwrap();
    assert!(report.contains("3000"), "what is swept is in the report: {report}");
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
        let home = Home::on_disk();
        let (spool, one) = (home.spool(), event());
        let next = || Event { event_id: EventId::now(), ..one.clone() };
        (0..rows).for_each(|_| spool.append(&next()));
        let mut ledger = home.ledger();
        let start = Instant::now();
        ledger.pass(&spool, now()).unwrap();
        let took = start.elapsed();
        assert_eq!(home.query::<i64>("SELECT count(*) FROM events"), rows as i64);
        took
    };
    let (few, many) = (time(10_000), time(100_000));
    assert!(many < few * 40, "10,000 rows in {few:?}, 100,000 in {many:?}");
}

#[test]
fn a_name_of_a_megabyte_is_cut_and_its_event_is_not_lost() {
    let home = Home::new();
    let spool = home.spool();
    let model = Some("模".repeat(1 << 20).into());
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
        absurd.input_tokens = u64::MAX;
        absurd.duration_ms = u64::MAX;
        spool.append(&absurd);
    }
    home.ledger().apply_all(&spool, now()).unwrap();
    home.check_sums();
    report::report(&home.db(), &home.spool_dir(), &Query::default()).unwrap();
}
