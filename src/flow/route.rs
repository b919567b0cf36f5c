//! Where a request goes: what it needs, which rule sends it where, and the next equivalent model.

use super::ticket::{Admission, Degraded, Ticket};
use crate::access::Key;
use crate::config::Unpriced;
use crate::route::live::Block;
use crate::route::pick::digest;
use crate::route::rules::Facts;
use crate::route::{Affinity, Model, Need, Plan, Strategy};
use memchr::memmem;
use std::sync::Arc;
use std::time::Instant;
use weir_filters::error::{ApiError, Class, Code};
use weir_filters::peek::Peek;

/// Bytes of the first messages that requests of one prefix have in common: beyond a system prompt
/// and short of most conversations.
const PREFIX_BYTES: usize = 1024;
/// What a message with an image holds: OpenAI's chat, its responses, Anthropic's messages.
const IMAGES: &[&str] = &["\"image_url\"", "\"input_image\"", "\"image\""];
/// Equivalent models named in an error; more would be a page.
const EQUIVALENTS_MAX: usize = 5;

impl Ticket {
    /// The first of `[[routes]]` that holds for a request of this model: its place.
    pub(super) fn rule(&self, key: &Key, asked: &str, prompt: u64) -> Option<usize> {
        let rules = &self.snapshot.routes.rules;
        if rules.is_empty() {
            return None;
        }
        let facts = Facts {
            key: &key.name,
            team: key.team.as_ref().map(|t| t.as_str()),
            department: key.department.as_ref().map(|d| d.as_str()),
            user: key.user.as_ref().map(|u| u.as_str()),
            tags: &key.tags,
            endpoint: self.arrival.endpoint,
            task_type: self.arrival.task_type.as_deref(),
            model: asked,
            prompt_tokens: prompt,
        };
        rules.iter().position(|rule| rule.when.holds(&facts))
    }

    /// The model that `[[routes]]` and `[smart]` make of the one that is asked for.
    pub(super) fn routed(&self, key: &Key, asked: &str, prompt: u64) -> Option<String> {
        let routes = &self.snapshot.routes;
        let rule = self.rule(key, asked, prompt).map(|at| &routes.rules[at].model);
        let pinned = |name: &str| {
            let model = routes.resolve(name).filter(|m| m.strategy == Strategy::Smart)?;
            let task = self.arrival.task_type.as_deref().unwrap_or(&model.smart.default_task);
            model.smart.rules.get(task).cloned()
        };
        let now = rule.map_or(asked, String::as_str);
        pinned(now).or_else(|| rule.cloned())
    }

    /// What a request needs of a target of this model.
    pub(super) fn need(&self, peek: &Peek, model: &Model, prompt: u64) -> Need {
        let wishes = &self.arrival.wishes;
        let member = |name: &str| peek.find(name).map(|m| peek.value(m));
        let holds = |names: &[&str], words: &[&str]| {
            let mut values = names.iter().filter_map(|name| member(name));
            values.any(|v| words.iter().any(|w| memmem::find(v, w.as_bytes()).is_some()))
        };
        let tools = || member("tools").is_some_and(|v| v.len() > 2 && v != b"null");
        let picky = model.picky;
        Need {
            prompt,
            output: peek.max_tokens,
            stream: peek.stream,
            tools: picky && tools(),
            images: picky && holds(&["messages", "input"], IMAGES),
            schema: picky && holds(&["response_format", "text"], &["\"json_schema\""]),
            task: self.arrival.task_type.clone(),
            tier: self.arrival.budget_tier.clone(),
            max_tier: self.key.as_ref().and_then(|key| key.max_tier.clone()),
            max_latency: wishes.max_latency,
            affinity: self.affinity(peek, model.affinity),
            patience: wishes.patience,
            once: wishes.once,
        }
    }

    /// The tier that is asked for is one that exists, and the key may have it.
    ///
    /// # Errors
    /// 400 or 403, naming it.
    pub(super) fn check_tier(&self, key: &Key) -> Result<(), ApiError> {
        let Some(tier) = &self.arrival.budget_tier else { return Ok(()) };
        let routes = &self.snapshot.routes;
        let tiers = &routes.smart.tiers;
        if !tiers.contains(tier) && !routes.has_tag(tier) {
            let why = format!("there is no budget_tier `{tier}`; there are {}", tiers.join(", "));
            return Err(ApiError::new(Code::InvalidRequest, why).param("budget_tier"));
        }
        match &key.max_tier {
            Some(most) if !routes.smart.is_within(tier, most) => {
                let why = format!("this key may ask for budget_tier `{most}` at most");
                Err(ApiError::new(Code::ModelNotAllowed, why).param("budget_tier"))
            }
            _ => Ok(()),
        }
    }

    fn affinity(&self, peek: &Peek, kind: Affinity) -> Option<u64> {
        let member = |name: &str| peek.find(name).map(|m| peek.value(m));
        match kind {
            Affinity::Off => None,
            Affinity::Session => {
                let head = self.arrival.wishes.session.as_deref().map(str::as_bytes);
                let named = head.or_else(|| member("prompt_cache_key").filter(|v| *v != b"null"));
                named.map(digest)
            }
            Affinity::User => {
                let key = self.key.as_deref()?;
                let user =
                    self.record.end_user.as_deref().or(key.user.as_ref().map(|u| u.as_str()));
                Some(digest(user.unwrap_or(key.id.as_str()).as_bytes()))
            }
            Affinity::Prefix => member("messages").map(|v| digest(&v[..v.len().min(PREFIX_BYTES)])),
        }
    }

    /// A plan over a model's targets, those without a price left out where config wants that.
    pub(super) fn plan(
        &self,
        model: &Arc<Model>,
        asked: &str,
        need: &Arc<Need>,
        seed: u64,
    ) -> Plan {
        let mut plan = Plan::new(model, asked, need, self.arrival.at, seed);
        let unpriced = &self.snapshot.server.unpriced;
        if *unpriced == Unpriced::Refuse || (self.taken.priced && *unpriced == Unpriced::Warn) {
            plan.retain(|p, model| p.offer(model).is_some_and(|o| o.price.is_some()));
        }
        plan
    }

    /// The next equivalent model that may serve this request: its place in the list, and itself.
    /// A prompt that was too long goes only where more fits in.
    fn next_fallback(&self) -> Option<(usize, Arc<Model>)> {
        let (admission, key) = (self.admission.as_ref()?, self.key.as_deref()?);
        let too_long = (self.record.failure.as_ref())
            .is_some_and(|failure| failure.class == Class::ContextLength);
        let context = |m: &Model, name: &str| {
            m.targets.iter().filter_map(|t| m.offer(t, name)?.context).max()
        };
        let had = context(admission.plan.model(), &admission.asked).unwrap_or(0);
        let longer = |m: &Model, name: &str| context(m, name).is_some_and(|most| most > had);
        let names = admission.origin.fallback.iter().enumerate().skip(admission.fallbacks);
        names.filter(|(_, name)| key.allows(name)).find_map(|(i, name)| {
            let model = self.snapshot.routes.resolve(name)?;
            (!too_long || longer(&model, name)).then_some((i, model))
        })
    }

    /// A prompt was too long for its provider: whether a longer model may take it.
    pub(super) fn goes_longer(&mut self, class: Class) -> bool {
        let goes = class == Class::ContextLength
            && !self.arrival.wishes.once
            && self.next_fallback().is_some();
        if goes && let Some(admission) = self.admission.as_mut() {
            admission.plan.retain(|_, _| false);
            admission.plan.skip();
        }
        goes
    }

    /// Goes on with the next equivalent model. False: there is none.
    pub(super) fn fall_back(&mut self, now: Instant) -> bool {
        let Some((place, model)) = self.next_fallback() else { return false };
        let reason = self.reason(now);
        let Some(admission) = self.admission.as_ref() else { return false };
        let Some(to) = admission.origin.fallback.get(place).cloned() else { return false };
        let more = admission.origin.fallback.len() > place + 1;
        let plan = self.plan(&model, &to, &admission.need, admission.seed);
        let plan = plan.after(&admission.plan, more);
        let Some(Admission { asked, degraded, fallbacks, plan: old, .. }) = self.admission.as_mut()
        else {
            return false;
        };
        let from = degraded.take().map_or_else(|| asked.clone(), |d| d.from);
        *degraded = Some(Degraded { from, to, reason });
        *fallbacks = place + 1;
        *old = plan;
        true
    }

    /// Why the asked model does not serve, in one word.
    fn reason(&self, now: Instant) -> &'static str {
        if let Some(failure) = &self.record.failure {
            return match failure.class {
                Class::RateLimited | Class::RateHopeless => "rate_limited",
                Class::Auth | Class::Quota => "credentials",
                Class::ContextLength => "context_length",
                Class::ContentFilter => "content_filter",
                Class::Timeout => "timeout",
                _ => "failed",
            };
        }
        let Some(plan) = self.admission.as_ref().map(|a| &a.plan) else { return "failed" };
        match plan.blocks(now).first() {
            Some((.., Block::Open(_) | Block::Down)) => "unhealthy",
            Some((.., Block::Resting(rest))) if rest.is_rate() => "rate_limited",
            Some((.., Block::Full(_))) => "rate_limited",
            Some(_) => "credentials",
            None if plan.lack().is_some() => "does_not_fit",
            None => "no_target",
        }
    }

    /// Models that this key may ask for instead and that can be asked now, the configured
    /// equivalents first.
    pub(super) fn equivalents(&self, now: Instant) -> Vec<String> {
        let (Some(admission), Some(key)) = (&self.admission, self.key.as_deref()) else {
            return Vec::new();
        };
        let listed = admission.origin.fallback.iter().cloned();
        let others = self.snapshot.routes.models.iter().map(|m| m.name.as_str().to_owned());
        let mut out: Vec<String> = Vec::new();
        for name in listed.chain(others.filter(|n| !n.contains('*'))) {
            let usable = || {
                let model = self.snapshot.routes.resolve(&name);
                model
                    .is_some_and(|m| self.plan(&m, &name, &admission.need, 0).choose(now).is_some())
            };
            let new = name != admission.asked && !out.contains(&name);
            if out.len() < EQUIVALENTS_MAX && new && key.allows(&name) && usable() {
                out.push(name);
            }
        }
        out
    }
}
