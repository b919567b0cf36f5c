//! Requests by rule.

use super::replay::drive::refused;
use super::{CLAUDE, ask, hello};
use serde_json::{Value, json};
use weir_filters::wire::Wire;

const NOVA: &str = "amazon.nova-pro-v1:0";
const LLAMA: &str = "meta.llama3-8b-instruct-v1:0";
const F: &str =
    r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#;

#[test]
fn the_model_is_one_segment_of_the_path() {
    assert_eq!(hello("a.b-v1:0", "").path, "/model/a.b-v1%3A0/converse");
    let arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.x";
    let path = hello(arn, r#""stream":true"#).path;
    let want =
        "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/converse-stream";
    assert_eq!(path, want);
}

#[test]
fn system_text_stands_apart_and_one_side_speaks_in_one_turn() {
    let sent = ask(
        CLAUDE,
        r#"[{"role":"system","content":"s"},{"role":"assistant","content":"first"},
            {"role":"user","content":"x"},{"role":"user","content":[{"type":"text","text":" "},
            {"type":"text","text":"y"}]},{"role":"assistant","content":"begun \n"}]"#,
        "",
    );
    assert_eq!(sent.json["system"], json!([{"text": "s"}]));
    let want = json!([
        {"role": "user", "content": [{"text": "."}]},
        {"role": "assistant", "content": [{"text": "first"}]},
        {"role": "user", "content": [{"text": "x"}, {"text": "y"}]},
        {"role": "assistant", "content": [{"text": "begun"}]},
    ]);
    assert_eq!(sent.json["messages"], want);
    assert!(sent.json.get("stream").is_none() && sent.json.get("model").is_none());
}

#[test]
fn sampling_is_inference_config_and_fits_its_range() {
    let more = r#""temperature":1.5,"top_p":0.50,"max_completion_tokens":9,"stop":["a"," "]"#;
    let sent = hello(NOVA, more);
    let want = json!({"maxTokens": 9, "temperature": 1, "topP": 0.5, "stopSequences": ["a"]});
    assert_eq!(sent.json["inferenceConfig"], want);
    assert!(sent.text.contains("0.50"));
    assert_eq!(sent.dropped, ["temperature", "stop"]);
    // Claude takes one of the two.
    let sent = hello(CLAUDE, r#""temperature":0.5,"top_p":0.5"#);
    assert_eq!(sent.json["inferenceConfig"], json!({"temperature": 0.5}));
    assert_eq!(sent.dropped, ["top_p"]);
}

#[test]
fn what_has_no_place_is_named() {
    let more = r#""user":"u","n":2,"seed":1,"logit_bias":{},"top_k":5,"stop":" ",
        "metadata":{"a":"b"},"guardrailConfig":{"guardrailIdentifier":"g"},
        "additionalModelRequestFields":{"x":1}"#;
    let sent = hello(LLAMA, more);
    let mut dropped = sent.dropped;
    dropped.sort();
    assert_eq!(dropped, ["logit_bias", "metadata", "n", "seed", "stop", "top_k", "user"]);
    assert_eq!(sent.json["guardrailConfig"]["guardrailIdentifier"], "g");
    assert_eq!(sent.json["additionalModelRequestFields"], json!({"x": 1}));
    let top_k = hello(NOVA, r#""top_k":5"#).json["additionalModelRequestFields"].clone();
    assert_eq!(top_k, json!({"inferenceConfig": {"topK": 5}}));
}

#[test]
fn tools_and_the_choice_among_them() {
    let choice = |choice: &str| {
        let sent = hello(CLAUDE, &format!("{F},\"tool_choice\":{choice}"));
        sent.json["toolConfig"]["toolChoice"].clone()
    };
    assert_eq!(choice("\"auto\""), json!({"auto": {}}));
    assert_eq!(choice("\"required\""), json!({"any": {}}));
    let f = r#"{"type":"function","function":{"name":"f"}}"#;
    assert_eq!(choice(f), json!({"tool": {"name": "f"}}));
    let sent = hello(CLAUDE, F);
    let spec = json!({"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}});
    assert_eq!(sent.json["toolConfig"], json!({"tools": [spec]}));
    // Without a history no tools are the same as "none".
    let sent = hello(CLAUDE, &format!("{F},\"tool_choice\":\"none\""));
    assert!(sent.json.get("toolConfig").is_none() && sent.dropped.is_empty());
    let bare = r#""tools":[{"type":"function","function":{"name":"f"}}],
        "parallel_tool_calls":false"#;
    let sent = hello(CLAUDE, bare);
    let schema = &sent.json["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"];
    assert_eq!(*schema, json!({"type": "object", "properties": {}}));
    assert_eq!(sent.dropped, ["parallel_tool_calls"]);
}

fn looped(id: &str, more: &str) -> super::Sent {
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function",
             "function": {"name": "f", "arguments": "{\"n\": 12345678901234567890}"}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "cut"}}]},
        {"role": "user", "content": "by the way"},
        {"role": "tool", "tool_call_id": id, "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
    ]);
    ask(CLAUDE, &messages.to_string(), more)
}

#[test]
fn results_stand_in_one_user_turn_before_any_text() {
    let sent = looped("a", F);
    assert!(sent.text.contains("12345678901234567890"));
    let turns = sent.json["messages"].as_array().unwrap();
    assert_eq!(turns.len(), 3);
    assert_eq!(turns[1]["content"][1]["toolUse"]["input"], json!({}));
    let blocks = &turns[2]["content"];
    let first = json!({"toolResult": {"toolUseId": "a", "content": [{"text": "one"}]}});
    assert_eq!(blocks[0], first);
    let image = json!({"image": {"format": "png", "source": {"bytes": "AAAA"}}});
    assert_eq!(blocks[1]["toolResult"]["content"][1], image);
    assert_eq!(blocks[2], json!({"text": "by the way"}));
}

#[test]
fn a_history_with_calls_always_has_its_tools() {
    let tools = |sent: &super::Sent| {
        let tools = sent.json["toolConfig"]["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["toolSpec"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(tools(&looped("a", "")), ["f", "g"]);
    let none = looped("a", &format!("{F},\"tool_choice\":\"none\""));
    assert_eq!(tools(&none), ["f"]);
    assert_eq!(none.dropped, ["tool_choice", "messages.tool_calls.function.arguments"]);
}

#[test]
fn ids_of_other_providers_are_made_to_fit_on_both_sides() {
    let long = format!("call_x__thought__{}", "aB+/=".repeat(200));
    let ids = [long.clone(), format!("{long}2"), "functions.f:0".into(), "a b".into(), "".into()];
    let mut seen = std::collections::HashSet::new();
    for id in &ids {
        let sent = looped(id, F);
        let given = sent.json["messages"][1]["content"][0]["toolUse"]["toolUseId"].clone();
        assert_eq!(given, sent.json["messages"][2]["content"][0]["toolResult"]["toolUseId"]);
        let text = given.as_str().unwrap();
        assert!((1..=64).contains(&text.len()), "{text}");
        assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c)), "{text}");
        assert!(seen.insert(text.to_owned()), "{text} twice");
    }
    assert!(seen.contains("functions.f:0"));
}

#[test]
fn cache_marks_are_points_where_the_model_takes_them() {
    let messages = r#"[{"role":"system","content":[{"type":"text","text":"s",
        "cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"x",
        "cache_control":{"type":"ephemeral","ttl":"1h"}}]"#;
    let sent = ask(CLAUDE, messages, "");
    let point = json!({"cachePoint": {"type": "default"}});
    assert_eq!(sent.json["system"], json!([{"text": "s"}, point]));
    let long = json!({"cachePoint": {"type": "default", "ttl": "1h"}});
    assert_eq!(sent.json["messages"][0]["content"][1], long);
    let sent = ask(LLAMA, messages, "");
    assert_eq!(sent.dropped, ["messages.cache_control"]);
    assert!(!sent.text.contains("cachePoint"));
}

#[test]
fn images_and_documents_are_bytes_with_their_format() {
    let part = |part: &str| {
        let messages = format!(r#"[{{"role":"user","content":[{part}]}}]"#);
        ask(CLAUDE, &messages, "").json["messages"][0]["content"][0].clone()
    };
    let image = |url: &str| format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
    let want = json!({"image": {"format": "jpeg", "source": {"bytes": "AAAA"}}});
    assert_eq!(part(&image("data:image/jpg;base64,AAAA")), want);
    let s3 = &part(&image("s3://b/a.webp"))["image"];
    assert_eq!(*s3, json!({"format": "webp", "source": {"s3Location": {"uri": "s3://b/a.webp"}}}));
    let file = r#"{"type":"file","file":{"file_data":"AAAA","filename":"my_r\u00e9port  1.pdf"}}"#;
    let document = &part(file)["document"];
    assert_eq!(
        (&document["format"], &document["name"]),
        (&json!("pdf"), &json!("my r port 1 0-0"))
    );
    let csv = r#"{"type":"file","file":{"file_data":"data:text/csv;base64,AAAA"}}"#;
    assert_eq!(part(csv)["document"]["format"], "csv");
    let picture = r#"{"type":"file","file":{"file_data":"data:image/png;base64,AAAA"}}"#;
    assert_eq!(part(picture)["image"]["format"], "png");
    for bad in [
        &image("https://example.com/a.png"),
        &image("data:image/tiff;base64,AAAA"),
        &image("data:image/png,AAAA"),
        r#"{"type":"file","file":{"file_id":"x"}}"#,
        r#"{"type":"file","file":{"file_data":"https://example.com/a.pdf"}}"#,
        r#"{"type":"file","file":{"file_data":"data:video/mp4;base64,AAAA"}}"#,
        r#"{"type":"input_audio","input_audio":{}}"#,
    ] {
        let messages = format!(r#"[{{"role":"user","content":[{bad}]}}]"#);
        let error = refused(Wire::Bedrock, CLAUDE, &messages, "");
        assert_eq!(error.param.as_deref(), Some("messages[0].content[0]"), "{bad}");
    }
}

#[test]
fn a_format_is_asked_for_in_words() {
    let schema = r#""response_format":{"type":"json_schema","json_schema":{"schema":{"a":1.0}}}"#;
    let sent = hello(CLAUDE, schema);
    assert!(sent.json["system"][0]["text"].as_str().unwrap().contains(r#"{"a":1.0}"#));
    assert_eq!(sent.dropped, ["response_format.json_schema"]);
    let sent = hello(CLAUDE, r#""response_format":{"type":"json_object"}"#);
    assert!(sent.json["system"][0]["text"].is_string() && sent.dropped.is_empty());
    assert_eq!(hello(CLAUDE, r#""response_format":{"type":"text"}"#).json["system"], Value::Null);
}
