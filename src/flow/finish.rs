//! How a request ends: what it used, what that costs, its event, and everyone who must know.

use super::Gateway;
use super::attempt::millis;
#[cfg(debug_assertions)]
use super::failpoint;
use super::ticket::{Ending, Ticket};
use crate::meter::{Attempt as Tried, Event, Outcome};
use crate::route::breaker::Outcome as Verdict;
use std::sync::Arc;
use std::time::Instant;
use weir_filters::usage::{NanoUsd, Source, Usage};
use weir_filters::wire::Tap;

/// What a reply used, and what that costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Tokens.
    pub usage: Usage,
    /// Whose numbers they are.
    pub source: Source,
    /// `None`: the model has no price.
    pub cost: Option<NanoUsd>,
    /// The provider's own numbers were beyond belief, and our estimate stands for them.
    pub doubted: bool,
}

impl Ticket {
    /// What the running try's reply used so far. A provider's own numbers win; else the prompt's
    /// estimate and the text that passed are counted, once the provider had begun to answer, or
    /// was left at work by the caller or by us. A provider that failed before any content is owed
    /// nothing here (its part stands under `wasted`).
    pub fn measure(&self, outcome: Outcome, tap: Option<&mut Tap>) -> Measured {
        let Some(running) = self.running.as_ref().filter(|r| r.sent) else {
            return Measured {
                usage: Usage::default(),
                source: Source::Estimated,
                cost: Some(NanoUsd(0)),
                doubted: false,
            };
        };
        let told = tap.as_deref().and_then(|tap| tap.usage);
        let cost = |usage: &Usage| {
            let price = running.price.as_ref();
            price.map(|p| p.cost_with(usage, &self.record.units))
        };
        let sound = |usage: &Usage| {
            usage.is_plausible() && cost(usage).is_none_or(|c| c <= NanoUsd::ANSWER_MAX)
        };
        let doubted = told.is_some_and(|usage| !sound(&usage));
        let prompt = self.admission.as_ref().map_or(0, |a| a.prompt_tokens);
        let estimate = Usage { input: prompt, ..Usage::default() };
        let (usage, source) = match tap {
            Some(tap) => match told.filter(|_| !doubted) {
                Some(usage) if outcome == Outcome::Success => (usage, Source::Provider),
                // The answer was cut: the provider's last word on the prompt stands, and what it
                // had said of its output is not less than what we saw pass.
                Some(usage) => {
                    let output = usage.output.max(tap.counter.total());
                    (Usage { output, ..usage }, tap.counter.source())
                }
                None => {
                    let (output, reasoning) = (tap.counter.total(), tap.counter.reasoning());
                    let source = if doubted { Source::Estimated } else { tap.counter.source() };
                    (Usage { output, reasoning, ..estimate }, source)
                }
            },
            None if matches!(outcome, Outcome::ClientAbort | Outcome::Interrupted) => {
                (estimate, Source::Estimated)
            }
            None => (Usage::default(), Source::Estimated),
        };
        // Units may be as absurd as tokens.
        let cost = cost(&usage).map(|cost| cost.min(NanoUsd::ANSWER_MAX));
        Measured { usage, source, cost, doubted }
    }

    /// Writes the request's event. After this line is in the spool the caller may see the end.
    pub fn commit(mut self: Box<Self>, ending: Ending<'_>) -> Committed {
        self.write(ending)
    }

    pub(super) fn write(&mut self, mut ending: Ending<'_>) -> Committed {
        self.done = true;
        if ending.outcome != Outcome::Success {
            self.waste_parts();
        }
        let mut tap = ending.tap.take();
        let measured = self.measure(ending.outcome, tap.as_deref_mut());
        self.learn(ending.outcome, &measured, tap.as_deref());
        self.settle(&measured);
        self.compare(ending.outcome, &measured, tap);
        // Nobody asks for them again.
        let request_id = std::mem::take(&mut self.arrival.request_id);
        let trace_id = std::mem::take(&mut self.arrival.trace_id);
        let mut event =
            Box::new(Event { request_id, trace_id, ..self.event(ending.outcome, ending.status) });
        event.error_code = ending.error.map(|e| e.code.as_str().to_owned());
        event.usage = measured.usage.into();
        event.usage_source = measured.source;
        event.cost_nano_usd = measured.cost;
        if let Some(running) = self.running.as_mut() {
            if let Some(pass) = running.pass.take() {
                pass.settle(judge(&ending), Instant::now());
            }
            if let Some(seat) = running.seat.take().filter(|_| running.sent) {
                seat.settle(Some(measured.usage.total()));
            }
            let error =
                (ending.outcome != Outcome::Success).then(|| ending.outcome.as_str().to_owned());
            event.attempts.push(Tried {
                provider: running.provider.id.as_str().to_owned(),
                model: running.model.to_string(),
                status: running.status,
                duration_ms: millis(running.began.elapsed()),
                error,
            });
        }
        if !self.record.free {
            #[cfg(debug_assertions)]
            failpoint::pass(failpoint::Point::BeforeAppend);
            self.gateway.spool.append(&event);
            #[cfg(debug_assertions)]
            failpoint::pass(failpoint::Point::AfterAppend);
        }
        let arrival = &mut self.arrival;
        let caller = Caller {
            method: std::mem::take(&mut arrival.method),
            path: std::mem::take(&mut arrival.path),
            client: std::mem::take(&mut arrival.client),
            agent: std::mem::take(&mut arrival.agent),
        };
        Committed { gateway: self.gateway.clone(), event, caller, told: false }
    }

    /// The event as far as it is known without the reply's numbers.
    pub(super) fn event(&self, outcome: Outcome, status: u16) -> Event {
        let (arrival, record) = (&self.arrival, &self.record);
        let key = self.key.as_deref();
        let running = self.running.as_ref();
        let last = record.attempts.last();
        Event {
            event_id: self.event_id,
            ts: arrival.ts,
            request_id: arrival.request_id.clone(),
            trace_id: arrival.trace_id.clone(),
            key_id: key.map(|k| k.id.as_str().to_owned()),
            key_name: key.map(|k| k.name.clone()),
            team: key.and_then(|k| k.team.as_ref().map(|t| t.as_str().to_owned())),
            department: key.and_then(|k| k.department.as_ref().map(|d| d.as_str().to_owned())),
            user: key.and_then(|k| k.user.as_ref().map(|u| u.as_str().to_owned())),
            end_user: record.end_user.clone(),
            tags: key.map(|k| k.tags.clone()).unwrap_or_default(),
            task_type: arrival.task_type.clone(),
            budget_tier: arrival.budget_tier.clone(),
            endpoint: arrival.endpoint.into(),
            dialect: arrival.dialect.as_str().into(),
            requested_model: record.requested_model.clone(),
            provider: running
                .map(|r| r.provider.id.as_str().to_owned())
                .or_else(|| last.map(|a| a.provider.clone())),
            credential: running.and_then(|r| r.credential.as_ref().map(|c| c.name.clone())),
            model: running.map(|r| r.model.to_string()).or_else(|| last.map(|a| a.model.clone())),
            limited_by: record.limited_by.as_ref().map(ToString::to_string),
            status,
            error_code: None,
            outcome,
            streamed: record.streamed,
            attempts: record.attempts.clone(),
            usage: Usage::default().into(),
            usage_source: Source::Estimated,
            units: crate::meter::event::Units {
                images: record.units.images,
                seconds: record.units.seconds,
                characters: record.units.characters,
            },
            cost_nano_usd: Some(NanoUsd(0)),
            wasted_cost_nano_usd: NanoUsd(record.wasted),
            price_source: self.price().map(|p| p.source.clone()),
            reserved_tokens: self.reserved_tokens(),
            ttft_ms: record.ttft.map(millis),
            duration_ms: millis(arrival.at.elapsed()),
            overhead_us: u64::try_from(record.overhead.as_micros()).unwrap_or(u64::MAX),
            cache: None,
            degraded_from: (self.admission.as_ref())
                .and_then(|a| a.degraded.as_ref().map(|d| d.from.clone())),
            config_version: self.snapshot.version.clone(),
        }
    }

    /// The first content has come.
    pub fn first_content(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.arrival.at);
        self.record.ttft.get_or_insert(since);
        if let Some(running) = self.running.as_mut()
            && let Some(pass) = running.pass.as_mut()
        {
            let time = now.saturating_duration_since(running.began);
            pass.started(self.record.streamed, time, now);
        }
    }
}

/// What the end of an answer says of the target that gave it. A caller that left, a drain, a
/// limit and an error that is the request's own say nothing.
fn judge(ending: &Ending<'_>) -> Verdict {
    use weir_filters::error::Code;
    match ending.outcome {
        Outcome::Success => Verdict::Good,
        Outcome::Truncated | Outcome::Timeout => Verdict::Bad,
        Outcome::UpstreamError => match ending.error.map(|e| e.code) {
            None
            | Some(
                Code::UpstreamError
                | Code::UpstreamInvalidResponse
                | Code::NoHealthyUpstream
                | Code::UpstreamTimeout,
            ) => Verdict::Bad,
            Some(_) => Verdict::Neutral,
        },
        _ => Verdict::Neutral,
    }
}

/// What the access log says of a request and its event does not, as in [`super::Arrival`].
#[derive(Debug)]
pub(super) struct Caller {
    pub method: String,
    pub path: String,
    pub client: String,
    pub agent: String,
}

/// A request whose event is written. It is in flight until its last byte has left too. Then
/// what is left is to tell metrics and the access log, which
/// [`Committed::tell`] does after the last byte, and `Drop` where nobody did.
#[derive(Debug)]
#[must_use]
pub struct Committed {
    gateway: Arc<Gateway>,
    /// The event as it stands in the spool.
    pub event: Box<Event>,
    caller: Caller,
    told: bool,
}

impl Committed {
    /// Metrics and the access log.
    pub fn tell(mut self) {
        self.tell_once();
    }

    fn tell_once(&mut self) {
        if !std::mem::replace(&mut self.told, true) {
            super::tell::tell(&self.gateway, &self.event, &self.caller);
            self.gateway.left();
        }
    }
}

impl Drop for Committed {
    fn drop(&mut self) {
        self.tell_once();
    }
}
