//! Replies by rule.

use super::replay::drive::{Filtered, context, filter};
use bytes::Bytes;
use weir_filters::error::Class;
use weir_filters::wire::{Step, Wire};

const TEXT: &str = r#"{"model":"m","message":{"role":"assistant","content":"hi"},"done":false}"#;
const DONE: &str = r#"{"model":"m","message":{"content":""},"done":true,"done_reason":"stop",
    "prompt_eval_count":3,"eval_count":4}"#;

fn stream(lines: &[&str]) -> Filtered {
    filter(Wire::Ollama, &[Bytes::from(lines.join("\n"))], true, true)
}

#[test]
fn calls_are_numbered_in_their_order_and_end_as_tool_calls() {
    let calls = r#"{"message":{"content":"","tool_calls":[
        {"function":{"index":0,"name":"f","arguments":{"x": 1.0}}},
        {"id":"own","function":{"index":0,"name":"g","arguments":{}}},
        {"function":{"name":"","arguments":{}}}]},"done":false}"#;
    let more = r#"{"message":{"tool_calls":[{"function":{"name":"h"}}]},"done":false}"#;
    let got = stream(&[calls, more, DONE]);
    let tools = got.seen(true).choices[&0].tools.clone();
    assert_eq!(got.finish, Some("tool_calls"));
    assert_eq!((tools[0].id.as_str(), tools[0].arguments.as_str()), ("call_t_0", "{\"x\":1.0}"));
    assert_eq!((tools[1].id.as_str(), tools[1].arguments.as_str()), ("own", "{}"));
    assert_eq!((tools[2].name.as_str(), tools[2].arguments.as_str()), ("h", "{}"));
}

#[test]
fn thinking_is_reasoning() {
    let think = r#"{"message":{"content":"","thinking":"h\u00e9"},"done":false}"#;
    let got = stream(&[think, TEXT, DONE]);
    let choice = got.seen(true).choices[&0].clone();
    assert_eq!((choice.reasoning.as_str(), choice.text.as_str()), ("hé", "hi"));
    assert_eq!(got.model.as_deref(), Some("m"));
}

#[test]
fn an_error_line_is_a_failure_at_any_place() {
    let error = r#"{"error":"model is overloaded"}"#;
    assert_eq!(stream(&[error]).failure().class, Class::Overloaded);
    let later = stream(&[TEXT, error, DONE]);
    assert!(later.started && !later.complete());
    assert_eq!(later.seen(true).choices[&0].text, "hi");
}

#[test]
fn a_prompt_that_was_cached_keeps_our_own_count() {
    let done = r#"{"message":{"content":"x"},"done":true,"eval_count":4}"#;
    let usage = stream(&[done]).usage.unwrap();
    assert_eq!((usage.input, usage.output), (7, 4));
    assert_eq!(stream(&[r#"{"message":{"content":"x"},"done":true}"#]).usage, None);
}

#[test]
fn loading_a_model_is_no_answer() {
    let load = r#"{"message":{"content":""},"done":true,"done_reason":"load"}"#;
    assert_eq!(stream(&[load]).failure().class, Class::Invalid);
    for body in ["", "{}", "<html>", "nothing", "{\"done\":false}", "[1]"] {
        assert_eq!(stream(&[body]).failure().class, Class::Invalid, "{body}");
        assert!(Wire::Ollama.whole(Bytes::from(body), context(false)).is_err(), "{body}");
    }
}

#[test]
fn a_line_that_is_cut_is_no_answer() {
    let got = stream(&[TEXT, &DONE[..40]]);
    assert_eq!(got.failure().code.as_deref(), Some("truncated"));
}

#[test]
fn nothing_follows_the_last_line() {
    let mut reply = Wire::Ollama.stream(context(false));
    let mut step = Step::default();
    reply.feed(Bytes::from([TEXT, DONE].join("\n")), &mut step);
    assert!(step.end.is_some() && step.started);
    let mut step = Step::default();
    reply.feed(Bytes::from(TEXT), &mut step);
    reply.finish(false, &mut step);
    assert!(step.out.is_empty() && step.end.is_none() && step.started);
}
