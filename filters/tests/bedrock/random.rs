//! Whatever a caller or a provider may think of: no panic, and always the required members.

use super::frame;
use super::replay::drive::{context, filter, try_ask};
use super::replay::noise::{chat, leaf};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::wire::{Params, Wire};

/// Every rule that a body must hold for the provider to read it at all.
fn check(body: &Value) {
    let turns = body["messages"].as_array().unwrap();
    assert_eq!(turns.first().unwrap()["role"], "user", "{body}");
    let mut used = false;
    for (n, turn) in turns.iter().enumerate() {
        assert_eq!(turn["role"], if n % 2 == 0 { "user" } else { "assistant" }, "{body}");
        let blocks = turn["content"].as_array().unwrap();
        assert!(!blocks.is_empty(), "{body}");
        for block in blocks {
            let text = block["text"].as_str();
            assert!(text.is_none_or(|text| !text.trim().is_empty()), "{body}");
            used |= block["toolUse"].is_object();
        }
    }
    for tool in body["toolConfig"]["tools"].as_array().into_iter().flatten() {
        let spec = &tool["toolSpec"];
        assert!(spec.is_null() || spec["inputSchema"]["json"]["type"] == "object", "{body}");
    }
    assert!(!used || body["toolConfig"]["tools"].is_array(), "{body}");
}

/// Frames with holes, half frames and bytes.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just("messageStart"),
        Just("contentBlockStart"),
        Just("contentBlockDelta"),
        Just("contentBlockStop"),
        Just("messageStop"),
        Just("metadata"),
        Just("new"),
    ];
    let framed = (kind, leaf(), leaf(), 0..3_u8, any::<bool>());
    let framed = framed.prop_map(|(kind, one, two, index, tool)| {
        let delta = match tool {
            true => json!({"toolUse": {"input": one}}),
            false => json!({"text": one, "reasoningContent": {"text": two, "signature": one}}),
        };
        let payload = json!({
            "contentBlockIndex": index, "start": {"toolUse": {"name": "f", "toolUseId": one}},
            "delta": delta, "stopReason": two, "usage": {"outputTokens": one},
        });
        let headers = [(":event-type", kind), (":message-type", "event")];
        frame(&headers, payload.to_string().as_bytes())
    });
    prop_oneof![6 => framed, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn any_chat_is_a_sound_body_or_a_refusal_with_its_member(chat in chat()) {
        for model in [super::CLAUDE, "amazon.nova-2-lite-v1:0", "x"] {
            match try_ask(Wire::Bedrock, model, &chat, &Params::default()) {
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
        let got = filter(Wire::Bedrock, &pieces, true, clean);
        prop_assert!(got.end.is_some());
        if !got.complete() {
            got.seen(true);
        }
        let _ = Wire::Bedrock.whole(pieces.concat().into(), context(true));
    }
}
