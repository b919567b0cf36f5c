//! What Cohere answers: events from `message-start` to `message-end`, or one message.

use crate::chat::raw::Text;
use crate::error::{Class, Failure, classify_event};
use crate::tokens::Channel;
use crate::usage::Usage;
use crate::wire::listen::Reader;
use crate::wire::scribe::Scribe;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One reply as far as it was heard.
#[derive(Debug, Default)]
pub(super) struct Speech {
    /// The calls that are open: the provider's index, ours, and whether arguments came.
    open: Vec<(u64, u32, bool)>,
}

/// An event, or (without a type) a whole reply.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    /// An object in a whole reply; an error's words are a string.
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    message: Option<Piece<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A piece of a message: of each kind one.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_plan: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Usages {
    billed_units: Option<Tokens>,
    tokens: Option<Tokens>,
    cached_tokens: Option<f64>,
}

/// The documentation has them as doubles.
#[derive(Clone, Copy, Deserialize)]
struct Tokens {
    input_tokens: Option<f64>,
    output_tokens: Option<f64>,
}

impl Reader for Speech {
    fn object(&mut self, name: Option<&str>, data: &[u8], scribe: &mut Scribe) {
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            return scribe.fail(Class::Invalid, "an event of the reply cannot be read");
        };
        let id = event.id.as_ref().filter(|id| !id.is_empty());
        let kind = event.kind.as_deref().or(name).unwrap_or_default();
        if event.error.is_some() || kind == "error" {
            return scribe.failed(classify_event(data));
        }
        match kind {
            "" => whole(&event, data, scribe),
            "message-start" => scribe.id = id.map(|id| id.0.clone().into_owned()),
            "message-end" => self.end(&event, data, scribe),
            "tool-call-end" => self.close_call(event.index.unwrap_or_default(), scribe),
            _ => self.piece(kind, &event, scribe),
        }
    }
}

impl Speech {
    fn piece(&mut self, kind: &str, event: &Event<'_>, scribe: &mut Scribe) {
        let Some(piece) = event.delta.as_ref().and_then(|delta| delta.message.as_ref()) else {
            return;
        };
        match kind {
            "content-start" | "content-delta" => {
                if let Some(content) = read::<Content<'_>>(piece.content) {
                    say(&content, scribe);
                }
            }
            "tool-plan-delta" => {
                if let Some(plan) = piece.tool_plan {
                    scribe.say(0, Channel::Reasoning, plan);
                }
            }
            "tool-call-start" | "tool-call-delta" => {
                if let Some(call) = read::<Call<'_>>(piece.tool_calls) {
                    self.call(kind, event.index.unwrap_or_default(), &call, scribe);
                }
            }
            // Citations, debug events and what is not known yet.
            _ => {}
        }
    }

    fn call(&mut self, kind: &str, index: u64, call: &Call<'_>, scribe: &mut Scribe) {
        let Some(function) = &call.function else { return };
        let name = function.name.as_deref().filter(|name| !name.is_empty());
        if let Some(name) = name.filter(|_| kind == "tool-call-start") {
            self.close_call(index, scribe);
            let number = scribe.call(0, call.id.as_deref(), name);
            self.open.push((index, number, false));
        }
        let arguments = function.arguments.as_deref().filter(|text| !text.is_empty());
        let open = self.open.iter_mut().find(|(n, ..)| *n == index);
        if let (Some(arguments), Some((_, number, any))) = (arguments, open) {
            *any = true;
            scribe.arguments(0, *number, arguments);
        }
    }

    fn close_call(&mut self, index: u64, scribe: &mut Scribe) {
        if let Some(at) = self.open.iter().position(|(n, ..)| *n == index) {
            let (_, number, any) = self.open.swap_remove(at);
            if !any {
                scribe.arguments(0, number, "{}");
            }
        }
    }

    fn end(&mut self, event: &Event<'_>, data: &[u8], scribe: &mut Scribe) {
        while let Some((index, ..)) = self.open.first().copied() {
            self.close_call(index, scribe);
        }
        let Some(delta) = &event.delta else { return scribe.cut(true) };
        if delta.error.is_some() {
            return scribe.failed(classify_event(data));
        }
        scribe.usage = read::<Usages>(delta.usage).and_then(|usage| usage.of());
        finish(delta.finish_reason.as_deref(), scribe);
    }
}

/// A whole message has lists where events have one piece.
fn whole(event: &Event<'_>, data: &[u8], scribe: &mut Scribe) {
    let message = event.message.filter(|raw| raw.get().starts_with('{'));
    let Some(piece) = read::<Piece<'_>>(message) else {
        return match event.message {
            Some(_) => scribe.failed(classify_event(data)),
            None => scribe.fail(Class::Invalid, "the reply has no message"),
        };
    };
    scribe.id = event.id.as_ref().filter(|id| !id.is_empty()).map(|id| id.0.clone().into_owned());
    scribe.usage = read::<Usages>(event.usage).and_then(|usage| usage.of());
    scribe.open(0);
    if let Some(plan) = piece.tool_plan {
        scribe.say(0, Channel::Reasoning, plan);
    }
    for content in read::<Vec<Content<'_>>>(piece.content).unwrap_or_default() {
        say(&content, scribe);
    }
    for call in read::<Vec<Call<'_>>>(piece.tool_calls).unwrap_or_default() {
        let Some(function) = &call.function else { continue };
        let number = scribe.call(0, call.id.as_deref(), function.name.as_deref().unwrap_or("_"));
        let arguments = function.arguments.as_deref().filter(|text| !text.is_empty());
        scribe.arguments(0, number, arguments.unwrap_or("{}"));
    }
    finish(event.finish_reason.as_deref(), scribe);
}

fn say(content: &Content<'_>, scribe: &mut Scribe) {
    if let Some(thinking) = content.thinking {
        scribe.say(0, Channel::Reasoning, thinking);
    }
    if let Some(text) = content.text {
        scribe.say(0, Channel::Content, text);
    }
}

fn finish(reason: Option<&str>, scribe: &mut Scribe) {
    let failed = |class, status, why: &str| Failure::new(class, status, why);
    let finish = match reason {
        Some("ERROR") => {
            return scribe.failed(failed(Class::Server, 500, "the provider failed in its answer"));
        }
        Some("TIMEOUT") => {
            return scribe.failed(failed(Class::Timeout, 504, "the provider timed out"));
        }
        Some("MAX_TOKENS" | "ERROR_LIMIT") => "length",
        Some("ERROR_TOXIC") => "content_filter",
        // COMPLETE, STOP_SEQUENCE, TOOL_CALL
        _ if scribe.tools(0) > 0 => "tool_calls",
        _ => "stop",
    };
    scribe.open(0);
    scribe.finish(0, finish);
    scribe.complete();
}

impl Usages {
    /// What is charged, where that is said: it leaves out what the provider adds to a prompt.
    fn of(&self) -> Option<Usage> {
        // A float to an integer saturates, and NaN is 0.
        let whole = |number: Option<f64>| number.unwrap_or_default() as u64;
        let said = |tokens: &Tokens| tokens.input_tokens.or(tokens.output_tokens).is_some();
        let billed = self.billed_units.filter(said).or(self.tokens.filter(said))?;
        let cached = whole(self.cached_tokens);
        let (input, output) = (whole(billed.input_tokens), whole(billed.output_tokens));
        Some(Usage::from_openai(input, cached, 0, output, 0))
    }
}

fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}
