//! The strict rules of a Messages stream and reply, and what a client
//! reads out of them.

use serde_json::Value;

const STOPS: [&str; 8] = [
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "refusal",
    "pause_turn",
    "model_context_window_exceeded",
    "compaction",
];

/// What was read, and every rule that did not hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    pub faults: Vec<String>,
    pub text: String,
    pub reasoning: String,
    /// Name and raw arguments.
    pub tools: Vec<(String, String)>,
    pub stop: Option<String>,
    /// The last word on each number.
    pub usage: serde_json::Map<String, Value>,
    pub error: Option<Value>,
    native: bool,
    begun: bool,
    ended: bool,
    count: u64,
    open: Option<(u64, Value, String)>,
}

impl Seen {
    fn hold(&mut self, holds: bool, fault: impl Into<String>) {
        let fault = fault.into();
        if !holds && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn usage(&mut self, usage: &Value, keys: &[&str]) {
        for key in keys {
            self.hold(usage[*key].is_u64(), format!("usage.{key} in {usage}"));
        }
        let given = usage.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        self.usage.extend(given.map(|(key, value)| (key.clone(), value.clone())));
    }

    fn event(&mut self, kind: &str, event: &Value) {
        self.hold(!self.ended, format!("{kind} after the end"));
        self.hold(self.begun || matches!(kind, "message_start" | "error"), format!("{kind} first"));
        match kind {
            "message_start" => self.start(&event["message"]),
            "content_block_start" => self.open(event),
            "content_block_delta" => self.delta(event),
            "content_block_stop" => self.close(event),
            "message_delta" => {
                self.hold(self.stop.is_none(), "message_delta twice");
                self.hold(self.open.is_none(), "message_delta inside a block");
                let delta = &event["delta"];
                self.hold(delta.get("stop_sequence").is_some(), "no stop_sequence");
                self.stop = delta["stop_reason"].as_str().map(str::to_owned);
                let known = self.stop.as_deref().is_some_and(|stop| STOPS.contains(&stop));
                self.hold(known, format!("stop_reason {:?}", self.stop));
                self.usage(&event["usage"], &["output_tokens"]);
            }
            "message_stop" => {
                self.hold(self.stop.is_some(), "message_stop without message_delta");
                self.ended = true;
            }
            "error" => {
                self.hold(self.stop.is_none(), "a stop_reason before the error");
                self.error = Some(event["error"].clone());
                self.ended = true;
            }
            other => self.hold(other == "ping", format!("event {other}")),
        }
    }

    fn start(&mut self, message: &Value) {
        self.hold(!self.begun, "message_start twice");
        self.begun = true;
        self.hold(message["type"] == "message" && message["role"] == "assistant", "message");
        self.hold(message["content"] == serde_json::json!([]), "content in message_start");
        self.hold(message["stop_reason"].is_null(), "message_start has a stop_reason");
        for key in ["id", "model"] {
            self.hold(message[key].as_str().is_some_and(|v| !v.is_empty()), format!("no {key}"));
        }
        self.usage(&message["usage"], &["input_tokens", "output_tokens"]);
    }

    fn open(&mut self, event: &Value) {
        self.hold(self.open.is_none(), "a block inside another");
        self.hold(event["index"] == self.count, format!("index {}", event["index"]));
        self.count += 1;
        let block = event["content_block"].clone();
        let text = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                self.hold(block["text"].is_string(), "a text block without text");
                self.text += &text("text");
            }
            "thinking" => self.reasoning += &text("thinking"),
            "tool_use" => {
                self.hold(!text("id").is_empty() && !text("name").is_empty(), "tool_use unnamed");
                self.hold(block["input"].is_object(), "tool_use without input {}");
            }
            "redacted_thinking" => {}
            other => self.hold(self.native, format!("block {other}")),
        }
        self.open = Some((event["index"].as_u64().unwrap_or_default(), block, String::new()));
    }

    fn delta(&mut self, event: &Value) {
        let Some((index, block, mut raw)) = self.open.take() else {
            return self.hold(false, "a delta outside a block");
        };
        self.hold(event["index"] == index, "a delta for another block");
        let delta = &event["delta"];
        let kind = delta["type"].as_str().unwrap_or_default();
        let text = |key: &str| delta[key].as_str().unwrap_or_default();
        match (block["type"].as_str().unwrap_or_default(), kind) {
            ("text", "text_delta") => self.text += text("text"),
            ("thinking", "thinking_delta") => self.reasoning += text("thinking"),
            ("thinking", "signature_delta") | ("text", "citations_delta") => {}
            ("tool_use", "input_json_delta") => raw += text("partial_json"),
            (block, _) => self.hold(self.native, format!("{kind} in a {block}")),
        }
        self.open = Some((index, block, raw));
    }

    fn close(&mut self, event: &Value) {
        let Some((index, block, raw)) = self.open.take() else {
            return self.hold(false, "a stop outside a block");
        };
        self.hold(event["index"] == index, "a stop for another block");
        if block["type"] == "tool_use" {
            let name = block["name"].as_str().unwrap_or_default().to_owned();
            let raw = if raw.is_empty() { block["input"].to_string() } else { raw };
            self.tools.push((name, raw));
        }
    }
}

/// Reads a stream; `native`: the provider speaks this dialect too, so blocks of its own may pass.
pub fn stream(body: &[u8], native: bool) -> Seen {
    let mut seen = Seen { native, ..Seen::default() };
    let mut faults = Vec::new();
    for (name, data) in super::frames(body, &mut faults) {
        let Ok(event) = serde_json::from_str::<Value>(&data) else {
            seen.hold(false, format!("data is no JSON: {data}"));
            continue;
        };
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        seen.hold(name.as_deref() == Some(&kind), format!("event {name:?} of type {kind}"));
        seen.event(&kind, &event);
    }
    seen.faults.extend(faults);
    if seen.error.is_none() {
        seen.hold(seen.ended, "no message_stop");
        seen.hold(seen.stop.as_deref() != Some("tool_use") || !seen.tools.is_empty(), "no tool");
        for (name, raw) in seen.tools.clone() {
            let object = serde_json::from_str::<Value>(&raw).is_ok_and(|value| value.is_object());
            let cut = seen.stop.as_deref() == Some("max_tokens");
            seen.hold(object || cut, format!("arguments of {name}: {raw}"));
        }
    }
    seen
}

/// Reads a whole reply.
pub fn json(body: &[u8], native: bool) -> Seen {
    let mut seen = Seen { native, ..Seen::default() };
    let Ok(reply) = serde_json::from_slice::<Value>(body) else {
        seen.faults.push("no JSON".into());
        return seen;
    };
    seen.hold(reply["type"] == "message" && reply["role"] == "assistant", "no message");
    for key in ["id", "model"] {
        seen.hold(reply[key].as_str().is_some_and(|v| !v.is_empty()), format!("no {key}"));
    }
    seen.hold(reply.get("stop_sequence").is_some(), "no stop_sequence");
    seen.stop = reply["stop_reason"].as_str().map(str::to_owned);
    let known = seen.stop.as_deref().is_some_and(|stop| STOPS.contains(&stop));
    seen.hold(known, format!("stop_reason {:?}", seen.stop));
    seen.usage(&reply["usage"], &["input_tokens", "output_tokens"]);
    seen.hold(reply["content"].is_array(), "content is no array");
    for block in reply["content"].as_array().into_iter().flatten() {
        let text = |key: &str| block[key].as_str().unwrap_or_default();
        match block["type"].as_str().unwrap_or_default() {
            "text" => seen.text += text("text"),
            "thinking" => seen.reasoning += text("thinking"),
            "tool_use" => {
                seen.hold(!text("id").is_empty() && block["input"].is_object(), "tool_use");
                seen.tools.push((text("name").to_owned(), block["input"].to_string()));
            }
            "redacted_thinking" => {}
            other => seen.hold(native, format!("block {other}")),
        }
    }
    seen
}
