//! Several credentials of one provider: their caps, and what the provider says is left of them.

use super::{ONCE, statuses, two};
use crate::failover::first;
use crate::harness::*;
use serde_json::json;
use std::time::Duration;

/// Provider `a` with these credentials behind `m`, and what follows.
async fn keyed(a: &Provider, keys: &str, more: &str) -> Gateway {
    let text = toml::custom("a", "openai", &a.url(), more);
    let text = text.replace("[\"sk-upstream-a\"]", keys);
    gateway(&(text + &toml::model("m", &["a/up-model"]) + &toml::key())).await
}

/// How often a provider was asked with a credential.
fn asked(a: &Provider, secret: &str) -> usize {
    let bearer = format!("Bearer {secret}");
    a.requests().iter().filter(|s| s.request.header("authorization") == Some(&bearer)).count()
}

/// An answer with these headers.
fn with(headers: &[(&str, &str)]) -> Script {
    let body = json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "up-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"},
            "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    });
    fixed(vec![Action::json_with(200, headers, &body)])
}

#[tokio::test]
async fn requests_beyond_a_credential_s_minute_go_to_the_next_one() {
    let a = answering(Answer::default()).await;
    let keys = "[{ value = \"sk-one\", limits = { rpm = 2 } }, \
                { value = \"sk-two\", limits = { rpm = 3 } }]";
    let gateway = keyed(&a, keys, ONCE).await;
    assert_eq!(statuses(&gateway, 5).await, [200; 5]);
    assert_eq!((asked(&a, "sk-one"), asked(&a, "sk-two")), (2, 3));
    let reply = gateway.ask(&chat()).await;
    assert_eq!((reply.error(), a.count()), ((429, "upstream_rate_limited".into()), 5));
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((10..=20).contains(&wait), "{wait}");
}

#[tokio::test]
async fn tokens_of_a_credential_are_settled_by_what_was_used() {
    let a = answering(Answer::default()).await;
    let keys = "[{ value = \"sk-one\", weight = 1, limits = { tpm = 3000 } }]";
    let gateway = keyed(&a, keys, ONCE).await;
    // Each is held as 1,024 tokens and more, and uses a handful.
    assert_eq!(statuses(&gateway, 20).await, [200; 20]);
    let more = chat().set("max_tokens", 3_000);
    assert_eq!(gateway.ask(&more).await.error(), (429, "upstream_rate_limited".into()));
    assert_eq!(gateway.ask(&chat()).await.status(), 200);
}

#[tokio::test]
async fn a_call_holds_its_place_until_its_stream_ends_or_is_left() {
    let hung = first(1, fixed(vec![Action::Hang]), Answer::default().script());
    let (a, b) = (provider(hung).await, answering(Answer::default()).await);
    let (url_a, url_b) = (a.url(), b.url());
    let text = [
        toml::custom("a", "openai", &url_a, ONCE)
            .replace("[\"sk-upstream-a\"]", "[{ value = \"s\", limits = { concurrent = 1 } }]"),
        toml::custom("b", "openai", &url_b, ONCE),
        toml::model("m", &["a/up-model", "b/up-model"]),
        toml::model("one", &["a/up-model"]),
        toml::key(),
    ];
    let gateway = gateway(&text.concat()).await;
    let mut client = gateway.client().await;
    client.send(&streamed().bytes()).await;
    soon("the first call", a.until(|seen| seen.len() == 1)).await;
    assert_eq!(statuses(&gateway, 3).await, [200; 3]);
    assert_eq!((a.count(), b.count()), (1, 3));
    let reply = gateway.ask(&chat().model("one")).await;
    assert_eq!((reply.error(), a.count()), ((503, "no_healthy_upstream".into()), 1));
    assert_eq!(reply.header("x-should-retry"), Some("true"));
    client.abort();
    let free = async {
        while gateway.ask(&chat().model("one")).await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("the place", free).await;
}

#[tokio::test]
async fn a_failed_call_gives_its_place_back_and_a_full_one_is_waited_for_a_moment() {
    let refusing = Refusing::new();
    let b = answering(Answer::default()).await;
    let text = [
        toml::custom("a", "openai", &refusing.url(), ONCE).replace(
            "[\"sk-upstream-a\"]",
            "[{ value = \"s\", limits = { concurrent = 1, rpm = 1 } }]",
        ),
        toml::custom("b", "openai", &b.url(), ONCE),
        toml::model("m", &["a/up-model", "b/up-model"]),
        toml::key(),
    ];
    let gateway = gateway(&text.concat()).await;
    assert_eq!(statuses(&gateway, 4).await, [200; 4]);
    let tried = gateway.events().await;
    // Nothing was ever sent, so no request of the minute is used up: `a` is tried each time.
    assert!(tried.iter().all(|e| e["attempts"][0]["provider"] == "a"), "{tried:#?}");
}

#[tokio::test]
async fn what_is_left_moves_load_before_the_first_429() {
    let used_up = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "30s"),
    ];
    let (a, b) = (provider(with(&used_up)).await, answering(Answer::default()).await);
    let models =
        toml::model("m", &["a/up-model", "b/up-model"]) + &toml::model("one", &["a/up-model"]);
    let gateway = two(&a, &b, ONCE, &models).await;
    assert_eq!(statuses(&gateway, 4).await, [200; 4]);
    assert_eq!((a.count(), b.count()), (1, 3));
    // It is a guess, so that whoever has nobody else is not refused for it.
    assert_eq!(gateway.ask(&chat().model("one")).await.status(), 200);
    assert_eq!(a.count(), 2);
}

#[tokio::test]
async fn what_is_left_of_a_credential_moves_load_to_the_next_one() {
    let a = provider(with(&[("x-ratelimit-remaining-tokens", "1")])).await;
    let gateway = keyed(&a, "[\"sk-one\", \"sk-two\"]", ONCE).await;
    assert_eq!(statuses(&gateway, 2).await, [200; 2]);
    assert_eq!((asked(&a, "sk-one"), asked(&a, "sk-two")), (1, 1));
    assert_eq!(statuses(&gateway, 2).await, [200; 2]);
}

#[tokio::test]
async fn a_date_is_waited_for_by_our_clock_where_the_provider_tells_none() {
    let then = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(25);
    let date = then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let check = async |value: &str, range: std::ops::RangeInclusive<u64>| {
        let body = json!({"error": {"message": "slow down", "type": "x", "code": null}});
        let script = fixed(vec![Action::json_with(429, &[("retry-after", value)], &body)]);
        let a = provider(script).await;
        let gateway = keyed(&a, "[\"s\"]", ONCE).await;
        let reply = gateway.ask(&chat()).await;
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!(range.contains(&wait), "{value}: {wait}");
    };
    check(&date, 20..=25).await;
    check("99999999999", 86_400..=7 * 86_400).await;
}
