//! The usage event (CONTRACT section 6): a JSON line in the spool, a row in the ledger.

use crate::base::EventId;
use serde::{Deserialize, Serialize};
use weir_filters::usage::{NanoUsd, Source, Usage};

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A whole answer reached the caller, or was on its way when it left.
    Success,
    /// The caller left first.
    ClientAbort,
    /// A provider failed.
    UpstreamError,
    /// One of our timers ran out.
    Timeout,
    /// The provider stopped in the middle.
    Truncated,
    /// We said no, or the request itself was wrong.
    Refused,
    /// A limit cut a running stream.
    LimitCut,
    /// Served from a cache.
    CacheHit,
    /// Served from a stored answer.
    Replay,
    /// It was running when the process died, or when its drain time was over.
    Interrupted,
}

impl Outcome {
    /// As events, metrics and logs write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ClientAbort => "client_abort",
            Self::UpstreamError => "upstream_error",
            Self::Timeout => "timeout",
            Self::Truncated => "truncated",
            Self::Refused => "refused",
            Self::LimitCut => "limit_cut",
            Self::CacheHit => "cache_hit",
            Self::Replay => "replay",
            Self::Interrupted => "interrupted",
        }
    }
}

/// One try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Whose.
    pub provider: String,
    /// The provider's name of the model.
    pub model: String,
    /// The provider's HTTP status; 0 when none came.
    pub status: u16,
    /// From the connect on.
    pub duration_ms: u64,
    /// What went wrong; absent on the one that served.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// Units other than tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Units {
    /// Images made or read.
    pub images: u64,
    /// Seconds of audio.
    pub seconds: f64,
    /// Characters of speech.
    pub characters: u64,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are CONTRACT's, and documented there
pub struct Event {
    pub event_id: EventId,
    /// RFC 3339, UTC, when the request came.
    pub ts: jiff::Timestamp,
    pub request_id: String,
    pub trace_id: String,
    pub key_id: Option<String>,
    pub key_name: Option<String>,
    pub team: Option<String>,
    pub department: Option<String>,
    pub user: Option<String>,
    pub end_user: Option<String>,
    pub tags: Vec<String>,
    pub task_type: Option<String>,
    pub budget_tier: Option<String>,
    pub endpoint: String,
    pub dialect: String,
    pub requested_model: Option<String>,
    pub provider: Option<String>,
    pub credential: Option<String>,
    pub model: Option<String>,
    pub limited_by: Option<String>,
    pub status: u16,
    pub error_code: Option<String>,
    pub outcome: Outcome,
    pub streamed: bool,
    pub attempts: Vec<Attempt>,
    /// `input_tokens`, `cached_tokens`, `cache_write_tokens`, `output_tokens`, `reasoning_tokens`.
    #[serde(flatten)]
    pub usage: EventUsage,
    pub usage_source: Source,
    pub units: Units,
    pub cost_nano_usd: Option<NanoUsd>,
    pub wasted_cost_nano_usd: NanoUsd,
    pub price_source: Option<String>,
    pub reserved_tokens: u64,
    pub ttft_ms: Option<u64>,
    pub duration_ms: u64,
    pub overhead_us: u64,
    pub cache: Option<String>,
    pub degraded_from: Option<String>,
    pub config_version: String,
}

/// [`Usage`] under the ledger's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct EventUsage {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub cache_write_tokens: u64,
    pub output_tokens: u64,
    pub reasoning_tokens: u64,
}

impl From<Usage> for EventUsage {
    fn from(u: Usage) -> Self {
        Self {
            input_tokens: u.input,
            cached_tokens: u.cached,
            cache_write_tokens: u.cache_write,
            output_tokens: u.output,
            reasoning_tokens: u.reasoning,
        }
    }
}

/// The line written when a stream is admitted: what is booked as `interrupted` if its event never
/// comes. It is the event with the prompt's estimate, under a name of its own so that no reader
/// takes it for one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Admitted {
    /// What will be booked.
    pub admitted: Box<Event>,
}
