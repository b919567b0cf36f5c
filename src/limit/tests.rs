//! Counters against what happened.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::time::Duration;

mod rests;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A clock that a test moves, and counters under it.
struct World {
    limits: Arc<Limits>,
    now: Now,
}

impl World {
    fn new() -> Self {
        let at = Instant::now();
        let wall = "2026-01-31T23:00:00Z".parse().unwrap();
        Self { limits: Limits::new(at), now: Now { at, wall } }
    }
    fn pass(&mut self, time: Duration) {
        self.now.at += time;
        self.now.wall += time;
    }
    fn ask(&self, rules: &[Arc<Rule>], tokens: u64) -> Result<Reservation, Refusal> {
        let tokens = Amount { sure: tokens, guess: 0 };
        self.limits.reserve_here(rules.into(), &Ask { tokens, money: tokens }, self.now)
    }
    fn settle(&self, r: Reservation, tokens: u64) {
        self.alerts(r, tokens);
    }
    fn alerts(&self, mut r: Reservation, tokens: u64) -> usize {
        r.settle(&Used { requests: 1, tokens, money: tokens }, self.now).len()
    }
    fn standing(&self, rule: &Rule) -> Standing {
        self.limits.standing(rule, self.now).unwrap()
    }
    #[track_caller]
    fn waits(&self, rules: &[Arc<Rule>], tokens: u64) -> Duration {
        match self.ask(rules, tokens).map(|_| ()).unwrap_err().why {
            Why::Wait(wait) => wait,
            why => panic!("{why:?}"),
        }
    }
}

fn owner() -> Owner {
    Owner::new(Scope::Key, "ci")
}

fn rule(name: &str, kind: Kind) -> Arc<Rule> {
    Arc::new(Rule::new(&owner(), name, name, kind))
}

fn bucket(measure: Measure, amount: u64) -> Arc<Rule> {
    let name = format!("{}pm", measure.as_str());
    rule(&name, Kind::Bucket { measure, amount, period: MINUTE, burst: amount })
}

fn window(amount: u64) -> Arc<Rule> {
    rule("window", Kind::Window { measure: Measure::Tokens, amount, length: HOUR })
}

fn budget(measure: Measure, amount: u64, per: Per) -> Rule {
    let kind = Kind::Budget { measure, amount, per, zone: TimeZone::UTC };
    Rule::new(&owner(), &format!("budget/{}", measure.as_str()), per.as_str(), kind)
}

fn slots(amount: u64) -> Arc<Rule> {
    rule("concurrent", Kind::Concurrent { amount })
}

#[test]
fn a_bucket_gives_what_flows_in_and_its_wait_is_true() {
    let mut w = World::new();
    let rules = [bucket(Measure::Requests, 3)];
    for left in [2, 1, 0] {
        w.settle(w.ask(&rules, 0).unwrap(), 0);
        assert_eq!(w.standing(&rules[0]).remaining, left);
    }
    let wait = w.waits(&rules, 0);
    assert_eq!(wait, Duration::from_secs(20));
    w.pass(wait - Duration::from_nanos(1));
    w.waits(&rules, 0);
    w.pass(Duration::from_nanos(1));
    w.settle(w.ask(&rules, 0).unwrap(), 0);
}

#[test]
fn requests_and_tokens_of_a_minute_do_not_share_a_marker() {
    let mut w = World::new();
    let rules = [bucket(Measure::Requests, 500), bucket(Measure::Tokens, 500_000)];
    for _ in 0..5 * 60 {
        w.settle(w.ask(&rules, 5_000).unwrap(), 5_000);
        w.pass(Duration::from_secs(1));
    }
}

#[test]
fn the_debt_of_an_answer_that_outgrew_its_hold_is_paid_off() {
    let mut w = World::new();
    let rules = [bucket(Measure::Tokens, 100)];
    w.settle(w.ask(&rules, 50).unwrap(), 250);
    let s = w.standing(&rules[0]);
    assert_eq!((s.remaining, s.used), (0, 250));
    let wait = w.waits(&rules, 10);
    assert_eq!(wait, Duration::from_secs(96), "160 tokens at 100 a minute");
    w.pass(wait);
    w.settle(w.ask(&rules, 10).unwrap(), 10);
}

#[test]
fn what_never_fits_is_told_apart_and_a_guess_always_can() {
    let w = World::new();
    let rules = [bucket(Measure::Tokens, 100)];
    assert_eq!(w.ask(&rules, 101).unwrap_err().why, Why::Never);
    let tokens = Amount { sure: 10, guess: 1024 };
    let ask = Ask { tokens, money: Amount::default() };
    let held = w.limits.reserve_here(rules[..].into(), &ask, w.now).unwrap();
    assert_eq!(held.tokens_held(), Some(100));
}

#[test]
fn a_window_forgets_what_is_older_than_its_length_and_not_before() {
    let mut w = World::new();
    let rules = [window(1_000)];
    for left in [700, 400, 100] {
        w.settle(w.ask(&rules, 300).unwrap(), 300);
        assert_eq!(w.standing(&rules[0]).remaining, left);
        w.pass(MINUTE);
    }
    let wait = w.waits(&rules, 300);
    assert!(wait > HOUR - 4 * MINUTE && wait <= HOUR - 2 * MINUTE, "{wait:?}");
    w.pass(wait - Duration::from_nanos(1));
    w.waits(&rules, 300);
    w.pass(Duration::from_nanos(1));
    w.settle(w.ask(&rules, 300).unwrap(), 300);
}

#[test]
fn a_refusal_by_one_rule_moves_no_other() {
    let w = World::new();
    let (few, many) = (bucket(Measure::Requests, 1), bucket(Measure::Tokens, 1_000));
    let day = Arc::new(budget(Measure::Money, 1_000, Per::Day));
    let all = [many.clone(), day.clone(), slots(5), few.clone()];
    w.settle(w.ask(&all, 10).unwrap(), 10);
    let before: Vec<_> = all.iter().map(|r| w.standing(r)).collect();
    let refusal = w.ask(&all, 10).unwrap_err();
    assert_eq!(refusal.rule.id, few.id);
    assert_eq!(all.iter().map(|r| w.standing(r)).collect::<Vec<_>>(), before);
}

#[test]
fn an_amount_that_changed_acts_on_what_was_used_before() {
    let w = World::new();
    let of = |n| [bucket(Measure::Requests, n)];
    (0..8).for_each(|_| w.settle(w.ask(&of(10), 0).unwrap(), 0));
    assert!(w.ask(&of(5), 0).is_err());
    (0..12).for_each(|_| w.settle(w.ask(&of(20), 0).unwrap(), 0));
    assert!(w.ask(&of(20), 0).is_err());
}

#[test]
fn five_hundred_at_once_against_a_hundred_admit_exactly_a_hundred() {
    for rules in [
        vec![bucket(Measure::Requests, 100)],
        vec![slots(100), bucket(Measure::Tokens, 100_000)],
        vec![window(1_000), bucket(Measure::Requests, 10_000)],
        vec![Arc::new(budget(Measure::Money, 1_000, Per::Day))],
    ] {
        let w = World::new();
        let held: Vec<Reservation> = std::thread::scope(|s| {
            let take = || (0..50).filter_map(|_| w.ask(&rules, 10).ok()).collect::<Vec<_>>();
            let all: Vec<_> = (0..10).map(|_| s.spawn(take)).collect();
            all.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(held.len(), 100, "{rules:?}");
    }
}

#[test]
fn concurrent_holds_of_a_budget_never_pass_its_amount() {
    let w = World::new();
    let rules = [Arc::new(budget(Measure::Money, 1_000, Per::Month))];
    let held: Vec<_> = (0..5).filter_map(|_| w.ask(&rules, 250).ok()).collect();
    assert_eq!(held.len(), 4);
    let why = w.ask(&rules, 250).unwrap_err().why;
    assert!(matches!(why, Why::Spent { used: 0, held: 1_000, .. }), "{why:?}");
    held.into_iter().for_each(|r| w.settle(r, 10));
    drop(w.ask(&rules, 250).unwrap());
    assert_eq!(w.standing(&rules[0]).used, 40);
}

#[test]
fn what_is_free_passes_a_spent_budget() {
    let w = World::new();
    let rules = [Arc::new(budget(Measure::Money, 0, Per::Day))];
    w.settle(w.ask(&rules, 0).unwrap(), 0);
    assert!(matches!(w.ask(&rules, 1).unwrap_err().why, Why::Spent { .. }));
}

#[test]
fn a_budget_begins_anew_on_the_first_and_an_old_hold_stays_in_its_month() {
    let mut w = World::new();
    let rules = [Arc::new(budget(Measure::Tokens, 100, Per::Month))];
    let old = w.ask(&rules, 60).unwrap();
    let Why::Spent { resets, .. } = w.ask(&rules, 60).unwrap_err().why else { panic!() };
    let first: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
    assert_eq!(resets, Some(first.as_second()));
    w.pass(HOUR);
    let new = w.ask(&rules, 100).unwrap();
    w.settle(old, 60);
    assert_eq!(w.standing(&rules[0]).used, 0, "January's tokens are January's");
    w.settle(new, 100);
    assert_eq!(w.standing(&rules[0]).used, 100);
    // A clock that steps back over midnight opens nothing.
    w.now.wall -= HOUR;
    assert!(w.ask(&rules, 1).is_err());
}

#[test]
fn an_alert_comes_once_a_period() {
    let mut w = World::new();
    let mut rule = budget(Measure::Money, 1_000, Per::Day);
    rule.alert = Some(800_000);
    let rules = [Arc::new(rule)];
    let spend = |w: &World, n| w.alerts(w.ask(&rules, n).unwrap(), n);
    assert_eq!(spend(&w, 790), 0);
    assert_eq!(spend(&w, 10), 1);
    assert_eq!(spend(&w, 100), 0);
    w.pass(HOUR);
    assert_eq!(spend(&w, 900), 1, "the next day");
    let again = World::new();
    again.limits.seed(&rules[0], 850, again.now);
    assert_eq!(spend(&again, 10), 0, "it was given before the restart");
}

#[test]
fn a_stream_takes_more_as_it_goes_and_a_cutting_rule_can_say_no() {
    let w = World::new();
    let finish = [bucket(Measure::Tokens, 100)];
    let mut r = w.ask(&finish, 50).unwrap();
    let used = |tokens| Used { requests: 1, tokens, money: 0 };
    r.grow(&used(150), w.now).unwrap();
    assert_eq!(w.standing(&finish[0]).used, 150, "the debt shows while it runs");
    r.settle(&used(160), w.now);
    assert_eq!(w.standing(&finish[0]).used, 160);
    let w = World::new();
    let kind = bucket(Measure::Tokens, 100).kind.clone();
    let mut cutting = Rule::new(&owner(), "tpm", "tpm", kind);
    cutting.exhausted = Exhausted::Cut;
    let cut = [Arc::new(cutting)];
    let mut r = w.ask(&cut, 50).unwrap();
    r.grow(&used(90), w.now).unwrap();
    assert_eq!(r.grow(&used(101), w.now).unwrap_err().rule.id, cut[0].id);
    assert_eq!(w.standing(&cut[0]).used, 90);
}

/// What can happen to a request.
#[derive(Debug, Clone)]
enum Step {
    Reserve(u64),
    Settle(usize, u64),
    Grow(usize, u64),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..400u64).prop_map(Step::Reserve),
        3 => (any::<usize>(), 0..500u64).prop_map(|(i, n)| Step::Settle(i, n)),
        1 => (any::<usize>(), 0..500u64).prop_map(|(i, n)| Step::Grow(i, n)),
        2 => any::<usize>().prop_map(Step::Drop),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_counters_equal_what_was_used(
        steps in proptest::collection::vec(step(), 0..80)
    ) {
        let w = World::new();
        let rules = vec![
            bucket(Measure::Requests, 30),
            bucket(Measure::Tokens, 2_000),
            slots(6),
            window(3_000),
            Arc::new(budget(Measure::Money, 5_000, Per::Day)),
            Arc::new(budget(Measure::Tokens, 4_000, Per::Ever)),
        ];
        let mut open = Vec::new();
        let (mut requests, mut tokens) = (0, 0);
        for step in steps {
            match step {
                Step::Reserve(n) => open.extend(w.ask(&rules, n)),
                _ if open.is_empty() => {}
                Step::Settle(i, n) => {
                    let i = i % open.len();
                    w.settle(open.swap_remove(i), n);
                    requests += 1;
                    tokens += n;
                }
                Step::Grow(i, n) => {
                    let i = i % open.len();
                    open[i].grow(&Used { requests: 1, tokens: n, money: n }, w.now).unwrap();
                }
                Step::Drop(i) => {
                    let i = i % open.len();
                    drop(open.swap_remove(i));
                }
            }
        }
        open.clear();
        for rule in &rules {
            let s = w.limits.standing(rule, w.now);
            let want = match (&rule.kind, rule.measure()) {
                (Kind::Concurrent { .. }, _) => 0,
                (_, Some(Measure::Requests)) => requests,
                _ => tokens,
            };
            prop_assert_eq!(s.map_or(0, |s| s.used), want, "{}", rule.id);
            prop_assert_eq!(s.map_or(0, |s| s.held), 0, "{}", rule.id);
        }
    }

    /// Requests of up to 50 run for up to ten hours through three months of a daily budget.
    #[test]
    fn through_months_a_budget_is_overshot_by_no_more_than_what_outgrew_its_hold(
        walk in proptest::collection::vec((0..300u64, 0..50u64, 0..60u64), 1..400)
    ) {
        let mut w = World::new();
        let rules = [Arc::new(budget(Measure::Money, 500, Per::Day))];
        let mut open: Vec<(Reservation, u64, u64)> = Vec::new();
        let mut over = 0;
        let mut day = 0;
        for (minutes, ask, used) in walk {
            w.pass(Duration::from_secs(60 * minutes));
            let today = w.now.wall.as_second().div_euclid(86_400);
            if today != day {
                (day, over) = (today, 0);
            }
            if open.len() > 9 {
                let (r, ask, used) = open.remove(0);
                over += used.saturating_sub(ask);
                w.settle(r, used);
            }
            if let Ok(r) = w.ask(&rules, ask) {
                open.push((r, ask, used));
            }
            let s = w.standing(&rules[0]);
            prop_assert!(s.used + s.held <= 500 + over, "{s:?} with {over} outgrown");
        }
    }
}

/// A bound with room for a loaded machine; the benchmark has the real figure.
#[test]
fn ten_rules_are_taken_and_settled_in_microseconds() {
    let w = World::new();
    let rules: Vec<_> = (0..10)
        .map(|i| {
            let kind = bucket(Measure::Tokens, 1_000_000_000).kind.clone();
            rule(&format!("r{i}"), kind)
        })
        .collect();
    let mut best = Duration::MAX;
    for _ in 0..50 {
        let start = Instant::now();
        (0..100).for_each(|_| w.settle(w.ask(&rules, 5).unwrap(), 5));
        best = best.min(start.elapsed() / 100);
    }
    assert!(best < Duration::from_micros(100), "{best:?}");
}
