//! Alerts over the wire: once for each owner, period and threshold, heard at last.

use crate::harness::binary::Tables;
use crate::harness::{Action, Provider, Weir, chat, fixed, found, knobs, provider, soon, toml};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A hook that fails `failures` times, then hears everything.
async fn hook(failures: usize) -> Provider {
    let n = Arc::new(AtomicUsize::new(0));
    let script = move |_: &_| {
        let failed = n.fetch_add(1, Ordering::AcqRel) < failures;
        vec![Action::json(if failed { 503 } else { 204 }, &json!({}))]
    };
    provider(Arc::new(script)).await
}

fn heard(hook: &Provider) -> Vec<Value> {
    hook.requests().iter().map(|seen| seen.request.json()).collect()
}

async fn hears(hook: &Provider, n: usize) -> Vec<Value> {
    found("the webhook's posts", || Some(heard(hook)).filter(|all| all.len() >= n)).await
}

/// Model `m` at 100 USD a million tokens out; a key `k` of team `t`, each with a budget, and a key
/// `z` of its own.
fn config(a: &Provider) -> String {
    [
        toml::custom("a", "openai", &a.url(), "breaker = { consecutive = 2, min_requests = 50 }"),
        "[providers.a.models.\"dear\"]\n\
         price = { currency = \"USD\", input = 0.0, output = 100.0 }\n"
            .into(),
        toml::model("m", &["a/dear"]),
        "[keys.k]\nsecret = \"sk-k\"\nteam = \"t\"\n\
         budgets = [{ usd = 1.0, per = \"ever\", alert = 0.5 }]\n\
         [teams.t]\nbudgets = [{ tokens = 10000, per = \"month\", alert = 0.8 }]\n\
         [keys.z]\nsecret = \"sk-z\"\nbudgets = [{ usd = 1.0, per = \"day\", alert = 0.1 }]\n\
         [alerts]\nwebhook = \"env:HOOK\"\n"
            .into(),
    ]
    .concat()
}

async fn spend(weir: &Weir, key: &str, tokens: u64) {
    let say = format!("in=0 out={tokens}");
    let ask = chat().key(&format!("sk-{key}")).say(&say).set("max_tokens", tokens);
    let reply = weir.ask(&ask).await;
    assert_eq!(reply.status(), 200, "{}", reply.text());
}

/// An alert stands in the store as heard.
fn noted(weir: &Weir) -> Option<()> {
    let db = rusqlite::Connection::open(weir.path().join("weir.db")).ok()?;
    let sql = "SELECT count(*) FROM alerts WHERE heard IS NOT NULL";
    let heard: i64 = db.query_row(sql, [], |row| row.get(0)).ok()?;
    (heard > 0).then_some(())
}

#[tokio::test]
async fn a_budget_s_alert_is_posted_until_it_is_heard_and_never_again() {
    let (far, hook) = (provider(knobs()).await, hook(1).await);
    let url = format!("{}/in/coming?token=planted-token", hook.url());
    let mut weir = Weir::with(&config(&far), Tables::default(), &[("HOOK", &url)]).await;
    spend(&weir, "k", 4_900).await;
    spend(&weir, "k", 200).await;
    let posts = hears(&hook, 2).await;
    assert_eq!(posts[0], posts[1], "refused once, and posted again");
    let post = &posts[1];
    for (name, want) in [
        ("type", json!("budget")),
        ("scope", json!("key")),
        ("name", json!("k")),
        ("per", json!("ever")),
        ("threshold", json!(0.5)),
        ("used", json!("0.510000")),
        ("limit", json!("1.000000")),
        ("unit", json!("usd")),
        ("resets_at", Value::Null),
    ] {
        assert_eq!(post[name], want, "{name} in {post}");
    }
    assert!(post["text"].as_str().unwrap().contains("key k"));
    let seen = &hook.requests()[0].request;
    assert!(seen.path.ends_with("/in/coming?token=planted-token"), "{}", seen.path);
    // Killed between the hook's answer and its own note of it, it would say the same id once more.
    found("the note that it was heard", || noted(&weir)).await;
    weir.kill().await;
    weir.run();
    weir.ready().await;
    // The same period after a restart: k has crossed long ago, z crosses now.
    spend(&weir, "k", 100).await;
    spend(&weir, "z", 2_000).await;
    let posts = hears(&hook, 3).await;
    assert_eq!((&posts[2]["name"], posts.len()), (&json!("z"), 3));
    assert!(!weir.stderr().contains("planted-token"), "a webhook's path is a secret");
}

#[tokio::test]
async fn what_nobody_heard_before_a_kill_is_posted_after_it() {
    let far = provider(knobs()).await;
    let closed = format!("http://127.0.0.1:{}/", crate::harness::closed_port());
    let mut weir = Weir::with(&config(&far), Tables::default(), &[("HOOK", &closed)]).await;
    spend(&weir, "z", 2_000).await;
    weir.events(1).await;
    weir.kill().await;
    let hook = hook(0).await;
    weir.unset("HOOK");
    weir.write(&config(&far).replace("env:HOOK", &hook.url()));
    weir.run();
    weir.ready().await;
    let posts = hears(&hook, 1).await;
    assert_eq!((&posts[0]["name"], &posts[0]["used"]), (&json!("z"), &json!("0.200000")));
    spend(&weir, "k", 6_000).await;
    let posts = hears(&hook, 2).await;
    assert_eq!((&posts[1]["name"], posts.len()), (&json!("k"), 2));
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_up_no_request() {
    let far = provider(knobs()).await;
    let hook = provider(fixed(vec![Action::Hang])).await;
    let weir = Weir::with(&config(&far), Tables::default(), &[("HOOK", &hook.url())]).await;
    spend(&weir, "z", 2_000).await;
    soon("the post", async {
        while hook.count() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..5 {
        spend(&weir, "k", 10).await;
    }
}

#[tokio::test]
async fn breakers_and_credentials_are_told_when_they_go_out() {
    let (far, hook) = (provider(knobs()).await, hook(0).await);
    let weir = Weir::with(&config(&far), Tables::default(), &[("HOOK", &hook.url())]).await;
    for _ in 0..2 {
        weir.ask(&chat().key("sk-k").say("status=500")).await;
    }
    let posts = hears(&hook, 1).await;
    assert_eq!(posts[0]["type"], "breaker", "{posts:?}");
    assert_eq!((&posts[0]["provider"], &posts[0]["state"]), (&json!("a"), &json!("open")));
    let (far, weir) = {
        drop(weir);
        let weir = Weir::with(&config(&far), Tables::default(), &[("HOOK", &hook.url())]).await;
        (far, weir)
    };
    weir.ask(&chat().key("sk-k").say("status=401")).await;
    let posts = hears(&hook, 2).await;
    assert_eq!(posts[1]["type"], "credential", "{posts:?}");
    assert_eq!(posts[1]["state"], "refused");
    drop(far);
}
