//! Endpoints whose bodies are handed on: images, audio, rerank, moderations. Only the model is
//! read and set; what is counted beside tokens is read out of request and reply.

use crate::chat::raw::{lenient, put_text};
use crate::error::{ApiError, Class, Code, Failure};
use crate::peek::{self, BadBody, Edits, Peek, Segments, apply_params};
use crate::tokens::Counter;
use crate::usage::{Units, Usage};
use crate::wire::{Ask, Outgoing, ReplyContext, Tap, Whole, Wire, openai};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

mod form;
mod shape;
mod told;

/// One such endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // each is its path in the table of `Passed::path`
pub enum Passed {
    ImageGeneration,
    ImageEdit,
    ImageVariation,
    Speech,
    Transcription,
    Translation,
    Rerank,
    Moderation,
}

impl Passed {
    /// Its path behind `/v1/`, and behind a provider's base URL.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::ImageGeneration => "images/generations",
            Self::ImageEdit => "images/edits",
            Self::ImageVariation => "images/variations",
            Self::Speech => "audio/speech",
            Self::Transcription => "audio/transcriptions",
            Self::Translation => "audio/translations",
            Self::Rerank => "rerank",
            Self::Moderation => "moderations",
        }
    }

    /// It answers at once or not at all.
    pub(super) fn is_quick(self) -> bool {
        matches!(self, Self::Rerank | Self::Moderation)
    }

    /// Reads a JSON body or a form.
    ///
    /// # Errors
    /// [`BadBody`], in the words the caller sees.
    pub(super) fn read(self, body: Bytes) -> Result<Peek, BadBody> {
        if body.starts_with(b"--") {
            return form::read(body);
        }
        let peek = peek::form(body, &peek::OTHER)?;
        // The reply is gathered and handed on in one piece, whatever its form.
        Ok(Peek { stream: false, ..peek })
    }

    /// The request for one try.
    ///
    /// # Errors
    /// A provider that does not speak OpenAI's protocol; Cohere's rerank is what others took over
    /// (docs.cohere.com/v2/reference/rerank).
    pub(super) fn request(self, wire: Wire, ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
        let cohere = wire == Wire::Cohere && self == Self::Rerank;
        if !cohere && !matches!(wire, Wire::OpenAi | Wire::Azure) {
            let why = format!("the provider of this model has no {}", self.path());
            return Err(ApiError::new(Code::InvalidRequest, why).param("model"));
        }
        let path = openai::path(wire, ask, self.path());
        if ask.peek.body.starts_with(b"--") {
            let headers = vec![("content-type", form::content_type(&ask.peek.body))];
            let body = form::with_model(ask.peek, ask.model);
            return Ok(Outgoing { path, headers, body, ..Outgoing::default() });
        }
        let mut edits = Edits::default();
        let mut model = Vec::with_capacity(ask.model.len() + 2);
        put_text(&mut model, ask.model);
        edits.set("model", model);
        let dropped = apply_params(ask.params, ask.peek, &mut edits).map_err(ApiError::from)?;
        let body: Segments = edits.apply(ask.peek);
        Ok(Outgoing { path, body, dropped, ..Outgoing::default() })
    }

    /// Reads a reply with status 200; it leaves as it came.
    ///
    /// # Errors
    /// An error, or what is no answer of this endpoint.
    pub(super) fn whole(self, body: Bytes, context: &ReplyContext) -> Result<Whole, Failure> {
        if body.trim_ascii().is_empty() {
            return Err(Failure::new(Class::Invalid, 200, "the reply is empty"));
        }
        shape::check(self, &body)?;
        let streamed = told::is_stream(&body).then(|| told::read(&body)).transpose()?;
        let reply = serde_json::from_slice::<Reply<'_>>(&body).unwrap_or_default();
        let billed = reply.meta.and_then(|meta| meta.billed_units);
        let usage = match streamed.as_ref() {
            Some(told) => told.usage.as_deref(),
            None => reply.usage.map(RawValue::get),
        };
        let usage = usage.and_then(|raw| serde_json::from_str::<Tokens>(raw).ok());
        let usage = usage.and_then(Tokens::usage);
        let by_units = self.is_priced_by_units() || billed.is_some();
        let usage = usage.or_else(|| by_units.then(|| billed.unwrap_or_default().usage()));
        let counter = Counter::new(context.encoding);
        Ok(Whole { body: body.clone(), tap: Tap { usage, finish: None, model: None, counter } })
    }

    /// Where a provider says no tokens, none were charged.
    fn is_priced_by_units(self) -> bool {
        !matches!(self, Self::Rerank)
    }

    /// What is counted beside tokens.
    pub(super) fn units(self, request: &Peek, reply: &Bytes) -> Units {
        let read = || serde_json::from_slice::<Reply<'_>>(reply).unwrap_or_default();
        match self {
            Self::ImageGeneration | Self::ImageEdit | Self::ImageVariation => {
                let images = match told::is_stream(reply).then(|| told::read(reply)) {
                    Some(told) => told.map_or(0, |told| told.images),
                    None => read().data.map_or(0, |list| list.len() as u64),
                };
                Units { images, ..Units::default() }
            }
            Self::Speech => {
                let input = request.find("input").map(|member| request.value(member));
                let text = input.and_then(|raw| serde_json::from_slice::<String>(raw).ok());
                let characters = text.map_or(0, |text| text.chars().count() as u64);
                Units { characters, ..Units::default() }
            }
            Self::Transcription | Self::Translation => {
                let reply = read();
                let used = reply.usage.and_then(|raw| serde_json::from_str(raw.get()).ok());
                let used: Option<f64> = used.and_then(|tokens: Tokens| tokens.seconds);
                let seconds = used.or(reply.duration).filter(|seconds| *seconds > 0.0);
                Units { seconds: seconds.unwrap_or_default(), ..Units::default() }
            }
            Self::Rerank | Self::Moderation => Units::default(),
        }
    }
}

#[derive(Default, Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    data: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    duration: Option<f64>,
    #[serde(default, deserialize_with = "lenient")]
    meta: Option<Meta>,
}

/// Cohere's; what it charges by search has no tokens.
#[derive(Deserialize)]
struct Meta {
    billed_units: Option<Billed>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Billed {
    input_tokens: Option<f64>,
    output_tokens: Option<f64>,
}

impl Billed {
    fn usage(self) -> Usage {
        // The documentation has them as doubles; a cast saturates.
        let [input, output] =
            [self.input_tokens, self.output_tokens].map(|n| n.unwrap_or_default() as u64);
        Usage { input, output, ..Usage::default() }
    }
}

/// Usage as these endpoints report it: in the words of Responses or of chat.
#[derive(Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    /// `type: "duration"` of transcriptions.
    seconds: Option<f64>,
}

impl Tokens {
    fn usage(self) -> Option<Usage> {
        let input = self.input_tokens.or(self.prompt_tokens);
        let output = self.output_tokens.or(self.completion_tokens);
        if input.is_none() && output.is_none() && self.total_tokens.is_none() {
            return None;
        }
        let output = output.unwrap_or_default();
        let rest = self.total_tokens.unwrap_or_default().saturating_sub(output);
        Some(Usage { input: input.unwrap_or(rest), output, ..Usage::default() })
    }
}
