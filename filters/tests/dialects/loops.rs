//! Tool loops: what a reply said comes back in the caller's next request, reasoning and its seal
//! included.

use super::{To, context, filter, hello};
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::dialect::Api;
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
