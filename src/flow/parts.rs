//! A request that becomes several calls of one target, since its model takes less at once.

use super::ticket::Ticket;
use crate::base::ProviderId;
use crate::route::breaker::Outcome;
use crate::route::plan::Next;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_filters::error::{Class, Failure};
use weir_filters::usage::Usage;
use weir_filters::wire::Outgoing;

/// Replies to all parts of one request, in bytes; no answer is longer.
const REPLIES_BYTES_MAX: usize = 32 << 20;

/// The parts that are answered.
#[derive(Debug, Default)]
pub struct Parts {
    /// By whom: another model's vectors cannot be mixed with these.
    target: Option<(ProviderId, Arc<str>)>,
    replies: Vec<Bytes>,
    /// What they cost, nano-USD.
    cost: u64,
    /// How many follow the running one.
    after: usize,
}

impl Parts {
    /// How many are answered.
    pub(super) fn done(&self) -> usize {
        self.replies.len()
    }

    /// A part was asked for.
    pub(super) fn is_begun(&self) -> bool {
        self.target.is_some()
    }
}

impl Ticket {
    /// Gives the next try its part of the request: the bodies behind `outgoing`'s own are `more`.
    pub(super) fn portion(
        &mut self,
        outgoing: &mut Outgoing,
        more: &[Bytes],
        target: (&ProviderId, &Arc<str>),
    ) {
        let same = self.parts.target.as_ref().is_some_and(|(p, m)| (p, m) == target);
        if !same {
            self.waste_parts();
            self.parts.target = Some((target.0.clone(), target.1.clone()));
        }
        let done = self.parts.replies.len();
        if let Some(body) = done.checked_sub(1).and_then(|n| more.get(n)) {
            outgoing.body = body.clone().into();
        }
        self.parts.after = more.len().saturating_sub(done);
    }

    /// More of the request follows the running try.
    #[must_use]
    pub fn has_more_parts(&self) -> bool {
        self.parts.after > 0
    }

    /// The running try has answered its part; the next one is asked at once.
    ///
    /// # Errors
    /// The reply is no part of an answer.
    pub fn part(&mut self, reply: Bytes, now: Instant) -> Result<Next, Failure> {
        let prompt = self.arrival.api.part(&reply)?;
        let held: usize = self.parts.replies.iter().map(Bytes::len).sum();
        if held + reply.len() > REPLIES_BYTES_MAX {
            return Err(Failure::new(Class::Invalid, 200, "the provider's answers are too long"));
        }
        let told = Usage { input: prompt.unwrap_or_default(), ..Usage::default() };
        let usage = if told.is_plausible() { told } else { Usage::default() };
        let cost = self.price().map_or(0, |price| price.cost(&usage).0);
        self.parts.cost = self.parts.cost.saturating_add(cost);
        self.parts.replies.push(reply);
        if let Some(mut running) = self.running.take() {
            if let Some(pass) = running.pass.take() {
                pass.settle(Outcome::Good, now);
            }
            if let Some(seat) = running.seat.take() {
                seat.settle(prompt);
            }
        }
        if let Some(admission) = self.admission.as_mut() {
            // It is no further try of the target.
            admission.plan.unbegin();
        }
        Ok(Next::Again(Duration::ZERO))
    }

    /// The reply that answers the whole request, given the last part's.
    #[must_use]
    pub fn joined(&mut self, last: Bytes) -> Bytes {
        let mut replies = std::mem::take(&mut self.parts.replies);
        if replies.is_empty() {
            return last;
        }
        // Paid for by the whole answer.
        self.parts.cost = 0;
        replies.push(last);
        self.arrival.api.join(&replies)
    }

    /// Parts that were answered for nothing are booked as wasted.
    pub(super) fn waste_parts(&mut self) {
        let parts = std::mem::take(&mut self.parts);
        self.record.wasted = self.record.wasted.saturating_add(parts.cost);
    }
}
