//! A response's stream that passes: usage tapped, the end withheld.

use super::super::canon::used;
use super::items::{Head, Status, put_response};
use super::pass::{Response, count};
use super::said::Said;
use crate::chat::raw::{Members, Text, put_name, put_raw, text};
use crate::error::{ApiError, Class, Failure, classify_event};
use crate::sse::{self, Decoder, Run};
use crate::tokens::{Channel, Counter};
use crate::wire::{End, Reply, ReplyContext, Step, TRUNCATED, Tap};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The filter of one reply.
pub(in crate::dialect) fn tap(context: ReplyContext) -> Box<dyn Reply> {
    let counter = Counter::new(context.encoding);
    let tap = Tap { usage: None, finish: None, model: None, counter };
    let decoder = Decoder::new();
    let said = Said::default();
    let (id, sequence) = (None, None);
    Box::new(Passing { context, decoder, tap, said, id, sequence, started: false, ended: false })
}

struct Passing {
    context: ReplyContext,
    decoder: Decoder,
    tap: Tap,
    /// Its items, for the end that a limit makes.
    said: Said,
    /// The response's id, once it is said.
    id: Option<String>,
    /// The last event's number.
    sequence: Option<u64>,
    started: bool,
    ended: bool,
}

#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    sequence_number: Option<u64>,
    #[serde(default)]
    pub output_index: u64,
    #[serde(default)]
    pub content_index: u64,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub delta: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Reply for Passing {
    fn feed(&mut self, chunk: Bytes, step: &mut Step) {
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
        step.started |= self.started;
    }

    fn finish(&mut self, clean: bool, step: &mut Step) {
        if !self.ended
            && let Some(event) = self.decoder.finish()
        {
            let mut run = Run::default();
            self.event(&event, &mut run, step);
            run.flush(&mut step.out);
        }
        if !self.ended {
            if self.started {
                let why = "the provider's stream ended before its answer did";
                let failure = Failure::new(Class::Server, 200, why);
                let code = Some(TRUNCATED.to_owned());
                self.end(step, End::Failed(Failure { code, ..failure }));
            } else if clean {
                self.fail(step, Class::Invalid, "the provider's stream holds no answer");
            } else {
                self.fail(step, Class::Server, "the connection broke before the answer");
            }
        }
        step.started |= self.started;
    }

    fn cut(&mut self, step: &mut Step) {
        if self.ended {
            return;
        }
        let id = self.id.clone().unwrap_or_else(|| super::response_id(&self.context.id));
        let model = self.tap.model.clone().unwrap_or_else(|| self.context.model.to_string());
        let head = Head { id: &id, created: self.context.created, model: &model };
        let usage = used(&mut self.tap, self.context.prompt_tokens);
        let next = self.sequence.map_or(0, |last| last.saturating_add(1));
        let (out, tail) = self.said.cut(head, next, &usage);
        step.out.push(out);
        self.tap.finish = Some("length");
        self.started = true;
        step.started = true;
        self.end(step, End::Complete { tail });
    }

    fn tap(&mut self) -> &mut Tap {
        &mut self.tap
    }

    fn error(&mut self, error: &ApiError, request_id: &str) -> Option<Bytes> {
        // Before anything was said there is no response to fail, so one is made up.
        let Some(id) = self.id.as_deref() else { return Some(super::failed(error, request_id)) };
        let model = self.tap.model.as_deref().unwrap_or(&self.context.model);
        let head = Head { id, created: self.context.created, model };
        let sequence = self.sequence.map_or(0, |last| last.saturating_add(1));
        let mut out = b"event: response.failed\ndata: {\"type\":\"response.failed\"".to_vec();
        put_raw(&mut out, "sequence_number", &sequence.to_string());
        put_name(&mut out, "response");
        let status = Status::Failed(error.code.as_str(), &error.message);
        put_response(&mut out, head, status, &[], None);
        out.extend_from_slice(b"}\n\n");
        Some(out.into())
    }
}

impl Passing {
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
        let Ok(read) = serde_json::from_slice::<Event<'_>>(data) else {
            return self.fail(step, Class::Invalid, "an event of the stream is no JSON object");
        };
        let name = event.name.as_deref().and_then(|name| std::str::from_utf8(name).ok());
        let kind = read.kind.as_deref().or(name).unwrap_or_default();
        self.sequence = read.sequence_number.or(self.sequence);
        let response =
            read.response.and_then(|raw| serde_json::from_str::<Response<'_>>(raw.get()).ok());
        if let Some(response) = &response {
            self.id = response.id.as_deref().map(str::to_owned).or(self.id.take());
            self.tap.model = response.model.as_deref().map(str::to_owned).or(self.tap.model.take());
        }
        match (kind, response) {
            ("response.completed" | "response.incomplete", Some(response)) => {
                self.complete(&response, framed(event, kind, data), step);
            }
            ("response.failed", Some(response)) => {
                let failure = response.failure().unwrap_or_else(|| classify_event(data));
                self.end(step, End::Failed(failure));
            }
            ("error" | "response.failed", _) => {
                let error = read.error.map_or(data.as_ref(), |raw| raw.get().as_bytes());
                self.end(step, End::Failed(classify_event(error)));
            }
            ("", _) if read.error.is_some() => self.end(step, End::Failed(classify_event(data))),
            ("", _) => {}
            (kind, _) => {
                self.said.note(kind, &read);
                self.note(kind, &read, step);
                match plain(event, kind, data) {
                    Some(raw) => run.pass(&raw, &mut step.out),
                    None => run.write(framed(event, kind, data), &mut step.out),
                }
            }
        }
    }

    /// What an event shows of the answer.
    fn note(&mut self, kind: &str, read: &Event<'_>, step: &mut Step) {
        let channel = match kind {
            "response.output_text.delta" | "response.refusal.delta" => Channel::Content,
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                Channel::Reasoning
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                Channel::Tool(0)
            }
            "response.output_item.added" => {
                let item = read.item.and_then(|item| Members::of(item.get()));
                let kind = item.as_ref().and_then(|item| item.text("type"));
                // Messages and reasoning begin with their first piece, anything else here.
                let call = !matches!(kind.as_deref(), Some("message" | "reasoning") | None);
                self.started |= call;
                step.alive |= call;
                return;
            }
            _ => return,
        };
        self.started = true;
        step.alive = true;
        if let Some(text) = read.delta.and_then(text) {
            self.tap.counter.push(0, channel, &text);
        }
    }

    fn complete(&mut self, response: &Response<'_>, tail: Bytes, step: &mut Step) {
        if let Some(output) = response.output.filter(|_| !self.tap.counter.any()) {
            count(output, &mut self.tap.counter);
        }
        self.tap.usage = response.usage();
        self.tap.finish = Some(response.finish());
        self.started = true;
        self.end(step, End::Complete { tail });
    }

    fn fail(&mut self, step: &mut Step, class: Class, why: &str) {
        self.end(step, End::Failed(Failure::new(class, 200, why)));
    }

    fn end(&mut self, step: &mut Step, end: End) {
        self.ended = true;
        step.end = Some(end);
    }
}

/// An event's own bytes, where they are nothing but its name and its data, each on one line.
fn plain(event: &sse::Event, kind: &str, data: &Bytes) -> Option<Bytes> {
    let raw = &event.raw;
    let lead = raw.iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
    let rest = raw.get(lead..)?.strip_prefix(b"event:")?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let rest = rest.strip_prefix(kind.as_bytes())?.strip_prefix(b"\ndata:")?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_suffix(b"\n\n")?;
    (rest.len() == data.len()).then(|| raw.slice(lead..))
}

/// The event with its name, on lines of its own.
fn framed(event: &sse::Event, kind: &str, data: &Bytes) -> Bytes {
    if let Some(raw) = plain(event, kind, data) {
        return raw;
    }
    let mut out = Vec::with_capacity(data.len() + kind.len() + 32);
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    // Line ends between tokens would end the data line; in strings they are escaped.
    out.extend(data.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }));
    out.extend_from_slice(b"\n\n");
    out.into()
}
