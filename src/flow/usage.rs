//! `/v1/usage`: how a key's own limits and budgets stand, and what it has used.

use super::Gateway;
use super::govern::owners;
use super::ticket::Ticket;
use crate::limit::{Caller, Measure, Now, Per, Rule, Scope, Standing};
use crate::meter::report::{self, Owner, Spent};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_filters::error::{ApiError, Code};
use weir_filters::usage::NanoUsd;

impl Ticket {
    /// The page's JSON. The ledger is read on a thread that may wait for the disk.
    ///
    /// # Errors
    /// 503 where the ledger cannot be read.
    pub async fn usage(&self) -> Result<Value, ApiError> {
        let Some(key) = self.key.clone() else {
            return Err(ApiError::new(Code::InvalidApiKey, "no API key"));
        };
        let now = Now::read();
        let rules = self.rules();
        let zone = rules.zone.clone();
        // Not the gateway's own: its limits are nobody's business but its operator's.
        let (mut limits, mut budgets) = (Vec::new(), Vec::new());
        let all = owners(&key).skip(1).flat_map(|(scope, name)| rules.of(scope, name)).cloned();
        let caller = Caller { id: self.event_id.0.as_u128(), tag: self.tag() };
        for (rule, standing) in self.gateway.limits.standings(all.collect(), &caller, now).await {
            let list = if rule.is_budget() { &mut budgets } else { &mut limits };
            list.push(line(&rule, &standing, now.wall));
        }
        let starts = [Per::Day, Per::Month].map(|per| per.at(now.wall, &zone).start);
        let (path, id) = (self.snapshot.store.path.clone(), key.id.clone());
        let read =
            move || starts.map(|s| report::spent_by(&path, Owner::Key, id.as_str(), Some(s)));
        let away = |why: String| ApiError::new(Code::StoreUnavailable, why);
        let read = tokio::task::spawn_blocking(read).await.map_err(|e| away(e.to_string()))?;
        let [today, month] = read.map(|rows| rows.map_err(|e| away(e.to_string())));
        Ok(json!({
            "key": key.name,
            "team": key.team.as_ref().map(|t| t.as_str()),
            "limits": limits,
            "budgets": budgets,
            "usage": { "today": sums(&today?), "month": sums(&month?) },
        }))
    }
}

/// How an owner's limits stand, and its budgets.
#[must_use]
pub fn standings(gateway: &Gateway, scope: Scope, name: &str) -> (Vec<Value>, Vec<Value>) {
    let (now, rules) = (Now::read(), gateway.rules());
    let (mut limits, mut budgets) = (Vec::new(), Vec::new());
    for rule in rules.of(scope, name) {
        let Some(standing) = gateway.limits.standing(rule, now) else { continue };
        let list = if rule.is_budget() { &mut budgets } else { &mut limits };
        list.push(line(rule, &standing, now.wall));
    }
    (limits, budgets)
}

fn line(rule: &Arc<Rule>, standing: &Standing, now: Timestamp) -> Value {
    let amount = |n: u64| match rule.measure() {
        Some(Measure::Money) => json!(NanoUsd(n).to_string()),
        _ => json!(n),
    };
    let resets = standing.reset.and_then(|wait| now.checked_add(wait).ok());
    // A period ends on a whole second, whatever the clocks of two machines make of it.
    let whole = |at: Timestamp| at.round(jiff::Unit::Second).unwrap_or(at);
    let resets = if rule.is_budget() { resets.map(whole) } else { resets };
    json!({
        "rule": format!("{}: {}{}", rule.owner, rule.name, rule.narrowed()),
        "limit": amount(standing.limit),
        "used": amount(standing.used),
        "held": amount(standing.held),
        "remaining": amount(standing.remaining),
        "resets_at": resets.map(|at| at.to_string()),
    })
}

fn sums(rows: &[Spent]) -> Value {
    let sum =
        |of: &dyn Fn(&Spent) -> u64| rows.iter().fold(0u64, |sum, row| sum.saturating_add(of(row)));
    json!({
        "requests": sum(&|r| r.requests),
        "input_tokens": sum(&|r| r.classes[0]),
        "cached_tokens": sum(&|r| r.classes[1]),
        "cache_write_tokens": sum(&|r| r.classes[2]),
        "output_tokens": sum(&|r| r.classes[3]),
        "reasoning_tokens": sum(&|r| r.classes[4]),
        "cost_usd": NanoUsd(sum(&|r| r.cost)).to_string(),
    })
}
