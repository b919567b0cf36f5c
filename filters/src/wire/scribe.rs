//! What a provider says, written down for the caller: as strict chunks while it speaks, or as one
//! completion at the end. The wires that translate read their provider once, for both.

use super::{End, ReplyContext, Step, TRUNCATED, Tap, Whole};
use crate::chat::raw::{compact, put_member, put_text, text};
use crate::chat::reply::{self, Call, Chunks, Completion, DONE, ToolStart};
use crate::error::{Class, Failure};
use crate::tokens::{Channel, Counter};
use crate::usage::Usage;
use bytes::Bytes;
use serde_json::value::RawValue;

/// As many choices as OpenAI lets a caller ask for; what is said of further ones is left out.
const CHOICES_MAX: usize = 128;

/// The record of one reply.
#[derive(Debug)]
pub(super) struct Scribe {
    pub context: ReplyContext,
    pub tap: Tap,
    /// The provider's own id of the reply, used when it comes before the first chunk is out.
    pub id: Option<String>,
    /// The provider's usage so far.
    pub usage: Option<Usage>,
    /// One body at the end instead of chunks.
    whole: bool,
    chunks: Option<Chunks>,
    choices: Vec<Choice>,
    /// Written and not handed on yet.
    out: Vec<Bytes>,
    end: Option<End>,
    alive: bool,
    started: bool,
    ended: bool,
    settled: bool,
}

#[derive(Debug, Default)]
struct Choice {
    /// Its first chunk is out.
    open: bool,
    tools: u32,
    /// Ids of calls that are out: none is given twice.
    ids: Vec<String>,
    thoughts: u32,
    pictures: u32,
    finish: Option<&'static str>,
    /// For a whole reply.
    completion: Completion,
}

impl Scribe {
    /// For chunks.
    pub fn stream(context: ReplyContext) -> Self {
        let counter = Counter::new(context.encoding);
        Self {
            context,
            tap: Tap { usage: None, finish: None, model: None, counter },
            id: None,
            usage: None,
            whole: false,
            chunks: None,
            choices: Vec::new(),
            out: Vec::new(),
            end: None,
            alive: false,
            started: false,
            ended: false,
            settled: false,
        }
    }

    /// For one body at the end.
    pub fn whole(context: ReplyContext) -> Self {
        Self { whole: true, ..Self::stream(context) }
    }

    /// What was written since the last time.
    pub fn hand_over(&mut self, step: &mut Step) {
        step.out.append(&mut self.out);
        step.alive |= std::mem::take(&mut self.alive);
        step.started |= self.started;
        if let Some(end) = self.end.take() {
            step.end = Some(end);
        }
    }

    /// Until the reply is over the provider's number of output tokens may lag behind what passed.
    pub fn tap(&mut self) -> &mut Tap {
        if !self.settled {
            self.tap.usage = self.usage_so_far();
        }
        &mut self.tap
    }

    fn usage_so_far(&mut self) -> Option<Usage> {
        let usage = self.usage?;
        let output = self.tap.counter.total().max(usage.output);
        let reasoning = self.tap.counter.reasoning().max(usage.reasoning);
        Some(Usage { output, reasoning, ..usage }.normalised())
    }

    /// Nothing may follow.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Tool calls of a choice so far.
    pub fn tools(&self, choice: usize) -> u32 {
        self.choices.get(choice).map_or(0, |choice| choice.tools)
    }

    /// A choice has begun, and those before it, though they say nothing yet.
    pub fn open(&mut self, choice: usize) {
        let Some(last) = self.choice(choice).filter(|_| !self.whole) else { return };
        if self.choices[choice].open {
            return;
        }
        for (at, number) in (0..=last).enumerate() {
            if !std::mem::replace(&mut self.choices[at].open, true) {
                let chunk = self.chunks(number).role();
                self.out.push(chunk);
            }
        }
    }

    /// Text of the answer or of its reasoning, as the provider wrote the JSON string.
    pub fn say(&mut self, choice: usize, channel: Channel, raw: &RawValue) {
        // An empty string says nothing; what is no string is no text.
        if raw.get().len() <= 2 || !raw.get().starts_with('"') || self.choice(choice).is_none() {
            return;
        }
        let said = text(raw);
        // Half of a surrogate pair is no text, but it was generated.
        let plain = said.as_deref().unwrap_or(raw.get());
        let number = u32::try_from(choice).unwrap_or(u32::MAX);
        self.tap.counter.push(number, channel, plain);
        if self.whole {
            let completion = &mut self.choices[choice].completion;
            match channel {
                Channel::Reasoning => completion.reasoning.push_str(plain),
                _ => completion.content.get_or_insert_default().push_str(plain),
            }
            return;
        }
        let name = if channel == Channel::Reasoning { "reasoning_content" } else { "content" };
        self.open(choice);
        let chunk = self.chunks(number).raw(name, raw.get());
        self.emit(chunk);
    }

    /// An entry of `thinking_blocks` as a JSON object, for the caller to give back.
    pub fn thought(&mut self, choice: usize, entry: &str) {
        self.list(choice, "thinking_blocks", entry);
    }

    /// A picture of the answer's in base64.
    pub fn picture(&mut self, choice: usize, media_type: &str, data: &str) {
        let mut entry = Vec::with_capacity(data.len() + 96);
        entry.extend_from_slice(br#"{"type":"image_url","image_url":{"#);
        put_member(&mut entry, "url", &format!("data:{media_type};base64,{data}"));
        entry.extend_from_slice(b"}}");
        self.list(choice, "images", &String::from_utf8_lossy(&entry));
    }

    fn list(&mut self, choice: usize, name: &str, entry: &str) {
        let Some(number) = self.choice(choice) else { return };
        let Choice { completion, pictures, thoughts, .. } = &mut self.choices[choice];
        let (list, count) = match name {
            "images" => (&mut completion.images, pictures),
            _ => (&mut completion.thinking_blocks, thoughts),
        };
        if self.whole {
            return list.push(entry.to_owned());
        }
        let index = std::mem::replace(count, *count + 1);
        self.open(choice);
        let body = entry.trim_start_matches('{');
        // The index is what clients merge lists of objects by.
        let raw = format!("[{{\"index\":{index},{body}]");
        let chunk = self.chunks(number).raw(name, &raw);
        self.emit(chunk);
    }

    /// A tool call begins; gives its number. Without an id of the provider's one is made, since the
    /// caller's next request must name it.
    pub fn call(&mut self, choice: usize, id: Option<&str>, name: &str) -> u32 {
        let Some(number) = self.choice(choice) else { return 0 };
        if name.is_empty() {
            self.fail(Class::Invalid, "a tool call has no name");
            return 0;
        }
        let index = self.choices[choice].tools;
        self.choices[choice].tools += 1;
        self.tap.counter.push(number, Channel::Tool(index), name);
        let given = |id: &str| self.choices[choice].ids.iter().any(|one| one == id);
        let id = match id.filter(|id| !id.is_empty() && !given(id)) {
            Some(id) => id.to_owned(),
            None => self.made_id(number, index),
        };
        self.choices[choice].ids.push(id.clone());
        if self.whole {
            let call = Call { id, name: name.to_owned(), arguments: String::new() };
            self.choices[choice].completion.tool_calls.push(call);
            return index;
        }
        self.open(choice);
        let chunk = self.chunks(number).tool(ToolStart { index, id: &id, name });
        self.emit(chunk);
        index
    }

    /// An id for a call that has none, never given twice by this gateway.
    pub fn made_id(&self, choice: u32, index: u32) -> String {
        let reply = self.context.id.trim_start_matches("chatcmpl-");
        match choice {
            0 => format!("call_{reply}_{index}"),
            _ => format!("call_{reply}_{choice}_{index}"),
        }
    }

    /// A piece of a call's arguments.
    pub fn arguments(&mut self, choice: usize, index: u32, piece: &str) {
        let Some(number) = self.choice(choice).filter(|_| !piece.is_empty()) else { return };
        self.tap.counter.push(number, Channel::Tool(index), piece);
        if self.whole {
            let calls = &mut self.choices[choice].completion.tool_calls;
            if let Some(call) = calls.get_mut(index as usize) {
                call.arguments.push_str(piece);
            }
            return;
        }
        let mut raw = Vec::with_capacity(piece.len() + 16);
        put_text(&mut raw, piece);
        let chunk = self.chunks(number).arguments(index, &String::from_utf8_lossy(&raw));
        self.emit(chunk);
    }

    /// A choice's finish reason. It goes out at the end: an error may still come before that.
    pub fn finish(&mut self, choice: usize, reason: &'static str) {
        if self.choice(choice).is_some() {
            self.choices[choice].finish = Some(reason);
        }
    }

    /// The reply is whole. Every choice must have its finish reason.
    pub fn complete(&mut self) {
        if self.ended {
            return;
        }
        if self.choices.is_empty() || self.choices.iter().any(|choice| choice.finish.is_none()) {
            return self.truncated();
        }
        self.settled = true;
        self.tap.finish = self.choices[0].finish;
        self.tap.usage = self.usage;
        self.started = true;
        if self.whole {
            return self.end(End::Complete { tail: Bytes::new() });
        }
        let usage = self.final_usage();
        for at in 0..self.choices.len() {
            self.open(at);
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            let reason = self.choices[at].finish.unwrap_or_default();
            let chunk = self.chunks(number).finish(reason);
            self.emit(chunk);
        }
        let asked = self.context.usage_asked;
        let chunks = self.chunks(0);
        let mut tail = if asked { Vec::from(chunks.usage(&usage)) } else { Vec::new() };
        tail.extend_from_slice(DONE.as_bytes());
        self.end(End::Complete { tail: tail.into() });
    }

    /// The caller gets no more of any choice: all end here by `length`.
    pub fn shorten(&mut self) {
        self.open(0);
        self.usage = self.usage_so_far();
        for choice in &mut self.choices {
            choice.finish.get_or_insert("length");
        }
        self.complete();
    }

    /// The provider's stream is over, cleanly or not, and its last word has not come.
    pub fn cut(&mut self, clean: bool) {
        match clean {
            _ if self.ended => {}
            _ if self.started => self.truncated(),
            true => self.fail(Class::Invalid, "the provider's reply holds no answer"),
            false => self.fail(Class::Server, "the connection broke before the answer"),
        }
    }

    fn truncated(&mut self) {
        let why = "the provider's stream ended before its answer did";
        let failure = Failure::new(Class::Server, 200, why);
        self.failed(Failure { code: Some(TRUNCATED.to_owned()), ..failure });
    }

    /// A failure of our own finding.
    pub fn fail(&mut self, class: Class, why: &str) {
        self.failed(Failure::new(class, 200, why));
    }

    /// The provider's failure.
    pub fn failed(&mut self, failure: Failure) {
        if !self.ended {
            self.end(End::Failed(failure));
        }
    }

    /// A comment: a sign of life, no part of the answer.
    pub fn comment(&mut self, word: &str) {
        self.out.push(Bytes::from(format!(": {word}\n\n")));
    }

    /// The caller's body, after [`Self::complete`].
    ///
    /// # Errors
    /// The failure that the reply was.
    pub fn into_whole(mut self) -> Result<Whole, Failure> {
        match self.end.take() {
            Some(End::Complete { .. }) => {}
            Some(End::Failed(failure)) => return Err(failure),
            None => return Err(Failure::new(Class::Invalid, 200, "the reply holds no answer")),
        }
        let usage = self.final_usage();
        let finished = self.choices.into_iter().map(|choice| {
            let finish = choice.finish.unwrap_or("stop");
            Completion { finish, ..choice.completion }
        });
        let choices: Vec<Completion> = finished.collect();
        let id = self.id.as_deref().unwrap_or(&self.context.id);
        let model = self.tap.model.as_deref().unwrap_or(&self.context.model);
        let body = reply::body(id, self.context.created, model, &choices, &usage);
        Ok(Whole { body, tap: self.tap })
    }

    /// The provider's numbers, or ours where it gave none.
    fn final_usage(&mut self) -> Usage {
        let counter = &mut self.tap.counter;
        self.usage.unwrap_or_else(|| Usage {
            input: self.context.prompt_tokens,
            output: counter.total(),
            reasoning: counter.reasoning(),
            ..Usage::default()
        })
    }

    /// Makes a choice known, and those before it; `None` for one too many.
    fn choice(&mut self, at: usize) -> Option<u32> {
        if at >= CHOICES_MAX || self.ended {
            return None;
        }
        if self.choices.len() <= at {
            self.choices.resize_with(at + 1, Choice::default);
        }
        u32::try_from(at).ok()
    }

    fn chunks(&mut self, choice: u32) -> &Chunks {
        let context = &self.context;
        let chunks = self.chunks.get_or_insert_with(|| {
            let id = self.id.as_deref().unwrap_or(&context.id);
            let model = self.tap.model.as_deref().unwrap_or(&context.model);
            Chunks::new(id, context.created, model, context.usage_asked)
        });
        chunks.turn_to(choice);
        chunks
    }

    fn emit(&mut self, chunk: Bytes) {
        self.out.push(chunk);
        self.alive = true;
        self.started = true;
    }

    fn end(&mut self, end: End) {
        self.ended = true;
        self.end = Some(end);
    }
}

/// A call's arguments from a provider that sends an object: compact, digits kept; what is none is
/// an empty one.
pub(super) fn object_text(raw: Option<&RawValue>) -> String {
    match raw.map(RawValue::get) {
        Some(object) if object.starts_with('{') => compact(object),
        _ => "{}".to_owned(),
    }
}
