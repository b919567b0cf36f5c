//! Responses to a provider that has them too: the body passes, a few members edited.

use crate::chat::raw::{Text, put_text};
use crate::error::{ApiError, Class, Failure, classify_event};
use crate::peek::{Edits, apply_params};
use crate::tokens::{Channel, Counter};
use crate::usage::Usage;
use crate::wire::openai::short_ids;
use crate::wire::{Ask, Outgoing, ReplyContext, Tap, Whole};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The request for one try.
pub(in crate::dialect) fn pass(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let mut edits = Edits::default();
    let mut model = Vec::with_capacity(ask.model.len() + 2);
    put_text(&mut model, ask.model);
    edits.set("model", model);
    if let Some(input) = short_ids(ask.peek, "input") {
        edits.set("input", input);
    }
    let dropped = apply_params(ask.params, ask.peek, &mut edits).map_err(ApiError::from)?;
    let path = "/responses".into();
    Ok(Outgoing { path, body: edits.apply(ask.peek), dropped, ..Outgoing::default() })
}

/// A response, as far as it is read here.
#[derive(Debug, Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub id: Option<Text<'a>>,
    #[serde(borrow)]
    pub object: Option<Text<'a>>,
    #[serde(borrow)]
    pub model: Option<Text<'a>>,
    #[serde(borrow)]
    pub status: Option<Text<'a>>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub incomplete_details: Option<Reason<'a>>,
    #[serde(borrow)]
    pub output: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// Why a response is incomplete.
#[derive(Debug, Deserialize)]
pub(super) struct Reason<'a> {
    #[serde(borrow)]
    reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    output_tokens_details: Option<Details>,
}

#[derive(Default, Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
}

impl Response<'_> {
    /// Its usage, where it has any.
    pub(super) fn usage(&self) -> Option<Usage> {
        let tokens: Tokens = serde_json::from_str(self.usage?.get()).ok()?;
        let input = tokens.input_tokens?;
        let cached = tokens.input_tokens_details.unwrap_or_default().cached_tokens;
        let reasoning = tokens.output_tokens_details.unwrap_or_default().reasoning_tokens;
        let output = tokens.output_tokens.unwrap_or_default();
        let (cached, reasoning) = (cached.unwrap_or_default(), reasoning.unwrap_or_default());
        Some(Usage::from_openai(input, cached, 0, output, reasoning))
    }

    /// OpenAI's finish reason of a chat for the same end.
    pub(super) fn finish(&self) -> &'static str {
        let reason = self.incomplete_details.as_ref().and_then(|why| why.reason.as_deref());
        match (self.status.as_deref(), reason) {
            (Some("incomplete"), Some("content_filter")) => "content_filter",
            (Some("incomplete"), _) => "length",
            _ => "stop",
        }
    }

    /// The provider's failure, when this is one.
    pub(super) fn failure(&self) -> Option<Failure> {
        let failed = matches!(self.status.as_deref(), Some("failed" | "cancelled"));
        match self.error {
            Some(error) if failed || self.output.is_none() => {
                Some(classify_event(error.get().as_bytes()))
            }
            _ if failed => Some(Failure::new(Class::Server, 200, "the response failed")),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    content: Option<Vec<Part<'a>>>,
    #[serde(borrow)]
    summary: Option<Vec<Part<'a>>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
}

/// Counts what was generated.
pub(super) fn count(output: &RawValue, counter: &mut Counter) {
    let items: Vec<&RawValue> = serde_json::from_str(output.get()).unwrap_or_default();
    for (raw, n) in items.into_iter().zip(0..) {
        let Ok(item) = serde_json::from_str::<Item<'_>>(raw.get()) else { continue };
        for text in item.content.iter().flatten().filter_map(|part| part.text.as_ref()) {
            counter.push(0, Channel::Content, text);
        }
        for text in item.summary.iter().flatten().filter_map(|part| part.text.as_ref()) {
            counter.push(0, Channel::Reasoning, text);
        }
        for text in [&item.name, &item.arguments].into_iter().flatten() {
            counter.push(0, Channel::Tool(n), text);
        }
    }
}

/// A whole response, as the provider wrote it.
///
/// # Errors
/// A failed response, or what is none at all.
pub(in crate::dialect) fn pass_whole(
    body: Bytes,
    context: &ReplyContext,
) -> Result<Whole, Failure> {
    let none = |why: &str| Failure::new(Class::Invalid, 200, why);
    let response: Response<'_> = match serde_json::from_slice(&body) {
        Ok(response) => response,
        Err(_) if body.trim_ascii().is_empty() => return Err(none("the reply is empty")),
        Err(_) => return Err(none("the reply is no response")),
    };
    if let Some(failure) = response.failure() {
        return Err(failure);
    }
    let sound = response.object.as_deref() == Some("response") && response.id.is_some();
    let Some(output) = response.output.filter(|_| sound) else {
        return Err(none("the reply is no response"));
    };
    let mut counter = Counter::new(context.encoding);
    count(output, &mut counter);
    let tap = Tap {
        usage: response.usage(),
        finish: Some(response.finish()),
        model: response.model.as_deref().map(str::to_owned),
        counter,
    };
    Ok(Whole { body: body.clone(), tap })
}
