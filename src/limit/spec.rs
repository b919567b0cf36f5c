//! What an owner's table says, and the rules that come of it.

use super::period::Per;
use super::rule::{Downgrade, Exhausted, Kind, Measure, Owner, Rule, narrowed};
use jiff::tz::TimeZone;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// What a limit, a window and a budget may say alike.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Common {
    /// Only for these models; empty is all.
    pub models: Vec<String>,
    /// Only for these endpoints; empty is all.
    pub endpoints: Vec<String>,
    /// For running streams.
    pub exhausted: Exhausted,
    /// The key rests for so long.
    pub penalty: Option<Duration>,
}

/// One table of `limits`.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)] // each is told in conf/weir.toml
pub struct Limit {
    pub rpm: Option<u64>,
    pub rps: Option<u64>,
    pub tpm: Option<u64>,
    pub tps: Option<u64>,
    /// Of the request bucket with the shortest period.
    pub burst: Option<u64>,
    /// Of the token bucket with the shortest period.
    pub burst_tokens: Option<u64>,
    pub concurrent: Option<u64>,
    /// Prompt and output of one request.
    pub max_tokens_per_request: Option<u64>,
    pub common: Common,
}

/// One table of `windows`.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Requests or tokens.
    pub measure: Measure,
    /// How many.
    pub amount: u64,
    /// In how long.
    pub length: Duration,
    /// The rest.
    pub common: Common,
}

/// One table of `budgets`.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// Tokens or money.
    pub measure: Measure,
    /// Tokens or nano-USD.
    pub amount: u64,
    /// In which period.
    pub per: Per,
    /// In millionths of the amount.
    pub alert: Option<u32>,
    /// The cheaper model.
    pub downgrade: Option<Downgrade>,
    /// The rest.
    pub common: Common,
}

/// What one owner's table says. What it leaves unsaid its defaults fill.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spec {
    /// `limits`
    pub limits: Option<Vec<Limit>>,
    /// `windows`
    pub windows: Option<Vec<Window>>,
    /// `budgets`
    pub budgets: Option<Vec<Budget>>,
}

/// Two rules of one owner count the same: their counter would count twice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} stands twice for the same models and endpoints")]
pub struct Twice(pub String);

impl Spec {
    /// What this leaves unsaid, taken from `defaults`.
    #[must_use]
    pub fn or(self, defaults: &Self) -> Self {
        Self {
            limits: self.limits.or_else(|| defaults.limits.clone()),
            windows: self.windows.or_else(|| defaults.windows.clone()),
            budgets: self.budgets.or_else(|| defaults.budgets.clone()),
        }
    }

    /// The rules of an owner under this table.
    ///
    /// # Errors
    /// Two of them are the same.
    pub fn rules(&self, owner: &Owner, zone: &TimeZone) -> Result<Vec<Arc<Rule>>, Twice> {
        let mut rules = Vec::new();
        for limit in self.limits.iter().flatten() {
            limit.rules(owner, &mut rules);
        }
        for window in self.windows.iter().flatten() {
            rules.push(window.rule(owner));
        }
        for budget in self.budgets.iter().flatten() {
            rules.push(budget.rule(owner, zone));
        }
        for (i, rule) in rules.iter().enumerate() {
            if rules[..i].iter().any(|other| other.id == rule.id) {
                return Err(Twice(rule.name.to_string()));
            }
        }
        Ok(rules.into_iter().map(Arc::new).collect())
    }

    /// What its limits, windows and budgets say alike.
    pub fn commons(&mut self) -> impl Iterator<Item = &mut Common> {
        let limits = self.limits.iter_mut().flatten().map(|l| &mut l.common);
        let windows = self.windows.iter_mut().flatten().map(|w| &mut w.common);
        let budgets = self.budgets.iter_mut().flatten().map(|b| &mut b.common);
        limits.chain(windows).chain(budgets)
    }

    /// What it says of the largest request, which is no rule, as [`Rule::said`] says a rule.
    pub fn said_of_largest(&self) -> impl Iterator<Item = String> {
        self.limits.iter().flatten().filter_map(|limit| {
            let most = limit.max_tokens_per_request?;
            let only = narrowed(&limit.common.models, &limit.common.endpoints);
            Some(format!("max_tokens_per_request {most}{only}"))
        })
    }

    /// The most tokens that one request for this model may have; `None` is no bound.
    #[must_use]
    pub fn largest_request(&self, model: &str, endpoint: &str) -> Option<u64> {
        let applies = |limit: &&Limit| limit.common.applies(model, endpoint);
        let limits = self.limits.iter().flatten().filter(applies);
        limits.filter_map(|l| l.max_tokens_per_request).min()
    }
}

impl Common {
    fn applies(&self, model: &str, endpoint: &str) -> bool {
        let fits = |m: &String| crate::base::Glob::new(m).matches(model);
        (self.models.is_empty() || self.models.iter().any(fits))
            && (self.endpoints.is_empty() || self.endpoints.iter().any(|e| e == endpoint))
    }

    fn dress(&self, rule: Rule) -> Rule {
        let mut rule = rule.only(&self.models, &self.endpoints);
        rule.exhausted = self.exhausted;
        rule.penalty = self.penalty;
        rule
    }
}

impl Limit {
    fn rules(&self, owner: &Owner, out: &mut Vec<Rule>) {
        let mut bucket = |name: &str, measure, amount: Option<u64>, period, burst: Option<u64>| {
            let Some(amount) = amount else { return };
            let kind = Kind::Bucket { measure, amount, period, burst: burst.unwrap_or(amount) };
            out.push(self.common.dress(Rule::new(owner, name, name, kind)));
        };
        let (requests, tokens) = (Measure::Requests, Measure::Tokens);
        // A burst is of the shorter period where both are limited.
        let of_minute =
            |burst: Option<u64>, second: Option<u64>| burst.filter(|_| second.is_none());
        bucket("rpm", requests, self.rpm, MINUTE, of_minute(self.burst, self.rps));
        bucket("rps", requests, self.rps, SECOND, self.burst);
        bucket("tpm", tokens, self.tpm, MINUTE, of_minute(self.burst_tokens, self.tps));
        bucket("tps", tokens, self.tps, SECOND, self.burst_tokens);
        if let Some(amount) = self.concurrent {
            let rule = Rule::new(owner, "concurrent", "concurrent", Kind::Concurrent { amount });
            out.push(self.common.dress(rule));
        }
    }
}

impl Window {
    fn rule(&self, owner: &Owner) -> Rule {
        let per = length(self.length);
        let what = self.measure.as_str();
        let (measure, amount, length) = (self.measure, self.amount, self.length);
        let kind = Kind::Window { measure, amount, length };
        let (tail, name) = (format!("window/{what}/{per}"), format!("{what} per {per}"));
        self.common.dress(Rule::new(owner, &tail, &name, kind))
    }
}

impl Budget {
    fn rule(&self, owner: &Owner, zone: &TimeZone) -> Rule {
        let (what, per) = (self.measure.as_str(), self.per.as_str());
        let kind = Kind::Budget {
            measure: self.measure,
            amount: self.amount,
            per: self.per,
            zone: zone.clone(),
        };
        let (tail, name) = (format!("budget/{what}/{per}"), format!("{what} per {per}"));
        let mut rule = self.common.dress(Rule::new(owner, &tail, &name, kind));
        rule.alert = self.alert;
        rule.downgrade = self.downgrade.clone().map(Box::new);
        rule
    }
}

/// `minute`, `hour`, `day`, or seconds.
fn length(length: Duration) -> String {
    match length.as_secs() {
        60 => "minute".into(),
        3_600 => "hour".into(),
        86_400 => "day".into(),
        seconds => format!("{seconds}s"),
    }
}
