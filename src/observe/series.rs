//! The handles behind a request's labels: found by one look-up, bounded in number and in names.

use super::metrics::{Families, Finished};
use super::tables::Size;
use foldhash::quality::RandomState;
use parking_lot::RwLock;
use prometheus::{Histogram, IntCounter};
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Locks that requests of different kinds do not share.
const SHARDS: usize = 16;
/// Label sets kept; beyond them model and team become `other`. About 1 KiB each, and a scrape
/// of this many lines is already megabytes.
const SERIES_MAX: usize = 10_000;

/// The labels of `weir_requests_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Labels<'a> {
    /// The caller's endpoint.
    pub endpoint: &'a str,
    /// The model.
    pub model: &'a str,
    /// The provider.
    pub provider: &'a str,
    /// The team.
    pub team: &'a str,
    /// `2xx` … `5xx`.
    pub class: &'static str,
    /// How it ended.
    pub outcome: &'a str,
}

impl<'a> Labels<'a> {
    /// The labels as the request says them, before any bound.
    #[must_use]
    pub fn of(f: &Finished<'a>) -> Self {
        let class = match f.status / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        Self {
            endpoint: f.endpoint,
            model: f.model,
            provider: f.provider,
            team: f.team,
            class,
            outcome: f.outcome,
        }
    }

    fn own(&self) -> Owned {
        Owned {
            text: [self.endpoint, self.model, self.provider, self.team, self.outcome]
                .map(str::to_owned),
            class: self.class,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Owned {
    text: [String; 5],
    class: &'static str,
}

impl Owned {
    fn is(&self, l: &Labels<'_>) -> bool {
        let asked = [l.endpoint, l.model, l.provider, l.team, l.outcome];
        self.class == l.class && self.text.iter().zip(asked).all(|(own, asked)| own == asked)
    }
}

/// Handles of one label set.
pub struct Series {
    requests: IntCounter,
    duration: Histogram,
    served: Option<Served>,
}

/// What only a provider's answer moves: absent, so not even a zero, for what never left us.
struct Served {
    ttft: Histogram,
    per_token: Histogram,
    tokens: [IntCounter; 5],
    cost: IntCounter,
    unpriced: IntCounter,
}

impl Series {
    pub(super) fn new(all: &Families, l: &Labels<'_>) -> Self {
        let by_model = [l.model, l.provider];
        let tokens = |kind| all.tokens.with_label_values(&[l.model, l.provider, l.team, kind]);
        let kinds = ["input", "cached", "cache_write", "output", "reasoning"];
        let served = (!l.provider.is_empty()).then(|| Served {
            ttft: all.ttft.with_label_values(&by_model),
            per_token: all.per_token.with_label_values(&by_model),
            tokens: kinds.map(tokens),
            cost: all.cost.with_label_values(&[l.model, l.provider, l.team]),
            unpriced: all.unpriced.with_label_values(&[l.model]),
        });
        Self {
            requests: all
                .requests
                .with_label_values(&[l.endpoint, l.model, l.provider, l.team, l.class, l.outcome]),
            duration: all.duration.with_label_values(&by_model),
            served,
        }
    }

    /// Adds one request to every handle.
    pub fn book(&self, f: &Finished<'_>) {
        self.requests.inc();
        self.duration.observe(f.duration.as_secs_f64());
        let Some(served) = &self.served else { return };
        let u = &f.usage;
        let counts = [u.input, u.cached, u.cache_write, u.output, u.reasoning];
        for (counter, n) in served.tokens.iter().zip(counts) {
            counter.inc_by(n);
        }
        served.cost.inc_by(f.cost.map_or(0, |c| c.0));
        served.unpriced.inc_by(u64::from(f.unpriced));
        if let Some(ttft) = f.ttft {
            served.ttft.observe(ttft.as_secs_f64());
            if f.streamed && u.output > 1 {
                let rest = f.duration.saturating_sub(ttft).as_secs_f64();
                // Token counts are far below 2^52.
                #[allow(clippy::cast_precision_loss)]
                served.per_token.observe(rest / (u.output - 1) as f64);
            }
        }
    }
}

type Shard = RwLock<HashMap<u64, Vec<(Owned, Arc<Series>)>, RandomState>>;

/// Label sets to handles, in shards.
pub struct SeriesMap {
    hasher: RandomState,
    shards: [Shard; SHARDS],
    len: AtomicUsize,
}

impl Default for SeriesMap {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            shards: std::array::from_fn(|_| RwLock::default()),
            len: AtomicUsize::new(0),
        }
    }
}

impl SeriesMap {
    /// The handles of a known label set. Allocates nothing.
    #[must_use]
    pub fn get(&self, labels: &Labels<'_>) -> Option<Arc<Series>> {
        let (hash, shard) = self.place(labels);
        find(shard.read().get(&hash)?, labels)
    }

    /// The handles, made and kept when they are new.
    pub fn get_or(&self, labels: &Labels<'_>, make: impl FnOnce() -> Series) -> Arc<Series> {
        let (hash, shard) = self.place(labels);
        let mut shard = shard.write();
        let bucket = shard.entry(hash).or_default();
        if let Some(series) = find(bucket, labels) {
            return series;
        }
        let series = Arc::new(make());
        bucket.push((labels.own(), series.clone()));
        self.len.fetch_add(1, Ordering::Relaxed);
        series
    }

    /// Whether no further label set should be made.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) >= SERIES_MAX
    }

    /// How full it is.
    pub(super) fn size(&self) -> Size {
        Size::new("series", self.len.load(Ordering::Relaxed), SERIES_MAX)
    }

    fn place(&self, labels: &Labels<'_>) -> (u64, &Shard) {
        let hash = self.hasher.hash_one(labels);
        // The map inside a shard uses the low bits, so the shard takes high ones.
        let shard = usize::try_from(hash >> 56).unwrap_or(0) % SHARDS;
        (hash, &self.shards[shard])
    }
}

fn find(bucket: &[(Owned, Arc<Series>)], labels: &Labels<'_>) -> Option<Arc<Series>> {
    bucket.iter().find(|(own, _)| own.is(labels)).map(|(_, series)| series.clone())
}

/// Which names may be labels. A name once admitted stays: its series exist anyway.
pub struct Names {
    max: usize,
    models: RwLock<Known>,
    teams: RwLock<Known>,
    providers: RwLock<Known>,
    faults_max: usize,
    faults: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    config: HashSet<String>,
    admitted: HashSet<String>,
}

impl Names {
    /// The label of all names that have none.
    pub const OTHER: &'static str = "other";

    /// At most `max` names of each kind, and `faults_max` of faults.
    #[must_use]
    pub fn new(max: usize, faults_max: usize) -> Self {
        let known = || RwLock::new(Known::default());
        let (models, teams, providers, faults) = (known(), known(), known(), known());
        Self { max, models, teams, providers, faults_max, faults }
    }

    /// What config names now, in place of what it named before.
    pub fn know<'a>(
        &self,
        models: impl IntoIterator<Item = &'a str>,
        teams: impl IntoIterator<Item = &'a str>,
    ) {
        self.models.write().config = models.into_iter().map(str::to_owned).collect();
        self.teams.write().config = teams.into_iter().map(str::to_owned).collect();
    }

    /// Names that are labels.
    pub(super) fn len(&self) -> usize {
        let kinds = [&self.models, &self.teams, &self.providers, &self.faults];
        kinds.iter().map(|kind| kind.read().admitted.len()).sum()
    }

    /// A model's label. One that config does not name needs a provider's answer to be one.
    #[must_use]
    pub fn model<'a>(&self, name: &'a str, served: bool) -> &'a str {
        label(&self.models, name, served, self.max)
    }

    /// A team's label.
    #[must_use]
    pub fn team<'a>(&self, name: &'a str) -> &'a str {
        label(&self.teams, name, false, self.max)
    }

    /// A provider's label: only config makes providers.
    #[must_use]
    pub fn provider<'a>(&self, name: &'a str) -> &'a str {
        label(&self.providers, name, true, self.max)
    }

    /// A label of how a try ended.
    #[must_use]
    pub fn fault<'a>(&self, name: &'a str) -> &'a str {
        label(&self.faults, name, true, self.faults_max)
    }
}

fn label<'a>(kind: &RwLock<Known>, name: &'a str, trusted: bool, max: usize) -> &'a str {
    if name.is_empty() || kind.read().admitted.contains(name) {
        return name;
    }
    let mut known = kind.write();
    if (trusted || known.config.contains(name)) && known.admitted.len() < max {
        known.admitted.insert(name.to_owned());
        return name;
    }
    Names::OTHER
}
