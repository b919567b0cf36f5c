//! An event as a row.

use super::event::Event;
use rusqlite::{Connection, Result, params};

/// The largest number a row holds. What this program writes is below it (a provider's nonsense is
/// replaced by our estimate); with this cap no line of another's can overflow SQLite's sums.
const NUMBER_MAX: u64 = weir_filters::usage::NanoUsd::ANSWER_MAX.0;

const INSERT: &str = "INSERT OR IGNORE INTO events (
    event_id, ts, request_id, trace_id, key_id, key_name, team, department, user, end_user, tags,
    task_type, budget_tier, endpoint, dialect, requested_model, provider, credential, model,
    limited_by, status, error_code, outcome, streamed, attempts, input_tokens, cached_tokens,
    cache_write_tokens, output_tokens, reasoning_tokens, usage_source, units, cost_nano_usd,
    wasted_cost_nano_usd, price_source, reserved_tokens, ttft_ms, duration_ms, overhead_us, cache,
    degraded_from, config_version
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
    ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39,
    ?40, ?41, ?42)";

/// Inserts one; false when the ledger has it already.
///
/// # Errors
/// The database's.
pub fn insert(db: &Connection, e: &Event) -> Result<bool> {
    let n = db.prepare_cached(INSERT)?.execute(params![
        e.event_id.0.as_bytes().as_slice(),
        e.ts.as_microsecond(),
        e.request_id.as_str(),
        e.trace_id.as_str(),
        e.key_id.as_deref(),
        e.key_name.as_deref(),
        e.team.as_deref(),
        e.department.as_deref(),
        e.user.as_deref(),
        e.end_user.as_deref(),
        json(&e.tags),
        e.task_type.as_deref(),
        e.budget_tier.as_deref(),
        e.endpoint.as_str(),
        e.dialect.as_str(),
        e.requested_model.as_deref(),
        e.provider.as_deref(),
        e.credential.as_deref(),
        e.model.as_deref(),
        e.limited_by.as_deref(),
        e.status,
        e.error_code.as_deref(),
        e.outcome.as_str(),
        e.streamed,
        json(&e.attempts),
        number(e.input_tokens),
        number(e.cached_tokens),
        number(e.cache_write_tokens),
        number(e.output_tokens),
        number(e.reasoning_tokens),
        json(&e.usage_source).trim_matches('"'),
        json(&e.units),
        e.cost_nano_usd.map(|c| number(c.0)),
        number(e.wasted_cost_nano_usd.0),
        e.price_source.as_deref(),
        number(e.reserved_tokens),
        e.ttft_ms.map(number),
        number(e.duration_ms),
        number(e.overhead_us),
        e.cache.as_deref(),
        e.degraded_from.as_deref(),
        e.config_version.as_str(),
    ])?;
    Ok(n == 1)
}

pub(super) fn number(n: u64) -> i64 {
    i64::try_from(n.min(NUMBER_MAX)).unwrap_or(i64::MAX)
}

pub(super) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
