//! Answers in the form of Anthropic's Messages.

use super::answer::{Answer, Usage};
use super::openai::halves;
use super::request::Request;
use super::script::Action;
use bytes::Bytes;
use serde_json::{Value, json};

/// The reply to a Messages request.
pub(super) fn reply(answer: &Answer, request: &Request) -> Vec<Action> {
    if request.json()["stream"] == true {
        stream(answer)
    } else {
        let text = whole(answer).to_string();
        vec![Action::Whole(200, answer.head("application/json"), text.into())]
    }
}

/// An error as Anthropic writes it.
pub(super) fn error(message: &str, kind: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message},
           "request_id": "req_simulated"})
}

fn whole(answer: &Answer) -> Value {
    let mut content = vec![];
    if !answer.thinking.is_empty() {
        let text = answer.thinking.concat();
        content.push(json!({"type": "thinking", "thinking": text, "signature": "c2ltdWxhdGVk"}));
    }
    if !answer.words.is_empty() {
        content.push(json!({"type": "text", "text": answer.text()}));
    }
    for tool in &answer.tools {
        let input: Value = serde_json::from_str(&tool.arguments).unwrap_or_default();
        content.push(json!({"type": "tool_use", "id": tool.id, "name": tool.name, "input": input}));
    }
    let mut body = message(answer);
    body["content"] = content.into();
    body["stop_reason"] = stop_reason(answer).into();
    body["usage"] = answer.usage.map_or(Value::Null, usage);
    body
}

fn stream(answer: &Answer) -> Vec<Action> {
    let mut out = vec![Action::Head(200, answer.head("text/event-stream"))];
    let mut start = message(answer);
    start["usage"] = answer.usage.map_or(json!({}), |u| usage(Usage { output: 1, ..u }));
    out.push(event(&json!({"type": "message_start", "message": start})));
    out.push(event(&json!({"type": "ping"})));
    let mut index = 0;
    if !answer.thinking.is_empty() {
        out.push(open(index, &json!({"type": "thinking", "thinking": "", "signature": ""})));
        let piece = |t: &String| delta(index, &json!({"type": "thinking_delta", "thinking": t}));
        out.extend(answer.thinking.iter().map(piece));
        out.push(event(&json!({"type": "content_block_stop", "index": index})));
        index += 1;
    }
    if !answer.words.is_empty() {
        out.push(open(index, &json!({"type": "text", "text": ""})));
        match answer.words_as(|t| delta(index, &json!({"type": "text_delta", "text": t}))) {
            Ok(words) => out.extend(words),
            Err(broken) => {
                let failure = error("simulated failure", "overloaded_error");
                out.extend(broken.end(event(&failure)));
                return out;
            }
        }
        out.push(event(&json!({"type": "content_block_stop", "index": index})));
        index += 1;
    }
    for (index, tool) in (index..).zip(&answer.tools) {
        let block = json!({"type": "tool_use", "id": tool.id, "name": tool.name, "input": {}});
        out.push(open(index, &block));
        let piece = |t| delta(index, &json!({"type": "input_json_delta", "partial_json": t}));
        out.extend(halves(&tool.arguments).map(piece));
        out.push(event(&json!({"type": "content_block_stop", "index": index})));
    }
    let mut last = json!({"type": "message_delta",
        "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null}});
    if let Some(used) = answer.usage {
        last["usage"] = json!({"output_tokens": used.output});
    }
    out.push(event(&last));
    out.push(event(&json!({"type": "message_stop"})));
    out
}

fn message(answer: &Answer) -> Value {
    json!({"id": "msg_simulated", "type": "message", "role": "assistant", "model": answer.model,
           "content": [], "stop_reason": null, "stop_sequence": null})
}

fn event(data: &Value) -> Action {
    let name = data["type"].as_str().unwrap_or_default();
    Action::Body(Bytes::from(format!("event: {name}\ndata: {data}\n\n")))
}

fn open(index: usize, block: &Value) -> Action {
    event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn delta(index: usize, delta: &Value) -> Action {
    event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

/// Anthropic counts cached tokens beside the input, not inside.
fn usage(used: Usage) -> Value {
    json!({
        "input_tokens": used.input.saturating_sub(used.cached),
        "cache_read_input_tokens": used.cached, "cache_creation_input_tokens": 0,
        "output_tokens": used.output,
    })
}

fn stop_reason(answer: &Answer) -> &str {
    match answer.finish.as_str() {
        "length" => "max_tokens",
        "tool_calls" => "tool_use",
        "stop" => "end_turn",
        other => other,
    }
}
