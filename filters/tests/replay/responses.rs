//! The strict rules of a Responses stream and reply, and what a client
//! reads out of them.

use serde_json::Value;
use std::collections::BTreeMap;

/// What was read, and every rule that did not hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    pub faults: Vec<String>,
    pub text: String,
    pub refusal: String,
    pub reasoning: String,
    /// Name and raw arguments.
    pub tools: Vec<(String, String)>,
    pub status: String,
    /// Why it is incomplete.
    pub reason: Option<String>,
    pub usage: Value,
    pub error: Option<Value>,
    sequence: Option<u64>,
    events: usize,
    id: Option<Value>,
    items: BTreeMap<u64, Value>,
    done: BTreeMap<u64, Value>,
    /// Open parts by item and number.
    parts: BTreeMap<(u64, u64), bool>,
    said: BTreeMap<u64, String>,
}

impl Seen {
    fn hold(&mut self, holds: bool, fault: impl Into<String>) {
        let fault = fault.into();
        if !holds && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn event(&mut self, kind: &str, event: &Value) {
        self.hold(self.status.is_empty(), format!("{kind} after the final event"));
        let number = event["sequence_number"].as_u64();
        self.hold(number.is_some() && number > self.sequence, format!("sequence in {kind}"));
        self.sequence = number.or(self.sequence);
        self.events += 1;
        self.hold(self.events != 1 || kind == "response.created", format!("{kind} first"));
        self.hold(self.events != 2 || kind == "response.in_progress", format!("{kind} second"));
        let (item, part) = (event["output_index"].as_u64(), event["content_index"].as_u64());
        let (item, part) = (item.unwrap_or_default(), part.unwrap_or_default());
        let delta = event["delta"].as_str();
        match kind.strip_prefix("response.").unwrap_or_default() {
            "created" | "in_progress" => self.response(&event["response"]),
            "completed" | "incomplete" | "failed" => self.last(kind, &event["response"]),
            "output_item.added" => {
                self.hold(item == self.items.len() as u64, format!("output_index {item}"));
                let id = event["item"]["id"].as_str().unwrap_or_default();
                self.hold(!id.is_empty(), "an item without id");
                self.items.insert(item, event["item"].clone());
            }
            "output_item.done" => self.item_done(item, &event["item"]),
            "content_part.added" => {
                self.hold(self.items.contains_key(&item), "a part before its item");
                self.parts.insert((item, part), true);
            }
            "content_part.done" => {
                let open = self.parts.insert((item, part), false);
                self.hold(open == Some(true), "a part ends that is not open");
            }
            "output_text.delta" | "refusal.delta" => {
                self.hold(self.parts.get(&(item, part)) == Some(&true), "text outside a part");
                self.hold(delta.is_some(), "a delta that is no string");
                self.said.entry(item).or_default().push_str(delta.unwrap_or_default());
            }
            "function_call_arguments.delta" | "custom_tool_call_input.delta" => {
                self.hold(self.items.contains_key(&item), "arguments outside an item");
                self.said.entry(item).or_default().push_str(delta.unwrap_or_default());
            }
            "function_call_arguments.done" => {
                let said = self.said.get(&item).map_or("", String::as_str);
                self.hold(event["arguments"] == said, "arguments.done differs from the deltas");
            }
            "output_text.done" => self.hold(event["text"].is_string(), "text.done without text"),
            other => {
                let known = ["reasoning_", "refusal.done", "custom_tool_call_input.done"];
                let known = known.iter().any(|start| other.starts_with(start));
                self.hold(known, format!("event {kind}"));
            }
        }
    }

    fn response(&mut self, response: &Value) {
        let id = self.id.get_or_insert_with(|| response["id"].clone()).clone();
        self.hold(id.is_string() && response["id"] == id, "response.id");
        self.hold(response["object"] == "response", "response.object");
    }

    fn item_done(&mut self, at: u64, item: &Value) {
        let added = self.items.get(&at).cloned().unwrap_or_default();
        self.hold(item["id"].is_string() && item["id"] == added["id"], "item id");
        let said = self.said.get(&at).cloned().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                let parts = item["content"].as_array().cloned().unwrap_or_default();
                let text = |p: &Value| {
                    let text = p["text"].as_str().or(p["refusal"].as_str());
                    text.unwrap_or_default().to_owned()
                };
                let whole: String = parts.iter().map(text).collect();
                self.hold(whole == said, "the deltas do not make the text");
                let open = self.parts.iter().any(|((item, _), open)| *item == at && *open);
                self.hold(!open, "a part is never done");
            }
            "function_call" => {
                self.hold(item["arguments"] == said, "the deltas do not make the arguments");
            }
            _ => {}
        }
        self.done.insert(at, item.clone());
    }

    fn last(&mut self, kind: &str, response: &Value) {
        self.response(response);
        self.status = kind.trim_start_matches("response.").to_owned();
        self.hold(response["status"] == *self.status, "status");
        if self.status == "failed" {
            let error = response["error"].clone();
            let sound = error["code"].is_string() && error["message"].is_string();
            self.hold(sound, "failed without code and message");
            self.error = Some(error);
            return;
        }
        self.hold(self.done.len() == self.items.len(), "an item is never done");
        let output = response["output"].as_array().cloned().unwrap_or_default();
        let done: Vec<Value> = self.done.values().cloned().collect();
        self.hold(output == done, "the final output is not the items sent");
        self.whole(response);
    }

    /// What a whole response says.
    fn whole(&mut self, response: &Value) {
        for key in ["id", "model"] {
            self.hold(response[key].as_str().is_some_and(|v| !v.is_empty()), format!("no {key}"));
        }
        self.hold(response["created_at"].is_u64(), "created_at");
        self.usage = response["usage"].clone();
        for key in ["input_tokens", "output_tokens", "total_tokens"] {
            self.hold(self.usage[key].is_u64(), format!("usage.{key}"));
        }
        for key in ["input_tokens_details", "output_tokens_details"] {
            self.hold(self.usage[key].is_object(), format!("usage.{key}"));
        }
        self.reason = response["incomplete_details"]["reason"].as_str().map(str::to_owned);
        let told = self.status != "incomplete" || self.reason.is_some();
        self.hold(told, "incomplete without a reason");
        for item in response["output"].as_array().into_iter().flatten() {
            self.item(item);
        }
    }

    fn item(&mut self, item: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                for part in item["content"].as_array().into_iter().flatten() {
                    self.text += &text(&part["text"]);
                    self.refusal += &text(&part["refusal"]);
                }
            }
            "reasoning" => {
                for part in item["summary"].as_array().into_iter().flatten() {
                    self.reasoning += &text(&part["text"]);
                }
            }
            "function_call" => {
                self.hold(!text(&item["call_id"]).is_empty(), "a call without call_id");
                self.tools.push((text(&item["name"]), text(&item["arguments"])));
            }
            "custom_tool_call" => self.tools.push((text(&item["name"]), text(&item["input"]))),
            other => self.hold(false, format!("item {other}")),
        }
    }
}

/// Reads a stream.
pub fn stream(body: &[u8]) -> Seen {
    let mut seen = Seen::default();
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
    seen.hold(!seen.status.is_empty(), "no final event");
    seen
}

/// Reads a whole reply.
pub fn json(body: &[u8]) -> Seen {
    let mut seen = Seen::default();
    let Ok(reply) = serde_json::from_slice::<Value>(body) else {
        seen.faults.push("no JSON".into());
        return seen;
    };
    seen.hold(reply["object"] == "response", "no response");
    seen.status = reply["status"].as_str().unwrap_or_default().to_owned();
    seen.whole(&reply);
    seen
}
