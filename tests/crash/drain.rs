//! The way out of the real binary, with every kind of client still there.

use super::*;
use crate::harness::client::Piece;
use crate::harness::h2c::H2;
use crate::harness::reply::End;
use std::time::{Duration, Instant};

/// How long after the drain limit the process may still be there.
const AFTER_LIMIT: Duration = Duration::from_secs(3);

fn server(lines: &str) -> Tables {
    Tables { server: lines.into(), ..Tables::default() }
}

/// Does what the prompt says: `flood` sends more than any buffer holds and never ends, `endless`
/// says a word and never ends, all else are the knobs.
fn mixed() -> Script {
    let knobs = knobs();
    std::sync::Arc::new(move |request| {
        let body = request.json();
        match body["messages"][0]["content"].as_str().unwrap_or_default() {
            "flood" => {
                let mut actions = vec![Action::stream()];
                actions.extend(std::iter::repeat_n(word(&"f".repeat(64 << 10)), 400));
                actions.push(Action::Hang);
                actions
            }
            "endless" => endless(),
            "hang" => vec![Action::Hang],
            _ => knobs(request),
        }
    })
}

fn outcomes(rows: &[Row]) -> BTreeMap<(String, String), usize> {
    let mut all = BTreeMap::new();
    for row in rows {
        *all.entry((row.request.clone(), row.outcome.clone())).or_default() += 1;
    }
    all
}

/// Waits until so many requests are open.
async fn in_flight(weir: &Weir, n: f64) {
    let start = Instant::now();
    while weir.metric("weir_in_flight", &[]).await != Some(n) {
        assert!(start.elapsed() < PATIENCE);
    }
}

#[tokio::test]
async fn a_drain_waits_for_those_that_end_cuts_those_that_do_not_and_books_all() {
    let provider = provider(mixed()).await;
    let limit = Duration::from_secs(2);
    let mut weir = Weir::with(&toml::simple(&provider), server("drain = \"2s\""), &[]).await;
    let port = weir.port;
    let ask = |id: &str, say: &str| streamed().say(say).with("x-request-id", id);
    let (mut fast, mut endless) = (Client::connect(port).await, Client::connect(port).await);
    fast.begin(&ask("fast", "words=8 delay=0.1")).await;
    endless.begin(&ask("endless", "endless")).await;
    let mut deaf = Client::connect(port).await;
    deaf.begin(&ask("deaf", "flood")).await;
    let mut h2 = H2::connect(port).await;
    let (_, mut h2_endless) = h2.begin(&ask("h2-endless", "endless")).await;
    let (_, mut h2_fast) = h2.begin(&ask("h2-fast", "words=8 delay=0.1")).await;
    // What it leaves unread holds the window of its whole connection: one of its own.
    let mut other = H2::connect(port).await;
    let (_, h2_deaf) = other.begin(&ask("h2-deaf", "flood")).await;
    let mut json = Client::connect(port).await;
    json.send(&chat().say("hang").with("x-request-id", "json").bytes()).await;
    let mut slow = Client::connect(port).await;
    let upload = chat().with("x-request-id", "upload");
    slow.send(&upload.head()).await;
    slow.send(&upload.body[..10]).await;
    let mut kept = Client::connect(port).await;
    assert_eq!(kept.ask(&chat().with("x-request-id", "kept")).await.status(), 200);
    soon("all requests", provider.until(|seen| seen.len() == 8)).await;
    in_flight(&weir, 8.0).await;

    let term = Instant::now();
    weir.signal(rustix::process::Signal::TERM);
    // What ends by itself ends well.
    let (text, end) = fast.rest().await;
    assert!(text.contains("[DONE]") && end == End::Clean, "{text}");
    let h2_text = h2_rest(&mut h2_fast).await;
    assert!(h2_text.contains("[DONE]"), "{h2_text}");
    assert!(term.elapsed() < limit, "the fast ones were not fast enough to show anything");
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err());
    // What does not is cut at the limit, and told.
    let (text, end) = endless.rest().await;
    assert!(text.contains("shutting down") && !text.contains("[DONE]"), "{text}");
    assert_eq!(end, End::Clean);
    let h2_text = h2_rest(&mut h2_endless).await;
    assert!(h2_text.contains("shutting down") && !h2_text.contains("[DONE]"), "{h2_text}");
    let cut = json.reply().await;
    assert_eq!((cut.error().0, cut.header("x-should-retry")), (503, Some("true")));
    assert_eq!(cut.header("connection"), Some("close"));
    assert!(term.elapsed() >= limit);
    let (status, _) = weir.ended().await;
    let took = term.elapsed();
    assert!(took < limit + AFTER_LIMIT, "gone after {took:?}");
    assert_eq!(status.code(), Some(0), "{}", weir.stderr());
    let rows: Vec<Row> = ledger(&weir).into_values().collect();
    let all = outcomes(&rows);
    let is = |id: &str, outcome: &str| all.get(&(id.into(), outcome.into())) == Some(&1);
    for id in ["fast", "h2-fast", "kept"] {
        assert!(is(id, "success"), "{id}: {all:?}");
    }
    for id in ["endless", "h2-endless", "json"] {
        assert!(is(id, "interrupted"), "{id}: {all:?}");
    }
    for id in ["deaf", "h2-deaf", "upload"] {
        assert!(
            is(id, "interrupted") || is(id, "client_abort") || is(id, "refused"),
            "{id}: {all:?}"
        );
    }
    assert_eq!(rows.len(), 9, "{all:?}");
    drop((deaf, h2_deaf, slow));
}

/// As many as must end whole.
const MANY: usize = 500;

#[tokio::test]
async fn five_hundred_streams_end_whole_on_the_way_out_and_the_rest_is_cut_and_booked() {
    let (gate, others) = (Gate::new(), mixed());
    let held = gate.clone();
    let provider = provider(std::sync::Arc::new(move |request| {
        let mut actions = others(request);
        if request.json()["messages"][0]["content"] == PROMPT {
            actions.insert(1, Action::Pass(held.clone())); // after its head
            actions.insert(1, word("begun "));
        }
        actions
    }));
    let provider = provider.await;
    let mut weir = Weir::with(&toml::simple(&provider), server("drain = \"5s\""), &[]).await;
    let port = weir.port;
    let mut fast = tokio::task::JoinSet::new();
    for _ in 0..MANY {
        fast.spawn(async move {
            let mut client = Client::connect(port).await;
            client.begin(&streamed()).await;
            client.rest().await
        });
    }
    let mut endless = Client::connect(port).await;
    endless.begin(&streamed().say("endless").with("x-request-id", "endless")).await;
    let mut deaf = Client::connect(port).await;
    deaf.begin(&streamed().say("flood").with("x-request-id", "deaf")).await;
    let mut h2 = H2::connect(port).await;
    let (_, mut h2_fast) = h2.begin(&streamed().with("x-request-id", "h2-fast")).await;
    soon("all requests", provider.until(|seen| seen.len() == MANY + 3)).await;
    in_flight(&weir, (MANY + 3) as f64).await;

    let term = Instant::now();
    weir.signal(rustix::process::Signal::TERM);
    found("a closed port", || std::net::TcpStream::connect(("127.0.0.1", port)).err()).await;
    gate.open(MANY + 1);
    for (text, end) in fast.join_all().await {
        assert!(text.contains("[DONE]") && end == End::Clean, "{text}");
    }
    assert!(h2_rest(&mut h2_fast).await.contains("[DONE]"));
    let (text, _) = endless.rest().await;
    assert!(text.contains("shutting down") && !text.contains("[DONE]"), "{text}");
    let (status, _) = weir.ended().await;
    let took = term.elapsed();
    assert!(took < Duration::from_secs(5) + AFTER_LIMIT, "gone after {took:?}");
    assert_eq!(status.code(), Some(0), "{}", weir.stderr());
    let rows: Vec<Row> = ledger(&weir).into_values().collect();
    let success = rows.iter().filter(|r| r.outcome == "success").count();
    assert_eq!((rows.len(), success), (MANY + 3, MANY + 1));
    let cut = rows.iter().find(|r| r.request == "endless").unwrap();
    assert_eq!(cut.outcome, "interrupted");
    drop(deaf);
}

async fn h2_rest(body: &mut ::h2::RecvStream) -> String {
    let mut text = String::new();
    while let Some(bytes) = soon("bytes", body.data()).await {
        let Ok(bytes) = bytes else { break };
        body.flow_control().release_capacity(bytes.len()).unwrap();
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    text
}

#[tokio::test]
async fn with_nobody_there_the_way_out_is_short_and_a_hundred_rows_are_written_on_it() {
    let provider = answering(Answer::default()).await;
    let mut weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    for _ in 0..100 {
        assert_eq!(client.ask(&chat()).await.status(), 200);
    }
    let (status, took) = weir.stop().await;
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(ledger(&weir).len(), 100);
}

#[tokio::test]
async fn before_the_listeners_close_readiness_is_red_and_requests_are_served() {
    let provider = answering(Answer::default()).await;
    let lines = server("drain_delay = \"1s\"");
    let mut weir = Weir::with(&toml::simple(&provider), lines, &[]).await;
    let mut kept = Client::connect(weir.port).await;
    assert_eq!(kept.ask(&chat()).await.header("connection"), Some("keep-alive"));
    // Asked before, answered after.
    let gate = Gate::new();
    let late = Answer::default().reply(&weir::demo::Request {
        method: "POST".into(),
        path: "/v1/chat/completions".into(),
        body: chat().body,
        ..weir::demo::Request::default()
    });
    provider.play(fixed([vec![Action::Pass(gate.clone())], late].concat()));
    kept.send(&chat().bytes()).await;
    soon("the request", provider.until(|seen| seen.len() == 2)).await;
    provider.play(Answer::default().script());
    weir.signal(rustix::process::Signal::TERM);
    let start = Instant::now();
    while weir.admin("GET", "/health/ready").await.status() != 503 {
        assert!(start.elapsed() < Duration::from_secs(1), "never red");
    }
    gate.open(1);
    for reply in [weir.ask(&chat()).await, kept.reply().await] {
        assert_eq!((reply.status(), reply.header("connection")), (200, Some("close")));
    }
    assert_eq!(weir.ask(&Ask::get("/health/ready")).await.status(), 503);
    assert_eq!(weir.ended().await.0.code(), Some(0));
}

#[tokio::test]
async fn an_interrupt_cuts_at_once_and_books_all() {
    let provider = provider(fixed(endless())).await;
    let mut weir = Weir::start(&toml::simple(&provider)).await;
    let (mut one, mut h2) = (Client::connect(weir.port).await, H2::connect(weir.port).await);
    one.begin(&streamed()).await;
    let (_, mut two) = h2.begin(&streamed()).await;
    weir.signal(rustix::process::Signal::INT);
    let (status, took) = weir.ended().await;
    assert!(took < AFTER_LIMIT && status.code() == Some(0), "{status} after {took:?}");
    let (text, end) = one.rest().await;
    assert!(text.contains("shutting down") && end == End::Clean, "{text}");
    assert!(h2_rest(&mut two).await.contains("shutting down"));
    let rows: Vec<Row> = ledger(&weir).into_values().collect();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|r| r.outcome == "interrupted" && r.output > 0), "{rows:?}");
}

#[tokio::test]
async fn a_request_on_an_open_connection_after_the_close_is_a_503() {
    let provider = provider(mixed()).await;
    let mut weir = Weir::with(&toml::simple(&provider), server("drain = \"5s\""), &[]).await;
    let mut h2 = H2::connect(weir.port).await;
    let (_, mut running) = h2.begin(&streamed().say("words=6 delay=0.1")).await;
    // Half a head is in: its connection is no idle one.
    let mut late = Client::connect(weir.port).await;
    let bytes = chat().bytes();
    late.send(&bytes[..20]).await;
    soon("the stream", provider.until(|seen| seen.len() == 1)).await;
    weir.signal(rustix::process::Signal::TERM);
    let refused = || std::net::TcpStream::connect(("127.0.0.1", weir.port)).is_err();
    found("closed listeners", || refused().then_some(())).await;
    if late.try_send(&bytes[20..]).await
        && let Some(head) = late.try_head().await
    {
        assert_eq!((head.status, head.header("connection")), (503, Some("close")));
        while !matches!(late.piece().await, Piece::End(_)) {}
    }
    assert!(h2_rest(&mut running).await.contains("[DONE]"));
    h2.ended().await.expect("a GOAWAY without error");
    assert_eq!(weir.ended().await.0.code(), Some(0));
}
