//! A dry run: what would become of a request, by the very steps that a real one takes.
//!
//! Nothing is sent, booked or kept. What a running gateway has learned (breakers, latencies, rests
//! of credentials) is its own; here every target is as after a start.

use super::ticket::{Arrival, Ticket, Wishes};
use super::{Attempt, Gateway, Step};
use crate::access::{Key, Keys};
use crate::base::{Proof, Secret};
use crate::limit::{Measure, Now};
use crate::route::need::OUTPUT_GUESS;
use crate::route::tell::Candidate;
use bytes::Bytes;
use serde::Serialize;
use smol_str::SmolStr;
use std::sync::Arc;
use std::time::Instant;
use weir_filters::dialect::Api;
use weir_filters::error::ApiError;
use weir_filters::peek::Peek;
use weir_filters::usage::{NanoUsd, Price, Rates};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The key's name or id.
    pub key: String,
    /// The endpoint's label.
    pub endpoint: &'static str,
    /// What the caller speaks there.
    pub api: Api,
    /// In place of the body's model.
    pub model: Option<String>,
    /// The caller's body.
    pub body: Bytes,
}

/// What would become of it.
#[derive(Debug, Clone, Serialize)]
pub struct Explained {
    /// Who asks, by name.
    pub key: String,
    /// Its team.
    pub team: Option<String>,
    /// Where.
    pub endpoint: &'static str,
    /// The model that was asked for.
    pub asked: Option<String>,
    /// What an alias of the key or its team makes of it.
    pub alias: Option<String>,
    /// The first of `[[routes]]` that holds, from 1 on.
    pub route: Option<usize>,
    /// The public model that serves, after aliases, routes and budgets.
    pub model: Option<String>,
    /// How its targets are weighed.
    pub strategy: Option<String>,
    /// What the request is estimated to use.
    pub estimate: Option<Estimate>,
    /// What it is held against.
    pub limits: Vec<Limit>,
    /// Every target, those of equivalent models behind the model's own.
    pub candidates: Vec<Candidate>,
    /// What the first target costs.
    pub price: Option<Told>,
    /// Why it would be refused.
    pub refused: Option<Refused>,
}

/// What a request is estimated to use.
#[derive(Debug, Clone, Serialize)]
pub struct Estimate {
    /// Of the prompt.
    pub prompt_tokens: u64,
    /// The most that the request allows, else what is taken for it.
    pub output_tokens: u64,
    /// Tokens that are held of limits and budgets; 0 where nothing counts any.
    pub held_tokens: u64,
    /// Money that is held.
    pub held_nano_usd: u64,
}

/// A rule that the request is held against.
#[derive(Debug, Clone, Serialize)]
pub struct Limit {
    /// Its identity.
    pub rule: String,
    /// What it counts: requests, tokens or usd (in nano-USD).
    pub counts: &'static str,
    /// The most there ever is.
    pub limit: u64,
    /// Used of it. What Redis counts is not read here.
    pub used: u64,
    /// What is left.
    pub remaining: u64,
}

/// A price, in USD per million tokens.
#[derive(Debug, Clone, Serialize)]
pub struct Told {
    /// Whose.
    pub target: String,
    /// Of the prompt.
    pub input: String,
    /// Of what the provider's cache had.
    pub cached_input: String,
    /// Of what was put there.
    pub cache_write: String,
    /// Of the answer.
    pub output: String,
    /// Where it is from.
    pub source: String,
}

/// A refusal, as the caller would see it.
#[derive(Debug, Clone, Serialize)]
pub struct Refused {
    /// HTTP.
    pub status: u16,
    /// `model_not_allowed`, …
    pub code: &'static str,
    /// In words.
    pub message: String,
}

impl From<&ApiError> for Refused {
    fn from(error: &ApiError) -> Self {
        let message = error.message.clone();
        Self { status: error.status, code: error.code.as_str(), message }
    }
}

/// Explains a request; with it the try that would be made first.
///
/// # Errors
/// There is no key of this name.
pub fn explain(
    gateway: &Arc<Gateway>,
    question: Question,
) -> Result<(Explained, Option<Box<Attempt>>), String> {
    lend(gateway);
    let mut ticket = Ticket::new(gateway, arrival(&question));
    let Some(key) = ticket.take_key(&question.key) else {
        ticket.forget();
        return Err(format!(
            "there is no key {:?}, neither in config nor in the store",
            question.key
        ));
    };
    let mut told = Explained::of(&key, question.endpoint);
    let first = match question.api.read(question.body) {
        Ok(mut peek) => {
            peek.model = question.model.or(peek.model);
            ticket.told(&key, peek, &mut told)
        }
        Err(bad) => {
            told.refused = Some(Refused::from(&ApiError::from(bad)));
            None
        }
    };
    ticket.forget();
    Ok((told, first))
}

/// Tokens that credentials are exchanged for are not fetched for a dry run: any will do, since none
/// is shown.
fn lend(gateway: &Gateway) {
    let snapshot = gateway.snapshot.load();
    for credential in snapshot.routes.providers.values().flat_map(|p| &p.credentials) {
        if let Proof::Lease(lease) = &credential.proof {
            lease.granted(Secret::new("a token"), None, Instant::now());
        }
    }
}

fn arrival(question: &Question) -> Arrival {
    Arrival {
        at: Instant::now(),
        ts: jiff::Timestamp::now(),
        request_id: format!("req-{}", uuid::Uuid::now_v7().simple()),
        trace_id: format!("{:032x}", fastrand::u128(1..)),
        endpoint: question.endpoint,
        dialect: question.api.dialect(),
        api: question.api,
        method: "POST".into(),
        path: SmolStr::default(),
        client: SmolStr::default(),
        agent: SmolStr::default(),
        task_type: None,
        budget_tier: None,
        user: None,
        wishes: Wishes::default(),
    }
}

impl Explained {
    fn of(key: &Key, endpoint: &'static str) -> Self {
        let refused = (!key.enabled)
            .then_some(("key_disabled", "this API key is disabled"))
            .or_else(|| {
                let over = key.expires.is_some_and(|at| jiff::Timestamp::now() >= at);
                over.then_some(("key_expired", "this API key has expired"))
            })
            .map(|(code, why)| Refused { status: 401, code, message: why.into() });
        Self {
            key: key.name.to_string(),
            team: key.team.as_ref().map(ToString::to_string),
            endpoint,
            asked: None,
            alias: None,
            route: None,
            model: None,
            strategy: None,
            estimate: None,
            limits: Vec::new(),
            candidates: Vec::new(),
            price: None,
            refused,
        }
    }
}

impl Ticket {
    /// Puts the key of this name or id in the place of one that was found by its secret.
    fn take_key(&mut self, name: &str) -> Option<Arc<Key>> {
        let named = |keys: &Keys| {
            let mut all = keys.0.values();
            all.find(|k| k.name == name || k.id.as_str() == name).cloned()
        };
        let minted = self.gateway.keys.load();
        self.key = named(&self.snapshot.keys).or_else(|| {
            let found = named(&minted.keys);
            self.minted = found.is_some().then_some(minted);
            found
        });
        self.key.clone()
    }

    fn told(&mut self, key: &Key, peek: Peek, told: &mut Explained) -> Option<Box<Attempt>> {
        let named = peek.model.clone().or_else(|| self.snapshot.server.default_model.clone());
        let (prompt, said) = (peek.estimate(), peek.max_tokens);
        let admitted = self.admit_read(peek, fastrand::u64(..));
        if let Some(named) = &named {
            told.alias = key.aliases.get(named).cloned();
            let asked = told.alias.as_ref().unwrap_or(named);
            told.route = self.rule(key, asked, prompt).map(|at| at + 1);
        }
        told.asked = named;
        let ask = &self.taken.ask;
        told.estimate = Some(Estimate {
            prompt_tokens: prompt,
            output_tokens: said.unwrap_or(OUTPUT_GUESS),
            held_tokens: ask.tokens.sure.saturating_add(ask.tokens.guess),
            held_nano_usd: ask.money.sure.saturating_add(ask.money.guess),
        });
        told.limits = self.limits();
        self.tell_model(key, told);
        let fits = admitted.and_then(|()| self.fits());
        let tried = fits.and_then(|()| self.attempt(Instant::now()));
        let first = match tried {
            Ok(Step::Try(attempt)) => Some(attempt),
            Ok(Step::Wait(_)) => None,
            Err(error) => {
                told.refused.get_or_insert(Refused::from(&error));
                None
            }
        };
        told.price = self.running.as_ref().and_then(|r| {
            let target = format!("{}/{}", r.provider.id, r.model);
            r.price.as_deref().map(|price| Told::of(target, price))
        });
        first
    }

    /// The model, its targets and those of its equivalents.
    fn tell_model(&self, key: &Key, told: &mut Explained) {
        let Some(admission) = &self.admission else { return };
        let now = Instant::now();
        told.model = Some(admission.asked.clone());
        told.strategy = Some(format!("{:?}", admission.origin.strategy).to_lowercase());
        told.candidates = admission.plan.candidates(now);
        for name in &admission.origin.fallback {
            let Some(model) = self.snapshot.routes.resolve(name) else { continue };
            let mut more = self.plan(&model, name, &admission.need, admission.seed).candidates(now);
            if !key.allows(name) {
                for candidate in &mut more {
                    candidate.order = None;
                    candidate.rejected = Some("the key may not use this model".into());
                }
            }
            told.candidates.append(&mut more);
        }
        // Equivalents are asked when the model's own targets are used up.
        let mut before = 0;
        for i in 0..told.candidates.len() {
            let of = told.candidates[i].of.clone();
            if i > 0 && told.candidates[i - 1].of != of {
                before = told.candidates[..i].iter().filter_map(|c| c.order).max().unwrap_or(0);
            }
            told.candidates[i].order = told.candidates[i].order.map(|place| place + before);
        }
    }

    fn limits(&self) -> Vec<Limit> {
        let limits = &self.gateway.limits;
        let one = |rule: &Arc<crate::limit::Rule>| {
            let counts = rule.measure().unwrap_or(Measure::Requests).as_str();
            // A rule that nobody has met yet has no counter.
            let standing = limits.standing(rule, Now::read());
            let limit = rule.capacity();
            Limit {
                rule: rule.id.to_string(),
                counts,
                limit: standing.map_or(limit, |s| s.limit),
                used: standing.map_or(0, |s| s.used),
                remaining: standing.map_or(limit, |s| s.remaining),
            }
        };
        self.taken.rules.iter().map(one).collect()
    }

    /// Whether it fits into every rule as this process counts them; what was taken comes back.
    fn fits(&self) -> Result<(), ApiError> {
        let (rules, now) = (self.taken.rules.clone(), Now::read());
        match self.gateway.limits.reserve_here(rules, &self.taken.ask, now) {
            Ok(held) => {
                drop(held);
                Ok(())
            }
            Err(refusal) => Err(super::govern::refused(&refusal, now.wall)),
        }
    }
}

impl Told {
    fn of(target: String, price: &Price) -> Self {
        let Rates { input, cached_input, cache_write, output, .. } = price.base;
        let usd = |rate: u64| NanoUsd(rate).to_string();
        Self {
            target,
            input: usd(input),
            cached_input: usd(cached_input),
            cache_write: usd(cache_write),
            output: usd(output),
            source: price.source.clone(),
        }
    }
}
