//! Clients that do not read, or read slowly, and many streams side by side.

use super::*;
use crate::harness::h2c::H2;
use std::time::{Duration, Instant};

/// Words of one event.
const EVENT: usize = 64 << 10;
/// Events of a stream: more than the buffers of two sockets hold.
const EVENTS: usize = 400;

/// A stream that is too long to be left unread, and does not end.
fn flood() -> Script {
    let word = "a".repeat(EVENT);
    let event =
        Action::Sse(serde_json::json!({"choices": [{"index": 0, "delta": {"content": word}}]}));
    let Action::Sse(value) = event else { unreachable!() };
    let event = Action::text(&format!("data: {value}\n\n"));
    let mut actions = vec![Action::stream()];
    actions.extend(std::iter::repeat_n(event, EVENTS));
    actions.push(Action::Hang);
    fixed(actions)
}

/// A whole answer of 24 MiB.
fn large() -> Answer {
    Answer { words: vec!["b".repeat(24 << 20)], ..Answer::default() }
}

async fn ended(weir: &Weir, n: usize, outcomes: &[&str]) {
    let event = weir.events(n).await.remove(n - 1);
    let outcome = event["outcome"].as_str().unwrap_or_default();
    assert!(outcomes.contains(&outcome), "{event}");
    weir.idle().await;
}

#[tokio::test]
async fn a_client_that_stops_reading_is_left_after_client_write() {
    let provider = provider(flood()).await;
    let lines = server("client_write = \"500ms\"");
    let weir = Weir::with(&toml::simple(&provider), lines, &[]).await;
    let mut h1 = Client::connect(weir.port).await;
    h1.begin(&streamed()).await;
    ended(&weir, 1, &["client_abort"]).await;
    let mut h2 = H2::connect(weir.port).await;
    let (_, unread) = h2.begin(&streamed()).await;
    ended(&weir, 2, &["client_abort"]).await;
    // The connection of the stalled stream serves others.
    provider.play(Answer::default().script());
    assert_eq!(h2.ask(&chat()).await.status(), 200);
    let gone = |seen: &[Seen]| seen.iter().filter(|s| s.left.is_some()).count() == 2;
    soon("the provider to be left twice", provider.until(gone)).await;
    drop(unread);
}

#[tokio::test]
async fn a_client_that_stops_reading_is_left_when_the_request_is_too_old() {
    let provider = provider(flood()).await;
    let a = toml::custom("a", "openai", &provider.url(), "timeouts = { total = \"1s\" }");
    let config = [a, toml::model("m", &["a/up-model"]), toml::key()].concat();
    let weir = Weir::start(&config).await;
    let start = Instant::now();
    let mut h1 = Client::connect(weir.port).await;
    h1.begin(&streamed()).await;
    let mut h2 = H2::connect(weir.port).await;
    let unread = h2.begin(&streamed()).await;
    ended(&weir, 1, &["client_abort", "timeout"]).await;
    ended(&weir, 2, &["client_abort", "timeout"]).await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    drop((h1, unread));
}

#[tokio::test]
async fn a_large_answer_that_nobody_reads_frees_its_place() {
    let provider = answering(large()).await;
    let lines = server("client_write = \"500ms\"");
    let weir = Weir::with(&toml::simple(&provider), lines, &[]).await;
    let mut h1 = Client::connect(weir.port).await;
    h1.begin(&chat()).await;
    ended(&weir, 1, &["success"]).await;
    let mut h2 = H2::connect(weir.port).await;
    let unread = h2.begin(&chat()).await;
    ended(&weir, 2, &["success"]).await;
    drop((h1, unread));
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_all_of_a_large_answer() {
    let provider = answering(large()).await;
    let lines = server("client_write = \"500ms\"");
    let weir = Weir::with(&toml::simple(&provider), lines, &[]).await;
    let start = Instant::now();
    let mut client = Client::connect(weir.port).await;
    let head = client.begin(&chat()).await;
    let want: usize = head.header("content-length").unwrap().parse().unwrap();
    let (mut got, mut next) = (0, 0);
    while let crate::harness::client::Piece::Data(bytes) = client.piece().await {
        got += bytes.len();
        if got >= next {
            // Its own pace, slower than `client_write` for all of it and quicker for each part.
            tokio::time::sleep(Duration::from_millis(40)).await;
            next = got + (1 << 20);
        }
    }
    assert_eq!(got, want);
    assert!(start.elapsed() > Duration::from_millis(800), "not slow enough to show anything");
    let mut h2 = H2::connect(weir.port).await;
    let (_, mut body) = h2.begin(&chat()).await;
    let (mut got, mut next) = (0, 0);
    while let Some(bytes) = soon("bytes", body.data()).await {
        let bytes = bytes.expect("the whole answer");
        got += bytes.len();
        if got >= next {
            tokio::time::sleep(Duration::from_millis(40)).await;
            next = got + (1 << 20);
        }
        body.flow_control().release_capacity(bytes.len()).unwrap();
    }
    assert_eq!(got, want);
}

#[tokio::test]
async fn while_a_client_does_not_read_the_provider_s_silence_is_not_its_own() {
    let word = "a".repeat(EVENT);
    let answer = Answer { words: vec![word; EVENTS], ..Answer::default() };
    let provider = answering(answer).await;
    let a = toml::custom("a", "openai", &provider.url(), "timeouts = { idle = \"300ms\" }");
    let weir = Weir::start(&[a, toml::model("m", &["a/up-model"]), toml::key()].concat()).await;
    let mut client = Client::connect(weir.port).await;
    client.begin(&streamed()).await;
    let (mut got, mut next) = (0, 0);
    while let crate::harness::client::Piece::Data(bytes) = client.piece().await {
        got += bytes.len();
        if got >= next {
            // Longer than the provider may be silent; the first times for no write that waits.
            tokio::time::sleep(Duration::from_millis(500)).await;
            next = got + (2 << 20);
        }
    }
    assert!(got > EVENT * EVENTS, "{got}");
    ended(&weir, 1, &["success"]).await;
}

#[tokio::test]
async fn a_hundred_streams_share_one_connection_and_none_has_anothers_words() {
    let script: Script = std::sync::Arc::new(|request| {
        let marker = request.json()["messages"][0]["content"].as_str().unwrap().to_owned();
        let words = (0..20).map(|i| format!("{marker}-{i} ")).collect();
        let delay = Duration::from_millis(5);
        Answer { words, delay, ..Answer::default() }.reply(request)
    });
    let provider = provider(script).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let h2 = std::sync::Arc::new(tokio::sync::Mutex::new(H2::connect(weir.port).await));
    let mut streams = tokio::task::JoinSet::new();
    for i in 0..100 {
        let h2 = h2.clone();
        streams.spawn(async move {
            let marker = format!("stream-{i}");
            let (head, mut body) = h2.lock().await.begin(&streamed().say(&marker)).await;
            assert_eq!(head.status, 200);
            let mut text = String::new();
            let mut events = 0;
            while let Some(bytes) = soon("bytes", body.data()).await {
                let bytes = bytes.unwrap();
                body.flow_control().release_capacity(bytes.len()).unwrap();
                text.push_str(std::str::from_utf8(&bytes).unwrap());
                events += 1;
                // Every third leaves in the middle.
                if i % 3 == 2 && events > i / 10 {
                    return false;
                }
            }
            let chunks = crate::harness::reply::events(&text);
            assert_eq!(chunks.last().map(String::as_str), Some("[DONE]"));
            let said = chunks.iter().filter(|c| c.contains(&format!("{marker}-"))).count();
            assert_eq!(said, 20, "{text}");
            assert!(!text.replace(&format!("{marker}-"), "").contains("stream-"), "{text}");
            true
        });
    }
    let whole = streams.join_all().await.into_iter().filter(|whole| *whole).count();
    assert_eq!(whole, 67);
    weir.idle().await;
    let events = weir.events(100).await;
    assert_eq!(events.len(), 100);
    let successes = events.iter().filter(|e| e["outcome"] == "success").count();
    assert!((67..=100).contains(&successes), "{successes}");
    assert_eq!(h2.lock().await.ask(&streamed()).await.status(), 200);
}
