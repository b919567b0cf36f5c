//! Bodies keep every byte that no edit names, and no input makes the reader panic.
#![allow(clippy::disallowed_methods)] // tests read fixtures
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // tests

mod recorded;

use bytes::Bytes;
use proptest::prelude::*;
use weir_filters::peek::{self, BadBody, Edits, OWN, Peek, Segments};

/// What a provider may not see changed: numbers beyond f64, odd digits, escapes, order.
const ODD: &str = concat!(
    " \r\n{\t\"zeta\" : 1.0 ,\"big\":1e400,\"digits\":12345678901234567890,",
    "\"-\":-0.0,\"e\":1E+2,\n  \"mod\\u0065l\" : \"a\" , \"nested\":{\"model\":\"inner\",",
    "\"stream\":\"x\",\"Model\":2}, \"once\":1,\"onc\\u0065s\":2,\"ones\":[ ],",
    "\"messages\":[{\"role\":\"user\",\"content\":\"\\ud83d\\ude00 \\u0041 / \\/ é\"}],",
    "\"lone\":\"\\ud800\",\"alpha\":null}\n\n",
);

fn read(text: &str) -> Peek {
    peek::chat(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn text(segments: &Segments) -> String {
    let whole = segments.concat();
    assert_eq!(segments.len(), whole.len());
    String::from_utf8(whole.to_vec()).unwrap()
}

#[test]
fn a_body_without_edits_is_one_slice_of_itself() {
    let peek = read(ODD);
    let out = Edits::default().apply(&peek);
    assert_eq!(out.0.len(), 1);
    assert_eq!(out.0[0].as_ptr(), peek.body.as_ptr());
    assert_eq!(text(&out), ODD);
}

#[test]
fn only_the_named_spans_change() {
    let peek = read(ODD);
    assert_eq!(peek.model.as_deref(), Some("a"));
    let mut edits = Edits::default();
    edits.set("model", "\"gpt-4o-2024\"");
    edits.set("stream_options", "{\"include_usage\":true}");
    let out = edits.apply(&peek);
    let expected = ODD
        .replace("\"mod\\u0065l\" : \"a\"", "\"mod\\u0065l\" : \"gpt-4o-2024\"")
        .replace("\"alpha\":null", "\"alpha\":null,\"stream_options\":{\"include_usage\":true}");
    assert_eq!(text(&out), expected);
    let ours = out.0.iter().filter(|b| !inside(&peek.body, b));
    assert_eq!(ours.map(Bytes::len).sum::<usize>(), expected.len() - ODD.len() + 3);
    assert_eq!(out.0.len(), 5, "original, model, original, insert, original");
}

/// A slice of the body itself, not a copy.
fn inside(body: &Bytes, piece: &Bytes) -> bool {
    body.as_ptr_range().contains(&piece.as_ptr())
}

#[test]
fn a_member_leaves_with_its_comma_wherever_it_stands() {
    let body = r#"{ "messages" : [1] , "b":2,"c" :3 }"#;
    for (names, expected) in [
        (&["messages"][..], r#"{ "b":2,"c" :3 }"#),
        (&["b"], r#"{ "messages" : [1],"c" :3 }"#),
        (&["c"], r#"{ "messages" : [1] , "b":2 }"#),
        (&["messages", "b"], r#"{ "c" :3 }"#),
        (&["messages", "c"], r#"{ "b":2 }"#),
        (&["b", "c"], r#"{ "messages" : [1] }"#),
        (&["messages", "b", "c"], "{  }"),
        (&["absent"], body),
    ] {
        let mut edits = Edits::default();
        names.iter().for_each(|name| edits.remove(name));
        assert_eq!(text(&edits.apply(&read(body))), expected, "{names:?}");
    }
}

#[test]
fn an_insert_into_nothing_has_no_comma() {
    let mut edits = Edits::default();
    edits.remove("messages");
    edits.set("a\"\n", "1");
    edits.set("b", "2");
    assert_eq!(text(&edits.apply(&read(r#"{"messages":[1]}"#))), r#"{"a\"\n":1,"b":2}"#);
    let mut edits = Edits::default();
    edits.set("a", "1");
    assert_eq!(text(&edits.apply(&Peek::default())), r#"{"a":1}"#);
}

#[test]
fn a_large_insert_is_not_copied() {
    let value = Bytes::from(format!("\"{}\"", "x".repeat(100_000)));
    let mut edits = Edits::default();
    edits.set("messages", value.clone());
    let out = edits.apply(&read(r#"{"messages":[1],"b":2}"#));
    assert!(out.0.iter().any(|piece| piece.as_ptr() == value.as_ptr()));
    assert_eq!(out.len(), value.len() + r#"{"messages":,"b":2}"#.len());
}

#[test]
fn our_own_members_never_leave() {
    let body =
        r#"{"task_type":"x","messages":[1],"budget_tier":"low","extra_body":{"a":{"model":1}}}"#;
    let peek = read(body);
    assert_eq!(peek.task_type.as_deref(), Some("x"));
    assert_eq!(peek.budget_tier.as_deref(), Some("low"));
    assert_eq!(text(&Edits::default().apply(&peek)), r#"{"messages":[1],"a":{"model":1}}"#);
    let body = r#"{"messages":[1],"extra_body":{"task_type":"y","max_tokens":7},"max_tokens":9}"#;
    let peek = read(body);
    assert_eq!((peek.task_type.as_deref(), peek.max_tokens), (Some("y"), Some(7)));
    assert_eq!(text(&Edits::default().apply(&peek)), r#"{"messages":[1],"max_tokens":7}"#);
}

/// Any bytes may be given; whatever is accepted must be sound JSON in its own words.
fn fuzz_peek(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let peek = match peek::chat(body) {
        Ok(peek) => peek,
        Err(BadBody::Json(message)) => {
            return assert!(message.len() < 120 && message.is_ascii(), "{message}");
        }
        Err(BadBody::Member { param, message }) => {
            // A name may be empty, and stand twice.
            return assert!(message.contains(&format!("`{param}`")) || !param.is_empty());
        }
    };
    let known = serde_json::from_slice::<serde::de::IgnoredAny>(data);
    assert!(known.is_ok(), "accepted what is no JSON");
    assert!((1..=128).contains(&peek.n));
    assert!(peek.max_tokens != Some(0) && peek.model.as_deref() != Some(""));
    for member in &peek.members {
        serde_json::from_slice::<serde::de::IgnoredAny>(peek.value(member)).unwrap();
        let key = serde_json::from_slice::<String>(&peek.body[member.key.clone()]);
        assert_eq!(key.unwrap(), peek.name(member));
    }
    let mut edits = Edits::default();
    edits.set("model", "\"m\"");
    edits.rename("n", "x");
    edits.remove("user");
    if let Some(options) = peek::with_include_usage(&peek) {
        edits.set("stream_options", options);
    }
    let out = edits.apply(&peek).concat();
    let again = peek::chat(out).unwrap();
    assert_eq!(again.model.as_deref(), Some("m"));
    assert!(!peek.stream || again.include_usage);
    assert!(OWN.iter().chain(&["n", "user"]).all(|name| again.find(name).is_none()));
}

/// One member as written: key, white space, value.
type Written = (String, &'static str, String);

/// Names that weir does not read, as they may be written.
fn unread() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "\"[a-e]{0,2}\"",
        1 => Just("\"\\u0061\"".to_string()),
        1 => Just("\"é\\n\\\"\"".to_string()),
    ]
}

/// Names that weir reads.
fn known() -> impl Strategy<Value = String> {
    let names = [
        "model",
        "stream",
        "stream_options",
        "max_tokens",
        "n",
        "user",
        "extra_body",
        "task_type",
        "max_completion_tokens",
        "mod\\u0065l",
    ];
    proptest::sample::select(names.to_vec()).prop_map(|name| format!("\"{name}\""))
}

fn value() -> impl Strategy<Value = String> {
    proptest::sample::select(
        &[
            "1.0",
            "7",
            "1e400",
            "12345678901234567890",
            "0",
            "-1",
            "3.5",
            "null",
            "true",
            "\"\"",
            "\"a,b}\\\"]\"",
            "\"\\ud800\"",
            "[ ]",
            "[1,{\"a\":[]}]",
            "{}",
            "{\"model\":1}",
            "{\"include_usage\":false,\"x\":1}",
            "{\"include_usage\":true}",
            "{\"a\":1}",
            "\"x\"",
        ][..],
    )
    .prop_map(String::from)
}

fn gap() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&["", "", "", " ", "\n\t", "  \r\n"][..])
}

fn members(key: impl Strategy<Value = String>, max: usize) -> impl Strategy<Value = Vec<Written>> {
    proptest::collection::vec((key, gap(), value()), 0..max)
}

/// Each name once, as every body must have them.
fn once(given: Vec<Written>) -> Vec<Written> {
    let mut seen = std::collections::HashSet::new();
    let name = |key: &str| serde_json::from_str::<String>(key).unwrap();
    given.into_iter().filter(|(key, ..)| seen.insert(name(key))).collect()
}

/// Puts messages, which `chat` needs, among the members.
fn with_messages(mut given: Vec<Written>, at: usize) -> Vec<Written> {
    let messages = ("\"messages\"".to_string(), " ", "[ 1e400 ]".to_string());
    given.insert(at.min(given.len()), messages);
    given
}

fn body(members: &[Written]) -> String {
    body_without(members, &[])
}

/// The body without the members of these places, as it should read: what stood between two members
/// goes with the second one.
fn body_without(members: &[Written], gone: &[usize]) -> String {
    let (mut text, mut any) = (String::from("\n{ "), false);
    let tail = |i: usize| members.get(i).map_or("", |m| m.1);
    text += tail(0);
    for (i, (key, gap, value)) in members.iter().enumerate().filter(|(i, _)| !gone.contains(i)) {
        if any {
            text += &format!("{},{gap}", tail(i - 1));
        }
        text += &format!("{key}{gap}:{gap}{value}");
        any = true;
    }
    text + tail(members.len().wrapping_sub(1)) + "} "
}

#[derive(Debug, Clone)]
enum Edit {
    Set(String, String),
    Remove(String),
    Rename(String, String),
}

fn edit() -> impl Strategy<Value = Edit> {
    let name = || "(a|b|c|d|ab|ac|new|\u{e9}\n\"|messages)";
    prop_oneof![
        (name(), value()).prop_map(|(n, v)| Edit::Set(n, v)),
        name().prop_map(Edit::Remove),
        (name(), name()).prop_map(|(a, b)| Edit::Rename(a, b)),
    ]
}

/// The same edits on a plain list of names and raw values: what `Edits` promises, in other words.
fn reference(list: &mut Vec<(String, String)>, edit: &Edit) {
    match edit {
        Edit::Set(name, value) => {
            let first = list.iter().position(|(n, _)| n == name);
            let mut at = 0;
            list.retain(|(n, _)| {
                at += 1;
                n != name || Some(at - 1) == first
            });
            match first {
                Some(i) => list[i].1.clone_from(value),
                None => list.push((name.clone(), value.clone())),
            }
        }
        Edit::Remove(name) => list.retain(|(n, _)| n != name),
        Edit::Rename(from, to) if from == to => {}
        Edit::Rename(from, to) if list.iter().any(|(n, _)| n == to) => {
            list.retain(|(n, _)| n != from);
        }
        Edit::Rename(from, to) => {
            list.iter_mut().filter(|(n, _)| n == from).for_each(|m| m.0.clone_from(to));
        }
    }
}

/// Names and raw values of a body, read back.
fn listed(peek: &Peek) -> Vec<(String, String)> {
    let value = |m| String::from_utf8(peek.value(m).to_vec()).unwrap();
    peek.members.iter().map(|m| (peek.name(m).to_string(), value(m))).collect()
}

/// Where, which byte and how a body is spoilt.
fn hit() -> impl Strategy<Value = (prop::sample::Index, u8, u8)> {
    (any::<prop::sample::Index>(), any::<u8>(), 0..3u8)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn edits_equal_the_same_edits_on_a_list(
        given in members(unread(), 8),
        at in 0usize..8,
        edits in proptest::collection::vec(edit(), 0..6),
    ) {
        let peek = read(&body(&with_messages(once(given), at)));
        let mut list = listed(&peek);
        let mut ours = Edits::default();
        // `chat` needs messages to read the result, and an edit may have taken them.
        let back = [
            Edit::Rename("messages".into(), "was".into()),
            Edit::Set("messages".into(), "[0]".into()),
        ];
        for edit in edits.into_iter().chain(back) {
            reference(&mut list, &edit);
            match edit {
                Edit::Set(name, value) => ours.set(&name, value),
                Edit::Remove(name) => ours.remove(&name),
                Edit::Rename(from, to) => ours.rename(&from, &to),
            }
        }
        prop_assert_eq!(listed(&peek::chat(ours.apply(&peek).concat()).unwrap()), list);
    }

    #[test]
    fn untouched_members_keep_their_bytes(
        given in members(unread(), 8),
        at in 0usize..8,
        gone in any::<u8>(),
    ) {
        // Names of their own, so that each place can be removed alone.
        let name = |(i, (_, gap, value))| (format!("\"k\\u003{i}\""), gap, value);
        let given: Vec<Written> = given.into_iter().enumerate().map(name).collect();
        let given = with_messages(given, at);
        let gone: Vec<usize> = (0..given.len()).filter(|i| gone >> i & 1 == 1).collect();
        let peek = read(&body(&given));
        let mut edits = Edits::default();
        for i in &gone {
            edits.remove(peek.name(&peek.members[*i]));
        }
        let out = edits.apply(&peek);
        prop_assert!(out.0.iter().all(|piece| !piece.is_empty() && inside(&peek.body, piece)));
        prop_assert_eq!(text(&out), body_without(&given, &gone));
    }

    #[test]
    fn no_bytes_at_all_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz_peek(&data);
    }

    #[test]
    fn no_member_makes_it_panic(given in members(prop_oneof![unread(), known()], 6)) {
        fuzz_peek(body(&with_messages(given, 2)).as_bytes());
    }

    #[test]
    fn no_mutation_of_a_sound_body_makes_it_panic(
        given in members(prop_oneof![unread(), known()], 3),
        hits in proptest::collection::vec(hit(), 1..4),
    ) {
        let mut data = body(&with_messages(given, 1)).into_bytes();
        for (at, byte, kind) in hits {
            let at = at.index(data.len());
            match kind {
                0 => data[at] = byte,
                1 => data.insert(at, b"{}[],:\"\\ \0\xff0e-"[byte as usize % 14]),
                _ => data.truncate(at.max(1)),
            }
        }
        fuzz_peek(&data);
    }
}
