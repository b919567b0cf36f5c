//! When a provider's models and credentials are left alone: `breaker`, `cooldown` and `health`.

use super::part;
use crate::config::value::{Shape, Table, View};
use crate::route::breaker::Rule;
use crate::route::health::Health;
use crate::route::rest::Cooldown;
use std::time::Duration;

const BREAKER: Shape = Shape {
    known: &["window", "min_requests", "error_rate", "consecutive", "open_for", "probes"],
    later: &[],
};
const HEALTH: Shape = Shape { known: &["path", "every", "timeout"], later: &[] };
const COOLDOWN: Shape = Shape { known: &["quota", "auth", "rate"], later: &[] };

/// A count above this is written to say "never", which a million requests a window are too.
const COUNT_MAX: u64 = 1_000_000_000;
/// More tries than this at once are no probe but a load.
const PROBES_MAX: u64 = 100;

pub(super) fn breaker(v: &View<'_>) -> Rule {
    let empty = Table::new();
    let v = part(v, "breaker", &BREAKER, &empty);
    let usual = Rule::default();
    let count = |key, range, usual| v.integer(key, range).map_or(usual, |n| n as u32);
    Rule {
        window: v.duration("window", usual.window),
        min_requests: count("min_requests", 1..=COUNT_MAX, usual.min_requests),
        error_rate: rate(&v).unwrap_or(usual.error_rate),
        consecutive: count("consecutive", 0..=COUNT_MAX, usual.consecutive),
        open_for: v.duration("open_for", usual.open_for),
        probes: count("probes", 1..=PROBES_MAX, usual.probes),
    }
}

fn rate(v: &View<'_>) -> Option<f64> {
    let number = v.get("error_rate")?.value.number().and_then(|n| n.parse::<f64>().ok());
    let rate = number.filter(|rate| *rate > 0.0 && *rate <= 1.0);
    if rate.is_none() {
        v.fault("error_rate", "a share above 0 and up to 1 is needed here, such as 0.5");
    }
    rate
}

/// `health`: absent, nobody probes.
pub(super) fn health(v: &View<'_>) -> Option<Health> {
    let v = v.table("health", &HEALTH)?;
    let path = v.text("path").unwrap_or("/models");
    let sound = path.starts_with('/') && path.parse::<http::Uri>().is_ok();
    if !sound {
        v.fault("path", "a path such as \"/models\" is needed here");
    }
    Some(Health {
        path: path.to_owned(),
        every: v.duration("every", Duration::from_secs(30)),
        timeout: v.duration("timeout", Duration::from_secs(5)),
    })
}

pub(super) fn cooldown(v: &View<'_>) -> Cooldown {
    let empty = Table::new();
    let v = part(v, "cooldown", &COOLDOWN, &empty);
    let usual = Cooldown::default();
    Cooldown {
        quota: v.duration("quota", usual.quota),
        auth: v.duration("auth", usual.auth),
        rate: v.duration("rate", usual.rate),
    }
}
