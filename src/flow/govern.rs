//! What a request may use: the rules of its owners, what it holds of them, and what it settles.

use super::finish::Measured;
use super::ticket::{Degraded, Ticket};
use crate::access::Key;
use crate::config::Unpriced;
use crate::limit::{
    Alert, Amount, Ask, Caller, DefaultOutput, Kind, Measure, Now, Refusal, Reservation, Rule,
    Rules, Scope, Tightest, Used, Why, learned,
};
use crate::meter::Outcome;
use crate::route::Model;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use weir_filters::error::{ApiError, Code};
use weir_filters::usage::{Price, Usage};
use weir_filters::wire::Tap;

/// A key's owners, the widest first.
pub(super) fn owners(key: &Key) -> impl Iterator<Item = (Scope, &str)> {
    let owners = [
        Some((Scope::Gateway, "")),
        key.department.as_ref().map(|d| (Scope::Department, d.as_str())),
        key.team.as_ref().map(|t| (Scope::Team, t.as_str())),
        key.user.as_ref().map(|u| (Scope::User, u.as_str())),
        Some((Scope::Key, key.id.as_str())),
    ];
    owners.into_iter().flatten()
}

impl Ticket {
    /// Every owner's rules as they were when the key was found.
    pub(super) fn rules(&self) -> &Rules {
        self.minted.as_deref().map_or(&self.snapshot.rules, |minted| &minted.rules)
    }

    /// Finds the rules that a request for this model is held against.
    pub(super) fn govern(&mut self, key: &Key, asked: &str) {
        let rules = self.rules().gather(owners(key), asked, self.arrival.endpoint);
        let money = |r: &Arc<Rule>| r.is_budget() && r.measure() == Some(Measure::Money);
        self.taken.priced = rules.iter().any(money);
        self.taken.rules = rules;
    }

    /// The model that a budget near its end still pays for: the asked one, or the cheaper one
    /// that the budget names, where the key may use it.
    pub(super) fn affordable(
        &mut self,
        key: &Key,
        asked: String,
        model: Arc<Model>,
    ) -> (String, Arc<Model>, Option<Degraded>) {
        if self.taken.rules.is_empty() {
            return (asked, model, None);
        }
        let downgrade = self.gateway.limits.downgrade(&self.taken.rules, Now::read());
        let cheaper = downgrade.filter(|d| *d.to != asked);
        let found = cheaper.and_then(|d| Some((d.to.to_string(), self.model(key, &d.to).ok()?)));
        let Some((to, cheaper)) = found else { return (asked, model, None) };
        self.govern(key, &to);
        let degraded = Degraded { from: asked, to: to.clone(), reason: "budget" };
        (to, cheaper, Some(degraded))
    }

    /// What the admitted request may use at most, for [`Ticket::reserve`].
    ///
    /// # Errors
    /// 413 where one request of its owners may not be so large.
    pub(super) fn measure_ask(&mut self) -> Result<(), ApiError> {
        let Some(admission) = self.admission.as_mut() else { return Ok(()) };
        let (peek, prompt) = (&admission.peek, admission.prompt_tokens);
        let bound = self.taken.rules.largest_request(&admission.asked, self.arrival.endpoint);
        let said = peek.max_tokens.map(|most| most.saturating_mul(peek.n));
        let generates = !self.arrival.api.is_quick();
        if let Some((most, owner)) = bound {
            // One that names no maximum has room for a token at least.
            let least = if said.is_none() && generates { peek.n } else { 0 };
            let sure = prompt.saturating_add(said.unwrap_or(least));
            if sure > most {
                let why = format!(
                    "the request may have {sure} tokens; max_tokens_per_request of {owner} is \
                     {most}"
                );
                return Err(ApiError::new(Code::RequestTooLarge, why));
            }
            self.taken.cap = (said.is_none() && generates).then(|| (most - prompt) / peek.n.max(1));
        }
        let sure = prompt.saturating_add(said.unwrap_or(0));
        if self.taken.rules.is_empty() {
            return Ok(());
        }
        let learned = self.gateway.limits.outputs.usual(&admission.asked);
        let default = match &self.snapshot.server.unpriced {
            Unpriced::Price(price) => Some(price.clone()),
            Unpriced::Warn | Unpriced::Refuse => None,
        };
        let mut offers: Vec<(Option<Arc<Price>>, Option<u64>)> = Vec::new();
        admission.plan.retain(|provider, model| {
            let offer = provider.offer(model);
            let price = offer.and_then(|o| o.price.clone()).or_else(|| default.clone());
            offers.push((price, offer.and_then(|o| o.max_output.or(o.context))));
            true
        });
        let ceiling = offers.iter().filter_map(|(_, most)| *most).max();
        let rules = self.minted.as_deref().map_or(&self.snapshot.rules, |m| &m.rules);
        let guess = match rules.default_output {
            DefaultOutput::Learned => learned.min(ceiling.unwrap_or(u64::MAX)),
            DefaultOutput::Fixed(tokens) => tokens,
            DefaultOutput::Max => ceiling.unwrap_or(learned::FIRST),
        };
        let guess = guess.min(self.taken.cap.unwrap_or(u64::MAX));
        let open = said.is_none() && generates;
        let guess = if open { guess.saturating_mul(peek.n) } else { 0 };
        let dearest = |output: u64| {
            let usage = Usage { input: prompt, output, ..Usage::default() };
            let costs = offers.iter().filter_map(|(price, _)| Some(price.as_ref()?.cost(&usage).0));
            costs.max().unwrap_or(0)
        };
        let money = dearest(said.unwrap_or(0));
        let guessed = if guess > 0 { dearest(guess).saturating_sub(money) } else { 0 };
        self.taken.ask =
            Ask { tokens: Amount { sure, guess }, money: Amount { sure: money, guess: guessed } };
        Ok(())
    }

    /// Takes what the admitted request may use of every rule, in one step.
    ///
    /// # Errors
    /// 429 or 402, naming rule, owner and reset; nothing was taken.
    pub async fn reserve(&mut self) -> Result<(), ApiError> {
        if self.taken.rules.is_empty() {
            return Ok(());
        }
        let now = Now::read();
        let (rules, limits) = (self.taken.rules.clone(), self.gateway.limits.clone());
        // Only Redis asks where a key lies.
        let tag = limits.redis_up().map(|_| self.tag()).unwrap_or_default();
        let caller = Caller { id: self.event_id.0.as_u128(), tag };
        match limits.reserve(rules, &self.taken.ask, caller, now).await {
            Ok(reservation) => {
                self.taken.reservation = Some(reservation);
                Ok(())
            }
            Err(refusal) => {
                self.record.limited_by = Some(refusal.rule.id.clone());
                self.taken.refused = Some(refusal.clone());
                let team = self.key.as_deref().and_then(|k| k.team.as_ref());
                let team = team.map_or("", |t| t.as_str());
                let scope = refusal.rule.owner.scope.as_str();
                self.gateway.metrics.limits.refused(scope, &refusal.rule.name, team);
                Err(refused(&refusal, now.wall))
            }
        }
    }

    /// The part of Redis' keys that decides where they lie: a team's rules and its keys' are
    /// together.
    pub(super) fn tag(&self) -> String {
        let Some(key) = self.key.as_deref() else { return String::new() };
        match &key.team {
            Some(team) => format!("team:{team}"),
            None => format!("key:{}", key.id),
        }
    }

    /// A running stream has used more than it holds, and a rule cuts it.
    pub fn outgrown<'t>(&mut self, tap: impl FnOnce() -> &'t mut Tap) -> bool {
        let prompt = self.admission.as_ref().map_or(0, |a| a.prompt_tokens);
        let price = self.price();
        let Some(reservation) = self.taken.reservation.as_mut().filter(|r| r.watches()) else {
            return false;
        };
        let output = tap().counter.total();
        let usage = Usage { input: prompt, output, ..Usage::default() };
        let money = price.map_or(0, |p| p.cost(&usage).0);
        let used = Used { requests: 1, tokens: usage.total(), money };
        match reservation.grow(&used, Now::read()) {
            Ok(()) => false,
            Err(refusal) => {
                self.record.limited_by = Some(refusal.rule.id.clone());
                true
            }
        }
    }

    /// Books what was used in place of what was held; what nobody was asked for comes back whole.
    pub fn settle(&mut self, measured: &Measured) {
        self.settle_by(measured, Reservation::settle);
    }

    /// The same for an answer whose header, which comes next, tells what is left.
    pub fn settle_and_tell(&mut self, measured: &Measured) {
        self.settle_by(measured, Reservation::settle_and_tell);
    }

    fn settle_by(
        &mut self,
        measured: &Measured,
        settle: fn(&mut Reservation, &Used, Now) -> Vec<Alert>,
    ) {
        let asked = self.asked();
        let Some(reservation) = self.taken.reservation.as_mut() else { return };
        let used = Used {
            requests: u64::from(asked),
            tokens: measured.usage.total(),
            money: measured.cost.map_or(0, |c| c.0),
        };
        for alert in settle(reservation, &used, Now::read()) {
            self.gateway.alert(&alert);
        }
    }

    /// Whether any provider was asked.
    fn asked(&self) -> bool {
        let tried = |error: Option<&str>| error != Some("connect");
        self.running.as_ref().is_some_and(|r| r.sent)
            || self.record.attempts.iter().any(|a| tried(a.error.as_deref()))
    }

    /// What a model usually says is learned of its whole answers.
    pub(super) fn learn(&self, outcome: Outcome, measured: &Measured, tap: Option<&Tap>) {
        let Some(admission) = &self.admission else { return };
        let whole = tap.is_some_and(|tap| tap.finish != Some("length"));
        if outcome == Outcome::Success && whole && !self.taken.rules.is_empty() {
            let each = measured.usage.output / admission.peek.n.max(1);
            self.gateway.limits.outputs.learn(&admission.asked, each);
        }
    }

    /// How the caller's tightest rules stand, for headers.
    #[must_use]
    pub fn tightest(&self) -> Tightest {
        if self.taken.rules.is_empty() {
            return Tightest::default();
        }
        match &self.taken.reservation {
            Some(reservation) => reservation.tightest(),
            None => {
                let here = self.gateway.limits.tightest(&self.taken.rules, Now::read());
                match &self.taken.refused {
                    // What Redis refused for all nodes, this one's own counters do not show.
                    Some(r) if self.gateway.limits.redis_up() == Some(true) => here.without(r),
                    _ => here,
                }
            }
        }
    }

    /// The same for an answer that says what failed: nothing is held any more.
    #[must_use]
    pub fn tightest_of_failure(&self) -> Tightest {
        match &self.taken.reservation {
            Some(held) => held.tightest_of_failure(self.asked(), Now::read()),
            None => self.tightest(),
        }
    }

    pub(super) fn reserved_tokens(&self) -> u64 {
        let held = self.taken.reservation.as_ref();
        held.map_or(0, |r| r.reserved_tokens(&self.taken.ask))
    }
}

/// A refusal in the caller's words.
pub(super) fn refused(refusal: &Refusal, now: Timestamp) -> ApiError {
    let Refusal { rule, why } = refusal;
    let (owner, name) = (&rule.owner, &rule.name);
    let code = if rule.is_budget() { Code::BudgetExceeded } else { Code::RateLimitExceeded };
    let amount = rule.measure().unwrap_or(Measure::Requests).show(rule.capacity());
    match *why {
        Why::Wait(wait) => {
            let text = format!(
                "rate limit of {owner} reached: {}; it resets in {} s",
                rule.said(),
                seconds(wait)
            );
            ApiError::new(code, text).after(wait)
        }
        Why::Rests(wait) if rule.kind == Kind::Rest => {
            let text = format!("{owner} rests for {} s after running into a limit", seconds(wait));
            ApiError::new(code, text).after(wait)
        }
        Why::Rests(wait) => {
            let text = format!(
                "this key rests for {} s, having run into {name} of {owner}",
                seconds(wait)
            );
            ApiError::new(code, text).after(wait)
        }
        Why::Never => {
            let text = format!(
                "this request asks for more than {name} of {owner} ever has ({amount}); no reset \
                 helps"
            );
            ApiError { retry: false, ..ApiError::new(code, text) }
        }
        Why::Spent { used, held, resets } => {
            let measure = rule.measure().unwrap_or(Measure::Money);
            let at = resets.and_then(|at| Timestamp::from_second(at).ok());
            let when =
                at.map_or_else(|| "it never resets".into(), |at| format!("it resets at {at}"));
            // It may have something left, for smaller requests than this one.
            let spent = used >= rule.capacity();
            let state = if spent { "is spent" } else { "has too little left" };
            let text = format!(
                "the budget of {owner} {state}: {amount} per {}{}, {} used and {} reserved for \
                 running requests; {when}",
                rule.per().unwrap_or_default(),
                rule.narrowed(),
                measure.show(used),
                measure.show(held),
            );
            let error = ApiError::new(code, text);
            match at {
                Some(at) => error.after(Duration::try_from(at - now).unwrap_or_default()),
                None => error,
            }
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
