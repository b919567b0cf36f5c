//! Failures before the first content: which provider is asked again, which one next, and what the
//! caller, the ledger and the metrics hear of it.

mod backoff;
mod table;

use crate::harness::*;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines of a provider that waits neither for long nor between two tries.
pub const QUICK: &str = "timeouts = { connect = \"2s\", first_token = \"300ms\", idle = \"5s\", \
                         reply = \"300ms\", total = \"20s\" }\n\
                         retry = { backoff = \"1ms\", max_backoff = \"5ms\" }\n";

/// Provider `a` at this URL, then `b`, behind `m`; `one` has `a` alone.
pub fn config(a: &str, b: &Provider, more: &str) -> String {
    [
        toml::custom("a", "openai", a, more),
        toml::custom("b", "openai", &b.url(), more),
        toml::model("m", &["a/up-model", "b/up-model"]),
        toml::model("one", &["a/up-model"]),
        toml::key(),
    ]
    .concat()
}

fn status(status: u16) -> Script {
    let body = serde_json::json!({"error": {"message": "as asked", "type": "x", "code": null}});
    fixed(vec![Action::json(status, &body)])
}

/// The first script for the first `n` requests, then the second.
pub fn first(n: usize, before: Script, after: Script) -> Script {
    let seen = AtomicUsize::new(0);
    Arc::new(move |request| {
        let before = (seen.fetch_add(1, Ordering::AcqRel) < n).then_some(&before);
        before.unwrap_or(&after)(request)
    })
}

fn words(n: usize, cut: Cut) -> Answer {
    Answer { cut: Some((n, cut)), ..Answer::default() }
}

#[tokio::test]
async fn nothing_is_asked_elsewhere_once_content_has_left() {
    for cut in [Cut::Reset, Cut::End, Cut::Error] {
        let (a, b) = (answering(words(2, cut)).await, answering(Answer::default()).await);
        let gateway = gateway(&config(&a.url(), &b, QUICK)).await;
        let reply = gateway.ask(&streamed()).await;
        assert_eq!((reply.status(), reply.content().as_str()), (200, "Hello world"), "{cut:?}");
        assert!(reply.error_event().is_some() && !reply.text().contains("[DONE]"), "{cut:?}");
        assert_eq!(reply.finishes(), Vec::<String>::new());
        assert_eq!((a.count(), b.count()), (1, 0), "{cut:?}");
        let event = gateway.event().await;
        let outcome = if cut == Cut::Error { "upstream_error" } else { "truncated" };
        assert_eq!(event["outcome"], outcome, "{cut:?}: {event}");
        assert!(event["output_tokens"].as_u64().unwrap() >= 2, "{event}");
    }
}

#[tokio::test]
async fn a_dead_pooled_connection_costs_no_request_and_counts_as_no_try() {
    // The second request of a connection meets a reset, as if it had crossed the provider's close.
    let seen = Arc::new(AtomicUsize::new(0));
    let script: Script = Arc::new(move |request| match seen.fetch_add(1, Ordering::AcqRel) {
        1 | 4 => vec![Action::Reset],
        _ => Answer::default().reply(request),
    });
    let a = provider(script).await;
    let more = "retry = { attempts = 1 }\nfailover = { on = [] }\n";
    let config = [toml::custom("a", "openai", &a.url(), more), toml::key()].concat();
    let config = config + &toml::model("m", &["a/up-model"]);
    let gateway = gateway(&config).await;
    for ask in [chat(), chat(), streamed(), streamed()] {
        let reply = gateway.ask(&ask).await;
        assert_eq!((reply.status(), reply.header("x-weir-attempts")), (200, Some("1")));
    }
    assert_eq!((a.count(), a.connections()), (6, 3));
    for event in gateway.events().await {
        assert_eq!(event["attempts"].as_array().unwrap().len(), 1, "{event}");
        assert_eq!(
            (&event["outcome"], &event["wasted_cost_nano_usd"]),
            (&"success".into(), &0.into())
        );
    }
}

#[tokio::test]
async fn a_provider_that_closes_its_idle_connections_loses_no_request() {
    let script: Script = Arc::new(|request| {
        let mut actions = Answer::default().reply(request);
        actions.push(Action::Close);
        actions
    });
    let a = provider(script).await;
    let gateway = gateway(&toml::simple(&a)).await;
    for n in 1..=50 {
        assert_eq!(gateway.ask(&chat()).await.status(), 200);
        assert_eq!(a.count(), n);
    }
}

#[tokio::test]
async fn a_provider_that_reads_each_request_and_closes_gets_no_more_than_the_tries_of_config() {
    for end in [Action::Close, Action::Reset] {
        let seen = Arc::new(AtomicUsize::new(0));
        let script: Script = Arc::new(move |request| match seen.fetch_add(1, Ordering::AcqRel) {
            0 => Answer::default().reply(request),
            _ => vec![end.clone()],
        });
        let a = provider(script).await;
        let gateway = gateway(&toml::simple(&a)).await;
        assert_eq!(gateway.ask(&chat()).await.status(), 200, "its connection is kept");
        let reply = gateway.ask(&chat()).await;
        assert_eq!(reply.error(), (502, "upstream_error".into()));
        assert_eq!(a.count(), 1 + 2, "the kept connection's try and one on a new one");
    }
}

#[tokio::test]
async fn an_error_of_the_request_itself_ends_the_tries_at_once() {
    for (given, code, stays) in [
        (400, "invalid_request", 400),
        (404, "model_not_found", 404),
        (409, "invalid_request", 409),
        (413, "request_too_large", 413),
        (422, "invalid_request", 422),
        (415, "invalid_request", 400),
    ] {
        let (a, b) = (provider(status(given)).await, answering(Answer::default()).await);
        let gateway = gateway(&config(&a.url(), &b, QUICK)).await;
        for ask in [chat(), streamed()] {
            let reply = gateway.ask(&ask).await;
            assert_eq!(reply.error(), (stays, code.into()), "{given}");
            assert_eq!(reply.header("x-should-retry"), Some("false"));
        }
        assert_eq!((a.count(), b.count()), (2, 0), "{given}");
        for event in gateway.events().await {
            assert_eq!((&event["outcome"], &event["status"]), (&"refused".into(), &stays.into()));
            assert_eq!(
                (&event["cost_nano_usd"], &event["wasted_cost_nano_usd"]),
                (&0.into(), &0.into())
            );
        }
    }
}

#[tokio::test]
async fn both_targets_say_what_the_last_one_said() {
    let check = async |a: Script, b: Script, status: u16, code: &str, retry: &str| {
        let (a, b) = (provider(a).await, provider(b).await);
        let gateway = gateway(&config(&a.url(), &b, QUICK)).await;
        let reply = gateway.ask(&chat()).await;
        assert_eq!(reply.error(), (status, code.into()));
        assert_eq!(reply.header("x-should-retry"), Some(retry), "{code}");
        let event = gateway.event().await;
        let tried = a.count() + b.count();
        assert_eq!(event["attempts"].as_array().map(Vec::len), Some(tried), "{event}");
        assert_eq!(reply.header("x-weir-attempts"), Some(tried.to_string().as_str()));
        (reply, a.count(), b.count())
    };
    let (reply, a, b) = check(status(503), status(503), 503, "no_healthy_upstream", "true").await;
    assert_eq!((a, b), (2, 2)); // each its own retry, and no more
    assert!(reply.header("retry-after").is_some());
    check(status(500), status(500), 503, "no_healthy_upstream", "true").await;
    let slow = |seconds: &str| {
        let error = serde_json::json!({"error": {"message": "slow down"}});
        fixed(vec![Action::json_with(429, &[("retry-after", seconds)], &error)])
    };
    let (reply, a, b) = check(slow("7"), slow("9"), 429, "upstream_rate_limited", "true").await;
    assert_eq!((a, b, reply.header("retry-after")), (1, 1, Some("9")));
    let context =
        serde_json::json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
    let context = fixed(vec![Action::json(400, &context)]);
    check(status(500), context, 400, "context_length_exceeded", "false").await;
    check(status(500), status(401), 502, "upstream_auth", "false").await;
}

#[tokio::test]
async fn a_first_try_that_fails_leaves_no_trace_in_the_second() {
    // Two tries on one target: the stream is whole, and billed once.
    let a = provider(first(1, status(503), Answer::default().script())).await;
    let config = [toml::custom("a", "openai", &a.url(), QUICK), toml::key()].concat();
    let gateway = gateway(&(config + &toml::model("m", &["a/up-model"]))).await;
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && reply.content() == "Hello world!");
    assert_eq!((a.count(), reply.header("x-weir-attempts")), (2, Some("2")));
    let event = gateway.event().await;
    assert_eq!((&event["input_tokens"], &event["output_tokens"]), (&9.into(), &3.into()));
    assert_eq!(event["attempts"][0]["error"], "503");
    assert_eq!(event["attempts"][1].get("error"), None);
}

#[tokio::test]
async fn a_client_that_leaves_between_two_tries_ends_them() {
    let error = serde_json::json!({"error": {"message": "slow down"}});
    let more = "retry = { attempts = 5, backoff = \"1s\", max_backoff = \"30s\" }\n";
    for ask in [chat(), streamed()] {
        let slow = fixed(vec![Action::json_with(429, &[("retry-after", "20")], &error)]);
        let a = provider(slow).await;
        let config = [toml::custom("a", "openai", &a.url(), more), toml::key()].concat();
        let gateway = gateway(&(config + &toml::model("m", &["a/up-model"]))).await;
        let mut client = gateway.client().await;
        client.send(&ask.bytes()).await;
        soon("the first try", a.until(|seen| !seen.is_empty() && seen[0].done)).await;
        client.abort();
        let event = gateway.event().await;
        assert_eq!(a.count(), 1);
        assert_eq!((&event["outcome"], &event["status"]), (&"client_abort".into(), &499.into()));
        assert_eq!((&event["cost_nano_usd"], &event["output_tokens"]), (&0.into(), &0.into()));
    }
}

#[tokio::test]
async fn an_error_that_is_told_keeps_both_connections() {
    let a = provider(status(500)).await;
    let never = "breaker = { min_requests = 1000 }\n";
    let provider = toml::custom("a", "openai", &a.url(), never);
    let config = [provider, toml::model("m", &["a/up-model"]), toml::key()];
    let gateway = gateway(&config.concat()).await;
    let mut client = gateway.client().await;
    for ask in [chat(), streamed()].iter().cycle().take(20) {
        assert_eq!(client.ask(ask).await.error(), (502, "upstream_error".into()));
    }
    assert_eq!((a.count(), a.connections()), (20, 1));
}

/// A failed try's connection is lost, since Pingora ends what it waits for with it. So a target
/// that refuses is left alone for the time it names, or for a while.
#[tokio::test]
async fn a_target_that_refuses_each_request_is_not_connected_to_for_each_n10() {
    for more in ["", "breaker = { min_requests = 1000 }\n"] {
        let (a, b) = (provider(status(429)).await, answering(Answer::default()).await);
        let a_table = toml::custom("a", "openai", &a.url(), more);
        let model = toml::model("m", &["a/up-model", "b/up-model"]);
        let config = [a_table, toml::openai("b", &b), model, toml::key()].concat();
        let gateway = gateway(&config).await;
        let mut client = gateway.client().await;
        for _ in 0..100 {
            assert_eq!(client.ask(&chat()).await.status(), 200);
        }
        assert!(a.connections() <= 3, "{more}: {} connections", a.connections());
        assert_eq!((b.count(), b.connections()), (100, 1), "the other one's is kept");
    }
}

/// The members of an attempt that the tables compare.
pub fn attempt(event: &Value, n: usize) -> (String, u64, Option<String>) {
    let attempt = &event["attempts"][n];
    let text = |name: &str| attempt[name].as_str().map(str::to_owned);
    (text("provider").unwrap(), attempt["status"].as_u64().unwrap(), text("error"))
}
