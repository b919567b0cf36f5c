//! A plan told: every target of a model as one request sees it, for a dry run.

use super::live::Block;
use super::plan::Plan;
use super::rest::Why;
use super::{Strategy, Target};
use serde::Serialize;
use std::time::Instant;

/// One target of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The public model it stands behind.
    pub of: String,
    /// `provider/model`.
    pub target: String,
    /// Its group.
    pub priority: u32,
    /// Its share in the group.
    pub weight: u32,
    /// When it would be tried, from 1 on; `None`: it would not.
    pub order: Option<usize>,
    /// Why it would not.
    pub rejected: Option<String>,
    /// What the request is estimated to cost there; `None`: it has no price.
    pub cost_nano_usd: Option<u64>,
    /// Its latency as it is compared, where the strategy looks at it.
    pub latency_ms: Option<u64>,
    /// What the strategy compares, lower is better; `None`: it goes by weight alone.
    pub score: Option<f64>,
}

impl Plan {
    /// Every target of the plan's model, in the order of config, with its place in the order of
    /// tries were each to fail.
    #[must_use]
    pub fn candidates(&self, now: Instant) -> Vec<Candidate> {
        let mut order = Vec::new();
        let mut walk = self.clone();
        while walk.choose(now).is_some() {
            order.extend(walk.at());
            walk.skip();
        }
        let fits: Vec<&Target> = order.iter().filter_map(|i| self.model.targets.get(*i)).collect();
        let most = self.most(fits.iter().copied(), now);
        let compares = matches!(self.strategy, Strategy::Latency | Strategy::Smart);
        let one = |(i, target): (usize, &Target)| {
            let place = order.iter().position(|at| *at == i);
            let cost = Some(self.cost(target)).filter(|cost| *cost < f64::MAX);
            let latency = self.latency(target, now);
            let score = match self.strategy {
                Strategy::Priority | Strategy::Weighted => None,
                Strategy::Latency => Some(latency),
                Strategy::Cost | Strategy::Smart => Some(self.score(target, most, now)),
            };
            // A float of nano-USD or milliseconds is far below 2^63 here.
            #[allow(clippy::cast_sign_loss)]
            let whole = |n: f64| n.round() as u64;
            Candidate {
                of: self.asked.to_string(),
                target: format!(
                    "{}/{}",
                    target.provider.id,
                    target.model.as_deref().unwrap_or(&self.asked)
                ),
                priority: target.priority,
                weight: target.weight,
                order: place.map(|place| place + 1),
                rejected: if place.is_some() { None } else { Some(self.why(i, target, now)) },
                cost_nano_usd: cost.map(whole),
                latency_ms: compares.then(|| whole(latency * 1e3)),
                score: score.filter(|_| place.is_some()),
            }
        };
        self.model.targets.iter().enumerate().map(one).collect()
    }

    /// Why a target is not asked.
    fn why(&self, at: usize, target: &Target, now: Instant) -> String {
        if target.weight == 0 {
            return "its weight is 0".into();
        }
        if self.is_gone(at) {
            return "it has no price, and the request needs one".into();
        }
        if !self.is_tagged(target) {
            return self.untagged(target);
        }
        if let Some(lack) = self.lacks(target) {
            let last = if lack.is_doubtful() { "; asked where nobody else is left" } else { "" };
            return format!("{}{last}", lack.say());
        }
        match self.check(target, now) {
            Err(Block::Open(left)) => format!("its breaker is open for {} ms", left.as_millis()),
            Err(Block::Down) => "it answers no health probe".into(),
            Err(Block::Full(full)) if full.busy => "its credentials are in full use".into(),
            Err(Block::Full(_)) => "a minute's share of its credentials is used up".into(),
            Err(Block::Resting(rest)) => match rest.why {
                Why::Rate => "it limits our rate now".into(),
                Why::Quota => "its account is out of money or quota".into(),
                Why::Token => "a token for it is being fetched".into(),
                Why::Auth => "it refused our credential".into(),
            },
            Ok(()) => "it is not asked".into(),
        }
    }

    fn untagged(&self, target: &Target) -> String {
        let (offer, smart) = (self.model.offer(target, &self.asked), &self.model.smart);
        if !smart.allows(offer, &self.need) {
            return "its tier is above the key's max_budget_tier".into();
        }
        let task = self.need.task.as_deref().unwrap_or(&smart.default_task);
        match self.need.tier.as_deref() {
            Some(tier) => format!("it is not tagged for task {task} and tier {tier}"),
            None => format!("it is not tagged for task {task}"),
        }
    }
}
