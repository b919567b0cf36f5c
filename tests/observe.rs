//! What operators see of a running gateway: metrics that stay small, logs that hold no secret.

use crate::harness::binary::Tables;
use crate::harness::{Answer, Ask, Client, KEY, PATIENCE, Weir, answering, chat, closed_port};
use crate::harness::{found, toml};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

fn labels(text: &str, name: &str, label: &str) -> BTreeSet<String> {
    let start = format!("{label}=\"");
    let named = text.lines().filter(|l| l.starts_with(&format!("{name}{{")));
    named.filter_map(|l| Some(l.split_once(&start)?.1.split_once('"')?.0.to_owned())).collect()
}

async fn metrics(weir: &Weir) -> String {
    weir.admin("GET", "/metrics").await.text()
}

/// Waits until a metric has this value: a request is told after its last byte has left.
async fn counted(weir: &Weir, name: &str, labels: &[(&str, &str)], want: f64) {
    let start = Instant::now();
    loop {
        let got = weir.metric(name, labels).await;
        if got == Some(want) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{name} {labels:?}: {got:?} for {want}");
    }
}

fn alone() -> String {
    let nowhere = format!("http://127.0.0.1:{}", closed_port());
    let provider = toml::custom("a", "openai", &nowhere, "retry = { attempts = 1 }");
    provider + &toml::key() + &toml::model("m", &["a/up-model"])
}

#[tokio::test]
async fn a_thousand_random_paths_are_one_label() {
    let weir = Weir::start(&alone()).await;
    let mut client = Client::connect(weir.port).await;
    for i in 0..1_000 {
        let ask = Ask::raw("GET", &format!("/scan-{i}/x?key=sk-{i}"), Bytes::new());
        assert_eq!(client.ask(&ask).await.status(), 404);
    }
    counted(&weir, "weir_requests_total", &[("status_class", "4xx")], 1_000.0).await;
    let text = metrics(&weir).await;
    let other = BTreeSet::from(["other".to_owned()]);
    assert_eq!(labels(&text, "weir_requests_total", "endpoint"), other);
    assert!(!text.contains("scan-"));
}

#[tokio::test]
async fn random_users_and_models_mint_no_series() {
    let far = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&far)).await;
    let mut client = Client::connect(weir.port).await;
    let lines = async |weir: &Weir| metrics(weir).await.lines().count();
    assert_eq!(client.ask(&chat()).await.status(), 200);
    assert_eq!(client.ask(&chat().model("no-such-model")).await.status(), 404);
    counted(&weir, "weir_requests_total", &[], 2.0).await;
    let before = lines(&weir).await;
    for i in 0..200 {
        let ask = chat().set("user", format!("user-{i}"));
        assert_eq!(client.ask(&ask).await.status(), 200);
        let ask = chat().model(&format!("no-such-model-{i}"));
        assert_eq!(client.ask(&ask).await.status(), 404);
    }
    counted(&weir, "weir_requests_total", &[], 402.0).await;
    assert_eq!(lines(&weir).await, before, "{}", metrics(&weir).await);
    let text = metrics(&weir).await;
    assert!(!text.contains("user-1") && !text.contains("no-such-model"), "{text}");
}

/// Tables as the module that shows them lists them.
fn listed() -> BTreeSet<String> {
    let text = include_str!("../src/observe/tables.rs");
    let rows = text.lines().filter_map(|l| l.strip_prefix("//! | `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).filter(|name| name != "table").collect()
}

#[tokio::test]
async fn every_table_shows_how_full_it_is_and_none_is_beyond_its_ceiling() {
    let far = answering(Answer::default()).await;
    // Any name is a model of `a`, and each makes a target.
    let provider = toml::openai("a", &far).replace("up-model", "*");
    let key = toml::key() + "limits = { rpm = 100000 }\n";
    let weir = Weir::start(&[provider, key].concat()).await;
    let mut client = Client::connect(weir.port).await;
    let models = 1_100;
    for i in 0..models {
        let reply = client.ask(&chat().model(&format!("a/model-{i}"))).await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
    }
    counted(&weir, "weir_requests_total", &[], f64::from(models)).await;
    let text = metrics(&weir).await;
    let tables = listed();
    assert_eq!(labels(&text, "weir_table_entries", "table"), tables);
    assert_eq!(labels(&text, "weir_table_entries_max", "table"), tables);
    for table in &tables {
        let of = async |name: &str| weir.metric(name, &[("table", table)]).await.unwrap();
        let (entries, max) = (of("weir_table_entries").await, of("weir_table_entries_max").await);
        assert!(entries <= max, "{table}: {entries} of {max}");
    }
    let full = async |table: &str| weir.metric("weir_table_entries", &[("table", table)]).await;
    assert_eq!(full("learned_outputs").await, Some(1_000.0));
    assert_eq!(full("targets").await, Some(1_001.0), "and one state for all others");
    assert_eq!(full("request_body_bytes").await, Some(0.0));
    assert!(full("limit_counters").await >= Some(1.0));
}

#[tokio::test]
async fn connections_beyond_their_ceiling_are_closed_and_those_below_it_served() {
    let far = answering(Answer::default()).await;
    let tables = Tables { server: "max_requests = 10".into(), ..Tables::default() };
    let weir = Weir::with(&toml::simple(&far), tables, &[]).await;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: files.maximum, maximum: files.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).unwrap();
    if files.maximum.is_some_and(|n| n < 4_096) {
        return crate::harness::skip("this test needs 4096 files");
    }
    let mut open = Vec::new();
    for _ in 0..1_100 {
        open.push(Client::connect(weir.port).await);
    }
    // 1024 are few enough to be let in whatever `max_requests` says; ours may share them with a
    // probe of the harness.
    let start = Instant::now();
    while weir.metric("weir_connections_refused_total", &[]).await < Some(76.0) {
        assert!(start.elapsed() < PATIENCE, "connections above the ceiling stay open");
    }
    assert!(weir.metric("weir_open_connections", &[]).await <= Some(1_024.0));
    assert_eq!(weir.stderr().matches("too many client connections").count(), 1);
    let first = open.first_mut().unwrap();
    assert_eq!(first.ask(&chat()).await.status(), 200, "who was there before is served");
    assert!(open.last_mut().unwrap().closed().await);
    open.truncate(500);
    counted_at_most(&weir, "weir_open_connections", 600.0).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
}

async fn counted_at_most(weir: &Weir, name: &str, most: f64) {
    let start = Instant::now();
    while weir.metric(name, &[]).await > Some(most) {
        assert!(start.elapsed() < PATIENCE, "{name} stays above {most}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_request_moves_its_metrics_by_what_it_used() {
    let far = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&far)).await;
    for _ in 0..3 {
        assert_eq!(weir.ask(&chat()).await.status(), 200);
    }
    let check = async |name: &str, labels: &[(&str, &str)], want: f64| {
        counted(&weir, name, labels, want).await;
    };
    let served = [("model", "up-model"), ("provider", "a"), ("team", "crew")];
    check("weir_requests_total", &served, 3.0).await;
    let class = [("endpoint", "chat"), ("status_class", "2xx"), ("outcome", "success")];
    check("weir_requests_total", &class, 3.0).await;
    check("weir_tokens_total", &[served[0], ("type", "input")], 27.0).await;
    check("weir_tokens_total", &[served[0], ("type", "output")], 9.0).await;
    // 9 × 1 USD + 3 × 2 USD a million, three times.
    check("weir_cost_usd_total", &served, 0.000_045).await;
    check("weir_upstream_attempts_total", &[("provider", "a"), ("outcome", "success")], 3.0).await;
    check("weir_in_flight", &[], 0.0).await;
    check("weir_store_up", &[], 1.0).await;
}

#[tokio::test]
async fn every_refusal_is_in_the_access_log_and_counted() {
    let far = answering(Answer::default()).await;
    let body = Tables { server: "max_body = \"1KiB\"".into(), ..Tables::default() };
    let weir = Weir::with(&toml::simple(&far), body, &[]).await;
    let asks = [
        (chat().body("{not json"), 400),
        (chat().key("sk-nobody"), 401),
        (chat().model("nothing"), 404),
        (Ask::raw("GET", "/nowhere", Bytes::new()), 404),
        (chat().say(&"x".repeat(4_000)), 413),
    ];
    for (ask, status) in &asks {
        assert_eq!(weir.ask(ask).await.status(), *status);
    }
    let lines = found("five lines", || Some(weir.access()).filter(|l| l.len() >= asks.len())).await;
    // A line is written after the reply has left, so lines of several connections may cross.
    let mut logged: Vec<_> = lines.iter().map(|l| l["status"].as_u64().unwrap()).collect();
    let mut asked: Vec<_> = asks.iter().map(|(_, status)| u64::from(*status)).collect();
    logged.sort_unstable();
    asked.sort_unstable();
    assert_eq!(logged, asked);
    for line in &lines {
        assert!(line["outcome"] == "refused" && line["code"].is_string(), "{line}");
    }
    counted(&weir, "weir_requests_total", &[("outcome", "refused")], 5.0).await;
}

#[tokio::test]
async fn no_secret_no_prompt_and_no_reply_reach_a_log_or_a_metric() {
    let words = vec!["reply-marker".to_owned()];
    let far = answering(Answer { words, ..Answer::default() }).await;
    let log = "level = \"trace\"".to_owned();
    let weir = Weir::with(&toml::simple(&far), Tables { log, ..Tables::default() }, &[]).await;
    let ask = chat().say("prompt-marker").with("user-agent", "agent sk-agent-secret-1");
    assert_eq!(weir.ask(&ask).await.status(), 200);
    let wrong = chat().key("sk-wrong-secret-77").model("sk-leak-attempt-77aa");
    assert_eq!(weir.ask(&wrong).await.status(), 401);
    let query = Ask::raw("GET", "/v1/nothing?key=sk-query-secret-5", Bytes::new());
    assert_eq!(weir.ask(&query).await.status(), 404);
    found("three lines", || (weir.access().len() >= 3).then_some(())).await;
    let access = std::fs::read_to_string(weir.path().join("access.log")).unwrap();
    let own = weir.stderr();
    let metrics = metrics(&weir).await;
    for marker in [
        "prompt-marker",
        "reply-marker",
        "agent-secret",
        "wrong-secret",
        "leak-attempt",
        "query-secret",
        "sk-upstream-a",
        KEY,
        "admin-secret",
    ] {
        assert!(!access.contains(marker), "{marker} in {access}");
        assert!(!metrics.contains(marker), "{marker} in {metrics}");
        let line = own.lines().find(|l| l.contains(marker));
        assert_eq!(line, None, "{marker}");
    }
}

#[tokio::test]
async fn access_lines_go_to_standard_error_as_json_or_nowhere() {
    for access in ["stderr", "off"] {
        let mut weir = Weir::prepare(&alone(), Tables::default(), &[]).await;
        let text = std::fs::read_to_string(weir.config()).unwrap();
        let file = format!("access = \"{}/access.log\"", weir.path().display());
        let text = text.replace(&file, &format!("access = \"{access}\""));
        std::fs::write(weir.config(), text).unwrap();
        weir.run();
        weir.ready().await;
        assert_eq!(weir.ask(&chat().key("sk-nobody")).await.status(), 401);
        weir.stop().await;
        let said = weir.stderr();
        let lines = said.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let requests: Vec<_> = lines.filter(|l| l["request_id"].is_string()).collect();
        assert_eq!(requests.len(), usize::from(access == "stderr"), "{access}: {said}");
        assert!(!weir.path().join("access.log").exists());
    }
}

#[tokio::test]
async fn an_outage_does_not_fill_the_log() {
    let weir = Weir::start(&alone()).await;
    for _ in 0..500 {
        // 502 until the breaker opens, then 503 without a call.
        assert!(matches!(weir.ask(&chat()).await.status(), 502 | 503));
    }
    let own = weir.stderr();
    assert!(own.len() < 64 << 10, "{} bytes for 500 failures:\n{own}", own.len());
}

#[tokio::test]
async fn a_log_that_nobody_reads_holds_no_request_up() {
    let weir = Weir::prepare(&alone(), Tables::default(), &[]).await;
    let text = std::fs::read_to_string(weir.config()).unwrap();
    let file = format!("access = \"{}/access.log\"", weir.path().display());
    std::fs::write(weir.config(), text.replace(&file, "access = \"stderr\"")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["run", "--config"])
        .arg(weir.config())
        .current_dir(weir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    found("a listening gateway", || TcpStream::connect(("127.0.0.1", weir.port)).ok()).await;
    // Three times what a pipe holds, and nobody reads.
    let mut client = Client::connect(weir.port).await;
    for _ in 0..500 {
        assert_eq!(client.ask(&chat().key("sk-nobody")).await.status(), 401);
    }
    let lost = weir.metric("weir_log_lines_lost_total", &[]).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(lost > Some(0.0), "{lost:?}: what could not be written is counted");
}
