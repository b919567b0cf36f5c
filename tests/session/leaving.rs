//! A client that leaves: the provider is left too, the place is free, and the event says whose
//! choice it was.

use super::*;
use crate::harness::h2c::H2;
use std::time::{Duration, Instant};

/// How soon the provider must see that it is left, on a machine that does much else.
const SOON: Duration = Duration::from_secs(2);

const CONTENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";

/// Every way to wait for a provider: its head, the first content of its stream, the next one.
fn waits() -> [(Ask, Vec<Action>); 4] {
    [
        (chat(), vec![Action::Hang]),
        (streamed(), vec![Action::Hang]),
        (streamed(), vec![Action::stream(), Action::text(": wait\n\n"), Action::Hang]),
        (streamed(), vec![Action::stream(), Action::text(CONTENT), Action::Hang]),
    ]
}

/// Waits until the provider was left in its `n`th request, soon after `since`.
async fn left(provider: &Provider, n: usize, since: Instant) {
    let gone = |seen: &[Seen]| seen.len() == n && seen[n - 1].left.is_some();
    let seen = soon("the provider to be left", provider.until(gone)).await;
    let after = seen[n - 1].left.unwrap().saturating_duration_since(since);
    assert!(after < SOON, "left after {after:?}");
}

async fn aborted(weir: &Weir, n: usize) -> serde_json::Value {
    let event = weir.events(n).await.remove(n - 1);
    let end = (event["outcome"].as_str().unwrap(), event["status"].as_u64().unwrap());
    assert_eq!(end, ("client_abort", 499), "{event}");
    weir.idle().await;
    event
}

#[tokio::test]
async fn a_client_that_leaves_is_booked_as_client_abort_and_the_provider_is_left_at_once() {
    let provider = provider(fixed(vec![])).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut n = 0;
    for (ask, actions) in waits() {
        let content = actions.len() == 3 && ask.body != chat().body;
        provider.play(fixed(actions));
        for way in ["reset", "fin"] {
            n += 1;
            let mut client = Client::connect(weir.port).await;
            client.send(&ask.bytes()).await;
            soon("the request", provider.until(|seen| seen.len() == n)).await;
            let started = content && provider.requests()[n - 1].sent > 200;
            if started {
                client.head().await;
            }
            let since = Instant::now();
            match way {
                "reset" => client.abort(),
                // Half-closed is left, too: a client that wants its answer keeps its side open.
                _ => client.half_close().await,
            }
            left(&provider, n, since).await;
            aborted(&weir, n).await;
        }
    }
}

#[tokio::test]
async fn what_a_client_left_unread_is_counted() {
    let words = ["Hello", " there", " you"];
    let events = words.map(|w| {
        Action::Sse(serde_json::json!({"choices": [{"index": 0, "delta": {"content": w}}]}))
    });
    let script = [vec![Action::stream()], events.to_vec(), vec![Action::Hang]].concat();
    let provider = provider(fixed(script)).await;
    let config = toml::simple(&provider).replace("price =", "tokenizer = \"o200k_base\"\nprice =");
    let weir = Weir::start(&config).await;
    let mut client = Client::connect(weir.port).await;
    client.begin(&streamed()).await;
    client.events_until(" you").await;
    client.abort();
    let event = aborted(&weir, 1).await;
    // By the real tokenizer: a model of no known one would be estimated.
    assert_eq!((&event["output_tokens"], &event["usage_source"]), (&3.into(), &"counted".into()));
    assert!(event["input_tokens"].as_u64() > Some(0) && event["cost_nano_usd"].as_u64() > Some(0));
}

#[tokio::test]
async fn a_client_that_leaves_in_its_body_costs_no_upstream_call() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let big = chat().body(sized(500_000));
    for (i, ask) in [big.clone(), big.chunked(1000)].iter().enumerate() {
        for way in 0..2 {
            let mut client = Client::connect(weir.port).await;
            client.send(&ask.bytes()[..200_000]).await;
            if way == 0 {
                client.abort()
            } else {
                client.half_close().await
            }
            aborted(&weir, 2 * i + way + 1).await;
        }
    }
    assert_eq!(provider.count(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_between_two_tries_ends_the_wait() {
    let busy = serde_json::json!({"error": {"message": "busy"}});
    let provider = provider(fixed(vec![Action::json_with(503, &[("retry-after", "8")], &busy)]));
    let provider = provider.await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    client.send(&chat().bytes()).await;
    soon("the first try", provider.until(|seen| seen.len() == 1 && seen[0].done)).await;
    let since = Instant::now();
    client.abort();
    let event = aborted(&weir, 1).await;
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    assert_eq!(event["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(provider.count(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_after_the_end_of_its_answer_is_a_success() {
    let whole = Answer::default().reply(&weir::demo::Request {
        method: "POST".into(),
        path: "/v1/chat/completions".into(),
        body: streamed().body,
        ..weir::demo::Request::default()
    });
    // The provider keeps its stream open after `[DONE]`.
    let provider = provider(fixed([whole, vec![Action::Hang]].concat())).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    client.begin(&streamed()).await;
    client.events_until("[DONE]").await;
    client.abort();
    assert_eq!(weir.events(1).await[0]["outcome"], "success");
    left(&provider, 1, Instant::now()).await;
    // One that stays gets the end of its body all the same, soon.
    let reply = weir.ask(&streamed()).await;
    assert!(reply.done() && reply.content() == "Hello world!");
    assert_eq!(weir.events(2).await[1]["outcome"], "success");
    weir.idle().await;
}

#[tokio::test]
async fn a_reset_h2_stream_ends_alone() {
    let provider = provider(fixed(vec![])).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut h2 = H2::connect(weir.port).await;
    let mut n = 0;
    for (ask, actions) in waits() {
        provider.play(fixed(actions));
        n += 1;
        let (response, mut body) = h2.open(&ask).await;
        body.send_data(ask.body.clone(), true).unwrap();
        soon("the request", provider.until(|seen| seen.len() == n)).await;
        let since = Instant::now();
        body.send_reset(::h2::Reason::CANCEL);
        drop(response);
        left(&provider, n, since).await;
        aborted(&weir, n).await;
    }
    // In the middle of its body.
    let (_response, mut body) = h2.open(&chat()).await;
    body.send_data(Bytes::from_static(b"{"), false).unwrap();
    body.send_reset(::h2::Reason::CANCEL);
    aborted(&weir, n + 1).await;
    provider.play(Answer::default().script());
    assert_eq!(h2.ask(&chat()).await.status(), 200);
    assert_eq!(provider.count(), n + 1);
}

/// Streams that are reset as soon as they are open, as an attack would (CVE-2023-44487).
#[tokio::test]
async fn streams_that_are_reset_by_the_thousand_leave_nothing_behind() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut h2 = H2::connect(weir.port).await;
    let mut opened = 0;
    for _ in 0..2_000 {
        // The gateway may end such a connection; then there is another one.
        match h2.try_open(&streamed()).await {
            Some(stream) => drop(stream),
            None => h2 = H2::connect(weir.port).await,
        }
        opened += 1;
    }
    assert_eq!(opened, 2_000);
    weir.idle().await;
    assert_eq!(weir.ask(&streamed()).await.status(), 200);
    let mut other = H2::connect(weir.port).await;
    assert_eq!(other.ask(&chat()).await.status(), 200);
    drop((h2, other));
    let closed = async { while weir.metric("weir_open_connections", &[]).await != Some(0.0) {} };
    soon("every connection to be closed", closed).await;
}
