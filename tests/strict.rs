//! What a provider cannot express, in every dialect over every wire: named for those who can do
//! without it, refused by its name where the model is strict.

use crate::harness::*;
use serde_json::{Value, json};

/// A dialect's path, its plainest body, and members to be put into it, one at a time.
type Case = (&'static str, Value, Value);

fn user() -> Value {
    json!([{"role": "user", "content": "hi"}])
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "string"}}})
}

fn chats() -> Vec<Case> {
    let (user, schema, mark) = (user(), schema(), json!({"type": "ephemeral"}));
    let function = |more: Value| {
        let mut function = json!({"name": "f", "parameters": schema});
        function.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([{"type": "function", "function": function}])
    };
    let marked = json!([{"role": "user", "content": [
        {"type": "text", "text": "hi", "cache_control": mark}]}]);
    let looped = |call: Value| {
        let mut said = json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
        said.as_object_mut().unwrap().extend(call.as_object().unwrap().clone());
        json!([{"role": "user", "content": "hi"}, said,
               {"role": "tool", "tool_call_id": "a", "content": "r"}])
    };
    vec![
        (
            "/v1/chat/completions",
            json!({"max_tokens": 4000, "messages": user}),
            json!({
                "temperature": 1.9, "top_p": 0.9, "stop": ["END", "\n\n"], "seed": 7, "n": 2,
                "presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {"1": 2},
                "logprobs": true, "top_logprobs": 2, "user": "u", "reasoning_effort": "low",
                "tools": function(json!({"strict": true, "cache_control": mark})),
                "response_format": {"type": "json_schema", "json_schema":
                    {"name": "n", "description": "d", "schema": schema}},
                "metadata": {"a": "b"}, "service_tier": "flex", "verbosity": "low",
                "web_search_options": {}, "modalities": ["text", "audio"], "unheard_of": 1,
                "a\nb": 1, "ünheard": 1, "messages": marked,
            }),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": user, "tools": function(json!({}))}),
            json!({
                "parallel_tool_calls": false, "tool_choice": {"type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": []}},
                "messages": looped(json!({"reasoning_content": "t"})),
            }),
        ),
    ]
}

fn others() -> Vec<Case> {
    let (user, schema, mark) = (user(), schema(), json!({"type": "ephemeral"}));
    vec![
        (
            "/v1/messages",
            json!({"max_tokens": 4000, "messages": user}),
            json!({
                "temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop_sequences": ["END"],
                "system": [{"type": "text", "text": "s", "cache_control": mark}],
                "metadata": {"user_id": "u", "more": 1}, "service_tier": "auto",
                "thinking": {"type": "enabled", "budget_tokens": 2048},
                "tools": [{"name": "f", "input_schema": schema, "input_examples": [{"a": "b"}]},
                          {"type": "web_search_20250305", "name": "web_search"}],
                "container": "c", "context_management": {"edits": [{}]}, "unheard_of": 1,
                "mcp_servers": [{"url": "x"}], "output_config": {"effort": "low"},
            }),
        ),
        (
            "/v1/responses",
            json!({"input": "hi"}),
            json!({
                "instructions": "s", "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 50,
                "tools": [{"type": "function", "name": "f", "parameters": schema},
                          {"type": "web_search"}],
                "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_object"}},
                "metadata": {"a": "b"}, "user": "u", "safety_identifier": "s",
                "prompt_cache_key": "k", "service_tier": "flex", "truncation": "auto",
                "max_tool_calls": 3, "top_logprobs": 2, "unheard_of": 1,
                "previous_response_id": "resp_1", "prompt": {"id": "pmpt_1"},
                "input": [{"type": "web_search_call", "id": "ws_1"},
                          {"role": "user", "content": "hi"}],
            }),
        ),
        (
            "/v1/completions",
            json!({"prompt": "hi", "max_tokens": 9}),
            json!({
                "temperature": 0.5, "stop": ["END"], "seed": 7, "n": 2, "logit_bias": {"1": 2},
                "logprobs": 2, "user": "u", "echo": true, "best_of": 3, "suffix": "x",
                "unheard_of": 1,
            }),
        ),
        (
            "/v1/embeddings",
            json!({"input": "hi"}),
            json!({"dimensions": 2, "user": "u", "encoding_format": "base64", "unheard_of": 1}),
        ),
    ]
}

/// Reply, the body that the provider got for it, and the names of what was left out.
struct Seen {
    reply: Reply,
    sent: Option<Vec<u8>>,
    dropped: Vec<String>,
}

async fn ask(weir: &Gateway, provider: &Provider, path: &str, body: &Value) -> Seen {
    let before = provider.count();
    let reply = weir.ask(&Ask::post(path, body)).await;
    let asked = provider.count() > before;
    let sent = asked.then(|| provider.requests().pop().unwrap().request.body.to_vec());
    let dropped = reply.header("x-weir-dropped").unwrap_or_default();
    // Names that no header can hold are percent-encoded.
    let plain = |name: &str| name.replace("%0A", "\n").replace("%C3%BC", "ü");
    let dropped = dropped.split(", ").filter(|name| !name.is_empty()).map(plain).collect();
    Seen { reply, sent, dropped }
}

/// The place of a refusal, where the dialect has a word for it, and what it says.
fn refusal(reply: &Reply) -> String {
    let error = reply.json()["error"].clone();
    assert_eq!(error["type"], "invalid_request_error", "{error}");
    [&error["param"], &error["message"]].map(|text| text.as_str().unwrap_or_default()).join(" ")
}

#[tokio::test]
async fn what_a_provider_cannot_take_is_named_or_by_a_strict_model_refused_in_every_dialect() {
    let a = provider(wires::hello()).await;
    let strict = wires::WIRES.map(|(wire, _)| {
        format!("[models.\"strict-{wire}\"]\nstrict = true\ntargets = [\"{wire}/up-model\"]\n")
    });
    let weir = gateway(&(wires::tables(&a, "s") + &strict.concat() + &toml::key())).await;
    let (mut named, mut kept, mut faults) = (0, 0, Vec::new());
    for (path, plain, members) in chats().into_iter().chain(others()) {
        for (wire, _) in wires::WIRES {
            let body = |model: String, more: Option<(&String, &Value)>| {
                let mut body = plain.clone();
                body["model"] = model.into();
                if let Some((name, value)) = more {
                    body[name] = value.clone();
                }
                body
            };
            let (loose, strict) = (format!("{wire}/up-model"), format!("strict-{wire}"));
            let base = ask(&weir, &a, path, &body(loose.clone(), None)).await;
            if path == "/v1/embeddings" && base.reply.status() == 400 {
                continue; // it has none
            }
            assert_eq!(base.reply.status(), 200, "{wire} {path} {}", base.reply.text());
            assert_eq!(base.dropped, [""; 0], "{wire} {path}");
            for (name, value) in members.as_object().unwrap() {
                let at = format!("{path} over {wire}: {name}");
                let free = ask(&weir, &a, path, &body(loose.clone(), Some((name, value)))).await;
                let held = ask(&weir, &a, path, &body(strict.clone(), Some((name, value)))).await;
                let (status, lax) = (held.reply.status(), free.reply.status());
                if free.sent.is_none() {
                    // Nobody can be asked this, strict or not.
                    if (status, lax) != (400, 400) || !refusal(&free.reply).contains(name.as_str())
                    {
                        faults.push(format!("{at}: {}", free.reply.text()));
                    }
                } else if let Some(first) = free.dropped.first() {
                    named += 1;
                    assert_eq!(lax, 200, "{at} {}", free.reply.text());
                    if status != 400 || held.sent.is_some() || !refusal(&held.reply).contains(first)
                    {
                        faults.push(format!("{at}: {first}, but {}", held.reply.text()));
                    }
                } else {
                    kept += 1;
                    assert_eq!((lax, status), (200, 200), "{at} {}", held.reply.text());
                    // Vectors are converted here; Qianfan never calls two tools at once.
                    let same = name == "encoding_format"
                        || (wire == "qianfan" && name == "parallel_tool_calls");
                    if held.sent != free.sent || (free.sent == base.sent && !same) {
                        faults.push(format!("{at}: lost"));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(named > 400 && kept > 250, "{named} named, {kept} kept");
}

#[tokio::test]
async fn a_strict_model_s_request_goes_to_the_target_that_can_say_it() {
    let a = provider(wires::hello()).await;
    let model = "[models.m]\nstrict = true\ntargets = [{ to = \"gemini/x\", priority = 1 }, \
                 { to = \"openai/x\", priority = 2 }]\n";
    let weir = gateway(&(wires::tables(&a, "s") + model + &toml::key())).await;
    assert_eq!(weir.ask(&chat()).await.header("x-weir-upstream"), Some("gemini"));
    let reply = weir.ask(&chat().set("logit_bias", json!({"1": 2}))).await;
    assert_eq!((reply.status(), reply.header("x-weir-upstream")), (200, Some("openai")));
    assert_eq!((reply.header("x-weir-dropped"), a.count()), (None, 2));
}

#[tokio::test]
async fn a_thousand_members_that_nobody_takes_fit_into_a_header() {
    let a = provider(wires::hello()).await;
    let weir = gateway(&(wires::tables(&a, "s") + &toml::key())).await;
    let mut body = json!({"model": "gemini/x", "messages": [{"role": "user", "content": "hi"}]});
    for n in 0..1000 {
        body[format!("member, or {n}\r\n: {}", "x".repeat(n))] = true.into();
    }
    let reply = weir.ask(&Ask::post("/v1/chat/completions", &body)).await;
    let dropped = reply.header("x-weir-dropped").unwrap();
    assert_eq!(reply.status(), 200);
    assert!(dropped.len() < 3000 && dropped.ends_with(", ..."), "{dropped}");
    assert!(dropped.starts_with("member%2C%20or%20"), "{dropped}");
}
