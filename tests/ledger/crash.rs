//! Lines into rows exactly once: kills, torn lines, twins, several processes.

use super::{Home, beginning, event, files, hex, now};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir::base::EventId;
use weir::meter::{Event, Step};

type Images = Arc<Mutex<Vec<(Step, Home)>>>;

/// Images of the disk at every step of the passes of a ledger that has this probe.
fn images(home: &Arc<Home>) -> (Images, weir::meter::Probe) {
    let taken = Images::default();
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
            image.restart();
            check(&image, true);
            let once = image.lines().values().all(|n| *n == 1);
            assert!(once, "killed at {step:?}, then at {second:?}: spool and ledger agree");
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
fn a_stream_whose_end_is_read_before_its_beginning_is_not_booked_again() {
    let home = Home::new();
    let spool = home.spool();
    let stream = event();
    // A slow writer puts the beginning into the old segment after that was read to its end.
    spool.append(&stream);
    let mut ledger = home.ledger();
    ledger.pass(&spool, now()).unwrap();
    spool.admit(&beginning(&stream));
    ledger.pass(&spool, now()).unwrap();
    drop((ledger, spool));
    home.restart();
    assert_eq!(home.rows(), BTreeMap::from([(hex(&stream), ("success".into(), 3))]));
    assert_eq!(home.lines()[&hex(&stream)], 1);
    assert_eq!(home.query::<i64>("SELECT count(*) FROM admitted"), 0);
}

#[test]
fn a_store_that_locks_in_the_middle_of_booking_books_once_when_it_is_back() {
    let home = Arc::new(Home::new());
    let stream = event();
    let spool = home.spool();
    spool.admit(&beginning(&stream));
    drop(spool);
    let spool = home.spool();
    let lock = Arc::new(Mutex::new(None));
    let (db, into) = (home.db(), Arc::clone(&lock));
    let mut ledger = home.ledger().probe(Box::new(move |step| {
        if step == Step::Booked {
            let other = rusqlite::Connection::open(&db).unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            *into.lock().unwrap() = Some(other);
        }
    }));
    (0..2).for_each(|_| assert!(ledger.pass(&spool, now()).is_err()));
    drop(lock.lock().unwrap().take());
    ledger.pass(&spool, now()).unwrap();
    assert_eq!(home.rows(), BTreeMap::from([(hex(&stream), ("interrupted".into(), 0))]));
    assert_eq!(home.lines()[&hex(&stream)], 1);
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
