//! What Gemini answers, chunk by chunk or whole: both are the same object.

use super::args::{Arguments, Piece};
use crate::chat::raw::{Text, lenient};
use crate::chat::thought;
use crate::error::{Class, classify_event};
use crate::tokens::Channel;
use crate::usage::Usage;
use crate::wire::listen::Reader;
use crate::wire::scribe::{Scribe, object_text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Candidates beyond this have no place in a reply; what they say is left out.
const CANDIDATES_MAX: usize = 128;

/// One reply as far as it was heard.
#[derive(Debug, Default)]
pub(super) struct Speech {
    candidates: Vec<Heard>,
    tokens: Tokens,
    blocked: bool,
}

#[derive(Debug, Default)]
struct Heard {
    /// A call whose arguments come in pieces, and its number.
    open: Option<(u32, Arguments)>,
    /// The last finish reason; some versions send one with every chunk.
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<Feedback<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage_metadata: Option<Tokens>,
    #[serde(borrow)]
    model_version: Option<Text<'a>>,
    #[serde(borrow)]
    response_id: Option<Text<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow)]
    block_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    index: Option<usize>,
    #[serde(borrow)]
    content: Option<Content<'a>>,
    /// A word; a number in recordings of Vertex's older client.
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    thought: Option<bool>,
    #[serde(borrow)]
    inline_data: Option<Inline<'a>>,
    #[serde(borrow)]
    function_call: Option<Call<'a>>,
    #[serde(borrow)]
    thought_signature: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inline<'a> {
    #[serde(borrow)]
    mime_type: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
}

impl Inline<'_> {
    fn picture(&self) -> Option<(&str, &str)> {
        let kind = self.mime_type.as_deref().filter(|kind| kind.starts_with("image/"))?;
        Some((kind, self.data.as_deref().filter(|data| !data.is_empty())?))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    partial_args: Option<Vec<Piece<'a>>>,
    will_continue: Option<bool>,
}

/// Usage, every number optional; each chunk repeats what is known so far.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl Tokens {
    fn overwrite(&mut self, later: Self) {
        self.prompt_token_count = later.prompt_token_count.or(self.prompt_token_count);
        self.tool_use_prompt_token_count =
            later.tool_use_prompt_token_count.or(self.tool_use_prompt_token_count);
        self.cached_content_token_count =
            later.cached_content_token_count.or(self.cached_content_token_count);
        self.candidates_token_count = later.candidates_token_count.or(self.candidates_token_count);
        self.thoughts_token_count = later.thoughts_token_count.or(self.thoughts_token_count);
    }

    /// Thoughts are not in the candidates' count, what was cached is in the prompt's.
    /// `None` when nothing was said.
    fn usage(&self) -> Option<Usage> {
        let prompt = self.prompt_token_count.unwrap_or_default();
        let prompt = prompt.saturating_add(self.tool_use_prompt_token_count.unwrap_or_default());
        let thoughts = self.thoughts_token_count.unwrap_or_default();
        let output = self.candidates_token_count.unwrap_or_default().saturating_add(thoughts);
        let cached = self.cached_content_token_count.unwrap_or_default();
        let any = prompt > 0 || output > 0;
        any.then(|| Usage::from_openai(prompt, cached, 0, output, thoughts))
    }
}

impl Reader for Speech {
    fn object(&mut self, _: Option<&str>, data: &[u8], scribe: &mut Scribe) {
        let Ok(shape) = serde_json::from_slice::<Shape<'_>>(data) else {
            return scribe.fail(Class::Invalid, "the reply cannot be read");
        };
        if shape.error.is_some() {
            return scribe.failed(classify_event(data));
        }
        let some = |text: Option<Text<'_>>| {
            text.filter(|text| !text.is_empty()).map(|text| text.0.into_owned())
        };
        scribe.id = scribe.id.take().or(some(shape.response_id));
        scribe.tap.model = scribe.tap.model.take().or(some(shape.model_version));
        self.blocked |= shape.prompt_feedback.is_some_and(|f| f.block_reason.is_some());
        self.tokens.overwrite(shape.usage_metadata.unwrap_or_default());
        scribe.usage = self.tokens.usage();
        for candidate in shape.candidates.unwrap_or_default() {
            self.candidate(&candidate, scribe);
        }
    }

    /// There is no last word: the answer is whole when every candidate has its finish reason, and
    /// an array around the chunks its bracket.
    fn close(&mut self, clean: bool, closed: bool, scribe: &mut Scribe) {
        if self.candidates.is_empty() && self.blocked && closed {
            scribe.open(0);
            scribe.finish(0, "content_filter");
            return scribe.complete();
        }
        let finished = self.candidates.iter().all(|heard| heard.reason.is_some());
        if self.candidates.is_empty() || !finished || !closed {
            return scribe.cut(clean);
        }
        for at in 0..self.candidates.len() {
            self.close_call(at, scribe);
            let reason = self.candidates[at].reason.as_deref().unwrap_or_default();
            scribe.finish(at, finish_reason(reason, scribe.tools(at) > 0));
        }
        scribe.complete();
    }
}

impl Speech {
    fn candidate(&mut self, candidate: &Candidate<'_>, scribe: &mut Scribe) {
        let at = candidate.index.unwrap_or_default();
        if at >= CANDIDATES_MAX {
            return;
        }
        if self.candidates.len() <= at {
            self.candidates.resize_with(at + 1, Heard::default);
        }
        let parts = candidate.content.as_ref().and_then(|content| content.parts.as_ref());
        for part in parts.into_iter().flatten() {
            if let Some(text) = part.text {
                let thought = part.thought == Some(true);
                let channel = if thought { Channel::Reasoning } else { Channel::Content };
                scribe.say(at, channel, text);
            }
            // Drafts among its thoughts are no part of the answer.
            let inline = part.inline_data.as_ref().filter(|_| part.thought != Some(true));
            if let Some((kind, data)) = inline.and_then(Inline::picture) {
                scribe.picture(at, kind, data);
            }
            if let Some(call) = &part.function_call {
                self.call(at, call, part.thought_signature.as_deref(), scribe);
            }
        }
        if let Some(reason) = candidate.finish_reason {
            self.candidates[at].reason = Some(reason.get().trim_matches('"').to_owned());
        }
    }

    fn call(&mut self, at: usize, call: &Call<'_>, signature: Option<&str>, scribe: &mut Scribe) {
        let goes_on = call.will_continue == Some(true);
        if let Some(name) = call.name.as_deref().filter(|name| !name.is_empty()) {
            self.close_call(at, scribe);
            let given = call.id.as_deref().filter(|id| !id.is_empty()).map(str::to_owned);
            let made = || scribe.made_id(u32::try_from(at).unwrap_or(0), scribe.tools(at));
            let mut id = given.unwrap_or_else(made);
            if let Some(signature) = signature.filter(|signature| !signature.is_empty()) {
                id = thought::join(&id, signature);
            }
            let number = scribe.call(at, Some(&id), name);
            if !goes_on && call.partial_args.is_none() {
                return scribe.arguments(at, number, &object_text(call.args));
            }
            self.candidates[at].open = Some((number, Arguments::of(call.args)));
        }
        let Some((_, arguments)) = &mut self.candidates[at].open else { return };
        let pieces = call.partial_args.as_deref().unwrap_or_default();
        if !pieces.iter().all(|piece| arguments.add(piece)) {
            return scribe.fail(Class::Invalid, "a tool call's arguments cannot be put together");
        }
        if !goes_on {
            self.close_call(at, scribe);
        }
    }

    fn close_call(&mut self, at: usize, scribe: &mut Scribe) {
        if let Some((number, arguments)) = self.candidates[at].open.take() {
            scribe.arguments(at, number, &arguments.text());
        }
    }
}

/// `finishReason` in OpenAI's words. A call ends with STOP too, so `tools` decides there. Words
/// that are not known (OTHER, MALFORMED_FUNCTION_CALL, UNEXPECTED_TOOL_CALL) are a stop.
fn finish_reason(reason: &str, tools: bool) -> &'static str {
    match reason {
        "MAX_TOKENS" | "2" => "length",
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "MODEL_ARMOR"
        | "LANGUAGE" | "3" | "4" | "6" | "7" | "8" => "content_filter",
        image if image.starts_with("IMAGE_") => "content_filter",
        _ if tools => "tool_calls",
        _ => "stop",
    }
}
