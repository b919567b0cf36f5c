//! How a model's targets are weighed against each other.

use super::need::{Need, OUTPUT_GUESS};
use super::{Model, Offer, Target};
use std::collections::HashMap;
use std::time::Duration;

/// `strategy` of a model. Groups of `priority` come first in each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Groups in order, weights inside.
    #[default]
    Priority,
    /// By weight alone.
    Weighted,
    /// The faster of two, drawn at random.
    Latency,
    /// The one that asks least for this request.
    Cost,
    /// By tags, then by cost and latency together.
    Smart,
}

/// `affinity` of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Affinity {
    /// None.
    #[default]
    Off,
    /// `x-session-id`, else `prompt_cache_key`.
    Session,
    /// The end user, else the key's user, else the key.
    User,
    /// The first messages.
    Prefix,
}

/// `[smart]`
#[derive(Debug, Clone, PartialEq)]
pub struct Smart {
    /// The task of a request that names none.
    pub default_task: String,
    /// From the lowest to the highest.
    pub tiers: Vec<String>,
    /// The weight of cost in a score.
    pub cost: f64,
    /// The weight of latency in a score.
    pub latency: f64,
    /// The latency of a target that has not been asked yet.
    pub unseen: Duration,
    /// A task's model.
    pub rules: HashMap<String, String>,
    /// What becomes of a request whose task and tier no target is tagged with: true: it is
    /// refused; false: the cheapest takes it.
    pub strict: bool,
}

impl Default for Smart {
    fn default() -> Self {
        Self {
            default_task: "chat".into(),
            tiers: ["low", "standard", "premium"].map(str::to_owned).to_vec(),
            cost: 0.5,
            latency: 0.5,
            unseen: Duration::from_secs(3),
            rules: HashMap::new(),
            strict: false,
        }
    }
}

/// The tier that every target serves.
const STANDARD: &str = "standard";

/// Which tags a smart model's targets must have for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tagged {
    /// Its task and its tier.
    Both,
    /// Its tier: it names no task, and nobody of that tier serves the default one.
    Tier,
    /// None: nobody is tagged for it, or the strategy looks at no tags.
    Any,
}

impl Smart {
    /// The place of a tier among the tiers, from the lowest on; `None`: it is none of them.
    #[must_use]
    pub fn rank(&self, tier: &str) -> Option<usize> {
        self.tiers.iter().position(|other| other == tier)
    }

    /// Whether a tier is not above another one. One without a place among the tiers is above any.
    #[must_use]
    pub fn is_within(&self, tier: &str, most: &str) -> bool {
        self.rank(tier).is_some_and(|rank| Some(rank) <= self.rank(most))
    }

    /// Whether a target is of no higher tier than the caller may have.
    #[must_use]
    pub fn allows(&self, offer: Option<&Offer>, need: &Need) -> bool {
        let Some(most) = &need.max_tier else { return true };
        let mut tags = offer.map_or(&[][..], |o| &o.tags).iter();
        !tags.any(|tag| self.rank(tag).is_some() && !self.is_within(tag, most))
    }

    /// Whether a target is tagged for this request.
    #[must_use]
    pub fn matches(&self, offer: Option<&Offer>, need: &Need, tagged: Tagged) -> bool {
        let tags = offer.map_or(&[][..], |o| &o.tags);
        let has = |word: &str| tags.iter().any(|tag| tag == word);
        let task = need.task.as_deref().unwrap_or(&self.default_task);
        let tier = need.tier.as_deref().is_none_or(|tier| tier == STANDARD || has(tier));
        self.allows(offer, need)
            && match tagged {
                Tagged::Both => tier && has(task),
                Tagged::Tier => tier,
                Tagged::Any => true,
            }
    }

    /// Which tags to ask for, by whether any target satisfies them. Where none does, all are
    /// asked for if such a request is refused, else none.
    #[must_use]
    pub fn tagged(&self, need: &Need, any: impl Fn(Tagged) -> bool) -> Tagged {
        let unnamed = need.task.is_none() && need.tier.is_some();
        if any(Tagged::Both) {
            Tagged::Both
        } else if unnamed && any(Tagged::Tier) {
            Tagged::Tier
        } else if self.strict {
            Tagged::Both
        } else {
            Tagged::Any
        }
    }
}

/// What this request is estimated to cost at an offer, in nano-USD; an unpriced one costs more
/// than any.
#[must_use]
pub fn cost(offer: Option<&Offer>, need: &Need) -> f64 {
    let Some(price) = offer.and_then(|o| o.price.as_ref()) else { return f64::MAX };
    let most = offer.and_then(|o| o.max_output).unwrap_or(u64::MAX);
    let output = need.output.unwrap_or(OUTPUT_GUESS).min(most);
    let tier = price.tiers.iter().filter(|(above, _)| need.prompt > *above);
    let rates = tier.max_by_key(|(above, _)| *above).map_or(&price.base, |(_, rates)| rates);
    // Estimates: what a float loses of them is far below what they are worth.
    #[allow(clippy::cast_precision_loss)]
    let sum = [(need.prompt, rates.input), (output, rates.output)]
        .map(|(tokens, rate)| tokens as f64 * rate as f64 / 1e6)
        .iter()
        .sum::<f64>()
        + price.per_request.0 as f64;
    sum
}

impl Model {
    /// What a target offers; `None` where its provider tells nothing.
    #[must_use]
    pub fn offer<'a>(&self, target: &'a Target, asked: &str) -> Option<&'a Offer> {
        match target.offer {
            Some(place) => target.provider.offers.get(place),
            None if target.model.is_none() => target.provider.offer(asked),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Glob;

    #[test]
    fn a_task_must_be_tagged_and_so_must_any_tier_but_standard() {
        let smart = Smart::default();
        let tags = ["chat", "premium"].map(str::to_owned).to_vec();
        let offer = Offer { tags, ..Offer::new(Glob::new("m")) };
        let check = |task: Option<&str>, tier: Option<&str>, want: bool| {
            let (task, tier) = (task.map(str::to_owned), tier.map(str::to_owned));
            let need = Need { task, tier, ..Need::default() };
            assert_eq!(smart.matches(Some(&offer), &need, Tagged::Both), want, "{need:?}");
        };
        check(None, None, true);
        check(Some("reason"), None, false);
        check(None, Some("standard"), true);
        check(Some("chat"), Some("premium"), true);
        check(None, Some("low"), false);
        assert!(!smart.matches(None, &Need::default(), Tagged::Both));
    }

    #[test]
    fn a_caller_is_served_by_no_tier_above_its_own() {
        let smart = Smart::default();
        let check = |tags: &[&str], most: Option<&str>, want: bool| {
            let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            let offer = Offer { tags, ..Offer::new(Glob::new("m")) };
            let need = Need { max_tier: most.map(str::to_owned), ..Need::default() };
            assert_eq!(smart.matches(Some(&offer), &need, Tagged::Any), want, "{need:?}");
        };
        check(&["chat", "premium"], None, true);
        check(&["chat", "premium"], Some("premium"), true);
        check(&["chat", "premium"], Some("standard"), false);
        check(&["chat", "low"], Some("standard"), true);
        check(&["chat", "economy"], Some("low"), true);
        assert!(smart.is_within("low", "standard") && !smart.is_within("premium", "low"));
        assert!(!smart.is_within("economy", "premium"), "it has no place among them");
    }

    #[test]
    fn a_tier_without_a_task_is_looked_for_among_all_tasks() {
        let smart = Smart::default();
        let tags = ["reason", "premium"].map(str::to_owned).to_vec();
        let offer = Offer { tags, ..Offer::new(Glob::new("m")) };
        let check = |task: Option<&str>, tier: Option<&str>, strict: bool, want: Tagged| {
            let smart = Smart { strict, ..smart.clone() };
            let (task, tier) = (task.map(str::to_owned), tier.map(str::to_owned));
            let need = Need { task, tier, ..Need::default() };
            let found = smart.tagged(&need, |t| smart.matches(Some(&offer), &need, t));
            assert_eq!(found, want, "{need:?}");
        };
        check(Some("reason"), Some("premium"), false, Tagged::Both);
        check(None, Some("premium"), false, Tagged::Tier);
        check(Some("chat"), Some("premium"), false, Tagged::Any);
        check(Some("chat"), Some("premium"), true, Tagged::Both);
        check(None, None, false, Tagged::Any);
    }
}
