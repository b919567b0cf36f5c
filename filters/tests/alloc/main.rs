//! What a chunk costs in memory: nothing where it passes, little that stays where it is translated.

#![allow(clippy::unwrap_used, clippy::panic)] // tests

use allocation_counter::{AllocationInfo, measure};
use bytes::Bytes;
use weir_filters::dialect::{Api, Memo};
use weir_filters::tokens::Encoding;
use weir_filters::wire::{Ask, Params, Quirks, Reply, ReplyContext, Step, Wire};

fn context(usage_asked: bool) -> ReplyContext {
    ReplyContext {
        usage_asked,
        strip_usage: !usage_asked,
        id: "chatcmpl-t".into(),
        created: 1_700_000_000,
        model: "up-model".into(),
        encoding: None,
        prompt_tokens: 7,
    }
}

/// The reply's filter, where the provider speaks the caller's protocol.
fn native(api: Api, wire: Wire) -> Box<dyn Reply> {
    let prompt = if api == Api::Responses { "input" } else { "messages" };
    let body = format!(r#"{{"{prompt}":[{{"role":"user","content":"hi"}}]}}"#);
    let peek = api.read(body.into()).unwrap();
    let quirks = Quirks { responses: true, ..Quirks::default() };
    let ask = Ask {
        peek: &peek,
        model: "up-model",
        quirks: &quirks,
        params: &Params::default(),
        max_output: 0,
        base_url: "https://provider.invalid/v1",
        api_version: None,
    };
    let (_, memo) = api.request(wire, &ask).unwrap();
    api.stream(wire, memo, context(true))
}

/// Some 200 bytes, the size of a word's chunk on the network.
fn chunk(word: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
         \"model\":\"gpt-4o-2024-08-06\",\"choices\":[{{\"index\":0,\"delta\":{word},\
         \"finish_reason\":null}}]}}\n\n"
    )
}

fn delta(text: &str) -> String {
    format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
    )
}

const START: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",",
    "\"type\":\"message\",\"role\":\"assistant\",\"model\":\"c\",\"content\":[],",
    "\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":1,",
    "\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,",
    "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
);

/// What `count` chunks allocate, once the filter has seen its first ones.
fn cost(reply: &mut dyn Reply, first: &[Bytes], piece: &Bytes, count: usize) -> AllocationInfo {
    let mut step = Step { out: Vec::with_capacity(64), ..Step::default() };
    for piece in first.iter().chain([piece; 8]) {
        reply.feed(piece.clone(), &mut step);
        step.out.clear();
    }
    let pieces = vec![piece.clone(); count];
    measure(|| {
        for piece in pieces {
            reply.feed(piece, &mut step);
            assert!(!step.out.is_empty() && step.end.is_none());
            step.out.clear();
        }
    })
}

#[test]
fn a_chunk_that_passes_allocates_nothing() {
    let role = Bytes::from(chunk(r#"{"role":"assistant","content":""}"#));
    let word = Bytes::from(chunk(r#"{"content":" word"}"#));
    let many = Bytes::from(chunk(r#"{"content":" word"}"#).repeat(40));
    for piece in [&word, &many] {
        for asked in [true, false] {
            let mut reply = Api::Chat.stream(Wire::OpenAi, Memo::default(), context(asked));
            let cost = cost(&mut *reply, std::slice::from_ref(&role), piece, 1000);
            assert_eq!(cost.count_total, 0, "chat, {} B: {cost:?}", piece.len());
        }
    }
    let mut reply = native(Api::Messages, Wire::Anthropic);
    let cost = cost(&mut *reply, &[START.into()], &delta(" word").into(), 1000);
    assert_eq!(cost.count_total, 0, "messages: {cost:?}");
}

#[test]
fn text_that_is_kept_for_counting_grows_by_doubling() {
    let role = Bytes::from(chunk(r#"{"role":"assistant","content":""}"#));
    let word = Bytes::from(chunk(r#"{"content":" word"}"#));
    let context = ReplyContext { encoding: Some(Encoding::O200k), ..context(true) };
    let mut reply = Api::Chat.stream(Wire::OpenAi, Memo::default(), context);
    let cost = cost(&mut *reply, std::slice::from_ref(&role), &word, 20_000);
    // 100 KB out of 64 bytes.
    assert!(cost.count_total <= 12, "{cost:?}");
    assert!(cost.bytes_current <= 128 << 10, "{cost:?}");
}

#[test]
fn a_translated_chunk_leaves_nothing_behind() {
    let role = Bytes::from(chunk(r#"{"role":"assistant","content":""}"#));
    let word = Bytes::from(chunk(r#"{"content":" word"}"#));
    let delta = Bytes::from(delta(" word"));
    let chat = ([role.clone()], word);
    let messages = ([Bytes::from_static(START.as_bytes())], delta);
    for (api, wire, (first, piece)) in
        [(Api::Messages, Wire::OpenAi, &chat), (Api::Chat, Wire::Anthropic, &messages)]
    {
        let mut reply = api.stream(wire, Memo::default(), context(true));
        let cost = cost(&mut *reply, first, piece, 1000);
        assert!(cost.count_total > 0, "nothing is counted");
        assert!(cost.bytes_current < 4096, "{api:?} over {wire:?}: {cost:?}");
        assert!(cost.count_total <= 12 * 1000, "{api:?} over {wire:?}: {cost:?}");
    }
}
