//! The content blocks of a stream, each delta handed on as it comes.

use super::event::{Block, Delta, Event};
use super::message::{arguments, call_id, redacted, thinking};
use super::stream::Stream;
use crate::chat::raw::{Text, put_text, text};
use crate::chat::reply::ToolStart;
use crate::error::Class;
use crate::tokens::Channel;
use crate::wire::Step;
use bytes::Bytes;
use serde_json::value::RawValue;

/// Thinking that is kept to be given back with its seal. A longer one is still streamed as text,
/// but cannot be returned in a tool loop; 128,000 tokens come to about half of this.
const THINKING_BYTES_MAX: usize = 1 << 20;

/// A block that is being written.
#[derive(Debug)]
pub(super) struct Open {
    index: u64,
    pub kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Text,
    /// `None` when it grew too long to be kept.
    Thinking {
        text: Option<String>,
        signature: Option<String>,
    },
    /// `input` is what stood in the block's start, for the case that no fragment follows.
    Tool {
        number: u32,
        input: String,
        fragments: bool,
    },
    /// Not for the caller: the provider's own tools, and what is not known yet.
    Hidden,
}

impl Stream {
    pub(super) fn open_block(&mut self, event: &Event<'_>, step: &mut Step) {
        let Some(block) = event.block() else {
            return self.fail(step, Class::Invalid, "a block of the stream cannot be read");
        };
        let index = event.index();
        self.close_block(index, step);
        let kind = self.kind(&block, step);
        self.open.push(Open { index, kind });
    }

    fn kind(&mut self, block: &Block<'_>, step: &mut Step) -> Kind {
        let given = |text: &Option<Text<'_>>| text.as_deref().unwrap_or_default().to_owned();
        match &*block.kind {
            "text" => {
                self.say("content", Channel::Content, &given(&block.text), step);
                Kind::Text
            }
            "thinking" => {
                let text = given(&block.thinking);
                self.say("reasoning_content", Channel::Reasoning, &text, step);
                Kind::Thinking { text: Some(text), signature: Some(given(&block.signature)) }
            }
            "redacted_thinking" => {
                let entry = redacted(Some(self.thoughts), &given(&block.data));
                self.thought(&entry, step);
                Kind::Hidden
            }
            "tool_use" => {
                let number = self.tools;
                let fresh = block.id.as_deref().filter(|id| self.ids.iter().all(|one| one != id));
                let id = call_id(fresh, &self.context.id, number as usize);
                let name = given(&block.name);
                if name.is_empty() {
                    self.fail(step, Class::Invalid, "a tool call has no name");
                    return Kind::Hidden;
                }
                let start = ToolStart { index: number, id: &id, name: &name };
                let chunk = self.chunks(step).tool(start);
                self.tools += 1;
                self.tap.counter.push(0, Channel::Tool(number), &name);
                self.emit(chunk, step);
                self.ids.push(id);
                Kind::Tool { number, input: arguments(block.input), fragments: false }
            }
            _ => Kind::Hidden,
        }
    }

    pub(super) fn delta(&mut self, event: &Event<'_>, step: &mut Step) {
        let Some(delta) = event.delta() else {
            return self.fail(step, Class::Invalid, "a delta of the stream cannot be read");
        };
        let index = event.index();
        // Taken out while it is worked on, so that the writer can be borrowed beside it.
        let mut open = match self.open.iter().rposition(|open| open.index == index) {
            Some(at) => self.open.swap_remove(at),
            // Its start was lost: text is still text.
            None => match delta.kind.as_deref() {
                Some("text_delta") => Open { index, kind: Kind::Text },
                _ => Open { index, kind: Kind::Hidden },
            },
        };
        self.extend(&mut open.kind, &delta, step);
        self.open.push(open);
    }

    fn extend(&mut self, kind: &mut Kind, delta: &Delta<'_>, step: &mut Step) {
        match kind {
            Kind::Text => self.pass("content", Channel::Content, delta.text, step),
            Kind::Thinking { text: kept, signature } => {
                self.pass("reasoning_content", Channel::Reasoning, delta.thinking, step);
                if let Some(more) = delta.thinking.and_then(text) {
                    keep(kept, &more);
                }
                if let Some(more) = &delta.signature {
                    keep(signature, more);
                }
            }
            Kind::Tool { number, fragments, .. } => {
                let Some(raw) = delta.partial_json.filter(|raw| is_text(raw)) else { return };
                let chunk = self.chunks(step).arguments(*number, raw.get());
                *fragments = true;
                self.count(Channel::Tool(*number), raw);
                self.emit(chunk, step);
            }
            Kind::Hidden => {}
        }
    }

    pub(super) fn close_blocks(&mut self, step: &mut Step) {
        while let Some(open) = self.open.pop() {
            self.close_kind(open.kind, step);
        }
    }

    pub(super) fn close_block(&mut self, index: u64, step: &mut Step) {
        if let Some(at) = self.open.iter().rposition(|open| open.index == index) {
            let open = self.open.swap_remove(at);
            self.close_kind(open.kind, step);
        }
    }

    fn close_kind(&mut self, kind: Kind, step: &mut Step) {
        match kind {
            Kind::Tool { number, input, fragments: false } => {
                let mut raw = Vec::new();
                put_text(&mut raw, &input);
                let chunk = self.chunks(step).arguments(number, &String::from_utf8_lossy(&raw));
                self.tap.counter.push(0, Channel::Tool(number), &input);
                self.emit(chunk, step);
            }
            Kind::Thinking { text: Some(text), signature: Some(signature) } => {
                if let Some(entry) = thinking(Some(self.thoughts), &text, &signature) {
                    self.thought(&entry, step);
                }
            }
            _ => {}
        }
    }

    fn thought(&mut self, entry: &str, step: &mut Step) {
        let chunk = self.chunks(step).raw("thinking_blocks", &format!("[{entry}]"));
        self.thoughts += 1;
        self.emit(chunk, step);
    }

    /// Hands a string on as it was written.
    fn pass(&mut self, name: &str, channel: Channel, raw: Option<&RawValue>, step: &mut Step) {
        let Some(raw) = raw.filter(|raw| is_text(raw)) else { return };
        let chunk = self.chunks(step).raw(name, raw.get());
        self.count(channel, raw);
        self.emit(chunk, step);
    }

    fn say(&mut self, name: &str, channel: Channel, text: &str, step: &mut Step) {
        if text.is_empty() {
            return;
        }
        let chunk = self.chunks(step).text(name, text);
        self.tap.counter.push(0, channel, text);
        self.emit(chunk, step);
    }

    fn count(&mut self, channel: Channel, raw: &RawValue) {
        match text(raw) {
            Some(text) => self.tap.counter.push(0, channel, &text),
            // Half of a surrogate pair: no text, but it was generated.
            None => self.tap.counter.push(0, channel, raw.get()),
        }
    }

    pub(super) fn emit(&mut self, chunk: Bytes, step: &mut Step) {
        step.out.push(chunk);
        step.alive = true;
        self.started = true;
    }
}

/// Keeps a piece, or lets the whole go once it has outgrown [`THINKING_BYTES_MAX`]: half a block
/// does not fit its seal.
fn keep(kept: &mut Option<String>, more: &str) {
    if let Some(text) = kept {
        text.push_str(more);
    }
    if kept.as_ref().is_some_and(|text| text.len() > THINKING_BYTES_MAX) {
        *kept = None;
    }
}

/// A string with something in it.
fn is_text(raw: &RawValue) -> bool {
    raw.get().len() > 2 && raw.get().starts_with('"')
}
