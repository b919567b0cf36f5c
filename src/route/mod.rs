//! Where a request may go: providers, what they offer, and the targets behind each public name.

pub mod breaker;
pub mod caps;
pub mod health;
pub mod latency;
pub mod live;
pub mod need;
pub mod pick;
pub mod plan;
pub mod provider;
pub mod rest;
pub mod retries;
pub mod rules;
pub mod strategy;
pub mod tell;

pub use need::Need;
pub use plan::{Choice, Plan};
pub use provider::{Auth, Base, Fault, Faults, Offer, Provider, Through, Trust};
pub use strategy::{Affinity, Smart, Strategy};

use crate::base::{Glob, ProviderId};
use live::{TargetLive, Turns};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One way to serve a public model.
#[derive(Debug, Clone)]
pub struct Target {
    /// Whose.
    pub provider: Arc<Provider>,
    /// The provider's name of the model; `None` (`"anthropic/*"`) keeps the asked one.
    pub model: Option<Arc<str>>,
    /// Share among targets of the same priority; 0: none.
    pub weight: u32,
    /// Lower goes first; 1 is the default.
    pub priority: u32,
    /// Its place among the provider's offers, where it has one and `model` is given.
    pub offer: Option<usize>,
    /// What is known of it; empty before a gateway adopts its table, and where `model` is `None`.
    pub live: OnceLock<Arc<TargetLive>>,
}

/// A public model: `[models."…"]`.
#[derive(Debug, Clone)]
pub struct Model {
    /// What clients ask for, exact or with one `*`.
    pub name: Glob,
    /// In the order of config.
    pub targets: Vec<Target>,
    /// What a provider cannot express is refused, not dropped.
    pub strict: bool,
    /// A provider's 429 is the caller's at once.
    pub return_429: bool,
    /// How targets are weighed.
    pub strategy: Strategy,
    /// What keeps requests on one target.
    pub affinity: Affinity,
    /// `[smart]`, for all to read what an unseen target counts as.
    pub smart: Arc<Smart>,
    /// Slower targets come last.
    pub max_latency: Option<Duration>,
    /// Equivalent models, asked where no target serves.
    pub fallback: Vec<String>,
    /// A target lacks something that only a look into the body tells of.
    pub picky: bool,
    /// The first group, for picking without a look at every target.
    pub lane: OnceLock<pick::Lane>,
    /// Whose turn it is; set when a gateway adopts the table.
    pub turns: OnceLock<Arc<Turns>>,
}

/// Every model and provider of a snapshot.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Exact names first, then patterns, the longest first.
    pub models: Vec<Arc<Model>>,
    /// By name.
    pub providers: BTreeMap<ProviderId, Arc<Provider>>,
    /// `[smart]`
    pub smart: Arc<Smart>,
    /// `[[routes]]`
    pub rules: Vec<rules::Rule>,
}

impl Table {
    /// The model behind a name: a `[models]` table, else `provider/model`, else a name that exactly
    /// one provider offers. `None`: nobody serves it.
    #[must_use]
    pub fn resolve(&self, asked: &str) -> Option<Arc<Model>> {
        if let Some(model) = self.models.iter().find(|m| m.name.matches(asked)) {
            return Some(model.clone());
        }
        if let Some((provider, name)) = asked.split_once('/')
            && let Some(p) = self.providers.get(&ProviderId::from(provider))
            && !name.is_empty()
        {
            return Some(Arc::new(single(asked, p, name)));
        }
        let mut offering = self.providers.values().filter(|p| p.offer(asked).is_some());
        match (offering.next(), offering.next()) {
            (Some(p), None) => Some(Arc::new(single(asked, p, asked))),
            _ => None,
        }
    }

    /// Whether any offer bears this tag.
    #[must_use]
    pub fn has_tag(&self, tag: &str) -> bool {
        let mut offers = self.providers.values().flat_map(|p| &p.offers);
        offers.any(|offer| offer.tags.iter().any(|other| other == tag))
    }

    /// Every exact name a caller can ask for, sorted: `[models]` tables without `*`, and the
    /// exact offers that a single provider makes.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = (self.models.iter().map(|m| m.name.as_str()))
            .chain(self.providers.values().flat_map(|p| p.offers.iter().map(|o| o.name.as_str())))
            .filter(|n| !n.contains('*') && self.resolve(n).is_some())
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

fn single(asked: &str, provider: &Arc<Provider>, model: &str) -> Model {
    Model::new(Glob::new(asked), vec![Target::new(provider.clone(), Some(model.into()))])
}

impl Target {
    /// With weight 1, in the first group.
    #[must_use]
    pub fn new(provider: Arc<Provider>, model: Option<Arc<str>>) -> Self {
        let fits = |model: &Arc<str>| provider.offers.iter().position(|o| o.name.matches(model));
        let offer = model.as_ref().and_then(fits);
        Self { provider, model, weight: 1, priority: 1, offer, live: OnceLock::new() }
    }
}

impl Model {
    /// With everything else as config's defaults have it.
    #[must_use]
    pub fn new(name: Glob, targets: Vec<Target>) -> Self {
        let lacking = |o: &Offer| !(o.tools && o.images && o.schema);
        let picky = targets.iter().any(|t| t.provider.offers.iter().any(lacking));
        Self {
            name,
            targets,
            strict: false,
            return_429: false,
            strategy: Strategy::default(),
            affinity: Affinity::default(),
            smart: Arc::default(),
            max_latency: None,
            fallback: Vec::new(),
            picky,
            lane: OnceLock::new(),
            turns: OnceLock::new(),
        }
    }
}
