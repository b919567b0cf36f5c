//! Conversations that nobody wrote, through every dialect and wire.

use super::To;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_filters::dialect::Api;
use weir_filters::wire::Wire;

/// What somebody said, whatever the protocol.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    System(String),
    User(String),
    Assistant(String),
    Call(String, Value),
    Result(String),
}

/// A turn of the assistant and what came of it.
#[derive(Debug, Clone)]
struct Turn {
    user: String,
    assistant: String,
    calls: Vec<(String, Value, String)>,
}

fn words() -> impl Strategy<Value = String> {
    // Begins and ends in a letter: providers refuse blank texts, and trim a last one.
    "[a-zé🦀]([a-z \n\"\\\\{}é🦀]{0,12}[a-z])?"
}

fn arguments() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        words().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(1.5)),
        Just(json!([1, {"x": null}])),
        Just(json!({"deep": {"er": true}})),
    ];
    proptest::collection::btree_map("[a-z_]{1,8}", value, 0..3).prop_map(|map| json!(map))
}

fn turn() -> impl Strategy<Value = Turn> {
    let calls = proptest::collection::vec(("[a-z_]{1,12}", arguments(), words()), 0..3);
    (words(), words(), calls).prop_map(|(user, assistant, calls)| Turn { user, assistant, calls })
}

fn id(turn: usize, call: usize) -> String {
    format!("call_{turn}_{call}")
}

/// What the conversation says, in order.
fn facts(system: &str, turns: &[Turn], last: &str) -> Vec<Said> {
    let mut all = vec![Said::System(system.into())];
    for turn in turns {
        all.extend([Said::User(turn.user.clone()), Said::Assistant(turn.assistant.clone())]);
        all.extend(turn.calls.iter().map(|(name, args, _)| Said::Call(name.clone(), args.clone())));
        all.extend(turn.calls.iter().map(|(_, _, result)| Said::Result(result.clone())));
    }
    all.push(Said::User(last.into()));
    all
}

fn tools(turns: &[Turn], write: impl Fn(&str) -> Value) -> Vec<Value> {
    let names = turns.iter().flat_map(|turn| turn.calls.iter().map(|(name, ..)| name.as_str()));
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(write).collect()
}

/// The conversation in a dialect's words.
fn body(api: Api, system: &str, turns: &[Turn], last: &str) -> Value {
    let schema = || json!({"type": "object", "properties": {"x": {"type": "string"}}});
    let mut list = Vec::new();
    for (n, turn) in turns.iter().enumerate() {
        let calls = || turn.calls.iter().enumerate().map(move |(m, call)| (id(n, m), call));
        match api {
            Api::Messages => {
                let uses = calls().map(|(id, (name, input, _))| {
                    json!({"type": "tool_use", "id": id, "name": name, "input": input})
                });
                let text = json!({"type": "text", "text": turn.assistant});
                let content: Vec<_> = std::iter::once(text).chain(uses).collect();
                list.push(json!({"role": "user", "content": turn.user}));
                list.push(json!({"role": "assistant", "content": content}));
                let results: Vec<_> = calls()
                    .map(|(id, (.., result))| {
                        json!({"type": "tool_result", "tool_use_id": id, "content": result})
                    })
                    .collect();
                if !results.is_empty() {
                    list.push(json!({"role": "user", "content": results}));
                }
            }
            Api::Responses => {
                list.push(json!({"role": "user", "content": turn.user}));
                list.push(json!({"role": "assistant", "content": turn.assistant}));
                list.extend(calls().map(|(id, (name, args, _))| {
                    json!({"type": "function_call", "call_id": id, "name": name,
                           "arguments": args.to_string()})
                }));
                list.extend(calls().map(|(id, (.., result))| {
                    json!({"type": "function_call_output", "call_id": id, "output": result})
                }));
            }
            _ => {
                let called: Vec<_> = calls()
                    .map(|(id, (name, args, _))| {
                        json!({"id": id, "type": "function",
                               "function": {"name": name, "arguments": args.to_string()}})
                    })
                    .collect();
                list.push(json!({"role": "user", "content": turn.user}));
                let mut said = json!({"role": "assistant", "content": turn.assistant});
                if !called.is_empty() {
                    said["tool_calls"] = called.into();
                }
                list.push(said);
                list.extend(calls().map(|(id, (.., result))| {
                    json!({"role": "tool", "tool_call_id": id, "content": result})
                }));
            }
        }
    }
    list.push(json!({"role": "user", "content": last}));
    match api {
        Api::Messages => json!({"model": "m", "max_tokens": 99, "system": system, "messages": list,
            "tools": tools(turns, |name| json!({"name": name, "input_schema": schema()}))}),
        Api::Responses => json!({"model": "m", "instructions": system, "input": list,
        "tools": tools(turns, |name| {
            json!({"type": "function", "name": name, "parameters": schema(), "strict": false})
        })}),
        _ => {
            list.insert(0, json!({"role": "system", "content": system}));
            json!({"model": "m", "messages": list, "tools": tools(turns, |name| {
                json!({"type": "function", "function": {"name": name, "parameters": schema()}})
            })})
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| text(&part["text"])).collect(),
        _ => String::new(),
    }
}

fn list(value: &Value) -> Vec<&Value> {
    value.as_array().into_iter().flatten().collect()
}

/// What a provider's request says: a reader of its own for each protocol.
fn read(wire: Wire, sent: &Value) -> Vec<Said> {
    let mut all = Vec::new();
    let system = match wire {
        Wire::Gemini | Wire::Vertex => text(&sent["systemInstruction"]["parts"]),
        _ => text(&sent["system"]),
    };
    if !system.is_empty() {
        all.push(Said::System(system));
    }
    let turns = [&sent["contents"], &sent["input"]["messages"], &sent["messages"]];
    let turns = turns.into_iter().find(|turns| turns.is_array()).unwrap_or(&Value::Null);
    for turn in list(turns) {
        let role = turn["role"].as_str().unwrap_or_default();
        let say = |text: String| match role {
            "system" | "developer" => Said::System(text),
            "assistant" | "model" => Said::Assistant(text),
            "tool" | "function" => Said::Result(text),
            _ => Said::User(text),
        };
        let pieces = if turn["parts"].is_array() { &turn["parts"] } else { &turn["content"] };
        match pieces {
            Value::String(text) if !text.is_empty() => all.push(say(text.clone())),
            pieces => list(pieces).into_iter().for_each(|piece| all.push(block(piece, &say))),
        }
        let legacy = turn["function_call"].is_object().then_some(&turn["function_call"]);
        let calls = list(&turn["tool_calls"]).into_iter().map(|call| &call["function"]);
        for call in calls.chain(legacy) {
            let (name, given) = (text(&call["name"]), &call["arguments"]);
            let given =
                given.as_str().map_or(given.clone(), |raw| serde_json::from_str(raw).unwrap());
            all.push(Said::Call(name, given));
        }
    }
    all
}

/// The same conversation where a turn has one call, as Qianfan's first chat has it: each result
/// follows its call, and takes the caller's turn, so that the caller's next words stand in it.
fn one_by_one(all: Vec<Said>) -> Vec<Said> {
    let mut out: Vec<Said> = Vec::new();
    let mut all = all.into_iter().peekable();
    while let Some(said) = all.next() {
        if !matches!(said, Said::Call(..)) {
            match (out.last_mut(), said) {
                (Some(Said::Result(before)), Said::User(text)) => *before += &format!("\n{text}"),
                (_, said) => out.push(said),
            }
            continue;
        }
        let mut calls = vec![said];
        calls.extend(std::iter::from_fn(|| all.next_if(|said| matches!(said, Said::Call(..)))));
        let results: Vec<_> = all.by_ref().take(calls.len()).collect();
        out.extend(calls.into_iter().zip(results).flat_map(|(call, result)| [call, result]));
    }
    out
}

/// Qianfan's results name the function that gave them, for want of ids.
fn results_follow_their_calls(sent: &Value) -> bool {
    let turns = list(&sent["messages"]);
    let mut pairs = turns.windows(2).filter(|pair| pair[1]["role"] == "function");
    pairs.all(|pair| pair[0]["function_call"]["name"] == pair[1]["name"])
}

fn block(piece: &Value, say: &dyn Fn(String) -> Said) -> Said {
    let result = |value: &Value| match value {
        Value::Object(map) => map.values().map(text).collect(),
        other => text(other),
    };
    let call = |value: &Value, given: &str| Said::Call(text(&value["name"]), value[given].clone());
    if piece["type"] == "tool_use" {
        call(piece, "input")
    } else if piece["type"] == "tool_result" {
        Said::Result(text(&piece["content"]))
    } else if piece["toolUse"].is_object() {
        call(&piece["toolUse"], "input")
    } else if piece["toolResult"].is_object() {
        Said::Result(text(&piece["toolResult"]["content"]))
    } else if piece["functionCall"].is_object() {
        call(&piece["functionCall"], "args")
    } else if piece["functionResponse"].is_object() {
        Said::Result(result(&piece["functionResponse"]["response"]))
    } else {
        say(text(&piece["text"]))
    }
}

/// Neighbours of one side as one, since some protocols have turns and others messages.
fn joined(all: Vec<Said>) -> Vec<Said> {
    let mut out: Vec<Said> = Vec::new();
    for said in all {
        match (out.last_mut(), said) {
            (Some(Said::User(before)), Said::User(text)) => before.push_str(&text),
            (_, said) => out.push(said),
        }
    }
    out
}

const WIRES: [Wire; 9] = [
    Wire::OpenAi,
    Wire::Azure,
    Wire::Anthropic,
    Wire::Gemini,
    Wire::Bedrock,
    Wire::Ollama,
    Wire::Cohere,
    Wire::DashScope,
    Wire::Qianfan,
];
pub const APIS: [Api; 3] = [Api::Chat, Api::Messages, Api::Responses];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_conversation_says_the_same_in_every_dialect_on_every_wire(
        system in words(),
        turns in proptest::collection::vec(turn(), 0..4),
        last in words(),
    ) {
        let want = joined(facts(&system, &turns, &last));
        for api in APIS {
            let body = body(api, &system, &turns, &last);
            for wire in WIRES {
                let (sent, dropped, _) = To::new(wire).ask(api, &body);
                let want = match wire {
                    Wire::Qianfan => one_by_one(want.clone()),
                    _ => want.clone(),
                };
                prop_assert_eq!(joined(read(wire, &sent)), want, "{:?} {:?} {}", api, wire, sent);
                prop_assert!(results_follow_their_calls(&sent), "{:?} {:?} {}", api, wire, sent);
                prop_assert!(dropped.is_empty(), "{:?} {:?} {:?}", api, wire, dropped);
            }
        }
    }

    #[test]
    fn any_chat_comes_back_through_the_dialect_that_reads_a_wire_s_request(
        system in words(),
        turns in proptest::collection::vec(turn(), 0..4),
        last in words(),
        options in options(),
    ) {
        let mut body = body(Api::Chat, &system, &turns, &last);
        body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        if body["tools"].as_array().unwrap().is_empty() {
            for name in ["tool_choice", "parallel_tool_calls"] {
                body.as_object_mut().unwrap().remove(name);
            }
        }
        // Into Messages, and out of it as callers of Messages are read.
        let (there, dropped, _) = To::new(Wire::Anthropic).ask(Api::Chat, &body);
        prop_assert!(dropped.is_empty(), "{:?} {}", dropped, there);
        let to = To { model: "gpt-5", ..To::new(Wire::OpenAi) };
        let (back, dropped, _) = to.ask(Api::Messages, &there);
        prop_assert!(dropped.is_empty(), "{:?} {}", dropped, back);
        let (said, want) = (joined(read(Wire::OpenAi, &back)), facts(&system, &turns, &last));
        prop_assert_eq!(&said, &joined(want), "{}", there);
        for name in ["max_completion_tokens", "stop", "user", "tool_choice"] {
            prop_assert_eq!(&back[name], &body[name], "{} {}", name, there);
        }
        // Messages has no word for calls in parallel but the one that forbids them.
        prop_assert_eq!(back["parallel_tool_calls"] == false, body["parallel_tool_calls"] == false);
        prop_assert_eq!(text(&back["reasoning_effort"]), text(&body["reasoning_effort"]));
        let schema = |chat: &Value| chat["response_format"]["json_schema"]["schema"].clone();
        prop_assert_eq!(schema(&back), schema(&body));
        prop_assert_eq!(declared(&back), declared(&body), "{}", there);
    }
}

/// Options of a chat that Messages has too, in words of both.
fn options() -> impl Strategy<Value = Value> {
    let choice = prop_oneof![Just(json!("auto")), Just(json!("none")), Just(Value::Null),];
    (
        1_u64..100_000,
        proptest::collection::vec("[A-Z]{1,5}", 1..4),
        "[a-z0-9]{1,20}",
        choice,
        prop::option::of(any::<bool>()),
        any::<bool>(),
    )
        .prop_map(|(limit, stop, user, choice, parallel, schema)| {
            let mut options = json!({"max_completion_tokens": limit, "stop": stop, "user": user});
            if !choice.is_null() {
                options["tool_choice"] = choice;
            }
            // Whoever calls nothing calls nothing twice, and Messages cannot say both.
            if let Some(parallel) = parallel.filter(|_| options["tool_choice"] != "none") {
                options["parallel_tool_calls"] = parallel.into();
                if options.get("tool_choice").is_none() {
                    options["tool_choice"] = "auto".into();
                }
            }
            if schema {
                options["response_format"] = json!({"type": "json_schema", "json_schema": {
                    "name": "output", "schema": {"type": "object", "required": ["a"]}}});
            }
            options
        })
}

/// Names and schemas of a chat's tools.
fn declared(chat: &Value) -> Vec<(String, Value)> {
    let of =
        |tool: &Value| (text(&tool["function"]["name"]), tool["function"]["parameters"].clone());
    list(&chat["tools"]).into_iter().map(of).collect()
}
