//! What the gateway decides before a try: whether it may, and the target among many.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark stops at the first surprise")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use weir::config::load_text;
use weir::limit::{
    Amount, Ask, Budget, Common, Limit, Limits, Measure, Now, Owner, Per, Rules, Scope, Spec, Used,
    Window,
};
use weir::route::Plan;
use weir::route::live::Registry;

/// More targets than a model has in practice.
const TARGETS: usize = 200;

fn config() -> String {
    let mut text = String::new();
    let mut targets = Vec::new();
    for i in 0..TARGETS {
        writeln!(text, "[providers.p{i}]\nwire = \"openai\"\nauth = \"none\"").unwrap();
        writeln!(text, "base_url = \"http://127.0.0.1:1/v1\"").unwrap();
        targets.push(format!("{{ to = \"p{i}/m\", weight = {} }}", 1 + i % 3));
    }
    writeln!(text, "[models.m]\ntargets = [{}]", targets.join(", ")).unwrap();
    text
}

fn selection(c: &mut Criterion) {
    let loaded = load_text(Path::new("weir.toml"), &config(), &|_| None).unwrap();
    let table = &loaded.snapshot.routes;
    let now = Instant::now();
    Registry::default().adopt(table, now);
    let (model, need) = (table.resolve("m").unwrap(), Arc::default());
    let mut seed = 0;
    let mut group = c.benchmark_group("route");
    group.bench_function(format!("choose among {TARGETS} targets"), |b| {
        b.iter(|| {
            seed += 1;
            black_box(Plan::new(&model, "m", &need, now, seed).choose(now).is_some())
        });
    });
    group.finish();
}

/// Rules of one owner: two buckets of each kind at most, a window, a slot, two budgets.
fn spec(more: bool) -> Spec {
    let common = Common::default;
    let limit = Limit {
        rpm: Some(1 << 40),
        tpm: Some(1 << 40),
        concurrent: more.then_some(1 << 40),
        ..Limit::default()
    };
    let (measure, amount, length) = (Measure::Tokens, 1 << 40, Duration::from_secs(3_600));
    let window = Window { measure, amount, length, common: common() };
    let budget = |measure| Budget {
        measure,
        amount: 1 << 50,
        per: Per::Month,
        alert: Some(800_000),
        downgrade: None,
        common: common(),
    };
    Spec {
        limits: Some(vec![limit]),
        windows: more.then(|| vec![window]),
        budgets: Some(vec![budget(Measure::Money), budget(Measure::Tokens)]),
    }
}

/// A key of a team, with ten rules in all, among so many keys.
fn rules(keys: usize) -> Rules {
    let mut rules = Rules::default();
    rules.add(&Owner::new(Scope::Team, "t"), spec(false)).unwrap();
    for i in 0..keys {
        rules.add(&Owner::new(Scope::Key, &format!("k{i}")), spec(true)).unwrap();
    }
    rules
}

/// Which key each of many requests has: of a few most, as in production (Zipf's law with exponent
/// 1), neighbours in popularity far from each other in memory.
fn busy(keys: usize) -> Vec<usize> {
    let mut sums: Vec<f64> = (1..=keys).map(|rank| 1.0 / rank as f64).collect();
    (1..keys).for_each(|i| sums[i] += sums[i - 1]);
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
        (state >> 11) as f64 / (1u64 << 53) as f64 * sums[keys - 1]
    };
    let rank = |at: f64| sums.partition_point(|sum| *sum < at).min(keys - 1);
    (0..1 << 18).map(|_| rank(next()) * 7_919 % keys).collect()
}

/// The rules are found, taken in one step, and settled. With every key in turn each of them is
/// cold: what that costs is memory's own price of some twenty lines, and the worst case.
fn admission(c: &mut Criterion) {
    let mut group = c.benchmark_group("limit");
    let turns = |keys: usize| (0..keys).map(|n| n * 7_919 % keys).collect::<Vec<_>>();
    for (keys, used, order) in [
        (10, "each in turn", turns(10)),
        (100_000, "as in production", busy(100_000)),
        (100_000, "each in turn", turns(100_000)),
    ] {
        let (rules, limits) = (rules(keys), Limits::new(Instant::now()));
        let names: Vec<String> = (0..keys).map(|i| format!("k{i}")).collect();
        let tokens = Amount { sure: 500, guess: 200 };
        let ask = Ask { tokens, money: tokens };
        let spent = Used { requests: 1, tokens: 600, money: 600 };
        let once = |name: &str| {
            let owners = [(Scope::Gateway, ""), (Scope::Team, "t"), (Scope::Key, name)];
            let rules = rules.gather(owners, "m", "chat");
            assert_eq!(rules.len(), 10);
            let now = Now::read();
            let mut held = limits.reserve_here(rules, &ask, now).unwrap();
            held.settle(&spent, now)
        };
        // Every counter is made once.
        names.iter().for_each(|name| drop(once(name)));
        let mut keys_of_requests = order.iter().cycle();
        let name = format!("admit and settle ten rules, one of {keys} keys, {used}");
        group.bench_function(name, |b| {
            b.iter(|| black_box(once(&names[*keys_of_requests.next().unwrap()]).len()));
        });
    }
    group.finish();
}

criterion_group!(benches, selection, admission);
criterion_main!(benches);
