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
#[serde(default)]
pub struct Units {
    /// Images made or read.
    pub images: u64,
    /// Seconds of audio. JSON has no NaN: it is written as null, and read as 0.
    #[serde(deserialize_with = "null_as_zero")]
    pub seconds: f64,
    /// Characters of speech.
    pub characters: u64,
}

/// One request. A line of an older version lacks what came later: but for identity, time, endpoint
/// and end, every member has a default, and members of a newer version are passed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are CONTRACT's, and documented there
pub struct Event {
    pub event_id: EventId,
    /// RFC 3339, UTC, when the request came.
    pub ts: jiff::Timestamp,
    #[serde(default)]
    pub request_id: String,
    #[serde(default)]
    pub trace_id: String,
    pub key_id: Option<String>,
    pub key_name: Option<String>,
    pub team: Option<String>,
    pub department: Option<String>,
    pub user: Option<String>,
    pub end_user: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    pub task_type: Option<String>,
    pub budget_tier: Option<String>,
    pub endpoint: String,
    #[serde(default)]
    pub dialect: String,
    pub requested_model: Option<String>,
    pub provider: Option<String>,
    pub credential: Option<String>,
    pub model: Option<String>,
    pub limited_by: Option<String>,
    pub status: u16,
    pub error_code: Option<String>,
    pub outcome: Outcome,
    #[serde(default)]
    pub streamed: bool,
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// `input_tokens`, `cached_tokens`, `cache_write_tokens`, `output_tokens`, `reasoning_tokens`.
    #[serde(flatten)]
    pub usage: EventUsage,
    #[serde(default)]
    pub usage_source: Source,
    #[serde(default)]
    pub units: Units,
    pub cost_nano_usd: Option<NanoUsd>,
    #[serde(default)]
    pub wasted_cost_nano_usd: NanoUsd,
    pub price_source: Option<String>,
    #[serde(default)]
    pub reserved_tokens: u64,
    pub ttft_ms: Option<u64>,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub overhead_us: u64,
    pub cache: Option<String>,
    pub degraded_from: Option<String>,
    #[serde(default)]
    pub config_version: String,
}

/// [`Usage`] under the ledger's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // as above
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

/// What is left of a name in a line that would be too long for a reader, in bytes.
const NAME_KEEP: usize = 256;
/// And of its lists.
const LIST_KEEP: usize = 64;

impl Event {
    /// A copy whose names and lists are cut so that its line fits: a request may name a model of a
    /// megabyte, and is refused, and is an event all the same.
    pub(super) fn shortened(&self) -> Self {
        let mut e = self.clone();
        let texts = [&mut e.request_id, &mut e.trace_id, &mut e.endpoint, &mut e.dialect];
        texts.into_iter().for_each(shorten);
        let options = [
            &mut e.key_id,
            &mut e.key_name,
            &mut e.team,
            &mut e.department,
            &mut e.user,
            &mut e.end_user,
            &mut e.task_type,
            &mut e.budget_tier,
            &mut e.requested_model,
            &mut e.provider,
            &mut e.credential,
            &mut e.model,
            &mut e.limited_by,
            &mut e.error_code,
            &mut e.price_source,
            &mut e.cache,
            &mut e.degraded_from,
        ];
        options.into_iter().flatten().for_each(shorten);
        e.tags.truncate(LIST_KEEP);
        e.tags.iter_mut().for_each(shorten);
        e.attempts.truncate(LIST_KEEP);
        for a in &mut e.attempts {
            shorten(&mut a.provider);
            shorten(&mut a.model);
            a.error.iter_mut().for_each(shorten);
        }
        e
    }
}

impl Admitted {
    /// As [`Event::shortened`].
    pub(super) fn shortened(&self) -> Self {
        Self { admitted: Box::new(self.admitted.shortened()) }
    }
}

fn shorten(text: &mut String) {
    text.truncate(text.floor_char_boundary(NAME_KEEP));
}

fn null_as_zero<'de, D: serde::Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(d)?.unwrap_or_default())
}
