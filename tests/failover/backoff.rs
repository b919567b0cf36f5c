//! How long the second try waits: numbers of the plan, without a clock.

use crate::harness::*;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir::config::load_text;
use weir::route::{Fault, Plan, plan::Next};

const SECOND: Duration = Duration::from_secs(1);

/// A plan over `a`, then `b`, of providers with these lines.
fn plan(more: &str) -> Plan {
    let url = "http://127.0.0.1:1/v1";
    let text = [
        toml::custom("a", "openai", url, more),
        toml::custom("b", "openai", url, more),
        toml::model("m", &["a/up-model", "b/up-model"]),
        toml::key(),
    ];
    let loaded = load_text(Path::new("weir.toml"), &text.concat(), &|_| None).unwrap();
    let model = loaded.snapshot.routes.resolve("m").unwrap();
    let now = Instant::now();
    let mut plan = Plan::new(&model, "m", &Arc::default(), now, 0);
    plan.choose(now).unwrap();
    plan.begin();
    plan
}

/// The longest and the shortest wait that jitter can make of the next failure.
fn range(plan: &Plan, asked: Option<Duration>) -> (Duration, Duration) {
    let wait = |pick: fn(u64) -> u64| match plan.clone().failed(
        Fault::Status(503),
        Instant::now(),
        asked,
        pick,
    ) {
        Next::Again(wait) => wait,
        other => panic!("{other:?}"),
    };
    (wait(|_| 0), wait(|most| most))
}

#[test]
fn waits_double_to_their_ceiling_and_jitter_is_full() {
    let lines = "retry = { attempts = 6, backoff = \"100ms\", max_backoff = \"500ms\" }\n";
    let mut plan = plan(lines);
    for most in [100, 200, 400, 500, 500] {
        assert_eq!(range(&plan, None), (Duration::ZERO, Duration::from_millis(most)));
        plan.failed(Fault::Status(503), Instant::now(), None, |_| 0);
        plan.begin();
    }
    assert_eq!(plan.failed(Fault::Status(503), Instant::now(), None, |_| 0), Next::Other);
}

#[test]
fn a_wait_that_the_provider_asks_for_is_kept_and_spread() {
    let plan = plan("retry = { backoff = \"300ms\", max_backoff = \"2s\" }\n");
    let (least, most) = range(&plan, Some(SECOND));
    assert_eq!((least, most), (SECOND, SECOND + Duration::from_millis(300)));
    // Longer than we are ready to wait: elsewhere, at once.
    let next = plan.clone().failed(Fault::Status(429), Instant::now(), Some(3 * SECOND), |_| 0);
    assert_eq!(next, Next::Other);
}

#[test]
fn only_what_surely_did_not_start_is_tried_again_on_the_same_target() {
    let check = |fault, again: bool| {
        let next = plan("").failed(fault, Instant::now(), None, |_| 0);
        assert_eq!(matches!(next, Next::Again(_)), again, "{fault:?}: {next:?}");
    };
    for fault in [Fault::Connect, Fault::ResetBeforeHeaders] {
        check(fault, true);
    }
    for status in [429, 503, 529] {
        check(Fault::Status(status), true);
    }
    for fault in [Fault::FirstToken, Fault::Reply, Fault::Invalid, Fault::Auth, Fault::Quota] {
        check(fault, false);
    }
    for status in [500, 502, 504] {
        check(Fault::Status(status), false);
    }
}

#[test]
fn an_old_request_goes_nowhere_else() {
    let lines = "failover = { max_elapsed = \"3s\" }\n";
    let next = |elapsed| {
        let mut plan = plan(lines);
        plan.failed(Fault::Invalid, Instant::now() + elapsed, None, |_| 0)
    };
    assert_eq!(next(SECOND), Next::Other);
    assert_eq!(next(3 * SECOND), Next::Stop);
}
