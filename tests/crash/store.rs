//! The ledger's database: damaged, or in another's hands.

use super::disk::Small;
use super::*;
use std::fs;
use std::time::Duration;

#[tokio::test]
async fn a_damaged_database_stops_the_start_and_the_spool_fills_a_new_one() {
    let provider = answering(Answer::default()).await;
    let mut weir = Weir::start(&toml::simple(&provider)).await;
    for _ in 0..3 {
        assert_eq!(weir.ask(&chat()).await.status(), 200);
    }
    rows(&weir, 3).await;
    weir.kill().await;
    let db = weir.path().join("weir.db");
    for tail in ["-wal", "-shm"] {
        let _ = fs::remove_file(weir.path().join(format!("weir.db{tail}")));
    }
    fs::write(&db, "no database at all\n".repeat(500)).unwrap();
    weir.run();
    let (status, _) = weir.ended().await;
    assert_eq!(status.code(), Some(69));
    let text = weir.stderr();
    assert!(text.contains(&db.display().to_string()) && text.contains("spool"), "{text}");
    fs::remove_file(&db).unwrap();
    weir.run();
    weir.ready().await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!(rows(&weir, 4).await.len(), 4);
    assert_eq!(summed(&weir), 4);
}

#[tokio::test]
async fn a_database_in_anothers_hands_holds_up_no_request() {
    let provider = answering(Answer::default()).await;
    let mut weir = Weir::start(&toml::simple(&provider)).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    rows(&weir, 1).await;
    let other = rusqlite::Connection::open(weir.path().join("weir.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..5 {
        assert_eq!(weir.ask(&streamed()).await.status(), 200);
    }
    let start = std::time::Instant::now();
    // Five streams are ten lines: each was admitted, and each has its event.
    while weir.metric("weir_ledger_lag_events", &[]).await < Some(10.0)
        || weir.metric("weir_store_up", &[]).await != Some(0.0)
    {
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ready = weir.admin("GET", "/health/ready").await;
    assert!(ready.status() == 200 && ready.text().contains("store_down"), "{}", ready.text());
    assert_eq!(ledger(&weir).len(), 1);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&weir, 6).await.len(), 6);
    // A kill while it is locked loses nothing either.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    weir.kill().await;
    weir.run();
    weir.ready().await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&weir, 8).await.len(), 8);
    assert_eq!(summed(&weir), 8);
}

/// A gateway whose database is on a small disk of its own; not started.
async fn apart(provider: &Provider) -> Option<(Weir, Small)> {
    let weir = Weir::prepare(&toml::simple(provider), Tables::default(), &[]).await;
    let disk = Small::mount(weir.path().join("disk"), "1m")?;
    std::os::unix::fs::symlink(disk.0.join("weir.db"), weir.path().join("weir.db")).unwrap();
    Some((weir, disk))
}

#[tokio::test]
async fn a_database_on_a_full_disk_costs_no_request_and_no_event() {
    let provider = answering(Answer::default()).await;
    let Some((mut weir, disk)) = apart(&provider).await else { return };
    weir.run();
    weir.ready().await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    rows(&weir, 1).await;
    disk.fill();
    let mut asked = 1;
    while weir.metric("weir_store_up", &[]).await != Some(0.0) {
        assert!(asked < 2_000, "a full disk takes every row");
        assert_eq!(weir.ask(&chat()).await.status(), 200);
        asked += 1;
    }
    let ready = weir.admin("GET", "/health/ready").await;
    assert!(ready.status() == 200 && ready.text().contains("store_down"), "{}", ready.text());
    for _ in 0..5 {
        assert_eq!(weir.ask(&streamed()).await.status(), 200);
    }
    disk.free();
    assert_eq!(rows(&weir, asked + 5).await.len(), asked + 5);
    assert_eq!(weir.metric("weir_events_lost_total", &[]).await, Some(0.0));
    assert_eq!(summed(&weir), asked as u64 + 5);
}

#[tokio::test]
async fn a_database_on_a_read_only_disk_stops_the_start_and_names_itself() {
    let provider = answering(Answer::default()).await;
    let Some((mut weir, disk)) = apart(&provider).await else { return };
    weir.run();
    weir.ready().await;
    weir.stop().await;
    let mut remount = std::process::Command::new("mount");
    assert!(remount.args(["-o", "remount,ro"]).arg(&disk.0).status().unwrap().success());
    weir.run();
    let (status, _) = weir.ended().await;
    let said = weir.stderr();
    assert_eq!(status.code(), Some(69), "{said}");
    assert!(said.contains("weir.db") && said.contains("ead-only"), "{said}");
}

#[tokio::test]
async fn a_spool_of_a_later_version_is_named_and_counted_and_keeps_nobody_from_starting() {
    let provider = answering(Answer::default()).await;
    let mut weir = Weir::prepare(&toml::simple(&provider), Tables::default(), &[]).await;
    std::fs::create_dir(weir.spool()).unwrap();
    let name = "019ad4c0-0000-7000-8000-000000000000-7.jsonl";
    let text = "{\"weir_spool\":9}\n{\"what\":\"is not known\"}\n";
    std::fs::write(weir.spool().join(name), text).unwrap();
    weir.run();
    weir.ready().await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!(weir.metric("weir_spool_later_segments", &[]).await, Some(1.0));
    assert_eq!(weir.metric("weir_store_up", &[]).await, Some(1.0));
    let log = weir.stderr();
    assert_eq!(log.matches("a later version of weir wrote it").count(), 1, "{log}");
    assert!(log.contains(name), "{log}");
    weir.stop().await;
    assert_eq!(std::fs::read_to_string(weir.spool().join(name)).unwrap(), text);
}
