//! Budget tiers, and the headers by which a caller says how it wants to be served.

use super::{ONCE, alone};
use crate::harness::*;
use std::time::Duration;

/// Targets `low` (a) and `premium` (b) behind the smart model `m`; `more` is of the key's table.
async fn tiered(a: &Provider, b: &Provider, more: &str) -> Gateway {
    let provider = |name: &str, p: &Provider, tier: &str| {
        toml::custom(name, "openai", &p.url(), ONCE) + &format!("tags = [\"chat\", \"{tier}\"]\n")
    };
    let model = "[models.m]\nstrategy = \"smart\"\ntargets = [\"a/up-model\", \"b/up-model\"]\n\
                 [models.top]\nstrategy = \"smart\"\ntargets = [\"b/up-model\"]\n";
    let parts = [provider("a", a, "low"), provider("b", b, "premium"), model.into(), toml::key()];
    gateway(&(parts.concat() + more)).await
}

#[tokio::test]
async fn a_key_asks_for_no_tier_above_its_own_and_is_served_by_none() {
    let (a, b) = (answering(Answer::default()).await, answering(Answer::default()).await);
    let gateway = tiered(&a, &b, "max_budget_tier = \"standard\"\n").await;
    for ask in [chat().set("budget_tier", "premium"), chat().with("x-weir-budget-tier", "premium")]
    {
        let reply = gateway.ask(&ask).await;
        assert_eq!(reply.error(), (403, "model_not_allowed".into()));
        assert_eq!(reply.json()["error"]["param"], "budget_tier");
    }
    for ask in [chat(), chat().set("budget_tier", "low"), chat().set("budget_tier", "standard")] {
        assert_eq!(gateway.ask(&ask).await.header("x-weir-upstream"), Some("a"));
    }
    let reply = gateway.ask(&chat().model("top")).await;
    assert_eq!(reply.error(), (403, "model_not_allowed".into()));
    assert_eq!((a.count(), b.count()), (3, 0));
}

#[tokio::test]
async fn the_lowest_tier_of_key_and_owners_holds() {
    let (a, b) = (answering(Answer::default()).await, answering(Answer::default()).await);
    let more = "max_budget_tier = \"premium\"\n[teams.crew]\nmax_budget_tier = \"low\"\n";
    let gateway = tiered(&a, &b, more).await;
    let ask = |tier: &str| chat().set("budget_tier", tier);
    assert_eq!(gateway.ask(&ask("standard")).await.status(), 403);
    assert_eq!(gateway.ask(&ask("low")).await.status(), 200);
}

#[tokio::test]
async fn the_tier_of_a_user_and_of_the_defaults_holds() {
    let (a, b) = (answering(Answer::default()).await, answering(Answer::default()).await);
    for more in [
        "user = \"ann\"\n[users.ann]\nmax_budget_tier = \"low\"\n",
        "user = \"ann\"\n[user_defaults]\nmax_budget_tier = \"low\"\n",
        "[key_defaults]\nmax_budget_tier = \"low\"\n",
    ] {
        let gateway = tiered(&a, &b, more).await;
        let ask = |tier: &str| chat().set("budget_tier", tier);
        assert_eq!(gateway.ask(&ask("standard")).await.status(), 403, "{more}");
        assert_eq!(gateway.ask(&ask("low")).await.status(), 200, "{more}");
    }
}

#[tokio::test]
async fn a_tier_that_nobody_knows_is_refused_and_a_tag_is_known() {
    let (a, b) = (answering(Answer::default()).await, answering(Answer::default()).await);
    let gateway = tiered(&a, &b, "").await;
    for ask in [chat().set("budget_tier", "gold"), chat().with("x-weir-budget-tier", "gold")] {
        let reply = gateway.ask(&ask).await;
        assert_eq!(reply.error(), (400, "invalid_request".into()));
        assert!(reply.text().contains("gold"), "{}", reply.text());
    }
    assert_eq!((a.count(), b.count()), (0, 0));
    let reply = gateway.ask(&chat().with("x-weir-budget-tier", "premium")).await;
    assert_eq!(reply.header("x-weir-upstream"), Some("b"));
    assert_eq!(gateway.ask(&chat().set("budget_tier", "chat")).await.status(), 200);
}

#[tokio::test]
async fn a_misspelt_header_of_ours_is_refused_by_name() {
    let a = answering(Answer::default()).await;
    let gateway = alone(&a, ONCE).await;
    let cases = [
        ("x-weir-max-latency-ms", "soon"),
        ("x-weir-max-latency-ms", "0"),
        ("x-weir-max-latency-ms", "-5"),
        ("x-weir-max-latency-ms", "1s"),
        ("x-weir-retry", "never"),
        ("x-weir-retry", ""),
    ];
    for (name, value) in cases {
        let reply = gateway.ask(&chat().with(name, value)).await;
        assert_eq!(reply.error(), (400, "invalid_request".into()), "{name}: {value}");
        assert!(reply.text().contains(name), "{}", reply.text());
    }
    assert_eq!(a.count(), 0);
    let fine = chat().with("x-weir-max-latency-ms", "1500").with("x-weir-retry", "None");
    assert_eq!(gateway.ask(&fine).await.status(), 200);
}

#[tokio::test]
async fn nothing_begins_after_the_time_a_caller_s_library_waits() {
    for name in ["x-stainless-read-timeout", "x-stainless-timeout"] {
        let body = serde_json::json!({"error": {"message": "busy", "type": "x", "code": null}});
        let a = provider(fixed(vec![
            Action::Wait(Duration::from_millis(150)),
            Action::json(503, &body),
        ]))
        .await;
        let lines = "retry = { attempts = 5, backoff = \"1ms\", max_backoff = \"2ms\" }\n";
        let gateway = alone(&a, lines).await;
        let reply = gateway.ask(&chat().with(name, "0.1")).await;
        assert_eq!((reply.status(), a.count()), (502, 1), "{name}");
        assert_eq!(gateway.ask(&chat().with(name, "60")).await.status(), 502);
        assert_eq!(a.count(), 6, "{name}");
    }
}
