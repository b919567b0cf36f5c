//! Streams put together at random out of everything that deviates: the strict rules hold for what
//! leaves, at every cut, and a reply gathered from it is sound.

use super::replay::{self, chat};
use super::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const DELTAS: &[&str] = &[
    "null",
    "{}",
    "[]",
    r#"{"role":"assistant"}"#,
    r#"{"role":"assistant","content":""}"#,
    r#"{"role":null,"content":"a"}"#,
    r#"{"content":"é世\n"}"#,
    r#"{"content":null,"reasoning":"r"}"#,
    r#"{"content":"","reasoning_content":"r","reasoning":"r"}"#,
    r#"{"content":[{"type":"text","text":"p"},{"type":"thinking","thinking":"t"}]}"#,
    r#"{"content":[]}"#,
    r#"{"content":5,"refusal":"no"}"#,
    r#"{"tool_calls":null}"#,
    r#"{"tool_calls":{}}"#,
    concat!(
        r#"{"tool_calls":[{"index":0,"id":"a","type":"function","#,
        r#""function":{"name":"f","arguments":""}}]}"#
    ),
    r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}"#,
    concat!(
        r#"{"tool_calls":[{"index":1,"id":"a","type":"function","#,
        r#""function":{"name":"f","arguments":"{}"}}]}"#
    ),
    r#"{"tool_calls":[{"index":7,"function":{"name":"h"}}]}"#,
    concat!(
        r#"{"tool_calls":[{"id":"c","function":{"name":"i","arguments":{"x":1}}},"#,
        r#"{"function":{"name":"j"}}]}"#
    ),
    r#"{"tool_calls":[{"index":0,"function":{"arguments":" "}}]}"#,
    r#"{"tool_calls":[{"function":{"arguments":null}}]}"#,
];

const WORDS: &[&str] = &[
    "null",
    "null",
    "null",
    "null",
    r#""stop""#,
    r#""tool_calls""#,
    r#""eos""#,
    r#""length""#,
    "\"\"",
];

const HEADS: &[&str] = &[
    r#""id":"c","object":"chat.completion.chunk","created":1,"model":"m""#,
    r#""id":"c","object":"chat.completion.chunk","created":1,"model":"m""#,
    r#""id":"d","object":"chat.completion.chunk","created":"2","model":"n""#,
    r#""id":"","object":"","created":0,"model":"""#,
    r#""x":1.50"#,
];

const USAGES: &[&str] = &[
    "",
    "",
    r#","usage":null"#,
    r#","usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}"#,
    r#","usage":{"prompt_tokens":5,"prompt_cache_hit_tokens":2}"#,
    r#","usage":{}"#,
    r#","x_groq":{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
];

const OTHERS: &[&str] = &[
    ": ping\n\n",
    "event: ping\ndata: {}\n\n",
    "retry: 5\n\n",
    "data: null\n\n",
    "\n\n",
    "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
    "data: {\"choices\":null,\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n",
];

const ENDS: &[&str] = &[
    "",
    DONE,
    "data: {not json}\n\n",
    "data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n",
    concat!(
        r#"data: {"choices":[{"index":0,"delta":{"content":"ho"},"finish_reason":"error"}]}"#,
        "\n\n"
    ),
    "data: {\"id\":",
];

fn event() -> impl Strategy<Value = String> {
    let chunk = (select(HEADS), 0..2, select(DELTAS), select(WORDS), select(USAGES), any::<bool>());
    let chunk = chunk.prop_map(|(head, index, delta, word, usage, keyed)| {
        let word = Some(word).filter(|word| keyed || *word != "null");
        let word = word.map(|word| format!(",\"finish_reason\":{word}")).unwrap_or_default();
        let choice = format!("{{\"index\":{index},\"delta\":{delta}{word}}}");
        format!("data: {{{head},\"choices\":[{choice}]{usage}}}\n\n")
    });
    prop_oneof![6 => chunk, 1 => select(OTHERS).prop_map(str::to_owned)]
}

fn body() -> impl Strategy<Value = Bytes> {
    let events = prop::collection::vec(event(), 0..12);
    let end = select(&["\n", "\n", "\r\n", "\r"][..]);
    (events, select(ENDS), end).prop_map(|(events, last, end)| {
        // Choices must be numbered from 0.
        let first = chunk(r#"{"content":"x"}"#, "null");
        Bytes::from((first + &events.concat() + last).replace('\n', end))
    })
}

/// Cut arguments are the provider's fault: the rules about them are for calls it made whole.
fn faults(seen: &chat::Seen) -> Vec<&String> {
    seen.faults.iter().filter(|fault| !fault.starts_with("arguments ")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn what_leaves_is_strict_and_the_same_at_every_cut_s18(
        body in body(),
        cuts in prop::collection::vec(any::<Index>(), 0..5),
        ask in select(&[ASKED, UNASKED, STRIPPED][..]),
        clean in any::<bool>(),
    ) {
        let told = feed(std::slice::from_ref(&body), clean, ask);
        let seen = chat::stream(&told.out, ask.asked, told.failure.is_none());
        prop_assert_eq!(faults(&seen), Vec::<&String>::new(), "{}", told.text());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
        cuts.sort_unstable();
        cuts.dedup();
        for cut in [cuts, (1..body.len()).collect()] {
            prop_assert_eq!(&feed(&replay::pieces(&body, &cut), clean, ask), &told);
        }
        match whole(&body) {
            Ok(reply) => {
                prop_assert!(told.failure.is_none());
                let reply = chat::json(&reply.body);
                prop_assert_eq!(faults(&reply), Vec::<&String>::new());
                let texts = |seen: &chat::Seen| {
                    seen.choices.values().map(|c| c.text.clone()).collect::<Vec<_>>()
                };
                prop_assert_eq!(texts(&reply), texts(&seen));
            }
            Err(failure) => prop_assert!(!clean || told.failure == Some(failure)),
        }
    }
}
