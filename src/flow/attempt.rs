//! One try: the next target, its credential and its request; and what follows when it fails.

use super::ticket::{Running, Ticket};
use crate::base::{Credential, EventId, Proof, Secret};
use crate::config::Unpriced;
use crate::meter::Attempt as Tried;
use crate::route::breaker::Outcome;
use crate::route::live::{Block, Pass, Wanted};
use crate::route::plan::Next;
use crate::route::rest::{Rest, Why};
use crate::route::{Choice, Fault, Plan, Provider};
use smol_str::SmolStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_filters::dialect::Memo;
use weir_filters::error::{ApiError, Class, Code, Failure, spent};
use weir_filters::usage::{NanoUsd, Price, Usage};
use weir_filters::wire::{Ask, Outgoing, ReplyContext, Tap, Wire};

/// A credential rests no longer than this, whatever its provider says: then it is asked again, and
/// may say it once more. No mistake of a provider's clock puts it out for ever.
const REST_MAX: Duration = Duration::from_secs(3_600);
/// The same where it was not turned away yet.
const SPENT_REST_MAX: Duration = Duration::from_secs(60);

/// What a try sends, and to whom.
#[derive(Debug)]
pub struct Attempt {
    /// Whose.
    pub provider: Arc<Provider>,
    /// With what.
    pub credential: Option<Arc<Credential>>,
    /// What it shows of it, where that is no signature.
    pub token: Option<Secret>,
    /// What all tries of its request bear alike, for a provider that knows it again by it.
    pub idempotency: Option<String>,
    /// The request.
    pub outgoing: Outgoing,
    /// For the reply's filter.
    pub context: ReplyContext,
    /// For the reply's filter, of the dialect.
    pub memo: Memo,
}

/// What follows when a try is asked for.
#[derive(Debug)]
pub enum Step {
    /// It is made.
    Try(Box<Attempt>),
    /// Everybody is too fast or without a token, and one of them not for long: after this wait it
    /// is asked for again.
    Wait(Duration),
}

impl Ticket {
    /// Makes the next try's request.
    ///
    /// # Errors
    /// What the caller is told when there is nobody to ask, or the provider cannot be asked this.
    pub fn attempt(&mut self, now: Instant) -> Result<Step, ApiError> {
        let mut refused = None;
        loop {
            let Some(admission) = self.admission.as_mut() else {
                return Err(ApiError::new(Code::Internal, "a try without an admission"));
            };
            if let Some(wait) = admission.plan.awaits_token(now) {
                return Ok(Step::Wait(wait));
            }
            let Some(choice) = admission.plan.choose(now) else {
                if admission.plan.force(now) || self.fall_back(now) || self.relax() {
                    continue;
                }
                if let Some(wait) = self.patience(now) {
                    return Ok(Step::Wait(wait));
                }
                return Err(refused.unwrap_or_else(|| self.nobody(now)));
            };
            match self.try_on(&choice, now) {
                Ok(Some(attempt)) => return Ok(Step::Try(Box::new(attempt))),
                Ok(None) => {}
                Err(error) if error.code == Code::UpstreamRateLimited => return Err(error),
                Err(error) => drop(refused.get_or_insert(error)),
            }
            if let Some(admission) = self.admission.as_mut() {
                admission.plan.skip();
            }
        }
    }

    fn relax(&mut self) -> bool {
        self.admission.as_mut().is_some_and(|admission| admission.plan.relax())
    }

    fn patience(&mut self, now: Instant) -> Option<Duration> {
        let plan = &mut self.admission.as_mut()?.plan;
        plan.patience(now, |most| fastrand::u64(0..=most))
    }

    /// What all tries bear alike; each part of a list is a request of its own.
    fn same(&self) -> String {
        format!("weir-{}-{}", self.event_id.0.simple(), self.parts.done())
    }

    /// A try on this target; `None` where it cannot be asked now.
    fn try_on(&mut self, choice: &Choice, now: Instant) -> Result<Option<Attempt>, ApiError> {
        let capped = self.capped(choice)?;
        let Some(admission) = self.admission.as_mut() else { return Ok(None) };
        let provider = choice.provider.clone();
        let Ok(pass) = Pass::take(&choice.live, &provider.breaker, now) else { return Ok(None) };
        let wanted = Wanted { insist: admission.plan.insists(), tokens: admission.need.tokens() };
        let key = match provider.live(now).credential(&choice.live, wanted, now) {
            Ok(key) => key,
            Err(Block::Resting(rest)) if rest.is_rate() && admission.plan.model().return_429 => {
                let why = "the provider limits our rate now";
                let wait = rest.until.saturating_duration_since(now);
                return Err(ApiError::new(Code::UpstreamRateLimited, why).after(wait));
            }
            Err(_) => return Ok(None),
        };
        let token = match key.credential.as_ref().map(|c| c.proof.show(now)) {
            None => None,
            Some(Ok(token)) => token,
            // It ended between the two looks.
            Some(Err(_)) => return Ok(None),
        };
        let offer = provider.offer(&choice.model);
        let ask = Ask {
            peek: capped.as_ref().unwrap_or(&admission.peek),
            model: &choice.model,
            quirks: &provider.quirks,
            params: &provider.params,
            max_output: offer.and_then(|o| o.max_output).unwrap_or(0),
            base_url: &provider.base.path,
            api_version: provider.api_version.as_deref(),
        };
        let (mut outgoing, memo) = self.arrival.api.request(provider.wire, &ask)?;
        if admission.plan.model().strict {
            takes_all(&outgoing)?;
        }
        admission.plan.begin();
        let created = u64::try_from(self.arrival.ts.as_second()).unwrap_or(0);
        let context = ReplyContext {
            usage_asked: admission.peek.include_usage,
            strip_usage: outgoing.strip_usage,
            id: reply_id(self.event_id),
            created,
            model: choice.model.clone(),
            encoding: offer.and_then(|o| o.encoding),
            prompt_tokens: admission.prompt_tokens,
        };
        let price = offer.and_then(|o| o.price.clone()).or_else(|| self.default_price());
        self.record.dropped = outgoing.dropped.clone();
        if !memo.parts().is_empty() || self.parts.is_begun() {
            self.portion(&mut outgoing, memo.parts(), (&provider.id, &choice.model));
        }
        self.running = Some(Running {
            provider: provider.clone(),
            model: choice.model.clone(),
            credential: key.credential.clone(),
            key: key.at,
            pass: Some(pass),
            seat: key.seat,
            price,
            began: now,
            status: 0,
            sent: false,
        });
        let idempotency = provider.idempotency.as_ref().map(|_| self.same());
        let credential = key.credential;
        Ok(Some(Attempt { provider, credential, token, idempotency, outgoing, context, memo }))
    }

    /// The running try is connected: from here on the provider may have seen it.
    pub fn connected(&mut self, now: Instant) {
        if let Some(running) = self.running.as_mut() {
            running.sent = true;
            running.began = now;
        }
    }

    /// The provider's status has come.
    pub fn replied(&mut self, status: u16) {
        if let Some(running) = self.running.as_mut() {
            running.status = status;
        }
    }

    /// A good reply's headers tell what is left of the provider's limits. Where that is too little
    /// for another request like this one, the credential rests for this model as if it had been
    /// turned away, by our own guess: others are asked first while there are others.
    pub fn told_left(&mut self, header: &dyn Fn(&str) -> Option<String>, now: Instant) {
        let (Some(running), Some(admission)) = (&self.running, &self.admission) else { return };
        let provider = &running.provider;
        if provider.credentials.len() < 2 && !admission.plan.has_other() {
            return;
        }
        let anthropic = provider.wire == Wire::Anthropic;
        let Some(spent) = spent(anthropic, admission.prompt_tokens, header) else { return };
        let wait = spent.reset.unwrap_or(provider.cooldown.rate).min(SPENT_REST_MAX);
        let rest = Rest { until: now + wait, why: Why::Rate, named: false };
        let live = provider.live(now);
        live.lie_down(&live.target(&running.model, now), running.key, rest, now);
    }

    /// The running try met a pooled connection that had died: it does not count.
    pub fn stale(&mut self) {
        if let Some(admission) = self.admission.as_mut() {
            admission.plan.unbegin();
        }
    }

    /// The running try has failed before anything reached the caller: books it, and says what
    /// follows. `tap` is what its reply had told by then.
    pub fn failed(
        &mut self,
        fault: Fault,
        failure: &Failure,
        now: Instant,
        tap: Option<&mut Tap>,
    ) -> Next {
        if self.may_be_billed(fault) {
            self.record.wasted = self.record.wasted.saturating_add(self.wasted_by(tap));
        }
        let Some(mut running) = self.running.take() else { return Next::Stop };
        self.record.failure = Some(failure.clone());
        self.record.attempts.push(Tried {
            provider: running.provider.id.text(),
            model: SmolStr::new(&*running.model),
            status: running.status,
            duration_ms: millis(now.saturating_duration_since(running.began)),
            error: Some(label(fault, failure).into()),
        });
        let Some(admission) = self.admission.as_mut() else { return Next::Stop };
        let before = admission.plan.targets_tried();
        self.record.targets_failed = self.record.targets_failed.max(before);
        if let Some(pass) = running.pass.take() {
            let bad = judge(fault, failure) == Outcome::Bad;
            let counts = bad && (pass.is_probe() || admission.plan.first_bad());
            pass.settle(if counts { Outcome::Bad } else { Outcome::Neutral }, now);
        }
        if let Some(seat) = running.seat.take().filter(|_| running.sent) {
            // A status is no answer; what was cut or came too late may have been worked on.
            let refused = matches!(fault, Fault::Status(_) | Fault::Auth | Fault::Quota);
            seat.settle(refused.then_some(0));
        }
        if failure.class == Class::Auth && running.renews(now) && admission.plan.renew(now) {
            return Next::Again(Duration::ZERO);
        }
        let rests = rest(&running, failure, now);
        if failure.class == Class::ContentFilter && running.provider.failover.on.filter {
            return admission.plan.failed(Fault::Filter, now, None, |_| 0);
        }
        if final_class(failure.class) {
            return if self.goes_longer(failure.class) { Next::Other } else { Next::Stop };
        }
        if rests && other_key(&mut admission.plan, fault, now) {
            return Next::Again(Duration::ZERO);
        }
        let asked = match failure.class {
            // Above the limit in one request: no wait of ours is long enough.
            Class::RateHopeless => Some(Duration::MAX),
            _ => failure.retry_after,
        };
        admission.plan.failed(fault, now, asked, |most| fastrand::u64(0..=most))
    }

    /// A failed try costs nothing when it never got out, or was turned away with a status.
    fn may_be_billed(&self, fault: Fault) -> bool {
        let worked = matches!(
            fault,
            Fault::ResetBeforeHeaders | Fault::FirstToken | Fault::Reply | Fault::Invalid
        );
        worked && self.running.as_ref().is_some_and(|r| r.sent)
    }

    /// What a billed try may have cost: its prompt and what it had generated.
    fn wasted_by(&self, tap: Option<&mut Tap>) -> u64 {
        let (Some(price), Some(admission)) = (self.price(), &self.admission) else { return 0 };
        let counted = Usage { input: admission.prompt_tokens, ..Usage::default() };
        let usage = tap.map_or(counted, |tap| {
            let output = tap.counter.total();
            let told = tap.usage.filter(Usage::is_plausible);
            told.unwrap_or(Usage { output, ..counted })
        });
        price.cost(&usage).min(NanoUsd::ANSWER_MAX).0
    }

    pub(super) fn price(&self) -> Option<Arc<Price>> {
        self.running.as_ref().and_then(|r| r.price.clone())
    }

    fn default_price(&self) -> Option<Arc<Price>> {
        match &self.snapshot.server.unpriced {
            Unpriced::Price(price) => Some(price.clone()),
            Unpriced::Warn | Unpriced::Refuse => None,
        }
    }
}

impl Running {
    /// The provider has refused its token, and another one is fetched.
    fn renews(&self, now: Instant) -> bool {
        match self.credential.as_ref().map(|credential| &credential.proof) {
            Some(Proof::Lease(lease)) => lease.refused(now),
            _ => false,
        }
    }
}

/// The id of a reply that has none.
fn reply_id(event: EventId) -> String {
    let mut hex = uuid::Uuid::encode_buffer();
    ["chatcmpl-", event.0.simple().encode_lower(&mut hex)].concat()
}

/// A strict model's request loses no field.
fn takes_all(outgoing: &Outgoing) -> Result<(), ApiError> {
    let Some(field) = outgoing.dropped.first() else { return Ok(()) };
    let why = format!("the provider cannot take `{field}`, and the model is strict");
    Err(ApiError::new(Code::InvalidRequest, why).param(field.clone()))
}

/// Errors of the request itself: no other target would take it either.
fn final_class(class: Class) -> bool {
    matches!(
        class,
        Class::BadRequest | Class::ContextLength | Class::ContentFilter | Class::TooLarge
    )
}

fn label(fault: Fault, failure: &Failure) -> String {
    match fault {
        Fault::Connect => "connect".into(),
        Fault::ResetBeforeHeaders => "reset_before_headers".into(),
        Fault::Status(s) => s.to_string(),
        Fault::FirstToken => "first_token".into(),
        Fault::Reply => "reply".into(),
        Fault::Invalid => failure.code.clone().unwrap_or_else(|| "invalid".into()),
        Fault::Auth => "auth".into(),
        Fault::Quota => "quota".into(),
        Fault::Filter => "content_filter".into(),
    }
}

/// What a failed try says of its target. Callers' mistakes, refused credentials and limits say
/// nothing, whichever way they come.
fn judge(fault: Fault, failure: &Failure) -> Outcome {
    let health = matches!(
        failure.class,
        Class::Server | Class::Overloaded | Class::Timeout | Class::Invalid
    );
    match fault {
        Fault::Status(status) if status < 500 => Outcome::Neutral,
        Fault::Auth | Fault::Quota | Fault::Filter => Outcome::Neutral,
        _ if health => Outcome::Bad,
        _ => Outcome::Neutral,
    }
}

/// Sends the credential of a failed try to rest, where that is what failed.
fn rest(running: &Running, failure: &Failure, now: Instant) -> bool {
    let cooldown = &running.provider.cooldown;
    let named = failure.retry_after;
    let (why, wait) = match failure.class {
        Class::Auth => (Why::Auth, cooldown.auth),
        Class::Quota => (Why::Quota, cooldown.quota),
        Class::RateLimited => (Why::Rate, named.unwrap_or(cooldown.rate).min(REST_MAX)),
        _ => return false,
    };
    let rest = Rest { until: now + wait, why, named: named.is_some() };
    let live = running.provider.live(now);
    let target = live.target(&running.model, now);
    if live.lie_down(&target, running.key, rest, now) && why != Why::Rate {
        let provider = running.provider.id.as_str();
        let credential = running.credential.as_ref().map_or("", |c| c.name.as_str());
        let reason = if why == Why::Auth { "refused" } else { "out of money or quota" };
        let seconds = wait.as_secs();
        log::warn!(provider, credential, reason, seconds; "credential_out");
    }
    true
}

/// Whether the target is asked again at once, with another of its credentials.
fn other_key(plan: &mut Plan, fault: Fault, now: Instant) -> bool {
    let Some(choice) = plan.current().cloned() else { return false };
    let live = choice.provider.live(now);
    let free = live.check(&choice.live, &choice.provider.breaker, plan.tokens(), now);
    !matches!(free, Err(Block::Resting(_) | Block::Full(_)))
        && !choice.provider.credentials.is_empty()
        && plan.other_key(fault, now)
}

/// Whole milliseconds, saturating.
pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
