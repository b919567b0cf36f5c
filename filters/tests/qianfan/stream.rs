//! Replies by rule and as recorded.

use super::replay::drive::{Filtered, Want, context, every_cut, every_end, every_shortening, filter};
use super::replay::{Case, cases};
use bytes::Bytes;
use serde_json::Value;
use weir_filters::error::Class;
use weir_filters::usage::Usage;
use weir_filters::wire::Wire;

/// A reply as the documentation shows it (cloud.baidu.com, ERNIE-4.0-8K).
const FRAMES: [&str; 3] = [
    r#"{"id":"as-1","object":"chat.completion","created":1,"sentence_id":0,"is_end":false,
        "is_truncated":false,"result":"h\u00e9","need_clear_history":false,
        "usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#,
    r#"{"id":"as-1","object":"chat.completion","created":1,"sentence_id":1,"is_end":false,
        "is_truncated":false,"result":" you","need_clear_history":false,
        "usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#,
    r#"{"id":"as-1","object":"chat.completion","created":1,"sentence_id":2,"is_end":true,
        "is_truncated":false,"result":"","need_clear_history":false,"finish_reason":"normal",
        "usage":{"prompt_tokens":3,"completion_tokens":7,"total_tokens":10}}"#,
];

fn sse(frames: &[&str]) -> Bytes {
    let line = |frame: &&str| {
        let data: String = frame.lines().map(str::trim_start).collect();
        format!("data: {data}\n\n")
    };
    frames.iter().map(line).collect::<String>().into()
}

fn stream(frames: &[&str]) -> Filtered {
    filter(Wire::Qianfan, &[sse(frames)], true, true)
}

fn case(kind: &str, body: Bytes) -> Case {
    Case {
        id: "documented".into(),
        provider: "qianfan".into(),
        wire: "qianfan-v1".into(),
        status: 200,
        kind: kind.into(),
        stream: kind == "sse",
        note: String::new(),
        headers: Vec::new(),
        request: None,
        body,
    }
}

fn wanted() -> Want {
    let usage = Some(Usage { input: 3, output: 7, ..Usage::default() });
    Want { text: "hé you".into(), finish: Some("stop"), usage, ..Want::default() }
}

#[test]
fn the_documented_stream_reads_the_same_at_every_cut() {
    let case = case("sse", sse(&FRAMES));
    every_cut(Wire::Qianfan, &case, &wanted());
    every_shortening(Wire::Qianfan, &case, &wanted());
    every_end(Wire::Qianfan, &case, &wanted(), |body| {
        String::from_utf8_lossy(body).contains("\"is_end\":true")
    });
}

#[test]
fn the_documented_reply_is_a_strict_completion_and_so_is_it_as_a_stream() {
    let body = r#"{"id":"as-1","object":"chat.completion","created":1,"result":"hé you",
        "is_truncated":false,"need_clear_history":false,"finish_reason":"normal",
        "usage":{"prompt_tokens":3,"completion_tokens":7,"total_tokens":10}}"#;
    let case = case("json", body.into());
    wanted().judge_whole(Wire::Qianfan, &case);
    every_cut(Wire::Qianfan, &case, &wanted());
}

/// The recorded case in the framing of a stream.
fn framed(case: &Case) -> Case {
    Case { body: sse(&[std::str::from_utf8(&case.body).unwrap()]), ..case.clone() }
}

#[test]
fn every_recorded_reply_reads_the_same_at_every_cut_and_errors_inside_a_200_have_their_class() {
    for case in cases("qianfan-v1") {
        let reply: Value = serde_json::from_slice(&case.body).unwrap();
        let want = match reply["error_code"].as_u64() {
            Some(_) => Want { fails: true, ..Want::default() },
            None => Want {
                text: reply["result"].as_str().unwrap().to_owned(),
                finish: Some("stop"),
                usage: Some(Usage {
                    input: reply["usage"]["prompt_tokens"].as_u64().unwrap(),
                    output: reply["usage"]["completion_tokens"].as_u64().unwrap(),
                    ..Usage::default()
                }),
                ..Want::default()
            },
        };
        want.judge_whole(Wire::Qianfan, &case);
        every_cut(Wire::Qianfan, &case, &want);
        every_cut(Wire::Qianfan, &framed(&case), &want);
        let class = match reply["error_code"].as_u64() {
            Some(110 | 111) => Class::Auth,
            Some(18 | 336_502) => Class::RateLimited,
            Some(336_100) => Class::Overloaded,
            Some(_) => Class::BadRequest,
            None => continue,
        };
        let failure = Wire::Qianfan.whole(case.body.clone(), context(false));
        let failure = failure.map(|_| ()).unwrap_err();
        assert_eq!(failure.class, class, "{}", case.id);
        assert_eq!(failure.message, reply["error_msg"].as_str().unwrap(), "{}", case.id);
    }
}

#[test]
fn an_error_after_content_is_a_failure() {
    let error = r#"{"error_code":336100,"error_msg":"try again"}"#;
    let got = stream(&[FRAMES[0], error]);
    assert_eq!((got.failure().class, got.started), (Class::Overloaded, true));
    assert_eq!(got.seen(true).choices[&0].text, "hé");
}

#[test]
fn a_call_has_its_arguments_and_ends_as_tool_calls() {
    let call = r#"{"id":"as-1","is_end":true,"result":"","finish_reason":"function_call",
        "function_call":{"name":"f","thoughts":"hm","arguments":"{\"x\": 1.0}"}}"#;
    let got = stream(&[call]);
    let tools = got.seen(true).choices[&0].tools.clone();
    assert_eq!((tools[0].id.as_str(), tools[0].arguments.as_str()), ("call_t_0", "{\"x\": 1.0}"));
    assert_eq!(got.finish, Some("tool_calls"));
    let empty = call.replace(r#""{\"x\": 1.0}""#, "\"\"");
    assert_eq!(stream(&[&empty]).seen(true).choices[&0].tools[0].arguments, "{}");
}

#[test]
fn finish_reasons_are_openais_words() {
    for (reason, want) in [
        (r#""finish_reason":"normal""#, "stop"),
        (r#""finish_reason":"stop""#, "stop"),
        (r#""finish_reason":"length""#, "length"),
        (r#""finish_reason":"content_filter""#, "content_filter"),
        (r#""is_truncated":true"#, "length"),
    ] {
        let frame = format!(r#"{{"result":"x","is_end":true,{reason}}}"#);
        assert_eq!(stream(&[&frame]).finish, Some(want), "{reason}");
    }
}

#[test]
fn what_is_no_answer_is_a_failure() {
    for body in
        ["", "{}", "[]", "<html>", "data: {}\n\n", "data: x\n\n", ": ping\n\n", "{\"is_end\":"]
    {
        let got = filter(Wire::Qianfan, &[Bytes::from(body)], true, true);
        assert_eq!(got.failure().class, Class::Invalid, "{body}");
        assert!(Wire::Qianfan.whole(body.into(), context(false)).is_err(), "{body}");
    }
}
