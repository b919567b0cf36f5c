//! Whatever a caller or a provider may think of: no panic, and always the required members.

use super::replay::drive::{context, filter, try_ask};
use super::replay::noise::{chat, leaf};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::wire::{Params, Wire};

/// Every rule that a body must hold for the provider to read it at all.
fn check(body: &Value) {
    assert!(body["model"].is_string(), "{body}");
    for message in body["messages"].as_array().unwrap() {
        let content = &message["content"];
        assert!(content.is_string() || content.is_array() || message["tool_calls"].is_array());
        assert!(message["role"] != "tool" || message["tool_call_id"].is_string(), "{body}");
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        assert_eq!(tool["function"]["parameters"]["type"], "object", "{body}");
    }
}

/// Events with holes, half events and bytes.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just("message-start"),
        Just("content-start"),
        Just("content-delta"),
        Just("tool-plan-delta"),
        Just("tool-call-start"),
        Just("tool-call-end"),
        Just("message-end"),
        Just("new"),
    ];
    let event = (kind, leaf(), leaf(), 0..3_u8).prop_map(|(kind, one, two, index)| {
        let event = json!({
            "type": kind, "id": one, "index": index, "delta": {
                "finish_reason": two, "usage": {"tokens": {"input_tokens": two}},
                "message": {"content": {"text": one, "thinking": two}, "tool_plan": one,
                    "tool_calls": {"id": one, "function": {"name": two, "arguments": ""}}},
            },
        });
        format!("data: {event}\n\n").into_bytes()
    });
    prop_oneof![4 => event, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn any_chat_is_a_sound_body_or_a_refusal_with_its_member(chat in chat()) {
        match try_ask(Wire::Cohere, "m", &chat, &Params::default()) {
            Ok(out) => check(&serde_json::from_slice(&out.body.concat()).unwrap()),
            Err(error) => assert!(error.param.is_some(), "{error:?} for {chat}"),
        }
    }

    #[test]
    fn any_bytes_end_a_stream_once_and_never_panic(
        pieces in proptest::collection::vec(noise(), 0..12),
        clean: bool,
    ) {
        let pieces: Vec<_> = pieces.into_iter().map(Bytes::from).collect();
        let got = filter(Wire::Cohere, &pieces, true, clean);
        prop_assert!(got.end.is_some());
        got.seen(true);
        let _ = Wire::Cohere.whole(pieces.concat().into(), context(true));
    }
}
