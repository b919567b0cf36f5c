//! Replies by rule.

use super::replay::drive::{context, filter};
use super::{frame, frames, stream};
use bytes::Bytes;
use weir_filters::error::Class;
use weir_filters::wire::{Step, Wire};

const START: (&str, &str) = ("messageStart", r#"{"role":"assistant","p":"ab"}"#);
const TEXT: (&str, &str) =
    ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"h\u00e9"},"p":"a"}"#);
const STOP: (&str, &str) = ("messageStop", r#"{"stopReason":"end_turn"}"#);
const USAGE: (&str, &str) = (
    "metadata",
    r#"{"usage":{"inputTokens":3,"outputTokens":4,"totalTokens":107,"cacheReadInputTokens":60,
        "cacheWriteInputTokens":40}}"#,
);

fn tool(index: u8, id: &str) -> String {
    format!(
        r#"{{"contentBlockIndex":{index},"start":{{"toolUse":{{"name":"f","toolUseId":"{id}"}}}}}}"#
    )
}

fn input(index: u8, text: &str) -> String {
    format!(r#"{{"contentBlockIndex":{index},"delta":{{"toolUse":{{"input":"{text}"}}}}}}"#)
}

#[test]
fn usage_comes_after_the_stop_and_what_was_cached_is_added_to_the_prompt() {
    let mut reply = Wire::Bedrock.stream(context(true));
    let mut step = Step::default();
    reply.feed(frames(&[START, TEXT, STOP]), &mut step);
    assert!(step.end.is_none(), "the usage has not come");
    let got = stream(&[START, TEXT, STOP, USAGE], true);
    let usage = got.usage.unwrap();
    assert_eq!((usage.input, usage.cached, usage.cache_write, usage.output), (3, 60, 40, 4));
    let seen = got.seen(true);
    assert_eq!((seen.choices[&0].text.as_str(), got.finish), ("hé", Some("stop")));
    assert_eq!(seen.usage.unwrap()["total_tokens"], 107);
}

#[test]
fn an_answer_whose_usage_was_cut_off_is_whole_and_counted() {
    for clean in [true, false] {
        let got = filter(Wire::Bedrock, &[frames(&[START, TEXT, STOP])], true, clean);
        assert!(got.complete() && got.usage.is_none());
        assert!(got.seen(true).usage.unwrap()["completion_tokens"].as_u64() > Some(0));
    }
}

#[test]
fn stop_reasons_are_openais_words() {
    for (reason, want) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("content_filtered", "content_filter"),
        ("guardrail_intervened", "content_filter"),
        ("malformed_tool_use", "stop"),
    ] {
        let stop = format!(r#"{{"stopReason":"{reason}"}}"#);
        let got = stream(&[START, TEXT, ("messageStop", &stop), USAGE], false);
        assert_eq!(got.finish, Some(want), "{reason}");
    }
}

#[test]
fn interleaved_calls_keep_their_own_arguments_and_one_without_any_has_an_object() {
    let (one, two, three) = (tool(1, "a"), tool(2, "b"), tool(3, "c"));
    let hidden = r#"{"contentBlockIndex":4,"start":{"toolUse":{"name":"x","toolUseId":"d",
        "type":"server_tool_use"}}}"#;
    let events = [
        START,
        ("contentBlockStart", &one),
        ("contentBlockStart", &two),
        ("contentBlockDelta", &input(2, "{\\\"y\\\"")),
        ("contentBlockDelta", &input(1, "")),
        ("contentBlockDelta", &input(1, "{\\\"x\\\":1}")),
        ("contentBlockStart", hidden),
        ("contentBlockDelta", &input(4, "{}")),
        ("contentBlockDelta", &input(2, ":2.0}")),
        ("contentBlockStart", &three),
        ("contentBlockStop", r#"{"contentBlockIndex":3}"#),
        ("messageStop", r#"{"stopReason":"tool_use"}"#),
        USAGE,
    ];
    let got = stream(&events, false);
    let tools = got.seen(false).choices[&0].tools.clone();
    let arguments: Vec<_> = tools.iter().map(|tool| tool.arguments.as_str()).collect();
    assert_eq!(arguments, [r#"{"x":1}"#, r#"{"y":2.0}"#, "{}"]);
    assert_eq!((tools[0].id.as_str(), got.finish), ("a", Some("tool_calls")));
}

fn exception(kind: &str, message: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":message-type", "exception")];
    frame(&headers, format!("{{\"message\":\"{message}\"}}").as_bytes())
}

/// Hazard T12: an exception keeps its meaning, as the first frame and after content.
#[test]
fn an_exception_inside_the_stream_is_the_failure_it_is_outside_t12() {
    for (kind, class, status) in [
        ("throttlingException", Class::RateLimited, 429),
        ("validationException", Class::BadRequest, 400),
        ("serviceUnavailableException", Class::Overloaded, 503),
        ("internalServerException", Class::Server, 500),
        ("modelStreamErrorException", Class::Server, 424),
        ("modelTimeoutException", Class::Timeout, 408),
        ("accessDeniedException", Class::Auth, 403),
        ("somethingNewException", Class::Server, 500),
    ] {
        let first = Bytes::from(exception(kind, "why"));
        let got = filter(Wire::Bedrock, std::slice::from_ref(&first), true, true);
        let failure = got.failure();
        assert_eq!((failure.class, failure.status), (class, status), "{kind}");
        assert_eq!((failure.message.as_str(), got.started), ("why", false), "{kind}");
        let later = filter(Wire::Bedrock, &[frames(&[START, TEXT]), first], true, true);
        assert_eq!((later.failure().class, later.started), (class, true), "{kind}");
        assert_eq!(later.seen(true).choices[&0].text, "hé");
    }
    let long = exception("validationException", "Input is too long for requested model.");
    let got = filter(Wire::Bedrock, &[long.into()], true, true);
    assert_eq!(got.failure().class, Class::ContextLength);
}

#[test]
fn an_error_frame_has_its_words_in_headers() {
    let headers = [
        (":error-code", "InternalServerException"),
        (":error-message", "it \"broke\""),
        (":message-type", "error"),
    ];
    let got = filter(Wire::Bedrock, &[frame(&headers, b"").into()], true, true);
    assert_eq!(
        (got.failure().class, got.failure().message.as_str()),
        (Class::Server, "it \"broke\"")
    );
}

#[test]
fn damage_is_found_and_what_came_before_it_kept() {
    let mut bytes = frames(&[START, TEXT, STOP, USAGE]).to_vec();
    let at = frames(&[START, TEXT]).len() + 30;
    bytes[at] ^= 1;
    let got = filter(Wire::Bedrock, &[bytes.into()], true, true);
    assert_eq!(got.failure().class, Class::Invalid);
    assert_eq!(got.seen(true).choices[&0].text, "hé");
}

#[test]
fn nothing_has_started_before_content_or_an_end() {
    let call = tool(0, "a");
    for (event, starts) in [
        (START, false),
        (("contentBlockStop", r#"{"contentBlockIndex":0}"#), false),
        (TEXT, true),
        (("contentBlockStart", &call), true),
    ] {
        let mut reply = Wire::Bedrock.stream(context(false));
        let mut step = Step::default();
        reply.feed(frames(&[event]), &mut step);
        assert_eq!((step.started, step.alive), (starts, starts), "{event:?}");
    }
}

#[test]
fn what_is_no_answer_is_a_failure() {
    let bodies: [&[u8]; 7] =
        [b"", b"<html>", b"{}", b"{\"output\":{}}", b"data: {}\n\n", &[0; 16], b"{\"output\":"];
    for body in bodies {
        let got =
            filter(Wire::Bedrock, &[Bytes::from_static(b""), body.to_vec().into()], true, true);
        assert_eq!(got.failure().class, Class::Invalid, "{body:?}");
        assert!(Wire::Bedrock.whole(body.to_vec().into(), context(true)).is_err(), "{body:?}");
    }
    let said = Bytes::from_static(b"{\"message\":\"no\"}");
    let failure = Wire::Bedrock.whole(said, context(true)).map(|_| ()).unwrap_err();
    assert_eq!((failure.class, failure.message.as_str()), (Class::Server, "no"));
}
