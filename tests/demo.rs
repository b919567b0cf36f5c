//! `weir demo`: the first minute of a newcomer.

use crate::harness::{Ask, Client, found};
use serde_json::json;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use weir::demo::KEY;

/// The running demo; killed when dropped.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_demo_prints_a_curl_line_that_answers_from_both_wires() {
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("stdout");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("demo").env_clear().env("TMPDIR", folder.path()).current_dir(folder.path());
    command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(File::create(&said).unwrap());
    let _demo = Demo(command.spawn().unwrap());

    let text = found("the curl lines", || {
        fs::read_to_string(&said).ok().filter(|text| text.contains("status=429"))
    })
    .await;
    let port = text.split("/v1/chat/completions").next().and_then(|t| t.rsplit(':').next());
    let port: u16 = port.and_then(|p| p.parse().ok()).expect("a port in the curl line");
    assert!(text.contains(KEY), "{text}");

    let ask = |model: &str, stream: bool, say: &str| {
        let messages = json!([{"role": "user", "content": say}]);
        let body = json!({"model": model, "stream": stream, "messages": messages});
        Ask::post("/v1/chat/completions", &body).key(KEY)
    };
    let mut client = Client::connect(port).await;
    let whole = client.ask(&ask("gpt-4o-mini", false, "Say hello")).await;
    let content = &whole.json()["choices"][0]["message"]["content"];
    assert!(content.as_str().is_some_and(|c| c.starts_with("Hello")), "{content}");
    let stream = client.ask(&ask("claude-sonnet-4-5", true, "words=3")).await;
    assert!(stream.done() && stream.content() == "w0 w1 w2 ", "{:?}", stream.text());
    let limited = client.ask(&ask("gpt-4o-mini", false, "status=429 retry_after=30")).await;
    assert_eq!(limited.error(), (429, "upstream_rate_limited".into()));
}
