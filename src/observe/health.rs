//! Whether traffic should be sent here, and the facts behind the answer.

use serde::Serialize;

/// What the process knows of itself at one moment: read at each scrape and each readiness probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Every listener accepts connections.
    pub listening: bool,
    /// The process is on its way out.
    pub draining: bool,
    /// The last write to the spool failed (a full disk): requests go on, their events are lost.
    pub spool_failing: bool,
    /// The ledger's database answers.
    pub store_up: bool,
    /// Limits are to be counted in Redis, and it is away.
    pub redis_down: bool,
    /// Requests between their head and their end.
    pub in_flight: u64,
    /// Client connections.
    pub open_connections: u64,
    /// Client connections closed since the start because there were too many.
    pub connections_refused: u64,
    /// Bytes of all spool segments.
    pub spool_bytes: u64,
    /// Spool segments that a later version wrote, left alone until an upgrade.
    pub spool_later_segments: u64,
    /// Events in the spool that are not in the ledger yet.
    pub ledger_lag_events: u64,
    /// Events that could not be written since the start.
    pub events_lost: u64,
    /// Lines of either log that nobody could take: a full disk, a pipe that is not read.
    pub log_lines_lost: u64,
    /// The config's version as a number: its twelve hex digits, 48 bits, exact in a float.
    pub config_version: u64,
}

/// The answer of `/health/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// `ready` or `unready`.
    pub status: &'static str,
    /// Why no traffic should come: `starting`, `draining`, `spool_failing`.
    pub reasons: Vec<&'static str>,
    /// What is wrong and does not stop traffic: `store_down`, `redis_down`. The spool keeps every
    /// event until the ledger can take it, so a database that is away costs reports, not requests;
    /// without Redis each node counts by itself.
    pub degraded: Vec<&'static str>,
}

impl Health {
    /// Judges the facts.
    #[must_use]
    pub fn of(facts: &Gauges) -> Self {
        let named = |facts: &[(bool, &'static str)]| {
            facts.iter().filter_map(|(holds, name)| holds.then_some(*name)).collect()
        };
        let reasons: Vec<_> = named(&[
            (!facts.listening, "starting"),
            (facts.draining, "draining"),
            (facts.spool_failing, "spool_failing"),
        ]);
        let degraded = named(&[(!facts.store_up, "store_down"), (facts.redis_down, "redis_down")]);
        let status = if reasons.is_empty() { "ready" } else { "unready" };
        Self { status, reasons, degraded }
    }

    /// Whether traffic should come: 200, else 503.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.reasons.is_empty()
    }

    /// The body: `{"status":"unready","reasons":["draining"],"degraded":[]}`.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Gauges = Gauges {
        listening: true,
        draining: false,
        spool_failing: false,
        store_up: true,
        redis_down: false,
        in_flight: 0,
        open_connections: 0,
        connections_refused: 0,
        spool_bytes: 0,
        spool_later_segments: 0,
        ledger_lag_events: 0,
        events_lost: 0,
        log_lines_lost: 0,
        config_version: 0,
    };

    #[test]
    fn a_full_disk_and_a_drain_are_red_and_a_lost_store_or_redis_is_not() {
        let check = |g: Gauges, ready: bool, json: &str| {
            let health = Health::of(&g);
            assert_eq!((health.is_ready(), health.json().as_str()), (ready, json));
        };
        check(FINE, true, r#"{"status":"ready","reasons":[],"degraded":[]}"#);
        check(
            Gauges { store_up: false, ..FINE },
            true,
            r#"{"status":"ready","reasons":[],"degraded":["store_down"]}"#,
        );
        check(
            Gauges { store_up: false, redis_down: true, ..FINE },
            true,
            r#"{"status":"ready","reasons":[],"degraded":["store_down","redis_down"]}"#,
        );
        check(
            Gauges { spool_failing: true, draining: true, ..FINE },
            false,
            r#"{"status":"unready","reasons":["draining","spool_failing"],"degraded":[]}"#,
        );
        check(
            Gauges { listening: false, ..FINE },
            false,
            r#"{"status":"unready","reasons":["starting"],"degraded":[]}"#,
        );
    }
}
