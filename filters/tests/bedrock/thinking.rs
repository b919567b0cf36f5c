//! Reasoning, its seals and its settings.

use super::{CLAUDE, ask, hello, stream};
use crate::replay::drive::context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::wire::Wire;

#[test]
fn thoughts_are_reasoning_and_their_seals_come_in_thinking_blocks() {
    let sealed = STANDARD.encode("c2VhbA==");
    let (first, second) = sealed.split_at(8);
    let delta = |index: u8, raw: &str| {
        format!(r#"{{"contentBlockIndex":{index},"delta":{{"reasoningContent":{raw}}}}}"#)
    };
    let events = [
        ("messageStart", r#"{"role":"assistant"}"#.to_owned()),
        ("contentBlockDelta", delta(0, r#"{"text":"h\u00e9"}"#)),
        ("contentBlockDelta", delta(0, r#"{"text":"m"}"#)),
        ("contentBlockDelta", delta(0, r#"{"signature":"s+/="}"#)),
        ("contentBlockStop", r#"{"contentBlockIndex":0}"#.to_owned()),
        ("contentBlockDelta", delta(1, &format!(r#"{{"redactedContent":"{first}"}}"#))),
        ("contentBlockDelta", delta(1, &format!(r#"{{"redactedContent":"{second}"}}"#))),
        ("messageStop", r#"{"stopReason":"end_turn"}"#.to_owned()),
    ];
    let events: Vec<(&str, &str)> = events.iter().map(|(name, text)| (*name, &**text)).collect();
    let got = stream(&events, false);
    assert_eq!(got.seen(false).choices[&0].reasoning, "hém");
    let text = String::from_utf8(got.out).unwrap();
    let chunks = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let blocks = chunks.map(|c| serde_json::from_str::<Value>(&format!("{{{c}")).unwrap());
    let blocks = blocks.map(|c| c["choices"][0]["delta"]["thinking_blocks"].clone());
    let blocks: Vec<_> = blocks.filter(|blocks| !blocks.is_null()).collect();
    let thought = json!([{"index": 0, "type": "thinking", "thinking": "hém", "signature": "s+/="}]);
    let redacted = json!([{"index": 1, "type": "redacted_thinking", "data": "c2VhbA=="}]);
    assert_eq!(blocks, [thought, redacted]);
}

#[test]
fn a_whole_reply_gives_what_the_next_request_gives_back() {
    let reasoning = r#"{"reasoningText":{"text":"hm","signature":"sig"}}"#;
    let body = format!(
        r#"{{"output":{{"message":{{"content":[{{"reasoningContent":{reasoning}}},
            {{"reasoningContent":{{"redactedContent":"{}"}}}},
            {{"toolUse":{{"toolUseId":"t","name":"f","input":{{"x": 1.0}}}}}}]}}}},
            "stopReason":"tool_use"}}"#,
        STANDARD.encode("DATA")
    );
    let whole = Wire::Bedrock.whole(Bytes::from(body), context(false)).unwrap();
    let reply: Value = serde_json::from_slice(&whole.body).unwrap();
    let mut message = reply["choices"][0]["message"].clone();
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"x":1.0}"#);
    message["content"] = "ok".into();
    let messages = json!([{"role": "user", "content": "go"}, message,
        {"role": "tool", "tool_call_id": "t", "content": "1"}]);
    let sent = ask(CLAUDE, &messages.to_string(), r#""reasoning_effort":"high""#);
    let blocks = &sent.json["messages"][1]["content"];
    let thought =
        json!({"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}});
    assert_eq!(blocks[0], thought);
    let data = STANDARD.encode("DATA");
    assert_eq!(blocks[1], json!({"reasoningContent": {"redactedContent": data}}));
    assert_eq!(blocks[3]["toolUse"]["input"], json!({"x": 1.0}));
    assert_eq!(sent.json["additionalModelRequestFields"]["thinking"]["type"], "enabled");
    // Another family's model does not know these seals.
    let sent = ask("amazon.nova-pro-v1:0", &messages.to_string(), "");
    assert_eq!(sent.dropped, ["messages.thinking_blocks"]);
    assert!(!sent.text.contains("reasoningContent"));
}

#[test]
fn an_effort_is_what_the_family_calls_it() {
    let fields = |model: &str, more: &str| {
        let sent = hello(model, more);
        (sent.json["additionalModelRequestFields"].clone(), sent.dropped)
    };
    let high = r#""reasoning_effort":"high","max_tokens":10000"#;
    let claude = json!({"thinking": {"type": "enabled", "budget_tokens": 8000}});
    assert_eq!(fields(CLAUDE, high), (claude, vec![]));
    let nova = json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}});
    assert_eq!(fields("us.amazon.nova-2-lite-v1:0", high), (nova, vec![]));
    let oss = json!({"reasoning_effort": "high"});
    assert_eq!(fields("openai.gpt-oss-120b-1:0", high), (oss, vec![]));
    let dropped = vec!["reasoning_effort".to_owned()];
    assert_eq!(fields("meta.llama3-8b", high), (Value::Null, dropped.clone()));
    let tiny = r#""reasoning_effort":"high","max_tokens":100"#;
    assert_eq!(fields(CLAUDE, tiny), (Value::Null, dropped));
    let none = r#""reasoning_effort":"none""#;
    assert_eq!(fields(CLAUDE, none), (Value::Null, vec![]));
}

#[test]
fn sampling_is_dropped_while_thinking() {
    let more = r#""reasoning_effort":"low","temperature":0.3,"top_p":0.5,"top_k":4"#;
    let sent = hello(CLAUDE, more);
    assert!(sent.json.get("inferenceConfig").is_none());
    let mut dropped = sent.dropped;
    dropped.sort();
    assert_eq!(dropped, ["temperature", "top_k", "top_p"]);
    let off = r#""thinking":{"type":"disabled"},"temperature":0.3,"top_k":4"#;
    let sent = hello(CLAUDE, off);
    assert_eq!(sent.json["inferenceConfig"]["temperature"], 0.3);
    let want = json!({"thinking": {"type": "disabled"}, "top_k": 4});
    assert_eq!(sent.json["additionalModelRequestFields"], want);
}

#[test]
fn a_tool_loop_without_its_thoughts_goes_on_without_thinking() {
    let messages = r#"[{"role":"user","content":"go"},{"role":"assistant","tool_calls":[
        {"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"a","content":"1"}]"#;
    let sent = ask(CLAUDE, messages, r#""reasoning_effort":"high""#);
    assert_eq!(sent.dropped, ["reasoning_effort"]);
    assert!(sent.json.get("additionalModelRequestFields").is_none());
}

#[test]
fn models_without_budgets_are_steered_by_an_effort() {
    let model = "us.anthropic.claude-opus-4-7-v1:0";
    let sent = hello(model, r#""reasoning_effort":"high","temperature":0.2,"top_k":3"#);
    let fields = &sent.json["additionalModelRequestFields"];
    let want = json!({"output_config": {"effort": "high"}, "thinking": {"type": "adaptive"}});
    assert_eq!(fields, &want);
    assert_eq!(sent.json.get("inferenceConfig"), None::<&Value>);
    assert_eq!(sent.dropped, ["top_k", "temperature"]);
    let force = r#""tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required""#;
    let sent = hello("anthropic.claude-opus-5-5-v1:0", force);
    assert_eq!(sent.json["toolConfig"].get("toolChoice"), None::<&Value>);
    assert_eq!(sent.dropped, ["tool_choice"]);
}
