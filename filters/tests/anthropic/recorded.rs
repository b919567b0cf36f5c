//! Every recorded reply, whole and cut anywhere, against an independent reading of it.

use super::replay::{Case, cases, chat, cuts, pieces};
use super::{Filtered, context, filter};
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::usage::Usage;
use weir_filters::wire::{End, Wire};

/// What a caller must see of a reply, read without the wire's code.
#[derive(Debug, Default, PartialEq)]
struct Read {
    text: String,
    reasoning: String,
    /// Name and arguments, `None` where they are no JSON.
    tools: Vec<(String, Option<Value>)>,
    stop: Option<String>,
    usage: serde_json::Map<String, Value>,
    error: bool,
    /// A second message begins while a block is open.
    spliced: bool,
}

impl Read {
    fn block(&mut self, block: &Value) {
        let text = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
        match block["type"].as_str() {
            Some("text") => self.text += &text("text"),
            Some("thinking") => self.reasoning += &text("thinking"),
            Some("tool_use") => {
                let input =
                    if block["input"].is_null() { json!({}) } else { block["input"].clone() };
                self.tools.push((text("name"), Some(input)));
            }
            _ => {}
        }
    }

    fn finish(&self) -> &'static str {
        match self.stop.as_deref() {
            Some("tool_use") if !self.tools.is_empty() => "tool_calls",
            Some("max_tokens" | "model_context_window_exceeded") => "length",
            Some("refusal") => "content_filter",
            _ => "stop",
        }
    }

    fn usage(&self) -> Usage {
        let get = |key: &str| self.usage.get(key).and_then(Value::as_u64).unwrap_or(0);
        let thinking = self.usage.get("output_tokens_details");
        let thinking = thinking.and_then(|d| d["thinking_tokens"].as_u64()).unwrap_or(0);
        Usage {
            input: get("input_tokens"),
            cached: get("cache_read_input_tokens"),
            cache_write: get("cache_creation_input_tokens"),
            output: get("output_tokens"),
            reasoning: thinking,
        }
    }

    fn overwrite(&mut self, usage: &Value) {
        let given = usage.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        self.usage.extend(given.map(|(key, value)| (key.clone(), value.clone())));
    }
}

fn read_json(body: &[u8]) -> Read {
    let reply: Value = serde_json::from_slice(body).unwrap();
    let mut read = Read { error: reply["type"] == "error", ..Read::default() };
    reply["content"].as_array().into_iter().flatten().for_each(|block| read.block(block));
    read.stop = reply["stop_reason"].as_str().map(str::to_owned);
    read.overwrite(&reply["usage"]);
    read
}

fn read_sse(body: &[u8]) -> Read {
    let body = String::from_utf8(body.to_vec()).unwrap().replace("\r\n", "\n");
    let mut read = Read::default();
    // Block number, block, its text so far; closed ones are given to `read` in order.
    let mut open: Vec<(u64, Value, String)> = Vec::new();
    for event in body.split("\n\n") {
        let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or("null");
        let event: Value = serde_json::from_str(data).unwrap_or_default();
        let index = event["index"].as_u64().unwrap_or(0);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                read.spliced |= !open.is_empty();
                read.overwrite(&event["message"]["usage"]);
            }
            "content_block_start" => {
                open.push((index, event["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                let (_, _, text) = open.iter_mut().rfind(|(n, ..)| *n == index).unwrap();
                for key in ["text", "thinking", "partial_json"] {
                    *text += event["delta"][key].as_str().unwrap_or_default();
                }
            }
            "content_block_stop" => {
                let at = open.iter().rposition(|(n, ..)| *n == index).unwrap();
                let (_, mut block, text) = open.remove(at);
                for key in ["text", "thinking"] {
                    let start = block[key].as_str().unwrap_or_default().to_owned();
                    block[key] = (start + &text).into();
                }
                if block["type"] == "tool_use" && !text.is_empty() {
                    block["input"] = serde_json::from_str(&text).unwrap_or_default();
                }
                read.block(&block);
            }
            "message_delta" => {
                read.overwrite(&event["usage"]);
                read.stop = event["delta"]["stop_reason"].as_str().map(str::to_owned).or(read.stop);
            }
            "error" => read.error = true,
            _ => {}
        }
    }
    read
}

/// Judges one filtered stream.
fn judge(case: &Case, want: &Read, got: &Filtered, asked: bool) {
    let id = &case.id;
    let seen = got.seen(asked);
    let choice = seen.choices.get(&0).cloned().unwrap_or_default();
    if want.error || want.spliced {
        assert!(!got.complete(), "{id}: a failure ended well");
        assert!(want.spliced || choice.text.is_empty() || got.started, "{id}");
        return;
    }
    assert!(got.complete(), "{id}: {:?}", got.end);
    assert_eq!(choice.text, want.text, "{id}");
    assert_eq!(choice.reasoning, want.reasoning, "{id}");
    assert_eq!(choice.finish.as_deref(), Some(want.finish()), "{id}");
    assert_eq!(got.finish, Some(want.finish()), "{id}");
    let tools = choice.tools.iter();
    let tools: Vec<_> =
        tools.map(|tool| (tool.name.clone(), serde_json::from_str(&tool.arguments).ok())).collect();
    assert_eq!(tools, want.tools, "{id}");
    assert_eq!(got.usage, Some(want.usage()), "{id}");
    if asked {
        let usage = seen.usage.unwrap();
        assert_eq!(usage["prompt_tokens"].as_u64(), Some(want.usage().prompt()), "{id}");
        assert_eq!(usage["completion_tokens"].as_u64(), Some(want.usage().output), "{id}");
    }
}

fn streams() -> Vec<Case> {
    let all = cases("anthropic-messages").into_iter();
    all.filter(|case| case.status == 200 && case.kind == "sse").collect()
}

/// Hazard S18: bytes, usage and end are the same wherever the network cuts.
#[test]
fn every_recorded_stream_reads_the_same_at_every_cut_s18() {
    for case in streams() {
        let want = read_sse(&case.body);
        for asked in [true, false] {
            let whole = filter(std::slice::from_ref(&case.body), asked, true);
            judge(&case, &want, &whole, asked);
            for cut in cuts(&case.body) {
                let got = filter(&pieces(&case.body, &cut), asked, true);
                assert_eq!(got.out, whole.out, "{} at {cut:?}", case.id);
                assert_eq!(got.usage, whole.usage, "{} at {cut:?}", case.id);
                assert_eq!(got.complete(), whole.complete(), "{} at {cut:?}", case.id);
                assert_eq!(got.counted, whole.counted, "{} at {cut:?}", case.id);
            }
        }
    }
}

/// Hazards S16 and S17: whatever is missing at the end, the caller has what came, and no `[DONE]`
/// unless the answer's stop reason came too.
#[test]
fn every_recorded_stream_that_is_cut_short_is_an_answer_or_a_failure_never_both_s16_s17() {
    for case in streams() {
        let want = read_sse(&case.body);
        let last = case.body.len().min(16 << 10);
        for at in (0..last).step_by(if last > 4096 { 7 } else { 1 }) {
            for clean in [true, false] {
                let got = filter(&[case.body.slice(..at)], true, clean);
                let seen = got.seen(true);
                let text = seen.choices.get(&0).map_or("", |choice| &choice.text);
                let known = want.spliced || want.error || want.text.starts_with(text);
                assert!(known, "{} cut at {at}: {text:?}", case.id);
                match &got.end {
                    Some(End::Complete { .. }) => {
                        let said = String::from_utf8_lossy(&case.body[..at]);
                        assert!(said.contains("\"stop_reason\":\""), "{} cut at {at}", case.id);
                    }
                    Some(End::Failed(failure)) => {
                        let cut = failure.code.as_deref() == Some("truncated");
                        assert!(
                            want.error || want.spliced || cut == got.started,
                            "{} at {at}",
                            case.id
                        );
                    }
                    None => panic!("{} cut at {at} has no end", case.id),
                }
            }
        }
    }
}

#[test]
fn every_recorded_message_is_a_strict_completion() {
    for case in cases("anthropic-messages") {
        if case.kind != "json" {
            continue;
        }
        let want = read_json(&case.body);
        let got = Wire::Anthropic.whole(case.body.clone(), context(false));
        if want.error {
            // Their statuses are not 200, but the body alone must do.
            assert!(got.is_err(), "{}", case.id);
            continue;
        }
        let got = got.unwrap_or_else(|failure| panic!("{}: {failure:?}", case.id));
        let seen = chat::json(&got.body);
        assert!(seen.faults.is_empty(), "{}: {:?}", case.id, seen.faults);
        let choice = &seen.choices[&0];
        assert_eq!((&choice.text, &choice.reasoning), (&want.text, &want.reasoning));
        assert_eq!(choice.finish.as_deref(), Some(want.finish()), "{}", case.id);
        let tools = choice.tools.iter();
        let tools: Vec<_> = tools
            .map(|tool| (tool.name.clone(), serde_json::from_str(&tool.arguments).ok()))
            .collect();
        assert_eq!(tools, want.tools, "{}", case.id);
        assert_eq!(got.tap.usage, Some(want.usage()), "{}", case.id);
        let usage = seen.usage.unwrap();
        assert_eq!(usage["prompt_tokens"].as_u64(), Some(want.usage().prompt()));
        assert_eq!(
            usage["prompt_tokens_details"]["cached_tokens"].as_u64(),
            Some(want.usage().cached)
        );
        // The same message where a stream was asked for.
        let streamed = filter(std::slice::from_ref(&case.body), true, true);
        judge(&case, &want, &streamed, true);
    }
}

#[test]
fn a_whole_message_keeps_digits_thinking_and_order() {
    let body = br#"{"type":"message","id":"m1","model":"c","role":"assistant","content":[
        {"type":"thinking","thinking":"h\u00e9","signature":"s+/="},
        {"type":"redacted_thinking","data":"eA"},
        {"type":"text","text":"a"},{"type":"server_tool_use","id":"x","name":"y","input":{}},
        {"type":"text","text":"b"},
        {"type":"tool_use","id":"t","name":"f","input":{"x": 1.0, "y" : 12345678901234567890}},
        {"type":"tool_use","id":"u","name":"g","input":{}}],"stop_reason":"tool_use"}"#;
    let got = Wire::Anthropic.whole(Bytes::from_static(body), context(false)).unwrap();
    assert_eq!(got.tap.usage, None);
    let reply: Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!((&reply["id"], &reply["created"]), (&"m1".into(), &1_700_000_000.into()));
    let message = &reply["choices"][0]["message"];
    assert_eq!(message["content"], "ab");
    assert_eq!(message["reasoning_content"], "hé");
    assert_eq!(message["thinking_blocks"][0]["signature"], "s+/=");
    assert_eq!(message["thinking_blocks"][1]["data"], "eA");
    let calls = &message["tool_calls"];
    assert_eq!(calls[0]["function"]["arguments"], r#"{"x":1.0,"y":12345678901234567890}"#);
    assert_eq!(calls[1]["function"]["arguments"], "{}");
    assert_eq!(reply["usage"]["prompt_tokens"], 7);
}

#[test]
fn a_whole_reply_without_text_has_null_content() {
    let body = br#"{"type":"message","content":[],"stop_reason":"end_turn",
        "usage":{"input_tokens":1,"output_tokens":0}}"#;
    let got = Wire::Anthropic.whole(Bytes::from_static(body), context(false)).unwrap();
    let reply: Value = serde_json::from_slice(&got.body).unwrap();
    let message = &reply["choices"][0]["message"];
    assert!(message["content"].is_null() && message.get("tool_calls").is_none());
    assert_eq!((&reply["id"], &reply["model"]), (&"chatcmpl-t".into(), &"claude-x".into()));
    assert!(chat::json(&got.body).faults.is_empty());
}

#[test]
fn a_whole_reply_that_is_none_is_a_failure() {
    use weir_filters::error::Class;
    for (body, class) in [
        ("", Class::Invalid),
        ("<html>", Class::Invalid),
        ("{}", Class::Invalid),
        ("{\"content\":\"x\"}", Class::Invalid),
        ("{\"content\":[", Class::Invalid),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#,
            Class::Overloaded,
        ),
        (r#"{"error":{"type":"rate_limit_error","message":"x"}}"#, Class::RateLimited),
    ] {
        let got = Wire::Anthropic.whole(Bytes::from_static(body.as_bytes()), context(false));
        let failure = got.err().unwrap_or_else(|| panic!("an answer: {body}"));
        assert_eq!(failure.class, class, "{body}");
    }
}
