//! How a stream ends: whole, with an error, cut short, or as no stream at all.

use super::stream::{HI, START, STOP, TEXT, TEXT_END, settled};
use super::{filter, sse, stream};
use bytes::Bytes;
use weir_filters::error::Class;

/// Hazard T05: an error event ends the stream as a failure; what came before it stands.
#[test]
fn an_error_event_is_a_failure_of_its_class_and_nothing_follows_it_t05() {
    for (kind, class) in [
        ("overloaded_error", Class::Overloaded),
        ("rate_limit_error", Class::RateLimited),
        ("api_error", Class::Server),
        ("authentication_error", Class::Auth),
        ("timeout_error", Class::Timeout),
        ("invalid_request_error", Class::BadRequest),
    ] {
        let error = format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"{}"}}}}"#,
            "x".repeat(900)
        );
        let got = stream(&[START, TEXT, HI, &error, TEXT_END, &settled("end_turn"), STOP], true);
        assert_eq!(got.failure().class, class, "{kind}");
        assert_eq!(got.seen(false).choices[&0].text, "hi é\n");
        // Hazard S39: the error's own text is no output.
        assert!(got.counted < 10, "{}", got.counted);
        let got = stream(&[&error], true);
        assert!(!got.started && got.out.is_empty() && got.failure().class == class);
    }
}

#[test]
fn an_error_between_delta_and_stop_leaves_no_finish_behind() {
    let error = r#"{"type":"error","error":{"type":"api_error","message":"x"}}"#;
    let got = stream(&[START, TEXT, HI, TEXT_END, &settled("end_turn"), error], true);
    assert_eq!(got.failure().class, Class::Server);
    assert_eq!(got.seen(true).choices[&0].finish, None);
}

/// Hazard S16: `[DONE]` is for answers that were finished, and only for those.
#[test]
fn a_stream_without_a_stop_reason_is_truncated_and_has_no_done_s16() {
    for clean in [true, false] {
        let got = filter(&[sse(&[START, TEXT, HI, HI])], true, clean);
        assert_eq!(got.failure().code.as_deref(), Some("truncated"));
        assert_eq!(got.seen(true).choices[&0].text, "hi é\nhi é\n");
        assert!(!String::from_utf8_lossy(&got.out).contains("[DONE]"));
        let got = filter(&[sse(&[START, TEXT, HI, TEXT_END, &settled("end_turn")])], true, clean);
        assert!(got.complete());
        assert_eq!(got.seen(true).choices[&0].finish.as_deref(), Some("stop"));
    }
    // Cut: the prompt as reported, the output as far as it passed.
    let got = filter(&[sse(&[START, TEXT, HI, HI, HI])], true, false);
    let usage = got.usage.unwrap();
    assert_eq!((usage.input, usage.cached, usage.output), (30, 5, got.counted));
    let bare = START.replace(r#","output_tokens":2"#, "");
    assert_eq!(filter(&[sse(&[&bare, TEXT, HI])], true, false).usage.unwrap().input, 30);
}

#[test]
fn message_stop_alone_is_no_answer() {
    let got = stream(&[START, TEXT, HI, TEXT_END, STOP], false);
    assert_eq!(got.failure().class, Class::Invalid);
    got.seen(false);
}

/// Hazards S32 and S37: a 200 that holds no stream.
#[test]
fn an_empty_200_a_page_and_rubbish_are_failures_that_start_nothing_s32_s37() {
    for body in [
        "",
        "\n\n",
        ": x\n\n: y\n\n",
        "<html>busy</html>",
        " <!doctype html>",
        "upstream error",
        "[1,2]",
        "{}",
        "{\"a\":",
        "data: {not json}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    ] {
        let got = filter(&[Bytes::from_static(body.as_bytes())], true, true);
        assert_eq!(got.failure().class, Class::Invalid, "{body}");
        assert_eq!(got.failure().code, None, "{body}");
        assert!(!got.started && !String::from_utf8_lossy(&got.out).contains("data:"), "{body}");
    }
}

#[test]
fn a_json_error_in_place_of_a_stream_is_that_error() {
    let body = br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let got = filter(&[Bytes::from_static(body)], true, true);
    assert_eq!(got.failure().class, Class::Overloaded);
    assert!(!got.started);
}

#[test]
fn a_json_message_in_place_of_a_stream_is_streamed() {
    let body = br#"{"type":"message","id":"m1","model":"c","role":"assistant","content":[
        {"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"a"},
        {"type":"text","text":"b"},{"type":"tool_use","id":"t","name":"f","input":{"x": 1.0}}],
        "stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}"#;
    for cut in [0, 1, 50, 200] {
        let body = Bytes::from_static(body);
        let got = filter(&[body.slice(..cut), body.slice(cut..)], true, true);
        let seen = got.seen(true);
        let choice = &seen.choices[&0];
        assert_eq!((&*choice.text, &*choice.reasoning), ("ab", "hm"));
        assert_eq!(choice.tools[0].arguments, "{\"x\":1.0}");
        assert_eq!(choice.finish.as_deref(), Some("tool_calls"));
        assert_eq!(got.usage.unwrap().output, 4);
    }
}

#[test]
fn whatever_follows_the_end_is_swallowed() {
    let got =
        stream(&[START, TEXT, HI, TEXT_END, &settled("end_turn"), STOP, HI, "[DONE]", "{x"], false);
    assert!(got.complete());
    assert_eq!(got.seen(false).choices[&0].text, "hi é\n");
}

#[test]
fn an_event_without_a_type_goes_by_its_name() {
    let body = String::from_utf8(sse(&[START, TEXT, HI, TEXT_END, &settled("end_turn")]).to_vec());
    let body = body.unwrap() + "event: message_stop\ndata: {}\n\n";
    assert!(filter(&[body.into()], false, true).complete());
}
