//! Embeddings of models that take fewer texts at once than a caller asks for.

use crate::harness::{Action, Ask, Provider, Script, gateway, provider, toml};
use serde_json::{Value, json};
use std::sync::Arc;

fn embed(inputs: &[&str]) -> Ask {
    let body = json!({"model": "m", "input": inputs, "encoding_format": "float"});
    Ask::post("/v1/embeddings", &body)
}

/// Titan at Bedrock: one text a call, told by its length; `failing` texts get this status.
fn titan(failing: &'static str, status: u16) -> Script {
    Arc::new(move |request| {
        let body = request.json();
        let text = body["inputText"].as_str().unwrap().to_owned();
        if text == failing {
            return vec![Action::json(status, &json!({"message": "no"}))];
        }
        let n = text.len();
        vec![Action::json(200, &json!({"embedding": [n, 0.5], "inputTextTokenCount": n}))]
    })
}

fn bedrock(name: &str, a: &Provider) -> String {
    let more = "wire = \"bedrock\"\nauth = \"bearer\"\nretry = { attempts = 1 }";
    toml::custom(name, "bedrock", &a.url(), more).replace("preset = \"bedrock\"\n", "")
}

fn texts(a: &Provider) -> Vec<Value> {
    a.requests().iter().map(|seen| seen.request.json()["inputText"].clone()).collect()
}

#[tokio::test]
async fn a_list_is_asked_text_by_text_and_answered_as_one() {
    let a = provider(titan("", 200)).await;
    let text = [bedrock("a", &a), toml::model("m", &["a/up-model"]), toml::key()].concat();
    let gateway = gateway(&text).await;
    let reply = gateway.ask(&embed(&["x", "yy", "zzz"])).await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
    let body = reply.json();
    let got: Vec<_> = body["data"].as_array().unwrap().iter().map(|d| &d["embedding"][0]).collect();
    assert_eq!(got, [1, 2, 3]);
    assert_eq!(body["data"][2]["index"], 2);
    assert_eq!(body["usage"], json!({"prompt_tokens": 6, "total_tokens": 6}));
    assert_eq!(texts(&a), ["x", "yy", "zzz"]);
    assert_eq!(reply.header("x-weir-attempts"), Some("1"));
    let events = gateway.events().await;
    assert_eq!((&events[0]["input_tokens"], &events[0]["outcome"]), (&json!(6), &json!("success")));
    assert_eq!(events[0]["cost_nano_usd"], 6_000);
}

#[tokio::test]
async fn a_part_that_fails_goes_elsewhere_with_all_of_them_and_is_booked_as_wasted() {
    let (a, b) = (provider(titan("yy", 500)).await, provider(titan("", 200)).await);
    let targets = toml::model("m", &["a/up-model", "b/up-model"]);
    let text = [bedrock("a", &a), bedrock("b", &b), targets, toml::key()].concat();
    let gateway = gateway(&text).await;
    let reply = gateway.ask(&embed(&["x", "yy", "zzz"])).await;
    assert_eq!((reply.status(), reply.header("x-weir-upstream")), (200, Some("b")));
    assert_eq!(reply.json()["data"].as_array().unwrap().len(), 3);
    assert_eq!(
        (texts(&a), texts(&b)),
        (vec![json!("x"), json!("yy")], vec![json!("x"), json!("yy"), json!("zzz")])
    );
    let events = gateway.events().await;
    assert_eq!(
        (&events[0]["input_tokens"], &events[0]["cost_nano_usd"]),
        (&json!(6), &json!(6_000))
    );
    assert_eq!(events[0]["wasted_cost_nano_usd"], 1_000, "one token of the first provider");
}

#[tokio::test]
async fn a_part_that_is_refused_is_the_caller_s_error() {
    let a = provider(titan("yy", 400)).await;
    let text = [bedrock("a", &a), toml::model("m", &["a/up-model"]), toml::key()].concat();
    let gateway = gateway(&text).await;
    let reply = gateway.ask(&embed(&["x", "yy", "zzz"])).await;
    assert_eq!((reply.status(), texts(&a).len()), (400, 2));
    let many: Vec<&str> = vec!["x"; 300];
    let reply = gateway.ask(&embed(&many)).await;
    assert_eq!((reply.status(), reply.json()["error"]["param"].as_str()), (400, Some("input")));
}
