//! Requests by rule.

use super::replay::drive::{ask as ask_wire, refused, sent, try_ask};
use super::{MODEL, ask, hello};
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::peek;
use weir_filters::wire::{Ask, Params, Quirks, Wire};

const HI: &str = r#"[{"role":"user","content":"hi"}]"#;

#[test]
fn the_model_and_the_method_are_in_the_path() {
    let path = |model: &str, more: &str| ask_wire(Wire::Gemini, model, HI, more).path;
    assert_eq!(path("gemini-x", ""), "/models/gemini-x:generateContent");
    let stream = r#""stream":true,"stream_options":{"include_usage":true}"#;
    assert_eq!(path("gemini-x", stream), "/models/gemini-x:streamGenerateContent?alt=sse");
    assert_eq!(path("models/a b", ""), "/models/a%20b:generateContent");
    assert_eq!(path("tunedModels/a", ""), "/tunedModels/a:generateContent");
    let vertex = ask_wire(Wire::Vertex, "gemini-x", HI, stream).path;
    let want = "/publishers/google/models/gemini-x:streamGenerateContent?alt=sse";
    assert_eq!(vertex, want);
    let sent = hello(stream);
    assert!(sent.json.get("stream").is_none() && sent.json.get("model").is_none());
    assert!(sent.dropped.is_empty());
}

#[test]
fn a_publisher_in_the_base_url_is_not_named_twice() {
    let body = format!(r#"{{"model":"m","messages":{HI}}}"#);
    let peek = peek::chat(Bytes::from(body)).unwrap();
    let (quirks, params) = (Quirks::default(), Params::default());
    let base_url = "/v1/projects/p/locations/l/publishers/google";
    let (model, max_output, api_version) = ("gemini-x", 0, None);
    let ask = Ask {
        peek: &peek,
        model,
        quirks: &quirks,
        params: &params,
        max_output,
        base_url,
        api_version,
    };
    let path = Wire::Vertex.request(&ask).unwrap().path;
    assert_eq!(path, "/models/gemini-x:generateContent");
}

#[test]
fn system_text_stands_apart_and_one_side_speaks_in_one_turn() {
    let sent = ask(
        r#"[{"role":"system","content":"a"},{"role":"user","content":"x"},
            {"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"y"}]},
            {"role":"developer","content":"b"},{"role":"assistant","content":"z"}]"#,
        "",
    );
    assert_eq!(sent.json["systemInstruction"]["parts"], json!([{"text": "a"}, {"text": "b"}]));
    let want = json!([
        {"role": "user", "parts": [{"text": "x"}, {"text": "y"}]},
        {"role": "model", "parts": [{"text": "z"}]},
    ]);
    assert_eq!(sent.json["contents"], want);
}

#[test]
fn the_first_turn_is_the_users() {
    for messages in
        [r#"[{"role":"system","content":"a"}]"#, r#"[{"role":"assistant","content":"a"}]"#]
    {
        let sent = ask(messages, "");
        let first = json!({"role": "user", "parts": [{"text": "."}]});
        assert_eq!(sent.json["contents"][0], first);
    }
}

#[test]
fn sampling_is_generation_config() {
    let sent = hello(
        r#""temperature":0.70,"top_p":0.5,"max_completion_tokens":9,"stop":["a","b"],"n":2,
           "seed":5,"presence_penalty":0.1,"frequency_penalty":0.2,"top_k":40"#,
    );
    let want = json!({
        "temperature": 0.7, "topP": 0.5, "maxOutputTokens": 9, "stopSequences": ["a", "b"],
        "candidateCount": 2, "seed": 5, "presencePenalty": 0.1, "frequencyPenalty": 0.2, "topK": 40,
    });
    assert_eq!(sent.json["generationConfig"], want);
    assert!(sent.text.contains("0.70") && sent.dropped.is_empty());
    assert!(hello("").json.get("generationConfig").is_none());
    assert_eq!(hello(r#""temperature":3"#).json["generationConfig"]["temperature"], 2);
}

#[test]
fn what_has_no_place_is_named() {
    let sent = hello(
        r#""user":"u","logit_bias":{},"logprobs":true,"top_logprobs":2,"store":true,
           "metadata":{"a":"b"},"stop":["1","2","3","4","5","6"]"#,
    );
    let mut dropped = sent.dropped;
    dropped.sort();
    let want = ["logit_bias", "logprobs", "metadata", "stop", "store", "top_logprobs", "user"];
    assert_eq!(dropped, want);
    let sent = ask(
        r#"[{"role":"user","name":"n","content":[{"type":"text","text":"a",
            "cache_control":{"type":"ephemeral"}}]}]"#,
        r#""safetySettings":[]"#,
    );
    assert_eq!(sent.dropped, ["messages.name", "messages.cache_control"]);
    assert_eq!(sent.json["safetySettings"], json!([]));
}

#[test]
fn a_format_is_a_type_and_a_schema() {
    let config = |format: &str| {
        hello(&format!("\"response_format\":{format}")).json["generationConfig"].clone()
    };
    let kind = json!({"responseMimeType": "application/json"});
    assert_eq!(config(r#"{"type":"json_object"}"#), kind);
    assert_eq!(config(r#"{"type":"text"}"#), Value::Null);
    let schema = r#"{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}"#;
    assert_eq!(config(schema)["responseJsonSchema"], json!({"type": "object"}));
}

#[test]
fn an_effort_is_a_budget_or_a_level_by_the_models_generation() {
    let config = |model: &str, more: &str| {
        let sent = ask_wire(Wire::Gemini, model, HI, more);
        (sent.json["generationConfig"]["thinkingConfig"].clone(), sent.dropped)
    };
    let high = r#""reasoning_effort":"high""#;
    let none = r#""reasoning_effort":"none""#;
    let (budget, dropped) = config("gemini-2.5-flash", high);
    assert_eq!(budget, json!({"thinkingBudget": 24576, "includeThoughts": true}));
    assert!(dropped.is_empty());
    let off = json!({"thinkingBudget": 0, "includeThoughts": false});
    assert_eq!(config("gemini-2.5-flash", none).0, off);
    assert_eq!(config("gemini-2.5-pro", none).0["thinkingBudget"], 128);
    assert_eq!(config("up-model", high).0["thinkingBudget"], 24576);
    let level = json!({"thinkingLevel": "high", "includeThoughts": true});
    assert_eq!(config("gemini-3-pro-preview", high).0, level);
    assert_eq!(config("models/gemini-3.1-flash", none).0["thinkingLevel"], "low");
    let (gone, dropped) = config("gemini-2.0-flash", high);
    assert_eq!((gone, dropped), (Value::Null, vec!["reasoning_effort".to_owned()]));
    let native = r#""thinking":{"type":"enabled","budget_tokens":2000}"#;
    assert_eq!(config("gemini-2.5-flash", native).0["thinkingBudget"], 2000);
    let adaptive = r#""thinking":{"type":"adaptive"}"#;
    assert_eq!(config("gemini-2.5-flash", adaptive).0["thinkingBudget"], -1);
    let unknown = r#""reasoning_effort":"odd""#;
    assert_eq!(config("gemini-2.5-flash", unknown).1, ["reasoning_effort"]);
}

#[test]
fn media_is_inline_or_at_an_address_that_the_provider_fetches() {
    let part = |wire, part: &str| {
        let messages = format!(r#"[{{"role":"user","content":[{part}]}}]"#);
        ask_wire(wire, MODEL, &messages, "").json["contents"][0]["parts"][0].clone()
    };
    let image = |url: &str| format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
    let inline = json!({"inlineData": {"mimeType": "image/jpeg", "data": "AAAA"}});
    assert_eq!(part(Wire::Gemini, &image("data:image/jpg;base64,AAAA")), inline);
    let web = image("https://example.com/a.webp?x");
    let want = json!({"mimeType": "image/webp", "fileUri": "https://example.com/a.webp?x"});
    for wire in [Wire::Vertex, Wire::Gemini] {
        assert_eq!(part(wire, &web)["fileData"], want);
    }
    assert_eq!(part(Wire::Gemini, &image("gs://b/a.png"))["fileData"]["mimeType"], "image/png");
    let video = json!({"fileUri": "https://youtu.be/x"});
    assert_eq!(part(Wire::Gemini, &image("https://youtu.be/x"))["fileData"], video);
    let file = r#"{"type":"file","file":{"file_data":"AAAA","filename":"a.csv"}}"#;
    assert_eq!(part(Wire::Gemini, file)["inlineData"]["mimeType"], "text/csv");
    let sound = r#"{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}}"#;
    assert_eq!(part(Wire::Gemini, sound)["inlineData"]["mimeType"], "audio/mpeg");
    // An older model: AI Studio fetches nothing from the web for it.
    let refuse = |part: &str| {
        let messages = format!(r#"[{{"role":"user","content":[{part}]}}]"#);
        refused(Wire::Gemini, "gemini-2.0-flash", &messages, "").param.unwrap()
    };
    for bad in [
        &web,
        &image("data:image/png,AAAA"),
        r#"{"type":"file","file":{"file_id":"file-1"}}"#,
        r#"{"type":"input_audio","input_audio":{}}"#,
        r#"{"type":"video_url","video_url":{}}"#,
    ] {
        assert_eq!(refuse(bad), "messages[0].content[0]", "{bad}");
    }
}

#[test]
fn params_work_on_the_providers_members() {
    let drop = vec!["generationConfig".to_owned()];
    let params = Params { drop, ..Params::default() };
    let body = format!(r#"{{"model":"m","messages":{HI},"temperature":1}}"#);
    let sent = sent(try_ask(Wire::Gemini, MODEL, &body, &params).unwrap());
    assert!(sent.json.get("generationConfig").is_none());
    assert_eq!(sent.dropped, ["generationConfig"]);
}
