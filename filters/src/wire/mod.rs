//! Providers' protocols: a request out of a caller's body, and the caller's reply out of theirs.

use crate::error::{ApiError, Failure};
use crate::peek::{Peek, Segments};
use crate::tokens::{Counter, Encoding};
use crate::usage::Usage;
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

pub mod anthropic;
pub mod bedrock;
mod claude;
pub mod cohere;
pub mod dashscope;
mod edit;
pub mod gemini;
mod listen;
pub mod ollama;
pub mod openai;
pub mod qianfan;
mod scribe;

pub(crate) use edit::note;
pub use edit::segment;

/// A provider protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// OpenAI chat completions and everything that speaks it.
    OpenAi,
    /// OpenAI chat completions behind Azure's paths (`/openai/deployments/{model}/…?api-version=`).
    Azure,
    /// Anthropic Messages.
    Anthropic,
    /// Google's generateContent at AI Studio.
    Gemini,
    /// The same at Vertex; its base URL ends in `/projects/…/locations/…`, or in
    /// `/publishers/google` behind that.
    Vertex,
    /// Ollama's own `/api/chat`.
    Ollama,
    /// Amazon Bedrock's Converse.
    Bedrock,
    /// Baidu Qianfan's first chat (wenxinworkshop); its second is OpenAI's.
    Qianfan,
    /// Cohere's second chat.
    Cohere,
    /// Alibaba's DashScope in its own protocol; its compatible mode is OpenAI's.
    DashScope,
}

/// Every wire by the name config uses. A name that is not here is "not in this version".
pub const WIRES: &[(&str, Wire)] = &[
    ("openai", Wire::OpenAi),
    ("azure", Wire::Azure),
    ("anthropic", Wire::Anthropic),
    ("gemini", Wire::Gemini),
    ("vertex", Wire::Vertex),
    ("ollama", Wire::Ollama),
    ("bedrock", Wire::Bedrock),
    ("qianfan", Wire::Qianfan),
    ("cohere", Wire::Cohere),
    ("dashscope", Wire::DashScope),
];

/// What differs between providers of one wire, as data of a preset's `[quirks]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {
    /// `stream_options` may be sent (false: Mistral and others that answer 422).
    pub stream_options: bool,
    /// Usage comes in the stream without being asked for, so nothing is injected.
    pub usage_unasked: bool,
    /// Within tool loops the model wants its `reasoning_content` back, with every call; others
    /// refuse the member.
    pub reasoning_back: bool,
    /// Members of messages that it answers with 400, so they are left out of a conversation.
    pub refused: Vec<String>,
    /// It has `/responses` beside its chat.
    pub responses: bool,
    /// It has `/completions` of a bare prompt for every model.
    pub completions: bool,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            stream_options: true,
            usage_unasked: false,
            reasoning_back: false,
            refused: Vec::new(),
            responses: false,
            completions: false,
        }
    }
}

/// The `params` table of a provider: edits of top-level members, done in this order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// Old name to new name.
    pub rename: BTreeMap<String, String>,
    /// Members removed (named in `x-weir-dropped`).
    pub drop: Vec<String>,
    /// Members added when absent, as raw JSON.
    pub defaults: BTreeMap<String, String>,
    /// Numbers forced into a range.
    pub clamp: BTreeMap<String, (f64, f64)>,
}

/// What a request is made from.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The caller's body, read.
    pub peek: &'a Peek,
    /// The provider's model name.
    pub model: &'a str,
    /// The provider's quirks.
    pub quirks: &'a Quirks,
    /// The provider's params.
    pub params: &'a Params,
    /// `max_tokens` for wires that require one, when the caller gave none (0: the wire's own
    /// default).
    pub max_output: u64,
    /// The provider's base URL, which the path is appended to.
    pub base_url: &'a str,
    /// Azure's `api-version`.
    pub api_version: Option<&'a str>,
}

/// What a try sends.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    /// Appended to the provider's base URL, query included: `/chat/completions`.
    pub path: String,
    /// Headers of the wire (`anthropic-version`); never auth, length, type or host.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Segments,
    /// Members the provider cannot take, for `x-weir-dropped`.
    pub dropped: Vec<String>,
    /// We asked for usage that the caller did not ask for: strip it from the reply.
    pub strip_usage: bool,
}

/// What a reply filter must know of its request.
#[derive(Debug, Clone)]
pub struct ReplyContext {
    /// The caller asked for usage in the stream.
    pub usage_asked: bool,
    /// [`Outgoing::strip_usage`].
    pub strip_usage: bool,
    /// For replies that lack them: an id (`chatcmpl-…`), Unix seconds, the provider's model name.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// The provider's model name as we asked for it.
    pub model: Arc<str>,
    /// Counts what the provider does not report.
    pub encoding: Option<Encoding>,
    /// Prompt tokens, for usage that we must make up ourselves.
    pub prompt_tokens: u64,
}

/// What has been learnt of a reply so far.
#[derive(Debug)]
pub struct Tap {
    /// The provider's last word on usage.
    pub usage: Option<Usage>,
    /// The finish reason in OpenAI's words.
    pub finish: Option<&'static str>,
    /// The provider's own name of the model that answered.
    pub model: Option<String>,
    /// Generated text that passed.
    pub counter: Counter,
}

/// [`Failure::code`] of an answer that began and stopped before its end, with class `Server`.
pub const TRUNCATED: &str = "truncated";

/// How a stream ended.
#[derive(Debug)]
pub enum End {
    /// A whole answer. `tail` holds the withheld last bytes (usage chunk made by us, `[DONE]`), to
    /// be sent only after the event is written.
    Complete {
        /// The withheld bytes.
        tail: Bytes,
    },
    /// The provider failed, cut the answer short, or sent something that is none.
    Failed(Failure),
}

/// What one feed gave.
#[derive(Debug, Default)]
pub struct Step {
    /// For the caller, in order; slices of the input where nothing deviated.
    pub out: Vec<Bytes>,
    /// Content, reasoning, refusal, a tool call or an end has been seen, now or before: what is
    /// held back may be released.
    pub started: bool,
    /// Text content came in this step (restarts the idle timer; comments do not).
    pub alive: bool,
    /// Set once. Whatever the provider sends after it is swallowed.
    pub end: Option<End>,
}

/// One provider's stream turned into the caller's strict one.
pub trait Reply: Send {
    /// Takes bytes at any cut.
    fn feed(&mut self, chunk: Bytes, step: &mut Step);
    /// The provider's body has ended cleanly (`clean`), or the connection was cut.
    fn finish(&mut self, clean: bool, step: &mut Step);
    /// The caller gets no more: the answer ends here, well formed, by `length`. To be called while
    /// it runs; what the provider sends afterwards is swallowed.
    fn cut(&mut self, step: &mut Step);
    /// What is known so far.
    fn tap(&mut self) -> &mut Tap;
    /// The error as the last event of this stream, where it depends on what was sent before.
    fn error(&mut self, _error: &ApiError, _request_id: &str) -> Option<Bytes> {
        None
    }
}

/// A non-stream reply, read and normalised.
#[derive(Debug)]
pub struct Whole {
    /// The caller's body; the provider's own bytes where nothing deviated.
    pub body: Bytes,
    /// What was learnt.
    pub tap: Tap,
}

impl Wire {
    /// By the name config uses.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        WIRES.iter().find(|(n, _)| *n == name).map(|(_, w)| *w)
    }
    /// The request for one try.
    ///
    /// # Errors
    /// What the caller is told when the provider cannot be asked this at all.
    pub fn request(self, ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
        match self {
            Self::OpenAi | Self::Azure => openai::request(self, ask),
            Self::Anthropic => anthropic::request(ask),
            Self::Gemini => gemini::request(gemini::Door::Studio, ask),
            Self::Vertex => gemini::request(gemini::Door::Vertex, ask),
            Self::Ollama => ollama::request(ask),
            Self::Bedrock => bedrock::request(ask),
            Self::Qianfan => qianfan::request(ask),
            Self::Cohere => cohere::request(ask),
            Self::DashScope => dashscope::request(ask),
        }
    }
    /// A filter for one streamed reply.
    #[must_use]
    pub fn stream(self, context: ReplyContext) -> Box<dyn Reply> {
        match self {
            Self::OpenAi | Self::Azure => openai::stream(context),
            Self::Anthropic => anthropic::stream(context),
            Self::Gemini | Self::Vertex => gemini::stream(context),
            Self::Ollama => ollama::stream(context),
            Self::Bedrock => bedrock::stream(context),
            Self::Qianfan => qianfan::stream(context),
            Self::Cohere => cohere::stream(context),
            Self::DashScope => dashscope::stream(context),
        }
    }
    /// Reads a whole JSON reply with status 200.
    ///
    /// # Errors
    /// The provider's failure, when the 200 is none.
    pub fn whole(self, body: Bytes, context: ReplyContext) -> Result<Whole, Failure> {
        match self {
            Self::OpenAi | Self::Azure => openai::whole(body, context),
            Self::Anthropic => anthropic::whole(body, context),
            Self::Gemini | Self::Vertex => gemini::whole(body, context),
            Self::Ollama => ollama::whole(body, context),
            Self::Bedrock => bedrock::whole(body, context),
            Self::Qianfan => qianfan::whole(body, context),
            Self::Cohere => cohere::whole(body, context),
            Self::DashScope => dashscope::whole(body, context),
        }
    }
}
