//! What the registry knows, as rows of metrics.

use super::Gateway;
use crate::observe::targets::Row;
use std::sync::Arc;
use std::time::Instant;

/// Tells metrics, at each scrape, how providers' targets and credentials are.
pub(super) fn watch(gateway: &Arc<Gateway>) {
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
