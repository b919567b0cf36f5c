//! Metrics of limits, budgets and Redis.

use super::series::Names;
use super::tables::Size;
use parking_lot::RwLock;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Budgets with a gauge: beyond these they are seen in `/v1/usage`, not by a scraper.
const BUDGETS_MAX: usize = 500;
/// Label sets of refusals; rules' names come of config, so only a mistake would reach it.
const REFUSALS_MAX: usize = 2_000;
/// Label sets of alerts: a key's name is one, and keys come and go.
const ALERTS_MAX: usize = 1_000;
/// Seconds of one call to Redis: a loopback takes 50 µs, the timeout is 50 ms.
const REDIS: &[f64] = &[50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1];

/// One budget's row of a scrape.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// `team`, `key`, …
    pub scope: &'static str,
    /// The owner's name.
    pub name: String,
    /// The period.
    pub per: &'static str,
    /// Used of its amount; above 1 when it is overspent.
    pub ratio: f64,
}

/// What a scrape asks for.
#[derive(Debug, Default)]
pub struct Facts {
    /// Any number of budgets, the fullest of which are shown.
    pub budgets: Vec<Budget>,
    /// Whether Redis counts; `None` without Redis.
    pub redis_up: Option<bool>,
}

type Probe = Box<dyn Fn() -> Facts + Send + Sync>;

/// All families of limits.
pub struct Limits {
    refused: IntCounterVec,
    handles: RwLock<HashMap<[String; 3], IntCounter>>,
    ratio: GaugeVec,
    alerts: IntCounterVec,
    alerted: RwLock<HashSet<[String; 4]>>,
    redis_up: IntGaugeVec,
    redis_time: Histogram,
    redis_errors: IntCounter,
    probe: RwLock<Option<Probe>>,
}

impl Limits {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let made = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            prometheus::Result::Ok(made)
        };
        let ratio = Opts::new("weir_budget_used_ratio", "Used part of a budget's running period.");
        let ratio = GaugeVec::new(ratio, &["scope", "name", "per"])?;
        registry.register(Box::new(ratio.clone()))?;
        // Without a label of its own, and without a series where there is no Redis.
        let redis_up = Opts::new("weir_redis_up", "1 while Redis counts for all nodes.");
        let redis_up = IntGaugeVec::new(redis_up, &[])?;
        registry.register(Box::new(redis_up.clone()))?;
        let time = HistogramOpts::new("weir_redis_duration_seconds", "One call to Redis.");
        let redis_time = Histogram::with_opts(time.buckets(REDIS.to_vec()))?;
        registry.register(Box::new(redis_time.clone()))?;
        let redis_errors =
            IntCounter::new("weir_redis_errors_total", "Calls to Redis that failed or were late.")?;
        registry.register(Box::new(redis_errors.clone()))?;
        Ok(Self {
            refused: counters(
                "weir_rate_limited_total",
                "Requests refused by a limit, a window or a budget.",
                &["scope", "limit", "team"],
            )?,
            handles: RwLock::default(),
            ratio,
            alerts: counters(
                "weir_budget_alerts_total",
                "Budgets that reached their threshold, once a period.",
                &["scope", "name", "per", "threshold"],
            )?,
            alerted: RwLock::default(),
            redis_up,
            redis_time,
            redis_errors,
            probe: RwLock::new(None),
        })
    }

    /// Who tells a scrape how budgets stand.
    pub fn on_scrape(&self, probe: impl Fn() -> Facts + Send + Sync + 'static) {
        *self.probe.write() = Some(Box::new(probe));
    }

    /// One refused request.
    pub fn refused(&self, scope: &str, limit: &str, team: &str) {
        let key = [scope, limit, team].map(str::to_owned);
        if let Some(counter) = self.handles.read().get(&key) {
            counter.inc();
            return;
        }
        let mut handles = self.handles.write();
        let team = if handles.len() < REFUSALS_MAX { team } else { Names::OTHER };
        let key = [scope, limit, team].map(str::to_owned);
        let made = || self.refused.with_label_values(&[scope, limit, team]);
        handles.entry(key).or_insert_with(made).inc();
    }

    /// A budget has reached its threshold: scope, name, period, threshold.
    pub fn alerted(&self, mut labels: [&str; 4]) {
        let mut known = self.alerted.write();
        let key = labels.map(str::to_owned);
        if !known.contains(&key) {
            if known.len() >= ALERTS_MAX {
                labels[1] = Names::OTHER;
            } else {
                known.insert(key);
            }
        }
        self.alerts.with_label_values(&labels).inc();
    }

    /// One call to Redis that was answered.
    pub fn redis_answered(&self, time: Duration) {
        self.redis_time.observe(time.as_secs_f64());
    }

    /// One that was not.
    pub fn redis_failed(&self) {
        self.redis_errors.inc();
    }

    pub(super) fn sizes(&self) -> [Size; 2] {
        [
            Size::new("refusal_series", self.handles.read().len(), REFUSALS_MAX),
            Size::new("alert_series", self.alerted.read().len(), ALERTS_MAX),
        ]
    }

    pub(super) fn scrape(&self) {
        let Some(mut facts) = self.probe.read().as_ref().map(|probe| probe()) else { return };
        if let Some(up) = facts.redis_up {
            self.redis_up.with_label_values::<&str>(&[]).set(i64::from(up));
        }
        facts.budgets.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        facts.budgets.truncate(BUDGETS_MAX);
        self.ratio.reset();
        // Two budgets of one owner and period, in money and in tokens, are one gauge: the fuller.
        for budget in facts.budgets.iter().rev() {
            let labels = [budget.scope, &budget.name, budget.per];
            self.ratio.with_label_values(&labels).set(budget.ratio);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn budget(name: &str, ratio: f64) -> Budget {
        Budget { scope: "key", name: name.into(), per: "day", ratio }
    }

    #[test]
    fn the_fullest_budgets_are_shown_and_the_fuller_of_two() {
        let limits = Limits::new(&Registry::new()).unwrap();
        limits.on_scrape(|| {
            let mut budgets: Vec<_> =
                (0..BUDGETS_MAX).map(|i| budget(&format!("k{i}"), 0.5)).collect();
            budgets.push(budget("busy", 0.9));
            budgets.push(budget("busy", 0.7));
            Facts { budgets, redis_up: Some(true) }
        });
        limits.scrape();
        let value = limits.ratio.with_label_values(&["key", "busy", "day"]).get();
        assert!((value - 0.9).abs() < 1e-9);
        assert_eq!(limits.redis_up.with_label_values::<&str>(&[]).get(), 1);
        use prometheus::core::Collector;
        assert!(limits.ratio.collect()[0].get_metric().len() <= BUDGETS_MAX);
    }

    #[test]
    fn keys_that_come_and_go_mint_no_series_without_end() {
        use prometheus::core::Collector;
        let limits = Limits::new(&Registry::new()).unwrap();
        let n = REFUSALS_MAX.max(ALERTS_MAX) + 500;
        for i in 0..n {
            limits.alerted(["key", &format!("key-{i}"), "day", "0.8"]);
            limits.refused("team", "rpm", &format!("team-{i}"));
        }
        let sizes = limits.sizes();
        assert!(sizes.iter().all(|size| size.entries <= size.max + 1), "{sizes:?}");
        let series = |all: &IntCounterVec| all.collect()[0].get_metric().len();
        assert_eq!(series(&limits.alerts), ALERTS_MAX + 1);
        assert_eq!(series(&limits.refused), REFUSALS_MAX + 1);
        let others = limits.alerts.with_label_values(&["key", Names::OTHER, "day", "0.8"]).get();
        assert_eq!(others as usize, n - ALERTS_MAX, "every alert is counted under some name");
    }

    #[test]
    fn a_refusal_is_counted_under_its_rule() {
        let limits = Limits::new(&Registry::new()).unwrap();
        (0..3).for_each(|_| limits.refused("key", "rpm", "search"));
        assert_eq!(limits.refused.with_label_values(&["key", "rpm", "search"]).get(), 3);
    }
}
