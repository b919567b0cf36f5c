//! Whatever a caller or a provider may think of: no panic, and always the required members.

use super::{context, filter, try_ask};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::peek;
use weir_filters::wire::{Params, Wire};

fn leaf() -> impl Strategy<Value = Value> {
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
        Just("output_config"),
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

/// Every rule that a body must hold for the provider to read it at all.
fn check(body: &Value) {
    assert!(body["model"].is_string() && body["max_tokens"].is_u64(), "{body}");
    let turns = body["messages"].as_array().unwrap();
    assert_eq!(turns.first().unwrap()["role"], "user", "{body}");
    for (n, turn) in turns.iter().enumerate() {
        assert_eq!(turn["role"], if n % 2 == 0 { "user" } else { "assistant" }, "{body}");
        let blocks = turn["content"].as_array().unwrap();
        assert!(!blocks.is_empty(), "{body}");
        for block in blocks {
            assert!(block["type"].is_string(), "{body}");
            let text = block["text"].as_str();
            assert!(text.is_none_or(|text| !text.trim().is_empty()), "{body}");
            assert!(block["type"] != "tool_use" || block["input"].is_object(), "{body}");
        }
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        assert_eq!(tool["input_schema"]["type"], "object", "{body}");
    }
}

proptest! {
    #[test]
    fn any_chat_is_a_sound_body_or_a_refusal_with_its_member(
        messages in proptest::collection::vec(message(), 1..6),
        more in more(),
        max_output in 0..5000_u64,
    ) {
        let mut chat = json!({"model": "m", "messages": messages});
        for (name, value) in more {
            chat[name] = value;
        }
        let text = chat.to_string();
        prop_assume!(peek::chat(Bytes::from(text.clone())).is_ok());
        match try_ask(&text, &Params::default(), max_output) {
            Ok(out) => check(&serde_json::from_slice(&out.body.concat()).unwrap()),
            Err(error) => assert!(error.param.is_some(), "{error:?} for {text}"),
        }
    }

    #[test]
    fn any_bytes_end_a_stream_once_and_never_panic(
        pieces in proptest::collection::vec(noise(), 0..12),
        clean: bool,
    ) {
        let pieces: Vec<_> = pieces.into_iter().map(Bytes::from).collect();
        let got = filter(&pieces, true, clean);
        prop_assert!(got.end.is_some());
        let _ = Wire::Anthropic.whole(pieces.concat().into(), context(true));
    }
}

/// Events with holes, half events and bytes.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just("message_start"),
        Just("content_block_start"),
        Just("content_block_delta"),
        Just("content_block_stop"),
        Just("message_delta"),
        Just("message_stop"),
        Just("ping"),
    ];
    let block = prop_oneof![Just("text"), Just("thinking"), Just("tool_use"), Just("new")];
    let delta = prop_oneof![Just("text_delta"), Just("thinking_delta"), Just("input_json_delta")];
    let event = (kind, block, delta, leaf(), 0..3_u32).prop_map(|(kind, block, delta, leaf, at)| {
        let event = json!({
            "type": kind, "index": at, "message": {"id": leaf}, "usage": {"output_tokens": leaf},
            "content_block": {"type": block, "name": "f", "text": leaf, "input": leaf},
            "delta": {"type": delta, "text": leaf, "thinking": leaf, "partial_json": leaf,
                      "stop_reason": leaf},
        });
        format!("data: {event}\n\n").into_bytes()
    });
    prop_oneof![4 => event, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}
