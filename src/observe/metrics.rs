//! Every metric of this version, and the one call per request that moves them.

use super::health::Gauges;
use super::series::{Labels, Names, Series, SeriesMap};
use parking_lot::{Mutex, RwLock};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;
use weir_filters::usage::{NanoUsd, Usage};

/// More names than this of models, teams or providers share the label `other`, each kind by
/// itself: every name is a handful of series for ever, here and in the scraper.
pub const NAMES_MAX: usize = 200;

const COST: &str = "weir_cost_usd_total";
const NANO_PER_USD: f64 = 1e9;

/// A finished request, as its last step tells it. Every string is a name, never a secret.
#[derive(Debug, Clone, Copy)]
pub struct Finished<'a> {
    /// `chat`, `messages`, …; `other` for paths that we do not serve.
    pub endpoint: &'a str,
    /// The model that served, else the one that was asked for; empty when none was named.
    pub model: &'a str,
    /// The provider tried last; empty when none was.
    pub provider: &'a str,
    /// The key's team, or empty.
    pub team: &'a str,
    /// The caller's HTTP status, 499 when it left.
    pub status: u16,
    /// CONTRACT section 6.
    pub outcome: &'a str,
    /// The answer was a stream.
    pub streamed: bool,
    /// Tokens by class.
    pub usage: Usage,
    /// `None` where the model has no price.
    pub cost: Option<NanoUsd>,
    /// Head to first content.
    pub ttft: Option<Duration>,
    /// Head to end.
    pub duration: Duration,
    /// Our own share of it, up to the header.
    pub overhead: Duration,
    /// Provider and outcome (`success`, else the fault) of every try.
    pub attempts: &'a [(&'a str, &'a str)],
    /// A provider served it and no price is known.
    pub unpriced: bool,
}

type Probe = Box<dyn Fn() -> Gauges + Send + Sync>;

/// Every metric of CONTRACT section 7 that this version fills.
pub struct Metrics {
    registry: Registry,
    families: Families,
    names: Names,
    series: SeriesMap,
    attempts: RwLock<HashMap<String, HashMap<String, IntCounter>>>,
    gauges: GaugeFamilies,
    probe: RwLock<Option<Probe>>,
    scrape: Mutex<()>,
}

/// What requests move.
pub(super) struct Families {
    pub(super) requests: IntCounterVec,
    pub(super) duration: HistogramVec,
    pub(super) ttft: HistogramVec,
    pub(super) per_token: HistogramVec,
    pub(super) tokens: IntCounterVec,
    pub(super) cost: IntCounterVec,
    pub(super) unpriced: IntCounterVec,
    attempts: IntCounterVec,
    overhead: Histogram,
}

/// What a scrape reads, and what reloads move.
struct GaugeFamilies {
    in_flight: IntGauge,
    connections: IntGauge,
    store_up: IntGauge,
    spool_bytes: IntGauge,
    lag: IntGauge,
    config_version: IntGauge,
    lost: IntCounter,
    log_lost: IntCounter,
    reloads: IntCounterVec,
}

impl Metrics {
    /// All families, each at zero.
    ///
    /// # Errors
    /// Two families of one name: a mistake of ours, found by any test that makes one.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let families = Families::new(&registry)?;
        let gauges = GaugeFamilies::new(&registry)?;
        Ok(Self {
            registry,
            families,
            names: Names::new(NAMES_MAX),
            series: SeriesMap::default(),
            attempts: RwLock::default(),
            gauges,
            probe: RwLock::new(None),
            scrape: Mutex::new(()),
        })
    }

    /// Names that config knows: they may be labels, others only once a provider has served them.
    pub fn know<'a>(
        &self,
        models: impl IntoIterator<Item = &'a str>,
        teams: impl IntoIterator<Item = &'a str>,
    ) {
        self.names.know(models, teams);
    }

    /// Books one request. Its labels' handles are found by one look-up; after the first request
    /// of its kind nothing is allocated.
    pub fn finished(&self, f: &Finished<'_>) {
        let labels = Labels::of(f);
        match self.series.get(&labels) {
            Some(series) => series.book(f),
            None => self.first_of_its_kind(f, labels),
        }
        self.families.overhead.observe(f.overhead.as_secs_f64());
        for (provider, outcome) in f.attempts {
            self.attempt(provider, outcome);
        }
    }

    /// One more reload of the config.
    pub fn reloaded(&self, sound: bool) {
        let result = if sound { "ok" } else { "error" };
        self.gauges.reloads.with_label_values(&[result]).inc();
    }

    /// Who tells what only the process as a whole knows. Asked at each scrape and probe.
    pub fn on_scrape(&self, probe: impl Fn() -> Gauges + Send + Sync + 'static) {
        *self.probe.write() = Some(Box::new(probe));
    }

    /// The process's facts now; all zero before [`Metrics::on_scrape`].
    #[must_use]
    pub fn facts(&self) -> Gauges {
        self.probe.read().as_ref().map(|probe| probe()).unwrap_or_default()
    }

    /// Prometheus' text format, version 0.0.4.
    #[must_use]
    pub fn render(&self) -> String {
        // Counters are brought up to their source by a difference: one scrape at a time.
        let _alone = self.scrape.lock();
        self.gauges.read(&self.facts());
        let mut all = self.registry.gather();
        for family in all.iter_mut().filter(|f| f.name() == COST) {
            for metric in family.mut_metric() {
                let mut usd = prometheus::proto::Counter::default();
                usd.set_value(metric.get_counter().get_value() / NANO_PER_USD);
                metric.set_counter(usd);
            }
        }
        TextEncoder::new().encode_to_string(&all).unwrap_or_default()
    }

    fn first_of_its_kind(&self, f: &Finished<'_>, raw: Labels<'_>) {
        let served = f.outcome == "success";
        // A refused request costs 0, whatever model it names.
        let paid = f.cost.is_some_and(|cost| cost.0 > 0);
        let model = self.names.model(raw.model, served || paid);
        let (team, provider) = (self.names.team(raw.team), self.names.provider(raw.provider));
        let mut labels = Labels { model, team, provider, ..raw };
        if self.series.is_full() {
            (labels.model, labels.team) = (Names::OTHER, Names::OTHER);
        }
        let series = self.series.get_or(&labels, || Series::new(&self.families, &labels));
        series.book(f);
    }

    fn attempt(&self, provider: &str, outcome: &str) {
        let provider = self.names.provider(provider);
        if let Some(counter) = self.attempts.read().get(provider).and_then(|m| m.get(outcome)) {
            counter.inc();
            return;
        }
        let counter = self.families.attempts.with_label_values(&[provider, outcome]);
        counter.inc();
        let mut all = self.attempts.write();
        all.entry(provider.to_owned()).or_default().insert(outcome.to_owned(), counter);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Seconds of a whole request: from a cached answer to a long agent run.
const DURATION: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0];
/// Seconds to the first content.
const TTFT: &[f64] = &[0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 12.0, 30.0, 60.0, 120.0];
/// Seconds between two tokens.
const PER_TOKEN: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28];
/// Seconds of our own work: tens of microseconds are the aim, milliseconds an alarm.
const OVERHEAD: &[f64] =
    &[25e-6, 50e-6, 75e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.25];

impl Families {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let by_model = ["model", "provider"];
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let made = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            prometheus::Result::Ok(made)
        };
        let times = |name: &str, help: &str, buckets: &[f64]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let made = HistogramVec::new(opts, &by_model)?;
            registry.register(Box::new(made.clone()))?;
            prometheus::Result::Ok(made)
        };
        let overhead = HistogramOpts::new("weir_overhead_seconds", "Our own time up to the header.");
        let overhead = Histogram::with_opts(overhead.buckets(OVERHEAD.to_vec()))?;
        registry.register(Box::new(overhead.clone()))?;
        Ok(Self {
            requests: counters(
                "weir_requests_total",
                "Requests, refused and failed ones too.",
                &["endpoint", "model", "provider", "team", "status_class", "outcome"],
            )?,
            duration: times("weir_request_duration_seconds", "Head to end.", DURATION)?,
            ttft: times("weir_time_to_first_token_seconds", "Head to first content.", TTFT)?,
            per_token: times(
                "weir_time_per_output_token_seconds",
                "Mean time between two tokens of a stream.",
                PER_TOKEN,
            )?,
            tokens: counters(
                "weir_tokens_total",
                "Tokens; input, cached and cache_write make the prompt, reasoning is part of output.",
                &["model", "provider", "team", "type"],
            )?,
            cost: counters(COST, "Cost in US dollars.", &["model", "provider", "team"])?,
            unpriced: counters(
                "weir_unpriced_requests_total",
                "Requests served by a model without a price.",
                &["model"],
            )?,
            attempts: counters(
                "weir_upstream_attempts_total",
                "Tries on providers.",
                &["provider", "outcome"],
            )?,
            overhead,
        })
    }
}

impl GaugeFamilies {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| {
            let made = IntGauge::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            prometheus::Result::Ok(made)
        };
        let counter = |name: &str, help: &str| {
            let made = IntCounter::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            prometheus::Result::Ok(made)
        };
        let build = Opts::new("weir_build_info", "Always 1; the version is its label.");
        let build = IntGaugeVec::new(build, &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry.register(Box::new(build))?;
        let reloads = Opts::new("weir_config_reloads_total", "Reloads by result: ok or error.");
        let reloads = IntCounterVec::new(reloads, &["result"])?;
        for result in ["ok", "error"] {
            reloads.with_label_values(&[result]);
        }
        registry.register(Box::new(reloads.clone()))?;
        Ok(Self {
            in_flight: gauge("weir_in_flight", "Requests between their head and their end.")?,
            connections: gauge("weir_open_connections", "Client connections.")?,
            store_up: gauge("weir_store_up", "1 while the ledger's database answers.")?,
            spool_bytes: gauge("weir_spool_bytes", "Bytes of all spool segments.")?,
            lag: gauge("weir_ledger_lag_events", "Events that are not in the ledger yet.")?,
            config_version: gauge(
                "weir_config_version",
                "The config in force: the twelve hex digits of its version as a number.",
            )?,
            lost: counter("weir_events_lost_total", "Events that could not be written.")?,
            log_lost: counter("weir_log_lines_lost_total", "Log lines nobody could take.")?,
            reloads,
        })
    }

    fn read(&self, facts: &Gauges) {
        let set = |gauge: &IntGauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.in_flight, facts.in_flight);
        set(&self.connections, facts.open_connections);
        set(&self.store_up, u64::from(facts.store_up));
        set(&self.spool_bytes, facts.spool_bytes);
        set(&self.lag, facts.ledger_lag_events);
        set(&self.config_version, facts.config_version);
        let raise = |c: &IntCounter, to: u64| c.inc_by(to.saturating_sub(c.get()));
        raise(&self.lost, facts.events_lost);
        raise(&self.log_lost, facts.log_lines_lost);
    }
}
