//! The breaker over simulated time.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const RULE: Rule = Rule {
    window: Duration::from_secs(10),
    min_requests: 4,
    error_rate: 0.5,
    consecutive: 0,
    open_for: Duration::from_secs(1),
    probes: 1,
};

fn say(b: &mut Breaker, rule: &Rule, outcome: Outcome, now: Instant) {
    let pass = b.enter(rule, now).unwrap();
    b.settle(rule, pass, outcome, now);
}

fn opened(rule: &Rule, now: Instant) -> Breaker {
    let mut b = Breaker::new(now);
    for _ in 0..rule.min_requests {
        say(&mut b, rule, Outcome::Bad, now);
    }
    assert_eq!(b.state(), State::Open);
    b
}

#[test]
fn one_failure_among_few_or_many_opens_nothing() {
    let now = Instant::now();
    let mut b = Breaker::new(now);
    for _ in 0..3 {
        say(&mut b, &RULE, Outcome::Bad, now);
        assert_eq!(b.state(), State::Closed);
    }
    let mut b = Breaker::new(now);
    (0..9).for_each(|_| say(&mut b, &RULE, Outcome::Good, now));
    say(&mut b, &RULE, Outcome::Bad, now);
    assert_eq!(b.state(), State::Closed);
}

#[test]
fn what_left_the_window_is_forgotten() {
    let now = Instant::now();
    let mut b = Breaker::new(now);
    (0..3).for_each(|_| say(&mut b, &RULE, Outcome::Bad, now));
    say(&mut b, &RULE, Outcome::Bad, now + 11 * SECOND);
    assert_eq!(b.state(), State::Closed);
    (0..3).for_each(|_| say(&mut b, &RULE, Outcome::Bad, now + 20 * SECOND));
    assert_eq!(b.state(), State::Open, "one of eleven and three of twenty are in one window");
}

#[test]
fn so_many_in_a_row_open_it_whatever_the_rate() {
    let now = Instant::now();
    let rule = Rule { min_requests: 1000, consecutive: 3, ..RULE };
    let mut b = Breaker::new(now);
    for outcome in [Outcome::Bad, Outcome::Bad, Outcome::Good, Outcome::Bad, Outcome::Bad] {
        say(&mut b, &rule, outcome, now);
    }
    assert_eq!(b.state(), State::Closed);
    say(&mut b, &rule, Outcome::Bad, now);
    assert_eq!(b.state(), State::Open);
}

#[test]
fn neutral_outcomes_neither_open_it_nor_end_a_row() {
    let now = Instant::now();
    let rule = Rule { consecutive: 2, ..RULE };
    let mut b = Breaker::new(now);
    (0..100).for_each(|_| say(&mut b, &rule, Outcome::Neutral, now));
    say(&mut b, &rule, Outcome::Bad, now);
    say(&mut b, &rule, Outcome::Neutral, now);
    assert_eq!(b.state(), State::Closed);
    say(&mut b, &rule, Outcome::Bad, now);
    assert_eq!(b.state(), State::Open);
}

#[test]
fn one_of_two_hundred_that_waited_is_the_probe() {
    let now = Instant::now();
    let mut b = opened(&RULE, now);
    assert_eq!(b.enter(&RULE, now), Err(SECOND));
    let later = now + SECOND;
    let passes: Vec<_> = (0..200).filter_map(|_| b.enter(&RULE, later).ok()).collect();
    assert_eq!((passes.len(), b.state()), (1, State::HalfOpen));
    b.settle(&RULE, passes[0], Outcome::Good, later);
    assert_eq!(b.state(), State::Closed);
}

#[test]
fn a_probe_given_back_or_lost_wedges_nothing() {
    let now = Instant::now();
    let mut b = opened(&RULE, now);
    let pass = b.enter(&RULE, now + SECOND).unwrap();
    b.give_back(&pass);
    let pass = b.enter(&RULE, now + SECOND).unwrap();
    b.settle(&RULE, pass, Outcome::Neutral, now + SECOND);
    let _hangs = b.enter(&RULE, now + SECOND).unwrap();
    assert!(b.enter(&RULE, now + 2 * SECOND).is_err());
    assert!(b.enter(&RULE, now + SECOND + PROBE_LOST).is_ok());
}

#[test]
fn a_probe_that_is_cut_after_its_first_content_opens_it_again() {
    let now = Instant::now();
    let mut b = opened(&RULE, now);
    let mut pass = b.enter(&RULE, now + SECOND).unwrap();
    b.started(&RULE, &mut pass, now + SECOND);
    assert_eq!(b.state(), State::Closed);
    b.settle(&RULE, pass, Outcome::Bad, now + SECOND);
    assert_eq!(b.state(), State::Open);
}

#[test]
fn what_began_before_it_opened_says_nothing_after() {
    let now = Instant::now();
    let mut b = Breaker::new(now);
    let old = [b.enter(&RULE, now).unwrap(), b.enter(&RULE, now).unwrap()];
    (0..4).for_each(|_| say(&mut b, &RULE, Outcome::Bad, now));
    b.settle(&RULE, old[0], Outcome::Good, now);
    assert_eq!(b.state(), State::Open);
    say(&mut b, &RULE, Outcome::Good, now + SECOND);
    b.settle(&RULE, old[1], Outcome::Bad, now + SECOND);
    assert_eq!(b.state(), State::Closed);
}

#[test]
fn traffic_comes_back_gradually() {
    let now = Instant::now();
    let rule = Rule { open_for: 10 * SECOND, ..RULE };
    let mut b = opened(&rule, now);
    let back = now + 10 * SECOND;
    say(&mut b, &rule, Outcome::Good, back);
    assert!(b.share(&rule, back) < 0.11 && !b.is_calm());
    assert!((b.share(&rule, back + 5 * SECOND) - 0.5).abs() < 0.01);
    assert!(b.enter(&rule, back + 10 * SECOND).is_ok() && b.is_calm());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any mix of outcomes, lost guards and waits: at most N undecided probes at a time, and a
    /// target that answers well is back before long.
    #[test]
    fn nothing_is_excluded_for_ever_and_probes_are_counted(
        seed in any::<u64>(),
        probes in 1u32..5,
        consecutive in 0u32..4,
    ) {
        let rule = Rule { probes, consecutive, ..RULE };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now = Instant::now();
        let mut b = Breaker::new(now);
        let mut open: Vec<Pass> = Vec::new();
        for _ in 0..20_000 {
            now += Duration::from_millis(random.u64(0..50));
            if random.bool() {
                if let Ok(pass) = b.enter(&rule, now) {
                    open.push(pass);
                }
            } else if !open.is_empty() {
                let pass = open.swap_remove(random.usize(0..open.len()));
                match random.u8(0..8) {
                    0 => {} // lost
                    1 => b.give_back(&pass),
                    2..4 => b.settle(&rule, pass, Outcome::Bad, now),
                    4 => b.settle(&rule, pass, Outcome::Neutral, now),
                    _ => b.settle(&rule, pass, Outcome::Good, now),
                }
            }
            if let Phase::HalfOpen { out, good } = &b.phase {
                let running = out.iter().filter(|(_, lost)| *lost > now).count();
                prop_assert!(running + *good as usize <= probes as usize);
            }
        }
        // Whatever came before: it heals within one open time and the net of lost probes.
        now += rule.open_for + PROBE_LOST;
        for _ in 0..probes {
            let pass = b.enter(&rule, now);
            prop_assert!(pass.is_ok(), "{:?}", b.phase);
            b.settle(&rule, pass.unwrap(), Outcome::Good, now);
        }
        prop_assert_eq!(b.state(), State::Closed);
    }
}
