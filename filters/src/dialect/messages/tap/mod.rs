//! A message's stream that passes: usage tapped, the end withheld, and what clients would not bear
//! put right.

use super::late;
use super::sent::{Sent, read};
use super::stream::{event, put_usage};
use crate::chat::raw::{Text, put_member};
use crate::dialect::Dialect;
use crate::dialect::canon::used;
use crate::error::{ApiError, Class, Failure, classify_event};
use crate::sse::{self, Decoder, EVENT_BYTES_MAX, Run};
use crate::tokens::Counter;
use crate::usage::Usage;
use crate::wire::anthropic::event::{Event, Tokens};
use crate::wire::anthropic::{finish_reason, message};
use crate::wire::{End, Reply, ReplyContext, Step, TRUNCATED, Tap};
use bytes::Bytes;

mod blocks;

/// The filter of one reply.
pub(in crate::dialect) fn tap(context: ReplyContext) -> Box<dyn Reply> {
    let counter = Counter::new(context.encoding);
    Box::new(Passing {
        context,
        decoder: Decoder::new(),
        form: Form::Unknown,
        tap: Tap { usage: None, finish: None, model: None, counter },
        tokens: Tokens::default(),
        settled: false,
        begun: false,
        open: None,
        blocks: 0,
        tools: 0,
        stop: None,
        last: Vec::new(),
        started: false,
        ended: false,
    })
}

struct Passing {
    context: ReplyContext,
    decoder: Decoder,
    form: Form,
    tap: Tap,
    tokens: Tokens,
    /// `message_delta` has come, so the tokens are the final ones.
    settled: bool,
    /// `message_start` is out.
    begun: bool,
    open: Option<Open>,
    /// Blocks whose end is out: the next one's index.
    blocks: u64,
    tools: u32,
    stop: Option<String>,
    /// `message_delta`, held back: an error may still come between it and the end.
    last: Vec<u8>,
    started: bool,
    ended: bool,
}

/// What the body turned out to be.
enum Form {
    Unknown,
    Events,
    /// JSON, gathered until its end.
    Json(Vec<u8>),
}

/// The block that is being written.
struct Open {
    /// The provider's index.
    theirs: u64,
    tool: Option<u32>,
}

impl Reply for Passing {
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
            self.stop.get_or_insert_with(|| "max_tokens".to_owned());
            self.complete(None, &mut Run::default(), step);
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

    fn error(&mut self, error: &ApiError, request_id: &str) -> Option<Bytes> {
        Some(error.event(Dialect::Anthropic, request_id))
    }
}

impl Passing {
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
        let mut run = Run::of(chunk.clone());
        self.decoder.push(chunk);
        while !self.ended {
            match self.decoder.next_event() {
                Ok(Some(event)) => self.event(&event, &mut run, step),
                Ok(None) => break,
                Err(error) => self.fail(step, Class::Invalid, &error.to_string()),
            }
        }
        run.flush(&mut step.out);
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
            let mut run = Run::default();
            self.event(&event, &mut run, step);
            run.flush(&mut step.out);
        }
        if self.ended {
            return;
        }
        if self.stop.is_some() {
            return self.complete(None, &mut Run::default(), step);
        }
        if self.started {
            let why = "the provider's stream ended before its answer did";
            let failure = Failure::new(Class::Server, 200, why);
            let code = Some(TRUNCATED.to_owned());
            return self.end(step, End::Failed(Failure { code, ..failure }));
        }
        if clean {
            return self.fail(step, Class::Invalid, "the provider's stream holds no answer");
        }
        self.fail(step, Class::Server, "the connection broke before the answer");
    }

    fn event(&mut self, event: &sse::Event, run: &mut Run, step: &mut Step) {
        let Some(data) = event.data.as_ref() else {
            if event.comment {
                run.write(Bytes::from_static(b": keep-alive\n\n"), &mut step.out);
            }
            return;
        };
        if matches!(data.trim_ascii(), b"" | b"null" | b"[DONE]") {
            return;
        }
        let Some(read) = read(data) else {
            return self.fail(step, Class::Invalid, "an event of the stream is no JSON object");
        };
        let name = event.name.as_deref().and_then(|name| std::str::from_utf8(name).ok());
        let kind = read.kind.as_deref().or(name).unwrap_or_default();
        let sent = Sent { event, data, kind, typed: read.kind.is_some() };
        match kind {
            "content_block_delta" => self.delta(&read, &sent, run, step),
            "content_block_start" => self.open_block(&read, &sent, run, step),
            "content_block_stop" => self.close_block(&read, &sent, run, step),
            "message_start" => self.message(&read, &sent, run, step),
            "message_delta" => self.settle(&read, &sent),
            "message_stop" => self.complete(Some(&sent), run, step),
            "error" => self.end(step, End::Failed(classify_event(data))),
            _ if read.error.is_some() => self.end(step, End::Failed(classify_event(data))),
            "" => {}
            // Pings, and what is not known yet.
            _ => sent.pass(&[], run, step),
        }
    }

    fn message(&mut self, read: &Event<'_>, sent: &Sent<'_>, run: &mut Run, step: &mut Step) {
        // What the caller has of a call can neither be finished nor taken back.
        if self.open.as_ref().is_some_and(|open| open.tool.is_some()) {
            return self.fail(step, Class::Invalid, "a second answer begins inside a tool call");
        }
        let Some(start) = read.message() else { return };
        let tokens = start.usage().unwrap_or_default();
        let full = tokens.is_full();
        self.tokens.overwrite(tokens);
        if self.begun {
            return;
        }
        let some = |text: Option<Text<'_>>| {
            text.filter(|text| !text.is_empty()).map(|text| text.0.into_owned())
        };
        let (id, model) = (some(start.id), some(start.model));
        self.tap.model.clone_from(&model);
        if full && id.is_some() && model.is_some() {
            self.begun = true;
            return sent.pass(&[], run, step);
        }
        if let Some(id) = id {
            self.context.id = id;
        }
        self.begin(run, step);
    }

    /// A start of our own making, where the provider gave none in full.
    fn begin(&mut self, run: &mut Run, step: &mut Step) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let estimate = Usage { input: self.context.prompt_tokens, ..Usage::default() };
        let usage = self.tokens.usage().unwrap_or(estimate);
        let mut out = Vec::new();
        event(&mut out, "message_start", |out| {
            out.extend_from_slice(br#","message":{"#);
            let id = &self.context.id;
            let made = super::message_id(id);
            put_member(out, "id", if id.starts_with("chatcmpl-") { &made } else { id });
            out.extend_from_slice(br#","type":"message","role":"assistant","content":[]"#);
            put_member(out, "model", self.tap.model.as_deref().unwrap_or(&self.context.model));
            out.extend_from_slice(br#","stop_reason":null,"stop_sequence":null,"usage":"#);
            put_usage(out, &usage);
            out.push(b'}');
        });
        run.write(out.into(), &mut step.out);
    }

    fn settle(&mut self, read: &Event<'_>, sent: &Sent<'_>) {
        let tokens = read.usage();
        let counted = tokens.as_ref().is_some_and(Tokens::has_output);
        if let Some(tokens) = tokens {
            self.settled |= counted;
            self.tokens.overwrite(tokens);
        }
        let Some(delta) = read.delta() else { return };
        let sound = counted && delta.stop_sequence.is_some() && self.last.is_empty();
        if let Some(reason) = delta.stop_reason {
            self.stop = Some(reason.0.into_owned());
            self.last = if sound { sent.bytes().into() } else { Vec::new() };
        }
    }

    fn complete(&mut self, sent: Option<&Sent<'_>>, run: &mut Run, step: &mut Step) {
        let Some(reason) = self.stop.take() else {
            return self.fail(step, Class::Invalid, "the stream ended without a stop reason");
        };
        self.begin(run, step);
        self.close_open(run, step);
        run.flush(&mut step.out);
        self.started = true;
        let finish = finish_reason(&reason, self.tools > 0);
        self.tap.finish = Some(finish);
        if let Some(usage) = self.tokens.usage().filter(|_| self.settled) {
            self.tap.usage = Some(usage);
        }
        let prompt = self.context.prompt_tokens;
        let mut tail = std::mem::take(&mut self.last);
        if tail.is_empty() {
            let usage = used(self.tap(), prompt);
            event(&mut tail, "message_delta", |out| {
                out.extend_from_slice(br#","delta":{"#);
                put_member(out, "stop_reason", &reason);
                out.extend_from_slice(br#","stop_sequence":null},"usage":"#);
                put_usage(out, &usage);
            });
        }
        match sent {
            Some(sent) => tail.extend_from_slice(&sent.bytes()),
            None => event(&mut tail, "message_stop", |_| {}),
        }
        self.end(step, End::Complete { tail: tail.into() });
    }

    /// A message that came as JSON though a stream was asked for.
    fn whole(&mut self, body: &[u8], clean: bool, step: &mut Step) {
        let message = match message::read(body, &self.context.id) {
            Ok(message) => message,
            Err(_) if !clean => return self.fail(step, Class::Server, "the connection was cut"),
            Err(failure) => return self.end(step, End::Failed(failure)),
        };
        let (out, tail) = late::events(message, &self.context, &mut self.tap);
        step.out.push(out.into());
        step.alive = true;
        self.started = true;
        self.end(step, End::Complete { tail: tail.into() });
    }

    fn fail(&mut self, step: &mut Step, class: Class, why: &str) {
        self.end(step, End::Failed(Failure::new(class, 200, why)));
    }

    fn end(&mut self, step: &mut Step, end: End) {
        self.ended = true;
        step.end = Some(end);
    }
}
