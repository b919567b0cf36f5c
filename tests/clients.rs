//! The official SDKs, unmodified, against the binary in front of the scripted provider.

use crate::harness::{self, KEY, Weir, knobs, skip, toml};
use std::path::PathBuf;
use std::process::Command;

/// What `tests/clients/chat.py` runs for each model, and once.
const CHECKS: usize = 2 * 13 + 2;

/// The environment with the SDKs, made when it is not there. `None`, after [`skip`], when it
/// cannot be.
fn python() -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let venv = root.join("target/venv");
    let made = Command::new(root.join("tests/clients/venv")).arg(&venv).output();
    match made {
        Ok(output) if output.status.success() => Some(venv.join("bin/python")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            skip(&format!("the SDKs cannot be installed: {said}"));
            None
        }
        Err(e) => {
            skip(&format!("the SDKs cannot be installed: {e}"));
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_python_sdk_works_unmodified() {
    let Some(python) = python() else { return };
    let provider = harness::provider(knobs()).await;
    let config = [
        toml::openai("a", &provider),
        toml::anthropic("b", &provider),
        toml::model("gpt", &["a/up-model"]),
        toml::model("claude", &["b/up-model"]),
        // A 429 rests a credential for a model: the checks after it ask another one.
        toml::model("gpt-limited", &["a/limited"]),
        toml::model("claude-limited", &["b/limited"]),
        toml::key(),
    ];
    let weir = Weir::start(&config.concat()).await;
    let mut command = Command::new(python);
    command.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients/chat.py")).args([
        &format!("http://127.0.0.1:{}/v1", weir.port),
        KEY,
        "gpt",
        "claude",
    ]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}\n{log}");
    assert_eq!(said.lines().filter(|l| l.starts_with("ok ")).count(), CHECKS, "{said}");

    let asked_once =
        |seen: &harness::Seen| String::from_utf8_lossy(&seen.request.body).contains("once=1");
    let hits = provider.requests().iter().filter(|s| asked_once(s)).count();
    assert_eq!(hits, 2, "one request for each model, x-should-retry: false was obeyed");
    let leaked = provider
        .requests()
        .into_iter()
        .find(|s| s.request.headers.iter().any(|(_, value)| value.contains(KEY)));
    assert!(leaked.is_none(), "the caller's key went upstream: {leaked:?}");
}

/// Runs a script of `tests/clients` that starts the binary by itself, and holds its count.
async fn script(name: &str, more: &[PathBuf], least: u64) {
    let Some(python) = python() else { return };
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name);
    let mut command = Command::new(python);
    command.arg(path).arg(env!("CARGO_BIN_EXE_weir")).args(more);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let faults: Vec<_> = said.lines().filter(|line| !line.starts_with("ok ")).collect();
    assert!(output.status.success(), "{faults:#?}\n{log}");
    let passed = faults.last().and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    assert!(passed.is_some_and(|passed| passed >= least), "{faults:?}");
}

#[tokio::test]
async fn what_deviant_providers_send_is_repaired_or_a_clear_error_for_the_python_sdks() {
    script("strict.py", &[], 180).await;
}

#[tokio::test]
async fn tool_loops_of_the_python_sdks_survive_every_wire_and_every_change_of_it() {
    script("loops.py", &[], 90).await;
}

#[tokio::test]
async fn every_recorded_answer_is_read_by_the_python_sdks_in_every_dialect() {
    let Some(fixtures) = harness::fixtures() else { return };
    script("replay.py", &[fixtures], 500).await;
}
