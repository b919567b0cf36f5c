//! The usage event: a JSON line in the spool, a row in the ledger.

use crate::base::EventId;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use weir_filters::line::{Line, string};
use weir_filters::name;
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
    pub provider: SmolStr,
    /// The provider's name of the model.
    pub model: SmolStr,
    /// The provider's HTTP status; 0 when none came.
    pub status: u16,
    /// From the connect on.
    pub duration_ms: u64,
    /// What went wrong; absent on the one that served.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<SmolStr>,
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
#[allow(missing_docs)] // each is a member of the line by its name
pub struct Event {
    pub event_id: EventId,
    /// RFC 3339, UTC, when the request came.
    pub ts: jiff::Timestamp,
    #[serde(default)]
    pub request_id: String,
    #[serde(default)]
    pub trace_id: String,
    pub key_id: Option<SmolStr>,
    pub key_name: Option<SmolStr>,
    pub team: Option<SmolStr>,
    pub department: Option<SmolStr>,
    pub user: Option<SmolStr>,
    pub end_user: Option<SmolStr>,
    #[serde(default)]
    pub tags: Vec<String>,
    pub task_type: Option<SmolStr>,
    pub budget_tier: Option<SmolStr>,
    pub endpoint: SmolStr,
    #[serde(default)]
    pub dialect: SmolStr,
    pub requested_model: Option<SmolStr>,
    pub provider: Option<SmolStr>,
    pub credential: Option<SmolStr>,
    pub model: Option<SmolStr>,
    pub limited_by: Option<SmolStr>,
    pub status: u16,
    pub error_code: Option<SmolStr>,
    pub outcome: Outcome,
    #[serde(default)]
    pub streamed: bool,
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub cached_tokens: u64,
    #[serde(default)]
    pub cache_write_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    #[serde(default)]
    pub reasoning_tokens: u64,
    #[serde(default)]
    pub usage_source: Source,
    #[serde(default)]
    pub units: Units,
    pub cost_nano_usd: Option<NanoUsd>,
    #[serde(default)]
    pub wasted_cost_nano_usd: NanoUsd,
    pub price_source: Option<SmolStr>,
    #[serde(default)]
    pub reserved_tokens: u64,
    pub ttft_ms: Option<u64>,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub overhead_us: u64,
    pub cache: Option<SmolStr>,
    pub degraded_from: Option<SmolStr>,
    #[serde(default)]
    pub config_version: SmolStr,
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
        e.tags.truncate(LIST_KEEP);
        let ids = [&mut e.request_id, &mut e.trace_id].into_iter().chain(&mut e.tags);
        ids.for_each(|text| text.truncate(kept(text)));
        [&mut e.endpoint, &mut e.dialect].into_iter().for_each(shorten);
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
        e.attempts.truncate(LIST_KEEP);
        for a in &mut e.attempts {
            shorten(&mut a.provider);
            shorten(&mut a.model);
            a.error.iter_mut().for_each(shorten);
        }
        e
    }
}

impl Event {
    /// What was used, class by class.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            input: self.input_tokens,
            cached: self.cached_tokens,
            cache_write: self.cache_write_tokens,
            output: self.output_tokens,
            reasoning: self.reasoning_tokens,
        }
    }

    /// Sets what was used.
    pub fn set_usage(&mut self, usage: Usage) {
        self.input_tokens = usage.input;
        self.cached_tokens = usage.cached;
        self.cache_write_tokens = usage.cache_write;
        self.output_tokens = usage.output;
        self.reasoning_tokens = usage.reasoning;
    }

    /// Writes it as one JSON object, member for member what serde writes. By hand, since every
    /// request pays for it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.reserve(1024);
        let mut line = Line::open(out);
        let mut id = uuid::Uuid::encode_buffer();
        let id = self.event_id.0.hyphenated().encode_lower(&mut id);
        line.text(name!("event_id"), id).plain(name!("ts"), &self.ts);
        line.text(name!("request_id"), &self.request_id).text(name!("trace_id"), &self.trace_id);
        self.write_caller(&mut line);
        line.text(name!("endpoint"), &self.endpoint).text(name!("dialect"), &self.dialect);
        line.maybe(name!("requested_model"), self.requested_model.as_deref());
        line.maybe(name!("provider"), self.provider.as_deref());
        line.maybe(name!("credential"), self.credential.as_deref());
        line.maybe(name!("model"), self.model.as_deref());
        line.maybe(name!("limited_by"), self.limited_by.as_deref());
        line.number(name!("status"), self.status.into());
        line.maybe(name!("error_code"), self.error_code.as_deref());
        line.text(name!("outcome"), self.outcome.as_str()).flag(name!("streamed"), self.streamed);
        line.list(name!("attempts"), &self.attempts, Attempt::write);
        self.write_use(&mut line);
        line.number(name!("reserved_tokens"), self.reserved_tokens)
            .count(name!("ttft_ms"), self.ttft_ms);
        line.number(name!("duration_ms"), self.duration_ms)
            .number(name!("overhead_us"), self.overhead_us);
        line.maybe(name!("cache"), self.cache.as_deref());
        line.maybe(name!("degraded_from"), self.degraded_from.as_deref());
        line.text(name!("config_version"), &self.config_version);
        line.close();
    }

    fn write_caller(&self, line: &mut Line<'_>) {
        line.maybe(name!("key_id"), self.key_id.as_deref())
            .maybe(name!("key_name"), self.key_name.as_deref());
        line.maybe(name!("team"), self.team.as_deref())
            .maybe(name!("department"), self.department.as_deref());
        line.maybe(name!("user"), self.user.as_deref())
            .maybe(name!("end_user"), self.end_user.as_deref());
        line.list(name!("tags"), &self.tags, |tag, out| string(tag, out));
        line.maybe(name!("task_type"), self.task_type.as_deref());
        line.maybe(name!("budget_tier"), self.budget_tier.as_deref());
    }

    fn write_use(&self, line: &mut Line<'_>) {
        line.number(name!("input_tokens"), self.input_tokens);
        line.number(name!("cached_tokens"), self.cached_tokens);
        line.number(name!("cache_write_tokens"), self.cache_write_tokens);
        line.number(name!("output_tokens"), self.output_tokens);
        line.number(name!("reasoning_tokens"), self.reasoning_tokens);
        line.text(name!("usage_source"), self.usage_source.as_str());
        let units = &self.units;
        line.object(name!("units"), |line| {
            line.number(name!("images"), units.images);
            line.fraction(name!("seconds"), units.seconds);
            line.number(name!("characters"), units.characters);
        });
        line.count(name!("cost_nano_usd"), self.cost_nano_usd.map(|cost| cost.0));
        line.number(name!("wasted_cost_nano_usd"), self.wasted_cost_nano_usd.0);
        line.maybe(name!("price_source"), self.price_source.as_deref());
    }
}

impl Attempt {
    fn write(&self, out: &mut Vec<u8>) {
        let mut line = Line::open(out);
        line.text(name!("provider"), &self.provider).text(name!("model"), &self.model);
        line.number(name!("status"), self.status.into())
            .number(name!("duration_ms"), self.duration_ms);
        if let Some(error) = &self.error {
            line.text(name!("error"), error);
        }
        line.close();
    }
}

impl Admitted {
    /// As [`Event::write`].
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"admitted\":");
        self.admitted.write(out);
        out.push(b'}');
    }
    /// As [`Event::shortened`].
    pub(super) fn shortened(&self) -> Self {
        Self { admitted: Box::new(self.admitted.shortened()) }
    }
}

fn shorten(text: &mut SmolStr) {
    *text = SmolStr::new(&text[..kept(text)]);
}

fn kept(text: &str) -> usize {
    text.floor_char_boundary(NAME_KEEP)
}

fn null_as_zero<'de, D: serde::Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(d)?.unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // tests
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A new one, as short as they are.
    pub fn event() -> Event {
        let id = EventId::now();
        let line = format!(
            "{{\"event_id\":\"{id}\",\"ts\":\"2026-11-30T08:00:00Z\",\"endpoint\":\"chat\",\
             \"status\":200,\"outcome\":\"success\"}}"
        );
        serde_json::from_str(&line).unwrap()
    }

    fn maybe() -> impl Strategy<Value = Option<SmolStr>> {
        proptest::option::of("\\PC{0,12}[\"\\\\\n]?".prop_map(SmolStr::from))
    }

    prop_compose! {
        fn any_event()(
            texts in proptest::collection::vec(maybe(), 17),
            lists in (proptest::collection::vec("\\PC{0,6}", 0..3), 0..3usize),
            numbers in proptest::array::uniform12(any::<u64>()),
            status in any::<u16>(),
            streamed in any::<bool>(),
            seconds in prop_oneof![Just(0.0), Just(f64::NAN), Just(1e300), 0.0..1e6f64],
            nanos in 0..4_000_000_000_000_000_000i64,
        ) -> Event {
            let text = |at: usize| texts[at].clone();
            let attempt = |at| Attempt {
                provider: text(at).unwrap_or_default(),
                model: text(at + 1).unwrap_or_default(),
                status,
                duration_ms: numbers[at],
                error: text(at + 2),
            };
            Event {
                event_id: EventId::now(),
                ts: jiff::Timestamp::from_nanosecond(nanos.into()).unwrap(),
                request_id: text(0).unwrap_or_default().into(),
                trace_id: text(1).unwrap_or_default().into(),
                key_id: text(2), key_name: text(3), team: text(4), department: text(5),
                user: text(6), end_user: text(7), tags: lists.0, task_type: text(8),
                budget_tier: text(9), endpoint: "chat".into(), dialect: "openai".into(),
                requested_model: text(10), provider: text(11), credential: text(12),
                model: text(13), limited_by: text(14), status, error_code: text(15),
                outcome: Outcome::LimitCut, streamed,
                attempts: (0..lists.1).map(attempt).collect(),
                input_tokens: numbers[0],
                cached_tokens: numbers[1],
                cache_write_tokens: numbers[2],
                output_tokens: numbers[3],
                reasoning_tokens: numbers[4],
                usage_source: Source::Estimated,
                units: Units { images: numbers[5], seconds, characters: numbers[6] },
                cost_nano_usd: streamed.then_some(NanoUsd(numbers[7])),
                wasted_cost_nano_usd: NanoUsd(numbers[8]),
                price_source: text(16),
                reserved_tokens: numbers[9],
                ttft_ms: (!streamed).then_some(numbers[10]),
                duration_ms: numbers[11], overhead_us: numbers[0], cache: text(0),
                degraded_from: text(1), config_version: text(2).unwrap_or_default(),
            }
        }
    }

    proptest! {
        #[test]
        fn an_event_is_written_member_for_member_as_serde_writes_it(event in any_event()) {
            let mut out = Vec::new();
            event.write(&mut out);
            let want = serde_json::to_string(&event).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), want);
            let admitted = Admitted { admitted: Box::new(event) };
            let mut out = Vec::new();
            admitted.write(&mut out);
            let want = serde_json::to_string(&admitted).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
