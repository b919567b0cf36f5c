//! Bodies that are too large, too slow or too many are refused in words the client can read.

use super::*;
use crate::harness::h2c::H2;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_body_above_max_body_is_a_413_that_a_client_in_the_middle_of_it_can_read() {
    let provider = answering(Answer::default()).await;
    let lines = "max_body = \"10MiB\"";
    let weir = Weir::with(&toml::simple(&provider), server(lines), &[]).await;
    let big = chat().body(sized(11 << 20));
    let close = big.clone().with("connection", "close");
    let asks =
        [big.clone(), close.clone(), big.clone().chunked(100_000), close.clone().chunked(100_000)];
    for (i, ask) in asks.iter().enumerate() {
        // A client that looks at the answer only when it has sent all.
        let reply = weir.ask(ask).await;
        assert_eq!(reply.error(), (413, "request_too_large".into()), "way {i}");
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    }
    let mut h2 = H2::connect(weir.port).await;
    let framed = big.clone().with("content-length", &big.body.len().to_string());
    for ask in [&framed, &big] {
        assert_eq!(h2.ask(ask).await.error(), (413, "request_too_large".into()));
    }
    // Exactly as large as allowed: taken.
    assert_eq!(weir.ask(&chat().body(sized(10 << 20))).await.status(), 200);
    let events = weir.events(7).await;
    assert!(events[..6].iter().all(|e| e["status"] == 413 && e["outcome"] == "refused"));
    assert_eq!(provider.count(), 1);
}

#[tokio::test]
async fn a_refusal_before_the_body_is_read_reaches_a_client_that_sends_it_all_first() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let ask = chat().body(sized(8 << 20)).key("sk-wrong");
    let mut client = Client::connect(weir.port).await;
    for _ in 0..3 {
        assert_eq!(client.ask(&ask).await.error(), (401, "invalid_api_key".into()));
    }
    // The connection is as good as before.
    assert_eq!(client.ask(&chat()).await.status(), 200);
    let close = ask.with("connection", "close");
    assert_eq!(weir.ask(&close).await.error(), (401, "invalid_api_key".into()));
    assert_eq!(provider.count(), 1);
}

#[tokio::test]
async fn bodies_beyond_the_byte_budget_are_a_503_and_all_of_it_comes_back() {
    let provider = answering(Answer::default()).await;
    let lines = "[server]\nmax_body = \"1MiB\"\nmax_body_bytes_open = \"1MiB\"\n";
    let gateway = gateway(&[lines, &toml::simple(&provider)].concat()).await;
    let ask = chat().body(sized(900_000));
    let refused = async |held: &mut Client| {
        // Three quarters of the budget are held by a body that does not end.
        held.send(&ask.head()).await;
        held.send(&ask.body[..800_000]).await;
        let taken = || (gateway.inner.bodies.open() == 800_000).then_some(());
        found("a body that is held", taken).await;
        for small in [chat().body(sized(300_000)), chat().body(sized(300_000)).chunked(10_000)] {
            let reply = gateway.ask(&small).await;
            assert_eq!(reply.error().0, 503);
            assert_eq!(reply.header("retry-after"), Some("1"));
            assert_eq!(reply.header("x-should-retry"), Some("true"));
        }
    };
    let mut held = gateway.client().await;
    refused(&mut held).await;
    held.send(&ask.body[800_000..]).await;
    assert_eq!(held.reply().await.status(), 200);
    refused(&mut held).await;
    held.abort();
    let back = || (gateway.inner.bodies.open() == 0).then_some(());
    found("the budget to be given back", back).await;
    // A body and its rewritten copy are one: nearly the whole budget fits, again and again. What
    // a reply holds is taken beside it.
    for _ in 0..5 {
        assert_eq!(gateway.ask(&chat().body(sized(1_000_000))).await.status(), 200);
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_is_a_408() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::with(&toml::simple(&provider), server("body = \"300ms\""), &[]).await;
    for ask in [chat(), chat().chunked(10)] {
        let mut client = Client::connect(weir.port).await;
        let start = Instant::now();
        client.send(&ask.head()).await;
        let reply = client.reply().await;
        assert_eq!(reply.status(), 408);
        assert!(reply.error().0 == 408 && start.elapsed() >= Duration::from_millis(300));
    }
    let mut h2 = H2::connect(weir.port).await;
    let (response, _body) = h2.open(&chat()).await;
    assert_eq!(soon("a reply", response).await.unwrap().status(), 408);
    let events = weir.events(3).await;
    assert!(events.iter().all(|e| e["status"] == 408 && e["outcome"] == "refused"));
    assert_eq!(provider.count(), 0);
}

#[tokio::test]
async fn more_requests_than_max_requests_are_a_503() {
    let gate = Gate::new();
    let provider = provider(fixed(vec![
        Action::stream(),
        Action::text("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"),
        Action::Pass(gate.clone()),
    ]))
    .await;
    let weir = Weir::with(&toml::simple(&provider), server("max_requests = 2"), &[]).await;
    let (mut one, mut two) = (Client::connect(weir.port).await, Client::connect(weir.port).await);
    one.begin(&streamed()).await;
    two.begin(&streamed()).await;
    let refused = weir.ask(&chat()).await;
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    one.abort();
    gate.open(1000);
    soon("a free place", async { while weir.ask(&chat()).await.status() == 503 {} }).await;
}
