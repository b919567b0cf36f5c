//! Replies by rule, as the documentation shows them, and the recorded error.

use super::replay::drive::{
    Filtered, Want, context, every_cut, every_end, every_shortening, filter,
};
use super::replay::{Case, cases};
use bytes::Bytes;
use serde_json::json;
use weir_filters::error::Class;
use weir_filters::usage::Usage;
use weir_filters::wire::Wire;

/// Frames as `incremental_output` makes them, each with its comment in the middle.
fn sse(frames: &[&str]) -> Bytes {
    let frame = |(n, data): (usize, &&str)| {
        let data: String = data.lines().map(str::trim_start).collect();
        format!("id:{}\nevent:result\n:HTTP_STATUS/200\ndata:{data}\n\n", n + 1)
    };
    frames.iter().enumerate().map(frame).collect::<String>().into()
}

const FRAMES: [&str; 3] = [
    r#"{"output":{"choices":[{"message":{"reasoning_content":"hm","content":"",
        "role":"assistant"},"finish_reason":"null"}]},"usage":{"total_tokens":23,
        "input_tokens":22,"output_tokens":1},"request_id":"r1"}"#,
    r#"{"output":{"choices":[{"message":{"reasoning_content":"","content":"h\u00e9",
        "role":"assistant"},"finish_reason":"null"}]},"usage":{"total_tokens":27,
        "input_tokens":22,"output_tokens":5},"request_id":"r1"}"#,
    r#"{"output":{"choices":[{"message":{"content":" you","role":"assistant"},
        "finish_reason":"stop"}]},"usage":{"total_tokens":28,"input_tokens":22,
        "output_tokens":6,"prompt_tokens_details":{"cached_tokens":20},
        "output_tokens_details":{"reasoning_tokens":2}},"request_id":"r1"}"#,
];

fn stream(frames: &[&str]) -> Filtered {
    filter(Wire::DashScope, &[sse(frames)], true, true)
}

#[test]
fn a_stream_reads_the_same_at_every_cut() {
    let case = Case {
        id: "documented".into(),
        provider: "qwen".into(),
        wire: "dashscope-native".into(),
        status: 200,
        kind: "sse".into(),
        stream: true,
        note: String::new(),
        headers: Vec::new(),
        request: None,
        body: sse(&FRAMES),
    };
    let usage = Usage { input: 2, cached: 20, output: 6, reasoning: 2, ..Usage::default() };
    let want = Want {
        text: "hé you".into(),
        reasoning: "hm".into(),
        finish: Some("stop"),
        usage: Some(usage),
        ..Want::default()
    };
    every_cut(Wire::DashScope, &case, &want);
    every_shortening(Wire::DashScope, &case, &want);
    every_end(Wire::DashScope, &case, &want, |body| {
        String::from_utf8_lossy(body).contains("\"stop\"")
    });
}

#[test]
fn calls_come_in_pieces_and_an_empty_one_has_an_object() {
    let call = |index: u64, id: &str, function: serde_json::Value| {
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        let message = json!({"role": "assistant", "content": "", "tool_calls": [call]});
        json!({"output": {"choices": [{"message": message, "finish_reason": "null"}]}}).to_string()
    };
    let end = r#"{"output":{"choices":[{"message":{"content":""},"finish_reason":"tool_calls"}]}}"#;
    let frames = [
        call(0, "a", json!({"name": "f", "arguments": ""})),
        call(0, "", json!({"arguments": "{\"x\": "})),
        call(0, "", json!({"name": "", "arguments": "1.0}"})),
        call(1, "b", json!({"name": "g", "arguments": ""})),
        end.to_owned(),
    ];
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    let got = stream(&frames);
    let tools = got.seen(true).choices[&0].tools.clone();
    assert_eq!((tools[0].id.as_str(), tools[0].arguments.as_str()), ("a", "{\"x\": 1.0}"));
    assert_eq!((tools[1].id.as_str(), tools[1].arguments.as_str()), ("b", "{}"));
    assert_eq!(got.finish, Some("tool_calls"));
}

#[test]
fn a_whole_reply_may_have_a_list_of_parts() {
    let body = r#"{"output":{"choices":[{"finish_reason":"length","message":{"role":"assistant",
        "content":[{"text":"a"},{"text":"b"}]}}]},"usage":{"input_tokens":3,"output_tokens":2},
        "request_id":"r"}"#;
    let whole = Wire::DashScope.whole(body.into(), context(false)).unwrap();
    let reply: serde_json::Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(reply["choices"][0]["message"]["content"], "ab");
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["usage"]["total_tokens"], 5);
}

#[test]
fn an_error_event_is_a_failure() {
    for case in cases("dashscope-native").into_iter().filter(|case| case.id.ends_with("error")) {
        let got = filter(Wire::DashScope, std::slice::from_ref(&case.body), true, true);
        assert_eq!(got.failure().class, Class::ContentFilter, "{}", case.id);
    }
    let late = r#"{"code":"InternalError","message":"x","request_id":"r1"}"#;
    let got = stream(&[FRAMES[1], late]);
    assert_eq!((got.failure().class, got.started), (Class::Server, true));
    for body in ["", "{}", "<html>", "data: {}\n\n", "data: x\n\n", "{\"output\":"] {
        let got = filter(Wire::DashScope, &[Bytes::from(body)], true, true);
        assert_eq!(got.failure().class, Class::Invalid, "{body}");
    }
}
