//! A chunk told by its bytes says what a parser reads in it: the same events, with a blank in
//! every second one so that no two begin alike, tell the same.

use crate::{ASKED, Told, UNASKED, feed};
use crate::{Ask, STRIPPED};
use bytes::Bytes;
use proptest::prelude::*;

/// Around the text `T`.
const DELTAS: &[&str] = &[
    r#"{"content":"T"}"#,
    r#"{"role":"assistant","content":"T"}"#,
    r#"{"content":"T","role":"assistant"}"#,
    r#"{"reasoning_content":"T"}"#,
    r#"{"content":null,"reasoning_content":"T"}"#,
    r#"{"content":"T","reasoning_content":null}"#,
    r#"{"content":"","reasoning_content":"T"}"#,
    r#"{"reasoning":"T"}"#,
    r#"{"refusal":"T"}"#,
    r#"{"x":{"content":"no"},"content":"T","y":["content","T"]}"#,
    r#"{"tool_calls":[{"index":0,"id":"c0","type":"function","function":{"name":"f","arguments":"T"}}]}"#,
    r#"{"tool_calls":[{"index":1,"id":"c1","type":"function","function":{"name":"g","arguments":""}}]}"#,
    r#"{"tool_calls":[{"index":0,"function":{"arguments":"T"}}]}"#,
    r#"{"tool_calls":[{"index":1,"function":{"arguments":"T"}}]}"#,
    r#"{"tool_calls":[{"index":0,"id":"","function":{"arguments":"T"}}]}"#,
    r#"{"tool_calls":[{"function":{"arguments":"T"}}]}"#,
    r#"{"function_call":{"name":"f","arguments":"T"}}"#,
    r#"{"function_call":{"arguments":"T"}}"#,
    "{}",
];
const ENDS: &[&str] = &["null", "null", "null", "null", "null", r#""stop""#, r#""tool_calls""#];
const RESTS: &[&str] = &[
    "",
    "",
    r#","usage":null"#,
    r#","obfuscation":"P""#,
    r#","usage":null,"obfuscation":"P""#,
    r#","obfuscation":"P","usage":null"#,
    r#","usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}"#,
    r#","x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#,
    r#","z":{"obfuscation":"P","content":"T"}"#,
    r#","error":null"#,
];
/// As they stand in JSON: some of them end the string.
const TEXTS: &[&str] = &[
    "",
    "a",
    " b",
    "\\n",
    "\\\"",
    "\\\\",
    "ü✓",
    "\\ud83d\\ude00",
    "\\ud83d",
    "\\u0000",
    "{\\\"k\\\":1}",
    "\",\"obfuscation\":\"q",
    "\",\"refusal\":\"r",
    "\",\"content\":\"r",
    "\"},\"finish_reason\":\"stop\"},{\"index\":0,\"delta\":{\"content\":\"",
    "\"},\"finish_reason\":null},{\"index\":1,\"delta\":{\"content\":\"",
    "\\\",\\\"obfuscation\\\":\\\"",
    "\\",
    "\u{7f}",
];

type Spoken = (usize, u8, usize, usize, Vec<(usize, usize)>);

/// One shape, said some times with different texts.
fn spoken() -> impl Strategy<Value = Spoken> {
    let texts = prop::collection::vec((0..TEXTS.len(), 0..TEXTS.len()), 1..5);
    let index = prop_oneof![5 => Just(0u8), 1 => Just(1)];
    (0..DELTAS.len(), index, 0..ENDS.len(), 0..RESTS.len(), texts)
}

fn events(all: &[Spoken]) -> Vec<String> {
    let mut events = Vec::new();
    for (delta, index, end, rest, texts) in all {
        for (text, pad) in texts {
            let delta = DELTAS[*delta].replace('T', TEXTS[*text]);
            let rest = RESTS[*rest].replace('P', TEXTS[*pad]).replace('T', TEXTS[*text]);
            events.push(format!(
                "\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
                 \"choices\":[{{\"index\":{index},\"delta\":{delta},\"finish_reason\":{}}}]{rest}}}",
                ENDS[*end]
            ));
        }
    }
    events
}

fn told(events: &[String], blanks: bool, ask: Ask) -> Told {
    let one = |(i, event): (usize, &String)| {
        let blank = if blanks && i % 2 == 1 { " " } else { "" };
        Bytes::from(format!("data: {{{blank}{event}\n\n"))
    };
    let mut pieces: Vec<Bytes> = events.iter().enumerate().map(one).collect();
    pieces.push("data: [DONE]\n\n".into());
    let mut told = feed(&pieces, true, ask);
    told.out = told.text().replace("data: { \"id\"", "data: {\"id\"").into();
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn whatever_is_told_by_its_bytes_is_what_a_parser_reads(
        all in prop::collection::vec(spoken(), 1..6),
        end in any::<bool>(),
        ask in 0..3usize,
    ) {
        let ask = [ASKED, UNASKED, STRIPPED][ask];
        let first = (1, 0, 0, 0, vec![(1, 0)]);
        let mut all = [vec![first], all].concat();
        if end {
            all.push((DELTAS.len() - 1, 0, 5, 0, vec![(0, 0)]));
        }
        let events = events(&all);
        prop_assert_eq!(told(&events, false, ask), told(&events, true, ask), "{:#?}", events);
    }
}
