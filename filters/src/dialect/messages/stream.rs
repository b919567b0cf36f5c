//! A chat's stream as the events of a message: blocks one after the other, never two open at once.

use super::super::canon::{Call, Chunk, Delta, Speaker};
use super::super::names::Names;
use super::{message_id, stop_reason};
use crate::chat::Thinking;
use crate::chat::raw::{put_member, put_raw, put_text, text};
use crate::dialect::Dialect;
use crate::error::ApiError;
use crate::usage::Usage;
use crate::wire::ReplyContext;
use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::VecDeque;

/// A call's index where a provider calls by the old `function_call`.
const LEGACY: u32 = u32::MAX;

/// The events of one message.
pub(in crate::dialect) struct Stream {
    names: Names,
    id: String,
    model: String,
    prompt_tokens: u64,
    /// `message_start` is out.
    begun: bool,
    /// Blocks begun so far: the next one's index.
    blocks: u32,
    /// The block that is being written.
    open: Option<Open>,
    /// What came for other blocks meanwhile, in the order of its first piece.
    waiting: VecDeque<Waiting>,
    /// Calls whose block is closed.
    closed: Vec<u32>,
    called: bool,
    refused: bool,
    finish: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Tool(u32),
}

#[derive(Debug)]
struct Open {
    kind: Kind,
    /// A tool's arguments so far, to see when they are whole.
    arguments: String,
    /// They may still be no object (`null` of some hosts), so nothing of them is out.
    held: bool,
}

#[derive(Debug)]
struct Waiting {
    kind: Kind,
    /// A call's id and name.
    call: (String, String),
    /// JSON strings.
    pieces: Vec<String>,
}

impl Stream {
    pub(in crate::dialect) fn new(names: Names, context: &ReplyContext) -> Self {
        Self {
            names,
            id: message_id(&context.id),
            model: context.model.to_string(),
            prompt_tokens: context.prompt_tokens,
            begun: false,
            blocks: 0,
            open: None,
            waiting: VecDeque::new(),
            closed: Vec::new(),
            called: false,
            refused: false,
            finish: None,
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        event(out, "message_start", |out| {
            out.extend_from_slice(br#","message":{"#);
            put_member(out, "id", &self.id);
            out.extend_from_slice(br#","type":"message","role":"assistant","content":[]"#);
            put_member(out, "model", &self.model);
            out.extend_from_slice(br#","stop_reason":null,"stop_sequence":null,"usage":"#);
            let estimate = Usage { input: self.prompt_tokens, ..Usage::default() };
            put_usage(out, &estimate);
            out.push(b'}');
        });
    }

    fn say(&mut self, said: &Delta<'_>, out: &mut Vec<u8>) {
        if let Some(raw) = said.reasoning_content.filter(|raw| is_text(raw)) {
            self.piece(Kind::Thinking, raw.get(), out);
        }
        for block in said.thinking_blocks.iter().flatten() {
            self.seal(block, out);
        }
        if let Some(raw) = said.content.filter(|raw| is_text(raw)) {
            self.piece(Kind::Text, raw.get(), out);
        }
        if let Some(raw) = said.refusal.filter(|raw| is_text(raw)) {
            self.refused = true;
            self.piece(Kind::Text, raw.get(), out);
        }
        for call in said.tool_calls.iter().flatten() {
            self.call(call, out);
        }
        if let Some(function) = &said.function_call {
            let id = format!("call_{}", self.id.trim_start_matches("msg_"));
            if let Some(name) = function.name.as_deref().filter(|name| !name.is_empty()) {
                self.start(LEGACY, (id, name.to_owned()), out);
            }
            if let Some(raw) = function.arguments {
                self.piece(Kind::Tool(LEGACY), raw.get(), out);
            }
        }
    }

    fn call(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        let Some(function) = &call.function else { return };
        if let Some((id, name)) = call.begins() {
            self.start(call.index, (id.to_string(), name.to_string()), out);
        }
        if let Some(raw) = function.arguments.filter(|raw| is_text(raw)) {
            self.piece(Kind::Tool(call.index), raw.get(), out);
        }
    }

    fn start(&mut self, index: u32, call: (String, String), out: &mut Vec<u8>) {
        self.called = true;
        self.waiting.push_back(Waiting { kind: Kind::Tool(index), call, pieces: Vec::new() });
        self.advance(false, out);
    }

    /// A JSON string for a block: written at once where the block is open, else kept until it is.
    fn piece(&mut self, kind: Kind, raw: &str, out: &mut Vec<u8>) {
        if self.waiting.is_empty() && self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return self.write(raw, out);
        }
        if let Kind::Tool(index) = kind {
            if self.closed.contains(&index) {
                return;
            }
            if self.open.as_ref().is_some_and(|open| open.kind == kind) {
                self.write(raw, out);
                return self.advance(false, out);
            }
            if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.kind == kind) {
                waiting.pieces.push(raw.to_owned());
            }
            return;
        }
        match self.waiting.back_mut().filter(|waiting| waiting.kind == kind) {
            Some(waiting) => waiting.pieces.push(raw.to_owned()),
            None => {
                let (call, pieces) = (Default::default(), vec![raw.to_owned()]);
                self.waiting.push_back(Waiting { kind, call, pieces });
            }
        }
        self.advance(false, out);
    }

    /// Opens what waits, as soon as the open block is done. At the end of the answer each is.
    fn advance(&mut self, end: bool, out: &mut Vec<u8>) {
        while end || !self.waiting.is_empty() {
            if !end && self.open.as_ref().is_some_and(|open| !open.is_done()) {
                return;
            }
            self.close(out);
            let Some(next) = self.waiting.pop_front() else { return };
            self.open_block(&next, out);
            for raw in &next.pieces {
                self.write(raw, out);
            }
        }
    }

    fn open_block(&mut self, next: &Waiting, out: &mut Vec<u8>) {
        self.begin(out);
        event(out, "content_block_start", |out| {
            put_raw(out, "index", &self.blocks.to_string());
            out.extend_from_slice(br#","content_block":{"#);
            match next.kind {
                Kind::Text => out.extend_from_slice(br#""type":"text","text":"""#),
                Kind::Thinking => {
                    out.extend_from_slice(br#""type":"thinking","thinking":"","signature":"""#);
                }
                Kind::Tool(_) => {
                    put_member(out, "type", "tool_use");
                    put_member(out, "id", &next.call.0);
                    put_member(out, "name", self.names.name(&next.call.1));
                    put_raw(out, "input", "{}");
                }
            }
            out.push(b'}');
        });
        let held = matches!(next.kind, Kind::Tool(_));
        self.open = Some(Open { kind: next.kind, arguments: String::new(), held });
    }

    /// Writes a piece of the open block.
    fn write(&mut self, raw: &str, out: &mut Vec<u8>) {
        let Some(open) = &mut self.open else { return };
        let (kind, member) = match open.kind {
            Kind::Text => ("text_delta", "text"),
            Kind::Thinking => ("thinking_delta", "thinking"),
            Kind::Tool(_) => ("input_json_delta", "partial_json"),
        };
        if !matches!(open.kind, Kind::Tool(_)) {
            return delta(out, self.blocks, kind, member, raw);
        }
        match serde_json::from_str::<String>(raw) {
            Ok(text) => open.arguments.push_str(&text),
            // Half of a surrogate pair: as it is written, it can only be passed on.
            Err(_) => open.arguments.push('\u{fffd}'),
        }
        if !open.held {
            return delta(out, self.blocks, kind, member, raw);
        }
        if open.arguments.trim_start().starts_with('{') {
            open.held = false;
            let mut all = Vec::new();
            put_text(&mut all, &open.arguments);
            delta(out, self.blocks, kind, member, &String::from_utf8_lossy(&all));
        }
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(open) = self.open.take() else { return };
        if open.held {
            let text = match open.arguments.trim() {
                "" | "null" => "{}",
                other => other,
            };
            let mut raw = Vec::new();
            put_text(&mut raw, text);
            let raw = String::from_utf8_lossy(&raw);
            delta(out, self.blocks, "input_json_delta", "partial_json", &raw);
        }
        if let Kind::Tool(index) = open.kind {
            self.closed.push(index);
        }
        event(out, "content_block_stop", |out| put_raw(out, "index", &self.blocks.to_string()));
        self.blocks += 1;
    }

    /// The seal of a thinking block that was just written, or a block that is nothing but sealed.
    fn seal(&mut self, block: &Thinking<'_>, out: &mut Vec<u8>) {
        let thinking = self.open.as_ref().is_some_and(|open| open.kind == Kind::Thinking);
        if let (Some(signature), true) = (&block.signature, thinking) {
            let mut raw = Vec::new();
            put_text(&mut raw, signature);
            let raw = String::from_utf8_lossy(&raw);
            delta(out, self.blocks, "signature_delta", "signature", &raw);
            return self.close(out);
        }
        let Some(data) = block.data.as_deref() else { return };
        if self.open.as_ref().is_some_and(|open| !open.is_done()) {
            return;
        }
        self.close(out);
        self.begin(out);
        event(out, "content_block_start", |out| {
            put_raw(out, "index", &self.blocks.to_string());
            out.extend_from_slice(br#","content_block":{"type":"redacted_thinking""#);
            put_member(out, "data", data);
            out.push(b'}');
        });
        event(out, "content_block_stop", |out| put_raw(out, "index", &self.blocks.to_string()));
        self.blocks += 1;
    }
}

impl Open {
    /// Another block may follow: text never comes back, and a call is whole with its object.
    fn is_done(&self) -> bool {
        !matches!(self.kind, Kind::Tool(_))
            || (self.arguments.trim_end().ends_with('}')
                && serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok())
    }
}

impl Speaker for Stream {
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
        if !self.begun
            && let Some(model) = chunk.model.as_deref().filter(|model| !model.is_empty())
        {
            model.clone_into(&mut self.model);
        }
        self.begin(out);
        for choice in chunk.choices.iter().filter(|choice| choice.index == 0) {
            self.say(&choice.delta, out);
            if let Some(finish) = choice.finish_reason.as_deref() {
                self.finish = Some(finish.to_owned());
            }
        }
    }

    fn end(&mut self, usage: &Usage, out: &mut Vec<u8>) -> Vec<u8> {
        self.begin(out);
        self.advance(true, out);
        let finish = self.finish.as_deref().unwrap_or("stop");
        let reason = stop_reason(finish, self.called, self.refused);
        let mut tail = Vec::new();
        event(&mut tail, "message_delta", |out| {
            out.extend_from_slice(br#","delta":{"#);
            put_member(out, "stop_reason", reason);
            out.extend_from_slice(br#","stop_sequence":null},"usage":"#);
            put_usage(out, usage);
        });
        event(&mut tail, "message_stop", |_| {});
        tail
    }

    fn error(&mut self, error: &ApiError, request_id: &str) -> Bytes {
        error.event(Dialect::Anthropic, request_id)
    }
}

/// A JSON string with something in it.
fn is_text(raw: &RawValue) -> bool {
    raw.get().len() > 2 && raw.get().starts_with('"')
}

/// One event: its name twice, as clients want it, and what `write` adds to its object.
pub(super) fn event(out: &mut Vec<u8>, kind: &str, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\ndata: {\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
    write(out);
    out.extend_from_slice(b"}\n\n");
}

fn delta(out: &mut Vec<u8>, index: u32, kind: &str, member: &str, raw: &str) {
    event(out, "content_block_delta", |out| {
        put_raw(out, "index", &index.to_string());
        out.extend_from_slice(br#","delta":{"#);
        put_member(out, "type", kind);
        put_raw(out, member, raw);
        out.push(b'}');
    });
}

/// Appends usage in Anthropic's words: its classes never overlap.
pub(super) fn put_usage(out: &mut Vec<u8>, usage: &Usage) {
    let text = format!(
        "{{\"input_tokens\":{},\"cache_creation_input_tokens\":{},\
         \"cache_read_input_tokens\":{},\"output_tokens\":{}}}",
        usage.input, usage.cache_write, usage.cached, usage.output
    );
    out.extend_from_slice(text.as_bytes());
}

/// The text of a raw JSON string; what is none is empty.
pub(super) fn plain(raw: Option<&RawValue>) -> String {
    raw.and_then(text).map(|text| text.0.into_owned()).unwrap_or_default()
}
