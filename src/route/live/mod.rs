//! What a running gateway learns of its targets and credentials: kept by name, over reloads.

mod keys;

pub use keys::{CredentialLive, Key, Wanted};

use super::breaker::{self, Breaker, Outcome, Rule, State};
use super::caps::{Full, Seats};
use super::health::Pulse;
use super::latency::Latency;
use super::rest::{Rest, Rests, Why};
use super::retries::Retries;
use super::{Provider, Table};
use crate::base::{Credential, Lack, ProviderId};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Models of one provider that are told apart. Names come from callers (`provider/anything`), so
/// without a bound they could fill the memory; those beyond it share one state.
const MODELS_MAX: usize = 1_000;

/// What is waited for a provider that answers no probe: when the next one comes is not known here.
pub const DOWN_WAIT: Duration = Duration::from_secs(1);

/// Numbers credentials.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// One number after another, spread evenly: the n-th is the fractional part of n golden ratios.
/// Shares that are cut out of it come out exact over any long run, and smooth over a short one.
#[derive(Debug, Default)]
pub struct Turns(AtomicU64);

impl Turns {
    /// The next number below `below`.
    pub fn next(&self, below: u64) -> u64 {
        // 2^64 divided by the golden ratio.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let n = self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(STEP);
        u64::try_from((u128::from(n) * u128::from(below)) >> 64).unwrap_or(0)
    }
}

/// A target, that is a model of a provider.
#[derive(Debug)]
pub struct TargetLive {
    /// The provider's name of the model.
    pub model: Arc<str>,
    /// Nothing about its breaker need be asked.
    calm: AtomicBool,
    breaker: Mutex<Breaker>,
    /// Credentials that are too fast for this model.
    rates: Rests,
    /// Times to first content: of JSON answers, of streams.
    latency: [Latency; 2],
}

/// Why a target cannot be asked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Its breaker is open, so much longer.
    Open(Duration),
    /// Its provider answers no probe.
    Down,
    /// Every credential rests; this rest ends first.
    Resting(Rest),
    /// Our own caps of every credential that does not rest are used up; of this one the shortest.
    Full(Full),
}

impl Block {
    /// Sorts those that heal soon before those that somebody must see to.
    fn rank(self, now: Instant) -> (bool, Duration) {
        match self {
            Self::Open(wait) => (false, wait),
            Self::Down => (false, DOWN_WAIT),
            Self::Full(full) => (false, full.wait),
            Self::Resting(rest) => (!rest.heals(), rest.until.saturating_duration_since(now)),
        }
    }
}

impl TargetLive {
    fn new(model: &str, now: Instant) -> Self {
        Self {
            model: model.into(),
            calm: AtomicBool::new(true),
            breaker: Mutex::new(Breaker::new(now)),
            rates: Rests::default(),
            latency: [Latency::new(now), Latency::new(now)],
        }
    }

    /// How fast it has been, with streams or without.
    #[must_use]
    pub fn latency(&self, stream: bool) -> &Latency {
        let [whole, streamed] = &self.latency;
        if stream { streamed } else { whole }
    }

    /// The breaker's state.
    #[must_use]
    pub fn state(&self) -> State {
        self.breaker.lock().state()
    }

    /// The share of its usual traffic that it should get now.
    #[must_use]
    pub fn share(&self, rule: &Rule, now: Instant) -> f64 {
        if self.calm.load(Ordering::Acquire) { 1.0 } else { self.breaker.lock().share(rule, now) }
    }

    /// Whether its breaker would let a try pass, without asking it.
    ///
    /// # Errors
    /// How long it will not.
    pub fn check(&self, rule: &Rule, now: Instant) -> Result<(), Duration> {
        if self.calm.load(Ordering::Acquire) {
            return Ok(());
        }
        self.breaker.lock().check(rule, now)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Breaker) -> T) -> T {
        let mut breaker = self.breaker.lock();
        let done = work(&mut breaker);
        self.calm.store(breaker.is_calm(), Ordering::Release);
        done
    }
}

/// Leave to try a target, given back by `Drop` where nobody settled it.
#[derive(Debug)]
#[must_use]
pub struct Pass {
    live: Arc<TargetLive>,
    rule: Rule,
    pass: Option<breaker::Pass>,
}

impl Pass {
    /// Asks the breaker.
    ///
    /// # Errors
    /// How long it will not let anybody pass.
    pub fn take(live: &Arc<TargetLive>, rule: &Rule, now: Instant) -> Result<Self, Duration> {
        let pass = live.with(|breaker| breaker.enter(rule, now))?;
        Ok(Self { live: live.clone(), rule: *rule, pass: Some(pass) })
    }

    /// The first content has come, this long after the provider was connected.
    pub fn started(&mut self, stream: bool, time: Duration, now: Instant) {
        self.live.latency(stream).note(time, now);
        if let Some(pass) = self.pass.as_mut().filter(|pass| pass.is_probe()) {
            self.live.with(|breaker| breaker.started(&self.rule, pass, now));
        }
    }

    /// It is a probe.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.pass.is_some_and(|pass| pass.is_probe())
    }

    /// The try is over.
    pub fn settle(mut self, outcome: Outcome, now: Instant) {
        if let Some(pass) = self.pass.take() {
            self.live.with(|breaker| breaker.settle(&self.rule, pass, outcome, now));
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.live.with(|breaker| breaker.give_back(&pass));
        }
    }
}

/// What a gateway learns of one provider.
#[derive(Debug)]
pub struct ProviderLive {
    id: ProviderId,
    /// Its credentials, in the order of config.
    pub credentials: Vec<Arc<CredentialLive>>,
    turns: Turns,
    /// What it may still be asked again.
    pub retries: Arc<Retries>,
    /// Its probes.
    pub pulse: Arc<Pulse>,
    models: RwLock<HashMap<Arc<str>, Arc<TargetLive>>>,
}

impl ProviderLive {
    fn new(provider: &Provider, now: Instant) -> Self {
        let live = |credential: &Arc<Credential>| {
            let id = NUMBERS.fetch_add(1, Ordering::Relaxed);
            let (rests, seats) = (Rests::default(), Arc::new(Seats::new(now)));
            Arc::new(CredentialLive { credential: credential.clone(), id, rests, seats })
        };
        Self {
            id: provider.id.clone(),
            credentials: provider.credentials.iter().map(live).collect(),
            turns: Turns::default(),
            retries: Arc::new(Retries::new(now)),
            pulse: Arc::default(),
            models: RwLock::default(),
        }
    }

    /// The state of one of its models.
    pub fn target(&self, model: &str, now: Instant) -> Arc<TargetLive> {
        let known = self.models.read();
        if let Some(live) = known.get(model) {
            return live.clone();
        }
        let full = known.len() >= MODELS_MAX;
        drop(known);
        let name = if full { "" } else { model };
        let mut models = self.models.write();
        if let Some(live) = models.get(name) {
            return live.clone();
        }
        let live = Arc::new(TargetLive::new(name, now));
        models.insert(live.model.clone(), live.clone());
        live
    }

    /// The state of each of its models by name, for metrics.
    pub fn each_target(&self, mut tell: impl FnMut(&str, State)) {
        for live in self.models.read().values() {
            let name = if live.model.is_empty() { "other" } else { &*live.model };
            tell(name, if self.pulse.is_down() { State::Open } else { live.state() });
        }
    }

    /// Why each credential rests, if it does, for metrics.
    pub fn each_credential(&self, now: Instant, mut tell: impl FnMut(&str, Option<Why>)) {
        for live in &self.credentials {
            let rate = || {
                let models = self.models.read();
                models.values().find_map(|target| target.rates.of(live.id, now))
            };
            let lack = || live.credential.proof.lack(now).map(|lack| tokenless(lack, now));
            let rest = live.rests.of(0, now).or_else(rate).or_else(lack);
            tell(&live.credential.name, rest.map(|rest| rest.why));
        }
    }
}

/// Everything learnt, by name. A snapshot's own parts are bound to it when it comes into force.
#[derive(Debug, Default)]
pub struct Registry {
    providers: Mutex<HashMap<ProviderId, Arc<ProviderLive>>>,
    models: Mutex<HashMap<String, Arc<Turns>>>,
}

impl Registry {
    /// Binds a new table to what is known of its names; what it no longer names is forgotten.
    /// Breakers outlive any change of a provider's table; a credential that changed begins anew.
    pub fn adopt(&self, table: &Table, now: Instant) {
        let mut providers = self.providers.lock();
        providers.retain(|id, _| table.providers.contains_key(id));
        for (id, provider) in &table.providers {
            let kept = providers.remove(id).map(|old| old.onto(provider, now));
            let live = kept.unwrap_or_else(|| Arc::new(ProviderLive::new(provider, now)));
            if provider.health.is_none() {
                live.pulse.forget();
            }
            let live = provider.live.get_or_init(|| live).clone();
            providers.insert(id.clone(), live);
        }
        let mut models = self.models.lock();
        models.retain(|name, _| table.models.iter().any(|m| m.name.as_str() == name));
        for model in &table.models {
            let turns = models.entry(model.name.as_str().to_owned()).or_default();
            model.turns.get_or_init(|| turns.clone());
            for target in &model.targets {
                if let Some(name) = &target.model {
                    target.live.get_or_init(|| target.provider.live(now).target(name, now));
                }
            }
        }
    }

    /// Targets that are known, and how many may be.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let providers = self.providers.lock();
        let known = providers.values().map(|live| live.models.read().len()).sum();
        // One more for those that share a state.
        (known, providers.len() * (MODELS_MAX + 1))
    }

    /// Calls `tell` for each provider in no order.
    pub fn each(&self, mut tell: impl FnMut(&str, &ProviderLive)) {
        for (id, live) in self.providers.lock().iter() {
            tell(id.as_str(), live);
        }
    }
}

impl ProviderLive {
    /// This state under a provider's new table: a credential whose secret is new starts afresh.
    fn onto(self: Arc<Self>, provider: &Provider, now: Instant) -> Arc<Self> {
        if self.credentials.iter().map(|c| &c.credential).eq(&provider.credentials) {
            return self;
        }
        let fresh = Self::new(provider, now);
        let known = |live: &Arc<CredentialLive>| {
            let proof = &live.credential.proof;
            let Some(old) = self.credentials.iter().find(|o| o.credential.proof == *proof) else {
                return live.clone();
            };
            if old.credential == live.credential {
                return old.clone();
            }
            // Another name, weight or cap: what is used of the account stays used.
            let (credential, seats) = (live.credential.clone(), old.seats.clone());
            Arc::new(CredentialLive { credential, id: live.id, rests: Rests::default(), seats })
        };
        let credentials = fresh.credentials.iter().map(known).collect();
        let models = RwLock::new(self.models.read().clone());
        let (id, retries, pulse) = (self.id.clone(), self.retries.clone(), self.pulse.clone());
        Arc::new(Self { id, credentials, turns: fresh.turns, retries, pulse, models })
    }
}

/// A token that is asked for comes within this, mostly.
const EXCHANGE: Duration = Duration::from_millis(300);

/// The rest of a credential without a token.
fn tokenless(lack: Lack, now: Instant) -> Rest {
    match lack {
        Lack::Soon => Rest { until: now + EXCHANGE, why: Why::Token, named: true },
        Lack::Denied(until) => Rest { until, why: Why::Auth, named: true },
    }
}

impl Provider {
    /// What is known of it; nothing before a gateway has adopted its table.
    pub fn live(&self, now: Instant) -> &Arc<ProviderLive> {
        self.live.get_or_init(|| Arc::new(ProviderLive::new(self, now)))
    }
}
