//! One try: the next target, its credential and its request; and what follows when it fails.

use super::ticket::{Running, Ticket};
use crate::base::Credential;
use crate::config::Unpriced;
use crate::meter::Attempt as Tried;
use crate::route::plan::Next;
use crate::route::{Fault, Provider};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_filters::dialect::Memo;
use weir_filters::error::{ApiError, Class, Code, Failure};
use weir_filters::usage::{Price, Usage};
use weir_filters::wire::{Ask, Outgoing, ReplyContext, Tap};

/// What a try sends, and to whom.
#[derive(Debug)]
pub struct Attempt {
    /// Whose.
    pub provider: Arc<Provider>,
    /// With what.
    pub credential: Option<Arc<Credential>>,
    /// The request.
    pub outgoing: Outgoing,
    /// For the reply's filter.
    pub context: ReplyContext,
    /// For the reply's filter, of the dialect.
    pub memo: Memo,
}

impl Ticket {
    /// Makes the next try's request.
    ///
    /// # Errors
    /// What the caller is told when there is nobody to ask, or the provider cannot be asked this.
    pub fn attempt(
        &mut self,
        now: Instant,
        random: impl FnOnce(u64) -> u64,
    ) -> Result<Attempt, ApiError> {
        let Some(admission) = self.admission.as_mut() else {
            return Err(ApiError::new(Code::Internal, "a try without an admission"));
        };
        let Some(choice) = admission.plan.current().cloned() else {
            return Err(ApiError::new(Code::NoHealthyUpstream, "no target is left"));
        };
        let provider = choice.provider;
        let offer = provider.offer(&choice.model);
        let ask = Ask {
            peek: &admission.peek,
            model: &choice.model,
            quirks: &provider.quirks,
            params: &provider.params,
            max_output: offer.and_then(|o| o.max_output).unwrap_or(0),
            base_url: &provider.base.path,
            api_version: provider.api_version.as_deref(),
        };
        let (outgoing, memo) = self.arrival.api.request(provider.wire, &ask)?;
        if admission.model.strict
            && let Some(field) = outgoing.dropped.first()
        {
            let why = format!("the provider cannot take `{field}`, and the model is strict");
            return Err(ApiError::new(Code::InvalidRequest, why).param(field.clone()));
        }
        admission.plan.begin();
        let created = u64::try_from(self.arrival.ts.as_second()).unwrap_or(0);
        let context = ReplyContext {
            usage_asked: admission.peek.include_usage,
            strip_usage: outgoing.strip_usage,
            id: format!("chatcmpl-{}", self.event_id.0.simple()),
            created,
            model: choice.model.to_string(),
            encoding: offer.and_then(|o| o.encoding),
            prompt_tokens: admission.prompt_tokens,
        };
        let price = offer.and_then(|o| o.price.clone()).or_else(|| self.default_price());
        let credential = pick(&provider.credentials, random);
        self.record.dropped = outgoing.dropped.clone();
        self.running = Some(Running {
            provider: provider.clone(),
            model: choice.model,
            credential: credential.clone(),
            price,
            began: now,
            status: 0,
            sent: false,
        });
        Ok(Attempt { provider, credential, outgoing, context, memo })
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
        let elapsed = now.saturating_duration_since(self.arrival.at);
        if self.may_be_billed(fault) {
            self.record.wasted = self.record.wasted.saturating_add(self.wasted_by(tap));
        }
        let Some(running) = self.running.take() else { return Next::Stop };
        self.record.attempts.push(Tried {
            provider: running.provider.id.to_string(),
            model: running.model.to_string(),
            status: running.status,
            duration_ms: millis(now.saturating_duration_since(running.began)),
            error: Some(label(fault, failure)),
        });
        let Some(admission) = self.admission.as_mut() else { return Next::Stop };
        let before = admission.plan.targets_tried();
        self.record.targets_failed = self.record.targets_failed.max(before);
        if final_class(failure.class) {
            return Next::Stop;
        }
        let asked = match failure.class {
            // Above the limit in one request: no wait of ours is long enough.
            Class::RateHopeless => Some(Duration::MAX),
            _ => failure.retry_after,
        };
        admission.plan.failed(fault, elapsed, asked, |most| fastrand::u64(0..=most))
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
            tap.usage.unwrap_or(Usage { output, ..counted })
        });
        price.cost(&usage).0
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
    }
}

fn pick(
    credentials: &[Arc<Credential>],
    random: impl FnOnce(u64) -> u64,
) -> Option<Arc<Credential>> {
    let sum: u64 = credentials.iter().map(|c| u64::from(c.weight)).sum();
    if credentials.len() < 2 || sum == 0 {
        return credentials.first().cloned();
    }
    let mut ticket = random(sum);
    for credential in credentials {
        match ticket.checked_sub(u64::from(credential.weight)) {
            Some(rest) => ticket = rest,
            None => return Some(credential.clone()),
        }
    }
    credentials.last().cloned()
}

/// Whole milliseconds, saturating.
pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
