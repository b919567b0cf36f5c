//! Messages, sampling and members of a request, one test a rule.

use super::{ask, hello, sent, try_ask};
use serde_json::{Value, json};
use weir_filters::error::Code;
use weir_filters::wire::Params;

#[test]
fn path_version_and_model_are_the_providers() {
    let body = r#"{"model":"alias","messages":[{"role":"user","content":"hi"}],"stream":true}"#;
    let out = try_ask(body, &Params::default(), 0).unwrap();
    assert_eq!(out.path, "/messages");
    assert_eq!(out.headers, [("anthropic-version", "2023-06-01".to_owned())]);
    assert!(!out.strip_usage);
    let sent = sent(out);
    assert_eq!((&sent.json["model"], &sent.json["stream"]), (&json!("claude-x"), &json!(true)));
    assert!(hello("").json.get("stream").is_none());
    assert!(hello(r#""stream":false,"stream_options":null"#).dropped.is_empty());
}

#[test]
fn system_and_developer_texts_become_blocks_in_order_and_keep_cache_control() {
    let sent = ask(
        r#"[{"role":"system","content":[{"type":"text","text":"a",
            "cache_control":{"type":"ephemeral"}},
            {"type":"text","text":" "}]},
            {"role":"user","content":"hi"},
            {"role":"developer","content":"b","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#,
        "",
    );
    let want = json!([
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "b", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]);
    assert_eq!(sent.json["system"], want);
    assert_eq!(sent.json["messages"].as_array().unwrap().len(), 1);
    assert!(hello("").json.get("system").is_none());
}

/// The turns as `role: texts`.
fn turns(messages: &str) -> Vec<String> {
    let sent = ask(messages, "");
    let turn = |turn: &Value| {
        let texts = turn["content"].as_array().unwrap().iter().map(|block| block["text"].as_str());
        let texts: Vec<_> = texts.map(|text| text.unwrap_or("?")).collect();
        format!("{}: {}", turn["role"].as_str().unwrap(), texts.join("|"))
    };
    sent.json["messages"].as_array().unwrap().iter().map(turn).collect()
}

#[test]
fn messages_of_one_side_are_one_turn() {
    let got = turns(
        r#"[{"role":"user","content":"a"},{"role":"user","content":["b",{"type":"text",
            "text":"c"}]},
            {"role":"assistant","content":"d"},{"role":"assistant","content":"e"},
            {"role":"user","content":"f"}]"#,
    );
    assert_eq!(got, ["user: a|b|c", "assistant: d|e", "user: f"]);
}

#[test]
fn empty_texts_are_no_blocks_and_empty_messages_no_turns() {
    let got = turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":""},
            {"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"b"}]},
            {"role":"assistant","content":null},{"role":"user","content":" \n"}]"#,
    );
    assert_eq!(got, ["user: a|b"]);
}

#[test]
fn the_first_turn_is_the_users_even_when_nobody_speaks() {
    let got = turns(r#"[{"role":"assistant","content":"a"},{"role":"user","content":"b"}]"#);
    assert_eq!(got, ["user: .", "assistant: a", "user: b"]);
    assert_eq!(turns(r#"[{"role":"system","content":"s"}]"#), ["user: ."]);
    assert_eq!(turns(r#"[{"role":"user","content":""}]"#), ["user: ."]);
}

#[test]
fn a_begun_answer_loses_its_trailing_white_space_and_no_other_text_does() {
    let got = turns(r#"[{"role":"user","content":"a "},{"role":"assistant","content":" b \n"}]"#);
    assert_eq!(got, ["user: a ", "assistant:  b"]);
    let got = turns(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b "},
            {"role":"user","content":"c"}]"#,
    );
    assert_eq!(got[1], "assistant: b ");
}

#[test]
fn max_tokens_is_the_callers_else_the_models_else_4096() {
    let limit = |more: &str, max_output: u64| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{more}}}"#);
        sent(try_ask(&body, &Params::default(), max_output).unwrap()).json["max_tokens"].clone()
    };
    assert_eq!(limit("", 0), 4096);
    assert_eq!(limit("", 8192), 8192);
    assert_eq!(limit(r#","max_tokens":5"#, 8192), 5);
    assert_eq!(limit(r#","max_tokens":5,"max_completion_tokens":9"#, 8192), 5);
    assert_eq!(limit(r#","max_completion_tokens":9"#, 8192), 9);
    assert_eq!(limit(r#","max_tokens":5,"max_completion_tokens":null"#, 0), 5);
}

#[test]
fn temperature_is_clamped_to_0_and_1_and_keeps_its_digits() {
    let got = |t: &str| hello(&format!("\"temperature\":{t}")).text;
    assert!(got("0.70").contains(r#""temperature":0.70"#));
    assert!(got("1.3").contains(r#""temperature":1,"#));
    assert!(got("2").contains(r#""temperature":1,"#));
    assert!(got("-1").contains(r#""temperature":0,"#));
    assert!(!got("null").contains("temperature"));
}

#[test]
fn one_of_temperature_and_top_p_goes_since_newer_models_refuse_both() {
    let sent = hello(r#""temperature":0.2,"top_p":0.9"#);
    assert_eq!(sent.json["temperature"], 0.2);
    assert!(sent.json.get("top_p").is_none());
    assert_eq!(sent.dropped, ["top_p"]);
    let sent = hello(r#""temperature":1,"top_p":0.9"#);
    assert_eq!(sent.json["top_p"], 0.9);
    assert_eq!(sent.dropped, ["temperature"]);
    assert_eq!(hello(r#""top_p":0.9"#).json["top_p"], 0.9);
}

#[test]
fn what_the_provider_cannot_take_is_dropped_and_named() {
    let sent = hello(
        r#""n":2,"logprobs":true,"top_logprobs":3,"presence_penalty":1,"frequency_penalty":1,
           "seed":7,"logit_bias":{"1":2},"store":true,"x_new":[1],"verbosity":null"#,
    );
    let mut dropped = sent.dropped;
    dropped.sort();
    let want = [
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "n",
        "presence_penalty",
        "seed",
        "store",
        "top_logprobs",
        "x_new",
    ];
    assert_eq!(dropped, want);
    let members: Vec<_> = sent.json.as_object().unwrap().keys().collect();
    assert_eq!(members, ["max_tokens", "messages", "model"]);
    assert!(hello(r#""n":1"#).dropped.is_empty());
}

#[test]
fn stop_becomes_stop_sequences_without_white_space_ones() {
    assert_eq!(hello(r#""stop":"END""#).json["stop_sequences"], json!(["END"]));
    let sent = hello(r#""stop":["\n","a","",  "b\n"]"#);
    assert_eq!(sent.json["stop_sequences"], json!(["a", "b\n"]));
    let sent = hello(r#""stop":["\n"]"#);
    assert!(sent.json.get("stop_sequences").is_none());
    assert_eq!(sent.dropped, ["stop"]);
}

#[test]
fn the_user_is_metadata_user_id_and_other_tags_are_dropped() {
    assert_eq!(hello(r#""user":"u1""#).json["metadata"], json!({"user_id": "u1"}));
    let sent = hello(r#""user":"u1","metadata":{"user_id":"m","team":"x"}"#);
    assert_eq!(sent.json["metadata"], json!({"user_id": "m"}));
    assert_eq!(sent.dropped, ["metadata"]);
}

#[test]
fn members_the_provider_knows_itself_pass_with_their_digits() {
    let sent = hello(
        r#""top_k":40,"cache_control":{"type":"ephemeral"},"service_tier":"auto",
           "context_management":{"x":1.0,"y":12345678901234567890}"#,
    );
    assert!(sent.dropped.is_empty(), "{:?}", sent.dropped);
    assert!(sent.text.contains(r#""context_management":{"x":1.0,"y":12345678901234567890}"#));
    assert_eq!(sent.json["service_tier"], "auto");
    assert_eq!(sent.json["top_k"], 40);
    assert_eq!(hello(r#""service_tier":"flex""#).dropped, ["service_tier"]);
}

#[test]
fn a_json_schema_is_output_config_format_and_keeps_its_digits() {
    let schema = r#"{"type":"object","properties":{"a":{"maximum":1.0}}}"#;
    let more = format!(
        r#""output_config":{{"effort":"low"}},
           "response_format":{{"type":"json_schema",
             "json_schema":{{"name":"n","schema":{schema}}}}}"#
    );
    let sent = hello(&more);
    let want = format!(
        r#""output_config":{{"effort":"low","format":{{"type":"json_schema","schema":{schema}}}}}"#
    );
    assert!(sent.text.contains(&want), "{}", sent.text);
    assert!(hello(r#""response_format":{"type":"text"}"#).json.get("output_config").is_none());
}

#[test]
fn a_json_object_is_asked_for_in_words() {
    let sent = hello(r#""response_format":{"type":"json_object"}"#);
    let text = sent.json["system"][0]["text"].as_str().unwrap();
    assert!(text.contains("JSON object"));
    assert!(sent.json.get("output_config").is_none() && sent.dropped.is_empty());
}

#[test]
fn params_work_on_the_members_that_the_provider_gets() {
    let mut params = Params::default();
    params.rename.insert("stop_sequences".into(), "halt".into());
    params.drop.push("top_k".into());
    params.defaults.insert("service_tier".into(), r#""auto""#.into());
    params.defaults.insert("temperature".into(), "0.5".into());
    params.clamp.insert("max_tokens".into(), (1.0, 100.0));
    let body = r#"{"messages":[{"role":"user","content":"hi"}],"stop":"x","top_k":4,
                   "max_tokens":400,"temperature":0.1,"seed":1}"#;
    let mut sent = sent(try_ask(body, &params, 0).unwrap());
    assert_eq!(sent.json["halt"], json!(["x"]));
    assert_eq!(sent.json["service_tier"], "auto");
    assert_eq!(sent.json["temperature"], 0.1);
    assert_eq!(sent.json["max_tokens"], 100);
    assert!(sent.json.get("top_k").is_none() && sent.json.get("stop_sequences").is_none());
    sent.dropped.sort();
    assert_eq!(sent.dropped, ["seed", "top_k"]);
}

#[test]
fn a_wrong_type_is_refused_with_the_path_of_its_member() {
    let refused = |body: &str| {
        let error = try_ask(body, &Params::default(), 0).unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{body}");
        error.param.unwrap_or_default()
    };
    let with = |more: &str| format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],{more}}}"#);
    for (body, param) in [
        (with(r#""temperature":"hot""#), "temperature"),
        (with(r#""stop":7"#), "stop"),
        (with(r#""tools":{}"#), "tools"),
        (with(r#""tools":[{"type":"function"}]"#), "tools[0].function"),
        (with(r#""tool_choice":"maybe""#), "tool_choice"),
        (with(r#""response_format":{"type":"xml"}"#), "response_format"),
        (r#"{"messages":[7]}"#.to_owned(), "messages[0]"),
        (r#"{"messages":[{"role":"wizard"}]}"#.to_owned(), "messages[0].role"),
        (r#"{"messages":[{"role":"user","content":7}]}"#.to_owned(), "messages[0].content"),
        (r#"{"messages":[{"role":"tool","content":"x"}]}"#.to_owned(), "messages[0].tool_call_id"),
    ] {
        assert_eq!(refused(&body), param, "{body}");
    }
}

#[test]
fn names_of_messages_are_dropped_and_named() {
    let sent = ask(r#"[{"role":"user","name":"bob","content":"hi"}]"#, "");
    assert_eq!(sent.dropped, ["messages.name"]);
}
