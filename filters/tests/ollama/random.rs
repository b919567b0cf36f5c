//! Whatever a caller or a provider may think of: no panic, and always the required members.

use super::replay::drive::{context, filter, try_ask};
use super::replay::noise::{chat, leaf};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::wire::{Params, Wire};

/// Every rule that a body must hold for the provider to read it at all.
fn check(body: &Value) {
    assert!(body["model"].is_string() && body["stream"].is_boolean(), "{body}");
    for message in body["messages"].as_array().unwrap() {
        assert!(message["content"].is_string(), "{body}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            assert!(call["function"]["arguments"].is_object(), "{body}");
        }
    }
}

/// Lines with holes, half lines and bytes.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let line = (leaf(), leaf(), any::<bool>()).prop_map(|(one, two, done)| {
        let call = json!({"id": one, "function": {"name": "f", "arguments": two}});
        let message = json!({"content": one, "thinking": two, "tool_calls": [call]});
        let line = json!({"message": message, "done": done, "done_reason": two});
        format!("{line}\n").into_bytes()
    });
    prop_oneof![4 => line, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn any_chat_is_a_sound_body_or_a_refusal_with_its_member(chat in chat()) {
        match try_ask(Wire::Ollama, "m", &chat, &Params::default()) {
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
        let got = filter(Wire::Ollama, &pieces, true, clean);
        prop_assert!(got.end.is_some());
        got.seen(true);
        let _ = Wire::Ollama.whole(pieces.concat().into(), context(true));
    }
}
