//! Requests by rule.

use super::replay::drive::{self, Sent, refused};
use serde_json::{Value, json};
use weir_filters::wire::Wire;

const HI: &str = r#"[{"role":"user","content":"hi"}]"#;
const F: &str =
    r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#;

fn ask(messages: &str, more: &str) -> Sent {
    drive::ask(Wire::Ollama, "qwen3:4b", messages, more)
}

#[test]
fn a_stream_is_asked_for_or_declined_in_words() {
    let sent = ask(HI, "");
    let want = json!({"model": "qwen3:4b", "stream": false,
        "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!((sent.json, sent.path.as_str()), (want, "/api/chat"));
    assert_eq!(ask(HI, r#""stream":true"#).json["stream"], true);
}

#[test]
fn sampling_is_options() {
    let sent = ask(
        HI,
        r#""temperature":0.10,"top_p":0.5,"max_tokens":9,"stop":"a","seed":5,"top_k":40,
           "num_ctx":8192,"keep_alive":"5m","options":{"seed":1,"mirostat":2}"#,
    );
    let want = json!({"seed": 1, "mirostat": 2, "num_predict": 9, "temperature": 0.1,
        "top_p": 0.5, "stop": ["a"], "top_k": 40, "num_ctx": 8192});
    assert_eq!(sent.json["options"], want);
    assert_eq!(sent.json["keep_alive"], "5m");
    assert!(sent.text.contains("0.10") && sent.dropped.is_empty());
}

#[test]
fn what_has_no_place_is_named() {
    let more = format!(r#"{F},"n":2,"user":"u","logit_bias":{{}},"tool_choice":"required""#);
    let mut dropped = ask(HI, &more).dropped;
    dropped.sort();
    assert_eq!(dropped, ["logit_bias", "n", "tool_choice", "user"]);
    let none = ask(HI, &format!("{F},\"tool_choice\":\"none\""));
    assert!(none.dropped.is_empty() && none.json.get("tools").is_none());
}

#[test]
fn a_tool_loop_has_objects_for_arguments_and_names_for_results() {
    let sent = ask(
        r#"[{"role":"developer","content":"s"},{"role":"user","content":"go"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",
             "function":{"name":"f","arguments":"{\"x\": 1.0}"}}]},
            {"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"1"},
             {"type":"text","text":"2"}]}]"#,
        F,
    );
    let messages = &sent.json["messages"];
    assert_eq!(messages[0]["role"], "system");
    assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], json!({"x": 1.0}));
    let want = json!({"role": "tool", "content": "12", "tool_name": "f", "tool_call_id": "a"});
    assert_eq!(messages[3], want);
    assert_eq!(sent.json["tools"][0]["function"]["name"], "f");
}

#[test]
fn images_are_bare_base64_beside_the_text() {
    let image = |url: &str| {
        format!(
            r#"[{{"role":"user","content":[{{"type":"text","text":"see"}},
                {{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}]"#
        )
    };
    let sent = ask(&image("data:image/png;base64,AAAA"), "");
    let want = json!({"role": "user", "content": "see", "images": ["AAAA"]});
    assert_eq!(sent.json["messages"][0], want);
    let error = refused(Wire::Ollama, "m", &image("https://example.com/a.png"), "");
    assert_eq!(error.param.as_deref(), Some("messages[0].content[1]"));
}

#[test]
fn formats_and_efforts_have_their_own_words() {
    let of = |more: &str, name: &str| ask(HI, more).json[name].clone();
    assert_eq!(of(r#""response_format":{"type":"json_object"}"#, "format"), "json");
    let schema = r#""response_format":{"type":"json_schema","json_schema":{"schema":{"a":1}}}"#;
    assert_eq!(of(schema, "format"), json!({"a": 1}));
    assert_eq!(of(r#""reasoning_effort":"minimal""#, "think"), "low");
    assert_eq!(of(r#""reasoning_effort":"none""#, "think"), false);
    assert_eq!(of(r#""think":true,"reasoning_effort":"low""#, "think"), true);
    assert_eq!(of(r#""reasoning_effort":"odd""#, "think"), Value::Null);
}
