//! A stream that a limit cuts ends as a whole one does, on every wire.

#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use serde_json::Value;
use weir_filters::wire::{End, ReplyContext, Step, WIRES, Wire};

fn context(usage_asked: bool) -> ReplyContext {
    ReplyContext {
        usage_asked,
        strip_usage: !usage_asked,
        id: "chatcmpl-made".into(),
        created: 1_700_000_000,
        model: "m".into(),
        encoding: None,
        prompt_tokens: 7,
    }
}

/// What each wire's provider says first.
fn begun(wire: Wire) -> &'static str {
    match wire {
        Wire::OpenAi | Wire::Azure => {
            "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
             \"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hello\"},\
             \"finish_reason\":null}]}\n\n"
        }
        Wire::Anthropic => {
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"a\",\
             \"model\":\"m\",\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n\
             event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
             \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
             event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n"
        }
        Wire::Gemini | Wire::Vertex => {
            "data: {\"candidates\":[{\"index\":0,\"content\":{\"role\":\"model\",\
             \"parts\":[{\"text\":\"Hello\"}]}}]}\n\n"
        }
        Wire::Qianfan => {
            "data: {\"id\":\"as-1\",\"object\":\"chat.completion\",\"created\":1,\"sentence_id\":0,\
             \"is_end\":false,\"result\":\"Hello\"}\n\n"
        }
        Wire::Cohere => {
            "event: message-start\ndata: {\"id\":\"c\",\"type\":\"message-start\",\"delta\":{\"message\":\
             {\"role\":\"assistant\",\"content\":[]}}}\n\n\
             event: content-start\ndata: {\"type\":\"content-start\",\"index\":0,\"delta\":{\"message\":\
             {\"content\":{\"type\":\"text\",\"text\":\"\"}}}}\n\n\
             event: content-delta\ndata: {\"type\":\"content-delta\",\"index\":0,\"delta\":{\"message\":\
             {\"content\":{\"text\":\"Hello\"}}}}\n\n"
        }
        Wire::DashScope => {
            "id:1\nevent:result\n:HTTP_STATUS/200\ndata:{\"output\":{\"choices\":[{\"message\":\
             {\"content\":\"Hello\",\"role\":\"assistant\"},\"finish_reason\":\"null\"}]},\
             \"request_id\":\"r\"}\n\n"
        }
        // Binary frames: shown in tests/bedrock.
        Wire::Bedrock => "",
        Wire::Ollama => {
            "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"Hello\"},\
             \"done\":false}\n"
        }
    }
}

#[test]
fn a_cut_stream_ends_by_length_with_usage_and_the_marker() {
    for (name, wire) in WIRES.iter().filter(|(_, wire)| *wire != Wire::Bedrock) {
        for usage_asked in [true, false] {
            let mut filter = wire.stream(context(usage_asked));
            let (mut first, mut last) = (Step::default(), Step::default());
            filter.feed(Bytes::from_static(begun(*wire).as_bytes()), &mut first);
            assert!(first.started && first.end.is_none(), "{name}");
            filter.cut(&mut last);
            let Some(End::Complete { tail }) = last.end else { panic!("{name}: {last:?}") };
            let all = [first.out, last.out, vec![tail]].concat().concat();
            let text = String::from_utf8(all).unwrap();
            let (body, done) = text.rsplit_once("data: [DONE]\n\n").unwrap();
            assert_eq!(done, "", "{name}");
            let events = body.split("\n\n").filter_map(|e| e.strip_prefix("data: "));
            let chunks: Vec<Value> = events.map(|e| serde_json::from_str(e).unwrap()).collect();
            let ends = chunks.iter().filter_map(|c| c["choices"][0]["finish_reason"].as_str());
            assert_eq!(ends.collect::<Vec<_>>(), ["length"], "{name}: {text}");
            let said = chunks.iter().any(|c| c["choices"][0]["delta"]["content"] == "Hello");
            assert!(said, "{name}");
            let usage = chunks.iter().rfind(|c| !c["usage"].is_null()).map(|c| &c["usage"]);
            assert_eq!(usage.is_some(), usage_asked, "{name}: {text}");
            assert!(usage.is_none_or(|u| u["completion_tokens"].as_u64() > Some(0)), "{name}");
            // Whatever the provider still says is swallowed.
            let mut after = Step::default();
            filter.feed(Bytes::from_static(begun(*wire).as_bytes()), &mut after);
            assert!(after.out.is_empty() && after.end.is_none(), "{name}");
        }
    }
}
