//! An event as a row, and what hourly sums become of it.

use super::event::Event;
use rusqlite::{Connection, Result, params};
use std::collections::HashMap;

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
        e.request_id,
        e.trace_id,
        e.key_id,
        e.key_name,
        e.team,
        e.department,
        e.user,
        e.end_user,
        json(&e.tags),
        e.task_type,
        e.budget_tier,
        e.endpoint,
        e.dialect,
        e.requested_model,
        e.provider,
        e.credential,
        e.model,
        e.limited_by,
        e.status,
        e.error_code,
        e.outcome.as_str(),
        e.streamed,
        json(&e.attempts),
        number(e.usage.input_tokens),
        number(e.usage.cached_tokens),
        number(e.usage.cache_write_tokens),
        number(e.usage.output_tokens),
        number(e.usage.reasoning_tokens),
        json(&e.usage_source).trim_matches('"'),
        json(&e.units),
        e.cost_nano_usd.map(|c| number(c.0)),
        number(e.wasted_cost_nano_usd.0),
        e.price_source,
        number(e.reserved_tokens),
        e.ttft_ms.map(number),
        number(e.duration_ms),
        number(e.overhead_us),
        e.cache,
        e.degraded_from,
        e.config_version,
    ])?;
    Ok(n == 1)
}

fn number(n: u64) -> i64 {
    i64::try_from(n.min(NUMBER_MAX)).unwrap_or(i64::MAX)
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Sums of the rows of one transaction, until they are added to the ledger's.
#[derive(Debug, Default)]
pub struct Rollups<'a>(HashMap<Group<'a>, Sums>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Group<'a> {
    /// Seconds since 1970, the hour's first.
    hour: i64,
    /// Department, team, user, key, provider, model, endpoint; empty where there is none.
    names: [&'a str; 7],
    status: u16,
    outcome: &'static str,
}

/// Requests, five token classes, cost, requests without a price, wasted cost.
type Sums = [i64; 9];

const ADD: &str = "INSERT INTO rollups VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
    ?13, ?14, ?15, ?16, ?17, ?18, ?19)
ON CONFLICT DO UPDATE SET requests = requests + excluded.requests,
    input_tokens = input_tokens + excluded.input_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
    cost_nano_usd = cost_nano_usd + excluded.cost_nano_usd,
    unpriced = unpriced + excluded.unpriced,
    wasted_cost_nano_usd = wasted_cost_nano_usd + excluded.wasted_cost_nano_usd";

impl<'a> Rollups<'a> {
    /// Adds a row that was really inserted.
    pub fn add(&mut self, e: &'a Event) {
        let name = |n: &'a Option<String>| n.as_deref().unwrap_or("");
        let key = if e.key_name.is_some() { &e.key_name } else { &e.key_id };
        let group = Group {
            hour: e.ts.as_second().div_euclid(3600) * 3600,
            names: [
                name(&e.department),
                name(&e.team),
                name(&e.user),
                name(key),
                name(&e.provider),
                name(&e.model),
                &e.endpoint,
            ],
            status: e.status,
            outcome: e.outcome.as_str(),
        };
        let row = [
            1,
            number(e.usage.input_tokens),
            number(e.usage.cached_tokens),
            number(e.usage.cache_write_tokens),
            number(e.usage.output_tokens),
            number(e.usage.reasoning_tokens),
            e.cost_nano_usd.map_or(0, |c| number(c.0)),
            i64::from(e.cost_nano_usd.is_none()),
            number(e.wasted_cost_nano_usd.0),
        ];
        let sums = self.0.entry(group).or_default();
        for (sum, n) in sums.iter_mut().zip(row) {
            *sum = sum.saturating_add(n);
        }
    }
    /// Adds them to the ledger's.
    ///
    /// # Errors
    /// The database's.
    pub fn write(&self, db: &Connection) -> Result<()> {
        let mut add = db.prepare_cached(ADD)?;
        for (group, sums) in &self.0 {
            let mut at = 1;
            let mut bind = |value: &dyn rusqlite::ToSql| {
                at += 1;
                add.raw_bind_parameter(at - 1, value)
            };
            bind(&group.hour)?;
            group.names.iter().try_for_each(|n| bind(n))?;
            bind(&group.status)?;
            bind(&group.outcome)?;
            sums.iter().try_for_each(|n| bind(n))?;
            add.raw_execute()?;
        }
        Ok(())
    }
}
