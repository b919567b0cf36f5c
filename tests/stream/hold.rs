//! Before the first content nothing is final; after a time the client gets signs of life all the
//! same. And how a running stream ends when the process must.

use super::{stop, word};
use crate::harness::*;
use std::sync::Arc;
use weir::flow::Phase;

/// `a`, then `b`, with signs of life every 100 ms.
fn held(a: &Provider, b: &Provider) -> String {
    "[server]\nhold_max = \"100ms\"\n".to_owned() + &toml::pair(a, b)
}

/// Silence until the gate opens, then these actions.
fn silent(gate: &Gate, head: bool, then: Vec<Action>) -> Script {
    let mut actions = if head { vec![Action::stream()] } else { vec![] };
    actions.push(Action::Pass(gate.clone()));
    fixed([actions, then].concat())
}

/// Reads comments until there are two, then opens the gate for all.
async fn two_signs(client: &mut Client, gate: &Gate) -> String {
    let mut text = String::new();
    while text.matches(": keep-alive\n\n").count() < 2 {
        match client.piece().await {
            client::Piece::Data(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            end => panic!("{end:?} after {text:?}"),
        }
    }
    gate.open(9); // for every try
    text
}

#[tokio::test]
async fn a_silent_target_still_fails_over_after_signs_of_life() {
    for head in [false, true] {
        let gate = Gate::new();
        let a = provider(silent(&gate, head, vec![Action::Reset])).await;
        let b = answering(Answer::default()).await;
        let gateway = gateway(&held(&a, &b)).await;
        let mut client = gateway.client().await;
        assert_eq!(client.begin(&streamed()).await.status, 200);
        let signs = two_signs(&mut client, &gate).await;
        assert_eq!(signs.replace(": keep-alive\n\n", ""), "", "whole comments and nothing else");
        let (rest, end) = client.rest().await;
        let rest = rest.trim_start_matches(": keep-alive\n\n"); // one may be on its way
        assert!(rest.contains("Hello") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
        assert_eq!((end, b.count()), (reply::End::Clean, 1));
        let event = gateway.event().await;
        assert_eq!((&event["provider"], &event["outcome"]), (&"b".into(), &"success".into()));
        assert_eq!((&event["output_tokens"], &event["status"]), (&3.into(), &200.into()));
    }
}

#[tokio::test]
async fn after_signs_of_life_an_error_is_an_event() {
    let gate = Gate::new();
    let error = serde_json::json!({"error": {"message": "broken"}});
    let a = provider(silent(&gate, false, vec![Action::json(500, &error)])).await;
    let b = provider(fixed(vec![Action::json(500, &error)])).await;
    let gateway = gateway(&held(&a, &b)).await;
    let mut client = gateway.client().await;
    client.begin(&streamed()).await;
    two_signs(&mut client, &gate).await;
    let (rest, end) = client.rest().await;
    let events = reply::events(&rest);
    assert_eq!((events.len(), end), (1, reply::End::Clean), "{rest}");
    let told: serde_json::Value = serde_json::from_str(&events[0]).unwrap();
    assert_eq!(told["error"]["code"], "no_healthy_upstream");
    let event = gateway.event().await;
    assert_eq!((&event["status"], &event["outcome"]), (&200.into(), &"upstream_error".into()));
}

#[tokio::test]
async fn a_stream_in_time_has_no_signs_of_life_and_json_never() {
    let gate = Gate::new();
    let json = Answer::default();
    let held_back = gate.clone();
    let a = provider(Arc::new(move |request| {
        [vec![Action::Pass(held_back.clone())], json.reply(request)].concat()
    }));
    let (a, b) = (a.await, answering(Answer::default()).await);
    let gateway = gateway(&held(&a, &b)).await;
    let mut client = gateway.client().await;
    client.send(&chat().bytes()).await;
    // Three times hold_max: what JSON could get would be there.
    let early =
        tokio::time::timeout(std::time::Duration::from_millis(300), client.try_head()).await;
    assert!(early.is_err(), "{early:?}");
    gate.open(2);
    assert_eq!(client.reply().await.status(), 200);
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && !reply.text().contains("keep-alive"), "{}", reply.text());
}

#[tokio::test]
async fn a_running_stream_is_cut_with_an_error_event_and_its_row() {
    let a = provider(fixed(vec![Action::stream(), word("one"), Action::Hang])).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut client = gateway.client().await;
    client.begin(&streamed()).await;
    client.events_until("one").await;
    gateway.inner.drain.advance(Phase::Cut);
    let (rest, end) = client.rest().await;
    let events = reply::events(&rest);
    assert!(events.len() == 1 && events[0].contains("error"), "{rest}");
    assert_eq!(end, reply::End::Clean);
    let event = gateway.event().await;
    assert_eq!((&event["outcome"], &event["status"]), (&"interrupted".into(), &200.into()));
    assert!(
        event["output_tokens"].as_u64().unwrap() > 0
            && event["cost_nano_usd"].as_u64().unwrap() > 0
    );
    soon("the upstream's end", a.until(|seen| seen[0].left.is_some())).await;
}

#[tokio::test]
async fn a_waiting_json_request_is_cut_with_a_503() {
    let a = provider(fixed(vec![Action::Hang])).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut client = gateway.client().await;
    client.send(&chat().bytes()).await;
    soon("the request", a.until(|seen| seen.len() == 1)).await;
    gateway.inner.drain.advance(Phase::Cut);
    let reply = client.reply().await;
    assert_eq!(reply.error().0, 503);
    assert_eq!(reply.header("x-should-retry"), Some("true"));
    assert_eq!(gateway.event().await["outcome"], "interrupted");
}

#[tokio::test]
async fn a_draining_gateway_ends_its_connections_and_finishes_its_streams() {
    let gate = Gate::new();
    let actions = vec![Action::stream(), word("one"), Action::Pass(gate.clone()), word("two")];
    let a = provider(fixed([actions, stop()].concat())).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut client = gateway.client().await;
    client.begin(&streamed()).await;
    client.events_until("one").await;
    gateway.inner.drain.advance(Phase::Closing);
    let refused = gateway.ask(&chat()).await;
    assert_eq!((refused.error().0, a.count()), (503, 1));
    assert!(refused.header("retry-after").is_some());
    gate.open(1);
    assert!(client.rest().await.0.ends_with("data: [DONE]\n\n"));
    assert_eq!(gateway.events().await.len(), 2);
}
