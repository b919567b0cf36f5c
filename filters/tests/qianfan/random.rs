//! Whatever a caller or a provider may think of: no panic, and always the required members.

use super::replay::drive::{context, filter, try_ask};
use super::replay::noise::{chat, leaf};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::wire::{Params, Wire};

/// Every rule that a body must hold for the provider to read it at all.
fn check(body: &Value) {
    let turns = body["messages"].as_array().unwrap();
    assert!(turns.len() % 2 == 1, "{body}");
    for (n, turn) in turns.iter().enumerate() {
        assert_eq!(turn["role"] == "assistant", n % 2 == 1, "{body}");
        assert!(turn["content"] != "" || turn["function_call"].is_object(), "{body}");
    }
}

/// Frames with holes, half frames and bytes.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let frame = (leaf(), leaf(), any::<Option<bool>>()).prop_map(|(one, two, end)| {
        let frame = json!({
            "id": one, "result": one, "is_end": end, "finish_reason": two,
            "usage": {"prompt_tokens": two, "completion_tokens": 1},
            "function_call": {"name": two, "arguments": "{}"},
        });
        format!("data: {frame}\n\n").into_bytes()
    });
    prop_oneof![4 => frame, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn any_chat_is_a_sound_body_or_a_refusal_with_its_member(chat in chat()) {
        match try_ask(Wire::Qianfan, "m", &chat, &Params::default()) {
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
        let got = filter(Wire::Qianfan, &pieces, true, clean);
        prop_assert!(got.end.is_some());
        got.seen(true);
        let _ = Wire::Qianfan.whole(pieces.concat().into(), context(true));
    }
}
