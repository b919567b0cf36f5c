//! Output items of a response, and the object that holds them.

use super::super::names::Tool;
use crate::chat::Thinking;
use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw};
use crate::usage::Usage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Marks reasoning that another provider sealed and we wrapped: only what has it is unwrapped.
pub(super) const SEAL: &str = "weir.1.";

/// A JSON string's inside, as it stands in its document: pieces of one text can be joined so.
pub(super) type Raw = String;

/// One output item.
#[derive(Debug)]
pub(super) struct Item {
    pub id: String,
    pub body: Body,
    /// The status its `done` told; `None` while it is being written.
    pub done: Option<&'static str>,
}

/// What an item is.
#[derive(Debug)]
pub(super) enum Body {
    Reasoning {
        text: Raw,
        sealed: Vec<String>,
    },
    Message {
        parts: Vec<Part>,
    },
    Call(Call),
    /// A picture in base64, as the provider's own tool for them gives it.
    Picture(String),
}

/// A part of a message.
#[derive(Debug)]
pub(super) struct Part {
    pub refusal: bool,
    pub text: Raw,
}

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    /// The chat's index of it.
    pub index: u32,
    pub call_id: String,
    /// The caller's names.
    pub tool: Tool,
    pub arguments: Raw,
}

impl Part {
    pub(super) fn put(&self, out: &mut Vec<u8>, text: &str) {
        if self.refusal {
            out.extend_from_slice(br#"{"type":"refusal","refusal":""#);
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\"}");
        } else {
            out.extend_from_slice(br#"{"type":"output_text","text":""#);
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(br#"","annotations":[],"logprobs":[]}"#);
        }
    }
}

impl Call {
    /// The free text of a custom tool, as a JSON string's inside.
    pub(super) fn input(&self) -> Raw {
        let text: String = serde_json::from_str(&quoted(&self.arguments)).unwrap_or_default();
        let input = Members::of(&text).and_then(|members| members.get("input"));
        match input.map(|raw| raw.get()) {
            Some(raw) if raw.starts_with('"') => inside(raw).to_owned(),
            // No such object: what the model wrote is the text.
            _ => self.arguments.clone(),
        }
    }
}

impl Item {
    /// The item as it is (`whole`), or as it is announced.
    pub(super) fn put(&self, out: &mut Vec<u8>, whole: bool, status: &str) {
        out.push(b'{');
        put_member(out, "id", &self.id);
        match &self.body {
            Body::Reasoning { text, sealed } => {
                out.extend_from_slice(br#","type":"reasoning","summary":["#);
                if whole && !text.is_empty() {
                    put_summary(out, text);
                }
                out.push(b']');
                if whole && !sealed.is_empty() {
                    let blocks = format!("[{}]", sealed.join(","));
                    let wrapped = format!("{SEAL}{}", STANDARD.encode(blocks));
                    put_member(out, "encrypted_content", &wrapped);
                }
            }
            Body::Message { parts } => {
                out.extend_from_slice(br#","type":"message","role":"assistant""#);
                put_member(out, "status", status);
                put_name(out, "content");
                out.push(b'[');
                for part in parts.iter().filter(|_| whole) {
                    put_comma(out);
                    part.put(out, &part.text);
                }
                out.push(b']');
            }
            Body::Call(call) => put_call(out, call, whole, status),
            Body::Picture(data) => {
                put_member(out, "type", "image_generation_call");
                put_member(out, "status", status);
                match whole {
                    true => put_member(out, "result", data),
                    false => put_raw(out, "result", "null"),
                }
            }
        }
        out.push(b'}');
    }
}

fn put_call(out: &mut Vec<u8>, call: &Call, whole: bool, status: &str) {
    let custom = call.tool.custom;
    put_member(out, "type", if custom { "custom_tool_call" } else { "function_call" });
    put_member(out, "status", status);
    put_member(out, "call_id", &call.call_id);
    put_member(out, "name", &call.tool.name);
    if let Some(space) = &call.tool.namespace {
        put_member(out, "namespace", space);
    }
    let (name, text) = match (custom, whole) {
        (true, true) => ("input", call.input()),
        (true, false) => ("input", Raw::new()),
        (false, true) => ("arguments", call.arguments.clone()),
        (false, false) => ("arguments", Raw::new()),
    };
    put_raw(out, name, &quoted(&text));
}

/// One part of a reasoning item's summary.
pub(super) fn put_summary(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(br#"{"type":"summary_text","text":""#);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\"}");
}

/// A sealed block of another provider's reasoning as raw JSON.
pub(super) fn sealed(block: &Thinking<'_>) -> String {
    let mut out = b"{".to_vec();
    put_member(&mut out, "type", &block.kind);
    for (name, text) in
        [("thinking", &block.thinking), ("signature", &block.signature), ("data", &block.data)]
    {
        if let Some(text) = text {
            put_member(&mut out, name, text);
        }
    }
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

/// What a response says beside its items.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub id: &'a str,
    /// Unix seconds.
    pub created: u64,
    pub model: &'a str,
}

/// How a response stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Status<'a> {
    InProgress,
    Completed,
    /// With its reason.
    Incomplete(&'a str),
    /// With the error's code and message.
    Failed(&'a str, &'a str),
}

impl Status<'_> {
    /// By the finish reason of a chat.
    pub(super) fn of(finish: &str) -> Self {
        match finish {
            "length" => Self::Incomplete("max_output_tokens"),
            "content_filter" => Self::Incomplete("content_filter"),
            _ => Self::Completed,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed(..) => "failed",
        }
    }

    /// Of its items.
    pub(super) fn of_items(self) -> &'static str {
        if matches!(self, Self::Completed) { "completed" } else { "incomplete" }
    }
}

/// Writes the response.
pub(super) fn put_response(
    out: &mut Vec<u8>,
    head: Head<'_>,
    status: Status<'_>,
    items: &[Item],
    usage: Option<&Usage>,
) {
    out.push(b'{');
    put_member(out, "id", head.id);
    put_member(out, "object", "response");
    put_raw(out, "created_at", &head.created.to_string());
    put_member(out, "status", status.word());
    put_name(out, "error");
    if let Status::Failed(code, message) = status {
        out.push(b'{');
        put_member(out, "code", code);
        put_member(out, "message", message);
        out.push(b'}');
    } else {
        out.extend_from_slice(b"null");
    }
    put_name(out, "incomplete_details");
    if let Status::Incomplete(reason) = status {
        out.push(b'{');
        put_member(out, "reason", reason);
        out.push(b'}');
    } else {
        out.extend_from_slice(b"null");
    }
    put_member(out, "model", head.model);
    put_name(out, "output");
    out.push(b'[');
    for (item, done) in items.iter().filter_map(|item| Some((item, item.done?))) {
        put_comma(out);
        item.put(out, true, done);
    }
    out.push(b']');
    // Nothing is kept, and what was asked is the caller's to know.
    out.extend_from_slice(br#","instructions":null,"metadata":{},"parallel_tool_calls":true,"#);
    out.extend_from_slice(br#""previous_response_id":null,"store":false,"temperature":null,"#);
    out.extend_from_slice(br#""tool_choice":"auto","tools":[],"top_p":null,"#);
    out.extend_from_slice(br#""truncation":"disabled","usage":"#);
    match usage {
        Some(usage) => put_usage(out, usage),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Appends usage in Responses' words.
pub(super) fn put_usage(out: &mut Vec<u8>, usage: &Usage) {
    let text = format!(
        "{{\"input_tokens\":{},\"input_tokens_details\":{{\"cached_tokens\":{}}},\
         \"output_tokens\":{},\"output_tokens_details\":{{\"reasoning_tokens\":{}}},\
         \"total_tokens\":{}}}",
        usage.prompt(),
        usage.cached,
        usage.output,
        usage.reasoning,
        usage.total()
    );
    out.extend_from_slice(text.as_bytes());
}

/// A raw JSON string's inside.
pub(super) fn inside(raw: &str) -> &str {
    raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or_default()
}

/// The JSON string of an inside.
pub(super) fn quoted(inside: &str) -> String {
    format!("\"{inside}\"")
}
