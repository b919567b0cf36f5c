//! Requests by rule.

use super::replay::drive::{self, Sent, refused};
use serde_json::json;
use weir_filters::wire::Wire;

const HI: &str = r#"[{"role":"user","content":"hi"}]"#;
const F: &str = r#""tools":[{"type":"function","function":{"name":"f","strict":true,
    "parameters":{"type":"object"}}}]"#;

fn ask(messages: &str, more: &str) -> Sent {
    drive::ask(Wire::DashScope, "qwen-plus", messages, more)
}

#[test]
fn messages_are_input_and_the_rest_parameters() {
    let sent = ask(
        HI,
        r#""temperature":0.10,"top_p":0.5,"max_tokens":9,"stop":"a","seed":5,"top_k":40,
           "enable_search":true,"reasoning_effort":"none","response_format":{"type":"json_object"}"#,
    );
    let want = json!({"model": "qwen-plus", "input": {"messages": [{"role": "user", "content": "hi"}]},
        "parameters": {"result_format": "message", "temperature": 0.1, "top_p": 0.5,
        "max_tokens": 9, "stop": ["a"], "seed": 5, "top_k": 40, "enable_search": true,
        "enable_thinking": false, "response_format": {"type": "json_object"}}});
    assert_eq!(sent.json, want);
    assert!(sent.text.contains("0.10") && sent.dropped.is_empty());
    assert_eq!(sent.path, "/services/aigc/text-generation/generation");
}

#[test]
fn a_stream_is_asked_for_in_increments() {
    let sent = ask(HI, r#""stream":true"#);
    assert_eq!(sent.json["parameters"]["incremental_output"], true);
    assert_eq!(ask(HI, "").json["parameters"].get("incremental_output"), None);
}

#[test]
fn what_has_no_place_is_named() {
    let more = format!(r#"{F},"n":2,"user":"u","logit_bias":{{}},"tool_choice":"required""#);
    let mut dropped = ask(HI, &more).dropped;
    dropped.sort();
    assert_eq!(dropped, ["logit_bias", "n", "tool_choice", "tools.strict", "user"]);
    let choice = r#""tool_choice":{"type":"function","function":{"name":"f"}}"#;
    let sent = ask(HI, &format!("{F},{choice}"));
    let want = json!({"type": "function", "function": {"name": "f"}});
    assert_eq!(sent.json["parameters"]["tool_choice"], want);
}

#[test]
fn a_tool_loop_keeps_its_shape() {
    let sent = ask(
        r#"[{"role":"developer","content":"s"},{"role":"user","content":"go"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",
             "function":{"name":"f","arguments":"{\"x\": 1.0}"}}]},
            {"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"1"},
             {"type":"text","text":"2"}]}]"#,
        F,
    );
    let messages = &sent.json["input"]["messages"];
    assert_eq!(messages[0]["role"], "system");
    let function = json!({"name": "f", "arguments": "{\"x\": 1.0}"});
    let call = json!({"id": "a", "type": "function", "index": 0, "function": function});
    assert_eq!(messages[2], json!({"role": "assistant", "content": "", "tool_calls": [call]}));
    assert_eq!(messages[3], json!({"role": "tool", "content": "12", "tool_call_id": "a"}));
}

#[test]
fn images_go_to_the_models_that_see() {
    let sent = ask(
        r#"[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"what"},
            {"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]"#,
        "",
    );
    assert_eq!(sent.path, "/services/aigc/multimodal-generation/generation");
    let messages = &sent.json["input"]["messages"];
    assert_eq!(messages[0]["content"], json!([{"text": "s"}]));
    assert_eq!(messages[1]["content"], json!([{"text": "what"}, {"image": "https://x/y.png"}]));
    let audio = r#"[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]"#;
    let error = refused(Wire::DashScope, "qwen-plus", audio, "");
    assert_eq!(error.param.as_deref(), Some("messages[0].content[0]"));
}
