//! Responses: the request as a chat, and the events of its answer.

use super::replay::{cases, responses};
use super::{To, chunks, filter, hello, more, start};
use serde_json::{Value, json};
use weir_filters::dialect::Api;
use weir_filters::error::{ApiError, Code};
use weir_filters::wire::{Quirks, Wire};

fn with(member: &str, value: Value) -> Value {
    let mut body = hello(Api::Responses);
    body[member] = value;
    body
}

fn to_chat(body: &Value) -> (Value, Vec<String>) {
    let (sent, dropped, _) = To::new(Wire::OpenAi).ask(Api::Responses, body);
    (sent, dropped)
}

#[test]
fn codex_s_requests_become_chats_with_every_function() {
    for case in cases("openai-responses").iter().filter(|c| c.provider == "inbound_codex") {
        let (sent, dropped) = to_chat(case.request.as_ref().unwrap());
        let lost = ["prompt_cache_key", "tools.namespace.description", "tools.web_search"];
        assert_eq!(dropped, lost, "{}", case.id);
        let tools = sent["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|t| t["function"]["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"exec_command") && names.contains(&"multi_agent_v1__spawn_agent"));
        assert_eq!(names.len(), 12, "{names:?}");
        let messages = sent["messages"].as_array().unwrap();
        assert!(messages.iter().take(2).all(|m| m["role"] == "system"));
        if case.id.ends_with("after-tool-result") {
            let [.., call, result] = messages.as_slice() else { panic!("{sent}") };
            assert_eq!(call["tool_calls"][0]["function"]["name"], "exec_command");
            assert_eq!(
                (&result["role"], &result["tool_call_id"]),
                (&json!("tool"), &json!("call_1"))
            );
        }
    }
}

#[test]
fn adjacent_items_of_the_assistant_are_one_message() {
    let call = |n: u32| {
        json!({"type": "function_call", "call_id": format!("c{n}"), "name": "f",
                               "arguments": ""})
    };
    let output = |n: u32, output: Value| json!({"type": "function_call_output", "call_id": format!("c{n}"), "output": output});
    let picture = json!([{"type": "input_image", "image_url": "data:image/png;base64,AA",
                          "detail": "high"}, {"type": "input_text", "text": "seen"}]);
    let body = with(
        "input",
        json!([
            {"role": "developer", "content": "rules"},
            {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant",
             "content": [{"type": "output_text", "text": "look"}]},
            call(1), call(2), output(1, "one".into()), output(2, picture),
            {"type": "web_search_call", "id": "ws"}, call(3), output(3, "three".into()),
        ]),
    );
    let (sent, dropped) = to_chat(&body);
    let calls = |list: &[u32]| -> Vec<Value> {
        let call = |n: &u32| {
            json!({"id": format!("c{n}"), "type": "function",
                                    "function": {"name": "f", "arguments": "{}"}})
        };
        list.iter().map(call).collect()
    };
    let want = json!([
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "look", "tool_calls": calls(&[1, 2])},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "seen"},
        {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "high"}},
            {"type": "text", "text": "seen"}]},
        {"role": "assistant", "content": null, "tool_calls": calls(&[3])},
        {"role": "tool", "tool_call_id": "c3", "content": "three"},
    ]);
    assert_eq!(sent["messages"], want);
    assert_eq!(dropped, ["input.reasoning", "input.web_search_call"]);
}

#[test]
fn items_of_the_provider_s_own_tools_may_hold_whatever_they_like() {
    let body = with(
        "input",
        json!([
            {"role": "user", "content": "go"},
            {"type": "tool_search_call", "call_id": null, "execution": "server",
             "arguments": {"paths": ["crm"]}, "status": "completed"},
            {"type": "tool_search_output", "tools": [], "output": {"x": 1}},
            {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}, "input": [1]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1.0}},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ]),
    );
    let (sent, dropped) = to_chat(&body);
    let call = &sent["messages"][1]["tool_calls"][0]["function"];
    assert_eq!(call, &json!({"name": "f", "arguments": "{\"a\":1.0}"}));
    let want = ["input.shell_call", "input.tool_search_call", "input.tool_search_output"];
    assert_eq!(dropped, want);
}

#[test]
fn a_file_s_address_reaches_who_can_fetch_it_and_is_named_elsewhere() {
    let content = json!([{"type": "input_file", "file_url": "https://x.invalid/a.pdf"},
        {"type": "input_text", "text": "well?"}]);
    let body = with("input", json!([{"role": "user", "content": content}]));
    let (sent, dropped) = to_chat(&body);
    assert_eq!(sent["messages"][0]["content"], "well?");
    assert_eq!(dropped, ["input.content.input_file"]);
    let (sent, dropped, _) = To::new(Wire::Anthropic).ask(Api::Responses, &body);
    let want = json!({"type": "url", "url": "https://x.invalid/a.pdf"});
    assert_eq!(sent["messages"][0]["content"][0]["source"], want);
    assert!(dropped.is_empty());
}

#[test]
fn reasoning_comes_back_within_tool_loops_where_the_provider_wants_it() {
    let body = with(
        "input",
        json!([
            {"role": "user", "content": "go"},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ]),
    );
    let quirks = Quirks { reasoning_back: true, ..Quirks::default() };
    let (sent, _, _) = To { quirks, ..To::new(Wire::OpenAi) }.ask(Api::Responses, &body);
    assert_eq!(sent["messages"][1]["reasoning_content"], "hm");
    let (chat, dropped) = to_chat(&body);
    assert!(chat["messages"][1].get("reasoning_content").is_none());
    assert!(dropped.contains(&"input.reasoning".to_owned()), "{dropped:?}");
}

/// DeepSeek and Kimi answer 400 to a call without the member, whoever made it.
#[test]
fn who_wants_reasoning_back_gets_the_member_though_nobody_kept_it() {
    let call = json!([{"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"}]);
    let turns = json!([{"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "x"}]}]);
    let chat = json!([{"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "x"}]);
    let quirks = Quirks { reasoning_back: true, ..Quirks::default() };
    let to = To { quirks, ..To::new(Wire::OpenAi) };
    for (api, body) in [
        (Api::Responses, with("input", call)),
        (Api::Messages, json!({"model": "m", "max_tokens": 9, "messages": turns})),
        (Api::Chat, json!({"model": "m", "messages": chat})),
    ] {
        assert_eq!(to.ask(api, &body).0["messages"][1]["reasoning_content"], " ", "{api:?}");
        let plain = To::new(Wire::OpenAi).ask(api, &body).0;
        assert!(plain["messages"][1].get("reasoning_content").is_none(), "{api:?}");
    }
}

#[test]
fn forms_efforts_and_choices_are_said_in_a_chat_s_words() {
    let mut body = with(
        "tools",
        json!([{"type": "function", "name": "f", "strict": true,
        "parameters": {"type": "object"}}, {"type": "custom", "name": "patch"}]),
    );
    body["tool_choice"] = json!({"type": "allowed_tools", "mode": "required",
        "tools": [{"type": "function", "name": "f"}]});
    body["text"] = json!({"verbosity": "low", "format": {"type": "json_schema", "name": "n",
        "schema": {"type": "object"}, "strict": true}});
    body["reasoning"] = json!({"effort": "low", "summary": "auto"});
    body["max_output_tokens"] = json!(5);
    body["parallel_tool_calls"] = json!(false);
    body["include"] = json!(["reasoning.encrypted_content"]);
    let (sent, dropped) = to_chat(&body);
    assert_eq!(sent["tool_choice"], json!({"type": "function", "function": {"name": "f"}}));
    let want = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true,
        "schema": {"type": "object"}}});
    assert_eq!((&sent["response_format"], &sent["max_tokens"]), (&want, &json!(5)));
    assert_eq!(sent["parallel_tool_calls"], false);
    assert_eq!(sent["tools"][0]["function"]["strict"], true);
    assert_eq!(sent["tools"][1]["function"]["parameters"]["required"], json!(["input"]));
    assert_eq!(dropped, ["reasoning.effort", "text.verbosity", "tool_choice.allowed_tools"]);
    // Nobody but OpenAI's own chat knows such a choice.
    let (sent, _, _) = To::new(Wire::Azure).ask(Api::Responses, &body);
    let want = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required",
        "tools": [{"type": "function", "function": {"name": "f"}}]}});
    assert_eq!(sent["tool_choice"], want);
    body["tool_choice"]["mode"] = json!("auto");
    assert_eq!(to_chat(&body).0["tool_choice"], "auto");
}

#[test]
fn pictures_are_items_of_their_own() {
    let images = json!([{"index": 0, "type": "image_url",
        "image_url": {"url": "data:image/png;base64,AAA="}}, {"type": "odd"}]);
    let (_, _, memo) = To::new(Wire::OpenAi).ask(Api::Responses, &hello(Api::Responses));
    let deltas = [json!({"content": "see"}), json!({"images": images}), json!({"content": "!"})];
    let got = filter(Api::Responses, Wire::OpenAi, memo, &[chunks(&deltas, "stop")], true);
    let text = String::from_utf8(got.out).unwrap();
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    let items = last["response"]["output"].as_array().unwrap();
    let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "image_generation_call", "message"]);
    assert_eq!((&items[1]["result"], &items[1]["status"]), (&json!("AAA="), &json!("completed")));
    assert_eq!(responses::stream(text.as_bytes()).text, "see!");
}

#[test]
fn no_response_is_kept_and_that_is_said() {
    for (member, value) in [
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!("conv_1")),
        ("background", json!(true)),
        ("input", json!([{"type": "item_reference", "id": "msg_1"}])),
    ] {
        let error =
            To::new(Wire::OpenAi).try_ask(Api::Responses, &with(member, value)).unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest);
        assert!(error.param.unwrap().starts_with(member));
    }
    let quirks = Quirks { responses: true, ..Quirks::default() };
    let to = To { quirks, ..To::new(Wire::OpenAi) };
    let (sent, _, _) = to.ask(Api::Responses, &with("previous_response_id", json!("resp_1")));
    assert_eq!(
        (&sent["previous_response_id"], &sent["model"]),
        (&json!("resp_1"), &json!("up-model"))
    );
}

#[test]
fn what_is_wrong_is_named_as_the_caller_wrote_it() {
    for wire in [Wire::OpenAi, Wire::Anthropic, Wire::Gemini] {
        let error = To::new(wire).try_ask(Api::Responses, &with("input", json!([]))).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("input"));
        assert_eq!(error.message, "`input` must not be empty");
    }
}

fn events(body: &Value, deltas: &[Value], finish: &str) -> (responses::Seen, Value) {
    let (_, _, memo) = To::new(Wire::OpenAi).ask(Api::Responses, body);
    let reply = filter(Api::Responses, Wire::OpenAi, memo, &[chunks(deltas, finish)], true);
    let text = String::from_utf8(reply.out).unwrap();
    let seen = responses::stream(text.as_bytes());
    assert!(seen.faults.is_empty(), "{:?} in {text}", seen.faults);
    let last = text.trim_end().lines().last().unwrap().strip_prefix("data: ").unwrap();
    (seen, serde_json::from_str::<Value>(last).unwrap()["response"].clone())
}

#[test]
fn a_namespace_s_tool_and_a_free_text_tool_are_called_by_the_caller_s_names() {
    let body = with(
        "tools",
        json!([
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close"}]},
        {"type": "custom", "name": "patch"}]),
    );
    let deltas = [
        start(0, "agents__close", "{\"id\":1}"),
        start(1, "patch", "{\"input\":"),
        more(1, "\"*** Begin\\nend\"}"),
    ];
    let (seen, response) = events(&body, &deltas, "tool_calls");
    let want = [("close", "{\"id\":1}"), ("patch", "*** Begin\nend")];
    assert_eq!(seen.tools, want.map(|(name, text)| (name.to_owned(), text.to_owned())));
    assert_eq!(response["output"][0]["namespace"], "agents");
    assert_eq!(response["output"][1]["type"], "custom_tool_call");
}

#[test]
fn interleaved_calls_keep_their_own_items() {
    let deltas = [
        json!({"reasoning_content": "h"}),
        json!({"reasoning_content": "m"}),
        json!({"content": "look"}),
        start(0, "a", ""),
        start(1, "b", ""),
        more(0, "{\"x\""),
        more(1, "{\"y\":"),
        more(0, ":1}"),
        more(1, "[2]}"),
    ];
    let (seen, _) = events(&hello(Api::Responses), &deltas, "tool_calls");
    let tools = [("a", r#"{"x":1}"#), ("b", r#"{"y":[2]}"#)];
    assert_eq!(seen.tools, tools.map(|(n, a)| (n.to_owned(), a.to_owned())));
    assert_eq!((seen.text.as_str(), seen.reasoning.as_str()), ("look", "hm"));
    assert_eq!(seen.status, "completed");
}

#[test]
fn what_was_cut_is_incomplete_with_its_reason() {
    for (finish, reason) in [("length", "max_output_tokens"), ("content_filter", "content_filter")]
    {
        let (seen, response) = events(&hello(Api::Responses), &[json!({"content": "x"})], finish);
        assert_eq!((seen.status.as_str(), seen.reason.as_deref()), ("incomplete", Some(reason)));
        assert_eq!(response["output"][0]["status"], "incomplete");
    }
}

#[test]
fn a_failure_is_a_failed_response_before_and_after_the_first_word() {
    let error = ApiError::new(Code::UpstreamError, "it broke");
    let seen = responses::stream(&Api::Responses.error_event(&error, "req-1"));
    assert!(seen.faults.is_empty(), "{:?}", seen.faults);
    assert_eq!(seen.error.unwrap()["code"], "upstream_error");

    let (_, _, memo) = To::new(Wire::OpenAi).ask(Api::Responses, &hello(Api::Responses));
    let whole = chunks(&[json!({"content": "so far"})], "stop");
    let cut = whole.slice(..whole.len() - 180);
    let reply = filter(Api::Responses, Wire::OpenAi, memo, &[cut], false);
    let seen = responses::stream(&reply.out);
    assert!(!reply.complete && seen.faults.is_empty(), "{:?}", seen.faults);
    assert_eq!(seen.status, "failed");
}
