//! Streams by rule: what each event comes to, and what an end is worth.

use super::{context, sse, stream};
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::error::Class;
use weir_filters::usage::Usage;
use weir_filters::wire::{Step, Wire};

pub(super) const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message",
    "role":"assistant","model":"claude-y","content":[],"usage":{"input_tokens":30,
    "cache_read_input_tokens":5,"output_tokens":2}}}"#;
pub(super) const TEXT: &str =
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
pub(super) const HI: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta",
    "text":"hi \u00e9\n"}}"#;
pub(super) const TEXT_END: &str = r#"{"type":"content_block_stop","index":0}"#;
pub(super) const STOP: &str = r#"{"type":"message_stop"}"#;

fn tool(index: u32, id: &str, input: &str) -> String {
    format!(
        r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use",
            "id":"{id}","name":"get_time","input":{input}}}}}"#
    )
}

fn fragment(index: u32, json: &str) -> String {
    let json = serde_json::to_string(json).unwrap();
    format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta",
            "partial_json":{json}}}}}"#
    )
}

fn end(index: u32) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn delta(reason: &str, usage: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":{reason},"stop_sequence":null}},
            "usage":{usage}}}"#
    )
}

pub(super) fn settled(reason: &str) -> String {
    delta(&format!("\"{reason}\""), r#"{"output_tokens":18}"#)
}

/// The chunks of a stream as JSON, comments and `[DONE]` left out.
fn chunks(out: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(out.to_vec()).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn a_text_stream_has_one_head_role_first_then_text_finish_and_done() {
    let got = stream(&[START, TEXT, HI, TEXT_END, &settled("end_turn"), STOP], false);
    let seen = got.seen(false);
    assert_eq!(seen.choices[&0].text, "hi é\n");
    assert_eq!(seen.choices[&0].finish.as_deref(), Some("stop"));
    let chunks = chunks(&got.out);
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!((&chunks[0]["id"], &chunks[0]["model"]), (&json!("msg_1"), &json!("claude-y")));
    assert_eq!(chunks.len(), 3);
    assert_eq!(got.model.as_deref(), Some("claude-y"));
    assert_eq!(got.finish, Some("stop"));
}

/// Hazard S29: `message_delta` has totals, which replace those of `message_start`.
#[test]
fn usage_of_the_delta_replaces_the_starts_field_by_field_s29() {
    let got = stream(&[START, TEXT, HI, TEXT_END, &settled("end_turn"), STOP], true);
    let want = Usage { input: 30, cached: 5, cache_write: 0, output: 18, reasoning: 0 };
    assert_eq!(got.usage, Some(want));
    let usage = got.seen(true).usage.unwrap();
    assert_eq!(usage["prompt_tokens"], 35);
    assert_eq!(usage["completion_tokens"], 18);
    assert_eq!(usage["total_tokens"], 53);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 5);
    let later = delta(
        r#""end_turn""#,
        r#"{"input_tokens":31,"output_tokens":4,"cache_creation_input_tokens":7,
            "output_tokens_details":{"thinking_tokens":3}}"#,
    );
    let got = stream(&[START, TEXT, HI, TEXT_END, &later, STOP], false);
    let want = Usage { input: 31, cached: 5, cache_write: 7, output: 4, reasoning: 3 };
    assert_eq!(got.usage, Some(want));
}

#[test]
fn usage_that_nobody_reports_is_counted_for_the_caller_and_left_open_for_us() {
    let bare = r#"{"type":"message_start","message":{"id":"m","model":"c"}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let got = stream(&[bare, TEXT, HI, TEXT_END, end, STOP], true);
    assert_eq!(got.usage, None);
    let usage = got.seen(true).usage.unwrap();
    assert_eq!(usage["prompt_tokens"], 7);
    assert_eq!(usage["completion_tokens"].as_u64(), Some(got.counted));
    assert!(got.counted > 0);
}

/// Hazard T01: a call is one start with id, type and name, then pieces of its arguments.
#[test]
fn a_tool_call_is_streamed_and_finishes_as_tool_calls_t01() {
    let events = [
        START,
        &tool(0, "t1", "{}"),
        &fragment(0, ""),
        &fragment(0, "{\"tz\":"),
        &fragment(0, "\"A\"}"),
        &end(0),
        &settled("tool_use"),
        STOP,
    ];
    let got = stream(&events, false);
    let seen = got.seen(false);
    let call = &seen.choices[&0].tools[0];
    assert_eq!((&*call.id, &*call.name, &*call.arguments), ("t1", "get_time", r#"{"tz":"A"}"#));
    assert_eq!(seen.choices[&0].finish.as_deref(), Some("tool_calls"));
    let parts = chunks(&got.out);
    let deltas: Vec<_> = parts.iter().map(|c| &c["choices"][0]["delta"]["tool_calls"][0]).collect();
    assert_eq!(
        *deltas[1],
        json!({"index": 0, "id": "t1", "type": "function",
               "function": {"name": "get_time", "arguments": ""}})
    );
    assert_eq!(*deltas[2], json!({"index": 0, "function": {"arguments": "{\"tz\":"}}));
}

/// Hazard T02: indexes count tool calls, not blocks.
#[test]
fn tool_indexes_are_dense_whatever_stands_between_them_t02() {
    let hidden = r#"{"type":"content_block_start","index":2,
        "content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#;
    let events = [
        START,
        TEXT,
        HI,
        TEXT_END,
        &tool(1, "t1", "{}"),
        &fragment(1, "{\"a\":1}"),
        &end(1),
        hidden,
        &fragment(2, "{\"query\":\"x\"}"),
        &end(2),
        &tool(3, "t2", "{}"),
        &end(3),
        &settled("tool_use"),
        STOP,
    ];
    let seen = stream(&events, false).seen(false);
    let tools = &seen.choices[&0].tools;
    let got: Vec<_> = tools.iter().map(|tool| (&*tool.id, &*tool.arguments)).collect();
    assert_eq!(got, [("t1", "{\"a\":1}"), ("t2", "{}")]);
}

#[test]
fn arguments_inside_the_blocks_start_are_sent_once_with_their_digits() {
    let whole = tool(0, "t1", "{ \"n\": 1.0, \"i\": 12345678901234567890 }");
    let seen = stream(&[START, &whole, &end(0), &settled("tool_use"), STOP], false).seen(false);
    let want = "{\"n\":1.0,\"i\":12345678901234567890}";
    assert_eq!(seen.choices[&0].tools[0].arguments, want);
    let events = [START, &whole, &fragment(0, "{}"), &end(0), &settled("tool_use"), STOP];
    assert_eq!(stream(&events, false).seen(false).choices[&0].tools[0].arguments, "{}");
}

/// Hazard T11: half a call is not to be run.
#[test]
fn a_call_cut_by_the_token_limit_finishes_as_length_t11() {
    let events =
        [START, &tool(0, "t1", "{}"), &fragment(0, "{\"path\":\"/a"), &settled("max_tokens"), STOP];
    let seen = stream(&events, false).seen(false);
    assert_eq!(seen.choices[&0].finish.as_deref(), Some("length"));
    assert_eq!(seen.choices[&0].tools[0].arguments, "{\"path\":\"/a");
}

/// Hazard T03: every reason has one of OpenAI's words.
#[test]
fn stop_reasons_are_mapped_and_unknown_ones_are_a_stop_t03() {
    for (reason, want) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("compaction", "stop"),
        ("brand_new", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "stop"), // no call that the caller could see
    ] {
        let got = stream(&[START, TEXT, HI, TEXT_END, &settled(reason), STOP], false);
        assert_eq!(got.seen(false).choices[&0].finish.as_deref(), Some(want), "{reason}");
        let body = format!(
            r#"{{"type":"message","id":"m","model":"c","content":[{{"type":"text",
                "text":"a"}}],"stop_reason":"{reason}"}}"#
        );
        let whole = Wire::Anthropic.whole(body.into(), context(false)).unwrap();
        assert_eq!(whole.tap.finish, Some(want), "{reason}");
    }
}

#[test]
fn thinking_is_reasoning_and_its_seal_comes_in_thinking_blocks() {
    let events = [
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking",
            "thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta",
            "thinking":"h\u00e9"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta",
            "thinking":"m"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta",
            "signature":"c2ln"}}"#,
        &end(0),
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking",
            "data":"eA=="}}"#,
        &end(1),
        &TEXT.replace(":0,", ":2,"),
        &HI.replace(":0,", ":2,"),
        &end(2),
        &settled("end_turn"),
        STOP,
    ];
    let got = stream(&events, false);
    let seen = got.seen(false);
    assert_eq!(seen.choices[&0].reasoning, "hém");
    assert_eq!(seen.choices[&0].text, "hi é\n");
    let parts = chunks(&got.out);
    let blocks = parts.iter().map(|c| &c["choices"][0]["delta"]["thinking_blocks"]);
    let blocks: Vec<_> = blocks.filter(|blocks| !blocks.is_null()).collect();
    let want = json!([{"index": 0, "type": "thinking", "thinking": "hém", "signature": "c2ln"}]);
    assert_eq!(*blocks[0], want);
    assert_eq!(*blocks[1], json!([{"index": 1, "type": "redacted_thinking", "data": "eA=="}]));
}

/// Hazard T04: pings are comments, future events nothing; neither is a sign of an answer.
#[test]
fn pings_are_comments_and_unknown_events_nothing_t04() {
    let new = r#"{"type":"brand_new_thing","index":"x","delta":"y","message":7,"usage":[]}"#;
    let odd = r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta",
        "citation":{}}}"#;
    let ping = r#"{"type":"ping"}"#;
    let events =
        [START, ping, new, TEXT, HI, odd, ping, "null", TEXT_END, &settled("end_turn"), STOP];
    let got = stream(&events, false);
    assert_eq!(got.seen(false).choices[&0].text, "hi é\n");
    let text = String::from_utf8(got.out).unwrap();
    assert_eq!(text.matches("\n: ping\n\n").count(), 2);
    assert!(!text.contains("brand_new"));
}

#[test]
fn nothing_has_started_before_content_thinking_a_tool_or_an_end() {
    let thinking = r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta",
        "thinking":"h"}}"#;
    let think = r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking",
        "thinking":""}}"#;
    for (events, starts) in [
        (vec![START], false),
        (vec![START, r#"{"type":"ping"}"#, TEXT], false),
        (vec![START, think], false),
        (vec![START, TEXT, HI], true),
        (vec![START, think, thinking], true),
        (vec![START, &tool(0, "t", "{}")], true),
    ] {
        let mut reply = Wire::Anthropic.stream(context(false));
        let mut step = Step::default();
        reply.feed(sse(&events), &mut step);
        assert_eq!((step.started, step.alive), (starts, starts), "{events:?}");
        let mut step = Step::default();
        reply.feed(Bytes::from_static(b": x\n\n"), &mut step);
        assert_eq!((step.started, step.alive), (starts, false), "{events:?}");
    }
    let got = stream(&[START, &settled("refusal"), STOP], false);
    assert!(got.started && got.complete());
}

#[test]
fn a_second_start_is_ignored_unless_it_tears_a_tool_call() {
    let second = START.replace("msg_1", "msg_2").replace("claude-y", "claude-z");
    let events = [START, &second, TEXT, HI, &second, TEXT_END, &settled("end_turn"), STOP];
    let got = stream(&events, false);
    assert_eq!(got.seen(false).choices[&0].text, "hi é\n");
    let torn = [START, &tool(0, "t1", "{}"), &fragment(0, "{\"a"), &second];
    let got = stream(&torn, false);
    assert_eq!(got.failure().class, Class::Invalid);
    got.seen(false);
}
