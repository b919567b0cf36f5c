//! Replies by rule.

use super::replay::drive::{context, filter};
use super::{parts, sse, stream};
use bytes::Bytes;
use serde_json::Value;
use weir_filters::error::Class;
use weir_filters::wire::{Step, Wire};

const STOP: &str = r#""finishReason":"STOP","index":0"#;

#[test]
fn finish_reasons_are_openais_words_and_calls_end_as_such_t10() {
    for (reason, want) in [
        ("\"STOP\"", "stop"),
        ("1", "stop"),
        ("\"MAX_TOKENS\"", "length"),
        ("2", "length"),
        ("\"SAFETY\"", "content_filter"),
        ("\"RECITATION\"", "content_filter"),
        ("\"SPII\"", "content_filter"),
        ("\"IMAGE_SAFETY\"", "content_filter"),
        ("\"MALFORMED_FUNCTION_CALL\"", "stop"),
        ("\"NEW_WORD\"", "stop"),
    ] {
        let got = stream(&[&parts("", &format!("\"finishReason\":{reason}"))], false);
        assert_eq!(got.finish, Some(want), "{reason}");
        got.seen(false);
    }
    let call = r#"{"functionCall":{"name":"f","args":{}}}"#;
    assert_eq!(stream(&[&parts(call, ""), &parts("", STOP)], false).finish, Some("tool_calls"));
    let cut = parts(call, "\"finishReason\":\"MAX_TOKENS\"");
    assert_eq!(stream(&[&cut], false).finish, Some("length"));
}

#[test]
fn a_finish_in_every_chunk_is_one_at_the_end() {
    let chunks = [parts(r#"{"text":"a"}"#, STOP), parts(r#"{"text":"b"}"#, STOP)];
    let got = stream(&[&chunks[0], &chunks[1]], true);
    let seen = got.seen(true);
    assert_eq!((seen.choices[&0].text.as_str(), got.finish), ("ab", Some("stop")));
}

#[test]
fn pictures_are_images_and_drafts_among_thoughts_are_not() {
    let picture = |data: &str, more: &str| {
        format!(r#"{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}{more}}}"#)
    };
    let draft = picture("DRAFT", r#","thought":true"#);
    let first = parts(&format!(r#"{draft},{{"text":"a"}},{}"#, picture("ONE=", "")), "");
    let sound = r#"{"inlineData":{"mimeType":"audio/L16","data":"SOUND"}}"#;
    let last = parts(&format!("{},{sound}", picture("TWO=", "")), STOP);
    let chunks = [&*first, &*last];
    let image = |n: u8, data: &str| {
        serde_json::json!({"index": n, "type": "image_url",
            "image_url": {"url": format!("data:image/png;base64,{data}")}})
    };
    let text = String::from_utf8(stream(&chunks, false).out).unwrap();
    let deltas = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let deltas = deltas.map(|c| serde_json::from_str::<Value>(&format!("{{{c}")).unwrap());
    let images = deltas.map(|c| c["choices"][0]["delta"]["images"].clone());
    let images: Vec<_> = images.filter(|images| !images.is_null()).collect();
    assert_eq!(images, [Value::from(vec![image(0, "ONE=")]), vec![image(1, "TWO=")].into()]);
    let whole = Wire::Gemini.whole(sse(&chunks), context(false)).unwrap();
    let body: Value = serde_json::from_slice(&whole.body).unwrap();
    let message = &body["choices"][0]["message"];
    assert_eq!(message["content"], "a");
    assert_eq!(message["images"], Value::from(vec![image(0, "ONE="), image(1, "TWO=")]));
}

#[test]
fn several_candidates_are_several_choices() {
    let one = |n: u8, text: &str, more: &str| {
        format!(r#"{{"index":{n},"content":{{"parts":[{{"text":"{text}"}}]}}{more}}}"#)
    };
    let done = r#","finishReason":"STOP""#;
    let long = r#","finishReason":"MAX_TOKENS""#;
    let chunks = [
        format!(r#"{{"candidates":[{},{}]}}"#, one(0, "a", ""), one(1, "x", "")),
        format!(r#"{{"candidates":[{},{}]}}"#, one(1, "y", done), one(0, "b", long)),
    ];
    let got = stream(&[&chunks[0], &chunks[1]], true);
    let seen = got.seen(true);
    assert_eq!((seen.choices[&0].text.as_str(), seen.choices[&1].text.as_str()), ("ab", "xy"));
    assert_eq!(seen.choices[&1].finish.as_deref(), Some("stop"));
    let whole = Wire::Gemini.whole(sse(&[&chunks[0], &chunks[1]]), context(false)).unwrap();
    let body: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(body["choices"][1]["message"]["content"], "xy");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    // One of them never ends.
    let got = stream(&[&chunks[0], &format!(r#"{{"candidates":[{}]}}"#, one(0, "b", done))], true);
    assert_eq!(got.failure().code.as_deref(), Some("truncated"));
}

/// Hazard T15: `error: null` is no error, and an error is one at any place.
#[test]
fn an_error_inside_a_stream_is_a_failure_of_its_class_t15() {
    let error = r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#;
    let first = stream(&[error], false);
    assert_eq!((first.failure().class, first.started), (Class::Overloaded, false));
    let text = parts(r#"{"text":"a"}"#, "");
    let later = stream(&[&text, error], false);
    assert_eq!((later.failure().status, later.started), (503, true));
    assert_eq!(later.seen(false).choices[&0].text, "a");
    let array = Bytes::from(format!("[{error}]"));
    let got = filter(Wire::Gemini, std::slice::from_ref(&array), false, true);
    assert_eq!(got.failure().class, Class::Overloaded);
    assert_eq!(
        Wire::Gemini.whole(array, context(false)).map(|_| ()).unwrap_err().class,
        Class::Overloaded
    );
    let null = format!(r#"{{"error":null,{}"#, &parts(r#"{"text":"a"}"#, STOP)[1..]);
    assert!(stream(&[&null], false).complete());
}

#[test]
fn nothing_has_started_before_content_or_an_end() {
    for (chunk, starts) in [
        (r#"{"usageMetadata":{"promptTokenCount":3}}"#.to_owned(), false),
        (parts(r#"{"text":""}"#, ""), false),
        (parts(r#"{"thoughtSignature":"eA=="}"#, ""), false),
        (parts(r#"{"text":"t","thought":true}"#, ""), true),
        (parts(r#"{"text":"t"}"#, ""), true),
        (parts(r#"{"functionCall":{"name":"f"}}"#, ""), true),
    ] {
        let mut reply = Wire::Gemini.stream(context(false));
        let mut step = Step::default();
        reply.feed(sse(&[&chunk]), &mut step);
        assert_eq!((step.started, step.alive), (starts, starts), "{chunk}");
        let mut step = Step::default();
        reply.feed(Bytes::from_static(b": x\n\n"), &mut step);
        assert_eq!((step.started, step.alive), (starts, false), "{chunk}");
    }
}

/// Hazard S32: nothing, a page and blank lines are no answer.
#[test]
fn what_is_no_answer_is_a_failure_s32() {
    for body in ["", "\n\n", ": ping\n\n", "<html>", "{}", "[]", "data: {}\n\n", "data: x\n\n", "{"]
    {
        let got = filter(Wire::Gemini, &[Bytes::from(body)], true, true);
        assert_eq!(got.failure().class, Class::Invalid, "{body:?}");
        assert!(!got.started, "{body:?}");
        assert!(Wire::Gemini.whole(body.into(), context(true)).is_err(), "{body:?}");
    }
}

#[test]
fn usage_is_the_last_word_and_stays_when_the_rest_is_cut() {
    let usage = |n: u32| {
        let counts = format!(r#""candidatesTokenCount":{n},"thoughtsTokenCount":5"#);
        format!(r#","usageMetadata":{{"promptTokenCount":9,{counts}}}}}"#)
    };
    let with = |chunk: String, n| format!("{}{}", &chunk[..chunk.len() - 1], usage(n));
    let first = with(parts(r#"{"text":"hello there, dear caller of this gateway"}"#, ""), 1);
    let cut = stream(&[&first], true);
    let known = cut.usage.unwrap();
    assert_eq!((known.input, known.output.max(6)), (9, known.output));
    let got = stream(&[&first, &with(parts("", STOP), 2)], true);
    assert_eq!(got.usage.unwrap().output, 7);
    assert_eq!(got.seen(true).usage.unwrap()["completion_tokens_details"]["reasoning_tokens"], 5);
}
