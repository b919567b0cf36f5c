//! Replies by rule, in the shapes that the documentation shows (docs.cohere.com, v2).

use super::replay::Case;
use super::replay::drive::{Filtered, Want, context, every_cut, every_end, every_shortening, filter};
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::error::Class;
use weir_filters::usage::Usage;
use weir_filters::wire::Wire;

fn sse(events: &[Value]) -> Bytes {
    let line = |event: &Value| {
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("message"))
    };
    events.iter().map(line).collect::<String>().into()
}

fn stream(events: &[Value]) -> Filtered {
    filter(Wire::Cohere, &[sse(events)], true, true)
}

fn start() -> Value {
    json!({"id": "c1", "type": "message-start", "delta": {"message": {"role": "assistant",
        "content": [], "tool_plan": "", "tool_calls": [], "citations": []}}})
}

fn content(kind: &str, piece: Value) -> Value {
    json!({"type": kind, "index": 0, "delta": {"message": {"content": piece}}})
}

fn call(kind: &str, index: u8, piece: Value) -> Value {
    json!({"type": kind, "index": index, "delta": {"message": {"tool_calls": piece}}})
}

fn end(reason: &str) -> Value {
    json!({"type": "message-end", "delta": {"finish_reason": reason, "usage": {
        "billed_units": {"input_tokens": 5.0, "output_tokens": 8},
        "tokens": {"input_tokens": 71, "output_tokens": 12}}}})
}

fn said() -> Vec<Value> {
    vec![
        start(),
        content("content-start", json!({"type": "thinking", "thinking": ""})),
        content("content-delta", json!({"thinking": "hm"})),
        json!({"type": "content-end", "index": 0}),
        content("content-start", json!({"type": "text", "text": ""})),
        content("content-delta", json!({"text": "hé "})),
        content("content-delta", json!({"text": "you"})),
        json!({"type": "citation-start", "index": 0, "delta": {"message": {"citations": {}}}}),
        json!({"type": "content-end", "index": 1}),
        end("COMPLETE"),
    ]
}

fn called() -> Vec<Value> {
    let first =
        json!({"id": "f_1", "type": "function", "function": {"name": "f", "arguments": ""}});
    let second =
        json!({"id": "g_1", "type": "function", "function": {"name": "g", "arguments": ""}});
    vec![
        start(),
        json!({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I will"}}}),
        call("tool-call-start", 0, first),
        call("tool-call-delta", 0, json!({"function": {"arguments": "{\"x\""}})),
        call("tool-call-delta", 0, json!({"function": {"arguments": ": 1.0}"}})),
        json!({"type": "tool-call-end", "index": 0}),
        call("tool-call-start", 1, second),
        json!({"type": "tool-call-end", "index": 1}),
        end("TOOL_CALL"),
    ]
}

fn case(kind: &str, body: Bytes) -> Case {
    Case {
        id: "documented".into(),
        provider: "cohere".into(),
        wire: "cohere-chat".into(),
        status: 200,
        kind: kind.into(),
        stream: kind == "sse",
        note: String::new(),
        headers: Vec::new(),
        request: None,
        body,
    }
}

/// What is charged, not what the provider's template makes of it.
fn usage() -> Option<Usage> {
    Some(Usage { input: 5, output: 8, ..Usage::default() })
}

fn wants_text() -> Want {
    let (text, reasoning) = ("hé you".into(), "hm".into());
    Want { text, reasoning, finish: Some("stop"), usage: usage(), ..Want::default() }
}

fn wants_calls() -> Want {
    let tools = vec![("f".into(), Some(json!({"x": 1.0}))), ("g".into(), Some(json!({})))];
    let reasoning = "I will".into();
    Want { reasoning, tools, finish: Some("tool_calls"), usage: usage(), ..Want::default() }
}

#[test]
fn the_documented_streams_read_the_same_at_every_cut() {
    for (events, want) in [(said(), wants_text()), (called(), wants_calls())] {
        let case = case("sse", sse(&events));
        every_cut(Wire::Cohere, &case, &want);
        every_shortening(Wire::Cohere, &case, &want);
        every_end(Wire::Cohere, &case, &want, |body| {
            String::from_utf8_lossy(body).contains("message-end")
        });
    }
}

#[test]
fn the_documented_replies_are_strict_completions_and_so_are_they_as_streams() {
    let usage = end("")["delta"]["usage"].clone();
    let text = json!({"id": "c1", "finish_reason": "COMPLETE", "usage": usage, "message": {
        "role": "assistant", "content": [{"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "hé you"}]}});
    let calls = json!({"id": "c1", "finish_reason": "TOOL_CALL", "usage": usage, "message": {
        "role": "assistant", "tool_plan": "I will", "tool_calls": [
        {"id": "f_1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1.0}"}},
        {"id": "g_1", "type": "function", "function": {"name": "g", "arguments": ""}}]}});
    for (body, want) in [(text, wants_text()), (calls, wants_calls())] {
        let case = case("json", body.to_string().into());
        want.judge_whole(Wire::Cohere, &case);
        every_cut(Wire::Cohere, &case, &want);
    }
}

#[test]
fn finish_reasons_are_openais_words_or_failures() {
    let ended = |reason: &str| {
        let mut events = said();
        events.pop();
        events.push(end(reason));
        stream(&events)
    };
    assert_eq!(ended("COMPLETE").finish, Some("stop"));
    assert_eq!(ended("STOP_SEQUENCE").finish, Some("stop"));
    assert_eq!(ended("MAX_TOKENS").finish, Some("length"));
    assert_eq!(ended("NEW").finish, Some("stop"));
    assert_eq!(ended("ERROR").failure().class, Class::Server);
    assert_eq!(ended("TIMEOUT").failure().class, Class::Timeout);
    assert_eq!(ended("ERROR").seen(true).choices[&0].text, "hé you");
}

#[test]
fn what_is_no_answer_is_a_failure() {
    for body in ["", "{}", "<html>", "data: {}\n\n", "data: x\n\n", ": ping\n\n", "{\"message\":"] {
        let got = filter(Wire::Cohere, &[Bytes::from(body)], true, true);
        assert_eq!(got.failure().class, Class::Invalid, "{body}");
        assert!(Wire::Cohere.whole(body.into(), context(false)).is_err(), "{body}");
    }
    let error = Bytes::from_static(br#"{"id":"x","message":"invalid request: no such tool"}"#);
    let failure = Wire::Cohere.whole(error, context(false)).map(|_| ()).unwrap_err();
    assert_eq!(failure.message, "invalid request: no such tool");
}
