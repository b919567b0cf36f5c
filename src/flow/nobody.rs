//! What a caller is told when no target of its request can be asked.

use super::ticket::Ticket;
use crate::route::live::{Block, DOWN_WAIT};
use crate::route::need::Lack;
use crate::route::rest::Why;
use std::time::{Duration, Instant};
use weir_filters::error::{ApiError, Code};

/// Until when targets cannot be asked, by the kind of reason.
#[derive(Debug, Default)]
struct Blocked {
    open: Option<Duration>,
    rate: Option<Duration>,
    token: Option<Duration>,
    busy: Option<Duration>,
    dead: Option<Why>,
}

impl Ticket {
    /// The error of a request that has nobody left to ask: its last failure where there was one,
    /// else what keeps its targets from being asked, the one that heals first.
    pub(super) fn nobody(&self, now: Instant) -> ApiError {
        let blocks = self.admission.as_ref().map(|a| a.plan.blocks(now)).unwrap_or_default();
        if let Some(failure) = &self.record.failure {
            let tried = self.record.targets_failed + blocks.len();
            return self.with_equivalents(ApiError::from_failure(failure, tried), now);
        }
        if let Some(error) = self.misfit().filter(|_| blocks.is_empty()) {
            return error;
        }
        let mut blocked = Blocked::default();
        for (_, _, block) in &blocks {
            blocked.add(*block, now);
        }
        self.with_equivalents(blocked.error(), now)
    }

    /// The request itself is what no target of its model can take.
    fn misfit(&self) -> Option<ApiError> {
        let admission = self.admission.as_ref()?;
        let asked = &admission.asked;
        if admission.plan.is_above() {
            let why = format!("every target of `{asked}` is above this key's max_budget_tier");
            return Some(ApiError::new(Code::ModelNotAllowed, why).param("model"));
        }
        if admission.plan.is_mismatch() {
            let why =
                format!("no target of `{asked}` is tagged for this task_type and budget_tier");
            return Some(ApiError::new(Code::InvalidRequest, why).param("task_type"));
        }
        let lack = admission.plan.lack()?;
        let why = format!("no target of `{asked}` can take this request: {}", lack.say());
        let (code, param) = match lack {
            Lack::Context(_) | Lack::Far(_) => (Code::ContextLengthExceeded, "messages"),
            Lack::Output(_) => (Code::InvalidRequest, "max_tokens"),
            Lack::Tools => (Code::InvalidRequest, "tools"),
            Lack::Images => (Code::InvalidRequest, "messages"),
            Lack::Schema => (Code::InvalidRequest, "response_format"),
        };
        Some(ApiError::new(code, why).param(param))
    }

    /// A 503 names what else the caller may ask.
    fn with_equivalents(&self, mut error: ApiError, now: Instant) -> ApiError {
        if error.code == Code::NoHealthyUpstream {
            let names = self.equivalents(now);
            if !names.is_empty() {
                error.message.push_str("; this key may use instead: ");
                error.message.push_str(&names.join(", "));
            }
        }
        error
    }
}

impl Blocked {
    fn add(&mut self, block: Block, now: Instant) {
        let sooner = |old: Option<Duration>, new: Duration| Some(old.map_or(new, |o| o.min(new)));
        match block {
            Block::Open(left) => self.open = sooner(self.open, left),
            Block::Down => self.open = sooner(self.open, DOWN_WAIT),
            Block::Resting(rest) if rest.is_rate() => {
                self.rate = sooner(self.rate, rest.until.saturating_duration_since(now));
            }
            Block::Resting(rest) if rest.why == Why::Token => {
                self.token = sooner(self.token, rest.until.saturating_duration_since(now));
            }
            Block::Resting(rest) => self.dead = Some(rest.why),
            Block::Full(full) if full.busy => self.busy = sooner(self.busy, full.wait),
            Block::Full(full) => self.rate = sooner(self.rate, full.wait),
        }
    }

    fn error(&self) -> ApiError {
        if let (Some(_), None, None) = (self.token, self.open, self.rate) {
            let why = "the gateway has no token of the provider yet";
            return ApiError::new(Code::NoHealthyUpstream, why).after(SOON);
        }
        if let (Some(busy), None, None) = (self.busy, self.open, self.rate) {
            let why = "every credential for this model is in full use (its concurrent limit)";
            return ApiError::new(Code::NoHealthyUpstream, why).after(busy);
        }
        match (self.open, self.rate, self.dead) {
            (Some(open), rate, _) => {
                let why =
                    "no provider of this model is healthy now (breakers are open, or probes fail)";
                let wait = rate.map_or(open, |rate| rate.min(open));
                ApiError::new(Code::NoHealthyUpstream, why).after(wait)
            }
            (None, Some(rate), _) => {
                let why = "every provider of this model limits our rate now";
                ApiError::new(Code::UpstreamRateLimited, why).after(rate)
            }
            (None, None, Some(Why::Quota)) => {
                let why = "the gateway's account with the provider is out of money or quota";
                ApiError::new(Code::UpstreamQuota, why)
            }
            (None, None, Some(_)) => {
                let why = "the provider refused the gateway's credential";
                ApiError::new(Code::UpstreamAuth, why)
            }
            (None, None, None) => {
                ApiError::new(Code::NoHealthyUpstream, "no target is left").after(SOON)
            }
        }
    }
}

/// What a caller waits where nothing tells how long.
const SOON: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::route::rest::Rest;

    #[test]
    fn the_reason_that_heals_first_is_told() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let rest = |why, n: u32| Block::Resting(Rest { until: now + second * n, why, named: true });
        let check = |blocks: &[Block], code: Code, wait: Option<u32>| {
            let mut blocked = Blocked::default();
            blocks.iter().for_each(|b| blocked.add(*b, now));
            let error = blocked.error();
            assert_eq!(
                (error.code, error.retry_after),
                (code, wait.map(|n| second * n)),
                "{blocks:?}"
            );
        };
        let open = Block::Open(second * 7);
        check(&[open, Block::Open(second * 3)], Code::NoHealthyUpstream, Some(3));
        check(&[open, rest(Why::Rate, 2)], Code::NoHealthyUpstream, Some(2));
        check(&[rest(Why::Auth, 2), rest(Why::Rate, 9)], Code::UpstreamRateLimited, Some(9));
        check(&[rest(Why::Auth, 2)], Code::UpstreamAuth, None);
        check(&[rest(Why::Quota, 2)], Code::UpstreamQuota, None);
    }
}
