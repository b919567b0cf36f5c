//! A provider that answers before it has the whole body.

use super::*;
use crate::harness::h2c::H2;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// More than the buffers of two sockets hold.
const BODY: usize = 20 << 20;
/// What the provider reads before it answers.
const FIRST: usize = 300_000;
/// What it still takes afterwards: enough for a write that has begun to end, and no more.
const MORE: usize = 1 << 20;

/// Answers each connection's request in the middle of its body, and then stops reading; the
/// connections stay open. Returns its base URL.
async fn hasty(status: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        let mut kept = vec![];
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; MORE];
            stream.read_exact(&mut buffer[..FIRST]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            // A gateway that has its answer may leave meanwhile.
            let _ = stream.read_exact(&mut buffer).await;
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
    let url = hasty("400 Bad", r#"{"error":{"message":"early","type":"x","code":"bad"}}"#).await;
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
    let url = hasty("200 OK", answer).await;
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
