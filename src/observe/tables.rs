//! How full each table of the process is, and how full it may be: what grows has a ceiling, and a
//! scraper sees it come near.
//!
//! | `table` | holds | ceiling |
//! | --- | --- | --- |
//! | `limit_counters` | of limits and budgets | twice the rules in force and 10,000 [^gone] |
//! | `learned_outputs` | models whose usual output is known | 1,000 models |
//! | `targets` | breakers and latencies | 1,000 models a provider; the rest share one |
//! | `alerts` | for the webhook, not asked yet | 1,000; the oldest makes way |
//! | `redis_settlements` | that Redis has not heard of | 65,536; its holds end by themselves |
//! | `addresses` | providers' names looked up | providers of the config in force |
//! | `series` | label sets of requests | 10,000; then model and team are `other` |
//! | `label_names` | models, teams, providers, faults | 200 each, 40 faults |
//! | `refusal_series` | label sets of refusals | 2,000; then team is `other` |
//! | `alert_series` | label sets of budget alerts | 1,000; then name is `other` |
//! | `request_body_bytes` | bytes of bodies in memory | `[server] max_body_bytes_open` |
//!
//! [^gone]: then those of owners that are gone make way, when rules change.
//!
//! Elsewhere: requests (`weir_in_flight`, `max_requests`), client connections
//! (`weir_open_connections`: four for each request that may be open, and less than half of the
//! files that the process may have; beyond that `weir_connections_refused_total`), the spool (`weir_spool_bytes`), rows of the ledger (`retention`).
//! What has a fixed size and needs no watch: the flood guard's sketches (2 MiB), 256 admin
//! connections, Pingora's pool (`upstream_idle`; it tells no number), one token and at most one
//! rest for each credential.

use parking_lot::RwLock;
use prometheus::{IntGaugeVec, Opts, Registry};

/// One table at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Its name: the label.
    pub table: &'static str,
    /// What is in it.
    pub entries: u64,
    /// Its ceiling.
    pub max: u64,
}

impl Size {
    /// A table's size.
    #[must_use]
    pub fn new(table: &'static str, entries: usize, max: usize) -> Self {
        Self { table, entries: entries as u64, max: max as u64 }
    }
}

type Probe = Box<dyn Fn(&mut dyn FnMut(Size)) + Send + Sync>;

/// Both families, and who tells them.
pub struct Tables {
    entries: IntGaugeVec,
    max: IntGaugeVec,
    probes: RwLock<Vec<Probe>>,
}

impl Tables {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| {
            let made = IntGaugeVec::new(Opts::new(name, help), &["table"])?;
            registry.register(Box::new(made.clone()))?;
            prometheus::Result::Ok(made)
        };
        Ok(Self {
            entries: gauge("weir_table_entries", "What is in a table of the process.")?,
            max: gauge("weir_table_entries_max", "The ceiling of a table of the process.")?,
            probes: RwLock::default(),
        })
    }

    /// One more who tells sizes, at each scrape.
    pub fn on_scrape(&self, probe: impl Fn(&mut dyn FnMut(Size)) + Send + Sync + 'static) {
        self.probes.write().push(Box::new(probe));
    }

    /// Sets one table's gauges.
    pub(super) fn set(&self, size: Size) {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.entries.with_label_values(&[size.table]).set(number(size.entries));
        self.max.with_label_values(&[size.table]).set(number(size.max));
    }

    pub(super) fn read(&self) {
        for probe in self.probes.read().iter() {
            probe(&mut |size| self.set(size));
        }
    }
}
