//! A Messages stream as strict chunks of a chat completion.

use super::blocks::{Kind, Open};
use super::event::{Event, Tokens};
use super::finish_reason;
use super::message::{self, counted};
use crate::chat::raw::Text;
use crate::chat::reply::{Chunks, DONE};
use crate::error::{Class, Failure, classify_event};
use crate::sse::{self, Decoder, EVENT_BYTES_MAX};
use crate::tokens::Counter;
use crate::usage::Usage;
use crate::wire::{End, Reply, ReplyContext, Step, Tap};
use bytes::Bytes;

/// The filter of one reply.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) context: ReplyContext,
    decoder: Decoder,
    form: Form,
    pub(super) tap: Tap,
    /// Made with the first event that says something; from then on the role is out.
    chunks: Option<Chunks>,
    /// Blocks that are being written: one at a time, as far as the provider keeps its word.
    pub(super) open: Vec<Open>,
    /// Tool calls and thinking blocks so far: their next index.
    pub(super) tools: u32,
    /// Ids of calls that are out: none is given twice.
    pub(super) ids: Vec<String>,
    pub(super) thoughts: u32,
    tokens: Tokens,
    /// `message_delta` has come, so the tokens are the final ones.
    settled: bool,
    stop_reason: Option<String>,
    pub(super) started: bool,
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

    fn cut(&mut self, step: &mut Step) {
        if !self.ended {
            self.stop_reason = Some("max_tokens".to_owned());
            self.complete(step);
        }
        step.started |= self.started;
    }

    /// Until the provider's last word, its output is the estimate that a message starts with; what
    /// has really passed is nearer to what will be charged.
    fn tap(&mut self) -> &mut Tap {
        if !self.settled
            && let Some(usage) = self.tokens.usage()
        {
            let output = self.tap.counter.total();
            let reasoning = self.tap.counter.reasoning();
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
            open: Vec::new(),
            tools: 0,
            ids: Vec::new(),
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
        if self.started {
            let why = "the provider's stream ended before its answer did";
            let failure = Failure::new(Class::Server, 200, why);
            let code = Some("truncated".to_owned());
            return self.end(step, End::Failed(Failure { code, ..failure }));
        }
        match clean {
            true => self.fail(step, Class::Invalid, "the provider's stream holds no answer"),
            false => self.fail(step, Class::Server, "the connection broke before the answer"),
        }
    }

    fn event(&mut self, event: &sse::Event, step: &mut Step) {
        let Some(data) = event.data.as_deref().map(<[u8]>::trim_ascii) else {
            // Comments are signs of life; `retry:` alone would break clients.
            if event.comment {
                comment(step, "keep-alive");
            }
            return;
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
            "content_block_start" => self.open_block(&read, step),
            "content_block_stop" => self.close_block(read.index(), step),
            "message_start" => self.message(&read, step),
            "message_delta" => self.settle(&read),
            "message_stop" => self.complete(step),
            "ping" => comment(step, "ping"),
            "error" => self.end(step, End::Failed(classify_event(data))),
            _ if read.error.is_some() => self.end(step, End::Failed(classify_event(data))),
            _ => {}
        }
    }

    fn message(&mut self, event: &Event<'_>, step: &mut Step) {
        // A second start inside a tool call: the provider began again, and what the caller has of
        // the call can neither be finished nor taken back.
        if self.open.iter().any(|open| matches!(open.kind, Kind::Tool { .. })) {
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
    pub(super) fn chunks(&mut self, step: &mut Step) -> &Chunks {
        let context = &self.context;
        let model = self.tap.model.as_deref().unwrap_or(&context.model);
        self.chunks.get_or_insert_with(|| {
            let chunks = Chunks::new(&context.id, context.created, model, context.usage_asked);
            step.out.push(chunks.role());
            chunks
        })
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
        self.close_blocks(step);
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

    pub(super) fn fail(&mut self, step: &mut Step, class: Class, why: &str) {
        self.end(step, End::Failed(Failure::new(class, 200, why)));
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
