//! Routing over the wire: breakers, credentials, strategies and equivalent models, as a caller, a
//! provider and the ledger see them.

mod credentials;
mod hazards;
mod health;
mod reasons;
mod tiers;

use crate::failover::{QUICK, first};
use crate::harness::*;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

const ONCE: &str = "retry = { attempts = 1 }\n";
const TRIP: &str = "retry = { attempts = 1 }\n\
                    breaker = { min_requests = 4, open_for = \"500ms\" }\n";

fn error(status: u16, headers: &[(&str, &str)]) -> Vec<Action> {
    let body = json!({"error": {"message": "as asked", "type": "x", "code": null}});
    vec![Action::json_with(status, headers, &body)]
}

/// A provider that answers with this status, 200 with content, as long as the number holds it.
fn switched(status: &Arc<AtomicU16>) -> Script {
    let status = status.clone();
    Arc::new(move |request| match status.load(Ordering::Acquire) {
        200 => Answer::default().reply(request),
        other => error(other, &[]),
    })
}

/// One provider `a` with these lines behind `m`.
async fn alone(a: &Provider, more: &str) -> Gateway {
    let parts = [toml::custom("a", "openai", &a.url(), more), toml::model("m", &["a/up-model"])];
    gateway(&(parts.concat() + &toml::key())).await
}

/// Providers `a` and `b` with these lines; `models` are written over them.
async fn two(a: &Provider, b: &Provider, more: &str, models: &str) -> Gateway {
    let parts =
        [toml::custom("a", "openai", &a.url(), more), toml::custom("b", "openai", &b.url(), more)];
    gateway(&(parts.concat() + models + &toml::key())).await
}

async fn statuses(gateway: &Gateway, n: usize) -> Vec<u16> {
    let mut out = Vec::new();
    for _ in 0..n {
        out.push(gateway.ask(&chat()).await.status());
    }
    out
}

#[tokio::test]
async fn a_breaker_opens_probes_and_closes() {
    let status = Arc::new(AtomicU16::new(500));
    let a = provider(switched(&status)).await;
    let gateway = alone(&a, TRIP).await;
    assert_eq!(statuses(&gateway, 5).await, [502, 502, 502, 502, 503]);
    let reply = gateway.ask(&streamed()).await;
    assert_eq!((reply.error(), a.count()), ((503, "no_healthy_upstream".into()), 4));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.header("x-should-retry"), Some("true"));
    let labels = [("provider", "a"), ("model", "up-model")];
    assert_eq!(gateway.metric("weir_breaker_state", &labels), Some(2.0));
    status.store(200, Ordering::Release);
    let healed = async {
        while gateway.ask(&chat()).await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("a probe", healed).await;
    assert_eq!((a.count(), gateway.metric("weir_breaker_state", &labels)), (5, Some(0.0)));
    assert_eq!(statuses(&gateway, 3).await, [200; 3]);
}

#[tokio::test]
async fn a_stream_that_is_cut_counts_when_it_ends() {
    let cut = Answer { cut: Some((1, Cut::Reset)), ..Answer::default() };
    let a = answering(cut).await;
    let gateway = alone(&a, TRIP).await;
    for _ in 0..4 {
        assert_eq!(gateway.ask(&streamed()).await.status(), 200);
    }
    assert_eq!((gateway.ask(&streamed()).await.status(), a.count()), (503, 4));
}

#[tokio::test]
async fn mistakes_refusals_and_limits_open_nothing() {
    for status in [400, 401, 402, 403, 404, 422, 429] {
        let now = Arc::new(AtomicU16::new(status));
        let a = provider(switched(&now)).await;
        let lines =
            format!("{TRIP}cooldown = {{ auth = \"1ms\", quota = \"1ms\", rate = \"1ms\" }}\n");
        let gateway = alone(&a, &lines).await;
        for _ in 0..20 {
            assert_ne!(gateway.ask(&chat()).await.status(), 200, "{status}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(a.count(), 20, "{status}");
        now.store(200, Ordering::Release);
        assert_eq!(gateway.ask(&chat()).await.status(), 200, "{status}");
    }
}

#[tokio::test]
async fn a_request_that_breaks_its_target_twice_counts_once() {
    let a = provider(fixed(error(503, &[]))).await;
    let lines = "retry = { attempts = 3, backoff = \"1ms\", max_backoff = \"2ms\" }\n\
                 breaker = { min_requests = 4 }\n";
    let gateway = alone(&a, lines).await;
    assert_eq!(statuses(&gateway, 4).await, [502; 4]);
    // The fourth opens it, so its own retries are not made.
    assert_eq!((a.count(), gateway.ask(&chat()).await.status()), (10, 503));
}

#[tokio::test]
async fn the_breaker_outlives_a_reload() {
    let a = provider(fixed(error(500, &[]))).await;
    let gateway = alone(&a, TRIP).await;
    statuses(&gateway, 4).await;
    let again = toml::custom("a", "openai", &a.url(), TRIP)
        + &toml::model("m", &["a/up-model"])
        + &toml::key();
    let loaded = weir::config::load_text(std::path::Path::new("x"), &again, &|_| None).unwrap();
    gateway.inner.swap(loaded.snapshot);
    assert_eq!((gateway.ask(&chat()).await.status(), a.count()), (503, 4));
}

#[tokio::test]
async fn a_refused_credential_rests_and_the_next_one_serves() {
    for (status, state) in [(401, 3.0), (403, 3.0), (402, 2.0), (429, 1.0)] {
        let a = provider(Arc::new(move |request| {
            let bad = request.header("authorization").is_some_and(|v| v.ends_with("-one"));
            if bad { error(status, &[]) } else { Answer::default().reply(request) }
        }))
        .await;
        let text = toml::custom("a", "openai", &a.url(), ONCE)
            .replace("[\"sk-upstream-a\"]", "[\"sk-one\", { name = \"two\", value = \"sk-two\" }]");
        let gateway = gateway(&(text + &toml::model("m", &["a/up-model"]) + &toml::key())).await;
        assert_eq!(statuses(&gateway, 10).await, [200; 10], "{status}");
        assert_eq!(a.count(), 11, "{status}: the bad one was asked once");
        let key = |name| {
            gateway.metric("weir_credential_state", &[("provider", "a"), ("credential", name)])
        };
        assert_eq!((key("key-1"), key("two")), (Some(state), Some(0.0)), "{status}");
    }
}

#[tokio::test]
async fn with_all_credentials_dead_nobody_is_asked() {
    for (status, code) in [(401, "upstream_auth"), (402, "upstream_quota")] {
        let a = provider(fixed(error(status, &[]))).await;
        let gateway = alone(&a, ONCE).await;
        for ask in [chat(), streamed(), chat()] {
            let reply = gateway.ask(&ask).await;
            assert_eq!((reply.error(), a.count()), ((502, code.into()), 1));
            assert_eq!(reply.header("x-should-retry"), Some("false"));
        }
    }
}

#[tokio::test]
async fn a_time_the_provider_names_is_kept_by_everybody() {
    let limited = fixed(error(429, &[("retry-after", "7")]));
    let (a, b) = (provider(limited).await, answering(Answer::default()).await);
    let models =
        toml::model("m", &["a/up-model", "b/up-model"]) + &toml::model("one", &["a/up-model"]);
    let gateway = two(&a, &b, ONCE, &models).await;
    assert_eq!(statuses(&gateway, 5).await, [200; 5]);
    assert_eq!((a.count(), b.count()), (1, 5));
    let reply = gateway.ask(&chat().model("one")).await;
    assert_eq!((reply.error(), a.count()), ((429, "upstream_rate_limited".into()), 1));
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=7).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_short_time_is_waited_for() {
    let limited = fixed(error(429, &[("retry-after-ms", "150")]));
    let a = provider(first(1, limited, Answer::default().script())).await;
    let gateway = alone(&a, "retry = { backoff = \"10ms\", max_backoff = \"1s\" }\n").await;
    let ask = chat();
    let second = async {
        soon("the first", a.until(|seen| !seen.is_empty())).await;
        gateway.ask(&ask).await
    };
    let (one, two) = tokio::join!(gateway.ask(&ask), second);
    assert_eq!((one.status(), two.status()), (200, 200));
}

#[tokio::test]
async fn on_429_return_gives_it_to_the_caller() {
    let limited = fixed(error(429, &[("retry-after", "3")]));
    let (a, b) = (provider(limited).await, answering(Answer::default()).await);
    let models = toml::model("m", &["a/up-model", "b/up-model"]) + "on_429 = \"return\"\n";
    let gateway = two(&a, &b, QUICK, &models).await;
    for _ in 0..2 {
        let reply = gateway.ask(&chat()).await;
        assert_eq!(reply.error(), (429, "upstream_rate_limited".into()));
        assert!(["2", "3"].contains(&reply.header("retry-after").unwrap()));
    }
    assert_eq!(b.count(), 0);
}

#[tokio::test]
async fn an_equivalent_model_serves_and_says_so() {
    let (a, b) = (provider(fixed(error(500, &[]))).await, answering(Answer::default()).await);
    let models = toml::model("m", &["a/up-model"])
        + "fallback = [\"spare\"]\n"
        + &toml::model("spare", &["b/up-model"]);
    let gateway = two(&a, &b, TRIP, &models).await;
    for n in 0..6 {
        let ask = if n % 2 == 0 { chat() } else { streamed() };
        let reply = gateway.ask(&ask).await;
        assert_eq!((reply.status(), reply.header("x-weir-upstream")), (200, Some("b")), "{n}");
        let reason = if n < 4 { "failed" } else { "unhealthy" };
        let degraded = format!("from=m; to=spare; reason={reason}");
        assert_eq!(reply.header("x-weir-degraded"), Some(degraded.as_str()), "{n}");
    }
    assert_eq!((a.count(), b.count()), (4, 6));
    let events = gateway.events().await;
    assert!(events.iter().all(|e| e["degraded_from"] == "m" && e["requested_model"] == "m"));
    let healthy = gateway.ask(&chat().model("spare")).await;
    assert_eq!(healthy.header("x-weir-degraded"), None);
}

#[tokio::test]
async fn a_fallback_respects_the_allowlist_and_a_400() {
    let (a, b) = (provider(fixed(error(500, &[]))).await, answering(Answer::default()).await);
    let models = toml::model("m", &["a/up-model"])
        + "fallback = [\"spare\"]\n"
        + &toml::model("spare", &["b/up-model"]);
    let narrow = toml::key() + "models = [\"m\"]\n";
    let parts =
        [toml::custom("a", "openai", &a.url(), ONCE), toml::custom("b", "openai", &b.url(), ONCE)];
    let gateway = gateway(&(parts.concat() + &models + &narrow)).await;
    assert_eq!((gateway.ask(&chat()).await.status(), b.count()), (502, 0));
    let bad = provider(fixed(error(400, &[]))).await;
    let gateway = two(&bad, &b, ONCE, &models).await;
    assert_eq!((gateway.ask(&chat()).await.status(), b.count()), (400, 0));
}

#[tokio::test]
async fn a_503_names_what_the_key_may_ask_instead() {
    let (a, b) = (provider(fixed(error(500, &[]))).await, answering(Answer::default()).await);
    let models = toml::model("m", &["a/up-model"]) + &toml::model("other", &["b/up-model"]);
    let gateway = two(&a, &b, TRIP, &models).await;
    statuses(&gateway, 4).await;
    let reply = gateway.ask(&chat()).await;
    assert_eq!(reply.status(), 503);
    assert!(reply.text().contains("this key may use instead: other"), "{}", reply.text());
}

#[tokio::test]
async fn weights_are_kept_exactly() {
    let (a, b) = (answering(Answer::default()).await, answering(Answer::default()).await);
    let models = "[models.m]\nstrategy = \"weighted\"\ntargets = [{ to = \"a/up-model\", weight = 9 }, \
                  { to = \"b/up-model\", weight = 1 }]\n";
    let gateway = two(&a, &b, ONCE, models).await;
    statuses(&gateway, 100).await;
    assert!((9..=11).contains(&b.count()), "{}", b.count());
}

#[tokio::test]
async fn routes_send_a_request_elsewhere_and_one_call_is_one_call() {
    let (a, b) = (provider(fixed(error(503, &[]))).await, answering(Answer::default()).await);
    let models = toml::model("m", &["a/up-model", "b/up-model"])
        + &toml::model("cheap", &["b/up-model"])
        + "[[routes]]\nwhen = { team = \"crew\", task_type = \"sum\" }\nmodel = \"cheap\"\n";
    let gateway = two(&a, &b, QUICK, &models).await;
    let reply = gateway.ask(&chat().with("x-weir-task-type", "sum")).await;
    assert_eq!((reply.status(), a.count(), b.count()), (200, 0, 1));
    let reply = gateway.ask(&chat().with("x-weir-retry", "none")).await;
    assert_eq!((reply.status(), a.count(), b.count()), (502, 1, 1));
}

#[tokio::test]
async fn a_client_that_leaves_says_nothing_about_its_provider() {
    let a = provider(first(8, fixed(vec![Action::Hang]), Answer::default().script())).await;
    let gateway = alone(&a, TRIP).await;
    for n in 1..=8 {
        let mut client = gateway.client().await;
        client.send(&streamed().bytes()).await;
        soon("the provider", a.until(|seen| seen.len() == n)).await;
        client.abort();
        let booked = async {
            while gateway.events().await.len() < n {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon("the event", booked).await;
    }
    assert_eq!((gateway.ask(&chat()).await.status(), a.count()), (200, 9));
}
