//! What `weir report` makes of a ledger.

use super::{Home, event, now};
use jiff::{SignedDuration, Timestamp};
use weir::meter::report::{self, Format, Query};
use weir::meter::{Event, Outcome};
use weir::store;
use weir_filters::usage::Source;

/// A ledger with a known week in it.
fn week() -> Home {
    let home = Home::new();
    let spool = home.spool();
    for i in 0..10u64 {
        let ts = "2026-11-20T10:00:00Z".parse::<Timestamp>().unwrap();
        let mut e = Event {
            ts: ts + SignedDuration::from_hours(24 * i64::try_from(i).unwrap()),
            ..event()
        };
        e.ttft_ms = Some(10 * (i + 1));
        e.tags = vec!["batch".into(), format!("cost-center={}", i % 2)];
        e.end_user =
            Some(if i == 0 { "=cmd|' /C calc'!A0,\"x\"".into() } else { format!("u{i}").into() });
        spool.append(&e);
    }
    let refused = Event {
        outcome: Outcome::Refused,
        status: 403,
        team: None,
        key_name: None,
        key_id: Some("id-7".into()),
        model: None,
        provider: None,
        cost_nano_usd: None,
        input_tokens: 0,
        output_tokens: 0,
        usage_source: Source::Estimated,
        ts: "2026-11-25T10:00:00Z".parse().unwrap(),
        ..event()
    };
    spool.append(&refused);
    home.ledger().apply_all(&spool, now()).unwrap();
    home
}

fn ask(home: &Home, by: &str, format: Format) -> String {
    let query = Query { by: report::columns(by).unwrap(), format, ..Query::default() };
    report::report(&home.db(), &home.spool_dir(), &query).unwrap()
}

fn json(home: &Home, by: &str) -> serde_json::Value {
    serde_json::from_str(&ask(home, by, Format::Json)).unwrap()
}

#[test]
fn a_report_adds_up_exactly() {
    let home = week();
    let text = ask(&home, "team", Format::Json);
    assert!(text.contains("\"cost_usd\":1,"), "ten times 0.1 is 1: {text}");
    let report = json(&home, "team");
    assert_eq!(report["by"], serde_json::json!(["team"]));
    assert_eq!(report["lag_events"], 0);
    assert!(report["since"].is_null() && report["until"].is_null());
    let want = serde_json::json!([
        {"team": null, "requests": 1, "errors": 1, "input_tokens": 0, "cached_tokens": 0,
         "cache_write_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0,
         "cost_nano_usd": null, "cost_usd": null, "wasted_cost_nano_usd": 0, "error_rate": 1,
         "ttft_ms_p50": null, "ttft_ms_p95": null},
        {"team": "search", "requests": 10, "errors": 0, "input_tokens": 100, "cached_tokens": 0,
         "cache_write_tokens": 0, "output_tokens": 30, "reasoning_tokens": 0,
         "cost_nano_usd": 1_000_000_000, "cost_usd": 1, "wasted_cost_nano_usd": 0,
         "error_rate": 0, "ttft_ms_p50": 50, "ttft_ms_p95": 100},
    ]);
    assert_eq!(report["rows"], want);
    assert_eq!(report["total"]["requests"], 11);
    assert_eq!(report["total"]["error_rate"].to_string(), "0.090909");
    assert!(report["total"].get("team").is_none());
}

#[test]
fn a_report_groups_by_every_column() {
    let home = week();
    let check = |by: &str, values: &[&str]| {
        let report = json(&home, by);
        let rows = report["rows"].as_array().unwrap();
        let got: Vec<String> = rows.iter().map(|r| r[by].to_string().replace('"', "")).collect();
        assert_eq!(got, values, "{by}");
        let requests: u64 = rows.iter().map(|r| r["requests"].as_u64().unwrap()).sum();
        assert_eq!(requests, 11, "{by}");
    };
    check("key", &["ci", "id-7"]);
    check("model", &["null", "m"]);
    check("provider", &["null", "a"]);
    check("status", &["200", "403"]);
    check("endpoint", &["chat"]);
    check("month", &["2026-11"]);
    check("tag:batch", &["null", "true"]);
    check("tag:cost-center", &["null", "0", "1"]);
    for by in ["department", "user", "credential", "task_type", "requested_model"] {
        check(by, &["null"]);
    }
    assert_eq!(json(&home, "day")["rows"].as_array().unwrap().len(), 10);
    assert_eq!(json(&home, "hour")["rows"][0]["hour"], "2026-11-20T10:00:00Z");
    assert_eq!(json(&home, "end_user")["rows"].as_array().unwrap().len(), 11);
    assert_eq!(json(&home, "")["rows"].as_array().unwrap().len(), 1, "no column is one row");
}

#[test]
fn a_report_takes_the_span_from_since_up_to_until() {
    let home = week();
    let at = |t: &str| Some(report::moment(t, now()).unwrap());
    let requests = |since, until| {
        let query = Query { since, until, format: Format::Json, ..Query::default() };
        let text = report::report(&home.db(), &home.spool_dir(), &query).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["total"]["requests"].clone()
    };
    assert_eq!(requests(at("2026-11-24"), at("2026-11-26")), 3);
    assert_eq!(requests(at("7d"), None), 7);
    assert_eq!(requests(at("2026-11-29T10:00:00Z"), None), 1, "since is in it");
    assert_eq!(requests(None, at("2026-11-20T10:00:00Z")), 0, "until is not");
    assert_eq!(requests(at("2098-01-01T00:00:00Z"), None), 0);
}

#[test]
fn a_report_names_what_still_waits_in_the_spool() {
    let home = week();
    let spool = home.spool();
    (0..3).for_each(|_| spool.append(&event()));
    let report = json(&home, "team");
    assert_eq!((&report["lag_events"], &report["total"]["requests"]), (&3.into(), &11.into()));
    assert!(ask(&home, "team", Format::Table).contains("3 events wait in the spool"));
}

#[test]
fn a_report_is_a_table_or_csv_and_costs_in_another_currency() {
    let home = week();
    let table = ask(&home, "team,key", Format::Table);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("team    key   requests  errors"), "{table}");
    assert!(lines[1].starts_with("-       id-7         1       1"), "{table}");
    assert!(lines[3].starts_with("total               11       1"), "{table}");
    let csv = ask(&home, "end_user", Format::Csv);
    assert!(csv.starts_with("end_user,requests,errors,input_tokens,"), "{csv}");
    assert!(csv.contains("\"'=cmd|' /C calc'!A0,\"\"x\"\"\",1,0,10,"), "no formula: {csv}");
    assert_eq!(csv.lines().count(), 12);
    let currency =
        Some(report::Currency { code: "CNY".into(), nano_usd: 140_000_000.try_into().unwrap() });
    let query = Query { currency, format: Format::Json, ..Query::default() };
    let text = report::report(&home.db(), &home.spool_dir(), &query).unwrap();
    assert!(text.contains("\"cost_usd\":1,\"cost_cny\":7.142857143,"), "{text}");
}

#[test]
fn a_report_without_a_ledger_says_so_and_makes_none() {
    let home = Home::new();
    let error = report::report(&home.db(), &home.spool_dir(), &Query::default()).unwrap_err();
    assert!(matches!(error, report::Error::Store(store::Error::Missing(_))), "{error}");
    assert!(error.to_string().contains("weir.db: no ledger here yet"), "{error}");
    assert!(!home.db().exists());
}

#[test]
fn a_report_runs_beside_a_writer_in_the_middle_of_its_work() {
    let home = week();
    let writer = rusqlite::Connection::open(home.db()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; DELETE FROM events").unwrap();
    assert_eq!(json(&home, "team")["total"]["requests"], 11);
}

/// So many events over thirty days, of teams, keys, models and outcomes, made by the database.
fn many(home: &Home, rows: u32) {
    drop(home.ledger());
    let db = rusqlite::Connection::open(home.db()).unwrap();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
        INSERT INTO events (event_id, ts, request_id, trace_id, key_id, key_name, team, user,
            tags, endpoint, dialect, requested_model, provider, model, status, outcome, streamed,
            attempts, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
            reasoning_tokens, usage_source, units, cost_nano_usd, wasted_cost_nano_usd,
            reserved_tokens, ttft_ms, duration_ms, overhead_us, config_version)
        SELECT randomblob(16), 1795000000000000 + i * (2592000000000 / ?1), 'r' || i, '',
            'k' || (i % 7), 'k' || (i % 7), 't' || (i % 3), 'u' || (i % 11), '[]', 'chat',
            'openai', 'm' || (i % 2), 'p', 'm' || (i % 2), iif(i % 10 = 0, 502, 200),
            iif(i % 10 = 0, 'upstream_error', 'success'), 0, '[]', i % 1000, 1, 2, i % 500, 0,
            'provider', '{}', 7 * i, i % 5, 0, 100 + i % 900, 5, 5, 'v' FROM n";
    db.execute(sql, [rows]).unwrap();
    drop(db);
    drop(home.ledger());
}

#[test]
fn a_long_report_is_read_from_sums_and_says_what_the_rows_say() {
    let home = Home::new();
    many(&home, 120_000);
    home.check_sums();
    let since = Timestamp::from_microsecond(1_795_000_000_000_000 + 123_456_789).unwrap();
    let until = Timestamp::from_microsecond(1_795_000_000_000_000 + 2_500_000_000_000).unwrap();
    for by in ["", "team,model", "key,user,status", "day", "hour,team", "month,endpoint"] {
        let query = Query {
            by: report::columns(by).unwrap(),
            since: Some(since),
            until: Some(until),
            format: Format::Json,
            ..Query::default()
        };
        let begun = std::time::Instant::now();
        let text = report::report(&home.db(), &home.spool_dir(), &query).unwrap();
        let took = begun.elapsed();
        assert!(took < std::time::Duration::from_secs(5), "by {by} in {took:?}");
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        let span = "FROM events WHERE ts >= 1795000123456789 AND ts < 1797500000000000";
        let total = &told["total"];
        for (name, sql) in [
            ("requests", "count(*)"),
            ("errors", "sum(status = 502)"),
            ("input_tokens", "sum(input_tokens)"),
            ("output_tokens", "sum(output_tokens)"),
            ("cost_nano_usd", "sum(cost_nano_usd)"),
            ("wasted_cost_nano_usd", "sum(wasted_cost_nano_usd)"),
        ] {
            let want = home.query::<i64>(&format!("SELECT {sql} {span}"));
            assert_eq!(total[name].as_i64(), Some(want), "{name} by {by}");
            let rows = told["rows"].as_array().unwrap();
            let sum: i64 = rows.iter().map(|row| row[name].as_i64().unwrap()).sum();
            assert_eq!(sum, want, "{name} by {by}");
        }
        let median = total["ttft_ms_p50"].as_i64().unwrap();
        assert!((median - 549).abs() <= 6, "{median} by {by}");
    }
    let spent = report::spent(&home.db(), report::Owner::Team, None).unwrap();
    let cost: u64 = spent.iter().map(|s| s.cost).sum();
    assert_eq!(cost, home.query::<i64>("SELECT sum(cost_nano_usd) FROM events").cast_unsigned());
}
