//! What several nodes of one Redis have in common.

use super::{PASSWORD, pair_with, passed, redis, turns, up};
use crate::harness::binary::Tables;
use crate::harness::{Weir, found, knobs, provider, toml};
use crate::limits::by;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[tokio::test]
async fn three_nodes_at_once_admit_a_hundred_of_five_hundred() {
    let Some(redis) = redis().await else { return };
    let (far, [a, b]) = pair_with(&redis, "timeout = \"5s\"").await;
    let c = Weir::beside(&b, false).await;
    let all = [a, b, c];
    let start = Instant::now();
    for weir in &all {
        while weir.metric("weir_redis_up", &[]).await != Some(1.0) {
            assert!(start.elapsed() < Duration::from_secs(12), "redis counts for all three");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let ask = by("hundred", "", 5);
    let mut running = tokio::task::JoinSet::new();
    for i in 0..500 {
        let (port, ask) = (all[i % 3].port, ask.clone());
        running.spawn(async move {
            crate::harness::Client::connect(port).await.ask(&ask).await.status()
        });
    }
    assert_eq!(passed(&running.join_all().await), 100);
    assert_eq!(far.count(), 100);
}

#[tokio::test]
async fn a_key_made_at_one_node_is_said_to_all_and_acts_at_the_other() {
    let Some(redis) = redis().await else { return };
    let far = provider(knobs()).await;
    let text = [toml::simple(&far), redis.config()].concat();
    let env = [("REDIS_PASSWORD", PASSWORD)];
    let a = Weir::with(&text, Tables::default(), &env).await;
    let b = Weir::beside(&a, true).await;
    let mut spy = TcpStream::connect(("127.0.0.1", redis.port)).unwrap();
    spy.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    spy.write_all(b"AUTH tests x\r\nSUBSCRIBE weir:changed\r\n").unwrap();
    let both = || {
        let told = redis.command(&["EVAL", NUMSUB, "0"])?;
        (told == ":3").then_some(())
    };
    found("both listen", both).await;
    let made = a.cli(&["keys", "create", "--name", "one", "--json"]);
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let key = made["secret"].as_str().unwrap().to_owned();
    let ask = crate::harness::chat().key(&key);
    let start = Instant::now();
    while b.ask(&ask).await.status() != 200 {
        assert!(start.elapsed() < Duration::from_secs(1), "within a second at the other node");
    }
    let mut heard = String::new();
    while !heard.contains("message") {
        let mut piece = [0; 512];
        let n = spy.read(&mut piece).unwrap();
        heard.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    assert!(heard.contains("store") && !heard.contains(&key), "{heard}");
}

/// Who listens for changes: the number alone.
const NUMSUB: &str = "\"return redis.call('PUBSUB','NUMSUB','weir:changed')[2]\"";

#[tokio::test]
async fn a_budget_outlives_a_redis_that_comes_back_empty() {
    let Some(mut redis) = redis().await else { return };
    let (_far, both) = pair_with(&redis, "").await;
    up(&both, 1.0).await;
    redis.knows_two_nodes().await;
    let used = |redis: &super::Redis| {
        let script = "\"return tonumber(redis.call('HGET',KEYS[1],'u'))\"";
        let key = "weir:{key:purse}:key:purse/budget/usd/day";
        redis.command(&["EVAL", script, "1", key])?.strip_prefix(':')?.parse::<u64>().ok()
    };
    assert_eq!(passed(&turns(&both, "purse", "", 1).await), 1);
    let one = found("the first is told", || used(&redis).filter(|used| *used > 0)).await;
    assert_eq!(passed(&turns(&both, "purse", "", 5).await), 5);
    found("all are told", || (used(&redis)? == 6 * one).then_some(())).await;
    redis.kill();
    up(&both, 0.0).await;
    assert_eq!(passed(&turns(&both, "purse", "", 2).await), 2);
    redis.again().await;
    up(&both, 1.0).await;
    // Whatever is said to it first, a settlement or a reservation.
    found("what was used before", || (used(&redis)? == 8 * one).then_some(())).await;
    assert_eq!(passed(&turns(&both, "purse", "", 2).await), 2);
    found("and goes on from there", || (used(&redis)? == 10 * one).then_some(())).await;
}

#[tokio::test]
async fn a_key_s_usage_is_what_all_nodes_count() {
    let Some(redis) = redis().await else { return };
    let (_far, both) = pair_with(&redis, "").await;
    up(&both, 1.0).await;
    assert_eq!(passed(&turns(&both, "hundred", "", 6).await), 6);
    for weir in &both {
        let page = crate::harness::Ask::get("/v1/usage").key("sk-hundred");
        let start = Instant::now();
        // A settlement is told after its answer.
        loop {
            let told = weir.ask(&page).await.json();
            let limit = &told["limits"][0];
            if (limit["used"].as_u64(), limit["remaining"].as_u64()) == (Some(6), Some(94)) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(5), "{told}");
        }
    }
}
