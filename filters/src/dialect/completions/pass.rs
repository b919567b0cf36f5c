//! Completions to a provider that has them: the body passes, a few members edited.

use crate::chat::raw::{Text, put_text};
use crate::error::{ApiError, Class, Failure, classify_event};
use crate::peek::{Edits, apply_params, with_include_usage};
use crate::tokens::{Channel, Counter};
use crate::usage::Usage;
use crate::wire::{Ask, Outgoing, ReplyContext, Tap, Whole, Wire};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// OpenAI's models that complete prompts and do not chat.
const FAMILIES: [&str; 3] = ["babbage-", "davinci-", "gpt-3.5-turbo-instruct"];

/// The provider has the endpoint for this model.
pub(in crate::dialect) fn has(wire: Wire, ask: &Ask<'_>) -> bool {
    let by_name = FAMILIES.iter().any(|family| ask.model.starts_with(family));
    wire == Wire::OpenAi && (ask.quirks.completions || by_name)
}

/// The request for one try.
pub(in crate::dialect) fn pass(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let mut edits = Edits::default();
    let mut model = Vec::with_capacity(ask.model.len() + 2);
    put_text(&mut model, ask.model);
    edits.set("model", model);
    let mut strip_usage = false;
    if !ask.peek.stream || !ask.quirks.stream_options {
        edits.remove("stream_options");
    } else if !ask.quirks.usage_unasked
        && let Some(options) = with_include_usage(ask.peek)
    {
        edits.set("stream_options", options);
        strip_usage = true;
    }
    let dropped = apply_params(ask.params, ask.peek, &mut edits).map_err(ApiError::from)?;
    let (path, body) = ("/completions".into(), edits.apply(ask.peek));
    Ok(Outgoing { path, headers: Vec::new(), body, dropped, strip_usage })
}

/// A completion or a chunk of one.
#[derive(Debug, Deserialize)]
pub(super) struct Completion<'a> {
    #[serde(borrow)]
    pub id: Option<Text<'a>>,
    pub created: Option<u64>,
    #[serde(borrow)]
    pub model: Option<Text<'a>>,
    #[serde(borrow)]
    pub choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub index: u32,
    #[serde(borrow)]
    pub text: Option<Text<'a>>,
    #[serde(borrow)]
    pub finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Default, Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Completion<'_> {
    pub(super) fn usage(&self) -> Option<Usage> {
        let tokens: Tokens = serde_json::from_str(self.usage?.get()).ok()?;
        let cached = tokens.prompt_tokens_details.unwrap_or_default().cached_tokens;
        let (prompt, output) = (tokens.prompt_tokens?, tokens.completion_tokens.unwrap_or(0));
        Some(Usage::from_openai(prompt, cached.unwrap_or_default(), 0, output, 0))
    }

    pub(super) fn count(&self, counter: &mut Counter) {
        for choice in self.choices.iter().flatten() {
            let text = choice.text.as_deref().unwrap_or_default();
            counter.push(choice.index, Channel::Content, text);
        }
    }
}

/// The specification's words for why a completion ended.
pub(super) fn word(finish: &str) -> &'static str {
    match finish {
        "length" => "length",
        "content_filter" => "content_filter",
        _ => "stop",
    }
}

/// A whole completion, as the provider wrote it.
///
/// # Errors
/// An error object, or what is no completion at all.
pub(in crate::dialect) fn pass_whole(
    body: Bytes,
    context: &ReplyContext,
) -> Result<Whole, Failure> {
    let none = |why: &str| Failure::new(Class::Invalid, 200, why);
    let Ok(completion) = serde_json::from_slice::<Completion<'_>>(&body) else {
        return Err(none("the reply is no completion"));
    };
    if completion.error.is_some() {
        return Err(classify_event(&body));
    }
    let Some([first, ..]) = completion.choices.as_deref() else {
        return Err(none("the reply has no choices"));
    };
    let mut counter = Counter::new(context.encoding);
    completion.count(&mut counter);
    let tap = Tap {
        usage: completion.usage(),
        finish: first.finish_reason.as_deref().map(word),
        model: completion.model.as_deref().map(str::to_owned),
        counter,
    };
    Ok(Whole { body: body.clone(), tap })
}
