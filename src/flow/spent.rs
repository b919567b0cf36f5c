//! Budgets after a start and after a reload: what the ledger knows of their running periods.

use super::Gateway;
use crate::limit::{Alert, Measure, Now, Period, Rule, Rules, Scope};
use crate::meter::report::{Owner, Spent, spent};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Sets what new budgets have used so far. A ledger that cannot be read is a warning: budgets then
/// count from this moment.
pub(super) fn recall(gateway: &Gateway, rules: &Rules, ledger: &Path) {
    let now = Now::read();
    let new = gateway.limits.unseeded(rules.all(), now);
    let mut groups: BTreeMap<(Option<i64>, Scope), Vec<Arc<Rule>>> = BTreeMap::new();
    for (rule, period) in new {
        groups.entry((since(period), rule.owner.scope)).or_default().push(rule);
    }
    for ((since, scope), rules) in groups {
        let Some(owner) = column(scope) else { continue };
        match spent(ledger, owner, since) {
            Ok(rows) => seed(gateway, &rules, &rows, now),
            Err(error) => {
                log::warn!("budgets of each {} begin at zero: {error}", scope.as_str());
            }
        }
    }
}

/// `None` for a period of all time.
fn since(period: Period) -> Option<i64> {
    Some(period.start).filter(|_| period.end.is_some())
}

/// Whom the ledger knows by which column; the gateway has no budgets.
fn column(scope: Scope) -> Option<Owner> {
    match scope {
        Scope::Gateway => None,
        Scope::Department => Some(Owner::Department),
        Scope::Team => Some(Owner::Team),
        Scope::User => Some(Owner::User),
        Scope::Key => Some(Owner::Key),
    }
}

fn seed(gateway: &Gateway, rules: &[Arc<Rule>], rows: &[Spent], now: Now) {
    let mut by_owner: BTreeMap<&str, Vec<&Spent>> = BTreeMap::new();
    for row in rows {
        by_owner.entry(&row.owner).or_default().push(row);
    }
    for rule in rules {
        let rows = by_owner.get(&*rule.owner.name).map_or(&[][..], Vec::as_slice);
        let mine = rows.iter().filter(|row| rule.holds(&row.model, &row.endpoint));
        let used = mine.fold(0u64, |sum, row| {
            let amount = if rule.measure() == Some(Measure::Money) { row.cost } else { row.tokens };
            sum.saturating_add(amount)
        });
        let reached = gateway.limits.seed(rule, used, now);
        // An earlier process may have died between the line in the log and the webhook. With
        // Redis one node of all has told it, whatever this one's own ledger says.
        if reached && gateway.limits.redis_up().is_none() {
            gateway.notify_of(&Alert { rule: rule.clone(), used }, now);
        }
    }
}
