//! How a request ends: what it used, what that costs, its event, and everyone who must know.

use super::Gateway;
use super::attempt::millis;
#[cfg(debug_assertions)]
use super::failpoint;
use super::ticket::{Ending, Ticket};
use crate::meter::{Attempt as Tried, Event, Outcome, Pending};
use crate::route::breaker::Outcome as Verdict;
use smol_str::SmolStr;
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
    pub fn commit(self: Box<Self>, ending: Ending<'_>) -> Committed {
        let mut committed = self.gather(ending);
        committed.settle();
        committed
    }

    /// Makes the request's event, which is in the spool after [`Committed::settle`].
    pub fn gather(mut self: Box<Self>, ending: Ending<'_>) -> Committed {
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
        event.error_code = ending.error.map(|e| SmolStr::new_static(e.code.as_str()));
        event.set_usage(measured.usage);
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
                (ending.outcome != Outcome::Success).then(|| ending.outcome.as_str().into());
            event.attempts.push(Tried {
                provider: running.provider.id.text(),
                model: SmolStr::new(&*running.model),
                status: running.status,
                duration_ms: millis(running.began.elapsed()),
                error,
            });
        }
        let pending = (!self.record.free).then(|| self.gateway.spool.gather(&event));
        let arrival = &mut self.arrival;
        let caller = Caller {
            method: std::mem::take(&mut arrival.method),
            path: std::mem::take(&mut arrival.path),
            client: std::mem::take(&mut arrival.client),
            agent: std::mem::take(&mut arrival.agent),
        };
        Committed { gateway: self.gateway.clone(), event, pending, caller, told: false }
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
            key_id: key.map(|k| k.id.text()),
            key_name: key.map(|k| k.name.clone()),
            team: key.and_then(|k| k.team.as_ref().map(|t| t.text())),
            department: key.and_then(|k| k.department.as_ref().map(|d| d.text())),
            user: key.and_then(|k| k.user.as_ref().map(|u| u.text())),
            end_user: record.end_user.as_deref().map(SmolStr::new),
            tags: key.map(|k| k.tags.clone()).unwrap_or_default(),
            task_type: arrival.task_type.as_deref().map(SmolStr::new),
            budget_tier: arrival.budget_tier.as_deref().map(SmolStr::new),
            endpoint: SmolStr::new_static(arrival.endpoint),
            dialect: SmolStr::new_static(arrival.dialect.as_str()),
            requested_model: record.requested_model.as_deref().map(SmolStr::new),
            provider: running
                .map(|r| r.provider.id.text())
                .or_else(|| last.map(|a| a.provider.clone())),
            credential: running.and_then(|r| r.credential.as_ref().map(|c| SmolStr::new(&c.name))),
            model: running
                .map(|r| SmolStr::new(&*r.model))
                .or_else(|| last.map(|a| a.model.clone())),
            limited_by: record.limited_by.as_deref().map(SmolStr::new),
            status,
            error_code: None,
            outcome,
            streamed: record.streamed,
            attempts: record.attempts.clone(),
            input_tokens: 0,
            cached_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: 0,
            reasoning_tokens: 0,
            usage_source: Source::Estimated,
            units: crate::meter::event::Units {
                images: record.units.images,
                seconds: record.units.seconds,
                characters: record.units.characters,
            },
            cost_nano_usd: Some(NanoUsd(0)),
            wasted_cost_nano_usd: NanoUsd(record.wasted),
            price_source: running.and_then(|r| r.price.as_ref()).map(|p| SmolStr::new(&p.source)),
            reserved_tokens: self.reserved_tokens(),
            ttft_ms: record.ttft.map(millis),
            duration_ms: millis(arrival.at.elapsed()),
            overhead_us: u64::try_from(record.overhead.as_micros()).unwrap_or(u64::MAX),
            cache: None,
            degraded_from: (self.admission.as_ref())
                .and_then(|a| a.degraded.as_ref().map(|d| SmolStr::new(&d.from))),
            config_version: SmolStr::new(&self.snapshot.version),
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
    pub method: SmolStr,
    pub path: SmolStr,
    pub client: SmolStr,
    pub agent: SmolStr,
}

/// A request whose event is made. It is in flight until its last byte has left too. Then what is
/// left is to tell metrics and the access log, which [`Committed::tell`] does after the last byte,
/// and `Drop` where nobody did.
#[derive(Debug)]
#[must_use]
pub struct Committed {
    gateway: Arc<Gateway>,
    /// The event as it stands in the spool.
    pub event: Box<Event>,
    /// It is not there yet.
    pending: Option<Pending>,
    caller: Caller,
    told: bool,
}

impl Committed {
    /// The event is in the spool after this: the caller may see the end of its answer.
    pub fn settle(&mut self) {
        if let Some(pending) = self.pending.take() {
            #[cfg(debug_assertions)]
            failpoint::pass(failpoint::Point::BeforeAppend);
            self.gateway.spool.settle(pending);
            #[cfg(debug_assertions)]
            failpoint::pass(failpoint::Point::AfterAppend);
        }
    }

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
        self.settle();
        self.tell_once();
    }
}
