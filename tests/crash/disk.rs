//! The spool's disk: full, gone, or never writable.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system of its own under a gateway's spool.
pub(super) struct Small(pub(super) PathBuf);

impl Small {
    /// `None` (after [`skip`]) where nobody may mount.
    pub(super) fn mount(path: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let size = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path);
        if !mount.status().is_ok_and(|s| s.success()) {
            skip("a full disk needs the right to mount one");
            return None;
        }
        Some(Self(path))
    }
    /// Takes all the space that is left.
    pub(super) fn fill(&self) {
        let filler = vec![0; 4096];
        for i in 0.. {
            if fs::write(self.0.join(format!("filler-{i}")), &filler).is_err() {
                return;
            }
        }
    }
    /// Gives it back.
    pub(super) fn free(&self) {
        for entry in fs::read_dir(&self.0).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_string_lossy().starts_with("filler") {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn lost(weir: &Weir) -> f64 {
    weir.metric("weir_events_lost_total", &[]).await.expect("weir_events_lost_total")
}

/// Readiness on both sides: status, and what the admin side says.
async fn ready(weir: &Weir) -> (u16, String) {
    let admin = weir.admin("GET", "/health/ready").await;
    let client = weir.ask(&Ask::get("/health/ready")).await;
    assert_eq!((client.status(), client.json()), (admin.status(), admin.json()));
    (admin.status(), admin.text())
}

async fn ready_again(weir: &Weir) {
    let start = std::time::Instant::now();
    while weir.admin("GET", "/health/ready").await.status() != 200 {
        assert!(start.elapsed() < PATIENCE, "never ready again: {}", weir.stderr());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(ready(weir).await.0, 200);
}

/// Asks until an event is lost; every answer is whole. How many were asked.
async fn ask_until_lost(weir: &Weir) -> usize {
    let before = lost(weir).await;
    for n in 1..200 {
        let ask = if n % 2 == 0 { chat() } else { streamed() };
        let reply = weir.ask(&ask).await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
        if lost(weir).await > before {
            return n;
        }
    }
    panic!("nothing was lost on a full disk");
}

#[tokio::test]
async fn on_a_full_disk_requests_go_on_losses_are_counted_and_readiness_tells() {
    let provider = answering(Answer::default()).await;
    let mut weir = Weir::prepare(&toml::simple(&provider), Tables::default(), &[]).await;
    let Some(disk) = Small::mount(weir.spool(), "128k") else { return };
    weir.run();
    weir.ready().await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    rows(&weir, 1).await;
    disk.fill();
    let mut asked = 1 + ask_until_lost(&weir).await;
    let (status, text) = ready(&weir).await;
    assert!(status == 503 && text.contains("spool_failing"), "{text}");
    asked += ask_until_lost(&weir).await;
    let lines = weir.stderr().lines().filter(|l| l.contains("requests go on")).count();
    assert!((1..=2).contains(&lines), "said once a minute, not {lines} times");
    // No request comes to a gateway that is not ready: it must heal by itself.
    disk.free();
    ready_again(&weir).await;
    let gone = lost(&weir).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!(weir.ask(&streamed()).await.status(), 200);
    assert_eq!(lost(&weir).await, gone, "nothing more is lost");
    // Every event but the lost ones is in the ledger, once; half lines harm none of them.
    let kept = asked + 2 - gone as usize;
    assert_eq!(rows(&weir, kept).await.len(), kept);
    assert!(ledger(&weir).values().all(|r| r.outcome == "success"));
    // The way out does not wait for a disk either.
    disk.fill();
    ask_until_lost(&weir).await;
    let (status, _) = weir.stop().await;
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_spool_that_is_deleted_under_the_gateway_is_made_again() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    rows(&weir, 1).await;
    fs::remove_dir_all(weir.spool()).unwrap();
    // What is written until it is made again is gone with the old one.
    let start = std::time::Instant::now();
    while ledger(&weir).len() < 2 {
        assert!(start.elapsed() < PATIENCE, "no new spool: {}", weir.stderr());
        assert_eq!(weir.ask(&chat()).await.status(), 200);
    }
    assert!(weir.spool().is_dir());
    assert_eq!(ready(&weir).await.0, 200);
}

/// A start that must fail: its exit code, and what it said.
async fn refused(weir: &mut Weir) -> String {
    weir.run();
    let (status, _) = weir.ended().await;
    assert_eq!(status.code(), Some(69), "{}", weir.stderr());
    weir.stderr()
}

#[tokio::test]
async fn a_spool_that_cannot_be_written_stops_the_start_and_names_itself() {
    let provider = answering(Answer::default()).await;
    let mut weir = Weir::prepare(&toml::simple(&provider), Tables::default(), &[]).await;
    fs::write(weir.spool(), "a file, not a folder").unwrap();
    let named = |text: &str, path: &Path| text.contains(&path.display().to_string());
    let text = refused(&mut weir).await;
    assert!(named(&text, &weir.spool()), "{text}");
    fs::remove_file(weir.spool()).unwrap();
    let Some(disk) = Small::mount(weir.spool(), "128k") else { return };
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
    assert!(remount.is_ok_and(|s| s.success()));
    let text = refused(&mut weir).await;
    assert!(named(&text, &weir.spool()) && text.contains("ead-only"), "{text}");
}
