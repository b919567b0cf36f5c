//! What the registry knows, as rows of metrics.

use super::Gateway;
use crate::limit::{Now, Rule};
use crate::observe::limits::{Budget, Facts};
use crate::observe::tables::Size;
use crate::observe::targets::Row;
use std::sync::Arc;
use std::time::Instant;

/// Tells metrics, at each scrape, how providers' targets and credentials are.
pub(super) fn watch(gateway: &Arc<Gateway>) {
    let weak = Arc::downgrade(gateway);
    gateway
        .metrics
        .limits
        .on_scrape(move || weak.upgrade().map(|g| budgets(&g)).unwrap_or_default());
    let weak = Arc::downgrade(gateway);
    gateway.metrics.tables.on_scrape(move |tell| {
        if let Some(gateway) = weak.upgrade() {
            tables(&gateway, tell);
        }
    });
    let weak = Arc::downgrade(gateway);
    gateway.metrics.targets.on_scrape(move |tell| {
        let Some(gateway) = weak.upgrade() else { return };
        let now = Instant::now();
        gateway.registry.each(|provider, live| {
            live.each_target(|model, state| {
                tell(Row::Breaker { provider, model, state: state as u8 });
            });
            live.each_credential(now, |credential, why| {
                let state = why.map_or(0, |why| why as u8);
                tell(Row::Credential { provider, credential, state });
            });
        });
    });
}

/// Tells metrics how full tables are.
fn tables(gateway: &Gateway, tell: &mut dyn FnMut(Size)) {
    let mut size = |table, (entries, max)| tell(Size::new(table, entries, max));
    let limits = &gateway.limits;
    size("limit_counters", limits.size(&gateway.rules()));
    size("learned_outputs", limits.outputs.size());
    size("targets", gateway.registry.size());
    size("alerts", gateway.alerts.size());
    let unsettled = usize::try_from(limits.unsettled()).unwrap_or(usize::MAX);
    size("redis_settlements", (unsettled, limits.unsettled_max()));
    let most = gateway.snapshot.load().server.max_body_bytes_open;
    size("request_body_bytes", (gateway.bodies.open(), most));
}

/// How every budget stands.
fn budgets(gateway: &Gateway) -> Facts {
    let (now, rules) = (Now::read(), gateway.rules());
    let row = |rule: &Arc<Rule>| {
        let standing = gateway.limits.standing(rule, now)?;
        // Amounts of money and tokens are far below where a float skips numbers that matter here.
        let ratio =
            if standing.limit == 0 { 1.0 } else { standing.used as f64 / standing.limit as f64 };
        let (scope, name) = (rule.owner.scope.as_str(), rule.owner.name.to_string());
        Some(Budget { scope, name, per: rule.per()?, ratio })
    };
    let budgets = rules.all().filter(|r| r.is_budget()).filter_map(row).collect();
    Facts { budgets, redis_up: gateway.limits.redis_up() }
}
