//! The event itself: every member, one for each request, and what log and metrics say beside it.

use crate::harness::*;
use serde_json::{Value, json};

/// Every member of an event, and no more.
const MEMBERS: &[&str] = &[
    "event_id",
    "ts",
    "request_id",
    "trace_id",
    "key_id",
    "key_name",
    "team",
    "department",
    "user",
    "end_user",
    "tags",
    "task_type",
    "budget_tier",
    "endpoint",
    "dialect",
    "requested_model",
    "provider",
    "credential",
    "model",
    "limited_by",
    "status",
    "error_code",
    "outcome",
    "streamed",
    "attempts",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "usage_source",
    "units",
    "cost_nano_usd",
    "wasted_cost_nano_usd",
    "price_source",
    "reserved_tokens",
    "ttft_ms",
    "duration_ms",
    "overhead_us",
    "cache",
    "degraded_from",
    "config_version",
];

fn owner() -> String {
    format!(
        "[keys.full]\nsecret = \"{KEY}\"\nteam = \"crew\"\nuser = \"bot\"\ntags = [\"batch\"]\n"
    )
}

fn config(a: &Provider) -> String {
    [toml::openai("a", a), toml::model("m", &["a/up-model"]), owner()].concat()
}

#[tokio::test]
async fn an_event_has_every_member_under_its_name() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&config(&a)).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let ask = chat()
        .set("task_type", "summarize")
        .with("x-weir-budget-tier", "low")
        .with("x-request-id", "mine-1")
        .with("traceparent", &format!("00-{trace}-b7ad6b7169203331-01"));
    gateway.ask(&ask).await;
    let event = gateway.event().await;
    let mut names: Vec<_> = event.as_object().unwrap().keys().map(String::as_str).collect();
    let mut want = MEMBERS.to_vec();
    names.sort_unstable();
    want.sort_unstable();
    assert_eq!(names, want);
    let said = json!({
        "request_id": "mine-1", "trace_id": trace, "key_name": "full", "team": "crew",
        "user": "bot", "tags": ["batch"], "task_type": "summarize", "budget_tier": "low",
        "endpoint": "chat", "dialect": "openai", "requested_model": "m", "provider": "a",
        "model": "up-model", "status": 200, "error_code": null, "outcome": "success",
        "streamed": false, "input_tokens": 9, "cached_tokens": 0, "cache_write_tokens": 0,
        "output_tokens": 3, "reasoning_tokens": 0, "usage_source": "provider",
        "cost_nano_usd": 15_000, "wasted_cost_nano_usd": 0, "price_source": "config",
        "limited_by": null, "cache": null, "degraded_from": null, "end_user": null,
    });
    for (name, value) in said.as_object().unwrap() {
        assert_eq!(&event[name], value, "{name}");
    }
    assert!(event["event_id"].as_str().unwrap().len() == 36 && event["credential"].is_string());
    assert!(event["ts"].as_str().unwrap().ends_with('Z'));
    assert_eq!(event["config_version"], *gateway.inner.snapshot.load().version);
    let n = |name: &str| event[name].as_u64().unwrap();
    assert!(n("ttft_ms") <= n("duration_ms") && n("overhead_us") <= 1000 * (n("duration_ms") + 1));
    let attempt = &event["attempts"][0];
    assert_eq!((&attempt["provider"], &attempt["status"]), (&"a".into(), &200.into()));
}

#[tokio::test]
async fn a_repeated_request_id_is_two_events() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&config(&a)).await;
    for _ in 0..2 {
        gateway.ask(&chat().with("x-request-id", "same")).await;
    }
    let events = gateway.events().await;
    assert_eq!((events.len(), &events[0]["request_id"]), (2, &events[1]["request_id"]));
    assert_ne!(events[0]["event_id"], events[1]["event_id"]);
}

#[tokio::test]
async fn log_and_metrics_agree_with_the_events() {
    let a = provider(knobs()).await;
    let gateway = gateway(&config(&a)).await;
    let asks = [
        chat(),
        streamed(),
        chat().say("status=400"),
        chat().say("status=500"),
        streamed().say("words=3 cut=2"),
        chat().model("nobody"),
        chat().key("sk-wrong"),
        chat().body("{"),
        chat().say("in=1000 cached=400 out=50 reasoning=20"),
    ];
    for ask in &asks {
        gateway.ask(ask).await;
    }
    let (events, lines) = (gateway.events().await, gateway.lines().await);
    assert_eq!((events.len(), lines.len()), (asks.len(), asks.len()));
    for (event, line) in events.iter().zip(&lines) {
        for name in ["event_id", "request_id", "status", "outcome"] {
            assert_eq!(event[name], line[name], "{name}: {line}");
        }
    }
    let sum = |name: &str| -> u64 { events.iter().filter_map(|e| e[name].as_u64()).sum() };
    let tokens = |kind: &str| gateway.metric("weir_tokens_total", &[("type", kind)]).unwrap_or(0.0);
    assert_eq!(tokens("output"), sum("output_tokens") as f64);
    assert_eq!(tokens("input"), sum("input_tokens") as f64);
    assert_eq!(tokens("cached"), sum("cached_tokens") as f64);
    let cost = gateway.metric("weir_cost_usd_total", &[]).unwrap();
    assert!((cost * 1e9 - sum("cost_nano_usd") as f64).abs() < 0.5, "{cost}");
    for outcome in ["success", "refused", "upstream_error", "truncated"] {
        let counted = events.iter().filter(|e| e["outcome"] == outcome).count();
        let metric = gateway.metric("weir_requests_total", &[("outcome", outcome)]);
        assert_eq!(metric, Some(counted as f64), "{outcome}");
    }
    let tried: usize = events.iter().map(|e| e["attempts"].as_array().unwrap().len()).sum();
    assert_eq!(gateway.metric("weir_upstream_attempts_total", &[]), Some(tried as f64));
    // A model that nobody has is no label of its own.
    assert_eq!(gateway.metric("weir_requests_total", &[("model", "nobody")]), None);
}

#[tokio::test]
async fn what_costs_nothing_leaves_no_event() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&config(&a)).await;
    for path in ["/", "/health", "/health/ready", "/v1/models", "/v1/models/m", "/nothing"] {
        gateway.ask(&Ask::get(path)).await;
    }
    assert_eq!(gateway.events().await, Vec::<Value>::new());
    assert_eq!(gateway.lines().await.len(), 6);
}

#[tokio::test]
async fn no_prompt_and_no_reply_is_written_anywhere() {
    let words = vec!["reply-text-7361".into()];
    let a = answering(Answer { words, ..Answer::default() }).await;
    let gateway = gateway(&config(&a)).await;
    for ask in [chat(), streamed()] {
        gateway.ask(&ask.say("prompt-text-9924")).await;
    }
    let traces = gateway.traces().await;
    assert!(traces.len() > 500);
    for secret in ["reply-text-7361", "prompt-text-9924", KEY, "sk-upstream-a"] {
        assert!(!traces.contains(secret), "{secret} in {traces}");
    }
}
