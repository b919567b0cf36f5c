//! What DashScope answers: frames of increments, as was asked for; or one with the whole message.

use crate::chat::raw::{Text, lenient, text};
use crate::error::{Class, classify_event};
use crate::tokens::Channel;
use crate::usage::Usage;
use crate::wire::listen::Reader;
use crate::wire::scribe::Scribe;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The calls that have begun: their index at the provider, and ours.
#[derive(Debug, Default)]
pub(super) struct Speech {
    calls: Vec<(u64, u32)>,
    /// Calls of ours whose arguments have begun.
    spoken: Vec<u32>,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    output: Option<Output<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<Tokens>,
    #[serde(borrow)]
    request_id: Option<Text<'a>>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Call<'a>>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    index: Option<u64>,
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
    arguments: Option<&'a RawValue>,
}

/// Cumulative: every frame repeats it, the last one wins.
#[derive(Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    output_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
}

impl Reader for Speech {
    fn object(&mut self, name: Option<&str>, data: &[u8], scribe: &mut Scribe) {
        let Ok(frame) = serde_json::from_slice::<Frame<'_>>(data) else {
            return scribe.fail(Class::Invalid, "a frame of the reply cannot be read");
        };
        let said = |raw: &RawValue| !matches!(raw.get(), "null" | "\"\"");
        if name == Some("error") || frame.code.is_some_and(said) {
            return scribe.failed(classify_event(data));
        }
        let id = frame.request_id.as_ref().filter(|id| !id.is_empty());
        scribe.id = scribe.id.take().or(id.map(|id| id.0.clone().into_owned()));
        if let Some(tokens) = &frame.usage {
            scribe.usage = tokens.usage().or(scribe.usage);
        }
        // One choice is all that is asked for.
        let choice = frame.output.and_then(|output| output.choices?.into_iter().next());
        let Some(choice) = choice else { return };
        if let Some(message) = &choice.message {
            self.say(message, scribe);
        }
        // An answer that goes on says so with the string "null".
        if let Some(reason) = choice.finish_reason.as_deref().filter(|reason| *reason != "null") {
            self.finish(reason, scribe);
        }
    }
}

impl Speech {
    fn say(&mut self, message: &Message<'_>, scribe: &mut Scribe) {
        if let Some(thinking) = message.reasoning_content {
            scribe.say(0, Channel::Reasoning, thinking);
        }
        if let Some(content) = message.content {
            // Models that see answer with a list of parts.
            match serde_json::from_str::<Vec<Part<'_>>>(content.get()) {
                Ok(parts) => {
                    for part in parts.iter().filter_map(|part| part.text) {
                        scribe.say(0, Channel::Content, part);
                    }
                }
                Err(_) => scribe.say(0, Channel::Content, content),
            }
        }
        for (n, call) in message.tool_calls.iter().flatten().enumerate() {
            self.call(call.index.unwrap_or(n as u64), call, scribe);
        }
    }

    fn call(&mut self, index: u64, call: &Call<'_>, scribe: &mut Scribe) {
        let Some(function) = &call.function else { return };
        let known = self.calls.iter().find(|(theirs, _)| *theirs == index).map(|(_, ours)| *ours);
        let number = match (known, function.name.as_deref().filter(|name| !name.is_empty())) {
            (Some(number), _) => number,
            (None, None) => return,
            (None, Some(name)) => {
                let number = scribe.call(0, call.id.as_deref(), name);
                self.calls.push((index, number));
                number
            }
        };
        let piece = function.arguments.and_then(text).filter(|piece| !piece.is_empty());
        if let Some(piece) = piece {
            self.spoken.push(number);
            scribe.arguments(0, number, &piece);
        }
    }

    fn finish(&self, reason: &str, scribe: &mut Scribe) {
        for (_, number) in self.calls.iter().filter(|(_, number)| !self.spoken.contains(number)) {
            scribe.arguments(0, *number, "{}");
        }
        let reason = match reason {
            "length" => "length",
            "content_filter" => "content_filter",
            _ if scribe.tools(0) > 0 => "tool_calls",
            _ => "stop",
        };
        scribe.open(0);
        scribe.finish(0, reason);
        scribe.complete();
    }
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

impl Tokens {
    fn usage(&self) -> Option<Usage> {
        let cached = self.prompt_tokens_details.as_ref().and_then(|d| d.cached_tokens);
        let reasoning = self.output_tokens_details.as_ref().and_then(|d| d.reasoning_tokens);
        let (cached, reasoning) = (cached.unwrap_or_default(), reasoning.unwrap_or_default());
        let output = self.output_tokens.unwrap_or_default();
        Some(Usage::from_openai(self.input_tokens?, cached, 0, output, reasoning))
    }
}
