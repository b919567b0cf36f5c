//! What a reply has said so far: who answers, each choice's progress, usage, text to count.

use super::again::Again;
use super::members::{Members, put_member};
use super::{chunk, usage};
use crate::error::Failure;
use crate::tokens::{Channel, Counter};
use crate::wire::{ReplyContext, Tap};
use bytes::Bytes;

pub(super) const CHUNK: &str = "chat.completion.chunk";
pub(super) const COMPLETION: &str = "chat.completion";

/// The three members that must not change within a stream.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
}

/// One choice's progress.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) index: u32,
    /// Its first delta, with the role, has left.
    pub(super) role: bool,
    /// It has text.
    pub(super) text: bool,
    /// It called by the old `function_call`.
    pub(super) legacy: bool,
    pub(super) calls: Vec<Call>,
    /// Its one finish_reason has left.
    pub(super) finished: bool,
}

/// One tool call's progress.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The provider's index; none or a shared one on some wires.
    pub(super) index: Option<u64>,
    /// The provider's id.
    pub(super) given: String,
    /// The id that the caller sees.
    pub(super) id: String,
    pub(super) name: String,
    /// The caller's index, once the first fragment has left: not before the name is known.
    pub(super) number: Option<u32>,
    /// Arguments that came before the name.
    pub(super) held: String,
    /// Its arguments are blank so far.
    pub(super) blank: bool,
    /// `type: "custom"`, whose input is free text.
    pub(super) custom: bool,
}

/// Everything known of one reply.
#[derive(Debug)]
pub(super) struct State {
    pub(super) context: ReplyContext,
    pub(super) tap: Tap,
    /// A JSON reply, not a stream.
    pub(super) whole: bool,
    pub(super) head: Option<Head>,
    pub(super) choices: Vec<Choice>,
    /// The provider's last usage object.
    pub(super) usage: Option<String>,
    /// The event it came in, where the caller may have that event as it is.
    pub(super) usage_event: Option<Bytes>,
    /// The reply ends here, in failure.
    pub(super) failure: Option<Failure>,
    /// Content, reasoning, a refusal, a tool call or an end has been seen.
    pub(super) started: bool,
    /// Something generated has come since this was last cleared.
    pub(super) alive: bool,
}

impl State {
    pub(super) fn new(context: ReplyContext, whole: bool) -> Self {
        let counter = Counter::new(context.encoding);
        Self {
            context,
            tap: Tap { usage: None, finish: None, model: None, counter },
            whole,
            head: None,
            choices: Vec::new(),
            usage: None,
            usage_event: None,
            failure: None,
            started: false,
            alive: false,
        }
    }

    /// The choice of this index, and where it stands.
    pub(super) fn choice(&self, index: u32) -> Option<&Choice> {
        self.choices.iter().find(|choice| choice.index == index)
    }

    pub(super) fn choice_mut(&mut self, index: u32) -> &mut Choice {
        let at = self.choices.iter().position(|choice| choice.index == index);
        let at = at.unwrap_or_else(|| {
            self.choices.push(Choice { index, ..Choice::default() });
            self.choices.len() - 1
        });
        &mut self.choices[at]
    }

    /// Every choice has its finish_reason: the answer is whole, whatever follows.
    pub(super) fn finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.finished)
    }

    /// Generated text that passes.
    pub(super) fn say(&mut self, choice: u32, channel: Channel, text: &str) {
        if !text.is_empty() {
            self.tap.counter.push(choice, channel, text);
            self.started = true;
            self.alive = true;
        }
    }

    /// A choice has ended.
    pub(super) fn end_choice(&mut self, index: u32, finish: &'static str) {
        self.choice_mut(index).finished = true;
        self.tap.finish = Some(finish);
        self.started = true;
    }

    /// The first real chunk says who answers.
    pub(super) fn adopt(&mut self, id: &str, created: u64, model: &str) {
        if self.head.is_none() {
            self.tap.model = Some(model.to_owned());
            self.head = Some(Head { id: id.to_owned(), created, model: model.to_owned() });
        }
    }

    /// The same from a chunk that may lack any of it.
    pub(super) fn adopt_from(&mut self, members: &Members<'_>) {
        if self.head.is_some() {
            return;
        }
        let text = |name| members.text(name).filter(|text| !text.is_empty());
        let model = text("model");
        // Some write it as a string or with a fraction.
        let created = members.get("created").map(|v| v.get().trim_matches('"'));
        let created = created.and_then(|v| v.split('.').next()?.parse().ok());
        let head = Head {
            id: text("id").map_or_else(|| self.context.id.clone(), Into::into),
            created: created.filter(|c| *c > 0).unwrap_or(self.context.created),
            model: model.as_deref().unwrap_or(&self.context.model).to_owned(),
        };
        self.tap.model = model.map(Into::into);
        self.head = Some(head);
    }

    /// An object's opening, up to `model`.
    pub(super) fn put_head(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let Some(head) = &self.head else { return };
        put_member("id", &head.id, out);
        put_member("object", if self.whole { COMPLETION } else { CHUNK }, out);
        out.extend_from_slice(format!(",\"created\":{}", head.created).as_bytes());
        put_member("model", &head.model, out);
    }

    /// Takes note of usage: the last value is the truth, never a sum.
    pub(super) fn note_usage(&mut self, json: &str) {
        if let Some(read) = usage::read(json) {
            self.tap.usage = Some(read);
            self.usage = Some(json.to_owned());
            self.usage_event = None;
        }
    }

    /// The same for Groq's own place, which counts where no other word on usage has come.
    pub(super) fn note_groq(&mut self, json: &str) {
        let usage = Members::read(json).and_then(|groq| groq.get("usage"));
        if let Some(usage) = usage.filter(|_| self.usage.is_none()) {
            self.note_usage(usage.get());
        }
    }

    /// The usage object for the caller: the provider's last word, or what we counted.
    pub(super) fn caller_usage(&mut self) -> String {
        if let Some(told) = self.usage.as_deref().and_then(usage::for_caller) {
            return told.into_owned();
        }
        usage::made(self.context.prompt_tokens, self.tap.counter.total())
    }

    /// Takes note of a delta or message that leaves as it came.
    pub(super) fn pass_said(&mut self, index: u32, said: &chunk::Said<'_>) {
        self.choice_mut(index).role = true;
        if let Some(Some(content)) = &said.content {
            self.choice_mut(index).text |= !content.0.is_empty();
            self.say(index, Channel::Content, &content.0);
        }
        if let Some(reasoning) = &said.reasoning_content {
            self.say(index, Channel::Reasoning, &reasoning.0);
        }
        if let Some(refusal) = &said.refusal {
            self.say(index, Channel::Refusal, &refusal.0);
        }
        if let Some(function) = &said.function_call {
            self.choice_mut(index).legacy = true;
            self.pass_function(index, 0, function);
        }
        let calls = said.tool_calls.iter().flat_map(chunk::Few::iter);
        for (place, call) in calls.enumerate() {
            let number = call.index.unwrap_or(u32::try_from(place).unwrap_or(u32::MAX));
            self.pass_call(index, number, call);
        }
    }

    /// Takes note of a chunk that is the one before but for its text.
    pub(super) fn say_again(&mut self, again: &Again, text: &str) {
        let choice = self.choice_mut(again.index);
        match again.channel {
            Channel::Content => choice.text |= !text.is_empty(),
            Channel::Tool(number) => {
                let mut calls = choice.calls.iter_mut().rev();
                if let Some(call) = calls.find(|call| call.number == Some(number)) {
                    call.blank &= text.trim().is_empty();
                }
            }
            _ => {}
        }
        self.say(again.index, again.channel, text);
    }

    fn pass_call(&mut self, index: u32, number: u32, call: &chunk::Call<'_>) {
        let calls = &mut self.choice_mut(index).calls;
        let known = calls.iter().rposition(|known| known.number == Some(number));
        let at = known.unwrap_or_else(|| {
            let id = call.id.unwrap_or_default().to_owned();
            let call = Call {
                index: Some(number.into()),
                given: id.clone(),
                id,
                number: Some(number),
                blank: true,
                ..Call::default()
            };
            calls.push(call);
            calls.len() - 1
        });
        let Some(function) = &call.function else { return };
        let arguments = function.arguments.as_ref().map_or("", |a| &a.0);
        calls[at].blank &= arguments.trim().is_empty();
        self.pass_function(index, number, function);
    }

    fn pass_function(&mut self, index: u32, number: u32, function: &chunk::Function<'_>) {
        for text in [&function.name, &function.arguments].into_iter().flatten() {
            self.say(index, Channel::Tool(number), &text.0);
        }
    }
}
