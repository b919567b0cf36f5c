//! Reasoning effort, thinking and its blocks in a request.

use super::{ask, hello};
use serde_json::{Value, json};

const F: &str = r#""tools":[{"type":"function","function":{"name":"f"}}]"#;

#[test]
fn an_effort_is_a_budget_of_at_least_1024_and_below_max_tokens() {
    let budget = |effort: &str, max: u64| {
        let sent = hello(&format!(r#""reasoning_effort":"{effort}","max_tokens":{max}"#));
        let dropped = sent.dropped == ["reasoning_effort"];
        assert_eq!(dropped, sent.json["thinking"].is_null() && effort != "none", "{effort} {max}");
        sent.json["thinking"]["budget_tokens"].as_u64()
    };
    assert_eq!(budget("low", 10_000), Some(2_000));
    assert_eq!(budget("medium", 10_000), Some(5_000));
    assert_eq!(budget("high", 10_000), Some(8_000));
    assert_eq!(budget("high", 128_000), Some(32_000));
    assert_eq!(budget("low", 2_000), Some(1_024));
    assert_eq!(budget("high", 1_024), None);
    assert_eq!(budget("high", 100), None);
    assert_eq!(budget("none", 10_000), None);
    let sent = hello(r#""reasoning_effort":"high""#);
    assert_eq!(sent.json["thinking"], json!({"type": "enabled", "budget_tokens": 3276}));
}

#[test]
fn sampling_is_dropped_while_thinking() {
    let sent = hello(r#""reasoning_effort":"high","temperature":0.3,"top_p":0.5,"top_k":3"#);
    assert!(["temperature", "top_p", "top_k"].iter().all(|name| sent.json.get(name).is_none()));
    assert_eq!(sent.dropped, ["temperature", "top_p", "top_k"]);
    let sent = hello(r#""thinking":{"type":"enabled","budget_tokens":2000},"temperature":0.3"#);
    assert_eq!(sent.dropped, ["temperature"]);
    let sent = hello(r#""thinking":{"type":"disabled"},"temperature":0.3"#);
    assert_eq!(sent.json["temperature"], 0.3);
}

#[test]
fn a_forced_tool_call_is_kept_and_the_effort_goes() {
    for choice in [r#""required""#, r#"{"type":"function","function":{"name":"f"}}"#] {
        let sent = hello(&format!(r#"{F},"tool_choice":{choice},"reasoning_effort":"high""#));
        assert!(sent.json.get("thinking").is_none());
        assert_eq!(sent.dropped, ["reasoning_effort"]);
    }
    let sent = hello(&format!(r#"{F},"tool_choice":"auto","reasoning_effort":"high""#));
    assert_eq!(sent.json["thinking"]["type"], "enabled");
}

#[test]
fn the_callers_own_thinking_wins_over_an_effort() {
    let sent = hello(r#""thinking":{"type":"adaptive"},"reasoning_effort":"high""#);
    assert_eq!(sent.json["thinking"], json!({"type": "adaptive"}));
    assert_eq!(sent.dropped, ["reasoning_effort"]);
}

fn tool_loop(blocks: &str) -> super::Sent {
    ask(
        &format!(
            r#"[{{"role":"user","content":"go"}},
                {{"role":"assistant","content":"ok","reasoning_content":"hm"{blocks},
                  "tool_calls":[{{"id":"a","type":"function",
                  "function":{{"name":"f","arguments":"{{}}"}}}}]}},
                {{"role":"tool","tool_call_id":"a","content":"1"}}]"#
        ),
        &format!(r#"{F},"reasoning_effort":"high""#),
    )
}

#[test]
fn thinking_blocks_come_back_unchanged_in_front_of_everything() {
    let sent = tool_loop(
        r#","thinking_blocks":[{"index":0,"type":"thinking","thinking":"h\u00e9 \"x\"",
            "signature":"c2ln+/="},
            {"type":"redacted_thinking","data":"ZGF0YQ"},
            {"type":"thinking","thinking":"unsealed"}]"#,
    );
    let blocks = sent.json["messages"][1]["content"].as_array().unwrap();
    let want = json!({"type": "thinking", "thinking": "hé \"x\"", "signature": "c2ln+/="});
    assert_eq!(blocks[0], want);
    assert_eq!(blocks[1], json!({"type": "redacted_thinking", "data": "ZGF0YQ"}));
    let kinds: Vec<_> = blocks[2..].iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "tool_use"]);
    assert_eq!(sent.json["thinking"]["type"], "enabled");
}

#[test]
fn a_tool_loop_without_its_blocks_goes_on_without_thinking() {
    let sent = tool_loop("");
    assert_eq!(sent.json.get("thinking"), None::<&Value>);
    assert_eq!(sent.dropped, ["reasoning_effort", "messages.reasoning_content"]);
}

#[test]
fn a_begun_answer_goes_on_without_thinking() {
    let sent = ask(
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]"#,
        r#""reasoning_effort":"high""#,
    );
    assert_eq!(sent.json.get("thinking"), None::<&Value>);
}

#[test]
fn thoughts_among_the_parts_go_back_where_they_are_sealed_and_away_where_not() {
    let sent = ask(
        r#"[{"role":"user","content":"go"},{"role":"assistant","content":[
            {"type":"thinking","thinking":[{"type":"text","text":"hm"}]},
            {"type":"thinking","thinking":"hm","signature":"s"},
            {"type":"text","text":"a"}]},{"role":"user","content":"on"}]"#,
        "",
    );
    let want = json!([{"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a"}]);
    assert_eq!(sent.json["messages"][1]["content"], want);
}

/// A request of a model by this name.
fn of_model(model: &str, more: &str) -> super::Sent {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{more}}}"#);
    super::sent(super::try_model(model, &body).unwrap())
}

#[test]
fn models_without_budgets_are_steered_by_an_effort() {
    let schema = r#""response_format":{"type":"json_schema","json_schema":{"schema":{}}}"#;
    let sent = of_model("claude-opus-4-7", &format!(r#"{schema},"reasoning_effort":"minimal""#));
    assert_eq!(sent.json["thinking"], json!({"type": "adaptive"}));
    let config = json!({"effort": "low", "format": {"type": "json_schema", "schema": {}}});
    assert_eq!(sent.json["output_config"], config);
    assert!(sent.dropped.is_empty());
    let forced = format!(r#"{F},"tool_choice":"required","reasoning_effort":"max""#);
    let sent = of_model("claude-sonnet-5", &forced);
    assert_eq!(sent.json.get("thinking"), None::<&Value>);
    assert_eq!(sent.json["output_config"], json!({"effort": "max"}));
    assert_eq!(sent.json["tool_choice"], json!({"type": "any"}));
    let own = r#""thinking":{"type":"between_tools"},"reasoning_effort":"high""#;
    assert_eq!(of_model("claude-sonnet-5-5", own).json["thinking"]["type"], "between_tools");
    assert!(of_model("claude-opus-5", r#""reasoning_effort":"none""#).dropped.is_empty());
    assert_eq!(
        of_model("claude-opus-5", r#""reasoning_effort":"x""#).dropped,
        ["reasoning_effort"]
    );
}

#[test]
fn models_without_sampling_are_sent_none() {
    let sent = of_model("claude-opus-5-5", r#""temperature":0.7,"top_p":0.9,"top_k":4"#);
    assert!(["temperature", "top_p", "top_k"].iter().all(|name| sent.json.get(name).is_none()));
    assert_eq!(sent.dropped, ["temperature", "top_p", "top_k"]);
    assert!(of_model("claude-opus-5-5", r#""temperature":1,"top_p":1.0"#).dropped.is_empty());
}

#[test]
fn a_choice_that_forces_a_call_is_auto_where_the_model_takes_no_other() {
    for choice in [r#""required""#, r#"{"type":"function","function":{"name":"f"}}"#] {
        let more = format!(r#"{F},"tool_choice":{choice},"parallel_tool_calls":false"#);
        let sent = of_model("claude-sonnet-5-5", &more);
        let want = json!({"type": "auto", "disable_parallel_tool_use": true});
        assert_eq!(sent.json["tool_choice"], want);
        assert_eq!(sent.dropped, ["tool_choice"]);
    }
}
