//! Requests by rule.

use super::replay::drive::{self, Sent, refused};
use serde_json::{Value, json};
use weir_filters::wire::Wire;

const HI: &str = r#"[{"role":"user","content":"hi"}]"#;
const F: &str = r#""tools":[{"type":"function","function":{"name":"f","strict":true,
    "parameters":{"type":"object"}}}]"#;

fn ask(messages: &str, more: &str) -> Sent {
    drive::ask(Wire::Cohere, "command-a-03-2025", messages, more)
}

#[test]
fn members_have_cohere_names_and_ranges() {
    let sent = ask(
        HI,
        r#""temperature":1.5,"top_p":1,"max_tokens":9,"stop":"a","seed":5,"top_k":40,
           "frequency_penalty":0.10,"safety_mode":"NONE","stream":true"#,
    );
    let want = json!({"model": "command-a-03-2025", "stream": true, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]}], "temperature": 1,
        "p": 0.99, "max_tokens": 9, "stop_sequences": ["a"], "seed": 5, "k": 40,
        "frequency_penalty": 0.1, "safety_mode": "NONE"});
    assert_eq!(sent.json, want);
    // 0.99 is as good as 1, while 1 is not what 1.5 asked for.
    assert_eq!((sent.path.as_str(), sent.dropped), ("/chat", vec!["temperature".to_owned()]));
    assert_eq!(ask(HI, "").json["stream"], false);
}

#[test]
fn what_has_no_place_is_named() {
    let mut dropped = ask(HI, r#""user":"u","n":2,"logit_bias":{},"metadata":{}"#).dropped;
    dropped.sort();
    assert_eq!(dropped, ["logit_bias", "metadata", "n", "user"]);
}

#[test]
fn a_tool_loop_keeps_its_shape() {
    let sent = ask(
        r#"[{"role":"developer","content":"s"},{"role":"user","content":"go"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",
             "function":{"name":"f","arguments":"cut"}}]},
            {"role":"tool","tool_call_id":"a","content":"1"}]"#,
        F,
    );
    let messages = &sent.json["messages"];
    assert_eq!(messages[0]["role"], "system");
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    assert_eq!(messages[2], json!({"role": "assistant", "tool_calls": [call]}));
    let result = json!({"role": "tool", "tool_call_id": "a", "content": [
        {"type": "text", "text": "1"}]});
    assert_eq!(messages[3], result);
    assert_eq!(sent.json["tools"][0]["function"]["parameters"], json!({"type": "object"}));
    assert_eq!(sent.json["strict_tools"], true);
}

#[test]
fn a_tool_choice_is_required_or_none() {
    let choice = |choice: &str| {
        let sent = ask(HI, &format!("{F},\"tool_choice\":{choice}"));
        (sent.json["tool_choice"].clone(), sent.dropped)
    };
    assert_eq!(choice("\"auto\""), (Value::Null, vec![]));
    assert_eq!(choice("\"none\""), ("NONE".into(), vec![]));
    assert_eq!(choice("\"required\""), ("REQUIRED".into(), vec![]));
    let f = r#"{"type":"function","function":{"name":"f"}}"#;
    assert_eq!(choice(f), ("REQUIRED".into(), vec!["tool_choice.function".to_owned()]));
    assert_eq!(ask(HI, r#""tool_choice":"required""#).dropped, ["tool_choice"]);
}

#[test]
fn formats_and_thinking() {
    let of = |more: &str, name: &str| ask(HI, more).json[name].clone();
    let schema = r#""response_format":{"type":"json_schema","json_schema":{"schema":{"a":1}}}"#;
    let want = json!({"type": "json_object", "json_schema": {"a": 1}});
    assert_eq!(of(schema, "response_format"), want);
    let thinking = |more: &str| of(more, "thinking");
    assert_eq!(thinking(r#""reasoning_effort":"none""#), json!({"type": "disabled"}));
    assert_eq!(thinking(r#""reasoning_effort":"high""#), json!({"type": "enabled"}));
    let native = r#""thinking":{"type":"enabled","budget_tokens":100}"#;
    assert_eq!(thinking(native), json!({"type": "enabled", "token_budget": 100}));
    assert_eq!(ask(HI, r#""thinking":3"#).dropped, ["thinking"]);
}

#[test]
fn images_pass_and_files_are_refused() {
    let part = |part: &str| format!(r#"[{{"role":"user","content":[{part}]}}]"#);
    for url in ["data:image/png;base64,AAAA", "https://example.com/a.png"] {
        let image = format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
        let sent = ask(&part(&image), "");
        assert_eq!(sent.json["messages"][0]["content"][0]["image_url"]["url"], url);
    }
    for bad in [
        r#"{"type":"image_url","image_url":{"url":"file:///a"}}"#,
        r#"{"type":"file","file":{"file_data":"AAAA"}}"#,
        r#"{"type":"input_audio","input_audio":{}}"#,
    ] {
        let error = refused(Wire::Cohere, "m", &part(bad), "");
        assert_eq!(error.param.as_deref(), Some("messages[0].content[0]"));
    }
}
