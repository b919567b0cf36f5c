//! The strict rules of an OpenAI chat stream and reply, and what a client reads out of them.

use serde_json::Value;
use std::collections::BTreeMap;

const FINISH: [&str; 5] = ["stop", "length", "tool_calls", "content_filter", "function_call"];

/// A tool call as a client assembles it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tool {
    pub name: String,
    pub arguments: String,
    pub id: String,
}

/// One choice as a client assembles it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    pub text: String,
    pub reasoning: String,
    pub refusal: String,
    pub tools: Vec<Tool>,
    pub finish: Option<String>,
    role: bool,
    legacy: Option<Tool>,
}

/// What was read, and every rule that did not hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    pub faults: Vec<String>,
    pub choices: BTreeMap<i64, Choice>,
    pub usage: Option<Value>,
    pub done: bool,
    usage_chunks: usize,
    head: Option<[Value; 3]>,
}

impl Seen {
    fn hold(&mut self, holds: bool, fault: impl Into<String>) {
        let fault = fault.into();
        if !holds && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Reads a stream that ended well (`whole`) or was cut before an error event (not `whole`).
/// `asked`: the client asked for usage.
pub fn stream(body: &[u8], asked: bool, whole: bool) -> Seen {
    let mut seen = Seen::default();
    let mut faults = Vec::new();
    for (name, data) in super::frames(body, &mut faults) {
        seen.hold(!seen.done, "data after [DONE]");
        if data == "[DONE]" {
            seen.done = true;
            continue;
        }
        let Ok(chunk) = serde_json::from_str::<Value>(&data) else {
            seen.hold(false, format!("data is no JSON: {data}"));
            continue;
        };
        seen.hold(matches!(name.as_deref(), None | Some("message")), format!("event {name:?}"));
        seen.hold(chunk.get("error").is_none_or(Value::is_null), "an error");
        read_chunk(&mut seen, &chunk, asked);
    }
    seen.faults.extend(faults);
    close(&mut seen, asked, whole);
    seen
}

fn read_chunk(seen: &mut Seen, chunk: &Value, asked: bool) {
    let head = ["id", "created", "model"].map(|k| chunk[k].clone());
    seen.hold(!text(&head[0]).is_empty(), format!("id {}", head[0]));
    seen.hold(head[1].is_i64(), format!("created {}", head[1]));
    seen.hold(!text(&head[2]).is_empty(), format!("model {}", head[2]));
    seen.hold(chunk["object"] == "chat.completion.chunk", format!("object {}", chunk["object"]));
    let first = seen.head.get_or_insert_with(|| head.clone()).clone();
    seen.hold(first == head, "id, created or model changed");
    seen.hold(seen.usage_chunks == 0, "a chunk after the usage chunk");
    seen.hold(chunk["choices"].is_array(), "choices is no array");
    let choices = chunk["choices"].as_array().cloned().unwrap_or_default();
    let usage = &chunk["usage"];
    if choices.is_empty() {
        seen.usage_chunks += 1;
        check_usage(seen, usage);
        seen.usage = Some(usage.clone());
        seen.hold(asked, "a usage chunk nobody asked for");
        let finished = seen.choices.values().all(|c| c.finish.is_some());
        seen.hold(finished && !seen.choices.is_empty(), "usage before the finish");
    } else {
        seen.hold(usage.is_null(), "usage inside a chunk with choices");
    }
    for choice in &choices {
        read_choice(seen, choice);
    }
}

fn read_choice(seen: &mut Seen, choice: &Value) {
    seen.hold(choice["index"].is_i64(), "choice.index");
    seen.hold(choice.get("finish_reason").is_some(), "finish_reason key missing");
    let index = choice["index"].as_i64().unwrap_or(0);
    let mut state = seen.choices.remove(&index).unwrap_or_default();
    seen.hold(state.finish.is_none(), "a choice goes on after its finish_reason");
    let delta = &choice["delta"];
    seen.hold(delta.is_object(), "delta is no object");
    if state.role {
        seen.hold(delta.get("role").is_none(), "role repeated");
    } else {
        seen.hold(delta["role"] == "assistant", "the first delta has no role");
    }
    state.role = true;
    for (key, into) in [
        ("content", &mut state.text),
        ("reasoning_content", &mut state.reasoning),
        ("refusal", &mut state.refusal),
    ] {
        seen.hold(delta[key].is_null() || delta[key].is_string(), format!("{key} is no string"));
        into.push_str(text(&delta[key]));
    }
    let calls = &delta["tool_calls"];
    seen.hold(calls.is_null() || calls.is_array(), "tool_calls is no array");
    for call in calls.as_array().into_iter().flatten() {
        read_call(seen, &mut state, call);
    }
    if delta["function_call"].is_object() {
        let legacy = state.legacy.get_or_insert_with(Tool::default);
        legacy.name.push_str(text(&delta["function_call"]["name"]));
        legacy.arguments.push_str(text(&delta["function_call"]["arguments"]));
    }
    if let Some(finish) = choice["finish_reason"].as_str() {
        seen.hold(FINISH.contains(&finish), format!("finish_reason {finish}"));
        state.finish = Some(finish.to_owned());
    }
    seen.choices.insert(index, state);
}

fn read_call(seen: &mut Seen, state: &mut Choice, call: &Value) {
    let Some(index) = call["index"].as_u64().and_then(|i| usize::try_from(i).ok()) else {
        seen.hold(false, "tool_calls.index");
        return;
    };
    let function = &call["function"];
    let arguments = &function["arguments"];
    seen.hold(arguments.is_null() || arguments.is_string(), "arguments is no string");
    let (id, name) = (text(&call["id"]), text(&function["name"]));
    if let Some(known) = state.tools.get_mut(index) {
        seen.hold(id.is_empty() && name.is_empty(), "id or name repeated");
        known.arguments.push_str(text(arguments));
        return;
    }
    seen.hold(index == state.tools.len(), "tool index not dense");
    seen.hold(!id.is_empty(), "a tool call starts without id");
    seen.hold(!name.is_empty(), "a tool call starts without name");
    seen.hold(call["type"] == "function", "a tool call starts without type");
    seen.hold(arguments.is_string(), "a tool call starts without arguments");
    seen.hold(state.tools.iter().all(|t| t.id != id), "two tool calls share one id");
    let (name, id) = (name.to_owned(), id.to_owned());
    state.tools.push(Tool { name, id, arguments: text(arguments).to_owned() });
}

/// The three counts are integers and the total is not below its parts.
pub fn check_usage(seen: &mut Seen, usage: &Value) {
    let [prompt, completion, total] =
        ["prompt_tokens", "completion_tokens", "total_tokens"].map(|k| usage[k].as_u64());
    let sound = matches!((prompt, completion, total), (Some(p), Some(c), Some(t)) if t >= p + c);
    seen.hold(sound, format!("usage {usage}"));
    for key in ["prompt_tokens_details", "completion_tokens_details"] {
        seen.hold(usage[key].is_null() || usage[key].is_object(), format!("usage.{key}"));
    }
}

fn close(seen: &mut Seen, asked: bool, whole: bool) {
    let dense = seen.choices.keys().copied().eq(0..i64::try_from(seen.choices.len()).unwrap());
    seen.hold(dense, "choice indexes");
    let choices: Vec<Choice> = seen.choices.values().cloned().collect();
    for choice in &choices {
        if whole {
            seen.hold(choice.finish.is_some(), "a choice has no finish_reason");
            check_tools(seen, choice);
        }
    }
    for choice in seen.choices.values_mut() {
        choice.tools.extend(choice.legacy.take());
    }
    if whole {
        seen.hold(seen.done, "no [DONE]");
        seen.hold(!choices.is_empty(), "no choice at all");
        seen.hold(!asked || seen.usage_chunks == 1, format!("{} usage chunks", seen.usage_chunks));
    } else {
        seen.hold(!seen.done, "[DONE] before an error");
    }
}

fn check_tools(seen: &mut Seen, choice: &Choice) {
    let finish = choice.finish.as_deref();
    let any = !choice.tools.is_empty() || choice.legacy.is_some();
    seen.hold(finish != Some("tool_calls") || any, "finish tool_calls without a tool call");
    for tool in choice.tools.iter().chain(&choice.legacy) {
        let value = serde_json::from_str::<Value>(&tool.arguments);
        let sound = value.is_ok_and(|v| v.is_object() || v.is_null());
        seen.hold(sound || finish == Some("length"), format!("arguments {:?}", tool.arguments));
    }
}

/// Reads a whole JSON reply.
pub fn json(body: &[u8]) -> Seen {
    let mut seen = Seen::default();
    let Ok(reply) = serde_json::from_slice::<Value>(body) else {
        seen.faults.push("no JSON".into());
        return seen;
    };
    for (key, holds) in [
        ("id", !text(&reply["id"]).is_empty()),
        ("object", reply["object"] == "chat.completion"),
        ("created", reply["created"].is_i64()),
        ("model", !text(&reply["model"]).is_empty()),
        ("choices", reply["choices"].as_array().is_some_and(|c| !c.is_empty())),
    ] {
        seen.hold(holds, format!("{key} {}", reply[key]));
    }
    for choice in reply["choices"].as_array().into_iter().flatten() {
        read_message(&mut seen, choice);
    }
    check_usage(&mut seen, &reply["usage"]);
    seen.usage = Some(reply["usage"].clone());
    seen
}

fn read_message(seen: &mut Seen, choice: &Value) {
    let number = seen.choices.len();
    seen.hold(choice["index"].as_u64() == Some(number as u64), "choice.index");
    let message = &choice["message"];
    seen.hold(message["role"] == "assistant", "role");
    seen.hold(message.get("content").is_some(), "content key missing");
    let finish = text(&choice["finish_reason"]);
    seen.hold(FINISH.contains(&finish), format!("finish_reason {finish}"));
    let mut state = Choice { finish: Some(finish.to_owned()), ..Choice::default() };
    for (key, into) in [
        ("content", &mut state.text),
        ("reasoning_content", &mut state.reasoning),
        ("refusal", &mut state.refusal),
    ] {
        seen.hold(
            message[key].is_null() || message[key].is_string(),
            format!("{key} is no string"),
        );
        into.push_str(text(&message[key]));
    }
    let calls = &message["tool_calls"];
    seen.hold(calls.is_null() || calls.is_array(), "tool_calls is no array");
    for (n, call) in calls.as_array().into_iter().flatten().enumerate() {
        let mut call = call.clone();
        call["index"] = n.into();
        read_call(seen, &mut state, &call);
    }
    if message["function_call"].is_object() {
        let call = &message["function_call"];
        let (name, arguments) = (text(&call["name"]).into(), text(&call["arguments"]).into());
        state.legacy = Some(Tool { name, arguments, id: String::new() });
    }
    check_tools(seen, &state);
    state.tools.extend(state.legacy.take());
    seen.choices.insert(i64::try_from(number).unwrap(), state);
}
