//! How far providers' own numbers of tokens can be believed: what we counted against what they
//! reported, and reports that no model can mean.

use super::series::Names;
use parking_lot::RwLock;
use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first answers of a model are all counted, so that a new one shows early.
const ALL_OF_THE_FIRST: u64 = 32;
/// Later one of so many is: counting the end of a text costs a microsecond or two.
const ONE_OF: u64 = 16;
/// Above so many tokens both sums are halved: old answers fade.
const TOKENS_FADE: u64 = 1 << 20;

/// One model's sums.
#[derive(Debug, Default)]
struct Sums {
    answers: AtomicU64,
    counted: AtomicU64,
    reported: AtomicU64,
}

/// Both families.
pub(super) struct Trust {
    models: RwLock<HashMap<String, Arc<Sums>>>,
    drift: GaugeVec,
    doubted: IntCounterVec,
}

impl Trust {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Output tokens as we count them over those reported, less 1: 0 is agreement.";
        let drift = GaugeVec::new(Opts::new("weir_usage_drift_ratio", help), &["model"])?;
        registry.register(Box::new(drift.clone()))?;
        let help = "Answers whose reported usage no model can mean; our estimate stood for it.";
        let opts = Opts::new("weir_usage_implausible_total", help);
        let doubted = IntCounterVec::new(opts, &["provider"])?;
        registry.register(Box::new(doubted.clone()))?;
        Ok(Self { models: RwLock::default(), drift, doubted })
    }

    /// One whole answer with a report. `count` is called for those that are looked at.
    pub(super) fn compare(
        &self,
        names: &Names,
        model: &str,
        reported: u64,
        count: impl FnOnce() -> u64,
    ) {
        let known = self.models.read().get(model).cloned();
        let sums = known.unwrap_or_else(|| {
            // Names that have no label of their own share one.
            let label = names.model(model, true);
            self.models.write().entry(label.to_owned()).or_default().clone()
        });
        let n = sums.answers.fetch_add(1, Ordering::Relaxed);
        if reported > 0 && (n < ALL_OF_THE_FIRST || n % ONE_OF == 0) {
            sums.counted.fetch_add(count(), Ordering::Relaxed);
            if sums.reported.fetch_add(reported, Ordering::Relaxed) > TOKENS_FADE {
                for sum in [&sums.counted, &sums.reported] {
                    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(n / 2));
                }
            }
        }
    }

    /// A report beyond belief.
    pub(super) fn doubted(&self, provider: &str) {
        self.doubted.with_label_values(&[provider]).inc();
    }

    pub(super) fn scrape(&self) {
        for (model, sums) in self.models.read().iter() {
            let reported = sums.reported.load(Ordering::Relaxed);
            if reported > 0 {
                // Both are far below where a float skips numbers.
                let counted = sums.counted.load(Ordering::Relaxed) as f64;
                let drift = counted / reported as f64 - 1.0;
                self.drift.with_label_values(&[model]).set(drift);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_what_we_count_beyond_what_is_reported() {
        let (trust, names) = (Trust::new(&Registry::new()).unwrap(), Names::new(2, 2));
        let drift = |model: &str| {
            trust.scrape();
            trust.drift.with_label_values(&[model]).get()
        };
        (0..10).for_each(|_| trust.compare(&names, "m", 100, || 120));
        assert!((drift("m") - 0.2).abs() < 1e-9);
        trust.compare(&names, "n", 100, || 100);
        assert!(drift("n").abs() < 1e-9);
        trust.compare(&names, "third", 100, || 50);
        assert!((drift("other") + 0.5).abs() < 1e-9, "names without a label share one");
    }

    #[test]
    fn old_answers_fade_and_not_every_one_is_counted() {
        let (trust, names) = (Trust::new(&Registry::new()).unwrap(), Names::new(2, 2));
        let mut asked = 0;
        for _ in 0..64_000 {
            trust.compare(&names, "m", 1_000, || {
                asked += 1;
                2_000
            });
        }
        assert!(asked < 64_000 / 10, "{asked} were counted");
        for _ in 0..640_000 {
            trust.compare(&names, "m", 1_000, || 1_000);
        }
        trust.scrape();
        assert!(trust.drift.with_label_values(&["m"]).get() < 0.01);
    }
}
