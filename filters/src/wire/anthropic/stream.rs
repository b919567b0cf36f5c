//! A Messages stream as strict chunks of a chat completion (protocols.md sections 1 and 4.1).

use super::event::{Block, Delta, Event, Tokens};
use super::message::{self, arguments, call_id, counted, redacted, thinking};
use super::finish_reason;
use crate::chat::raw::{Text, put_text, text};
use crate::chat::reply::{Chunks, DONE, ToolStart};
use crate::error::{Class, Failure, classify_event};
use crate::sse::{self, Decoder, EVENT_BYTES_MAX};
use crate::tokens::{Channel, Counter};
use crate::usage::Usage;
use crate::wire::{End, Reply, ReplyContext, Step, Tap};
use bytes::Bytes;
use serde_json::value::RawValue;

/// Thinking that is kept to be given back with its seal. A longer one is still streamed as text,
/// but cannot be returned in a tool loop; the largest budgets come to a fifth of this.
const THINKING_BYTES_MAX: usize = 1 << 20;

/// The filter of one reply.
#[derive(Debug)]
pub(super) struct Stream {
    context: ReplyContext,
    decoder: Decoder,
    form: Form,
    tap: Tap,
    /// Made with the first event that says something; from then on the role is out.
    chunks: Option<Chunks>,
    open: Option<Open>,
    /// Tool calls and thinking blocks so far: their next index.
    tools: u32,
    thoughts: u32,
    tokens: Tokens,
    /// `message_delta` has come, so the tokens are the final ones.
    settled: bool,
    stop_reason: Option<String>,
    started: bool,
    ended: bool,
}

/// What the body turned out to be.
#[derive(Debug)]
enum Form {
    Unknown,
    Events,
    /// JSON, gathered until its end.
    Json(Vec<u8>),
}

/// The block that is being written; blocks never overlap.
#[derive(Debug)]
struct Open {
    index: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text,
    Thinking { text: String, signature: String },
    /// `input` is what stood in the block's start, for the case that no fragment follows.
    Tool { number: u32, input: String, fragments: bool },
    /// Not for the caller.
    Hidden,
}

impl Reply for Stream {
    fn feed(&mut self, chunk: Bytes, step: &mut Step) {
        if !self.ended {
            self.take(chunk, step);
        }
        step.started |= self.started;
    }

    fn finish(&mut self, clean: bool, step: &mut Step) {
        if !self.ended {
            self.close(clean, step);
        }
        step.started |= self.started;
    }

    /// Until the provider's last word, its output is the estimate that a message starts with; what
    /// has really passed is nearer to what will be charged.
    fn tap(&mut self) -> &mut Tap {
        if !self.settled && self.tokens.has_output() {
            let output = self.tap.counter.total();
            let reasoning = self.tap.counter.reasoning();
            let usage = self.tokens.usage().unwrap_or_default();
            self.tap.usage = Some(Usage { output: output.max(usage.output), reasoning, ..usage });
        }
        &mut self.tap
    }
}

impl Stream {
    pub(super) fn new(context: ReplyContext) -> Self {
        let counter = Counter::new(context.encoding);
        Self {
            context,
            decoder: Decoder::new(),
            form: Form::Unknown,
            tap: Tap { usage: None, finish: None, model: None, counter },
            chunks: None,
            open: None,
            tools: 0,
            thoughts: 0,
            tokens: Tokens::default(),
            settled: false,
            stop_reason: None,
            started: false,
            ended: false,
        }
    }

    fn take(&mut self, chunk: Bytes, step: &mut Step) {
        if matches!(self.form, Form::Unknown) {
            self.form = match chunk.trim_ascii_start().first() {
                None => Form::Unknown,
                Some(b'{' | b'[') => Form::Json(Vec::new()),
                Some(b'<') => return self.fail(step, Class::Invalid, "the reply is a page"),
                Some(_) => Form::Events,
            };
        }
        if let Form::Json(body) = &mut self.form {
            if body.len() + chunk.len() > EVENT_BYTES_MAX {
                return self.fail(step, Class::Invalid, "the reply is no stream and too long");
            }
            body.extend_from_slice(&chunk);
            return;
        }
        self.decoder.push(chunk);
        while !self.ended {
            match self.decoder.next_event() {
                Ok(Some(event)) => self.event(&event, step),
                Ok(None) => return,
                Err(error) => return self.fail(step, Class::Invalid, &error.to_string()),
            }
        }
    }

    fn close(&mut self, clean: bool, step: &mut Step) {
        if let Form::Json(body) = &mut self.form {
            let body = std::mem::take(body);
            return self.whole(&body, clean, step);
        }
        // The last event may lack its blank line; when it was cut it is no event at all.
        if let Some(event) = self.decoder.finish()
            && event.data.as_deref().is_some_and(|data| read(data).is_some())
        {
            self.event(&event, step);
        }
        if self.ended {
            return;
        }
        if self.stop_reason.is_some() {
            return self.complete(step);
        }
        match (self.chunks.is_some(), clean) {
            (false, true) => self.fail(step, Class::Invalid, "the reply is an empty stream"),
            (_, true) => self.fail(step, Class::Invalid, "the stream ended before its answer did"),
            (_, false) => self.fail(step, Class::Server, "the connection was cut"),
        }
    }

    fn event(&mut self, event: &sse::Event, step: &mut Step) {
        let Some(data) = event.data.as_deref().map(<[u8]>::trim_ascii) else {
            // Comments are signs of life; `retry:` alone would break clients.
            return if event.comment { comment(step, "keep-alive") } else { () };
        };
        if matches!(data, b"" | b"null" | b"[DONE]") {
            return;
        }
        let Some(read) = read(data) else {
            return self.fail(step, Class::Invalid, "an event of the stream is no JSON object");
        };
        let name = event.name.as_deref().and_then(|name| std::str::from_utf8(name).ok());
        match read.kind.as_deref().or(name).unwrap_or_default() {
            "content_block_delta" => self.delta(&read, step),
            "content_block_start" => self.begin(&read, step),
            "content_block_stop" => self.stop(step),
            "message_start" => self.message(&read, step),
            "message_delta" => self.settle(&read),
            "message_stop" => self.complete(step),
            "ping" => comment(step, "ping"),
            "error" => self.end(step, End::Failed(in_stream(data))),
            _ if read.error.is_some() => self.end(step, End::Failed(in_stream(data))),
            _ => {}
        }
    }

    fn message(&mut self, event: &Event<'_>, step: &mut Step) {
        // A second start inside a tool call: the provider began again, and what the caller has of
        // the call can neither be finished nor taken back.
        if matches!(&self.open, Some(Open { kind: Kind::Tool { .. }, .. })) {
            return self.fail(step, Class::Invalid, "a second answer begins inside a tool call");
        }
        let Some(start) = event.message() else { return };
        self.tokens.overwrite(start.usage().unwrap_or_default());
        if self.chunks.is_some() {
            return;
        }
        let some = |text: Option<Text<'_>>| {
            text.filter(|text| !text.is_empty()).map(|text| text.0.into_owned())
        };
        if let Some(id) = some(start.id) {
            self.context.id = id;
        }
        self.tap.model = some(start.model);
        self.chunks(step);
    }

    /// The writer of chunks; the first time it is asked for, the role goes out.
    fn chunks(&mut self, step: &mut Step) -> &Chunks {
        let context = &self.context;
        let model = self.tap.model.as_deref().unwrap_or(&context.model);
        self.chunks.get_or_insert_with(|| {
            let chunks = Chunks::new(&context.id, context.created, model, context.usage_asked);
            step.out.push(chunks.role());
            chunks
        })
    }

    fn begin(&mut self, event: &Event<'_>, step: &mut Step) {
        self.stop(step);
        let Some(block) = event.block() else { return };
        let kind = self.kind(&block, step);
        self.open = Some(Open { index: event.index(), kind });
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
                Kind::Thinking { text, signature: given(&block.signature) }
            }
            "redacted_thinking" => {
                let entry = redacted(Some(self.thoughts), &given(&block.data));
                self.thought(&entry, step);
                Kind::Hidden
            }
            "tool_use" => {
                let number = self.tools;
                let id = call_id(block.id.as_deref(), &self.context.id, number as usize);
                let name = given(&block.name);
                let start = ToolStart { index: number, id: &id, name: &name };
                let chunk = self.chunks(step).tool(start);
                self.tools += 1;
                self.tap.counter.push(0, Channel::Tool(number), &name);
                self.emit(chunk, step);
                Kind::Tool { number, input: arguments(block.input), fragments: false }
            }
            _ => Kind::Hidden,
        }
    }

    fn delta(&mut self, event: &Event<'_>, step: &mut Step) {
        let Some(delta) = event.delta() else { return };
        // Taken out while it is worked on, so that the writer can be borrowed beside it.
        let Some(mut open) = self.open.take() else {
            // A start was lost: text is still text.
            if delta.kind.as_deref() == Some("text_delta") {
                self.open = Some(Open { index: event.index(), kind: Kind::Text });
                self.delta(event, step);
            }
            return;
        };
        if open.index == event.index() {
            self.extend(&mut open.kind, &delta, step);
        }
        self.open = Some(open);
    }

    fn extend(&mut self, kind: &mut Kind, delta: &Delta<'_>, step: &mut Step) {
        match kind {
            Kind::Text => self.pass("content", Channel::Content, delta.text, step),
            Kind::Thinking { text: kept, signature } => {
                self.pass("reasoning_content", Channel::Reasoning, delta.thinking, step);
                if let Some(more) = delta.thinking.and_then(text)
                    && kept.len() + more.len() <= THINKING_BYTES_MAX
                {
                    kept.push_str(&more);
                }
                if let Some(more) = &delta.signature {
                    signature.push_str(more);
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

    /// The open block has ended.
    fn stop(&mut self, step: &mut Step) {
        match self.open.take().map(|open| open.kind) {
            Some(Kind::Tool { number, input, fragments: false }) => {
                let mut raw = Vec::new();
                put_text(&mut raw, &input);
                let raw = String::from_utf8(raw).unwrap_or_default();
                let chunk = self.chunks(step).arguments(number, &raw);
                self.tap.counter.push(0, Channel::Tool(number), &input);
                self.emit(chunk, step);
            }
            Some(Kind::Thinking { text, signature }) => {
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

    fn emit(&mut self, chunk: Bytes, step: &mut Step) {
        step.out.push(chunk);
        step.alive = true;
        self.started = true;
    }

    fn settle(&mut self, event: &Event<'_>) {
        if let Some(tokens) = event.usage() {
            self.settled |= tokens.has_output();
            self.tokens.overwrite(tokens);
        }
        if let Some(reason) = event.delta().and_then(|delta| delta.stop_reason) {
            self.stop_reason = Some(reason.0.into_owned());
        }
    }

    /// The finish goes out now, not at `message_delta`: an error may still come between the two.
    fn complete(&mut self, step: &mut Step) {
        let Some(reason) = self.stop_reason.take() else {
            return self.fail(step, Class::Invalid, "the stream ended without a stop reason");
        };
        self.stop(step);
        let finish = finish_reason(&reason, self.tools > 0);
        let usage = self.final_usage();
        let asked = self.context.usage_asked;
        let chunks = self.chunks(step);
        let chunk = chunks.finish(finish);
        let mut tail = if asked { Vec::from(chunks.usage(&usage)) } else { Vec::new() };
        tail.extend_from_slice(DONE.as_bytes());
        self.tap.finish = Some(finish);
        self.emit(chunk, step);
        self.end(step, End::Complete { tail: tail.into() });
    }

    /// The provider's numbers where it gave them, ours for the rest.
    fn final_usage(&mut self) -> Usage {
        if let Some(usage) = self.tokens.usage().filter(|_| self.settled) {
            self.tap.usage = Some(usage);
            return usage;
        }
        let prompt = self.context.prompt_tokens;
        let usage = self.tap().usage;
        usage.unwrap_or_else(|| counted(&mut self.tap.counter, prompt))
    }

    /// A message that came as JSON though a stream was asked for.
    fn whole(&mut self, body: &[u8], clean: bool, step: &mut Step) {
        let message = match message::read(body, &self.context.id) {
            Ok(message) => message,
            Err(_) if !clean => return self.fail(step, Class::Server, "the connection was cut"),
            Err(failure) => return self.end(step, End::Failed(failure)),
        };
        if let Some(id) = message.id {
            self.context.id = id;
        }
        self.tap.model = message.model;
        let completion = message.completion;
        completion.count(&mut self.tap.counter);
        self.tap.usage = message.usage;
        self.tap.finish = Some(completion.finish);
        let prompt = self.context.prompt_tokens;
        let usage = self.tap.usage;
        let usage = usage.unwrap_or_else(|| counted(&mut self.tap.counter, prompt));
        let asked = self.context.usage_asked;
        let chunks = self.chunks(step);
        let mut out = chunks.whole(&completion);
        let mut tail = if asked { Vec::from(chunks.usage(&usage)) } else { Vec::new() };
        tail.extend_from_slice(DONE.as_bytes());
        for chunk in out.drain(..) {
            self.emit(chunk, step);
        }
        self.end(step, End::Complete { tail: tail.into() });
    }

    fn fail(&mut self, step: &mut Step, class: Class, why: &str) {
        let mut failure = Failure::new(class, 200, why);
        if self.started {
            failure.code = Some("truncated".into());
        }
        self.end(step, End::Failed(failure));
    }

    fn end(&mut self, step: &mut Step, end: End) {
        self.ended = true;
        step.end = Some(end);
    }
}

/// `None` for what is no JSON object.
fn read(data: &[u8]) -> Option<Event<'_>> {
    serde_json::from_slice(data).ok()
}

fn comment(step: &mut Step, word: &str) {
    step.out.push(Bytes::from(format!(": {word}\n\n")));
}

/// A string with something in it.
fn is_text(raw: &RawValue) -> bool {
    raw.get().len() > 2 && raw.get().starts_with('"')
}

/// An error event keeps the 200 that it came with.
fn in_stream(data: &[u8]) -> Failure {
    Failure { status: 200, ..classify_event(data) }
}
