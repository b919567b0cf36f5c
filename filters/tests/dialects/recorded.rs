//! Every recorded reply of every wire through every dialect, against the same reply as a chat.

use super::replay::{Case, cases, chat, cuts, messages, pieces, responses};
use super::{Filtered, To, context, filter, hello};
use bytes::Bytes;
use serde_json::Value;
use weir_filters::dialect::{Api, Memo};
use weir_filters::wire::Wire;

/// Cuts of one reply: the wires' own tests cut everywhere, a dialect sees their chunks only.
const CUTS_MAX: usize = 12;

const WIRES: [(&str, Wire); 2] =
    [("openai-chat", Wire::OpenAi), ("anthropic-messages", Wire::Anthropic)];

/// What any client reads of an answer.
#[derive(Debug, PartialEq)]
struct Said {
    text: String,
    reasoning: String,
    /// Name and arguments; what is no JSON as it is.
    tools: Vec<(String, Value)>,
    complete: bool,
    /// Of OpenAI's, where it is complete.
    finish: &'static str,
}

fn tools<'t>(tools: impl IntoIterator<Item = (&'t String, &'t String)>) -> Vec<(String, Value)> {
    let value = |raw: &String| match serde_json::from_str(raw) {
        Ok(Value::Null) => serde_json::json!({}),
        Ok(value) => value,
        Err(_) if raw.trim().is_empty() => serde_json::json!({}),
        Err(_) => Value::String(raw.clone()),
    };
    tools.into_iter().map(|(name, raw)| (name.clone(), value(raw))).collect()
}

fn memo(api: Api, wire: Wire) -> Memo {
    To::new(wire).ask(api, &hello(api)).2
}

/// The reply as a chat: what the other dialects are held against.
fn as_chat(reply: &Filtered) -> Said {
    let seen = chat::stream(&reply.out, false, reply.complete);
    let choice = seen.choices.get(&0).cloned().unwrap_or_default();
    let finish = match choice.finish.as_deref() {
        Some("length") => "length",
        Some("content_filter") => "content_filter",
        _ if !choice.tools.is_empty() => "tool_calls",
        _ if !choice.refusal.is_empty() => "content_filter",
        _ => "stop",
    };
    Said {
        text: choice.text.clone() + &choice.refusal,
        reasoning: choice.reasoning.clone(),
        tools: tools(choice.tools.iter().map(|tool| (&tool.name, &tool.arguments))),
        complete: reply.complete,
        finish: if reply.complete { finish } else { "" },
    }
}

fn as_message(id: &str, reply: &Filtered, native: bool) -> Said {
    let seen = messages::stream(&reply.out, native);
    let text = String::from_utf8_lossy(&reply.out);
    assert!(seen.faults.is_empty(), "{id}: {:?} in {text}", seen.faults);
    assert_eq!(seen.error.is_none(), reply.complete, "{id}");
    let finish = match seen.stop.as_deref() {
        None => "",
        Some("max_tokens" | "model_context_window_exceeded") => "length",
        Some("refusal") => "content_filter",
        Some("tool_use") => "tool_calls",
        Some(_) if !seen.tools.is_empty() => "tool_calls",
        Some(_) => "stop",
    };
    Said {
        text: seen.text.clone(),
        reasoning: seen.reasoning.clone(),
        tools: tools(seen.tools.iter().map(|(name, raw)| (name, raw))),
        complete: reply.complete,
        finish,
    }
}

fn as_response(id: &str, reply: &Filtered) -> Said {
    let seen = responses::stream(&reply.out);
    let text = String::from_utf8_lossy(&reply.out);
    assert!(seen.faults.is_empty(), "{id}: {:?} in {text}", seen.faults);
    assert_eq!(seen.error.is_none(), reply.complete, "{id}");
    let finish = match (seen.status.as_str(), seen.reason.as_deref()) {
        ("failed", _) => "",
        (_, Some("max_output_tokens")) => "length",
        (_, Some(_)) => "content_filter",
        _ if !seen.tools.is_empty() => "tool_calls",
        _ if !seen.refusal.is_empty() => "content_filter",
        _ => "stop",
    };
    Said {
        text: seen.text.clone() + &seen.refusal,
        reasoning: seen.reasoning.clone(),
        tools: tools(seen.tools.iter().map(|(name, raw)| (name, raw))),
        complete: reply.complete,
        finish,
    }
}

/// Whole, byte by byte, and some cuts in two.
fn some_cuts(body: &Bytes) -> Vec<Vec<usize>> {
    let all = cuts(body);
    let step = (all.len() / CUTS_MAX).max(1);
    let two = all.iter().skip(2).step_by(step).take(CUTS_MAX).cloned();
    all.iter().take(2).cloned().chain(two).collect()
}

/// A body that is cut in the middle of a thought has no whole block to compare by tools.
fn check_stream(case: &Case, wire: Wire, clean: bool) {
    let whole = std::slice::from_ref(&case.body);
    let want = as_chat(&filter(Api::Chat, wire, Memo::default(), whole, clean));
    for cut in some_cuts(&case.body) {
        let parts = pieces(&case.body, &cut);
        let native = wire == Wire::Anthropic;
        let reply = filter(Api::Messages, wire, memo(Api::Messages, wire), &parts, clean);
        let got = as_message(&case.id, &reply, native);
        assert_eq!(part(&got, want.complete), part(&want, want.complete), "{}", case.id);
        let reply = filter(Api::Responses, wire, memo(Api::Responses, wire), &parts, clean);
        let got = as_response(&case.id, &reply);
        assert_eq!(part(&got, want.complete), part(&want, want.complete), "{}", case.id);
    }
}

/// What must agree: of an answer that failed, all but calls that may still be open.
fn part(said: &Said, complete: bool) -> (String, String, Vec<(String, Value)>, bool, &'static str) {
    let tools = if complete { said.tools.clone() } else { Vec::new() };
    let text = if complete { said.text.clone() } else { String::new() };
    let reasoning = if complete { said.reasoning.clone() } else { String::new() };
    (text, reasoning, tools, said.complete, said.finish)
}

#[test]
fn every_recorded_stream_says_the_same_in_every_dialect() {
    for (name, wire) in WIRES {
        for case in cases(name).iter().filter(|case| case.status == 200 && case.kind == "sse") {
            check_stream(case, wire, true);
        }
    }
}

#[test]
fn a_recorded_stream_that_is_cut_fails_in_every_dialect() {
    for (name, wire) in WIRES {
        for case in cases(name).iter().filter(|case| case.status == 200 && case.kind == "sse") {
            let body = case.body.slice(..case.body.len() * 3 / 5);
            check_stream(&Case { body, ..case.clone() }, wire, false);
        }
    }
}

#[test]
fn every_recorded_reply_says_the_same_in_every_dialect() {
    for (name, wire) in WIRES {
        for case in cases(name).iter().filter(|case| case.status == 200 && case.kind == "json") {
            let whole = |api: Api| {
                let memo = memo(api, wire);
                api.whole(wire, &memo, case.body.clone(), context())
            };
            let Ok(want) = whole(Api::Chat) else {
                assert!(whole(Api::Messages).is_err(), "{}", case.id);
                assert!(whole(Api::Responses).is_err(), "{}", case.id);
                continue;
            };
            let chat = chat::json(&want.body);
            let choice = &chat.choices[&0];
            let text = choice.text.clone() + &choice.refusal;
            let names: Vec<&String> = choice.tools.iter().map(|tool| &tool.name).collect();

            let got = whole(Api::Messages).unwrap();
            let seen = messages::json(&got.body, wire == Wire::Anthropic);
            assert!(seen.faults.is_empty(), "{}: {:?}", case.id, seen.faults);
            assert_eq!(seen.text, text, "{}", case.id);
            assert_eq!(seen.tools.iter().map(|(n, _)| n).collect::<Vec<_>>(), names, "{}", case.id);
            assert_eq!(got.tap.usage, want.tap.usage, "{}", case.id);

            let got = whole(Api::Responses).unwrap();
            let seen = responses::json(&got.body);
            assert!(seen.faults.is_empty(), "{}: {:?}", case.id, seen.faults);
            assert_eq!(seen.text + &seen.refusal, text, "{}", case.id);
            assert_eq!(seen.reasoning, choice.reasoning, "{}", case.id);
            let got_tools = tools(seen.tools.iter().map(|(name, raw)| (name, raw)));
            let tools = tools(choice.tools.iter().map(|tool| (&tool.name, &tool.arguments)));
            assert_eq!(got_tools, tools, "{}", case.id);
            assert_eq!(got.tap.usage, want.tap.usage, "{}", case.id);
        }
    }
}

#[test]
fn recorded_responses_pass_and_their_usage_is_read() {
    let quirks = weir_filters::wire::Quirks { responses: true, ..Default::default() };
    let to = To { quirks, ..To::new(Wire::OpenAi) };
    let (_, _, memo) = to.ask(Api::Responses, &hello(Api::Responses));
    for case in cases("openai-responses").iter().filter(|case| case.status == 200) {
        if case.kind == "json" {
            let Ok(whole) = Api::Responses.whole(Wire::OpenAi, &memo, case.body.clone(), context())
            else {
                continue;
            };
            assert_eq!(whole.body, case.body, "{}: bytes pass", case.id);
            let body: Value = serde_json::from_slice(&case.body).unwrap();
            let output = body["usage"]["output_tokens"].as_u64();
            assert_eq!(whole.tap.usage.map(|usage| usage.output), output, "{}", case.id);
            continue;
        }
        if case.kind != "sse" {
            continue;
        }
        let mut first: Option<Filtered> = None;
        for cut in some_cuts(&case.body) {
            let parts = pieces(&case.body, &cut);
            let reply = filter(Api::Responses, Wire::OpenAi, memo.clone(), &parts, true);
            let mut faults = Vec::new();
            let events = super::replay::frames(&reply.out, &mut faults);
            assert!(faults.is_empty(), "{}: {faults:?}", case.id);
            let last = events.last().and_then(|(name, _)| name.clone()).unwrap_or_default();
            let ends = ["response.completed", "response.incomplete"];
            assert_eq!(ends.contains(&last.as_str()), reply.complete, "{}: {last}", case.id);
            assert!(reply.complete || last == "response.failed", "{}: {last}", case.id);
            assert!(!reply.complete || reply.usage.is_some(), "{}", case.id);
            if let Some(first) = &first {
                assert_eq!(reply.out, first.out, "{}: {cut:?}", case.id);
            }
            first.get_or_insert(reply);
        }
    }
}
