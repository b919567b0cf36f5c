//! A streamed reply: whatever the provider sends becomes the one strict stream that clients bear.

use super::again::Again;
use super::chunk::Chunk;
use super::state::State;
use super::usage;
use crate::error::{Class, Failure, classify_event};
use crate::sse::{Decoder, EVENT_BYTES_MAX, Event, Run};
use crate::wire::{End, Reply, ReplyContext, Step, TRUNCATED, Tap};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;
use std::ops::Range;

const DONE: &[u8] = b"data: [DONE]\n\n";
/// In place of a provider's ping that cannot pass as it is.
const PING: &[u8] = b": ping\n\n";

/// The filter of one streamed reply.
pub(super) struct Stream {
    pub(super) state: State,
    decoder: Decoder,
    shape: Shape,
    /// The last chunk, where the next one may be the same but for its text.
    again: Option<Again>,
    /// The end was given; the rest is swallowed.
    over: bool,
}

/// What the body turned out to be; its first byte that is not blank tells.
enum Shape {
    Unknown,
    Events,
    /// A JSON reply though a stream was asked for; read when it is whole.
    Json(BytesMut),
}

impl Stream {
    pub(super) fn new(context: ReplyContext) -> Self {
        Self {
            state: State::new(context, false),
            decoder: Decoder::new(),
            shape: Shape::Unknown,
            again: None,
            over: false,
        }
    }

    /// Settles the shape; gives the failure of a body that is neither events nor JSON.
    fn look(&mut self, chunk: &Bytes) -> Option<Failure> {
        if !matches!(self.shape, Shape::Unknown) {
            return None;
        }
        // The bytes of a BOM count as blank: it may be cut.
        let blank = |b: &u8| b.is_ascii_whitespace() || matches!(b, 0xef | 0xbb | 0xbf);
        match chunk.iter().find(|b| !blank(b)) {
            None => {}
            Some(b'{' | b'[') => self.shape = Shape::Json(BytesMut::new()),
            Some(b'<') => return Some(invalid("the provider sent markup, not events")),
            Some(_) => self.shape = Shape::Events,
        }
        None
    }

    fn events(&mut self, chunk: Bytes, step: &mut Step) {
        let mut run = Run::of(chunk.clone());
        self.decoder.push(chunk);
        while !self.over {
            match self.decoder.next_event() {
                Ok(Some(event)) => self.event(&event, &mut run, step),
                Ok(None) => break,
                Err(too_long) => self.fail(invalid(&too_long.to_string()), step),
            }
        }
        run.flush(&mut step.out);
    }

    fn event(&mut self, event: &Event, run: &mut Run, step: &mut Step) {
        let name = event.name.as_deref().unwrap_or_default();
        let Some(data) = event.data.as_ref().filter(|_| name != b"ping") else {
            pass_ping(event, run, step);
            return;
        };
        let Ok(text) = std::str::from_utf8(data) else {
            self.again = None;
            self.broken(invalid("the provider sent an event that is not UTF-8"), step);
            return;
        };
        if let Some(again) = &self.again
            && let Some(raw) = event.plain()
            && let Some((said, cut)) = again.said(text)
        {
            self.state.say_again(again, &said);
            pass_cut((&raw, text), cut.as_slice(), run, step);
            return;
        }
        self.again = None;
        match text.trim() {
            // Heartbeats of some hosts.
            "" | "null" => return,
            "[DONE]" => return self.done(step),
            _ if name == b"error" => return self.fail(classify_event(data), step),
            _ => {}
        }
        if let Some(raw) = event.plain()
            && let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(text)
        {
            if self.state.fits(&chunk) {
                self.pass((&raw, text), &chunk, run, step);
                return;
            }
            if self.is_sound_usage(&chunk) {
                self.state.note_usage(chunk.usage.map_or("", |usage| usage.get()));
                self.state.usage_event = Some(raw);
                return;
            }
        }
        self.rewrite(text, run, step);
    }

    /// Passes a chunk as it came, without the members that it must not have.
    fn pass(
        &mut self,
        (raw, text): (&Bytes, &str),
        chunk: &Chunk<'_>,
        run: &mut Run,
        step: &mut Step,
    ) {
        let cuts = self.state.surplus(text, chunk);
        self.again = Again::of(text, chunk, &cuts);
        self.state.pass(chunk);
        pass_cut((raw, text), &cuts, run, step);
    }

    /// The chunk is a usage chunk that the caller, who asked for it, may have as it is.
    fn is_sound_usage(&self, chunk: &Chunk<'_>) -> bool {
        let head = self.state.head.as_ref().is_some_and(|head| {
            head.id == chunk.id && head.created == chunk.created && head.model == chunk.model
        });
        let usage = chunk.usage.map(|usage| usage.get()).unwrap_or_default();
        head && chunk.error.is_none()
            && chunk.object == super::state::CHUNK
            && chunk.choices.is_empty()
            && matches!(usage::for_caller(usage), Some(Cow::Borrowed(_)))
    }

    fn rewrite(&mut self, json: &str, run: &mut Run, step: &mut Step) {
        let mut out = Vec::with_capacity(json.len() + 256);
        out.extend_from_slice(b"data: ");
        match self.state.repair(json, &mut out) {
            Ok(false) => {}
            Ok(true) => {
                // Line ends between tokens would end the data line; in strings they are escaped.
                out.iter_mut().filter(|b| matches!(b, b'\n' | b'\r')).for_each(|b| *b = b' ');
                out.extend_from_slice(b"\n\n");
                run.write(out.into(), &mut step.out);
            }
            Err(failure) => return self.broken(failure, step),
        }
        if let Some(failure) = self.state.failure.take() {
            self.fail(failure, step);
        }
    }

    /// What cannot be read ends the stream in failure, unless every choice has ended before it:
    /// then nothing of the answer is lost. A failure that the provider states always counts.
    fn broken(&mut self, failure: Failure, step: &mut Step) {
        if failure.class != Class::Invalid || !self.state.finished() {
            self.fail(failure, step);
        }
    }

    /// The provider says that it is done. Without a finish_reason it may still have been cut:
    /// hosts that proxy others send the marker whatever happened, and half an answer must not look
    /// like a whole one.
    fn done(&mut self, step: &mut Step) {
        if !self.state.started {
            return self.fail(invalid("the provider's stream holds no answer"), step);
        }
        if self.state.finished() {
            return self.complete(step);
        }
        self.fail(truncated("the provider's stream ended without a finish_reason"), step);
    }

    /// Ends every choice that has not ended.
    fn end_open(&mut self, reason: &str, run: &mut Run, step: &mut Step) {
        let open = self.state.choices.iter().filter(|choice| !choice.finished);
        let open: Vec<u32> = open.map(|choice| choice.index).collect();
        for index in open {
            let end = format!(
                r#"{{"choices":[{{"index":{index},"delta":{{}},"finish_reason":"{reason}"}}]}}"#
            );
            self.rewrite(&end, run, step);
        }
    }

    fn complete(&mut self, step: &mut Step) {
        if self.over {
            return;
        }
        let mut tail = Vec::new();
        if self.state.context.usage_asked {
            match self.state.usage_event.take() {
                Some(event) => tail.extend_from_slice(&event),
                None => {
                    tail.extend_from_slice(b"data: ");
                    self.state.put_head(&mut tail);
                    let usage = self.state.caller_usage();
                    tail.extend_from_slice(b",\"choices\":[],\"usage\":");
                    tail.extend(usage.bytes().map(|b| if b == b'\n' { b' ' } else { b }));
                    tail.extend_from_slice(b"}\n\n");
                }
            }
        }
        tail.extend_from_slice(DONE);
        self.over = true;
        step.end = Some(End::Complete { tail: tail.into() });
    }

    fn fail(&mut self, failure: Failure, step: &mut Step) {
        if !self.over {
            self.over = true;
            step.end = Some(End::Failed(failure));
        }
    }

    /// The end of a JSON reply: its one object goes the way of a chunk.
    fn json_end(&mut self, body: &[u8], step: &mut Step) {
        let Ok(text) = std::str::from_utf8(body) else {
            return self.fail(invalid("the provider's reply is not UTF-8"), step);
        };
        if let Err(failure) = super::whole::check(text) {
            return self.fail(failure, step);
        }
        let mut run = Run::default();
        self.rewrite(text, &mut run, step);
        if !self.over {
            self.end_open("unsaid", &mut run, step);
            self.done(step);
        }
    }

    /// The end of events without `[DONE]`.
    fn events_end(&mut self, clean: bool, step: &mut Step) {
        if let Some(event) = self.decoder.finish() {
            let data = event.data.as_deref().unwrap_or_default();
            // Half an event is the sign of a cut, which is judged below.
            let whole = serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok();
            if whole || data.trim_ascii() == b"[DONE]" {
                let mut run = Run::default();
                self.event(&event, &mut run, step);
                run.flush(&mut step.out);
            }
        }
        if self.over {
            return;
        }
        if self.state.finished() {
            // The finish_reason is the provider's word that the text is whole. What may be
            // missing after it is usage, and that we have counted.
            return self.complete(step);
        }
        let failure = if self.state.started {
            truncated("the provider's stream ended too early")
        } else if clean {
            invalid("the provider's stream ended without an answer")
        } else {
            Failure::new(Class::Server, 200, "the connection broke before the answer began")
        };
        self.fail(failure, step);
    }

    fn report(&mut self, step: &mut Step) {
        step.started |= self.state.started;
        step.alive |= std::mem::take(&mut self.state.alive);
    }
}

impl Reply for Stream {
    fn feed(&mut self, chunk: Bytes, step: &mut Step) {
        if !self.over {
            let failure = self.look(&chunk);
            match (&mut self.shape, failure) {
                (_, Some(failure)) => self.fail(failure, step),
                (Shape::Json(body), None) => {
                    body.extend_from_slice(&chunk);
                    if body.len() > EVENT_BYTES_MAX {
                        self.fail(invalid("the provider's reply is too long"), step);
                    }
                }
                (_, None) => self.events(chunk, step),
            }
        }
        self.report(step);
    }

    fn finish(&mut self, clean: bool, step: &mut Step) {
        if !self.over {
            match std::mem::replace(&mut self.shape, Shape::Events) {
                Shape::Json(body) => self.json_end(&body, step),
                Shape::Unknown | Shape::Events => self.events_end(clean, step),
            }
        }
        self.report(step);
    }

    fn cut(&mut self, step: &mut Step) {
        if !self.over {
            let mut run = Run::default();
            self.end_open("length", &mut run, step);
            run.flush(&mut step.out);
            self.complete(step);
        }
        self.report(step);
    }

    fn tap(&mut self) -> &mut Tap {
        &mut self.state.tap
    }
}

fn invalid(message: &str) -> Failure {
    Failure::new(Class::Invalid, 200, message)
}

/// The answer began and stopped before its end.
fn truncated(message: &str) -> Failure {
    let code = Some(TRUNCATED.to_owned());
    Failure { code, ..Failure::new(Class::Server, 200, message) }
}

/// Passes an event without parts of its data.
fn pass_cut((raw, text): (&Bytes, &str), cuts: &[Range<usize>], run: &mut Run, step: &mut Step) {
    // A plain event ends in its data and two LFs.
    let data = raw.len() - 2 - text.len();
    let mut from = 0;
    for cut in cuts {
        run.pass(&raw.slice(from..data + cut.start), &mut step.out);
        from = data + cut.end;
    }
    run.pass(&raw.slice(from..), &mut step.out);
}

/// Comments pass, pings become comments, and other events without data are never sent on: clients
/// take their silence for JSON.
fn pass_ping(event: &Event, run: &mut Run, step: &mut Step) {
    match event.plain().filter(|raw| event.comment && std::str::from_utf8(raw).is_ok()) {
        Some(comment) => run.pass(&comment, &mut step.out),
        None if event.comment || event.name.as_deref() == Some(b"ping") => {
            run.write(Bytes::from_static(PING), &mut step.out);
        }
        None => {}
    }
}
