//! Whatever a caller or a provider may think of: no panic, and always the required members.

use super::replay::drive::{context, filter, try_ask};
use super::replay::noise::{chat, leaf};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::wire::{Params, Wire};

/// Every rule that a body must hold for the provider to read it at all.
fn check(body: &Value) {
    assert!(body["model"].is_string() && body["parameters"]["result_format"] == "message");
    for turn in body["input"]["messages"].as_array().unwrap() {
        assert!(turn["role"].is_string(), "{body}");
        assert!(turn["content"].is_string() || turn["content"].is_array(), "{body}");
    }
}

/// Frames with holes, half frames and bytes.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let frame = (leaf(), leaf(), any::<Option<bool>>()).prop_map(|(one, two, end)| {
        let call = json!({"index": two, "id": one, "function": {"name": two, "arguments": one}});
        let message = json!({"content": one, "reasoning_content": two, "tool_calls": [call]});
        let finish = if end == Some(true) { json!("stop") } else { two.clone() };
        let frame = json!({
            "output": {"choices": [{"message": message, "finish_reason": finish}]},
            "usage": {"input_tokens": two, "output_tokens": 1}, "request_id": one,
        });
        format!("data: {frame}\n\n").into_bytes()
    });
    prop_oneof![4 => frame, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn any_chat_is_a_sound_body_or_a_refusal_with_its_member(chat in chat()) {
        match try_ask(Wire::DashScope, "m", &chat, &Params::default()) {
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
        let got = filter(Wire::DashScope, &pieces, true, clean);
        prop_assert!(got.end.is_some());
        got.seen(true);
        let _ = Wire::DashScope.whole(pieces.concat().into(), context(true));
    }
}
