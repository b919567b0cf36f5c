//! Whatever a caller or a provider may think of: no panic, and always the required members.

use super::replay::drive::{context, filter, try_ask};
use super::replay::noise::{chat, leaf};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::wire::{Params, Wire};

/// Every rule that a body must hold for the provider to read it at all.
fn check(body: &Value) {
    let turns = body["contents"].as_array().unwrap();
    assert_eq!(turns.first().unwrap()["role"], "user", "{body}");
    for (n, turn) in turns.iter().enumerate() {
        assert_eq!(turn["role"], if n % 2 == 0 { "user" } else { "model" }, "{body}");
        let parts = turn["parts"].as_array().unwrap();
        assert!(!parts.is_empty(), "{body}");
        for part in parts {
            assert_ne!(part["text"], "", "{body}");
            let response = &part["functionResponse"];
            assert!(response.is_null() || response["response"].is_object(), "{body}");
        }
    }
}

/// Chunks with holes, half chunks and bytes.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let call = prop_oneof![
        leaf(),
        leaf().prop_map(|args| json!({"name": "f", "args": args, "willContinue": true})),
        "[$.a\\[\\]0-9']{0,8}".prop_map(|path| json!({"partialArgs": [
            {"jsonPath": path, "stringValue": "x"}], "willContinue": true})),
    ];
    let chunk = (call, leaf(), leaf(), 0..3_u32).prop_map(|(call, text, reason, index)| {
        let part = json!({"text": text, "functionCall": call, "thoughtSignature": text});
        let candidate =
            json!({"index": index, "content": {"parts": [part]}, "finishReason": reason});
        json!({"candidates": [candidate], "promptFeedback": {"blockReason": text}})
    });
    let framed = (chunk, any::<bool>()).prop_map(|(chunk, event)| match event {
        true => format!("data: {chunk}\r\n\r\n").into_bytes(),
        false => format!("{chunk},").into_bytes(),
    });
    prop_oneof![4 => framed, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn any_chat_is_a_sound_body_or_a_refusal_with_its_member(chat in chat()) {
        for wire in [Wire::Gemini, Wire::Vertex] {
            match try_ask(wire, "gemini-3-pro", &chat, &Params::default()) {
                Ok(out) => check(&serde_json::from_slice(&out.body.concat()).unwrap()),
                Err(error) => assert!(error.param.is_some(), "{error:?} for {chat}"),
            }
        }
    }

    #[test]
    fn any_bytes_end_a_stream_once_and_never_panic(
        pieces in proptest::collection::vec(noise(), 0..12),
        clean: bool,
    ) {
        let pieces: Vec<_> = pieces.into_iter().map(Bytes::from).collect();
        let got = filter(Wire::Gemini, &pieces, true, clean);
        prop_assert!(got.end.is_some());
        got.seen(true);
        let _ = Wire::Gemini.whole(pieces.concat().into(), context(true));
    }
}
