//! Requests by rule.

use super::replay::drive::{self, Sent, refused};
use serde_json::json;
use weir_filters::wire::Wire;

const HI: &str = r#"[{"role":"user","content":"hi"}]"#;
const F: &str =
    r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#;

fn ask(messages: &str, more: &str) -> Sent {
    drive::ask(Wire::Qianfan, "ERNIE-4.0-8K", messages, more)
}

#[test]
fn the_model_is_the_end_of_the_path() {
    for (model, path) in [
        ("ERNIE-4.0-8K", "/chat/completions_pro"),
        ("ERNIE-3.5-8K", "/chat/completions"),
        ("ERNIE-Speed-8K", "/chat/ernie_speed"),
        ("ERNIE-Speed-128K", "/chat/ernie-speed-128k"),
        ("completions_pro", "/chat/completions_pro"),
        ("my-service", "/chat/my_service"),
    ] {
        assert_eq!(drive::ask(Wire::Qianfan, model, HI, "").path, path);
    }
    let sent = ask(HI, "");
    assert_eq!(sent.json, json!({"messages": [{"role": "user", "content": "hi"}]}));
    assert_eq!(ask(HI, r#""stream":true"#).json["stream"], true);
}

#[test]
fn messages_take_turns_are_odd_and_system_text_stands_apart() {
    let sent = ask(
        r#"[{"role":"system","content":"a"},{"role":"assistant","content":"first"},
            {"role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":"y"}]},
            {"role":"developer","content":"b"},{"role":"assistant","content":"begun"}]"#,
        "",
    );
    assert_eq!(sent.json["system"], "a\nb");
    let said = sent.json["messages"].as_array().unwrap().iter();
    let said: Vec<_> =
        said.map(|m| (m["role"].as_str().unwrap(), m["content"].as_str().unwrap())).collect();
    let want = [
        ("user", "."),
        ("assistant", "first"),
        ("user", "x\ny"),
        ("assistant", "begun"),
        ("user", "."),
    ];
    assert_eq!(said, want);
}

#[test]
fn parallel_calls_are_taken_one_after_the_other() {
    let sent = ask(
        r#"[{"role":"user","content":"go"},{"role":"assistant","content":"ok","tool_calls":[
            {"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1.0}"}},
            {"id":"b","type":"function","function":{"name":"g","arguments":""}}]},
            {"role":"tool","tool_call_id":"b","content":"two"},
            {"role":"tool","tool_call_id":"a","content":"one"},
            {"role":"user","content":"and?"}]"#,
        F,
    );
    let want = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "ok",
         "function_call": {"name": "f", "arguments": "{\"x\": 1.0}"}},
        {"role": "function", "name": "f", "content": "one"},
        {"role": "assistant", "content": "", "function_call": {"name": "g", "arguments": "{}"}},
        {"role": "function", "name": "g", "content": "two\nand?"},
    ]);
    assert_eq!(sent.json["messages"], want);
    let lost =
        r#"[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"n","content":"y"}]"#;
    let error = refused(Wire::Qianfan, "m", lost, "");
    assert_eq!(error.param.as_deref(), Some("messages[1].tool_call_id"));
}

#[test]
fn an_id_that_is_used_again_has_a_result_each_time() {
    let round = r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function",
        "function":{"name":"f","arguments":"{}"}}]}"#;
    let result = |text: &str| format!(r#"{{"role":"tool","tool_call_id":"a","content":"{text}"}}"#);
    let messages = format!(
        r#"[{{"role":"user","content":"go"}},{round},{},{round},{}]"#,
        result("1"),
        result("2")
    );
    let sent = ask(&messages, F);
    let contents = [2, 4].map(|at| sent.json["messages"][at]["content"].clone());
    assert_eq!(contents, [json!("1"), json!("2")]);
}

#[test]
fn sampling_fits_its_range_and_what_has_no_place_is_named() {
    let sent = ask(
        HI,
        r#""temperature":0,"top_p":0.50,"max_tokens":9,"stop":["1","2","3","4","5"],"user":"u",
           "penalty_score":1.2,"seed":1,"n":2,"reasoning_effort":"high","logit_bias":{}"#,
    );
    let want = json!({"messages": [{"role": "user", "content": "hi"}], "temperature": 0.01,
        "top_p": 0.5, "max_output_tokens": 9, "stop": ["1", "2", "3", "4"], "user_id": "u",
        "penalty_score": 1.2});
    assert_eq!(sent.json, want);
    let mut dropped = sent.dropped;
    dropped.sort();
    assert_eq!(dropped, ["logit_bias", "n", "reasoning_effort", "seed", "stop"]);
    assert_eq!(ask(HI, r#""temperature":1.5"#).json["temperature"], 1);
}

#[test]
fn functions_and_the_choice_among_them() {
    let sent = ask(HI, F);
    let want = json!([{"name": "f", "description": "f", "parameters": {"type": "object"}}]);
    assert_eq!(sent.json["functions"], want);
    let choice = r#""tool_choice":{"type":"function","function":{"name":"f"}}"#;
    let sent = ask(HI, &format!("{F},{choice}"));
    assert_eq!(sent.json["tool_choice"]["function"]["name"], "f");
    let sent = ask(HI, &format!("{F},\"tool_choice\":\"required\""));
    assert_eq!(sent.dropped, ["tool_choice"]);
    let sent = ask(HI, &format!("{F},\"tool_choice\":\"none\""));
    assert!(sent.json.get("functions").is_none() && sent.dropped.is_empty());
}

#[test]
fn anything_but_text_is_refused_with_its_place() {
    let image = r#"[{"role":"user","content":[{"type":"text","text":"see"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]"#;
    let error = refused(Wire::Qianfan, "m", image, "");
    assert_eq!(error.param.as_deref(), Some("messages[0].content[1]"));
}
