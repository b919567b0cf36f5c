//! Tool loops: what a reply said comes back in the caller's next request, reasoning and its seal
//! included.

use super::{To, context, filter, hello};
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::dialect::Api;
use weir_filters::error::ApiError;
use weir_filters::wire::Wire;

/// A message with thinking and a call, as Anthropic sends it.
fn sealed() -> Bytes {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "c2VhbA=="},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 5}})
    .to_string()
    .into()
}

#[test]
fn sealed_thinking_survives_a_loop_through_responses() {
    let to = To::new(Wire::Anthropic);
    let (_, _, memo) = to.ask(Api::Responses, &hello(Api::Responses));
    let whole = Api::Responses.whole(Wire::Anthropic, &memo, sealed(), context()).unwrap();
    let reply: Value = serde_json::from_slice(&whole.body).unwrap();
    let mut input = vec![json!({"role": "user", "content": "go"})];
    input.extend(reply["output"].as_array().unwrap().iter().cloned());
    input.push(json!({"type": "function_call_output", "call_id": "t1", "output": "x"}));
    let body = json!({"model": "m", "input": input, "reasoning": {"effort": "low"},
                      "tools": [{"type": "function", "name": "f"}], "max_output_tokens": 4000});
    let (sent, _, _) = to.ask(Api::Responses, &body);
    let want = json!([{"type": "thinking", "thinking": "hm", "signature": "c2VhbA=="},
                      {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]);
    assert_eq!(sent["messages"][1]["content"], want);
    assert_eq!(sent["messages"][2]["content"][0]["tool_use_id"], "t1");
    // Another provider is never shown a seal that is not its own.
    let (sent, _, _) = To::new(Wire::OpenAi).ask(Api::Responses, &body);
    assert!(!sent.to_string().contains("c2VhbA=="));
}

/// A call with its seal, as each provider that seals sends it.
fn sealed_by(wire: Wire) -> Bytes {
    let body = match wire {
        Wire::Bedrock => json!({"stopReason": "tool_use", "usage":
            {"inputTokens": 3, "outputTokens": 5, "totalTokens": 8},
            "output": {"message": {"role": "assistant", "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2VhbA=="}}},
                {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}}}]}}}),
        Wire::Gemini | Wire::Vertex => json!({"candidates": [{"finishReason": "STOP", "content":
            {"role": "model", "parts": [{"thoughtSignature": "c2VhbA==",
                "functionCall": {"name": "f", "args": {"a": 1}}}]}}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5}}),
        _ => return sealed(),
    };
    body.to_string().into()
}

/// The request that goes on where a reply ended: what it said as it came, and the call's result.
fn going_on(api: Api, reply: &Value) -> Value {
    let schema = json!({"type": "object"});
    match api {
        Api::Messages => {
            let content = reply["content"].as_array().unwrap();
            let call = content.iter().find(|block| block["type"] == "tool_use").unwrap();
            let result =
                json!([{"type": "tool_result", "tool_use_id": call["id"], "content": "x"}]);
            json!({"model": "m", "max_tokens": 4000, "messages": [
                {"role": "user", "content": "go"}, {"role": "assistant", "content": content},
                {"role": "user", "content": result}],
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "tools": [{"name": "f", "input_schema": schema}]})
        }
        Api::Responses => {
            let output = reply["output"].as_array().unwrap();
            let call = output.iter().find(|item| item["type"] == "function_call").unwrap();
            let mut input = vec![json!({"role": "user", "content": "go"})];
            input.extend(output.iter().cloned());
            input.push(json!({"type": "function_call_output", "call_id": call["call_id"],
                              "output": "x"}));
            json!({"model": "m", "input": input, "max_output_tokens": 4000,
                   "tools": [{"type": "function", "name": "f", "parameters": schema}]})
        }
        _ => {
            let said = &reply["choices"][0]["message"];
            json!({"model": "m", "max_tokens": 4000, "messages": [
                {"role": "user", "content": "go"}, said,
                {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "x"}],
                "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]})
        }
    }
}

#[test]
fn a_seal_survives_a_tool_loop_of_every_dialect_at_every_provider_that_seals() {
    for (wire, model) in [
        (Wire::Anthropic, "claude-sonnet-4-5"),
        (Wire::Bedrock, "anthropic.claude-sonnet-4-5-v1:0"),
        (Wire::Gemini, "gemini-3-pro"),
        (Wire::Vertex, "gemini-3-pro"),
    ] {
        let to = To { model, ..To::new(wire) };
        for api in [Api::Chat, Api::Messages, Api::Responses] {
            let (_, _, memo) = to.ask(api, &hello(api));
            let whole = api.whole(wire, &memo, sealed_by(wire), context()).unwrap();
            let next = going_on(api, &serde_json::from_slice(&whole.body).unwrap());
            let (sent, dropped, _) = to.ask(api, &next);
            let text = sent.to_string();
            assert_eq!(text.matches("c2VhbA==").count(), 1, "{api:?} {wire:?} {text}");
            assert!(text.contains("{\"a\":1}"), "{api:?} {wire:?} {text}");
            assert_eq!(dropped, [""; 0], "{api:?} {wire:?}");
            // A provider that is none of the seal's is not shown it, and the caller is told.
            let (sent, dropped, _) = To::new(Wire::OpenAi).ask(api, &next);
            let shown = api == Api::Chat && matches!(wire, Wire::Anthropic | Wire::Bedrock);
            assert_eq!(sent.to_string().contains("c2VhbA=="), shown, "{api:?} {wire:?} {sent}");
            let seals = api != Api::Chat && matches!(wire, Wire::Anthropic | Wire::Bedrock);
            let names = ["messages.content.thinking", "input.reasoning.encrypted_content"];
            let told = dropped.iter().any(|name| names.contains(&name.as_str()));
            assert_eq!(told, seals, "{api:?} {wire:?} {dropped:?}");
        }
    }
}

#[test]
fn a_message_that_came_as_json_is_a_stream_all_the_same() {
    let (_, _, memo) = To::new(Wire::Anthropic).ask(Api::Messages, &hello(Api::Messages));
    let reply = filter(Api::Messages, Wire::Anthropic, memo, &[sealed()], true);
    let seen = super::replay::messages::stream(&reply.out, true);
    assert!(reply.complete && seen.faults.is_empty(), "{:?}", seen.faults);
    assert_eq!((seen.reasoning.as_str(), seen.tools.len()), ("hm", 1));
    assert!(String::from_utf8(reply.out).unwrap().contains("c2VhbA=="));
}

#[test]
fn a_long_tool_name_is_the_caller_s_own_again_in_the_reply() {
    let long = format!("mcp__{}", "x".repeat(90));
    let mut body = hello(Api::Messages);
    body["tools"] = json!([{"name": long, "input_schema": {"type": "object"}}]);
    let (sent, _, memo) = To::new(Wire::OpenAi).ask(Api::Messages, &body);
    let given = sent["tools"][0]["function"]["name"].as_str().unwrap().to_owned();
    assert!(given.len() <= 64);
    let stream = super::chunks(&[super::start(0, &given, "{}")], "tool_calls");
    let reply = filter(Api::Messages, Wire::OpenAi, memo, &[stream], true);
    let seen = super::replay::messages::stream(&reply.out, false);
    assert_eq!(seen.tools, [(long, "{}".to_owned())]);
}

/// Feeds a stream until a limit cuts it after so many pieces. What has ended before stays as it is.
fn cut(api: Api, to: &To, stream: &Bytes, pieces: usize) -> (Vec<u8>, bool) {
    use weir_filters::wire::{End, Step};
    let (_, _, memo) = to.ask(api, &hello(api));
    let mut reply = api.stream(to.wire, memo, context());
    let mut out = Vec::new();
    let events: Vec<&[u8]> = split(stream);
    for event in events.iter().take(pieces) {
        let mut step = Step::default();
        reply.feed(Bytes::copy_from_slice(event), &mut step);
        out.extend(step.out.concat());
        match step.end {
            None => {}
            Some(End::Complete { tail }) => {
                out.extend_from_slice(&tail);
                return (out, true);
            }
            Some(End::Failed(failure)) => {
                let error = ApiError::from_failure(&failure, 1);
                out.extend(reply.error(&error, "req-1").unwrap_or_default());
                return (out, true);
            }
        }
    }
    let mut step = Step::default();
    reply.cut(&mut step);
    out.extend(step.out.concat());
    let Some(End::Complete { tail }) = step.end else { panic!("a cut is no failure") };
    out.extend_from_slice(&tail);
    let mut late = Step::default();
    reply.feed(stream.clone(), &mut late);
    assert!(late.out.is_empty() && late.end.is_none(), "what comes later is swallowed");
    (out, false)
}

fn split(stream: &[u8]) -> Vec<&[u8]> {
    let mut events = Vec::new();
    let mut from = 0;
    for at in 0..stream.len().saturating_sub(1) {
        if stream.get(at..at + 2) == Some(b"\n\n") {
            events.extend(stream.get(from..at + 2));
            from = at + 2;
        }
    }
    events
}

#[test]
fn a_limit_ends_a_stream_of_any_dialect_at_any_event_well_formed() {
    use super::replay::{messages, responses};
    let chat = super::chunks(
        &[
            json!({"reasoning_content": "hm"}),
            json!({"content": "so"}),
            json!({"content": " far"}),
            super::start(0, "f", ""),
            super::more(0, "{\"a\":"),
            super::more(0, "1}"),
        ],
        "tool_calls",
    );
    let openai = To::new(Wire::OpenAi);
    for pieces in 1..9 {
        let (out, whole) = cut(Api::Messages, &openai, &chat, pieces);
        let seen = messages::stream(&out, false);
        assert!(seen.faults.is_empty(), "{pieces}: {:?}", seen.faults);
        assert!(whole || seen.stop.as_deref() == Some("max_tokens") || seen.tools.len() == 1);
        let (out, _) = cut(Api::Responses, &openai, &chat, pieces);
        let seen = responses::stream(&out);
        assert!(seen.faults.is_empty(), "{pieces}: {:?}", seen.faults);
        let (out, _) = cut(Api::Completions, &openai, &chat, pieces);
        assert!(out.ends_with(b"data: [DONE]\n\n"), "{pieces}");
    }
    for case in super::replay::cases("anthropic-messages").iter().take(20) {
        if case.status == 200 && case.kind == "sse" && !case.id.starts_with("edge") {
            for pieces in [2, 3, 4, 6] {
                let (out, _) = cut(Api::Messages, &To::new(Wire::Anthropic), &case.body, pieces);
                let seen = messages::stream(&out, true);
                assert!(seen.faults.is_empty(), "{}: {:?}", case.id, seen.faults);
                assert!(seen.stop.is_some() || seen.error.is_some(), "{}", case.id);
            }
        }
    }
}

#[test]
fn a_limit_ends_a_passing_response_with_what_was_said() {
    let quirks = weir_filters::wire::Quirks { responses: true, ..Default::default() };
    let native = To { quirks, ..To::new(Wire::OpenAi) };
    // Our own events stand for a provider's.
    let deltas = [json!({"content": "so"}), json!({"content": " far"}), json!({"content": "!"})];
    let (_, _, memo) = To::new(Wire::OpenAi).ask(Api::Responses, &hello(Api::Responses));
    let ours = filter(Api::Responses, Wire::OpenAi, memo, &[super::chunks(&deltas, "stop")], true);
    let ours = Bytes::from(ours.out);
    for pieces in 3..10 {
        let (out, whole) = cut(Api::Responses, &native, &ours, pieces);
        let seen = super::replay::responses::stream(&out);
        assert!(seen.faults.is_empty(), "{pieces}: {:?}", seen.faults);
        assert!(!whole && seen.status == "incomplete" && "so far!".starts_with(&seen.text));
    }
}
