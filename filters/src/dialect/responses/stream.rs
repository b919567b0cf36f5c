//! A chat's stream as the events of a response.

use super::super::canon::{Call as Said, Chunk, Delta, Speaker};
use super::super::names::{Names, Tool};
use super::items::{
    Body, Call, Head, Item, Part, Status, inside, put_response, put_summary, quoted, sealed,
};
use super::response_id;
use crate::chat::raw::{put_member, put_name, put_raw};
use crate::error::ApiError;
use crate::usage::Usage;
use crate::wire::ReplyContext;
use bytes::Bytes;
use serde_json::value::RawValue;

/// A call's index where a provider calls by the old `function_call`.
const LEGACY: u32 = u32::MAX;

/// The events of one response.
pub(in crate::dialect) struct Stream {
    names: Names,
    id: String,
    created: u64,
    model: String,
    sequence: u64,
    /// `response.created` is out.
    begun: bool,
    items: Vec<Item>,
    finish: Option<String>,
}

impl Stream {
    pub(in crate::dialect) fn new(names: Names, context: &ReplyContext) -> Self {
        Self {
            names,
            id: response_id(&context.id),
            created: context.created,
            model: context.model.to_string(),
            sequence: 0,
            begun: false,
            items: Vec::new(),
            finish: None,
        }
    }

    fn event(&mut self, out: &mut Vec<u8>, kind: &str, write: impl FnOnce(&mut Vec<u8>, &Self)) {
        out.extend_from_slice(b"event: response.");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: {\"type\":\"response.");
        out.extend_from_slice(kind.as_bytes());
        out.push(b'"');
        put_raw(out, "sequence_number", &self.sequence.to_string());
        write(out, self);
        out.extend_from_slice(b"}\n\n");
        self.sequence += 1;
    }

    fn response(&mut self, out: &mut Vec<u8>, status: Status<'_>, usage: Option<&Usage>) {
        let kind = match (status, self.begun) {
            (Status::InProgress, false) => "created",
            (status, _) => status.word(),
        };
        self.event(out, kind, |out, this| {
            let head = Head { id: &this.id, created: this.created, model: &this.model };
            put_name(out, "response");
            put_response(out, head, status, &this.items, usage);
        });
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.response(out, Status::InProgress, None);
            self.begun = true;
            self.response(out, Status::InProgress, None);
        }
    }

    fn say(&mut self, said: &Delta<'_>, out: &mut Vec<u8>) {
        if let Some(raw) = said.reasoning_content.filter(|raw| is_text(raw)) {
            self.reason(raw, out);
        }
        for block in said.thinking_blocks.iter().flatten() {
            let block = sealed(block);
            let at = self.reasoning(out);
            if let Some(Item { body: Body::Reasoning { sealed, .. }, .. }) = self.items.get_mut(at)
            {
                sealed.push(block);
            }
        }
        if let Some(raw) = said.content.filter(|raw| is_text(raw)) {
            self.text(false, raw, out);
        }
        if let Some(raw) = said.refusal.filter(|raw| is_text(raw)) {
            self.text(true, raw, out);
        }
        for picture in said.pictures() {
            let at = self.add("ig", Body::Picture(picture), out);
            self.close(at, Status::Completed, out);
        }
        for call in said.tool_calls.iter().flatten() {
            self.call(call, out);
        }
        if let Some(function) = &said.function_call {
            if let Some(name) = function.name.as_deref().filter(|name| !name.is_empty()) {
                let id = format!("call_{}", self.id.trim_start_matches("resp_"));
                self.start(LEGACY, &id, name, out);
            }
            if let Some(raw) = function.arguments.filter(|raw| is_text(raw)) {
                self.arguments(LEGACY, raw, out);
            }
        }
    }

    /// The item that is open and no call: those never go on once something else has begun.
    fn open(&self) -> Option<usize> {
        let last = self.items.len().checked_sub(1)?;
        let item = self.items.get(last)?;
        (item.done.is_none() && !matches!(item.body, Body::Call(_))).then_some(last)
    }

    fn add(&mut self, prefix: &str, body: Body, out: &mut Vec<u8>) -> usize {
        if let Some(open) = self.open() {
            self.close(open, Status::Completed, out);
        }
        let at = self.items.len();
        let id = format!("{prefix}_{}_{at}", self.id.trim_start_matches("resp_"));
        self.items.push(Item { id, body, done: None });
        self.event(out, "output_item.added", |out, this| {
            put_raw(out, "output_index", &at.to_string());
            put_name(out, "item");
            this.items[at].put(out, false, "in_progress");
        });
        at
    }

    /// The open reasoning item.
    fn reasoning(&mut self, out: &mut Vec<u8>) -> usize {
        let open = self.open();
        let found = open.filter(|at| matches!(self.items[*at].body, Body::Reasoning { .. }));
        match found {
            Some(at) => at,
            None => {
                let body = Body::Reasoning { text: String::new(), sealed: Vec::new() };
                self.add("rs", body, out)
            }
        }
    }

    fn reason(&mut self, raw: &RawValue, out: &mut Vec<u8>) {
        let at = self.reasoning(out);
        let Body::Reasoning { text, .. } = &mut self.items[at].body else { return };
        let first = text.is_empty();
        text.push_str(inside(raw.get()));
        if first {
            self.event(out, "reasoning_summary_part.added", |out, this| {
                this.place(out, at, Some("summary_index"));
                put_name(out, "part");
                put_summary(out, "");
            });
        }
        self.event(out, "reasoning_summary_text.delta", |out, this| {
            this.place(out, at, Some("summary_index"));
            put_raw(out, "delta", raw.get());
        });
    }

    fn text(&mut self, refusal: bool, raw: &RawValue, out: &mut Vec<u8>) {
        let open = self.open();
        let found = open.filter(|at| matches!(self.items[*at].body, Body::Message { .. }));
        let at = match found {
            Some(at) => at,
            None => self.add("msg", Body::Message { parts: Vec::new() }, out),
        };
        let Body::Message { parts } = &mut self.items[at].body else { return };
        let fits = parts.last().is_some_and(|part| part.refusal == refusal);
        if !fits {
            let any = !parts.is_empty();
            if any {
                self.close_part(at, out);
            }
            let Body::Message { parts } = &mut self.items[at].body else { return };
            parts.push(Part { refusal, text: String::new() });
            self.event(out, "content_part.added", |out, this| {
                this.part_place(out, at);
                put_name(out, "part");
                if let Some(part) = this.last_part(at) {
                    part.put(out, "");
                }
            });
        }
        let Body::Message { parts } = &mut self.items[at].body else { return };
        if let Some(part) = parts.last_mut() {
            part.text.push_str(inside(raw.get()));
        }
        let kind = if refusal { "refusal.delta" } else { "output_text.delta" };
        self.event(out, kind, |out, this| {
            this.part_place(out, at);
            put_raw(out, "delta", raw.get());
        });
    }

    fn call(&mut self, call: &Said<'_>, out: &mut Vec<u8>) {
        let Some(function) = &call.function else { return };
        if let Some((id, name)) = call.begins() {
            self.start(call.index, id, name, out);
        }
        if let Some(raw) = function.arguments.filter(|raw| is_text(raw)) {
            self.arguments(call.index, raw, out);
        }
    }

    fn start(&mut self, index: u32, id: &str, name: &str, out: &mut Vec<u8>) {
        let named = || Tool { name: name.to_owned(), ..Tool::default() };
        let tool = self.names.find(name).cloned().unwrap_or_else(named);
        let call = Call { index, call_id: id.to_owned(), tool, arguments: String::new() };
        self.add("fc", Body::Call(call), out);
    }

    fn arguments(&mut self, index: u32, raw: &RawValue, out: &mut Vec<u8>) {
        let found = self.items.iter_mut().enumerate().find_map(|(at, item)| match &mut item.body {
            Body::Call(call) if call.index == index => Some((at, call)),
            _ => None,
        });
        let Some((at, call)) = found else { return };
        call.arguments.push_str(inside(raw.get()));
        // The free text of a custom tool is known only when its object is whole.
        if !call.tool.custom {
            self.event(out, "function_call_arguments.delta", |out, this| {
                this.place(out, at, None);
                put_raw(out, "delta", raw.get());
            });
        }
    }

    /// Where an event belongs.
    fn place(&self, out: &mut Vec<u8>, at: usize, index: Option<&str>) {
        put_member(out, "item_id", &self.items[at].id);
        put_raw(out, "output_index", &at.to_string());
        if let Some(index) = index {
            put_raw(out, index, "0");
        }
    }

    fn part_place(&self, out: &mut Vec<u8>, at: usize) {
        self.place(out, at, None);
        let Body::Message { parts } = &self.items[at].body else { return };
        put_raw(out, "content_index", &parts.len().saturating_sub(1).to_string());
    }

    fn last_part(&self, at: usize) -> Option<&Part> {
        match &self.items[at].body {
            Body::Message { parts } => parts.last(),
            _ => None,
        }
    }

    fn close_part(&mut self, at: usize, out: &mut Vec<u8>) {
        let Some(refusal) = self.last_part(at).map(|part| part.refusal) else { return };
        let (kind, name) =
            if refusal { ("refusal.done", "refusal") } else { ("output_text.done", "text") };
        self.event(out, kind, |out, this| {
            this.part_place(out, at);
            let text = this.last_part(at).map(|part| quoted(&part.text));
            put_raw(out, name, &text.unwrap_or_default());
        });
        self.event(out, "content_part.done", |out, this| {
            this.part_place(out, at);
            put_name(out, "part");
            if let Some(part) = this.last_part(at) {
                part.put(out, &part.text);
            }
        });
    }

    fn close(&mut self, at: usize, status: Status<'_>, out: &mut Vec<u8>) {
        match &self.items[at].body {
            Body::Message { .. } => self.close_part(at, out),
            Body::Reasoning { text, .. } if !text.is_empty() => self.close_reasoning(at, out),
            Body::Reasoning { .. } | Body::Picture(_) => {}
            Body::Call(call) => {
                let (kind, name, text) = if call.tool.custom {
                    ("custom_tool_call_input", "input", call.input())
                } else {
                    ("function_call_arguments", "arguments", call.arguments.clone())
                };
                let text = quoted(&text);
                if call.tool.custom {
                    self.event(out, "custom_tool_call_input.delta", |out, this| {
                        this.place(out, at, None);
                        put_raw(out, "delta", &text);
                    });
                }
                self.event(out, &format!("{kind}.done"), |out, this| {
                    this.place(out, at, None);
                    put_raw(out, name, &text);
                });
            }
        }
        self.items[at].done = Some(status.of_items());
        self.event(out, "output_item.done", |out, this| {
            put_raw(out, "output_index", &at.to_string());
            put_name(out, "item");
            this.items[at].put(out, true, status.of_items());
        });
    }

    fn close_reasoning(&mut self, at: usize, out: &mut Vec<u8>) {
        let text = match &self.items[at].body {
            Body::Reasoning { text, .. } => text.clone(),
            _ => return,
        };
        self.event(out, "reasoning_summary_text.done", |out, this| {
            this.place(out, at, Some("summary_index"));
            put_raw(out, "text", &quoted(&text));
        });
        self.event(out, "reasoning_summary_part.done", |out, this| {
            this.place(out, at, Some("summary_index"));
            put_name(out, "part");
            put_summary(out, &text);
        });
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
        let finish = self.finish.take().unwrap_or_default();
        let status = Status::of(&finish);
        for at in 0..self.items.len() {
            if self.items[at].done.is_none() {
                self.close(at, status, out);
            }
        }
        let mut tail = Vec::new();
        self.response(&mut tail, status, Some(usage));
        tail
    }

    fn error(&mut self, error: &ApiError, _request_id: &str) -> Bytes {
        let mut out = Vec::new();
        self.begin(&mut out);
        let status = Status::Failed(error.code.as_str(), &error.message);
        self.response(&mut out, status, None);
        out.into()
    }
}

/// A failure before anything of an answer was said.
pub(super) fn failed(error: &ApiError, request_id: &str) -> Bytes {
    let mut stream = Stream {
        names: Names::default(),
        id: response_id(request_id),
        created: 0,
        model: String::new(),
        sequence: 0,
        begun: false,
        items: Vec::new(),
        finish: None,
    };
    stream.error(error, request_id)
}

/// A JSON string with something in it.
fn is_text(raw: &RawValue) -> bool {
    raw.get().len() > 2 && raw.get().starts_with('"')
}
