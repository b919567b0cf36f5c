//! Nothing that a caller says is lost silently: it changes what the provider is asked, is named as
//! dropped, or is refused with its name.

use super::To;
use serde_json::{Value, json};
use weir_filters::dialect::Api;
use weir_filters::wire::{Quirks, Wire};

const WIRES: [Wire; 8] = [
    Wire::OpenAi,
    Wire::Azure,
    Wire::Anthropic,
    Wire::Gemini,
    Wire::Vertex,
    Wire::Bedrock,
    Wire::Ollama,
    Wire::Cohere,
];

/// What is said of a model whatever the protocol, and what only some can say.
fn members(api: Api) -> Value {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    match api {
        Api::Messages => json!({
            "temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop_sequences": ["END"],
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "metadata": {"user_id": "u"}, "service_tier": "auto",
            "thinking": {"type": "enabled", "budget_tokens": 2048},
            "tools": [{"name": "f", "input_schema": schema}, {"type": "web_search_20250305",
                       "name": "web_search"}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
            "container": "c", "context_management": {"edits": []}, "mcp_servers": [{"url": "x"}],
            "output_config": {"effort": "low"}, "unheard_of": 1,
        }),
        Api::Responses => json!({
            "instructions": "s", "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 50,
            "tools": [{"type": "function", "name": "f", "parameters": schema},
                      {"type": "web_search"}],
            "tool_choice": "required", "parallel_tool_calls": false,
            "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_object"}},
            "metadata": {"a": "b"}, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
            "service_tier": "flex", "truncation": "auto", "max_tool_calls": 3,
            "top_logprobs": 2, "prompt": {"id": "pmpt_1"}, "unheard_of": 1,
        }),
        _ => json!({
            "temperature": 0.5, "top_p": 0.9, "stop": ["END"], "max_tokens": 50, "seed": 7,
            "presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {"1": 2},
            "logprobs": true, "top_logprobs": 2, "user": "u", "n": 2, "reasoning_effort": "low",
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
            "response_format": {"type": "json_object"}, "metadata": {"a": "b"}, "store": true,
            "parallel_tool_calls": false, "service_tier": "flex", "prediction":
            {"type": "content", "content": "x"}, "modalities": ["text", "audio"],
            "audio": {"voice": "a", "format": "mp3"}, "web_search_options": {},
            "verbosity": "low", "prompt_cache_key": "k", "safety_identifier": "s",
            "unheard_of": 1,
        }),
    }
}

fn body(api: Api) -> Value {
    let schema = json!({"type": "object"});
    let user = json!([{"role": "user", "content": "hi"}]);
    match api {
        Api::Responses => json!({"model": "m", "input": "hi", "tools": [
            {"type": "function", "name": "f", "parameters": schema}]}),
        Api::Messages => json!({"model": "m", "max_tokens": 4000, "messages": user,
            "tools": [{"name": "f", "input_schema": schema}]}),
        _ => json!({"model": "m", "max_tokens": 4000, "messages": user, "tools": [
            {"type": "function", "function": {"name": "f", "parameters": schema}}]}),
    }
}

#[test]
fn no_member_of_any_dialect_is_lost_silently_on_any_wire() {
    let mut lost = Vec::new();
    for api in [Api::Chat, Api::Messages, Api::Responses] {
        for wire in WIRES {
            let to = To { quirks: Quirks::default(), ..To::new(wire) };
            let (before, ..) = to.ask(api, &body(api));
            for (name, value) in members(api).as_object().unwrap() {
                let mut with = body(api);
                with[name] = value.clone();
                let Ok((out, _)) = to.try_ask(api, &with) else { continue };
                let after: Value = serde_json::from_slice(&out.body.concat()).unwrap();
                let named = out.dropped.iter().any(|one| {
                    one == name
                        || one.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with('.'))
                });
                if after == before && !named {
                    lost.push(format!("{api:?} over {wire:?}: {name}, {:?}", out.dropped));
                }
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}
