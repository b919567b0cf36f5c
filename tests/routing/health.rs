//! Active probes: a provider that answers none gets no requests, and is back with the first answer.

use crate::harness::*;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const OFTEN: &str = "retry = { attempts = 1 }\n\
                     health = { path = \"/models\", every = \"50ms\", timeout = \"300ms\" }\n";

/// A provider whose probes fail while this is set, and whose answers are always good.
async fn probed(sick: &Arc<AtomicBool>, failing: Vec<Action>) -> Provider {
    let sick = sick.clone();
    provider(Arc::new(move |request| {
        if request.method != "GET" {
            return Answer::default().reply(request);
        }
        assert_eq!(request.path, "/v1/models");
        assert_eq!(request.header("authorization"), Some("Bearer sk-upstream-a"));
        match sick.load(Ordering::Acquire) {
            true => failing.clone(),
            false => vec![Action::json(200, &json!({"data": []}))],
        }
    }))
    .await
}

fn asked(a: &Provider) -> usize {
    a.requests().iter().filter(|seen| seen.request.method == "POST").count()
}

async fn until(weir: &Weir, state: f64) {
    let labels = [("provider", "a"), ("model", "up-model")];
    let turned = async {
        while weir.metric("weir_breaker_state", &labels).await != Some(state) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("the probes", turned).await;
}

#[tokio::test]
async fn a_provider_that_answers_no_probe_gets_no_requests_until_it_does() {
    let busy = vec![Action::json(503, &json!({"error": {"message": "busy"}}))];
    for failing in [busy, vec![Action::Hang], vec![Action::Reset]] {
        let sick = Arc::new(AtomicBool::new(true));
        let (a, b) = (probed(&sick, failing).await, answering(Answer::default()).await);
        let text = [
            toml::custom("a", "openai", &a.url(), OFTEN),
            toml::openai("b", &b),
            toml::model("m", &["a/up-model", "b/up-model"]),
            toml::model("one", &["a/up-model"]),
            toml::key(),
        ];
        let weir = Weir::start(&text.concat()).await;
        until(&weir, 2.0).await;
        let before = asked(&a);
        assert_eq!(weir.ask(&chat()).await.header("x-weir-upstream"), Some("b"));
        let reply = weir.ask(&chat().model("one")).await;
        assert_eq!(reply.error(), (503, "no_healthy_upstream".into()));
        assert!(reply.text().contains("use instead: m"), "{}", reply.text());
        assert_eq!((asked(&a), weir.stderr().contains("health_down")), (before, true));
        sick.store(false, Ordering::Release);
        until(&weir, 0.0).await;
        assert_eq!(weir.ask(&chat()).await.header("x-weir-upstream"), Some("a"));
        assert!(weir.stderr().contains("health_up"));
    }
}

#[tokio::test]
async fn a_refused_or_unknown_probe_is_a_sign_of_life_and_unprobed_is_never_out() {
    let calm = vec![Action::json(404, &json!({"error": {"message": "no such path"}}))];
    let sick = Arc::new(AtomicBool::new(true));
    let a = probed(&sick, calm).await;
    let lines = |more: &str| {
        toml::custom("a", "openai", &a.url(), more) + &toml::model("m", &["a/up-model"])
    };
    let weir = Weir::start(&(lines(OFTEN) + &toml::key())).await;
    soon("five probes", a.until(|seen| seen.len() >= 5)).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    // A provider that is down and then no longer probed is asked again.
    a.play(fixed(vec![Action::Reset]));
    until(&weir, 2.0).await;
    a.play(Answer::default().script());
    weir.write(&(lines("") + &toml::key()));
    until(&weir, 0.0).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
}
