//! Tools, calls and results of a request.

use super::{ask, hello};
use serde_json::{Value, json};

const F: &str =
    r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#;

#[test]
fn a_schema_is_spliced_with_every_digit_and_always_an_object() {
    let sent = hello(
        r#""tools":[
            {"type":"function","function":{"name":"a","description":"d","parameters":
                {"type":"object","properties":{"x":{"const":12345678901234567890,"minimum":1.0}}}}},
            {"type":"function","function":{"name":"b"}},
            {"type":"function","function":{"name":"c","parameters":{"properties":{"y":{}}}}},
            {"type":"function","function":{"name":"d","parameters":{"type":["object","null"]}},
             "cache_control":{"type":"ephemeral"}}]"#,
    );
    assert!(
        sent.text.contains(
            r#"{"type":"object","properties":{"x":{"const":12345678901234567890,"minimum":1.0}}}"#
        ),
        "{}",
        sent.text
    );
    let tools = sent.json["tools"].as_array().unwrap();
    assert_eq!(tools[0]["description"], "d");
    assert_eq!(tools[1]["input_schema"], json!({"type": "object", "properties": {}}));
    assert_eq!(tools[2]["input_schema"], json!({"type": "object", "properties": {"y": {}}}));
    assert_eq!(tools[3]["input_schema"]["type"], "object");
    assert_eq!(tools[3]["cache_control"], json!({"type": "ephemeral"}));
    assert!(tools.iter().all(|tool| tool.get("type").is_none()));
}

#[test]
fn strict_and_foreign_tools_are_dropped_and_named_the_providers_own_pass() {
    let sent = hello(
        r#""tools":[{"type":"function","function":{"name":"a","strict":true}},
            {"type":"function","function":{"name":"b","strict":true}},
            {"type":"web_search_20250305","name":"web_search","max_uses":3},
            {"type":"custom","custom":{"name":"x"}}]"#,
    );
    let tools = sent.json["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 3);
    assert_eq!(tools[2]["type"], "web_search_20250305");
    assert_eq!(sent.dropped, ["tools.strict", "tools.custom"]);
}

#[test]
fn a_tool_choice_has_the_providers_word_and_carries_the_ban_on_parallel_calls() {
    let choice = |more: &str| hello(&format!("{F},{more}")).json["tool_choice"].clone();
    assert_eq!(choice(r#""seed":null"#), Value::Null);
    assert_eq!(choice(r#""tool_choice":"auto""#), json!({"type": "auto"}));
    assert_eq!(choice(r#""tool_choice":"none""#), json!({"type": "none"}));
    assert_eq!(choice(r#""tool_choice":"required""#), json!({"type": "any"}));
    let f = r#""tool_choice":{"type":"function","function":{"name":"f"}}"#;
    assert_eq!(choice(f), json!({"type": "tool", "name": "f"}));
    let alone = r#""parallel_tool_calls":false"#;
    let want = json!({"type": "auto", "disable_parallel_tool_use": true});
    assert_eq!(choice(alone), want);
    let want = json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true});
    assert_eq!(choice(&format!("{alone},{f}")), want);
    assert_eq!(choice(&format!(r#"{alone},"tool_choice":"none""#)), json!({"type": "none"}));
    assert_eq!(choice(r#""parallel_tool_calls":true"#), Value::Null);
}

#[test]
fn a_choice_without_tools_is_not_sent_and_named_only_if_it_meant_something() {
    let sent = hello(r#""tool_choice":"required""#);
    assert!(sent.json.get("tool_choice").is_none());
    assert_eq!(sent.dropped, ["tool_choice"]);
    assert!(hello(r#""tool_choice":"none","tools":[]"#).dropped.is_empty());
}

#[test]
fn tool_calls_follow_the_text_and_their_arguments_keep_every_digit() {
    let sent = ask(
        r#"[{"role":"user","content":"go"},
            {"role":"assistant","content":"ok","tool_calls":[
              {"id":"call_1","type":"function","function":{"name":"f",
               "arguments":"{\"n\": 12345678901234567890, \"x\": 1.0}"}},
              {"id":"call_2","type":"function","function":{"name":"g","arguments":"{\"cut"}},
              {"id":"call_3","type":"function","function":{"name":"h","arguments":""}},
              {"id":"call_4","type":"function","function":{"name":"i","arguments":"[1]"}}]},
            {"role":"tool","tool_call_id":"call_1","content":"done"}]"#,
        F,
    );
    assert!(sent.text.contains(r#""input":{"n":12345678901234567890,"x":1.0}"#), "{}", sent.text);
    let blocks = sent.json["messages"][1]["content"].as_array().unwrap();
    assert_eq!(blocks[0], json!({"type": "text", "text": "ok"}));
    assert_eq!(blocks[1]["name"], "f");
    for (block, name) in blocks[2..].iter().zip(["g", "h", "i"]) {
        assert_eq!((&block["name"], &block["input"]), (&json!(name), &json!({})));
    }
}

#[test]
fn adjacent_results_are_one_user_turn_before_any_text() {
    let sent = ask(
        r#"[{"role":"user","content":"go"},
            {"role":"assistant","content":null,"tool_calls":[
              {"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},
              {"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]},
            {"role":"user","content":"by the way"},
            {"role":"tool","tool_call_id":"a","content":"1"},
            {"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"2"},
              {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},
            {"role":"user","content":"thanks"}]"#,
        F,
    );
    let turns = sent.json["messages"].as_array().unwrap();
    assert_eq!(turns.len(), 3);
    let blocks = turns[2]["content"].as_array().unwrap();
    assert_eq!(blocks[0], json!({"type": "tool_result", "tool_use_id": "a", "content": "1"}));
    assert_eq!(blocks[1]["tool_use_id"], "b");
    assert_eq!(blocks[1]["content"][0], json!({"type": "text", "text": "2"}));
    assert_eq!(blocks[1]["content"][1]["type"], "image");
    assert_eq!(blocks[2]["text"], "by the way");
    assert_eq!(blocks[3]["text"], "thanks");
}

#[test]
fn ids_of_other_providers_are_made_to_fit_on_both_sides() {
    let sent = ask(
        r#"[{"role":"user","content":"go"},
            {"role":"assistant","tool_calls":[
              {"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"functions.f:0","content":""}]"#,
        F,
    );
    assert_eq!(sent.json["messages"][1]["content"][0]["id"], "functions_f_0");
    let result = &sent.json["messages"][2]["content"][0];
    assert_eq!(*result, json!({"type": "tool_result", "tool_use_id": "functions_f_0"}));
}
