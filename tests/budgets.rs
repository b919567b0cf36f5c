//! Budgets over the wire: what may be spent, by whom, and who hears of it.

use crate::harness::binary::Tables;
use crate::harness::{Weir, chat, knobs, provider, streamed, toml};
use crate::limits::{admitted, by, world};
use serde_json::json;

/// A model that costs 100 USD a million tokens out, and nothing in: a thousand are 0.10 USD.
const DEAR: &str = "[providers.a.models.\"dear\"]\n\
    price = { currency = \"USD\", input = 0.0, output = 100.0 }\n\
    [models.dear]\ntargets = [\"a/dear\"]\n";
/// One that costs nothing, and says so; and one of which nothing is said.
const FREE: &str = "[providers.a.models.\"free\"]\n\
    price = { currency = \"USD\", input = 0.0, output = 0.0 }\n\
    [models.free]\ntargets = [\"a/free\"]\n[models.unpriced]\ntargets = [\"a/unknown\"]\n";

fn dear(key: &str, wishes: &str, most: u64) -> crate::harness::Ask {
    by(key, wishes, most).model("dear")
}

#[tokio::test]
async fn ten_tenths_are_one_exactly_and_the_eleventh_is_refused_c11() {
    let lines = "budgets = [{ usd = 1.0, per = \"day\" }]\nlimits = { rpm = 100 }";
    let (far, near) = world(&[("k", lines)], DEAR).await;
    for _ in 0..10 {
        let reply = near.ask(&dear("k", "out=1000", 1_000)).await;
        assert_eq!((reply.status(), reply.header("x-weir-cost-usd")), (200, Some("0.100000")));
    }
    let reply = near.ask(&dear("k", "out=1000", 1_000)).await;
    assert_eq!(reply.error(), (402, "budget_exceeded".into()));
    assert_eq!(reply.json()["error"]["type"], "insufficient_quota");
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() <= 86_400);
    let said = reply.text();
    for word in ["key k", "per day", "1.000000 USD used", "resets at", "T00:00:00Z"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    assert_eq!(far.count(), 10);
    let left: u64 = reply.header("x-ratelimit-remaining-requests").unwrap().parse().unwrap();
    assert!(left >= 90, "a 402 takes nothing of the rate: {left}");
    let ratio = near.metric("weir_budget_used_ratio", &[("name", "k"), ("per", "day")]);
    assert_eq!(ratio, Some(1.0));
}

#[tokio::test]
async fn holds_keep_concurrent_requests_within_the_budget_b03() {
    let (far, near) = world(&[("k", "budgets = [{ usd = 0.10, per = \"day\" }]")], DEAR).await;
    assert_eq!(admitted(&near, &dear("k", "out=500 wait=0.5", 500), 20, 402).await, 2);
    assert_eq!(far.count(), 2);
}

#[tokio::test]
async fn four_hundred_at_once_spend_ten_dollars_and_no_more_b04() {
    let (_far, near) = world(&[("k", "budgets = [{ usd = 10, per = \"ever\" }]")], DEAR).await;
    assert_eq!(admitted(&near, &dear("k", "out=500", 500), 400, 402).await, 200);
}

#[tokio::test]
async fn what_is_only_held_comes_back_and_is_told_apart_b10() {
    let (_far, near) = world(&[("k", "budgets = [{ usd = 1.0, per = \"month\" }]")], DEAR).await;
    let ask = dear("k", "out=100 wait=0.6", 2_500);
    let (running, fifth) = tokio::join!(admitted(&near, &ask, 4, 402), async {
        crate::harness::found("four held", || (near.inner.in_flight() == 4).then_some(())).await;
        near.ask(&dear("k", "out=100", 2_500)).await
    });
    assert_eq!(running, 4);
    assert_eq!(fifth.status(), 402);
    let said = fifth.text();
    assert!(said.contains("0.000000 USD used and 1.000000 USD reserved"), "{said}");
    assert_eq!(near.ask(&dear("k", "out=100", 2_500)).await.status(), 200);
}

#[tokio::test]
async fn a_team_s_budget_is_its_keys_together_and_names_the_team_b09() {
    let more = format!("{DEAR}[teams.purse]\nbudgets = [{{ usd = 0.3, per = \"day\" }}]\n");
    let team = "team = \"purse\"";
    let (_far, near) = world(&[("a", team), ("b", team)], &more).await;
    for key in ["a", "b", "a"] {
        assert_eq!(near.ask(&dear(key, "out=1000", 1_000)).await.status(), 200);
    }
    for key in ["a", "b"] {
        let refused = near.ask(&dear(key, "out=1000", 1_000)).await;
        assert!(refused.status() == 402 && refused.text().contains("team purse"));
    }
}

#[tokio::test]
async fn tokens_are_a_budget_too() {
    let lines = "budgets = [{ tokens = 100, per = \"week\" }]";
    let (_far, near) = world(&[("k", lines)], "").await;
    assert_eq!(near.ask(&by("k", "in=10 out=60", 50)).await.status(), 200);
    let refused = near.ask(&by("k", "in=10 out=60", 50)).await;
    assert_eq!(refused.error(), (402, "budget_exceeded".into()));
    assert!(refused.text().contains("100 tokens per week"), "{}", refused.text());
}

#[tokio::test]
async fn a_spent_budget_lets_what_is_free_pass_and_nothing_unpriced_c02_c12_b05() {
    let more = [DEAR, FREE].concat();
    let (far, near) = world(&[("k", "budgets = [{ usd = 0, per = \"day\" }]")], &more).await;
    assert_eq!(near.ask(&dear("k", "", 10)).await.status(), 402);
    assert_eq!(near.ask(&by("k", "", 10).model("free")).await.status(), 200);
    let refused = near.ask(&by("k", "", 10).model("unpriced")).await;
    assert_eq!(refused.error(), (403, "model_not_allowed".into()));
    assert!(refused.text().contains("no price"));
    assert_eq!(far.count(), 1);
}

#[tokio::test]
async fn near_its_end_a_budget_takes_a_cheaper_model_and_says_so() {
    let more = [DEAR, FREE].concat();
    let lines = "budgets = [{ usd = 1.0, per = \"day\", downgrade = { at = 0.5, to = \"free\" } }]";
    let (far, near) = world(&[("k", lines)], &more).await;
    for _ in 0..5 {
        let reply = near.ask(&dear("k", "out=1000", 1_000)).await;
        assert_eq!((reply.status(), reply.header("x-weir-degraded")), (200, None));
    }
    let reply = near.ask(&dear("k", "out=1000", 1_000)).await;
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.header("x-weir-degraded"), Some("from=dear; to=free; reason=budget"));
    assert_eq!(reply.header("x-weir-model"), Some("free"));
    assert_eq!(far.count(), 6);
    let events = near.events().await;
    assert_eq!(events[5]["degraded_from"], "dear");
    assert_eq!(events[5]["requested_model"], "dear");
}

#[tokio::test]
async fn an_alert_is_given_once_whoever_crosses_it() {
    let lines = "budgets = [{ usd = 1.0, per = \"day\", alert = 0.8 }]";
    let (_far, near) = world(&[("k", lines)], DEAR).await;
    let labels = [("scope", "key"), ("name", "k"), ("per", "day"), ("threshold", "0.8")];
    let told = || near.metric("weir_budget_alerts_total", &labels);
    for _ in 0..7 {
        near.ask(&dear("k", "out=1000", 1_000)).await;
    }
    near.ask(&dear("k", "out=900", 900)).await;
    assert_eq!(told(), None, "79 % is not 80");
    admitted(&near, &dear("k", "out=100", 100), 20, 402).await;
    assert_eq!(told(), Some(1.0));
}

#[tokio::test]
async fn who_leaves_early_pays_for_what_was_said_c06() {
    let (_far, near) = world(&[("k", "budgets = [{ usd = 1.0, per = \"day\" }]")], DEAR).await;
    let ask =
        streamed().key("sk-k").model("dear").say("words=100 delay=0.02").set("max_tokens", 500);
    let mut gone = near.client().await;
    gone.send(&ask.bytes()).await;
    gone.head().await;
    gone.piece().await;
    drop(gone);
    let event = near.event().await;
    let cost = event["cost_nano_usd"].as_u64().unwrap();
    assert!(event["outcome"] == "client_abort" && cost > 0, "{event}");
    let page = near.ask(&crate::harness::Ask::get("/v1/usage").key("sk-k")).await.json();
    let used: f64 = page["budgets"][0]["used"].as_str().unwrap().parse().unwrap();
    assert!((used - cost as f64 / 1e9).abs() < 1e-9 && page["budgets"][0]["held"] == "0.000000");
}

#[tokio::test]
async fn a_restart_remembers_what_was_spent() {
    let far = provider(knobs()).await;
    let text = [
        toml::openai("a", &far),
        DEAR.to_owned(),
        "[keys.k]\nsecret = \"sk-k\"\nteam = \"t\"\nbudgets = [{ usd = 0.35, per = \"month\" }]\n\
         [teams.t]\nbudgets = [{ tokens = 3500, per = \"ever\" }]\n"
            .to_owned(),
    ];
    let mut weir = Weir::with(&text.concat(), Tables::default(), &[]).await;
    for _ in 0..3 {
        let reply = weir.ask(&dear("k", "in=0 out=1000", 1_000)).await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
    }
    weir.kill().await;
    weir.run();
    weir.ready().await;
    let refused = weir.ask(&dear("k", "in=0 out=1000", 1_000)).await;
    assert_eq!(refused.error(), (402, "budget_exceeded".into()));
    let page = weir.ask(&crate::harness::Ask::get("/v1/usage").key("sk-k")).await.json();
    assert_eq!(page["budgets"][0]["used"], json!(3_000), "{page}");
    assert_eq!(page["budgets"][1]["used"], json!("0.300000"));
    assert_eq!(page["usage"]["month"]["cost_usd"], json!("0.300000"));
    assert_eq!(
        weir.ask(&chat().key("sk-k").model("dear").set("max_tokens", 100)).await.status(),
        200
    );
}

#[tokio::test]
async fn a_request_above_the_whole_budget_is_told_apart_from_a_spent_one() {
    let lines = "budgets = [{ tokens = 500, per = \"day\" }]";
    let (far, near) = world(&[("k", lines)], "").await;
    let reply = near.ask(&by("k", "", 5_000)).await;
    assert_eq!(reply.error(), (402, "budget_exceeded".into()));
    assert_eq!(
        (reply.header("x-should-retry"), reply.header("retry-after")),
        (Some("false"), None)
    );
    assert!(reply.text().contains("500 tokens") && !reply.text().contains("is spent"));
    assert_eq!(far.count(), 0);
    assert_eq!(near.ask(&by("k", "in=5 out=5", 50)).await.status(), 200);
}

#[tokio::test]
async fn usage_that_no_model_can_mean_is_our_estimate_everywhere() {
    let lines = "budgets = [{ usd = 1.0, per = \"day\" }]";
    let (_far, near) = world(&[("k", lines)], DEAR).await;
    let absurd = "in=1000000000000000000 out=1000000000000000000 words=20";
    let mut costs = 0;
    for (n, ask) in
        [dear("k", absurd, 100), dear("k", absurd, 100).set("stream", true)].into_iter().enumerate()
    {
        assert_eq!(near.ask(&ask).await.status(), 200);
        let events = near.events().await;
        let event = &events[n];
        assert_eq!(event["usage_source"], "estimated", "{event}");
        let output = event["output_tokens"].as_u64().unwrap();
        assert!((10..100).contains(&output), "{event}");
        assert_eq!(event["cost_nano_usd"].as_u64(), Some(output * 100_000));
        costs += output * 100_000;
    }
    let told = |name: &str| near.metric(name, &[]);
    assert_eq!(told("weir_usage_implausible_total"), Some(2.0));
    assert_eq!(told("weir_cost_usd_total"), Some(costs as f64 / 1e9));
    assert_eq!(near.ask(&dear("k", "out=9", 100)).await.status(), 200, "the budget is hardly used");
}

#[tokio::test]
async fn what_is_counted_is_compared_with_what_is_reported() {
    let (_far, near) = world(&[("k", "")], DEAR).await;
    near.ask(&dear("k", "out=1000 words=20", 2_000)).await;
    let drift = near.metric("weir_usage_drift_ratio", &[("model", "dear")]).unwrap();
    assert!((-1.0..-0.9).contains(&drift), "a provider that reports much too much: {drift}");
}
