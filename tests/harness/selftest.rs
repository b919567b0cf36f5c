//! The harness is tested too: a reader that misses a fault would let every other test pass.

use super::binary::metric;
use super::client::Piece;
use super::reply::{End, events};
use super::*;

#[tokio::test]
async fn the_client_reads_lengths_and_chunks_on_one_connection() {
    let provider = answering(Answer::default()).await;
    let mut client = Client::connect(provider.port()).await;
    let whole = client.ask(&chat()).await;
    assert_eq!(whole.json()["choices"][0]["message"]["content"], "Hello world!");
    let stream = client.ask(&streamed().chunked(7)).await;
    assert!(stream.done() && stream.content() == "Hello world!");
    assert_eq!(stream.finishes(), ["stop"]);
    assert_eq!((provider.count(), provider.connections()), (2, 1));
    assert_eq!(provider.requests()[1].request.json()["model"], "m");
}

#[tokio::test]
async fn the_client_tells_a_cut_body_from_a_clean_one() {
    let check = async |actions: Vec<Action>, end: End, text: &str| {
        let provider = provider(fixed(actions)).await;
        let reply = Client::connect(provider.port()).await.ask(&chat()).await;
        assert_eq!((reply.end, reply.text().as_str()), (end, text));
    };
    let length = |n: &str| Action::Head(200, vec![("content-length".into(), n.into())]);
    check(vec![Action::stream(), Action::text("x")], End::Clean, "x").await;
    check(vec![Action::stream(), Action::text("x"), Action::Close], End::Cut, "x").await;
    check(vec![Action::stream(), Action::text("x"), Action::Reset], End::Cut, "x").await;
    check(vec![length("2"), Action::text("xy")], End::Clean, "xy").await;
    check(vec![length("3"), Action::text("xy"), Action::Close], End::Cut, "xy").await;
}

#[tokio::test]
async fn the_client_sees_an_event_before_the_next_one_is_sent() {
    let gate = Gate::new();
    let script = fixed(vec![
        Action::stream(),
        Action::text("data: 1\n\n"),
        Action::Pass(gate.clone()),
        Action::text("data: 2\n\n"),
    ]);
    let provider = provider(script).await;
    let mut client = Client::connect(provider.port()).await;
    assert_eq!(client.begin(&streamed()).await.status, 200);
    assert_eq!(client.event().await.as_deref(), Some("1"));
    gate.open(1);
    assert_eq!(client.event().await.as_deref(), Some("2"));
    assert_eq!(client.event().await, None);
    assert_eq!(client.piece().await, Piece::End(End::Clean));
}

#[tokio::test]
async fn an_aborting_client_is_seen_by_the_provider() {
    let provider = provider(fixed(vec![Action::stream(), Action::Hang])).await;
    let mut client = Client::connect(provider.port()).await;
    client.begin(&streamed()).await;
    client.abort();
    let seen = soon("a peer that left", provider.until(|s| s[0].left.is_some())).await;
    assert!(!seen[0].done);
}

#[test]
fn an_event_without_its_blank_line_is_none() {
    assert_eq!(events("data: a\n\n: c\n\ndata:b\ndata: c\n\ndata: d"), ["a", "b\nc"]);
}

#[test]
fn a_metric_is_summed_over_the_series_that_bear_the_labels() {
    let text = "# HELP x\nx{a=\"1\",b=\"2\"} 3\nx{a=\"1\",b=\"3\"} 4\nxy{a=\"1\"} 9\nz 5\n";
    assert_eq!(metric(text, "x", &[("a", "1")]), Some(7.0));
    assert_eq!(metric(text, "x", &[("b", "3")]), Some(4.0));
    assert_eq!(metric(text, "z", &[]), Some(5.0));
    assert_eq!(metric(text, "x", &[("b", "9")]), None);
}
