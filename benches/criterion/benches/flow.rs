//! What the gateway decides before a try: the target among many.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark stops at the first surprise")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weir::config::load_text;
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

criterion_group!(benches, selection);
criterion_main!(benches);
