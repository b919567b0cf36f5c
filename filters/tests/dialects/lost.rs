//! Nothing that a caller says is lost silently: it changes what the provider is asked, is named as
//! dropped, or is refused with its name.

use super::To;
use serde_json::{Value, json};
use weir_filters::dialect::Api;
use weir_filters::wire::Wire;

const WIRES: [Wire; 10] = [
    Wire::OpenAi,
    Wire::Azure,
    Wire::Anthropic,
    Wire::Gemini,
    Wire::Vertex,
    Wire::Bedrock,
    Wire::Ollama,
    Wire::Cohere,
    Wire::Qianfan,
    Wire::DashScope,
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
        Api::Completions => json!({
            "temperature": 0.5, "top_p": 0.9, "stop": ["END"], "max_tokens": 50, "seed": 7,
            "presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {"1": 2},
            "logprobs": 2, "user": "u", "n": 2, "echo": true, "best_of": 3, "suffix": "x",
            "unheard_of": 1,
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
        Api::Completions => json!({"model": "m", "prompt": "hi"}),
        Api::Responses => json!({"model": "m", "input": "hi", "tools": [
            {"type": "function", "name": "f", "parameters": schema}]}),
        Api::Messages => json!({"model": "m", "max_tokens": 4000, "messages": user,
            "tools": [{"name": "f", "input_schema": schema}]}),
        _ => json!({"model": "m", "max_tokens": 4000, "messages": user, "tools": [
            {"type": "function", "function": {"name": "f", "parameters": schema}}]}),
    }
}

/// It changed what is asked, or was named, or refused.
fn is_told(to: &To, api: Api, before: &Value, after: &Value, name: &str) -> Result<(), String> {
    let (before, ..) = to.ask(api, before);
    let Ok((out, _)) = to.try_ask(api, after) else { return Ok(()) };
    let after: Value = serde_json::from_slice(&out.body.concat()).unwrap();
    // By itself, by a part of it, or by the whole that it is a part of.
    let within = |part: &str, whole: &str| {
        part.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let named = |one: &String| within(one, name) || within(name, one);
    // It never calls two tools at once, so there is nothing to forbid.
    let alone = to.wire == Wire::Qianfan && ["parallel_tool_calls", "tool_choice"].contains(&name);
    match alone || after != before || out.dropped.iter().any(named) {
        true => Ok(()),
        false => Err(format!("{api:?} over {:?}: {name}, {:?}", to.wire, out.dropped)),
    }
}

#[test]
fn no_member_of_any_dialect_is_lost_silently_on_any_wire() {
    let mut lost = Vec::new();
    for api in [Api::Chat, Api::Messages, Api::Responses, Api::Completions] {
        for to in WIRES.map(To::new) {
            for (name, value) in members(api).as_object().unwrap() {
                let mut with = body(api);
                with[name] = value.clone();
                lost.extend(is_told(&to, api, &body(api), &with, name).err());
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

/// A tool loop in a dialect, with every place that something can be put into.
fn conversation(api: Api) -> Value {
    let schema = json!({"type": "object"});
    match api {
        Api::Messages => json!({"model": "m", "max_tokens": 4000, "temperature": 1,
            "stop_sequences": ["END"], "system": [{"type": "text", "text": "s"}],
            "metadata": {"user_id": "u"}, "output_config": {"effort": "low"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": [{"name": "f", "input_schema": schema}], "tool_choice": {"type": "auto"},
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1",
                    "content": [{"type": "text", "text": "r"}]}]}]}),
        Api::Responses => json!({"model": "m", "text": {}, "reasoning": {}, "tools": [
                {"type": "function", "name": "f", "parameters": schema},
                {"type": "custom", "name": "c", "description": "d"},
                {"type": "namespace", "name": "n", "tools": [
                    {"type": "function", "name": "g", "parameters": schema}]}],
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "r"}]}),
        _ => json!({"model": "m", "max_tokens": 4000, "temperature": 1, "stop": ["END"],
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
            "messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": "so", "tool_calls": [{"id": "call_1",
                    "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "r"}]}),
    }
}

/// Where something is put into [`conversation`], what, and its name; a place that ends in `-` is
/// the front of a list.
type Inside = (&'static str, Value, &'static str);

fn inside(api: Api) -> Vec<Inside> {
    match api {
        Api::Messages => inside_messages(),
        Api::Responses => inside_responses(),
        _ => inside_chat(),
    }
}

fn block(mut block: Value, more: Value) -> Value {
    block.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    block
}

fn thought(more: Value) -> Value {
    block(json!({"type": "thinking", "thinking": "t"}), more)
}

fn sealed() -> Value {
    thought(json!({"signature": "c2VhbA=="}))
}

fn pdf(more: Value) -> Value {
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="});
    block(json!({"type": "document", "source": source}), more)
}

fn mark() -> Value {
    json!({"type": "ephemeral"})
}

fn inside_messages() -> Vec<Inside> {
    vec![
        ("/system/0/cache_control", mark(), "cache_control"),
        ("/messages/0/content/0/cache_control", mark(), "cache_control"),
        ("/messages/0/content/0/unheard_of", 1.into(), "messages.content.text.unheard_of"),
        ("/messages/1/content/0/cache_control", mark(), "cache_control"),
        ("/messages/1/content/1/cache_control", mark(), "cache_control"),
        ("/messages/2/content/0/cache_control", mark(), "cache_control"),
        ("/messages/2/content/0/content/0/cache_control", mark(), "cache_control"),
        ("/messages/2/content/0/is_error", true.into(), "messages.content.is_error"),
        ("/messages/1/content/-", sealed(), "messages.content.thinking"),
        ("/messages/1/content/-", thought(json!({})), "messages.content.thinking"),
        (
            "/messages/1/content/-",
            json!({"type": "redacted_thinking", "data": "c2VhbA=="}),
            "messages.content.thinking",
        ),
        ("/messages/0/content/-", json!({"type": "search_result"}), "messages.content"),
        (
            "/messages/0/content/-",
            pdf(json!({"citations": {"enabled": true}})),
            "messages.content.document.citations",
        ),
        (
            "/messages/0/content/-",
            pdf(json!({"context": "c"})),
            "messages.content.document.context",
        ),
        ("/messages/0/unheard_of", 1.into(), "messages.unheard_of"),
        ("/tools/0/cache_control", mark(), "cache_control"),
        ("/tools/0/strict", true.into(), "tools.strict"),
        ("/tools/0/input_examples", json!([{}]), "tools.input_examples"),
        ("/tools/0/defer_loading", true.into(), "tools.defer_loading"),
        ("/tool_choice/unheard_of", 1.into(), "tool_choice.unheard_of"),
        ("/thinking/display", "summarized".into(), "thinking.display"),
        ("/output_config/task_budget", json!({"total": 1}), "output_config.task_budget"),
        ("/metadata/unheard_of", 1.into(), "metadata"),
        ("/stop_sequences/-", "\n\n".into(), "stop_sequences"),
    ]
}

fn inside_responses() -> Vec<Inside> {
    vec![
        ("/text/unheard_of", 1.into(), "text.unheard_of"),
        ("/reasoning/unheard_of", 1.into(), "reasoning.unheard_of"),
        ("/tools/0/defer_loading", true.into(), "tools.defer_loading"),
        ("/tools/1/format", json!({"type": "grammar"}), "tools.format"),
        ("/tools/2/description", "d".into(), "tools.namespace.description"),
        ("/tools/2/tools/0/defer_loading", true.into(), "tools.defer_loading"),
        ("/tools/-", json!({"type": "local_shell"}), "tools.local_shell"),
        ("/input/-", json!({"type": "web_search_call"}), "input.web_search_call"),
        ("/input/0/content/-", json!({"type": "input_video"}), "input.content.input_video"),
        ("/input/1/arguments", "[1]".into(), "input.arguments"),
        (
            "/input/-",
            json!({"type": "reasoning", "summary": [], "encrypted_content": "theirs"}),
            "input.reasoning.encrypted_content",
        ),
    ]
}

fn inside_chat() -> Vec<Inside> {
    vec![
        ("/messages/0/name", "n".into(), "messages.name"),
        ("/messages/1/name", "n".into(), "messages.name"),
        ("/messages/0/cache_control", mark(), "messages.cache_control"),
        ("/messages/1/content/0/cache_control", mark(), "messages.cache_control"),
        ("/messages/1/content/0/unheard_of", 1.into(), "messages.content.unheard_of"),
        ("/messages/1/content/-", json!({"type": "video_url"}), "messages.content"),
        (
            "/messages/1/content/-",
            json!({"type": "image_url", "image_url":
                {"url": "data:image/png;base64,aGk=", "detail": "high"}}),
            "messages.content.image_url.detail",
        ),
        ("/messages/2/cache_control", mark(), "messages.cache_control"),
        ("/messages/2/audio", json!({"id": "a"}), "messages.audio"),
        ("/messages/2/prefix", true.into(), "messages.prefix"),
        ("/messages/2/reasoning_content", "t".into(), "messages.reasoning_content"),
        ("/messages/2/reasoning", "t".into(), "messages.reasoning_content"),
        ("/messages/2/thinking_blocks", json!([sealed()]), "messages.thinking_blocks"),
        ("/messages/2/thinking_blocks", json!([thought(json!({}))]), "messages.thinking_blocks"),
        ("/messages/2/tool_calls/0/extra_content", json!({"a": 1}), "messages.tool_calls"),
        (
            "/messages/2/tool_calls/0/function/arguments",
            "{\"a\": ".into(),
            "messages.tool_calls.function.arguments",
        ),
        ("/messages/3/cache_control", mark(), "messages.cache_control"),
        ("/tools/0/cache_control", mark(), "tools.cache_control"),
        ("/tools/0/unheard_of", 1.into(), "tools.unheard_of"),
        ("/tools/0/function/strict", true.into(), "tools.strict"),
        ("/tools/0/function/examples", json!([{"a": 1}]), "tools.function.examples"),
        ("/tools/-", json!({"type": "custom", "custom": {"name": "c"}}), "tools.custom"),
        ("/response_format/json_schema/description", "d".into(), "response_format"),
        ("/temperature", 1.9.into(), "temperature"),
        ("/stop/-", "\n\n".into(), "stop"),
    ]
}

/// The conversation with something put into it.
fn with(mut body: Value, place: &str, value: Value) -> Value {
    let (parent, last) = place.rsplit_once('/').unwrap();
    match (body.pointer_mut(parent).unwrap(), last) {
        (Value::Array(list), "-") => list.insert(0, value),
        (parent, name) => parent[name] = value,
    }
    body
}

#[test]
fn nothing_within_messages_tools_and_options_is_lost_silently_on_any_wire() {
    let mut lost = Vec::new();
    for api in [Api::Chat, Api::Messages, Api::Responses] {
        for to in WIRES.map(To::new) {
            for (place, value, name) in inside(api) {
                let before = conversation(api);
                let after = with(before.clone(), place, value);
                lost.extend(is_told(&to, api, &before, &after, name).err());
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}
