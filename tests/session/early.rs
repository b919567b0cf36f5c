//! A provider that answers before it has the whole body.

use super::*;
use crate::harness::h2c::H2;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// More than the provider takes and the buffers of two sockets hold.
const BODY: usize = 30 << 20;
/// What the provider reads before it answers.
const FIRST: usize = 300_000;
/// What it still takes afterwards, as a server that lingers does. Pingora reads no answer while a
/// write waits, and Linux wakes a writer only when a third of its buffer (4 MiB at most) is free: a
/// provider that stops reading at once costs its request the time of one write.
const MORE: usize = 8 << 20;

/// Answers each connection's request in the middle of its body, takes so much `more` of it, and
/// then stops reading; the connections stay open. Returns its base URL.
async fn hasty(status: &str, body: &str, more: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        let mut kept = vec![];
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.read_exact(&mut vec![0; FIRST]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            // A gateway that has its answer may leave meanwhile.
            let _ = stream.read_exact(&mut vec![0; more]).await;
            kept.push(stream);
        }
    });
    url
}

fn behind(url: &str) -> String {
    let a = toml::custom("a", "openai", url, "");
    [a, toml::model("m", &["a/up-model"]), toml::key()].concat()
}

#[tokio::test]
async fn an_early_error_is_seen_while_a_large_body_is_still_being_sent() {
    let url =
        hasty("400 Bad", r#"{"error":{"message":"early","type":"x","code":"bad"}}"#, MORE).await;
    let weir = Weir::start(&behind(&url)).await;
    let ask = chat().body(sized(BODY));
    let (mut h1, mut h2) = (Client::connect(weir.port).await, H2::connect(weir.port).await);
    for reply in [h1.ask(&ask).await, h2.ask(&ask).await, weir.ask(&ask).await] {
        assert_eq!(reply.status(), 400);
        assert!(reply.error().0 == 400 && reply.text().contains("early"));
    }
    weir.idle().await;
    let events = weir.events(3).await;
    assert!(events.iter().all(|e| e["status"] == 400), "{events:?}");
}

#[tokio::test]
async fn an_early_answer_ends_the_request_and_the_half_sent_body() {
    let answer = r#"{"id":"x","object":"chat.completion","created":1,"model":"up-model","choices":[{"index":0,"message":{"role":"assistant","content":"soon"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#;
    let url = hasty("200 OK", answer, MORE).await;
    let weir = Weir::start(&behind(&url)).await;
    let ask = chat().body(sized(BODY));
    for _ in 0..2 {
        let reply = weir.ask(&ask).await;
        assert_eq!(reply.status(), 200);
        assert_eq!(reply.json()["choices"][0]["message"]["content"], "soon");
    }
    weir.idle().await;
    let events = weir.events(2).await;
    assert!(events.iter().all(|e| e["outcome"] == "success" && e["output_tokens"] == 1));
}

#[tokio::test]
async fn a_body_that_a_provider_stops_taking_waits_no_longer_than_a_write_may() {
    let url = hasty("400 Bad", r#"{"error":{"message":"early"}}"#, 0).await;
    for times in ["write = \"1s\"", "total = \"1s\""] {
        let a = toml::custom("a", "openai", &url, &format!("timeouts = {{ {times} }}\n"));
        let weir = Weir::start(&[a, toml::model("m", &["a/up-model"]), toml::key()].concat()).await;
        let reply = weir.ask(&chat().body(sized(BODY))).await;
        // Whether the answer was read before the write began to wait is chance.
        assert!(matches!(reply.status(), 400 | 504), "{times}: {}", reply.text());
        weir.idle().await;
        assert_eq!(weir.events(1).await[0]["status"], reply.status(), "{times}");
    }
}
