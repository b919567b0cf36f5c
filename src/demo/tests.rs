use super::*;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn scripted(script: Script) -> Provider {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Provider::serve(listener, script, 100).unwrap()
}

fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into()
}

fn ask(say: &str, stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "stream_options": {"include_usage": true},
           "messages": [{"role": "user", "content": say}]})
}

/// What comes until the connection ends, or until `enough` has come.
async fn read_until(stream: &mut TcpStream, enough: &str) -> String {
    let mut got = vec![];
    while !String::from_utf8_lossy(&got).contains(enough) {
        if stream.read_buf(&mut got).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8(got).unwrap()
}

async fn exchange(provider: &Provider, request: &[u8], enough: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", provider.port())).await.unwrap();
    stream.write_all(request).await.unwrap();
    read_until(&mut stream, enough).await
}

#[tokio::test]
async fn both_wires_answer_json_and_streams_with_the_numbers_asked_for() {
    let provider = scripted(knobs()).await;
    let check = async |path: &str, stream: bool, end: &str, wanted: &[&str]| {
        let request = post(path, &ask("in=11 out=7 cached=2 words=2", stream));
        let got = exchange(&provider, &request, end).await;
        for part in wanted {
            assert!(got.contains(part), "{path} {stream}: no {part} in {got}");
        }
    };
    let chat = "/v1/chat/completions";
    check(
        chat,
        false,
        "tokens\":18}}",
        &["w0 w1 ", r#""prompt_tokens":11"#, r#""cached_tokens":2"#],
    )
    .await;
    check(chat, true, "0\r\n\r\n", &["w0 ", r#""completion_tokens":7"#, "data: [DONE]"]).await;
    let messages = "/v1/messages";
    check(messages, false, "output_tokens\":7}}", &["w0 w1 ", r#""input_tokens":9"#, "end_turn"])
        .await;
    check(messages, true, "0\r\n\r\n", &["event: message_stop", r#""output_tokens":7"#]).await;
    assert_eq!(provider.count(), 4);
    assert_eq!(provider.requests()[3].request.path, messages);
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let provider = scripted(knobs()).await;
    let mut stream = TcpStream::connect(("127.0.0.1", provider.port())).await.unwrap();
    for n in 1..=3 {
        stream.write_all(&post("/v1/chat/completions", &ask("", false))).await.unwrap();
        assert!(read_until(&mut stream, "tokens\":15}}").await.starts_with("HTTP/1.1 200"));
        assert_eq!((provider.count(), provider.connections()), (n, 1));
    }
}

#[tokio::test]
async fn chunked_bodies_are_read_and_broken_ones_end_the_connection() {
    let provider = scripted(knobs()).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    let sound = format!("{head}2;x=y\r\n{{\"\r\n4\r\na\":1\r\n1\r\n}}\r\n0\r\n\r\n");
    exchange(&provider, sound.as_bytes(), "}}").await;
    assert_eq!(provider.requests()[0].request.body, Bytes::from_static(b"{\"a\":1}"));
    let broken = format!("{head}zz\r\n");
    assert_eq!(exchange(&provider, broken.as_bytes(), "never").await, "");
    assert_eq!(provider.count(), 1);
}

#[tokio::test]
async fn a_gate_holds_the_next_byte_back_until_it_is_opened() {
    let gate = Gate::new();
    let through = gate.clone();
    let script: Script = Arc::new(move |_| {
        vec![
            Action::stream(),
            Action::text("one"),
            Action::Pass(through.clone()),
            Action::text("two"),
        ]
    });
    let provider = scripted(script).await;
    let mut stream = TcpStream::connect(("127.0.0.1", provider.port())).await.unwrap();
    stream.write_all(&post("/", &json!({}))).await.unwrap();
    assert!(!read_until(&mut stream, "one").await.contains("two"));
    gate.open(1);
    assert!(read_until(&mut stream, "0\r\n\r\n").await.contains("two"));
    assert_eq!(gate.reached(), 1);
}

#[tokio::test]
async fn a_peer_that_leaves_is_noticed_while_the_script_is_silent() {
    let provider = scripted(knobs()).await;
    let mut stream = TcpStream::connect(("127.0.0.1", provider.port())).await.unwrap();
    stream.write_all(&post("/v1/chat/completions", &ask("hang=1", false))).await.unwrap();
    let before = provider.until(|seen| seen.len() == 1).await;
    assert!(before[0].left.is_none());
    drop(stream);
    let after = provider.until(|seen| seen[0].left.is_some()).await;
    assert!(!after[0].done);
}

#[tokio::test]
async fn failures_come_as_asked() {
    let provider = scripted(knobs()).await;
    let check = async |say: &str, stream: bool, want: &str, not: &str| {
        let request = post("/v1/chat/completions", &ask(say, stream));
        let got = exchange(&provider, &request, "\u{0}").await;
        assert!(got.contains(want) && !got.contains(not), "{say}: {got}");
    };
    provider.play(Arc::new(|request| {
        let mut actions = knobs()(request);
        actions.push(Action::Close); // so that the reader sees an end
        actions
    }));
    check("status=429 retry_after=7", false, "retry-after: 7", "choices").await;
    check("malformed=html", false, "<html>", "choices").await;
    check("words=3 cut=1", true, "w0", "w1").await;
    check("words=3 end=2", true, "w1", "[DONE]").await;
    check("words=3 error=1", true, "simulated failure", "[DONE]").await;
    check("reset=1", false, "", "HTTP").await;
}

#[test]
fn the_config_gets_real_ports_and_stays_toml() {
    let text = config(1, 2, 3, Path::new("/x"));
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(table["server"]["listen"][0].as_str(), Some("127.0.0.1:1"));
    assert_eq!(table["admin"]["listen"].as_str(), Some("127.0.0.1:2"));
    let url = table["providers"]["anthropic"]["base_url"].as_str();
    assert_eq!(url, Some("http://127.0.0.1:3/v1"));
    assert_eq!(table["store"]["spool"].as_str(), Some("/x/spool"));
    let hash = ring::digest::digest(&ring::digest::SHA256, KEY.as_bytes());
    let hash: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(table["keys"]["demo"]["hash"].as_str(), Some(format!("sha256:{hash}").as_str()));
    assert!(curl_lines(1).contains(KEY) && curl_lines(1).contains("127.0.0.1:1/"));
}
