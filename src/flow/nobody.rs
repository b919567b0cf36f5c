//! What a caller is told when no target of its request can be asked.

use super::ticket::Ticket;
use crate::route::live::Block;
use crate::route::rest::Why;
use std::time::{Duration, Instant};
use weir_filters::error::{ApiError, Code};

/// Until when targets cannot be asked, by the kind of reason.
#[derive(Debug, Default)]
struct Blocked {
    open: Option<Duration>,
    rate: Option<Duration>,
    dead: Option<Why>,
}

impl Ticket {
    /// The error of a request that has nobody left to ask: its last failure where there was one,
    /// else what keeps its targets from being asked, the one that heals first.
    pub(super) fn nobody(&self, now: Instant) -> ApiError {
        let blocks = self.admission.as_ref().map(|a| a.plan.blocks(now)).unwrap_or_default();
        if let Some(failure) = &self.record.failure {
            return ApiError::from_failure(failure, self.record.targets_failed + blocks.len());
        }
        let mut blocked = Blocked::default();
        for (_, _, block) in &blocks {
            blocked.add(*block, now);
        }
        blocked.error()
    }
}

impl Blocked {
    fn add(&mut self, block: Block, now: Instant) {
        let sooner = |old: Option<Duration>, new: Duration| Some(old.map_or(new, |o| o.min(new)));
        match block {
            Block::Open(left) => self.open = sooner(self.open, left),
            Block::Resting(rest) if rest.is_rate() => {
                self.rate = sooner(self.rate, rest.until.saturating_duration_since(now));
            }
            Block::Resting(rest) => self.dead = Some(rest.why),
        }
    }

    fn error(&self) -> ApiError {
        match (self.open, self.rate, self.dead) {
            (Some(open), rate, _) => {
                let why = "no provider of this model is healthy now (breakers are open)";
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
            assert_eq!((error.code, error.retry_after), (code, wait.map(|n| second * n)), "{blocks:?}");
        };
        let open = Block::Open(second * 7);
        check(&[open, Block::Open(second * 3)], Code::NoHealthyUpstream, Some(3));
        check(&[open, rest(Why::Rate, 2)], Code::NoHealthyUpstream, Some(2));
        check(&[rest(Why::Auth, 2), rest(Why::Rate, 9)], Code::UpstreamRateLimited, Some(9));
        check(&[rest(Why::Auth, 2)], Code::UpstreamAuth, None);
        check(&[rest(Why::Quota, 2)], Code::UpstreamQuota, None);
    }
}
