//! Whole plans over simulated time, of thousands of requests.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::base::{Credential, Glob, Proof, ProviderId, Secret};
use crate::route::breaker::{Outcome, Rule};
use crate::route::live::Block;
use crate::route::live::{Pass, Registry};
use crate::route::provider::{Auth, Base, Failover, Faults, Pool, Retry, Timeouts};
use crate::route::rest::{Cooldown, Rest, Why};
use crate::route::{Affinity, Offer, Strategy, Table};
use proptest::prelude::*;
use std::sync::OnceLock;
use weir_filters::usage::{Price, Rates};
use weir_filters::wire::Wire;

const SECOND: Duration = Duration::from_secs(1);

fn provider(name: &str, keys: usize) -> Provider {
    let all = Faults {
        connect: true,
        reset_before_headers: true,
        first_token: true,
        reply: true,
        invalid: true,
        filter: false,
        server: true,
        statuses: vec![429],
    };
    let credential = |n: usize| {
        let (name, secret) = (format!("key-{n}"), Secret::new(&format!("{name}-{n}")));
        Arc::new(Credential { name, proof: Proof::Bare(secret), weight: 1, caps: None })
    };
    Provider {
        id: ProviderId::from(name),
        wire: Wire::OpenAi,
        base: Base { tls: false, host: "h".into(), port: 1, path: String::new() },
        auth: Auth::Bearer,
        credentials: (0..keys).map(credential).collect(),
        api_version: None,
        timeouts: Timeouts {
            connect: None,
            first_token: None,
            idle: None,
            write: None,
            reply: None,
            quick_reply: None,
            total: None,
        },
        retry: Retry { attempts: 3, backoff: SECOND, max_backoff: 4 * SECOND, on: all.clone() },
        failover: Failover { on: all, max_elapsed: None },
        breaker: Rule { min_requests: 4, open_for: SECOND, ..Rule::default() },
        cooldown: Cooldown::default(),
        health: None,
        pool: Pool { idle_timeout: None, max_age: None },
        idempotency: None,
        headers: Vec::new(),
        params: weir_filters::wire::Params::default(),
        quirks: weir_filters::wire::Quirks::default(),
        errors: weir_filters::error::ErrorMap::default(),
        offers: Vec::new(),
        trust: None,
        through: None,
        http2: false,
        live: OnceLock::new(),
    }
}

/// A model over providers `p0`, `p1`, … of these weights and priorities, bound to a registry.
fn model(targets: &[(u32, u32)], change: impl Fn(usize, &mut Provider)) -> Model {
    let target = |(n, (weight, priority)): (usize, &(u32, u32))| {
        let mut provider = provider(&format!("p{n}"), 1);
        change(n, &mut provider);
        let target = Target::new(Arc::new(provider), Some("m".into()));
        Target { weight: *weight, priority: *priority, ..target }
    };
    Model::new(Glob::new("m"), targets.iter().enumerate().map(target).collect())
}

fn bound(model: Model, now: Instant) -> Arc<Model> {
    let model = Arc::new(model);
    let providers = model.targets.iter().map(|t| (t.provider.id.clone(), t.provider.clone()));
    let table =
        Table { providers: providers.collect(), models: vec![model.clone()], ..Table::default() };
    Registry::default().adopt(&table, now);
    model
}

fn plan(model: &Arc<Model>, now: Instant, seed: u64) -> Plan {
    Plan::new(model, "m", &Arc::default(), now, seed)
}

fn place(choice: &Choice) -> usize {
    choice.provider.id.as_str()[1..].parse().unwrap()
}

fn settle(choice: &Choice, outcome: Outcome, now: Instant) {
    let pass = Pass::take(&choice.live, &choice.provider.breaker, now).unwrap();
    pass.settle(outcome, now);
}

proptest! {
    // A million and more steps of each claim.
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn shares_are_exact_within_one_percent(
        weights in prop::collection::vec(0u32..50, 2..12),
        n in 2_000usize..20_000,
    ) {
        prop_assume!(weights.iter().any(|w| *w > 0));
        let now = Instant::now();
        let targets: Vec<_> = weights.iter().map(|w| (*w, 1)).collect();
        let model = bound(model(&targets, |_, _| {}), now);
        let mut counts = vec![0usize; weights.len()];
        for seed in 0..n {
            counts[place(&plan(&model, now, seed as u64).choose(now).unwrap())] += 1;
        }
        let sum: u32 = weights.iter().sum();
        for (count, weight) in counts.iter().zip(&weights) {
            let want = n as f64 * f64::from(*weight) / f64::from(sum);
            prop_assert!((*count as f64 - want).abs() <= n as f64 / 100.0, "{counts:?} of {weights:?}");
            prop_assert!(*weight > 0 || *count == 0);
        }
    }

    /// Providers that flap, refuse credentials and limit rates at random: in the end each is back.
    #[test]
    fn no_target_is_excluded_for_ever(seed in any::<u64>()) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now = Instant::now();
        let model = bound(model(&[(1, 1), (2, 1), (1, 1)], |n, p| {
            p.cooldown = Cooldown { quota: 9 * SECOND, auth: 5 * SECOND, rate: SECOND };
            p.breaker.consecutive = n as u32;
        }), now);
        for _ in 0..20_000 {
            now += Duration::from_millis(random.u64(0..200));
            let Some(choice) = plan(&model, now, random.u64(..)).choose(now) else { continue };
            let live = choice.provider.live(now);
            let why = [Why::Rate, Why::Quota, Why::Auth][random.usize(0..3)];
            let rest = Rest { until: now + random.u32(0..9) * SECOND, why, named: random.bool() };
            match random.u8(0..8) {
                0 => drop(live.lie_down(&choice.live, 0, rest, now)),
                1 => drop(Pass::take(&choice.live, &choice.provider.breaker, now)),
                2..5 => settle(&choice, Outcome::Bad, now),
                _ => settle(&choice, Outcome::Good, now),
            }
        }
        now += 70 * SECOND;
        let mut seen = [0; 3];
        for _ in 0..1_000 {
            now += Duration::from_millis(50);
            let choice = plan(&model, now, random.u64(..)).choose(now).unwrap();
            settle(&choice, Outcome::Good, now);
            seen[place(&choice)] += 1;
        }
        prop_assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
    }

    #[test]
    fn a_backoff_is_never_longer_than_its_bound(seed in any::<u64>(), asked in 0u64..6_000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now = Instant::now();
        let model = bound(model(&[(1, 1), (1, 2)], |_, p| p.retry.attempts = 10), now);
        let asked = Some(Duration::from_millis(asked)).filter(|d| !d.is_zero());
        let least = asked.unwrap_or_default();
        for _ in 0..2_000 {
            now += 10 * SECOND; // by then the provider's retries are saved up again
            let mut plan = plan(&model, now, seed);
            plan.choose(now).unwrap();
            for n in 0..10u32 {
                plan.begin();
                match plan.failed(Fault::Status(503), now, asked, |most| random.u64(0..=most)) {
                    Next::Again(wait) => {
                        let most = (SECOND * 2u32.pow(n)).min(4 * SECOND);
                        prop_assert!(wait >= least && wait <= least + most, "{wait:?}");
                        prop_assert!(least <= 4 * SECOND);
                    }
                    Next::Other => prop_assert!(n == 9 || asked > Some(4 * SECOND)),
                    Next::Stop => prop_assert!(false, "there is another target"),
                }
                if plan.current().is_none() {
                    break;
                }
            }
        }
    }
}

#[test]
fn groups_come_in_order_and_a_sick_one_is_passed_over() {
    let now = Instant::now();
    let model = bound(model(&[(1, 2), (1, 1), (0, 1)], |_, _| {}), now);
    let mut plan_a = plan(&model, now, 1);
    let first = plan_a.choose(now).unwrap();
    assert_eq!(place(&first), 1);
    (0..4).for_each(|_| settle(&first, Outcome::Bad, now));
    let mut plan_b = plan(&model, now, 1);
    assert_eq!(place(&plan_b.choose(now).unwrap()), 0);
    plan_b.skip();
    assert!(plan_b.choose(now).is_none() && !plan_b.force(now));
    assert!(matches!(plan_b.blocks(now)[..], [(1, _, Block::Open(_))]));
}

#[test]
fn a_target_that_comes_back_gets_its_traffic_step_by_step() {
    let mut now = Instant::now();
    let model = bound(model(&[(1, 1), (1, 2)], |_, p| p.breaker.open_for = 10 * SECOND), now);
    let first = plan(&model, now, 1).choose(now).unwrap();
    (0..4).for_each(|_| settle(&first, Outcome::Bad, now));
    now += 10 * SECOND;
    settle(&first, Outcome::Good, now);
    let share = |now| {
        (0..10_000).filter(|s| place(&plan(&model, now, *s).choose(now).unwrap()) == 0).count()
    };
    assert!((900..1_100).contains(&share(now)), "{}", share(now));
    assert!((4_800..5_200).contains(&share(now + 5 * SECOND)));
    assert_eq!(share(now + 10 * SECOND), 10_000);
}

#[test]
fn the_cheapest_and_the_fastest_are_found_and_equals_share() {
    let now = Instant::now();
    let priced = |input: u64| Offer {
        price: Some(Arc::new(Price {
            base: Rates { input, output: input, ..Rates::default() },
            ..Price::default()
        })),
        ..Offer::new(Glob::new("m"))
    };
    let mut cheap = model(&[(1, 1), (1, 1), (1, 1)], |n, p| p.offers = vec![priced([9, 2, 2][n])]);
    cheap.strategy = Strategy::Cost;
    let cheap = bound(cheap, now);
    let need = Arc::new(Need { prompt: 1000, ..Need::default() });
    let pick =
        |m: &Arc<Model>, seed| place(&Plan::new(m, "m", &need, now, seed).choose(now).unwrap());
    let counts = (0..100).fold([0u32; 3], |mut c, s| {
        c[pick(&cheap, s)] += 1;
        c
    });
    assert!(counts[0] == 0 && counts[1].abs_diff(50) < 3, "{counts:?}");

    let mut fast = model(&[(1, 1), (1, 1), (1, 1)], |_, _| {});
    fast.strategy = Strategy::Latency;
    let fast = bound(fast, now);
    for (t, ms) in fast.targets.iter().zip([300, 20, 100]) {
        t.live.get().unwrap().latency(false).note(Duration::from_millis(ms), now);
    }
    let counts = (0..3_000u64).fold([0; 3], |mut c, s| {
        c[pick(&fast, fastrand::Rng::with_seed(s).u64(..))] += 1;
        c
    });
    assert!(counts[0] == 0 && counts[1] > 1_800 && counts[2] > 700, "{counts:?}");
}

#[test]
fn a_session_stays_and_only_a_lost_target_s_sessions_move() {
    let now = Instant::now();
    let mut sticky = model(&[(1, 1); 5], |_, _| {});
    sticky.affinity = Affinity::Session;
    let sticky = bound(sticky, now);
    let pick = |session: u64| {
        let need = Arc::new(Need { affinity: Some(session), ..Need::default() });
        Plan::new(&sticky, "m", &need, now, session ^ 7).choose(now).unwrap()
    };
    let before: Vec<usize> = (0..1_000).map(|s| place(&pick(s))).collect();
    let count = |n| before.iter().filter(|p| **p == n).count();
    assert!((0..5).all(|n| (140..260).contains(&count(n))), "{before:?}");
    let lost = pick(0);
    (0..4).for_each(|_| settle(&lost, Outcome::Bad, now));
    for (session, old) in before.iter().enumerate() {
        let new = place(&pick(session as u64));
        assert!(new == *old || *old == place(&lost), "{session}");
        assert_ne!(new, place(&lost));
    }
}

#[test]
fn a_caller_that_wants_one_call_or_has_given_up_gets_no_more() {
    let now = Instant::now();
    let model = bound(model(&[(1, 1), (1, 2)], |_, _| {}), now);
    let next = |need: Need, fault, after| {
        let mut plan = Plan::new(&model, "m", &Arc::new(need), now, 1);
        plan.choose(now).unwrap();
        plan.begin();
        plan.failed(fault, now + after, None, |most| most)
    };
    let reset = Fault::Status(503);
    assert_eq!(next(Need { once: true, ..Need::default() }, reset, SECOND), Next::Stop);
    let patient = |n: u32| Need { patience: Some(n * SECOND), ..Need::default() };
    assert_eq!(next(patient(9), reset, SECOND), Next::Again(SECOND));
    assert_eq!(next(patient(2), reset, SECOND), Next::Other, "the wait would be too long");
    assert_eq!(next(patient(1), reset, SECOND), Next::Stop);
}

#[test]
fn what_a_target_lacks_keeps_it_for_the_last() {
    let now = Instant::now();
    let small = |n: usize, p: &mut Provider| {
        p.offers = vec![Offer { context: Some([100, 10_000][n]), ..Offer::new(Glob::new("m")) }];
    };
    let model = bound(model(&[(1, 1), (1, 2)], small), now);
    let plan =
        |prompt| Plan::new(&model, "m", &Arc::new(Need { prompt, ..Need::default() }), now, 1);
    assert_eq!(place(&plan(50).choose(now).unwrap()), 0);
    assert_eq!(place(&plan(150).choose(now).unwrap()), 1);
    let mut long = plan(15_000);
    assert!(long.choose(now).is_none() && long.relax());
    assert_eq!(place(&long.choose(now).unwrap()), 1, "an estimate alone refuses nothing");
    let mut longer = plan(30_000);
    assert!(longer.choose(now).is_none() && longer.relax() && longer.choose(now).is_none());
    assert_eq!(longer.lack(), Some(Lack::Far(100)).min(Some(Lack::Far(10_000))));
}
