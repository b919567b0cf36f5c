//! Token counts against the reference tokeniser and on hostile texts; whole bodies in `bodies`.
#![allow(clippy::disallowed_methods)] // tests read fixtures and compare times
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use std::time::{Duration, Instant};
use weir_filters::tokens::{Channel, Counter, Encoding, RUN_BYTES_MAX, count, estimate};
use weir_filters::usage::Source;

mod bodies;

const BOTH: [Encoding; 2] = [Encoding::O200k, Encoding::Cl100k];

/// The reference. It cannot take a million blanks, and without optimisation it is slow.
fn reference(text: &str, encoding: Encoding) -> u64 {
    let tokens = match encoding {
        Encoding::O200k => tiktoken_rs::o200k_base_singleton().encode_ordinary(text),
        Encoding::Cl100k => tiktoken_rs::cl100k_base_singleton().encode_ordinary(text),
    };
    tokens.len() as u64
}

/// Texts of libraries.md's adversarial table, `bytes` long.
fn hostile(bytes: usize) -> Vec<(&'static str, String)> {
    let repeat = |unit: &str| unit.repeat(bytes / unit.len());
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let letters: String = (0..bytes).map(|_| char::from(b'a' + (random() % 26) as u8)).collect();
    let noise: Vec<u8> = (0..bytes * 3 / 4).map(|_| random() as u8).collect();
    vec![
        ("a", repeat("a")),
        ("blanks", repeat(" ")),
        ("blanks and x", format!("{}x", repeat(" "))),
        ("line ends", repeat("\n")),
        ("!", repeat("!")),
        ("digits", repeat("7")),
        ("的", repeat("的")),
        ("random letters", letters),
        ("base64", STANDARD.encode(noise)),
        ("emoji", repeat("👩\u{200d}👩\u{200d}👧")),
    ]
}

/// The least times of a work on a short and on a long text, taken again until they are as they
/// should be, 20 times at most: on a busy machine most of a time is that of other work.
fn least(
    work: impl Fn(&str) -> u64,
    texts: [&str; 2],
    sound: impl Fn(Duration, Duration) -> bool,
) -> (Duration, Duration) {
    let took = |text: &str| {
        let start = Instant::now();
        std::hint::black_box(work(text));
        start.elapsed()
    };
    let (mut short, mut long) = (Duration::MAX, Duration::MAX);
    for _ in 0..20 {
        (short, long) = (short.min(took(texts[0])), long.min(took(texts[1])));
        if sound(short, long) {
            break;
        }
    }
    (short, long)
}

#[test]
fn k04_any_long_run_is_counted_in_linear_time() {
    Encoding::O200k.preload();
    let (small, large) = (hostile(128 << 10), hostile(1 << 20));
    for ((name, small), (_, large)) in small.iter().zip(&large) {
        // eight times the text; quadratic would be 64
        let linear = |short: Duration, long: Duration| {
            long < short * 24 + Duration::from_millis(5) && long < Duration::from_secs(2)
        };
        let (short, long) = least(|text| count(text, Encoding::O200k), [small, large], linear);
        assert!(linear(short, long), "{name}: {short:?}, then {long:?}");
    }
}

#[test]
fn a_cap_costs_at_most_a_token_a_cut() {
    for (name, text) in hostile(48 << 10) {
        for encoding in BOTH {
            let (ours, theirs) = (count(&text, encoding), reference(&text, encoding));
            let cuts = (text.len() / (RUN_BYTES_MAX - 3)) as u64;
            assert!(ours.abs_diff(theirs) <= cuts, "{name} {encoding:?}: {ours}, not {theirs}");
        }
    }
}

/// Pieces of prose, Chinese, code and data, as models write them.
const PIECES: &[&str] = &[
    "The quick brown fox jumps over the lazy dog. ",
    "It's what they'd called \"state-of-the-art\" (in 2024), wasn't it?\n\n",
    "今天天气很好，我们去公园散步吧。",
    "模型的输出：第一，价格；第二，延迟！（见表3）\n",
    "fn main() {\n    let xs: Vec<u32> = (0..10).map(|x| x * 2).collect();\n}\n",
    "{\"name\":\"get_weather\",\"arguments\":{\"city\":\"北京\",\"days\":3}}",
    "- item one\n- item two\n  - nested\n\n| a | b |\n|---|---|\n",
    "https://example.com/a/b?c=d&e=1#f ",
    "def f(self, *args, **kwargs):\n\treturn self._x[1:-1] or None  # why\n",
    "Zürich, déjà vu, Привет мир. ",
    "日本語のテキスト、カタカナ。한국어 문장입니다. ",
    "3.14159 1,000,000 0xDEADBEEF v1.2.3-rc.4\r\n",
    "😀👍🏽 ok ",
];

fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 1..160).prop_map(|parts| parts.concat())
}

/// The text in pieces of `sizes` characters, over and over.
fn deltas<'a>(text: &'a str, sizes: &'a [usize]) -> impl Iterator<Item = &'a str> {
    let (mut rest, mut turn) = (text, 0);
    std::iter::from_fn(move || {
        let size = sizes[turn % sizes.len()];
        turn += 1;
        let at = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
        let (delta, more) = rest.split_at(at);
        rest = more;
        (!delta.is_empty()).then_some(delta)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_stream_counts_as_its_whole_text_at_any_delta_size(
        text in texts(), sizes in prop::collection::vec(1_usize..40, 1..9)
    ) {
        for encoding in BOTH {
            let mut counter = Counter::new(Some(encoding));
            for delta in deltas(&text, &sizes) {
                counter.push(0, Channel::Content, delta);
            }
            let want = reference(&text, encoding);
            prop_assert_eq!(counter.total(), want, "stream, {:?}", encoding);
            prop_assert_eq!(count(&text, encoding), want, "whole, {:?}", encoding);
        }
    }

    #[test]
    fn asking_on_the_way_changes_no_count(
        text in texts(),
        times in 1_usize..40,
        ask in proptest::collection::vec(any::<bool>(), 1..20),
    ) {
        let text = text.repeat(times);
        let mut counter = Counter::new(Some(Encoding::O200k));
        let mut asks = ask.iter().cycle();
        for delta in deltas(&text, &[700, 3, 41]) {
            counter.push(0, Channel::Content, delta);
            if *asks.next().unwrap() {
                counter.total();
            }
        }
        prop_assert_eq!(counter.total(), count(&text, Encoding::O200k));
    }

    #[test]
    fn an_estimate_is_the_published_formula(text in any::<String>()) {
        let ascii = text.chars().filter(char::is_ascii).count() as u64;
        let wide = text.chars().count() as u64 - ascii;
        prop_assert_eq!(estimate(text.as_bytes()), (ascii + 3 * wide).div_ceil(4));
        let mut counter = Counter::new(None);
        deltas(&text, &[3, 1]).for_each(|delta| counter.push(0, Channel::Content, delta));
        prop_assert_eq!(counter.total(), estimate(text.as_bytes()));
    }
}

#[test]
fn texts_of_one_stream_do_not_mix() {
    let words = "state of the art ".repeat(400);
    let mut counter = Counter::new(Some(Encoding::O200k));
    assert!(!counter.any());
    counter.push(0, Channel::Content, "");
    assert!(!counter.any(), "an empty delta is no text");
    for delta in deltas(&words, &[2]) {
        for choice in 0..2 {
            counter.push(choice, Channel::Content, delta);
            counter.push(choice, Channel::Reasoning, delta);
            counter.push(choice, Channel::Tool(7), delta);
        }
    }
    let one = reference(&words, Encoding::O200k);
    assert_eq!((counter.total(), counter.reasoning()), (6 * one, 2 * one));
    assert_eq!((counter.total(), counter.source()), (6 * one, Source::Counted), "asked again");
    counter.push(0, Channel::Refusal, " I'm sorry");
    assert_eq!(counter.total(), 6 * one + reference(" I'm sorry", Encoding::O200k), "on it goes");
}

#[test]
fn ten_thousand_tool_calls_take_no_memory_to_speak_of() {
    let mut counter = Counter::new(Some(Encoding::O200k));
    for tool in 0..10_000 {
        counter.push(0, Channel::Tool(tool), "{\"a\":1} ");
    }
    // 5 tokens each; those that share a tail may join at their seams
    let total = counter.total();
    assert!((40_000..=60_000).contains(&total), "{total}");
    assert!(format!("{counter:?}").len() < 200_000);
}

#[test]
fn without_a_vocabulary_a_stream_is_estimated() {
    let mut counter = Counter::new(None);
    counter.push(0, Channel::Content, "abc");
    counter.push(1, Channel::Reasoning, "你好");
    assert_eq!((counter.total(), counter.reasoning()), (3, 2)); // 0.75 + 1.5, rounded up once
    assert_eq!((counter.any(), counter.source()), (true, Source::Estimated));
}

#[test]
fn a_model_s_vocabulary_is_known_by_its_family() {
    let cases = [
        ("gpt-4o", Some(Encoding::O200k)),
        ("gpt-4o-mini-2024-07-18", Some(Encoding::O200k)),
        ("openai/gpt-4.1-nano", Some(Encoding::O200k)),
        ("openrouter/openai/GPT-5.1", Some(Encoding::O200k)),
        ("ft:gpt-4o:acme::a1b2", Some(Encoding::O200k)),
        ("o3-mini", Some(Encoding::O200k)),
        ("o4-mini", Some(Encoding::O200k)),
        ("o1", Some(Encoding::O200k)),
        ("chatgpt-4o-latest", Some(Encoding::O200k)),
        ("gpt-4", Some(Encoding::Cl100k)),
        ("azure/gpt-4-turbo-2024-04-09", Some(Encoding::Cl100k)),
        ("gpt-35-turbo", Some(Encoding::Cl100k)),
        ("text-embedding-3-small", Some(Encoding::Cl100k)),
        ("gpt-40", None),
        ("o11y-model", None),
        ("claude-sonnet-4-5", None),
        ("deepseek-chat", None),
        ("", None),
    ];
    for (model, encoding) in cases {
        assert_eq!(Encoding::of_model(model), encoding, "{model}");
    }
    for encoding in BOTH {
        assert_eq!(Encoding::by_name(encoding.name()), Some(encoding));
    }
    assert_eq!(Encoding::by_name("p50k_base"), None);
}
