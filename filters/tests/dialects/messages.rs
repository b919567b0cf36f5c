//! Messages: the request as a chat, and the events of its answer.

use super::replay::{cases, messages};
use super::{To, chunks, context, filter, hello, more, start};
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::dialect::Api;
use weir_filters::error::Code;
use weir_filters::wire::{Quirks, Wire};

fn to_chat(body: &Value) -> (Value, Vec<String>) {
    let (sent, dropped, _) = To::new(Wire::OpenAi).ask(Api::Messages, body);
    (sent, dropped)
}

fn with(member: &str, value: Value) -> Value {
    let mut body = hello(Api::Messages);
    body[member] = value;
    body
}

#[test]
fn claude_code_s_requests_become_chats_without_its_billing_header() {
    for case in cases("anthropic-messages").iter().filter(|c| c.provider == "inbound_claude_code") {
        let body = case.request.clone().unwrap();
        let (sent, dropped) = to_chat(&body);
        let text = sent.to_string();
        assert!(!text.contains("x-anthropic-billing-header"), "{}", case.id);
        assert!(!text.contains("cache_control"), "{}", case.id);
        assert_eq!(
            dropped,
            ["cache_control", "context_management", "metadata.user_id", "thinking"]
        );
        let tools = sent["tools"].as_array().unwrap();
        assert_eq!(tools.len(), body["tools"].as_array().unwrap().len());
        let roles: Vec<_> =
            sent["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
        assert_eq!(roles[..2], ["system", "user"]);
        if case.id.ends_with("after-tool-result") {
            assert_eq!(roles[2..], ["assistant", "tool"]);
            assert_eq!(sent["messages"][3]["tool_call_id"], "toolu_1");
            let arguments = &sent["messages"][2]["tool_calls"][0]["function"]["arguments"];
            assert_eq!(arguments, r#"{"file_path":"/etc/hostname"}"#);
        }
    }
}

#[test]
fn results_stand_before_what_the_user_says_and_pictures_after_them() {
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png",
                         "data": "AAAA"}});
    let body = with(
        "messages",
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "text", "text": "look: "},
                {"type": "tool_use", "id": "t1", "name": "shot", "input": {"n": 1.0}},
                {"type": "tool_use", "id": "t2", "name": "shot", "input": {}}]},
            {"role": "user", "content": [{"type": "text", "text": "well?"},
                {"type": "tool_result", "tool_use_id": "t1",
                 "content": [{"type": "text", "text": "a"}, picture, {"type": "text", "text": "b"}]},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": "no"}]},
        ]),
    );
    let (sent, dropped) = to_chat(&body);
    let want = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "look: ", "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "shot", "arguments": "{\"n\":1.0}"}},
            {"id": "t2", "type": "function", "function": {"name": "shot", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "a\nb"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: no"},
        {"role": "user", "content": [{"type": "text", "text": "well?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
    ]);
    assert_eq!(sent["messages"], want);
    assert!(dropped.is_empty());
}

#[test]
fn documents_and_search_results_of_text_are_text_to_every_model() {
    let texts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let document = |content: Value| {
        json!({"type": "document", "title": "t", "citations": {"enabled": true},
               "source": {"type": "content", "content": content}})
    };
    let found = json!({"type": "search_result", "title": "T", "source": "https://x.invalid/1",
                       "content": texts, "citations": {"enabled": true}});
    let body = with(
        "messages",
        json!([
            {"role": "user", "content": [document(texts.clone()), document("c".into())]},
            {"role": "assistant",
             "content": [{"type": "tool_use", "id": "t1", "name": "find", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                "content": [found, {"type": "tool_reference", "tool_name": "f"}]}]},
        ]),
    );
    let (sent, dropped) = to_chat(&body);
    let said = json!([{"type": "text", "text": "a\nb"}, {"type": "text", "text": "c"}]);
    assert_eq!(sent["messages"][0]["content"], said);
    assert_eq!(sent["messages"][2]["content"], "T\nhttps://x.invalid/1\na\nb");
    let citations =
        ["document", "search_result"].map(|kind| format!("messages.content.{kind}.citations"));
    let tool = "messages.content.tool_reference".to_owned();
    assert_eq!(dropped, [&citations[0], &citations[1], &tool].map(String::clone));
}

#[test]
fn a_document_s_address_reaches_who_can_fetch_it_and_is_named_elsewhere() {
    let source = json!({"type": "url", "url": "https://x.invalid/a.pdf"});
    let body = with(
        "messages",
        json!([{"role": "user", "content": [{"type": "document", "source": source},
            {"type": "text", "text": "well?"}]}]),
    );
    let (sent, dropped) = to_chat(&body);
    assert_eq!(sent["messages"][0]["content"], "well?");
    assert_eq!(dropped, ["messages.content.document"]);
    let to = To { model: "gemini-2.5-flash", ..To::new(Wire::Gemini) };
    let (sent, dropped, _) = to.ask(Api::Messages, &body);
    let want = json!({"mimeType": "application/pdf", "fileUri": "https://x.invalid/a.pdf"});
    assert_eq!(sent["contents"][0]["parts"][0]["fileData"], want);
    assert!(dropped.is_empty());
}

#[test]
fn a_toolset_has_no_name_and_is_named_by_its_type() {
    let tools = json!([{"type": "mcp_toolset", "mcp_server_name": "s"},
        {"name": "f", "input_schema": {"type": "object"}}]);
    let (sent, dropped) = to_chat(&with("tools", tools));
    assert_eq!(sent["tools"].as_array().unwrap().len(), 1);
    assert_eq!(dropped, ["tools.mcp_toolset"]);
}

#[test]
fn choices_limits_and_stops_are_said_in_a_chat_s_words() {
    let mut body = with(
        "tools",
        json!([{"name": "f", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"}]),
    );
    body["tool_choice"] = json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true});
    body["stop_sequences"] = json!(["a", "b", "c", "d", "e"]);
    body["top_k"] = json!(5);
    body["temperature"] = json!(0.50);
    body["metadata"] = json!({"user_id": "u"});
    let (sent, dropped) = to_chat(&body);
    assert_eq!(sent["tool_choice"], json!({"type": "function", "function": {"name": "f"}}));
    assert_eq!(sent["parallel_tool_calls"], false);
    assert_eq!(sent["stop"], json!(["a", "b", "c", "d"]));
    assert_eq!((&sent["max_tokens"], &sent["user"]), (&json!(9), &json!("u")));
    assert_eq!(dropped, ["stop_sequences", "tools.web_search", "top_k"]);
    for (theirs, ours) in [("auto", "auto"), ("any", "required"), ("none", "none")] {
        body["tool_choice"] = json!({"type": theirs});
        assert_eq!(to_chat(&body).0["tool_choice"], ours);
    }
}

#[test]
fn reasoning_models_get_their_own_parameters() {
    let to = To { model: "gpt-5.1", ..To::new(Wire::OpenAi) };
    let mut body = with("thinking", json!({"type": "enabled", "budget_tokens": 10000}));
    body["temperature"] = json!(1);
    let (sent, dropped, _) = to.ask(Api::Messages, &body);
    assert_eq!((&sent["max_completion_tokens"], &sent["max_tokens"]), (&json!(9), &Value::Null));
    assert_eq!(
        (&sent["reasoning_effort"], dropped),
        (&json!("medium"), vec!["temperature".into()])
    );
    body["output_config"] = json!({"effort": "low"});
    assert_eq!(to.ask(Api::Messages, &body).0["reasoning_effort"], "low");
}

#[test]
fn towards_anthropic_every_byte_but_the_model_passes() {
    let text = r#"{ "model":"m", "max_tokens": 9,"messages":[{"role":"user","content":"hi"}],
        "x": 1.50, "task_type":"t", "system":[{"type":"text","text":"x-anthropic-billing-header: y"}]}"#;
    let peek = Api::Messages.read(Bytes::from(text)).unwrap();
    let ask = weir_filters::wire::Ask {
        peek: &peek,
        model: "claude-x",
        quirks: &Quirks::default(),
        params: &weir_filters::wire::Params::default(),
        max_output: 0,
        base_url: "",
        api_version: None,
    };
    let (out, _) = Api::Messages.request(Wire::Anthropic, &ask).unwrap();
    let want = text.replace(r#""m""#, r#""claude-x""#).replace(r#" "task_type":"t","#, "");
    let sent = String::from_utf8(out.body.concat().to_vec()).unwrap();
    assert_eq!(
        sent.split_whitespace().collect::<String>(),
        want.split_whitespace().collect::<String>()
    );
    assert_eq!(out.path, "/messages");
    assert_eq!(out.headers, [("anthropic-version", "2023-06-01".to_owned())]);
}

#[test]
fn bad_bodies_name_the_member_at_fault() {
    let param = |body: Value| {
        let error = To::new(Wire::OpenAi).try_ask(Api::Messages, &body).unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest);
        error.param.unwrap_or_default()
    };
    assert_eq!(param(json!({"model": "m", "max_tokens": 1})), "messages");
    assert_eq!(param(with("max_tokens", json!(0))), "max_tokens");
    assert_eq!(
        param(with("messages", json!([{"role": "tool", "content": "x"}]))),
        "messages[0].role"
    );
    let block = json!([{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]);
    assert_eq!(param(with("messages", block)), "messages[0].content[0].tool_use_id");
    assert_eq!(param(with("tools", json!([{"description": "x"}]))), "tools[0].name");
    let mut body = with("tools", json!([{"name": "f"}]));
    body["tool_choice"] = json!({"type": "tool"});
    assert_eq!(param(body), "tool_choice");
}

fn events(deltas: &[Value], finish: &str) -> messages::Seen {
    let (_, _, memo) = To::new(Wire::OpenAi).ask(Api::Messages, &hello(Api::Messages));
    let reply = filter(Api::Messages, Wire::OpenAi, memo, &[chunks(deltas, finish)], true);
    let seen = messages::stream(&reply.out, false);
    assert!(seen.faults.is_empty(), "{:?} in {}", seen.faults, String::from_utf8_lossy(&reply.out));
    seen
}

#[test]
fn interleaved_calls_never_have_two_blocks_open() {
    let seen = events(
        &[
            json!({"reasoning_content": "hm"}),
            json!({"content": "look"}),
            start(0, "a", ""),
            start(1, "b", ""),
            more(0, "{\"x\""),
            more(1, "{\"y\":"),
            json!({"content": "late"}),
            more(0, ":1}"),
            more(1, "[2]}"),
            start(2, "c", "{}"),
        ],
        "tool_calls",
    );
    let tools = [("a", r#"{"x":1}"#), ("b", r#"{"y":[2]}"#), ("c", "{}")];
    assert_eq!(seen.tools, tools.map(|(n, a)| (n.to_owned(), a.to_owned())));
    assert_eq!((seen.text.as_str(), seen.reasoning.as_str()), ("looklate", "hm"));
    assert_eq!(seen.stop.as_deref(), Some("tool_use"));
}

#[test]
fn a_call_is_an_object_whatever_the_provider_wrote() {
    let seen = events(&[start(0, "f", ""), more(0, "nul"), more(0, "l")], "tool_calls");
    assert_eq!(seen.tools, [("f".to_owned(), "{}".to_owned())]);
    let seen = events(&[start(0, "f", "{\"a\":\"cut")], "length");
    assert_eq!(seen.tools, [("f".to_owned(), "{\"a\":\"cut".to_owned())]);
    assert_eq!(seen.stop.as_deref(), Some("max_tokens"));
}

#[test]
fn every_finish_has_its_stop_reason() {
    let say = [json!({"content": "x"})];
    for (finish, stop) in
        [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")]
    {
        assert_eq!(events(&say, finish).stop.as_deref(), Some(stop));
    }
    // Agents act on the word alone, and some providers say `stop` after a call.
    assert_eq!(events(&[start(0, "f", "{}")], "stop").stop.as_deref(), Some("tool_use"));
    assert_eq!(events(&[json!({"refusal": "no"})], "stop").stop.as_deref(), Some("refusal"));
}

#[test]
fn usage_is_told_in_classes_that_never_overlap() {
    let usage = json!({"prompt_tokens": 90, "completion_tokens": 30, "total_tokens": 120,
                       "prompt_tokens_details": {"cached_tokens": 40}});
    let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{"index": 0, "finish_reason": "stop",
                     "message": {"role": "assistant", "content": "x"}}], "usage": usage});
    let (_, _, memo) = To::new(Wire::OpenAi).ask(Api::Messages, &hello(Api::Messages));
    let whole =
        Api::Messages.whole(Wire::OpenAi, &memo, Bytes::from(body.to_string()), context()).unwrap();
    let seen: Value = serde_json::from_slice(&whole.body).unwrap();
    let want = json!({"input_tokens": 50, "cache_creation_input_tokens": 0,
                      "cache_read_input_tokens": 40, "output_tokens": 30});
    assert_eq!((&seen["usage"], &seen["model"]), (&want, &json!("up")));
}

#[test]
fn tokens_are_counted_here() {
    let body = Bytes::from(hello(Api::CountTokens).to_string());
    let peek = Api::CountTokens.read(body).unwrap();
    let answer = Api::CountTokens.local(peek.estimate()).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert!(answer["input_tokens"].as_u64().unwrap() > 0);
    assert!(Api::Messages.local(1).is_none());
}

#[test]
fn an_end_does_not_wait_for_usage_that_never_comes_t17() {
    let seen = events(&[json!({"content": "x"})], "stop");
    assert_eq!(seen.stop.as_deref(), Some("end_turn"));
    let told = |key: &str| seen.usage[key].as_u64();
    assert_eq!((told("input_tokens"), told("output_tokens")), (Some(7), Some(1)));
}

#[test]
fn anthropic_is_never_shown_thinking_that_nobody_sealed() {
    let said = json!([{"type": "thinking", "thinking": "hm", "signature": ""},
                      {"type": "thinking", "thinking": "ho", "signature": "c2VhbA=="},
                      {"type": "text", "text": "x"}]);
    let body = with(
        "messages",
        json!([{"role": "user", "content": "go"},
        {"role": "assistant", "content": said}, {"role": "user", "content": "on"}]),
    );
    let (sent, _, _) = To::new(Wire::Anthropic).ask(Api::Messages, &body);
    let want = json!([{"type": "thinking", "thinking": "ho", "signature": "c2VhbA=="},
                      {"type": "text", "text": "x"}]);
    assert_eq!(sent["messages"][1], json!({"role": "assistant", "content": want}));
    assert_eq!(sent["messages"][2], json!({"role": "user", "content": "on"}));
}
