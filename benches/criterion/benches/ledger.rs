//! What a report of a million events costs.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark stops at the first surprise")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use weir::base::EventId;
use weir::meter::report::{self, Format, Query};
use weir::meter::{Event, Ledger, Spool};

const EVENTS: u32 = 1_000_000;
/// Thirty days.
const SECONDS: i64 = 30 * 24 * 3600;

fn event(i: u32) -> Event {
    let line = r#"{"event_id":"00000000-0000-7000-8000-000000000000","ts":"2026-11-01T00:00:00Z",
        "request_id":"r","trace_id":"","tags":[],"endpoint":"chat","dialect":"openai","status":200,
        "outcome":"success","streamed":true,"attempts":[],"input_tokens":900,"cached_tokens":100,
        "cache_write_tokens":0,"output_tokens":200,"reasoning_tokens":0,"usage_source":"provider",
        "units":{},"cost_nano_usd":4250000,"wasted_cost_nano_usd":0,"reserved_tokens":1200,
        "duration_ms":2000,"overhead_us":90,"config_version":"0123456789ab"}"#;
    let mut event: Event = serde_json::from_str(line).unwrap();
    event.event_id = EventId::now();
    let at = i64::from(i) * SECONDS / i64::from(EVENTS);
    event.ts += Duration::from_secs(at.unsigned_abs());
    // A key has its team and user, a model its provider.
    let (key, model) = (i % 50, i % 7);
    let name = |kind: &str, n: u32| Some(format!("{kind}-{n}").into());
    (event.key_name, event.key_id) = (name("key", key), name("id", key));
    (event.team, event.user) = (name("team", key % 5), name("user", key % 11));
    (event.model, event.requested_model) = (name("model", model), name("model", model));
    (event.department, event.credential) = (name("department", key % 3), name("key", model % 3));
    event.tags = vec!["batch".into(), format!("cost-center=c{}", key % 5)];
    event.task_type = name("task", model % 2);
    event.end_user = name("end-user", key % 20);
    event.provider = name("provider", model % 3);
    event.ttft_ms = Some(u64::from(200 + i % 900));
    event
}

fn reports(c: &mut Criterion) {
    let home = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    let (db, folder) = (home.join("weir.db"), home.join("spool"));
    let spool = Spool::open(&folder).unwrap();
    (0..EVENTS).for_each(|i| spool.append(&event(i)));
    let mut ledger = Ledger::open(&db).unwrap();
    ledger.apply_all(&spool, event(0).ts).unwrap();
    let mut group = c.benchmark_group("report");
    group.sample_size(10).warm_up_time(Duration::from_millis(100));
    group.measurement_time(Duration::from_secs(1));
    // Each column, pairs of them that people ask for, all of them at once, and one
    // that has more rows than anybody reads: 252,000.
    let each = "department team user end_user key tag:cost-center model requested_model provider \
                credential endpoint task_type status hour day month";
    let more = "team,model key,day team,hour end_user,model \
                department,team,user,key,model,status,day \
                department,team,user,end_user,key,tag:cost-center,model,requested_model,provider,\
                credential,endpoint,task_type,status,day key,model,hour";
    for by in each.split(' ').chain(more.split(' ')).filter(|by| !by.is_empty()) {
        group.bench_function(format!("a million events by {by}"), |b| {
            b.iter(|| {
                let by = report::columns(by).unwrap();
                let query = Query { by, format: Format::Json, ..Query::default() };
                black_box(report::report(&db, &folder, &query).unwrap().len())
            });
        });
    }
    group.finish();
    drop((ledger, spool));
    std::fs::remove_dir_all(home).unwrap();
}

criterion_group!(benches, reports);
criterion_main!(benches);
