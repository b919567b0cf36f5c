//! What follows a failure by its reason, and one key over all tries of a request.

use super::{ONCE, error, two};
use crate::failover::first;
use crate::harness::*;
use serde_json::json;

fn refusing(code: &str) -> Script {
    let body = json!({"error": {"message": "no", "type": "invalid_request_error", "code": code}});
    fixed(vec![Action::json(400, &body)])
}

/// `m` at a, its equivalents `short` and `long` at b.
fn equivalents() -> String {
    toml::model("m", &["a/up-model"])
        + "fallback = [\"short\", \"long\"]\n"
        + &toml::model("short", &["b/short"])
        + &toml::model("long", &["b/long"])
}

#[tokio::test]
async fn a_refused_content_goes_elsewhere_only_where_config_says_so() {
    let on = "failover = { on = [\"5xx\", \"content_filter\"] }\n";
    for (lines, equal, asked, status) in [
        (ONCE.to_owned(), true, 0, 400),
        (ONCE.to_owned() + on, true, 1, 200),
        (ONCE.to_owned(), false, 0, 400),
        (ONCE.to_owned() + on, false, 1, 200),
    ] {
        let a = provider(refusing("content_filter")).await;
        let b = answering(Answer::default()).await;
        let models = match equal {
            true => toml::model("m", &["a/up-model", "b/up-model"]),
            false => equivalents(),
        };
        let gateway = two(&a, &b, &lines, &models).await;
        let reply = gateway.ask(&chat()).await;
        assert_eq!((reply.status(), b.count()), (status, asked), "{lines}");
        if status == 400 {
            assert_eq!(reply.error(), (400, "content_filter".into()));
        } else if !equal {
            let degraded = reply.header("x-weir-degraded");
            assert_eq!(degraded, Some("from=m; to=short; reason=content_filter"));
        }
    }
    let a = provider(refusing("content_filter")).await;
    let gateway = two(&a, &a, &(ONCE.to_owned() + on), &toml::model("m", &["a/x", "b/x"])).await;
    assert_eq!(gateway.ask(&chat()).await.error(), (400, "content_filter".into()));
    assert_eq!(a.count(), 2, "the last one's word is the caller's");
}

#[tokio::test]
async fn a_prompt_that_was_too_long_goes_to_a_longer_model_only() {
    let a = provider(refusing("context_length_exceeded")).await;
    let b = answering(Answer::default()).await;
    let known = |name: &str, context: u32| {
        format!("[providers.b.models.\"{name}\"]\ncontext = {context}\n")
    };
    let sizes = "[providers.a.models.\"up-*\"]\ncontext = 5000\n".to_owned()
        + &known("short", 4_000)
        + &known("long", 900_000);
    // The exact table of `up-model` wins over the pattern, so it gets its context too.
    let models = equivalents() + &sizes;
    let gateway = two(&a, &b, ONCE, &models).await;
    let reply = gateway.ask(&chat()).await;
    assert_eq!((reply.status(), a.count(), b.count()), (200, 1, 1));
    assert_eq!(reply.header("x-weir-model"), Some("short"), "of `m` no context is known");
    let sized = toml::custom("a", "openai", &a.url(), ONCE) + "context = 5000\n";
    let text = [sized, toml::custom("b", "openai", &b.url(), ONCE), equivalents()].concat()
        + &known("short", 4_000)
        + &known("long", 900_000)
        + &toml::key();
    let gateway = crate::harness::gateway(&text).await;
    let reply = gateway.ask(&chat()).await;
    let degraded = "from=m; to=long; reason=context_length";
    assert_eq!((reply.status(), reply.header("x-weir-degraded")), (200, Some(degraded)));
    // Longer than the model by our own estimate: the provider is not even asked.
    let before = a.count();
    let reply = gateway.ask(&chat().say(&"many words ".repeat(8_000))).await;
    let degraded = "from=m; to=long; reason=does_not_fit";
    assert_eq!(reply.header("x-weir-degraded"), Some(degraded), "{}", reply.text());
    assert_eq!(a.count(), before);
}

#[tokio::test]
async fn one_key_is_borne_by_all_tries_of_a_request_and_by_no_other() {
    let a = provider(first(2, fixed(error(503, &[])), Answer::default().script())).await;
    let b = answering(Answer::default()).await;
    let lines = "retry = { attempts = 2, backoff = \"1ms\", max_backoff = \"2ms\" }\n\
                 idempotency_header = \"Idempotency-Key\"\n";
    let gateway = two(&a, &b, lines, &toml::model("m", &["a/up-model", "b/up-model"])).await;
    let ask = chat().with("idempotency-key", "the caller's own");
    assert_eq!(gateway.ask(&ask).await.header("x-weir-attempts"), Some("3"));
    assert_eq!(gateway.ask(&ask).await.status(), 200);
    let key = |p: &Provider| -> Vec<String> {
        let all = p.requests();
        let keys = all.iter().map(|s| s.request.header("idempotency-key").unwrap().to_owned());
        keys.collect()
    };
    let (at_a, at_b) = (key(&a), key(&b));
    assert!(at_a[0] == at_a[1] && at_a[0] == at_b[0], "{at_a:?} {at_b:?}");
    assert!(at_a[2] != at_a[0] && at_a.iter().all(|key| key.starts_with("weir-")), "{at_a:?}");
}
