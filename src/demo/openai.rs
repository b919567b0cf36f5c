//! Answers in the form of OpenAI's chat completions.

use super::answer::{Answer, Usage};
use super::request::Request;
use super::script::Action;
use serde_json::{Value, json};

/// Every reply of the simulated provider bears the same second, so that replies compare equal.
const CREATED: u64 = 1_700_000_000;

/// The reply to a chat request.
pub(super) fn reply(answer: &Answer, request: &Request) -> Vec<Action> {
    let body = request.json();
    if body["stream"] == true {
        stream(answer, body["stream_options"]["include_usage"] == true)
    } else {
        let text = whole(answer).to_string();
        vec![Action::Whole(200, answer.head("application/json"), text.into())]
    }
}

/// An error as OpenAI writes it.
pub(super) fn error(message: &str, kind: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
}

fn whole(answer: &Answer) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text(), "refusal": null});
    if !answer.thinking.is_empty() {
        message["reasoning_content"] = answer.thinking.concat().into();
    }
    if !answer.tools.is_empty() {
        let call = |(i, _): (usize, _)| tool(answer, i, true);
        message["tool_calls"] = answer.tools.iter().enumerate().map(call).collect();
    }
    let mut body = json!({
        "id": "chatcmpl-simulated", "object": "chat.completion", "created": CREATED,
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": null,
                     "finish_reason": answer.finish}],
    });
    if let Some(used) = answer.usage {
        body["usage"] = usage(used);
    }
    body
}

fn stream(answer: &Answer, include_usage: bool) -> Vec<Action> {
    let content = |text: &str| chunk(answer, &json!({"content": text}), None);
    let mut out = vec![Action::Head(200, answer.head("text/event-stream"))];
    out.push(chunk(answer, &json!({"role": "assistant", "content": ""}), None));
    out.extend(
        answer.thinking.iter().map(|text| chunk(answer, &json!({"reasoning_content": text}), None)),
    );
    match answer.words_as(content) {
        Ok(words) => out.extend(words),
        Err(broken) => {
            out.extend(broken.end(Action::Sse(error("simulated failure", "server_error"))));
            return out;
        }
    }
    for (i, called) in answer.tools.iter().enumerate() {
        let delta = json!({"tool_calls": [tool(answer, i, false)]});
        out.push(chunk(answer, &delta, None));
        for piece in halves(&called.arguments) {
            let delta = json!({"tool_calls": [{"index": i, "function": {"arguments": piece}}]});
            out.push(chunk(answer, &delta, None));
        }
    }
    out.push(chunk(answer, &json!({}), Some(&answer.finish)));
    if let (true, Some(used)) = (include_usage, answer.usage) {
        let mut last = envelope(answer);
        last["choices"] = json!([]);
        last["usage"] = usage(used);
        out.push(Action::Sse(last));
    }
    out.push(Action::text("data: [DONE]\n\n"));
    out
}

fn envelope(answer: &Answer) -> Value {
    json!({"id": "chatcmpl-simulated", "object": "chat.completion.chunk", "created": CREATED,
           "model": answer.model})
}

fn chunk(answer: &Answer, delta: &Value, finish: Option<&str>) -> Action {
    let mut chunk = envelope(answer);
    chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    Action::Sse(chunk)
}

fn tool(answer: &Answer, i: usize, whole: bool) -> Value {
    let tool = &answer.tools[i];
    let arguments = if whole { tool.arguments.as_str() } else { "" };
    let mut call = json!({"id": tool.id, "type": "function",
                          "function": {"name": tool.name, "arguments": arguments}});
    if !whole {
        call["index"] = i.into();
    }
    call
}

fn usage(used: Usage) -> Value {
    json!({
        "prompt_tokens": used.input, "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    })
}

/// Arguments come in pieces, as real providers send them.
pub(super) fn halves(text: &str) -> [&str; 2] {
    let middle = (text.len() / 2..=text.len()).find(|i| text.is_char_boundary(*i));
    let (a, b) = text.split_at(middle.unwrap_or(text.len()));
    [a, b]
}
