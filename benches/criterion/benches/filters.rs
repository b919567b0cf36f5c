//! What the filters cost: reading a body, a stream passed through, translated, counted.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark stops at the first surprise")]

use bytes::Bytes;
use criterion::{BatchSize, Bencher, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use weir_benches::{anthropic_stream, chat_body, openai_stream};
use weir_filters::dialect::{Api, Memo};
use weir_filters::tokens::{self, Channel, Counter, Encoding};
use weir_filters::wire::{Ask, End, Params, Quirks, ReplyContext, Step, WIRES, Wire};
use weir_filters::{peek, sse};

/// Words of a stream: as many as a short answer has.
const WORDS: usize = 100;

/// A large prompt, of an agent or a document.
const LARGE: usize = 210_000;

/// What one read of a socket brings when the provider is fast.
const READ: usize = 8 << 10;

fn bodies(c: &mut Criterion) {
    let mut group = c.benchmark_group("peek");
    for size in [200, LARGE] {
        let body = Bytes::from(chat_body(size));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(format!("chat, {size} B"), |b| {
            b.iter(|| peek::chat(black_box(body.clone())).unwrap());
        });
    }
    group.finish();
}

fn context(asked: bool) -> ReplyContext {
    ReplyContext {
        usage_asked: asked,
        strip_usage: !asked,
        id: "chatcmpl-bench".into(),
        created: 1_700_000_000,
        model: "m".into(),
        encoding: Some(Encoding::O200k),
        prompt_tokens: 12,
    }
}

/// Every wire's filter, as bytes a second; an element of the next group is one of these events.
fn wires(c: &mut Criterion) {
    let mut group = c.benchmark_group("a wire's stream to chat");
    Encoding::O200k.preload();
    for (name, wire) in WIRES {
        let Some(stream) = weir_benches::wire_stream(name, WORDS) else { continue };
        group.throughput(Throughput::Bytes(stream.len() as u64));
        let pieces = pieces(stream);
        group.bench_function(*name, |b| run(b, Api::Chat, *wire, &pieces, true));
    }
    group.finish();
}

/// What passes as it came: in large chunks, and in those of 200 bytes that a provider sends. Where
/// the provider tells no usage, which is rare, the time is that of counting tokens.
fn passing(c: &mut Criterion) {
    let mut group = c.benchmark_group("passing");
    Encoding::O200k.preload();
    let (large, small) = (("64 KB", 64 << 10, 7), ("200 B", 50, 100));
    for ((size, text, events), told) in [(large, true), (large, false), (small, true)] {
        let stream = weir_benches::openai_events(text, events, told);
        group.throughput(Throughput::Bytes(stream.len() as u64));
        let pieces = stream.split_inclusive(|byte| *byte == b'\n');
        let pieces: Vec<_> = pieces.map(Bytes::copy_from_slice).collect();
        let pieces: Vec<_> = pieces.chunks(2).map(|two| Bytes::from(two.concat())).collect();
        let name = format!("events of {size}{}", if told { "" } else { ", usage not told" });
        group.bench_function(name, |b| run(b, Api::Chat, Wire::OpenAi, &pieces, true));
    }
    group.finish();
}

fn run(b: &mut Bencher<'_>, api: Api, wire: Wire, pieces: &[Bytes], asked: bool) {
    let memo = memo(api, wire);
    b.iter_batched(
        || api.stream(wire, memo.clone(), context(asked)),
        |mut reply| {
            let (mut step, mut complete) = (Step::default(), false);
            for piece in pieces {
                reply.feed(piece.clone(), &mut step);
                complete |= matches!(step.end.take(), Some(End::Complete { .. }));
                step.out.clear();
            }
            reply.finish(true, &mut step);
            assert!(complete || matches!(step.end, Some(End::Complete { .. })));
            reply.tap().usage
        },
        BatchSize::SmallInput,
    );
}

fn streams(c: &mut Criterion) {
    let mut group = c.benchmark_group("stream of 100 words");
    group.throughput(Throughput::Elements(WORDS as u64));
    Encoding::O200k.preload();
    let openai = pieces(openai_stream(WORDS));
    let anthropic = pieces(anthropic_stream(WORDS));
    group.bench_function("events only", |b| {
        b.iter(|| {
            let mut decoder = sse::Decoder::new();
            let mut events = 0;
            for piece in &openai {
                decoder.push(piece.clone());
                while decoder.next_event().unwrap().is_some() {
                    events += 1;
                }
            }
            events
        });
    });
    let cases = [
        ("openai, passed", Api::Chat, Wire::OpenAi, &openai, true),
        ("openai, usage stripped", Api::Chat, Wire::OpenAi, &openai, false),
        ("anthropic, translated", Api::Chat, Wire::Anthropic, &anthropic, true),
        ("messages, passed", Api::Messages, Wire::Anthropic, &anthropic, true),
        ("messages over openai", Api::Messages, Wire::OpenAi, &openai, true),
        ("responses over openai", Api::Responses, Wire::OpenAi, &openai, true),
        ("responses over anthropic", Api::Responses, Wire::Anthropic, &anthropic, true),
    ];
    for (name, api, wire, pieces, asked) in cases {
        group.bench_function(name, |b| run(b, api, wire, pieces, asked));
    }
    group.finish();
}

fn counting(c: &mut Criterion) {
    let mut group = c.benchmark_group("tokens");
    let text = "The quick brown fox jumps over the lazy dogs. ".repeat(2222);
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("count, 100 KB of English", |b| {
        b.iter(|| tokens::count(black_box(&text), Encoding::O200k));
    });
    group.bench_function("estimate, 100 KB of English", |b| {
        b.iter(|| tokens::estimate(black_box(text.as_bytes())));
    });
    let words = ["The", " quick", " brown", " fox", " jumps", " over", " the", " lazy"];
    group.throughput(Throughput::Elements(WORDS as u64));
    group.bench_function("100 deltas of a stream", |b| {
        b.iter(|| {
            let mut counter = Counter::new(Some(Encoding::O200k));
            for word in words.iter().cycle().take(WORDS) {
                counter.push(0, Channel::Content, black_box(word));
            }
            counter.total()
        });
    });
    group.finish();
}

/// What a reply must know of a request that says hello.
fn memo(api: Api, wire: Wire) -> Memo {
    let prompt = if api == Api::Responses { "input" } else { "messages" };
    let body = format!(r#"{{"{prompt}":[{{"role":"user","content":"hi"}}]}}"#);
    let peek = api.read(body.into()).unwrap();
    let ask = Ask {
        peek: &peek,
        model: "m",
        quirks: &Quirks::default(),
        params: &Params::default(),
        max_output: 0,
        base_url: "",
        api_version: None,
    };
    api.request(wire, &ask).unwrap().1
}

fn pieces(stream: Vec<u8>) -> Vec<Bytes> {
    stream.chunks(READ).map(Bytes::copy_from_slice).collect()
}

criterion_group!(benches, bodies, wires, passing, streams, counting);
criterion_main!(benches);
