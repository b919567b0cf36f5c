//! Usage that no provider can mean is none: it never costs the caller the answer beside it.

#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::wire::{ReplyContext, WIRES, Wire};

fn context() -> ReplyContext {
    ReplyContext {
        usage_asked: true,
        strip_usage: false,
        id: "chatcmpl-made".into(),
        created: 1_700_000_000,
        model: "m".into(),
        encoding: None,
        prompt_tokens: 7,
    }
}

/// A whole answer of each wire, and where its usage stands.
fn answer(wire: Wire) -> (Value, &'static str, [&'static str; 2]) {
    let message = json!({"role": "assistant", "content": "Hello"});
    let counts = ["input_tokens", "output_tokens"];
    match wire {
        Wire::OpenAi | Wire::Azure => (
            json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}),
            "usage",
            ["prompt_tokens", "completion_tokens"],
        ),
        Wire::Anthropic => (
            json!({"id": "a", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"}),
            "usage",
            counts,
        ),
        Wire::Gemini | Wire::Vertex => (
            json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]},
                "finishReason": "STOP", "index": 0}]}),
            "usageMetadata",
            ["promptTokenCount", "candidatesTokenCount"],
        ),
        Wire::Ollama => (
            json!({"model": "m", "message": message, "done": true, "done_reason": "stop"}),
            "",
            ["prompt_eval_count", "eval_count"],
        ),
        Wire::Bedrock => (
            json!({"output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}},
                "stopReason": "end_turn"}),
            "usage",
            ["inputTokens", "outputTokens"],
        ),
        Wire::Qianfan => (
            json!({"id": "q", "result": "Hello", "is_truncated": false}),
            "usage",
            ["prompt_tokens", "completion_tokens"],
        ),
        Wire::Cohere => (
            json!({"id": "c", "finish_reason": "COMPLETE", "message":
                {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}}),
            "usage",
            counts,
        ),
        Wire::DashScope => (
            json!({"request_id": "r", "output": {"choices": [
                {"finish_reason": "stop", "message": message}]}}),
            "usage",
            counts,
        ),
    }
}

#[test]
fn a_count_that_is_none_costs_no_answer() {
    for (name, wire) in WIRES {
        let (plain, place, counts) = answer(*wire);
        for odd in [json!(-3), json!(1.5), json!("9"), json!([]), json!(1e40)] {
            let mut body = plain.clone();
            let said = json!({counts[0]: odd, counts[1]: odd});
            match place {
                "" => body.as_object_mut().unwrap().extend(said.as_object().unwrap().clone()),
                place => body[place] = said,
            }
            let mut bodies = vec![body];
            if !place.is_empty() {
                let mut none = plain.clone();
                none[place] = odd.clone();
                bodies.push(none);
            }
            for body in bodies {
                let whole = wire.whole(Bytes::from(body.to_string()), context());
                let whole = whole.unwrap_or_else(|f| panic!("{name}, {odd}: {f:?}"));
                let told: Value = serde_json::from_slice(&whole.body).unwrap();
                assert_eq!(told["choices"][0]["message"]["content"], "Hello", "{name}, {odd}");
                let total = told["usage"]["total_tokens"].as_u64();
                assert!(total.is_some_and(|n| n < 1 << 62), "{name}, {odd}: {told}");
            }
        }
    }
}
