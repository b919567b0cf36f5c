//! Chats that no caller would send, and some would.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::peek;

pub fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z \n\"\\\\é🦀]{0,6}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
    ]
}

fn part() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a-z \n]{0,4}".prop_map(|text| json!({"type": "text", "text": text})),
        "(data:|http://|)[a-z/;,0-9]{0,9}"
            .prop_map(|url| json!({"type": "image_url", "image_url": {"url": url}})),
        "(data:[a-z/]{0,8};base64,)?[A-Za-z0-9+/=]{0,9}"
            .prop_map(|data| json!({"type": "file", "file": {"file_data": data}})),
        leaf(),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop_oneof![
        Just("user"),
        Just("assistant"),
        Just("system"),
        Just("developer"),
        Just("tool"),
    ];
    let content =
        prop_oneof![leaf(), proptest::collection::vec(part(), 0..3).prop_map(Value::from)];
    let call = ("[a-z:.]{0,3}", leaf()).prop_map(
        |(id, args)| json!({"id": id, "function": {"name": "f", "arguments": args.to_string()}}),
    );
    let calls = prop_oneof![
        3 => Just(Value::Null),
        2 => proptest::collection::vec(call, 0..3).prop_map(Value::from),
        1 => leaf(),
    ];
    (role, content, calls).prop_map(|(role, content, calls)| {
        json!({"role": role, "content": content, "tool_calls": calls, "tool_call_id": "a"})
    })
}

fn more() -> impl Strategy<Value = Vec<(String, Value)>> {
    let name = prop_oneof![
        Just("temperature"),
        Just("top_p"),
        Just("stop"),
        Just("tools"),
        Just("tool_choice"),
        Just("reasoning_effort"),
        Just("response_format"),
        Just("thinking"),
        Just("metadata"),
        Just("n"),
        Just("user"),
        Just("seed"),
    ];
    let value = prop_oneof![
        leaf(),
        Just(json!("high")),
        Just(json!("required")),
        Just(json!([{"type": "function", "function": {"name": "f", "parameters": {"x": 1}}}])),
        Just(json!({"type": "json_schema", "json_schema": {"schema": {}}})),
    ];
    proptest::collection::vec((name.prop_map(str::to_owned), value), 0..5)
}

/// A body that the gateway lets in.
pub fn chat() -> impl Strategy<Value = String> {
    let messages = proptest::collection::vec(message(), 1..6);
    let chat = (messages, more()).prop_map(|(messages, more)| {
        let mut chat = json!({"model": "m", "messages": messages});
        for (name, value) in more {
            chat[name] = value;
        }
        chat.to_string()
    });
    chat.prop_filter("let in", |chat| peek::chat(Bytes::from(chat.clone())).is_ok())
}
