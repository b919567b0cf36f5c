//! What Ollama answers: a line for each piece, the last one with `done`; or that one line alone.

use crate::chat::raw::{Text, lenient};
use crate::error::{Class, classify_event};
use crate::tokens::Channel;
use crate::usage::Usage;
use crate::wire::listen::Reader;
use crate::wire::scribe::{Scribe, object_text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Every line says all there is to know.
#[derive(Debug)]
pub(super) struct Speech;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    model: Option<Text<'a>>,
    #[serde(borrow)]
    message: Option<Message<'a>>,
    done: Option<bool>,
    #[serde(borrow)]
    done_reason: Option<Text<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    prompt_eval_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    eval_count: Option<u64>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Call<'a>>>,
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
    arguments: Option<&'a RawValue>,
}

impl Reader for Speech {
    fn object(&mut self, _: Option<&str>, data: &[u8], scribe: &mut Scribe) {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(data) else {
            return scribe.fail(Class::Invalid, "a line of the reply cannot be read");
        };
        if line.error.is_some() {
            return scribe.failed(classify_event(data));
        }
        if scribe.tap.model.is_none() {
            let model = line.model.as_ref().filter(|model| !model.is_empty());
            scribe.tap.model = model.map(|model| model.0.clone().into_owned());
        }
        if let Some(message) = &line.message {
            say(message, scribe);
        }
        if line.done == Some(true) {
            finish(&line, scribe);
        }
    }
}

fn say(message: &Message<'_>, scribe: &mut Scribe) {
    if let Some(thinking) = message.thinking {
        scribe.say(0, Channel::Reasoning, thinking);
    }
    if let Some(content) = message.content {
        scribe.say(0, Channel::Content, content);
    }
    // Its `function.index` may be missing, or the same for two calls: ours is the order they come.
    for call in message.tool_calls.iter().flatten() {
        let Some(function) = &call.function else { continue };
        let Some(name) = function.name.as_deref().filter(|name| !name.is_empty()) else { continue };
        let number = scribe.call(0, call.id.as_deref(), name);
        scribe.arguments(0, number, &object_text(function.arguments));
    }
}

fn finish(line: &Line<'_>, scribe: &mut Scribe) {
    // Loading or unloading a model ends a request without an answer.
    let reason = line.done_reason.as_deref().unwrap_or("stop");
    if matches!(reason, "load" | "unload") {
        return scribe.fail(Class::Invalid, "the provider loaded or unloaded its model only");
    }
    if let Some(output) = line.eval_count {
        // A prompt that was wholly cached is not counted; ours is nearer than nothing.
        let input = line.prompt_eval_count.unwrap_or(scribe.context.prompt_tokens);
        scribe.usage = Some(Usage { input, output, ..Usage::default() });
    }
    // A call ends with "stop" too.
    let finish = match reason {
        "length" => "length",
        _ if scribe.tools(0) > 0 => "tool_calls",
        _ => "stop",
    };
    scribe.open(0);
    scribe.finish(0, finish);
    scribe.complete();
}
