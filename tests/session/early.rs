//! A provider that answers before it has the whole body.

use super::*;
use crate::harness::h2c::H2;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
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

/// Takes a part of each connection's body, and then nothing more for ever. Counts the connections
/// whose part has come.
async fn deaf() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        let mut kept = vec![];
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.read_exact(&mut vec![0; FIRST]).await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            kept.push(stream);
        }
    });
    (url, count)
}

fn after(url: &str, times: &str, well: &Provider) -> String {
    let a = toml::custom("a", "openai", url, &format!("timeouts = {{ {times} }}\n"));
    let b = toml::custom("b", "openai", &well.url(), "");
    [a, b, toml::model("m", &["a/up-model", "b/up-model"]), toml::key()].concat()
}

/// [`sized`] as a stream.
fn sized_stream(len: usize) -> Bytes {
    let body = sized(len);
    [b"{\"stream\":true,", &body[1..]].concat().into()
}

#[tokio::test]
async fn a_body_that_a_provider_stops_taking_is_cut_by_the_wait_for_its_answer() {
    let well = answering(Answer::default()).await;
    for (times, ask) in [
        ("first_token = \"500ms\"", streamed().body(sized_stream(BODY))),
        ("reply = \"500ms\"", chat().body(sized(BODY))),
    ] {
        let (url, _) = deaf().await;
        let weir = Weir::start(&after(&url, times, &well)).await;
        let start = Instant::now();
        let reply = weir.ask(&ask).await;
        assert_eq!(reply.status(), 200, "{times}: {}", reply.text());
        assert!(start.elapsed() < Duration::from_secs(20), "{times}: {:?}", start.elapsed());
        let event = weir.events(1).await.remove(0);
        let error = event["attempts"][0]["error"].as_str().unwrap_or_default();
        assert!(times.starts_with(error) && !error.is_empty(), "{times}: {event}");
        weir.idle().await;
    }
}

/// Speaks HTTP/2 and never opens the window of a body. Its base URL.
async fn deaf_h2() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let mut kept = vec![];
                while let Some(Ok(request)) = connection.accept().await {
                    kept.push(request);
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn over_h2_too_a_body_that_nobody_takes_is_cut_by_the_wait_for_an_answer() {
    let well = answering(Answer::default()).await;
    let url = deaf_h2().await;
    for (times, ask) in [
        ("first_token = \"500ms\", idle = \"700ms\"", streamed().body(sized_stream(1 << 20))),
        ("reply = \"500ms\"", chat().body(sized(1 << 20))),
    ] {
        let more = format!("http2 = true\ntimeouts = {{ {times} }}\n");
        let a = toml::custom("a", "openai", &url, &more);
        let b = toml::custom("b", "openai", &well.url(), "");
        let model = toml::model("m", &["a/up-model", "b/up-model"]);
        let weir = Weir::start(&[a, b, model, toml::key()].concat()).await;
        let reply = weir.ask(&ask).await;
        assert_eq!(reply.status(), 200, "{times}: {}", reply.text());
        let event = weir.events(1).await.remove(0);
        let error = event["attempts"][0]["error"].as_str().unwrap_or_default();
        assert!(times.starts_with(error) && !error.is_empty(), "{times}: {event}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_its_body_waits_for_the_provider_is_noticed_at_once() {
    let well = answering(Answer::default()).await;
    let (url, count) = deaf().await;
    let taken = |n| {
        let count = count.clone();
        found("the provider's part", move || (count.load(Ordering::SeqCst) == n).then_some(()))
    };
    let times = "first_token = \"5m\", reply = \"5m\"";
    let weir = Weir::start(&after(&url, times, &well)).await;
    let ask = chat().body(sized(BODY));
    let mut h1 = Client::connect(weir.port).await;
    h1.send(&ask.bytes()).await;
    taken(1).await;
    drop(h1);
    weir.events(1).await;
    let mut h2 = H2::connect(weir.port).await;
    let (reply, mut body) = h2.open(&ask).await;
    body.send_data(ask.body.clone(), true).unwrap();
    taken(2).await;
    drop((reply, body));
    let events = weir.events(2).await;
    assert!(events.iter().all(|e| e["outcome"] == "client_abort"), "{events:?}");
    weir.idle().await;
    assert!(well.count() == 0, "nobody is asked for a client that has left");
}

#[tokio::test]
async fn the_end_of_the_drain_cuts_a_body_that_waits_for_its_provider() {
    let well = answering(Answer::default()).await;
    let (url, count) = deaf().await;
    let times = "first_token = \"5m\", reply = \"5m\"";
    let mut weir = Weir::with(&after(&url, times, &well), server("drain = \"300ms\""), &[]).await;
    let mut client = Client::connect(weir.port).await;
    client.send(&chat().body(sized(BODY)).bytes()).await;
    found("the provider's part", || (count.load(Ordering::SeqCst) == 1).then_some(())).await;
    weir.signal(rustix::process::Signal::TERM);
    let reply = client.reply().await;
    assert_eq!(reply.status(), 503, "{}", reply.text());
    weir.ended().await;
    let events = crate::harness::spool::read(&weir.spool());
    assert_eq!(events[0]["outcome"], "interrupted");
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
