//! Tools, calls, results and signatures, there and back.

use super::replay::drive::{ask as ask_wire, refused};
use super::{MODEL, ask, hello, parts, stream};
use serde_json::{Value, json};
use weir_filters::wire::Wire;

const F: &str = r#""tools":[{"type":"function","function":{"name":"f","description":"d",
    "parameters":{"$schema":"x","type":"object","additionalProperties":false,
    "properties":{"n":{"type":["integer","null"],"minimum":1.0}}}}}]"#;

#[test]
fn a_schema_is_sent_with_every_digit_as_a_json_schema() {
    let sent = hello(F);
    let declared = &sent.json["tools"][0]["functionDeclarations"][0];
    assert_eq!((&declared["name"], &declared["description"]), (&json!("f"), &json!("d")));
    assert_eq!(declared["parametersJsonSchema"]["additionalProperties"], false);
    assert!(sent.text.contains(r#""minimum":1.0"#));
    assert!(sent.dropped.is_empty(), "{:?}", sent.dropped);
}

#[test]
fn a_tool_choice_has_the_providers_word() {
    let mode = |choice: &str| {
        let sent = hello(&format!("{F},\"tool_choice\":{choice}"));
        sent.json["toolConfig"]["functionCallingConfig"].clone()
    };
    assert_eq!(mode("\"auto\""), json!({"mode": "AUTO"}));
    assert_eq!(mode("\"none\""), json!({"mode": "NONE"}));
    assert_eq!(mode("\"required\""), json!({"mode": "ANY"}));
    let f = r#"{"type":"function","function":{"name":"f"}}"#;
    assert_eq!(mode(f), json!({"mode": "ANY", "allowedFunctionNames": ["f"]}));
    assert!(hello(F).json.get("toolConfig").is_none());
    assert_eq!(hello(r#""tool_choice":"required""#).dropped, ["tool_choice"]);
    let sent = hello(&format!("{F},\"parallel_tool_calls\":false"));
    assert_eq!(sent.dropped, ["parallel_tool_calls"]);
}

/// A tool loop with the ids that a reply gave.
fn looped(wire: Wire, model: &str, ids: [&str; 2]) -> Value {
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "ok", "tool_calls": [
            {"id": ids[0], "type": "function",
             "function": {"name": "f", "arguments": "{\"n\": 12345678901234567890}"}},
            {"id": ids[1], "type": "function", "function": {"name": "g", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": ids[1], "content": "two"},
        {"role": "tool", "tool_call_id": ids[0], "content": "{\"one\": 1.0}"},
        {"role": "user", "content": "and?"},
    ]);
    let sent = ask_wire(wire, model, &messages.to_string(), F);
    assert!(sent.text.contains("12345678901234567890") && sent.text.contains("1.0"));
    sent.json
}

#[test]
fn results_are_named_wrapped_and_in_the_order_of_their_calls() {
    let contents = looped(Wire::Vertex, MODEL, ["a", "b"])["contents"].clone();
    assert_eq!(contents.as_array().unwrap().len(), 3);
    assert_eq!(contents[1]["role"], "model");
    assert_eq!(contents[1]["parts"][0], json!({"text": "ok"}));
    assert_eq!(contents[1]["parts"][2], json!({"functionCall": {"name": "g", "args": {}}}));
    let parts = &contents[2]["parts"];
    let first = json!({"functionResponse": {"name": "f", "response": {"one": 1.0}}});
    assert_eq!(parts[0], first);
    let second = json!({"functionResponse": {"name": "g", "response": {"result": "two"}}});
    assert_eq!(parts[1], second);
    assert_eq!(parts[2], json!({"text": "and?"}));
}

#[test]
fn the_providers_own_ids_go_back_to_studio_alone() {
    let ids = |wire, id| {
        let sent = looped(wire, MODEL, [id, "call_2"]);
        let call = sent["contents"][1]["parts"][1]["functionCall"]["id"].clone();
        assert_eq!(call, sent["contents"][2]["parts"][0]["functionResponse"]["id"]);
        call
    };
    assert_eq!(ids(Wire::Gemini, "grBScFvZ"), "grBScFvZ");
    assert_eq!(ids(Wire::Gemini, "call_x"), Value::Null);
    assert_eq!(ids(Wire::Vertex, "grBScFvZ"), Value::Null);
}

#[test]
fn a_signature_survives_the_loop_inside_the_calls_id() {
    let call = r#"{"functionCall":{"name":"f","args":{}},"thoughtSignature":"aa+/=="}"#;
    let other = r#"{"functionCall":{"name":"g","args":{}}}"#;
    let chunk = parts(&format!("{call},{other}"), r#""finishReason":"STOP""#);
    let got = stream(&[&chunk], false);
    let tools = got.seen(false).choices[&0].tools.clone();
    assert!(tools[0].id.starts_with("call_t_0__thought__") && tools[1].id == "call_t_1");
    for model in [MODEL, "gemini-3-pro-preview"] {
        let back = looped(Wire::Gemini, model, [&tools[0].id, &tools[1].id]);
        let parts = &back["contents"][1]["parts"];
        assert_eq!(parts[1]["thoughtSignature"], "aa+/==");
        assert!(parts[1]["functionCall"].get("id").is_none());
        assert!(parts[2].get("thoughtSignature").is_none());
        assert_eq!(back["contents"][2]["parts"][0]["functionResponse"]["name"], "f");
    }
}

#[test]
fn a_call_without_its_signature_is_excused_where_one_is_needed() {
    let of = |model| looped(Wire::Gemini, model, ["a", "b"])["contents"][1]["parts"].clone();
    let parts = of("gemini-3.1-pro-preview");
    assert_eq!(parts[1]["thoughtSignature"], "skip_thought_signature_validator");
    assert!(parts[2].get("thoughtSignature").is_none());
    assert!(of(MODEL)[1].get("thoughtSignature").is_none());
}

#[test]
fn a_result_of_no_call_is_refused_with_its_place() {
    let messages = r#"[{"role":"user","content":"x"},
        {"role":"tool","tool_call_id":"nowhere","content":"y"}]"#;
    let error = refused(Wire::Gemini, MODEL, messages, "");
    assert_eq!(error.param.as_deref(), Some("messages[1].tool_call_id"));
}

#[test]
fn arguments_in_pieces_are_one_object_and_the_next_call_closes_the_last() {
    let chunks = [
        parts(r#"{"functionCall":{"name":"f","willContinue":true}}"#, ""),
        parts(
            r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x"},
            {"jsonPath":"$.b[0]","numberValue":1.0}],"willContinue":true}}"#,
            "",
        ),
        parts(r#"{"functionCall":{"name":"g"}}"#, r#""finishReason":"STOP""#),
    ];
    let got = stream(&[&chunks[0], &chunks[1], &chunks[2]], false);
    let tools = got.seen(false).choices[&0].tools.clone();
    assert_eq!(tools[0].arguments, r#"{"a":"x","b":[1.0]}"#);
    assert_eq!((tools[1].name.as_str(), tools[1].arguments.as_str()), ("g", "{}"));
}

#[test]
fn images_of_a_result_follow_it() {
    let sent = ask(
        r#"[{"role":"user","content":"go"},{"role":"assistant","tool_calls":[
            {"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"see"},
            {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]"#,
        F,
    );
    let parts = &sent.json["contents"][2]["parts"];
    assert_eq!(parts[0]["functionResponse"]["response"]["result"], "see");
    assert_eq!(parts[1], json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}));
}
