//! Birth, reload and death of the process: ports, signals, files, exit codes.

use crate::harness::binary::Tables;
use crate::harness::{Answer, Ask, Client, KEY, Weir, answering, chat, closed_port, found};
use crate::harness::{streamed, toml};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than leaving takes (0.1 s), far less than any grace period or drain.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A config that needs no provider to be up.
fn alone() -> String {
    let nowhere = format!("http://127.0.0.1:{}", closed_port());
    toml::custom("a", "openai", &nowhere, "") + &toml::key()
}

fn with_model(name: &str) -> String {
    alone() + &toml::model(name, &["a/up-model"])
}

fn server(lines: &str) -> Tables {
    Tables { server: lines.into(), ..Tables::default() }
}

/// Waits until readiness has this colour.
async fn becomes(weir: &Weir, ready: bool) {
    let start = Instant::now();
    while (weir.admin("GET", "/health/ready").await.status() == 200) != ready {
        assert!(start.elapsed() < AT_ONCE, "readiness is not {ready}");
    }
}

/// Names of the models that the running config has.
async fn models(weir: &Weir) -> Vec<String> {
    let all = weir.admin("GET", "/admin/v1/models").await.json();
    let named = all["models"].as_array().unwrap().iter().filter(|m| m["source"] == "file");
    named.map(|m| m["name"].as_str().unwrap().to_owned()).collect()
}

async fn until_models(weir: &Weir, want: &str) -> Duration {
    let start = Instant::now();
    while models(weir).await != [want] {
        assert!(start.elapsed() < Duration::from_secs(10), "{want} never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

#[tokio::test]
async fn a_busy_port_is_exit_69_and_named() {
    for admin in [false, true] {
        let mut weir = Weir::prepare(&alone(), Tables::default(), &[]).await;
        let port = if admin { weir.admin } else { weir.port };
        let _other = TcpListener::bind(("127.0.0.1", port)).unwrap();
        weir.run();
        let (status, took) = weir.ended().await;
        assert_eq!(status.code(), Some(69), "{}", weir.stderr());
        let said = format!("cannot listen on 127.0.0.1:{port}");
        assert!(weir.stderr().contains(&said), "{}", weir.stderr());
        assert!(took < AT_ONCE, "{took:?}: no thirty tries");
    }
}

#[tokio::test]
async fn a_spool_that_cannot_be_made_is_exit_69() {
    let mut weir = Weir::prepare(&alone(), Tables::default(), &[]).await;
    std::fs::write(weir.spool(), "a file is in the way").unwrap();
    weir.run();
    let (status, _) = weir.ended().await;
    assert_eq!(status.code(), Some(69));
    assert!(weir.stderr().contains("spool"), "{}", weir.stderr());
}

#[tokio::test]
async fn a_bad_config_is_exit_78_with_every_fault() {
    let bad = "[providers.a]\npreset = \"openia\"\n[keys.k]\nsecrt = \"x\"\n";
    let mut weir = Weir::prepare(bad, Tables::default(), &[]).await;
    weir.run();
    let (status, _) = weir.ended().await;
    assert_eq!(status.code(), Some(78));
    let said = weir.stderr();
    assert!(said.contains("openia") && said.contains("secrt"), "{said}");
    let checked = weir.cli(&["check"]);
    assert_eq!(checked.status.code(), Some(78));
}

#[tokio::test]
async fn port_zero_is_printed_and_served() {
    let weir = Weir::prepare(&alone(), Tables::default(), &[]).await;
    let text = std::fs::read_to_string(weir.config()).unwrap();
    let text = text.replace(&format!("127.0.0.1:{}", weir.port), "127.0.0.1:0");
    let text = text.replace(&format!("127.0.0.1:{}", weir.admin), "[::1]:0");
    std::fs::write(weir.config(), text).unwrap();
    let mut command = bare(weir.path(), &["run"], &[]); // it finds ./weir.toml
    let (mut child, _, port) = printed(&mut command, weir.path()).await;
    // Printed means accepted: no client needs to try twice.
    let reply = Client::connect(port).await.ask(&Ask::get("/health")).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(reply.status(), 200);
}

#[tokio::test]
async fn an_idle_process_leaves_at_once_whatever_its_drain() {
    for signal in [Signal::TERM, Signal::QUIT, Signal::INT] {
        let mut weir = Weir::with(&alone(), server("drain = \"10m\""), &[]).await;
        let _idle = TcpStream::connect(("127.0.0.1", weir.port)).unwrap();
        weir.signal(signal);
        let (status, took) = weir.ended().await;
        assert_eq!(status.code(), Some(0), "{signal:?}: {}", weir.stderr());
        assert!(took < AT_ONCE, "{signal:?}: {took:?}");
    }
}

#[tokio::test]
async fn readiness_is_red_while_requests_are_still_served_then_the_port_closes() {
    let mut weir = Weir::with(&alone(), server("drain_delay = \"1500ms\""), &[]).await;
    becomes(&weir, true).await;
    let start = Instant::now();
    weir.signal(Signal::TERM);
    becomes(&weir, false).await;
    let ready = weir.admin("GET", "/health/ready").await;
    assert_eq!(ready.json()["reasons"][0], "draining");
    assert_eq!(weir.admin("GET", "/health/live").await.status(), 200);
    assert_eq!(weir.ask(&Ask::get("/health")).await.status(), 200, "still served");
    let (status, _) = weir.ended().await;
    assert_eq!(status.code(), Some(0));
    assert!(start.elapsed() >= Duration::from_millis(1500), "the delay is kept");
    assert!(TcpStream::connect(("127.0.0.1", weir.port)).is_err());
}

#[tokio::test]
async fn an_interrupt_ends_a_drain_that_is_under_way() {
    let mut weir = Weir::with(&alone(), server("drain_delay = \"5m\""), &[]).await;
    becomes(&weir, true).await;
    weir.signal(Signal::TERM);
    becomes(&weir, false).await;
    weir.signal(Signal::INT);
    let (status, took) = weir.ended().await;
    assert_eq!(status.code(), Some(0));
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn an_admin_call_drains_like_a_signal() {
    let mut weir = Weir::start(&alone()).await;
    assert_eq!(weir.admin("POST", "/admin/v1/drain").await.status(), 202);
    let (status, took) = weir.ended().await;
    assert_eq!(status.code(), Some(0));
    assert!(took < AT_ONCE, "{took:?}");
}

/// A provider whose streams speak every 50 ms for as long as `words` lasts.
fn slow(words: usize) -> Answer {
    let words = (0..words).map(|i| format!("w{i} ")).collect();
    Answer { words, delay: Duration::from_millis(50), ..Answer::default() }
}

#[tokio::test]
async fn a_running_stream_ends_whole_and_the_process_right_after_it() {
    let far = answering(slow(40)).await;
    let mut weir = Weir::with(&toml::simple(&far), server("drain = \"20s\""), &[]).await;
    let mut client = Client::connect(weir.port).await;
    client.begin(&streamed()).await;
    client.events_until("w1").await;
    weir.signal(Signal::TERM);
    found("a closed port", || TcpStream::connect(("127.0.0.1", weir.port)).err()).await;
    let (rest, _) = client.rest().await;
    assert!(rest.contains("w39") && rest.contains("[DONE]"), "{rest}");
    let (status, took) = weir.ended().await;
    assert_eq!(status.code(), Some(0));
    assert!(took < AT_ONCE, "{took:?} after the last byte");
    assert_eq!(weir.events(1).await[0]["outcome"], "success");
}

#[tokio::test]
async fn at_the_drain_limit_a_stream_gets_an_error_event_and_its_row() {
    for (signal, drain) in [(Signal::TERM, "500ms"), (Signal::INT, "10m")] {
        let far = answering(slow(2_000)).await;
        let tables = server(&format!("drain = \"{drain}\""));
        let mut weir = Weir::with(&toml::simple(&far), tables, &[]).await;
        let mut client = Client::connect(weir.port).await;
        client.begin(&streamed()).await;
        client.events_until("w1").await;
        weir.signal(signal);
        let (rest, _) = client.rest().await;
        assert!(rest.contains("\"error\"") && !rest.contains("[DONE]"), "{signal:?}: {rest}");
        let (status, took) = weir.ended().await;
        assert_eq!(status.code(), Some(0));
        assert!(took < AT_ONCE, "{signal:?}: {took:?}");
        let event = &weir.events(1).await[0];
        assert_eq!(event["outcome"], "interrupted", "{event}");
        assert!(event["output_tokens"].as_u64().unwrap() > 0, "{event}");
    }
}

#[tokio::test]
async fn what_was_answered_right_before_the_end_is_in_the_ledger() {
    let far = answering(Answer::default()).await;
    let mut weir = Weir::start(&toml::simple(&far)).await;
    let mut client = Client::connect(weir.port).await;
    for _ in 0..100 {
        assert_eq!(client.ask(&chat()).await.status(), 200);
    }
    let (status, _) = weir.stop().await;
    assert_eq!(status.code(), Some(0));
    let report = weir.report("model");
    assert_eq!(report["total"]["requests"], 100, "{report}");
    assert_eq!(report["lag_events"], 0, "{report}");
}

#[tokio::test]
async fn a_hangup_takes_a_sound_file_and_refuses_a_broken_one() {
    let weir = Weir::start(&with_model("one")).await;
    assert_eq!(models(&weir).await, ["one"]);
    weir.write(&with_model("two"));
    weir.signal(Signal::HUP);
    until_models(&weir, "two").await;
    let count = async |result| {
        let labels = [("result", result)];
        weir.metric("weir_config_reloads_total", &labels).await.unwrap()
    };
    let (good, bad) = (count("ok").await, count("error").await);
    assert!(good >= 1.0 && bad == 0.0, "{good} {bad}");
    let version = weir.metric("weir_config_version", &[]).await.unwrap();
    weir.write(&(with_model("three") + "[models.\"broken\n"));
    weir.signal(Signal::HUP);
    let start = Instant::now();
    while count("error").await <= bad {
        assert!(start.elapsed() < AT_ONCE, "the refusal is not counted");
    }
    assert_eq!(models(&weir).await, ["two"], "the old one stays in force");
    assert_eq!(weir.metric("weir_config_version", &[]).await, Some(version));
    assert!(weir.stderr().contains("weir.toml:"), "{}", weir.stderr());
}

#[tokio::test]
async fn a_changed_file_is_taken_without_a_signal() {
    let weir = Weir::start(&with_model("one")).await;
    weir.write(&with_model("two"));
    let took = until_models(&weir, "two").await;
    assert!(took < Duration::from_secs(4), "{took:?}, two seconds are promised");
}

#[tokio::test]
async fn a_reload_by_call_tells_its_result_and_what_needs_a_restart() {
    let mut weir = Weir::start(&with_model("one")).await;
    let old = weir.port;
    weir.port = closed_port();
    weir.write(&with_model("two"));
    weir.port = old;
    let reply = weir.admin("POST", "/admin/v1/reload").await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    assert_eq!(reply.json()["needs_restart"], serde_json::json!(["server.listen"]));
    assert_eq!(models(&weir).await, ["two"], "the rest is taken");
    assert!(weir.stderr().contains("needs restart: server.listen"), "{}", weir.stderr());
    assert_eq!(weir.ask(&Ask::get("/health")).await.status(), 200, "the old port serves");
    weir.write("[keys.k]\nsecrt = \"x\"\n");
    let reply = weir.admin("POST", "/admin/v1/reload").await;
    assert_eq!((reply.status(), &reply.json()["error"]["code"]), (422, &"invalid_config".into()));
    let faults = reply.json()["faults"].as_array().unwrap().clone();
    assert!(faults.iter().any(|f| f["key"] == "keys.k.secrt" && f["line"].as_u64() > Some(0)));
}

#[tokio::test]
async fn log_files_are_reopened_on_a_signal() {
    let weir = Weir::start(&alone()).await;
    let (log, old) = (weir.path().join("access.log"), weir.path().join("access.1"));
    std::fs::rename(&log, &old).unwrap();
    assert_eq!(weir.ask(&chat().key("sk-wrong")).await.status(), 401);
    // A line follows its answer: it must be in the old file before there is a new one.
    let lines = || std::fs::read_to_string(&old).unwrap_or_default().lines().count();
    found("a line in the old file", || (lines() == 1).then_some(())).await;
    weir.signal(Signal::USR1);
    found("a new log file", || log.exists().then_some(())).await;
    assert_eq!(weir.ask(&chat().key("sk-wrong")).await.status(), 401);
    found("a line in it", || (weir.access().len() == 1).then_some(())).await;
    assert_eq!(lines(), 1);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_let_go_and_a_short_request_is_answered() {
    let weir = Weir::with(&alone(), server("header = \"300ms\""), &[]).await;
    let mut silent = Client::connect(weir.port).await;
    assert!(silent.closed().await, "closed by us");
    // 18 bytes, fewer than an h2 preface has.
    let mut short = Client::connect(weir.port).await;
    short.send(b"GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(short.head().await.status, 200);
}

#[tokio::test]
async fn bad_usage_is_exit_64_and_later_versions_say_so() {
    let weir = Weir::prepare(&alone(), Tables::default(), &[]).await;
    let check = |arguments: &[&str], said: &str| {
        let out = weir.cli(arguments);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(64), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    };
    check(&["frobnicate"], "frobnicate");
    check(&["run", "--upgrade"], "not in this version");
    check(&["check", "--online"], "not in this version");
    check(&["keys", "create"], "--name");
    check(&["vault", "set"], "NAME");
    check(&["report", "--by", "nonsense"], "nonsense");
    check(&["report", "--since", "2026-02-01", "--until", "2026-01-01"], "is after until");
    check(&["report", "--currency", "XYZ"], "no rate in [currency]; there are USD");
    let good = weir.cli(&["check"]);
    assert_eq!(good.status.code(), Some(0), "{}", String::from_utf8_lossy(&good.stderr));
}

#[tokio::test]
async fn a_hash_made_by_the_command_opens() {
    use std::io::Write;
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["keys", "hash"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{KEY}").unwrap();
    let out = child.wait_with_output().unwrap();
    let hash = String::from_utf8(out.stdout).unwrap();
    let far = answering(Answer::default()).await;
    let config = toml::simple(&far)
        .replace(&format!("secret = \"{KEY}\""), &format!("hash = \"{}\"", hash.trim()));
    let weir = Weir::start(&config).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
}

/// The binary in an empty folder and an empty environment but for these variables.
fn bare(folder: &std::path::Path, arguments: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).current_dir(folder).env_clear().env("TMPDIR", folder);
    command.envs(env.iter().copied()).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs it until it has printed where it listens; what it printed, and the port.
async fn printed(command: &mut Command, folder: &std::path::Path) -> (Child, String, u16) {
    let path = folder.join("out");
    let child = command.stdout(std::fs::File::create(&path).unwrap()).spawn().unwrap();
    let all = found("a printed port", || {
        let text = std::fs::read_to_string(&path).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("listening on http://127.0.0.1:"))?;
        let port = line.parse().unwrap();
        Some((text, port))
    });
    let (text, port) = all.await;
    (child, text, port)
}

#[tokio::test]
async fn a_start_without_config_or_keys_says_what_to_set() {
    let folder = tempfile::tempdir().unwrap();
    let out = bare(folder.path(), &["run"], &[]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(out.status.code(), Some(78));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("OPENAI_API_KEY") && said.contains("weir demo"), "{said}");
}

#[tokio::test]
async fn the_demo_answers_the_line_it_prints() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bare(folder.path(), &["demo"], &[]);
    let (mut child, text, port) = printed(&mut command, folder.path()).await;
    let ask = chat().key(weir::demo::KEY).model("gpt-4o-mini");
    let reply = Client::connect(port).await.ask(&ask).await;
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = found("its end", || child.try_wait().unwrap()).await;
    assert_eq!((reply.status(), status.code()), (200, Some(0)));
    assert!(text.contains(&format!("curl http://127.0.0.1:{port}/v1/chat/completions")), "{text}");
}

/// What an idle process may have of its own, in KiB: tables, buffers, threads' stacks.
const IDLE_KIB_MAX: u64 = 16 << 10;

#[tokio::test]
async fn an_idle_process_is_small_and_asks_for_no_huge_pages() {
    let weir = Weir::start(&alone()).await;
    becomes(&weir, true).await;
    let path = format!("/proc/{}/status", weir.pid().as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap();
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    assert!(value("RssAnon:") < IDLE_KIB_MAX, "{} KiB", value("RssAnon:"));
    // Many small streams fill none of them: they would double what a stream weighs.
    assert_eq!(value("THP_enabled:"), 0);
}
