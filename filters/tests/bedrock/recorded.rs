//! Every recorded reply, whole and cut anywhere, against an independent reading of it.

use super::replay::drive::{Want, every_cut, every_end, every_shortening};
use super::replay::{Case, cases};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_filters::error::{Class, classify};
use weir_filters::usage::Usage;
use weir_filters::wire::Wire;

fn word(bytes: &[u8]) -> usize {
    u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize
}

/// Event names and payloads; the name is empty for an exception, and for what is no frame.
fn events(body: &[u8]) -> Vec<(String, Value)> {
    let (mut at, mut out) = (0, Vec::new());
    while at < body.len() {
        let (total, headers) = (word(&body[at..]), word(&body[at + 4..]));
        let Some(frame) = body.get(at..at + total) else {
            out.push((String::new(), Value::Null));
            break;
        };
        let head = String::from_utf8_lossy(&frame[12..12 + headers]).into_owned();
        let payload = serde_json::from_slice(&frame[12 + headers..total - 4]).unwrap();
        let names = [
            "messageStart",
            "contentBlockStart",
            "contentBlockDelta",
            "contentBlockStop",
            "messageStop",
            "metadata",
        ];
        let name = names.iter().find(|name| head.contains(**name)).unwrap_or(&"");
        out.push(((*name).to_owned(), payload));
        at += total;
    }
    out
}

fn finish(reason: Option<&str>) -> &'static str {
    match reason {
        Some("tool_use") => "tool_calls",
        Some("max_tokens") => "length",
        Some("content_filtered" | "guardrail_intervened") => "content_filter",
        _ => "stop",
    }
}

fn usage(usage: &Value) -> Option<Usage> {
    let get = |key: &str| usage[key].as_u64().unwrap_or(0);
    usage.is_object().then(|| Usage {
        input: get("inputTokens"),
        cached: get("cacheReadInputTokens"),
        cache_write: get("cacheWriteInputTokens"),
        output: get("outputTokens"),
        reasoning: 0,
    })
}

fn read_stream(case: &Case) -> Want {
    let mut want = Want::default();
    let mut tools = BTreeMap::new();
    for (name, event) in events(&case.body) {
        let index = event["contentBlockIndex"].as_u64().unwrap_or(0);
        match name.as_str() {
            "contentBlockStart" => {
                let call = &event["start"]["toolUse"];
                let name = call["name"].as_str().unwrap().to_owned();
                tools.insert(index, (name, String::new()));
            }
            "contentBlockDelta" => {
                let delta = &event["delta"];
                want.text += delta["text"].as_str().unwrap_or_default();
                let reasoning = &delta["reasoningContent"]["text"];
                want.reasoning += reasoning.as_str().unwrap_or_default();
                if let Some((_, input)) = tools.get_mut(&index) {
                    input.push_str(delta["toolUse"]["input"].as_str().unwrap_or_default());
                }
            }
            "messageStop" => want.finish = Some(finish(event["stopReason"].as_str())),
            "metadata" => want.usage = usage(&event["usage"]),
            "" => want.fails = true,
            _ => {}
        }
    }
    let sound = |input: String| serde_json::from_str(&input).ok();
    want.tools = tools.into_values().map(|(name, input)| (name, sound(input))).collect();
    want
}

fn read_whole(case: &Case) -> Want {
    let reply: Value = serde_json::from_slice(&case.body).unwrap();
    let mut want = Want::default();
    for block in reply["output"]["message"]["content"].as_array().unwrap() {
        want.text += block["text"].as_str().unwrap_or_default();
        let reasoning = &block["reasoningContent"]["reasoningText"]["text"];
        want.reasoning += reasoning.as_str().unwrap_or_default();
        let call = &block["toolUse"];
        if call.is_object() && call["type"] != "server_tool_use" {
            let name = call["name"].as_str().unwrap().to_owned();
            want.tools.push((name, Some(call["input"].clone())));
        }
    }
    want.finish = Some(finish(reply["stopReason"].as_str()));
    want.usage = usage(&reply["usage"]);
    want
}

/// Hazard T13: binary frames cut anywhere give the same text and usage.
#[test]
fn every_recorded_stream_reads_the_same_at_every_cut_t13() {
    for case in cases("bedrock-converse-stream") {
        every_cut(Wire::Bedrock, &case, &read_stream(&case));
    }
}

#[test]
fn every_recorded_stream_cut_short_is_an_answer_or_a_failure_never_both() {
    for case in cases("bedrock-converse-stream") {
        let want = read_stream(&case);
        every_shortening(Wire::Bedrock, &case, &want);
        every_end(Wire::Bedrock, &case, &want, |body| {
            String::from_utf8_lossy(body).contains("\"stopReason\"")
        });
    }
}

#[test]
fn every_recorded_message_is_a_strict_completion_and_so_is_it_as_a_stream() {
    for case in cases("bedrock-converse").into_iter().filter(|case| case.status == 200) {
        let want = read_whole(&case);
        want.judge_whole(Wire::Bedrock, &case);
        every_cut(Wire::Bedrock, &case, &want);
    }
}

#[test]
fn every_recorded_error_has_its_class() {
    for case in cases("bedrock-converse").into_iter().filter(|case| case.status != 200) {
        let header = |name: &str| {
            case.headers.iter().find(|(k, _)| k == name).map(|(_, value)| value.clone())
        };
        let failure = classify(case.status, &header, &case.body);
        let want = match case.status {
            400 => Class::BadRequest,
            403 => Class::Auth,
            404 => Class::ModelNotFound,
            408 => Class::Timeout,
            429 => Class::RateLimited,
            503 => Class::Overloaded,
            _ => Class::Server,
        };
        assert_eq!(failure.class, want, "{}", case.id);
        let message: Value = serde_json::from_slice(&case.body).unwrap();
        assert_eq!(json!(failure.message), message["message"], "{}", case.id);
    }
}
