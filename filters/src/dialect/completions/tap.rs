//! A completion's stream that passes: usage tapped, the end withheld.

use super::pass::{Completion, word};
use crate::error::{Class, Failure, classify_event};
use crate::sse::{self, Decoder, Run};
use crate::tokens::Counter;
use crate::wire::{End, Reply, ReplyContext, Step, TRUNCATED, Tap};
use bytes::Bytes;

const DONE: &[u8] = b"data: [DONE]\n\n";

/// The filter of one reply.
pub(in crate::dialect) fn tap(context: ReplyContext) -> Box<dyn Reply> {
    let counter = Counter::new(context.encoding);
    let tap = Tap { usage: None, finish: None, model: None, counter };
    let decoder = Decoder::new();
    let tail = Vec::new();
    let head = None;
    Box::new(Passing { context, decoder, tap, head, tail, started: false, ended: false })
}

struct Passing {
    context: ReplyContext,
    decoder: Decoder,
    tap: Tap,
    /// Id and time of the first chunk.
    head: Option<(String, u64)>,
    /// The usage chunk that the caller asked for.
    tail: Vec<u8>,
    started: bool,
    ended: bool,
}

impl Reply for Passing {
    fn feed(&mut self, chunk: Bytes, step: &mut Step) {
        let mut run = Run::of(chunk.clone());
        self.decoder.push(chunk);
        while !self.ended {
            match self.decoder.next_event() {
                Ok(Some(event)) => self.event(&event, &mut run, step),
                Ok(None) => break,
                Err(error) => self.fail(step, &error.to_string()),
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
        if !self.ended && self.tap.finish.is_some() {
            self.complete(step);
        }
        if !self.ended {
            let why = "the provider's stream ended before its answer did";
            let class = if clean && !self.started { Class::Invalid } else { Class::Server };
            let code = self.started.then(|| TRUNCATED.to_owned());
            self.ended = true;
            step.end = Some(End::Failed(Failure { code, ..Failure::new(class, 200, why) }));
        }
        step.started |= self.started;
    }

    fn cut(&mut self, step: &mut Step) {
        if !self.ended {
            if self.tap.finish.is_none() {
                self.tap.finish = Some("length");
                let made = || (super::completion_id(&self.context.id), self.context.created);
                let (id, created) = self.head.clone().unwrap_or_else(made);
                let model = self.tap.model.as_deref().unwrap_or(&self.context.model);
                step.out.push(super::speak::ending(&id, created, model, "length"));
            }
            self.complete(step);
            self.started = true;
        }
        step.started |= self.started;
    }

    fn tap(&mut self) -> &mut Tap {
        &mut self.tap
    }
}

impl Passing {
    fn event(&mut self, event: &sse::Event, run: &mut Run, step: &mut Step) {
        let Some(data) = event.data.as_ref() else {
            if let Some(raw) = event.plain() {
                run.pass(&raw, &mut step.out);
            }
            return;
        };
        match data.trim_ascii() {
            b"" | b"null" => return,
            b"[DONE]" if self.tap.finish.is_some() => return self.complete(step),
            b"[DONE]" => return self.fail(step, "the stream ended without a finish reason"),
            _ => {}
        }
        let Ok(chunk) = serde_json::from_slice::<Completion<'_>>(data) else {
            return self.fail(step, "an event of the stream is no JSON object");
        };
        if chunk.error.is_some() {
            self.ended = true;
            step.end = Some(End::Failed(classify_event(data)));
            return;
        }
        if let Some(usage) = chunk.usage() {
            self.tap.usage = Some(usage);
        }
        let raw = event.plain().unwrap_or_else(|| framed(data));
        if chunk.choices.as_ref().is_none_or(Vec::is_empty) {
            if !self.context.strip_usage && self.context.usage_asked {
                self.tail = raw.into();
            }
            return;
        }
        chunk.count(&mut self.tap.counter);
        for choice in chunk.choices.iter().flatten() {
            self.started |= choice.text.as_deref().is_some_and(|text| !text.is_empty());
            if let Some(finish) = choice.finish_reason.as_deref() {
                self.tap.finish = Some(word(finish));
                self.started = true;
            }
        }
        if self.head.is_none()
            && let (Some(id), Some(created)) = (&chunk.id, chunk.created)
        {
            self.head = Some((id.to_string(), created));
        }
        if let Some(model) = chunk.model.filter(|_| self.tap.model.is_none()) {
            self.tap.model = Some(model.0.into_owned());
        }
        step.alive = true;
        run.pass(&raw, &mut step.out);
    }

    fn complete(&mut self, step: &mut Step) {
        let mut tail = std::mem::take(&mut self.tail);
        tail.extend_from_slice(DONE);
        self.ended = true;
        step.end = Some(End::Complete { tail: tail.into() });
    }

    fn fail(&mut self, step: &mut Step, why: &str) {
        self.ended = true;
        step.end = Some(End::Failed(Failure::new(Class::Invalid, 200, why)));
    }
}

fn framed(data: &[u8]) -> Bytes {
    let mut out = b"data: ".to_vec();
    // Line ends between tokens would end the data line; in strings they are escaped.
    out.extend(data.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }));
    out.extend_from_slice(b"\n\n");
    out.into()
}
