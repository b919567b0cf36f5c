//! Segments of an earlier and of a later version than this one.

use super::{Home, event, files, hex, now};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// A segment of another process: a head or none, and one event.
fn segment(home: &Home, head: &str, event: &weir::meter::Event) -> PathBuf {
    fs::create_dir_all(home.spool_dir()).unwrap();
    let path = home.spool_dir().join(format!("{}-1.jsonl", Uuid::now_v7()));
    fs::write(&path, format!("{head}{}\n", serde_json::to_string(event).unwrap())).unwrap();
    path
}

#[test]
fn every_segment_says_its_version_in_its_first_line_and_only_there() {
    let home = Home::new();
    let spool = home.spool();
    spool.append(&event());
    spool.tick(std::time::Instant::now() + Duration::from_secs(7200));
    spool.append(&event());
    let all = files(&home.spool_dir());
    assert_eq!(all.len(), 2);
    for file in all {
        let text = fs::read_to_string(file).unwrap();
        let heads: Vec<bool> = text.lines().map(|l| l == r#"{"weir_spool":1}"#).collect();
        assert_eq!(heads, [true, false], "{text}");
    }
    home.ledger().apply_all(&spool, now()).unwrap();
    assert_eq!((home.rows().len(), spool.stats().lag(), spool.stats().skipped()), (2, 0, 0));
}

#[test]
fn a_segment_from_before_there_were_heads_is_booked() {
    let home = Home::new();
    let old = event();
    segment(&home, "", &old);
    home.restart();
    assert_eq!(home.rows(), BTreeMap::from([(hex(&old), ("success".into(), 3))]));
}

#[test]
fn a_segment_of_a_later_version_is_left_alone_and_booked_after_an_upgrade() {
    let home = Home::new();
    let (ours, theirs) = (event(), event());
    let path = segment(&home, "{\"weir_spool\":2,\"more\":true}\n", &theirs);
    let text = fs::read_to_string(&path).unwrap();
    let spool = home.spool();
    spool.append(&ours);
    let mut ledger = home.ledger().spool_keep(Duration::ZERO);
    for _ in 0..3 {
        ledger.pass(&spool, now()).unwrap();
    }
    let row = |e| (hex(e), ("success".to_string(), 3));
    assert_eq!(home.rows(), BTreeMap::from([row(&ours)]), "what it means is not known");
    let stats = spool.stats();
    assert_eq!((stats.later(), stats.lag(), stats.skipped()), (1, 0, 0));
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "not a byte of it is touched");
    // To the version that it is of, it is a segment like any other.
    fs::write(&path, text.replace("{\"weir_spool\":2,\"more\":true}", "{\"weir_spool\":1}"))
        .unwrap();
    ledger.pass(&spool, now()).unwrap();
    assert_eq!(home.rows(), BTreeMap::from([row(&ours), row(&theirs)]));
    assert_eq!(stats.later(), 0);
    home.check_sums();
    ledger.pass(&spool, now()).unwrap();
    assert!(!path.exists(), "and makes way like any other");
}
