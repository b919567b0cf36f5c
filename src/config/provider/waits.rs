//! How long a provider is waited for, and which of its failures are tried again or elsewhere.

use super::part;
use crate::config::fault::hint;
use crate::config::value::{Shape, Table, View};
use crate::route::provider::{Failover, Faults, Pool, Retry, Timeouts};
use std::time::Duration;

const TIMEOUTS: Shape =
    Shape { known: &["connect", "first_token", "idle", "write", "reply", "total"], later: &[] };
const RETRY: Shape = Shape { known: &["attempts", "backoff", "max_backoff", "on"], later: &[] };
const FAILOVER: Shape = Shape { known: &["on", "max_elapsed"], later: &[] };
const POOL: Shape = Shape { known: &["idle_timeout", "max_age"], later: &[] };

/// More tries than this on one target are an attack on it.
const ATTEMPTS_MAX: u64 = 10;
/// The words of `on`, statuses aside.
const WORDS: &[&str] = &[
    "connect",
    "reset_before_headers",
    "first_token",
    "reply",
    "invalid",
    "5xx",
    "content_filter",
];

fn seconds(n: u64) -> Option<Duration> {
    Some(Duration::from_secs(n))
}

pub(super) fn timeouts(v: &View<'_>) -> Timeouts {
    let empty = Table::new();
    let v = part(v, "timeouts", &TIMEOUTS, &empty);
    Timeouts {
        connect: v.duration_or_off("connect", seconds(5)),
        first_token: v.duration_or_off("first_token", seconds(60)),
        idle: v.duration_or_off("idle", seconds(120)),
        write: v.duration_or_off("write", seconds(60)),
        reply: v.duration_or_off("reply", seconds(300)),
        quick_reply: v.duration_or_off("reply", seconds(30)),
        total: v.duration_or_off("total", seconds(600)),
    }
}

pub(super) fn pool(v: &View<'_>) -> Pool {
    let empty = Table::new();
    let v = part(v, "pool", &POOL, &empty);
    Pool {
        idle_timeout: v.duration_or_off("idle_timeout", seconds(50)),
        max_age: v.duration_or_off("max_age", seconds(600)),
    }
}

pub(super) fn retry(v: &View<'_>) -> Retry {
    let empty = Table::new();
    let v = part(v, "retry", &RETRY, &empty);
    let backoff = v.duration("backoff", Duration::from_millis(500));
    // A backoff above the default ceiling lifts it, one above a written ceiling is a contradiction.
    let max_backoff = v.duration("max_backoff", backoff.max(Duration::from_secs(8)));
    if max_backoff < backoff {
        v.fault("max_backoff", "is shorter than backoff");
    }
    let on = faults(&v).unwrap_or_else(|| Faults {
        connect: true,
        reset_before_headers: true,
        statuses: vec![429, 503, 529],
        ..Faults::default()
    });
    if on.filter {
        v.fault("on", "the same target refuses the same content: only failover may hold it");
    }
    if on.first_token || on.reply || on.invalid {
        let why =
            "first_token, reply and invalid may be billed already: only failover may hold them";
        v.fault("on", why);
    }
    Retry {
        attempts: v.integer("attempts", 1..=ATTEMPTS_MAX).unwrap_or(2) as u32,
        backoff,
        max_backoff,
        on,
    }
}

pub(super) fn failover(v: &View<'_>) -> Failover {
    let empty = Table::new();
    let v = part(v, "failover", &FAILOVER, &empty);
    let on = faults(&v).unwrap_or_else(|| Faults {
        connect: true,
        reset_before_headers: true,
        first_token: true,
        reply: true,
        invalid: true,
        filter: false,
        server: true,
        statuses: vec![429],
    });
    Failover { on, max_elapsed: v.duration_or_off("max_elapsed", seconds(30)) }
}

/// `on`; `None` where it is absent.
fn faults(v: &View<'_>) -> Option<Faults> {
    let mut out = Faults::default();
    for (at, word) in v.texts("on")? {
        match word {
            "connect" => out.connect = true,
            "reset_before_headers" => out.reset_before_headers = true,
            "first_token" => out.first_token = true,
            "reply" => out.reply = true,
            "invalid" => out.invalid = true,
            "5xx" => out.server = true,
            "content_filter" => out.filter = true,
            word => match word.parse() {
                Ok(status @ (429 | 500..=599)) => out.statuses.push(status),
                Ok(status) => {
                    let why = format!(
                        "{status} is the request's own fault or none; only 429 and 5xx heal"
                    );
                    v.book.fault(at, &v.key("on"), why);
                }
                Err(_) => {
                    let near = hint(word, WORDS.iter().copied());
                    let all = WORDS.join(", ");
                    v.book.fault(
                        at,
                        &v.key("on"),
                        format!("{word:?} is none of {all}, or a status{near}"),
                    );
                }
            },
        }
    }
    Some(out)
}
