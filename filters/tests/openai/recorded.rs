//! Every recorded chat answer, against a reader that knows nothing of the filter.

use super::replay::{self, Case, chat};
use super::{ASKED, Ask, STRIPPED, UNASKED, context, feed};
use serde_json::Value;
use std::collections::BTreeMap;
use weir_filters::wire::{TRUNCATED, Wire};

/// What the provider said, read as leniently as a person would.
#[derive(Debug, Default)]
struct Said {
    choices: BTreeMap<i64, SaidChoice>,
    usage: Option<Value>,
    failed: bool,
}

#[derive(Debug, Default)]
struct SaidChoice {
    text: String,
    reasoning: String,
    refusal: String,
    tools: Vec<SaidTool>,
    word: Option<String>,
}

#[derive(Debug, Default)]
struct SaidTool {
    index: Option<i64>,
    id: String,
    name: String,
    arguments: String,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn read(body: &[u8]) -> Said {
    let body = String::from_utf8_lossy(body).replace("\r\n", "\n").replace('\r', "\n");
    let mut said = Said::default();
    for block in body.split("\n\n") {
        let lines = block.lines().filter_map(|line| line.strip_prefix("data:"));
        let data = lines.collect::<Vec<_>>().join("\n");
        match data.trim() {
            "" => continue,
            "[DONE]" => break,
            _ => {}
        }
        let Ok(value) = serde_json::from_str::<Value>(&data) else {
            said.failed = true;
            break;
        };
        if !value["error"].is_null() || block.contains("event: error") {
            said.failed = true;
            break;
        }
        take(&mut said, &value, "delta");
    }
    said
}

fn take(said: &mut Said, value: &Value, key: &str) {
    for choice in value["choices"].as_array().into_iter().flatten() {
        let state = said.choices.entry(choice["index"].as_i64().unwrap_or(0)).or_default();
        if state.word.is_none() {
            let body = if choice[key].is_object() { &choice[key] } else { &choice["message"] };
            state.take(body);
        }
        let word = text(&choice["finish_reason"]);
        if state.word.is_none() && !word.is_empty() {
            state.word = Some(word.to_owned());
        }
    }
    if value["usage"].is_object() {
        said.usage = Some(value["usage"].clone());
    } else if said.usage.is_none() && value["x_groq"]["usage"].is_object() {
        said.usage = Some(value["x_groq"]["usage"].clone());
    }
}

impl SaidChoice {
    /// Zero when there is nothing to count.
    fn size(&self) -> usize {
        self.text.len() + self.reasoning.len() + self.refusal.len() + self.tools.len()
    }

    fn take(&mut self, body: &Value) {
        self.text.push_str(text(&body["content"]));
        for part in body["content"].as_array().into_iter().flatten() {
            self.text.push_str(text(&part["text"]));
            self.reasoning.push_str(text(&part["thinking"]));
            for inner in part["thinking"].as_array().into_iter().flatten() {
                self.reasoning.push_str(text(&inner["text"]));
            }
        }
        let named = ["reasoning_content", "reasoning"].map(|key| &body[key]);
        let reasoning = named.into_iter().find(|value| value.is_string());
        self.reasoning.push_str(reasoning.map_or("", text));
        self.refusal.push_str(text(&body["refusal"]));
        for call in body["tool_calls"].as_array().into_iter().flatten() {
            self.take_call(call, &call["function"]);
        }
        if body["function_call"].is_object() {
            self.take_call(&body["function_call"], &body["function_call"]);
        }
    }

    fn take_call(&mut self, call: &Value, function: &Value) {
        let (index, id) = (call["index"].as_i64(), text(&call["id"]));
        let name = text(&function["name"]);
        let same = |tool: &&mut SaidTool| match index {
            Some(_) => tool.index == index && (id.is_empty() || name.is_empty() || tool.id == id),
            None => tool.id == id,
        };
        let tool = match self.tools.iter_mut().rev().find(same) {
            Some(tool) => tool,
            None => {
                self.tools.push(SaidTool { index, id: id.into(), ..SaidTool::default() });
                self.tools.last_mut().unwrap()
            }
        };
        if tool.name.is_empty() {
            tool.name = name.to_owned();
        }
        match &function["arguments"] {
            Value::Null => {}
            Value::String(arguments) => tool.arguments.push_str(arguments),
            other => tool.arguments.push_str(&other.to_string()),
        }
    }
}

/// What the client may be told for a provider's word.
fn finishes(word: Option<&str>, called: bool) -> &'static [&'static str] {
    match word {
        Some("length" | "max_tokens" | "model_length") => &["length"],
        Some("content_filter" | "sensitive") => &["content_filter"],
        Some("tool_calls" | "tool_use") => &["tool_calls"],
        Some("function_call") => &["function_call"],
        Some("stop") => &["stop"],
        _ if called => &["tool_calls"],
        _ => &["stop"],
    }
}

fn arguments(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return Some(serde_json::json!({}));
    }
    serde_json::from_str(text).ok()
}

/// The client read what the provider said.
fn same(id: &str, said: &Said, seen: &chat::Seen, whole: bool) {
    let indexes: Vec<_> = said.choices.keys().collect();
    assert!(!whole || seen.choices.keys().collect::<Vec<_>>() == indexes, "{id}: choices");
    for (index, got) in &seen.choices {
        let want = &said.choices[index];
        assert_eq!(got.text, want.text, "{id}: text");
        assert_eq!(got.reasoning, want.reasoning, "{id}: reasoning");
        assert_eq!(got.refusal, want.refusal, "{id}: refusal");
        let names = |tool: &chat::Tool| tool.name.clone();
        let got_names: Vec<_> = got.tools.iter().map(names).collect();
        let want_names: Vec<_> = want.tools.iter().map(|tool| tool.name.clone()).collect();
        assert_eq!(got_names, want_names, "{id}: tools");
        if !whole {
            continue;
        }
        let finish = got.finish.as_deref().unwrap_or_default();
        let may = finishes(want.word.as_deref(), !want.tools.is_empty());
        assert!(may.contains(&finish), "{id}: {:?} became {finish}", want.word);
        for (got, want) in got.tools.iter().zip(&want.tools) {
            match arguments(&want.arguments) {
                Some(value) => {
                    assert_eq!(arguments(&got.arguments), Some(value), "{id}: arguments")
                }
                None => assert_eq!(got.arguments, want.arguments, "{id}: cut arguments"),
            }
        }
    }
}

fn same_usage(id: &str, said: &Said, usage: &Value) {
    let Some(want) = &said.usage else { return };
    for key in ["prompt_tokens", "completion_tokens"] {
        let want = want[key].as_u64().unwrap_or(0);
        assert_eq!(usage[key].as_u64(), Some(want), "{id}: {key}");
    }
    let cached = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens"];
    let cached = cached.iter().find_map(|at| want.pointer(at).and_then(Value::as_u64));
    let got = usage.pointer("/prompt_tokens_details/cached_tokens").and_then(Value::as_u64);
    assert_eq!(got.unwrap_or(0), cached.unwrap_or(0), "{id}: cached");
}

/// The body is events; one recording begins with blank lines and is filed as text.
fn is_stream(case: &Case) -> bool {
    case.kind == "sse" || case.body.trim_ascii_start().starts_with(b"data:")
}

fn streams() -> Vec<Case> {
    let cases = replay::cases("openai-chat");
    cases.into_iter().filter(|case| is_stream(case) && case.status == 200).collect()
}

fn check(case: &Case, ask: Ask) {
    let said = read(&case.body);
    let told = feed(std::slice::from_ref(&case.body), true, ask);
    let open = said.choices.values().any(|choice| choice.word.is_none());
    let nothing = said.choices.is_empty();
    let fails = said.failed || nothing || open;
    assert_eq!(told.failure.is_some(), fails, "{}: {:?}", case.id, told.failure);
    let seen = told.seen(ask);
    same(&case.id, &said, &seen, !fails);
    if ask.asked && !fails {
        same_usage(&case.id, &said, &seen.usage.unwrap());
    }
    assert_eq!(told.usage.is_some(), said.usage.is_some(), "{}: usage", case.id);
    let any = said.choices.values().map(SaidChoice::size).sum::<usize>() > 0;
    assert_eq!(told.tokens > 0, any, "{}: counted {}", case.id, told.tokens);
}

#[test]
fn every_recorded_stream_reaches_the_client_as_the_provider_meant_it() {
    for case in &streams() {
        for ask in [ASKED, UNASKED, STRIPPED] {
            check(case, ask);
        }
    }
}

#[test]
fn no_cut_of_a_recorded_stream_changes_a_byte_or_a_fact_s18() {
    for case in &streams() {
        let asks = [ASKED, STRIPPED];
        let want = asks.map(|ask| feed(std::slice::from_ref(&case.body), true, ask));
        // The two ways of asking take turns, to halve the time.
        for (turn, cut) in replay::cuts(&case.body).into_iter().enumerate() {
            let told = feed(&replay::pieces(&case.body, &cut), true, asks[turn % 2]);
            assert_eq!(told, want[turn % 2], "{} cut at {cut:?}", case.id);
        }
    }
}

#[test]
fn a_recorded_stream_cut_short_is_never_a_whole_answer_s16_s17() {
    for case in &streams() {
        let edges = [5, 3, 2].map(|part| case.body.len() * (part - 1) / part);
        for (end, clean) in edges.into_iter().flat_map(|end| [(end, true), (end, false)]) {
            let body = case.body.slice(..end);
            let said = read(&body);
            let finished = |choice: &SaidChoice| choice.word.is_some();
            let whole = !said.choices.is_empty() && said.choices.values().all(finished);
            let told = feed(&[body], clean, ASKED);
            assert!(told.failure.is_none() == whole, "{} at {end}", case.id);
            if let Some(failure) = &told.failure {
                let cut = failure.code.as_deref() == Some(TRUNCATED);
                assert!(!told.started || cut || said.failed, "{} at {end}: {failure:?}", case.id);
                told.seen(ASKED);
            }
        }
    }
}

/// The stream as the provider would have sent it without `include_usage`, by plain text edits.
fn without_usage(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(body.to_vec()).unwrap().replace(",\"usage\":null", "");
    let events = text.split_inclusive("\n\n");
    let kept =
        events.filter(|event| !event.contains("\"choices\":[],\"") || !event.contains("usage"));
    kept.collect::<String>().into_bytes()
}

#[test]
fn a_client_that_did_not_ask_sees_what_it_would_have_seen_without_our_asking() {
    let mut exact = 0;
    for case in streams().iter().filter(|case| !read(&case.body).failed) {
        let plain = without_usage(&case.body);
        let told = feed(std::slice::from_ref(&case.body), true, STRIPPED);
        let want = feed(&[plain.clone().into()], true, UNASKED);
        assert_eq!(told.text(), want.text(), "{}", case.id);
        exact += usize::from(told.out == plain);
    }
    let any = !streams().is_empty();
    assert!(!any || exact >= 12, "only {exact} streams pass byte for byte");
}

#[test]
fn every_recorded_reply_is_a_sound_completion_or_a_failure() {
    let cases = replay::cases("openai-chat");
    let mut untouched = 0;
    for case in cases.iter().filter(|case| !is_stream(case) && case.status == 200) {
        let mut said = Said::default();
        let value = serde_json::from_slice::<Value>(&case.body).unwrap_or_default();
        take(&mut said, &value, "message");
        let nameless = |choice: &SaidChoice| choice.tools.iter().any(|tool| tool.name.is_empty());
        let fails = said.choices.is_empty()
            || !value["error"].is_null()
            || said.choices.values().any(nameless);
        let reply = Wire::OpenAi.whole(case.body.clone(), context(UNASKED));
        assert_eq!(reply.is_err(), fails, "{}: {reply:?}", case.id);
        let Ok(mut reply) = reply else { continue };
        let seen = chat::json(&reply.body);
        assert_eq!(seen.faults, [""; 0], "{}", case.id);
        same(&case.id, &said, &seen, true);
        same_usage(&case.id, &said, &seen.usage.clone().unwrap());
        assert_eq!(reply.tap.usage.is_some(), said.usage.is_some(), "{}: usage", case.id);
        let any = said.choices.values().map(SaidChoice::size).sum::<usize>() > 0;
        assert_eq!(reply.tap.counter.total() > 0, any, "{}: counted", case.id);
        untouched += usize::from(reply.body.as_ref() == case.body.trim_ascii_start());
    }
    assert!(cases.is_empty() || untouched >= 15, "only {untouched} replies pass byte for byte");
}
