//! Every metric of this version, and the one call per request that moves them.

use super::health::Gauges;
use super::limits::Limits;
use super::series::{Labels, Names, Series, SeriesMap};
use super::tables::{Size, Tables};
use super::targets::Targets;
use super::trust::Trust;
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

/// Kinds of faults that tries end in; a text that slipped in among them mints no series.
const FAULTS_MAX: usize = 40;

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
    /// As the event says it.
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

/// Every metric there is.
pub struct Metrics {
    registry: Registry,
    families: Families,
    names: Names,
    series: SeriesMap,
    attempts: RwLock<HashMap<String, HashMap<String, IntCounter>>>,
    gauges: GaugeFamilies,
    probe: RwLock<Option<Probe>>,
    scrape: Mutex<()>,
    /// Gauges of providers' targets and credentials.
    pub targets: Targets,
    /// Limits, budgets and Redis.
    pub limits: Limits,
    /// How full tables are.
    pub tables: Tables,
    trust: Trust,
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
    spool_later: IntGauge,
    lag: IntGauge,
    config_version: IntGauge,
    lost: IntCounter,
    log_lost: IntCounter,
    refused: IntCounter,
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
        let targets = Targets::new(&registry)?;
        let limits = Limits::new(&registry)?;
        let tables = Tables::new(&registry)?;
        let trust = Trust::new(&registry)?;
        Ok(Self {
            targets,
            limits,
            tables,
            trust,
            registry,
            families,
            names: Names::new(NAMES_MAX, FAULTS_MAX),
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

    /// A whole answer of this model with so many output tokens reported; `count` is ours.
    pub fn compared(&self, model: &str, reported: u64, count: impl FnOnce() -> u64) {
        self.trust.compare(&self.names, model, reported, count);
    }

    /// A provider has reported usage that no model can mean.
    pub fn doubted(&self, provider: &str) {
        self.trust.doubted(self.names.provider(provider));
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
        self.targets.read();
        self.limits.scrape();
        self.trust.scrape();
        self.tables.set(self.series.size());
        self.tables.set(Size::new("label_names", self.names.len(), 3 * NAMES_MAX + FAULTS_MAX));
        self.limits.sizes().into_iter().for_each(|size| self.tables.set(size));
        self.tables.read();
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
        let known = |provider: &str, outcome: &str| {
            self.attempts.read().get(provider).and_then(|m| m.get(outcome)).map(IntCounter::inc)
        };
        // Names that have a counter are labels.
        if known(provider, outcome).is_some() {
            return;
        }
        let (provider, outcome) = (self.names.provider(provider), self.names.fault(outcome));
        if known(provider, outcome).is_some() {
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
        let help = "Our own time up to the header.";
        let overhead = HistogramOpts::new("weir_overhead_seconds", help);
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
                "Tokens: input, cached, cache_write (the prompt), output (with reasoning).",
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
            spool_later: gauge(
                "weir_spool_later_segments",
                "Spool segments of a later version, left alone until an upgrade.",
            )?,
            lag: gauge("weir_ledger_lag_events", "Events that are not in the ledger yet.")?,
            config_version: gauge(
                "weir_config_version",
                "The config in force: the twelve hex digits of its version as a number.",
            )?,
            lost: counter("weir_events_lost_total", "Events that could not be written.")?,
            refused: counter(
                "weir_connections_refused_total",
                "Client connections closed because there were too many.",
            )?,
            log_lost: counter("weir_log_lines_lost_total", "Log lines nobody could take.")?,
            reloads,
        })
    }

    fn read(&self, facts: &Gauges) {
        let set = |gauge: &IntGauge, to: u64| gauge.set(i64::try_from(to).unwrap_or(i64::MAX));
        set(&self.in_flight, facts.in_flight);
        set(&self.connections, facts.open_connections);
        set(&self.store_up, u64::from(facts.store_up));
        set(&self.spool_bytes, facts.spool_bytes);
        set(&self.spool_later, facts.spool_later_segments);
        set(&self.lag, facts.ledger_lag_events);
        set(&self.config_version, facts.config_version);
        let raise = |c: &IntCounter, to: u64| c.inc_by(to.saturating_sub(c.get()));
        raise(&self.lost, facts.events_lost);
        raise(&self.log_lost, facts.log_lines_lost);
        raise(&self.refused, facts.connections_refused);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SERVED: Finished<'static> = Finished {
        endpoint: "chat",
        model: "gpt-4o",
        provider: "openai",
        team: "search",
        status: 200,
        outcome: "success",
        streamed: true,
        usage: Usage { input: 10, cached: 2, cache_write: 1, output: 11, reasoning: 4 },
        cost: Some(NanoUsd(1)),
        ttft: Some(Duration::from_millis(500)),
        duration: Duration::from_millis(1500),
        overhead: Duration::from_micros(60),
        attempts: &[("openai", "status_503"), ("openai", "success")],
        unpriced: false,
    };

    /// The value of a series, its labels in any order.
    fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
        let named = text.lines().filter(|l| l.split(['{', ' ']).next() == Some(name));
        let mut found = named.filter(|l| labels.iter().all(|label| l.contains(label)));
        found.next().and_then(|l| l.rsplit_once(' ')?.1.parse().ok())
    }

    fn labels(text: &str, name: &str, label: &str) -> BTreeSet<String> {
        let start = format!("{label}=\"");
        let named = text.lines().filter(|l| l.starts_with(&format!("{name}{{")));
        let value = |l: &str| Some(l.split_once(&start)?.1.split_once('"')?.0.to_owned());
        named.filter_map(value).collect()
    }

    #[test]
    fn a_request_moves_every_family_that_concerns_it() {
        let metrics = Metrics::new().unwrap();
        metrics.know(["gpt-4o"], ["search"]);
        metrics.finished(&SERVED);
        metrics.finished(&Finished { cost: None, unpriced: true, ..SERVED });
        let text = metrics.render();
        let check = |name: &str, labels: &[&str], want: f64| {
            assert_eq!(value(&text, name, labels), Some(want), "{name} {labels:?} in\n{text}");
        };
        let all = ["endpoint=\"chat\"", "model=\"gpt-4o\"", "team=\"search\""];
        check("weir_requests_total", &all, 2.0);
        check("weir_tokens_total", &["type=\"input\""], 20.0);
        check("weir_tokens_total", &["type=\"cached\""], 4.0);
        check("weir_tokens_total", &["type=\"cache_write\""], 2.0);
        check("weir_tokens_total", &["type=\"output\""], 22.0);
        check("weir_tokens_total", &["type=\"reasoning\""], 8.0);
        check("weir_cost_usd_total", &["provider=\"openai\""], 1e-9);
        check("weir_unpriced_requests_total", &["model=\"gpt-4o\""], 1.0);
        check("weir_upstream_attempts_total", &["outcome=\"status_503\""], 2.0);
        check("weir_upstream_attempts_total", &["outcome=\"success\""], 2.0);
        check("weir_request_duration_seconds_sum", &["provider=\"openai\""], 3.0);
        check("weir_time_to_first_token_seconds_sum", &[], 1.0);
        check("weir_time_per_output_token_seconds_sum", &[], 0.2);
        check("weir_overhead_seconds_count", &[], 2.0);
    }

    #[test]
    fn money_is_summed_in_whole_nano_dollars() {
        let metrics = Metrics::new().unwrap();
        metrics.know(["gpt-4o"], []);
        // 0.1 and 0.2 dollars ten thousand times each: a float sum drifts off 3000.
        for nano in [100_000_000, 200_000_000] {
            for _ in 0..10_000 {
                metrics.finished(&Finished { cost: Some(NanoUsd(nano)), ..SERVED });
            }
        }
        assert_eq!(value(&metrics.render(), "weir_cost_usd_total", &[]), Some(3000.0));
    }

    #[test]
    fn names_that_nobody_knows_share_one_label() {
        let metrics = Metrics::new().unwrap();
        metrics.know(["gpt-4o"], ["search"]);
        let refused = Finished {
            provider: "",
            status: 404,
            outcome: "refused",
            attempts: &[],
            cost: Some(NanoUsd(0)),
            ..SERVED
        };
        for i in 0..5_000 {
            let (model, team) = (format!("scan-{i}"), format!("team-{i}"));
            metrics.finished(&Finished { model: &model, team: &team, ..refused });
        }
        metrics.finished(&Finished { model: "", ..refused });
        let text = metrics.render();
        let of = |label| labels(&text, "weir_requests_total", label);
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(of("model"), set(&["", "other"]));
        assert_eq!(of("team"), set(&["other", "search"]));
        assert_eq!(value(&text, "weir_requests_total", &["model=\"other\""]), Some(5000.0));
        assert!(!text.contains("weir_tokens_total{"), "what never left us has no tokens");
    }

    #[test]
    fn even_served_and_configured_names_are_bounded() {
        let metrics = Metrics::new().unwrap();
        let teams: Vec<String> = (0..1_000).map(|i| format!("team-{i}")).collect();
        metrics.know([], teams.iter().map(String::as_str));
        for (i, team) in teams.iter().enumerate() {
            let (model, fault) = (format!("model-{i}"), format!("fault-{i}"));
            let attempts = [("openai", fault.as_str())];
            metrics.finished(&Finished { model: &model, team, attempts: &attempts, ..SERVED });
        }
        let text = metrics.render();
        let count = |name, label| labels(&text, name, label).len();
        assert_eq!(count("weir_requests_total", "model"), NAMES_MAX + 1);
        assert_eq!(count("weir_requests_total", "team"), NAMES_MAX + 1);
        assert_eq!(count("weir_upstream_attempts_total", "outcome"), FAULTS_MAX + 1);
        let sum: f64 = (text.lines().filter(|l| l.starts_with("weir_requests_total{")))
            .filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum();
        assert_eq!(sum, 1000.0, "every request is counted under some label");
    }

    #[test]
    fn a_scrape_reads_the_process_and_counters_only_rise() {
        let metrics = Metrics::new().unwrap();
        let lost = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(3));
        let source = lost.clone();
        metrics.on_scrape(move || Gauges {
            in_flight: 7,
            store_up: true,
            config_version: u64::from_str_radix("ffffffffffff", 16).unwrap(),
            events_lost: source.load(std::sync::atomic::Ordering::Relaxed),
            ..Gauges::default()
        });
        metrics.reloaded(false);
        let text = metrics.render();
        let check = |text: &str, name: &str, labels: &[&str], want| {
            assert_eq!(value(text, name, labels), Some(want), "{name}");
        };
        check(&text, "weir_in_flight", &[], 7.0);
        check(&text, "weir_store_up", &[], 1.0);
        check(&text, "weir_config_version", &[], 281_474_976_710_655.0);
        check(&text, "weir_events_lost_total", &[], 3.0);
        check(&text, "weir_config_reloads_total", &["result=\"error\""], 1.0);
        check(&text, "weir_config_reloads_total", &["result=\"ok\""], 0.0);
        check(&text, "weir_build_info", &["version="], 1.0);
        lost.store(5, std::sync::atomic::Ordering::Relaxed);
        check(&metrics.render(), "weir_events_lost_total", &[], 5.0);
        check(&metrics.render(), "weir_events_lost_total", &[], 5.0);
    }
}
