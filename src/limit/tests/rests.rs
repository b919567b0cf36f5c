//! A key that ran into a rule with a penalty.

use super::*;

#[test]
fn a_penalty_lets_the_key_rest_and_then_forgives() {
    let mut w = World::new();
    let mut limited = Rule::new(&owner(), "rpm", "rpm", bucket(Measure::Requests, 60).kind.clone());
    limited.penalty = Some(10 * MINUTE);
    let rules = [Arc::new(limited), rule("rest", Kind::Rest)];
    (0..60).for_each(|_| w.settle(w.ask(&rules, 0).unwrap(), 0));
    assert_eq!(w.ask(&rules, 0).unwrap_err().why, Why::Rests(10 * MINUTE));
    w.pass(9 * MINUTE);
    let refusal = w.ask(&rules, 0).unwrap_err();
    assert_eq!(refusal.why, Why::Rests(MINUTE));
    w.pass(MINUTE);
    w.settle(w.ask(&rules, 0).unwrap(), 0);
}

#[test]
fn a_rest_says_how_long_it_really_takes() {
    let penalised = |kind: Kind, penalty| {
        let mut rule = Rule::new(&owner(), "rule", "rule", kind);
        rule.penalty = Some(penalty);
        [Arc::new(rule), self::rule("rest", Kind::Rest)]
    };
    // The rule heals after the rest: a wait as long as the rest alone would be in vain.
    let mut w = World::new();
    let mut slow = bucket(Measure::Requests, 2).kind.clone();
    if let Kind::Bucket { period, .. } = &mut slow {
        *period = MINUTE;
    }
    let rules = penalised(slow, 5 * SECOND);
    (0..2).for_each(|_| w.settle(w.ask(&rules, 0).unwrap(), 0));
    assert_eq!(w.ask(&rules, 0).unwrap_err().why, Why::Wait(30 * SECOND));
    w.pass(SECOND);
    assert_eq!(w.ask(&rules, 0).unwrap_err().why, Why::Wait(29 * SECOND));
    w.pass(29 * SECOND);
    w.settle(w.ask(&rules, 0).unwrap(), 0);
    // What never fits is told so, and nobody rests for it.
    let w = World::new();
    let rules = penalised(bucket(Measure::Tokens, 100).kind.clone(), MINUTE);
    assert_eq!(w.ask(&rules, 101).unwrap_err().why, Why::Never);
    w.settle(w.ask(&rules, 100).unwrap(), 0);
    // A spent budget names its reset, unless the key rests for longer.
    let mut w = World::new();
    let rules = penalised(budget(Measure::Money, 100, Per::Day).kind.clone(), MINUTE);
    w.settle(w.ask(&rules, 100).unwrap(), 100);
    assert!(matches!(w.ask(&rules, 1).unwrap_err().why, Why::Spent { .. }));
    let rules = penalised(budget(Measure::Money, 100, Per::Day).kind.clone(), 24 * HOUR);
    w.pass(MINUTE);
    assert_eq!(w.ask(&rules, 1).unwrap_err().why, Why::Rests(24 * HOUR));
}
