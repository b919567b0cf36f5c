//! A finished request's facts, handed to metrics and the access log.

use super::Gateway;
use super::finish::Caller;
use crate::meter::Event;
use crate::observe::{Finished, Line, Waiting};
use std::time::Duration;

pub(super) fn tell(gateway: &Gateway, event: &Event, caller: &Caller) {
    let usage = event.usage();
    let attempts: Vec<(&str, &str)> = (event.attempts.iter())
        .map(|a| (a.provider.as_str(), a.error.as_deref().unwrap_or("success")))
        .collect();
    let served = event.status == 200 && event.provider.is_some();
    gateway.metrics.finished(&Finished {
        endpoint: &event.endpoint,
        model: event.model.as_deref().or(event.requested_model.as_deref()).unwrap_or(""),
        provider: event.provider.as_deref().unwrap_or(""),
        team: event.team.as_deref().unwrap_or(""),
        status: event.status,
        outcome: event.outcome.as_str(),
        streamed: event.streamed,
        usage,
        cost: event.cost_nano_usd,
        ttft: event.ttft_ms.map(Duration::from_millis),
        duration: Duration::from_millis(event.duration_ms),
        overhead: Duration::from_micros(event.overhead_us),
        attempts: &attempts,
        unpriced: served && event.cost_nano_usd.is_none(),
    });
    let mut id = uuid::Uuid::encode_buffer();
    let id = event.event_id.0.hyphenated().encode_lower(&mut id);
    let waits = gateway.access.line(&Line {
        ts: event.ts,
        request_id: &event.request_id,
        event_id: Some(id),
        method: &caller.method,
        path: &caller.path,
        status: event.status,
        code: event.error_code.as_deref(),
        outcome: event.outcome.as_str(),
        streamed: event.streamed,
        key: event.key_name.as_deref(),
        team: event.team.as_deref(),
        requested_model: event.requested_model.as_deref(),
        model: event.model.as_deref(),
        provider: event.provider.as_deref(),
        attempts: u32::try_from(event.attempts.len()).unwrap_or(u32::MAX),
        usage,
        cost: event.cost_nano_usd,
        ttft_ms: event.ttft_ms,
        duration_ms: event.duration_ms,
        overhead_us: event.overhead_us,
        client: Some(&*caller.client).filter(|c| !c.is_empty()),
        user_agent: Some(&*caller.agent).filter(|a| !a.is_empty()),
    });
    if let Some(waiting) = waits {
        write_soon(waiting);
    }
}

/// Lines wait until the requests that are ready now have come to their end too. Where nothing runs
/// any more, they are written here.
fn write_soon(waiting: Waiting) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            drop(waiting);
        });
    }
}
