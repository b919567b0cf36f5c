//! Failures in their providers' own words, as presets tell them.

use crate::harness::{Action, chat, fixed, gateway, provider, toml};
use serde_json::{Value, json};

/// What a caller sees of this reply of a provider with this preset.
async fn told(preset: &str, status: u16, body: Value) -> (u16, Value) {
    let a = provider(fixed(vec![Action::json(status, &body)])).await;
    let provider = toml::custom("a", preset, &a.url(), "retry = { attempts = 1 }");
    let text = [provider, toml::model("m", &["a/up-model"]), toml::key()].concat();
    let reply = gateway(&text).await.ask(&chat()).await;
    (reply.status(), reply.json()["error"]["code"].clone())
}

fn coded(code: Value) -> Value {
    json!({"error": {"code": code, "message": "said in another tongue"}})
}

#[tokio::test]
async fn a_code_means_what_its_preset_says() {
    for (preset, status, code, want) in [
        ("zhipu", 429, "1113", (502, "upstream_quota")),
        ("zhipu", 400, "1301", (400, "content_filter")),
        ("zhipu", 400, "1261", (400, "context_length_exceeded")),
        ("zhipu", 500, "1002", (502, "upstream_auth")),
        ("qwen", 403, "Arrearage", (502, "upstream_quota")),
        ("qwen", 400, "Throttling.RateQuota", (429, "upstream_rate_limited")),
        ("doubao", 400, "SensitiveContentDetected.Violence", (400, "content_filter")),
        ("doubao", 403, "AccountOverdueError", (502, "upstream_quota")),
        ("qianfan", 401, "invalid_model", (404, "model_not_found")),
        // Without a word of theirs the status decides, and is never the caller's own.
        ("doubao", 403, "x", (502, "upstream_auth")),
        ("openai", 401, "1113", (502, "upstream_auth")),
    ] {
        let (got, name) = told(preset, status, coded(json!(code))).await;
        assert_eq!((got, name.as_str()), (want.0, Some(want.1)), "{preset} {status} {code}");
    }
}

#[tokio::test]
async fn a_200_that_is_an_error_is_found_and_means_what_its_preset_says() {
    for (code, want) in [
        (1008, (502, "upstream_quota")),
        (1004, (502, "upstream_auth")),
        (1002, (429, "upstream_rate_limited")),
        (1026, (400, "content_filter")),
        (1000, (502, "upstream_error")),
    ] {
        let state = json!({"status_code": code, "status_msg": "no"});
        let (got, name) = told("minimax", 200, json!({"choices": null, "base_resp": state})).await;
        assert_eq!((got, name.as_str()), (want.0, Some(want.1)), "{code}");
    }
}
