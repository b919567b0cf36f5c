//! A panic in a filter.

use super::*;
use crate::harness::h2c::H2;

/// A gateway whose filter panics at its first piece, and a stream of which the client has had
/// nothing by then.
async fn panicking(provider: &Provider) -> Weir {
    let env = [("WEIR_FAIL", "panic-in-filter")];
    Weir::with(&toml::simple(provider), Tables::default(), &env).await
}

#[tokio::test]
async fn a_panic_in_a_filter_costs_one_request_and_its_event_is_interrupted() {
    let provider = answering(Answer::default()).await;
    for ask in [chat(), streamed()] {
        let weir = panicking(&provider).await;
        let mut client = Client::connect(weir.port).await;
        client.send(&ask.bytes()).await;
        assert!(client.try_head().await.is_none(), "an answer out of a panic");
        assert_eq!(weir.ask(&ask).await.status(), 200);
        let events = weir.events(2).await;
        let ends: Vec<_> = events.iter().map(|e| e["outcome"].as_str().unwrap()).collect();
        assert_eq!(ends, ["interrupted", "success"]);
        assert_eq!(events[0]["status"], 500);
        assert!(events[0]["input_tokens"].as_u64() > Some(0), "{}", events[0]);
        weir.idle().await;
        let outcome = [("outcome", "interrupted")];
        assert_eq!(weir.metric("weir_requests_total", &outcome).await, Some(1.0));
        assert!(weir.stderr().contains("panic"), "a panic is in the log: {}", weir.stderr());
    }
}

#[tokio::test]
async fn a_panic_in_one_h2_stream_leaves_the_others_of_its_connection_alone() {
    let gate = Gate::new();
    let script = vec![Action::Pass(gate.clone()), Action::stream(), word("a"), Action::Hang];
    let provider = provider(fixed(script)).await;
    let weir = panicking(&provider).await;
    let mut h2 = H2::connect(weir.port).await;
    let (first, mut first_body) = h2.open(&streamed()).await;
    first_body.send_data(streamed().body, true).unwrap();
    let (second, mut second_body) = h2.open(&streamed()).await;
    second_body.send_data(streamed().body, true).unwrap();
    soon("both requests", provider.until(|seen| seen.len() == 2)).await;
    gate.open(1);
    // The one that was let through panics; the other one goes on.
    let (first, second) = (tokio::spawn(first), tokio::spawn(second));
    weir.events(1).await;
    gate.open(1);
    let (first, second) = (soon("an end", first).await, soon("an end", second).await);
    let answers = [first.unwrap(), second.unwrap()]
        .into_iter()
        .filter(|r| r.as_ref().is_ok_and(|r| r.status() == 200));
    assert_eq!(answers.count(), 1);
    provider.play(Answer::default().script());
    assert_eq!(h2.ask(&chat()).await.status(), 200);
}
