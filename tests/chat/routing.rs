//! Which target a name leads to.

use crate::harness::*;

/// Providers `a` and `b`; `a` offers `up-model`, `b` offers `up-model` and `only-b`.
fn config(a: &Provider, b: &Provider, more: &str) -> String {
    let offers = "[providers.b.models.\"only-b\"]\n\
                  price = { currency = \"USD\", input = 1.0, output = 2.0 }\n";
    [&toml::openai("a", a), &toml::openai("b", b), offers, &toml::key(), more].concat()
}

async fn pair(more: &str) -> (Provider, Provider, Gateway) {
    let (a, b) = (answering(Answer::default()).await, answering(Answer::default()).await);
    let gateway = gateway(&config(&a, &b, more)).await;
    (a, b, gateway)
}

/// The provider that a name leads to, and what it is called there.
async fn leads(gateway: &Gateway, name: &str) -> (String, String) {
    let reply = gateway.ask(&chat().model(name)).await;
    let text = |header| reply.header(header).unwrap_or_else(|| panic!("{name}: {}", reply.text()));
    (text("x-weir-upstream").to_owned(), text("x-weir-model").to_owned())
}

#[tokio::test]
async fn names_lead_where_they_say_without_any_table() {
    let (a, b, gateway) = pair("").await;
    let check = async |name, provider: &str, model: &str| {
        assert_eq!(leads(&gateway, name).await, (provider.into(), model.into()), "{name}");
        let last = if provider == "a" { &a } else { &b };
        assert_eq!(last.requests().pop().unwrap().request.json()["model"], model);
    };
    check("a/up-model", "a", "up-model").await;
    check("b/up-model", "b", "up-model").await;
    check("b/a/strange:name", "b", "a/strange:name").await;
    check("only-b", "b", "only-b").await;
    // Two offer it, so it is nobody's; and what nobody has is not guessed.
    for name in ["up-model", "nobody/up-model", "a/", "/up-model", "c"] {
        let reply = gateway.ask(&chat().model(name)).await;
        assert_eq!(reply.error(), (404, "model_not_found".into()), "{name}");
    }
}

#[tokio::test]
async fn patterns_keep_the_asked_name_and_the_longest_wins() {
    let tables = "[models.\"gpt-*\"]\ntargets = [{ to = \"a/*\" }]\n\
                  [models.\"gpt-4*\"]\ntargets = [{ to = \"b/*\" }]\n\
                  [models.\"gpt-4o\"]\ntargets = [{ to = \"a/up-model\" }]\n\
                  [models.\"*-mini\"]\ntargets = [{ to = \"b/up-model\" }]\n";
    let (_a, _b, gateway) = pair(tables).await;
    for (name, provider, model) in [
        ("gpt-3", "a", "gpt-3"),
        ("gpt-4.1", "b", "gpt-4.1"),
        ("gpt-4o", "a", "up-model"),
        ("o3-mini", "b", "up-model"),
    ] {
        assert_eq!(leads(&gateway, name).await, (provider.into(), model.into()), "{name}");
    }
}

#[tokio::test]
async fn a_request_without_a_model_gets_the_default_one() {
    let (a, _b, gateway) = pair("[server]\ndefault_model = \"a/up-model\"\n").await;
    let reply = gateway.ask(&chat().body("{\"messages\":[{}]}")).await;
    assert_eq!((reply.status(), reply.header("x-weir-upstream")), (200, Some("a")));
    assert_eq!(a.requests()[0].request.json()["model"], "up-model");
    assert_eq!(gateway.event().await["model"], "up-model");
}

#[tokio::test]
async fn priority_goes_first_and_weight_shares_what_is_left() {
    let tables = "[models.\"first\"]\ntargets = [{ to = \"b/up-model\", priority = 2 }, \
                  { to = \"a/up-model\", priority = 1 }]\n\
                  [models.\"shared\"]\ntargets = [{ to = \"a/up-model\", weight = 3 }, \
                  { to = \"b/up-model\", weight = 1 }]\n\
                  [models.\"off\"]\ntargets = [{ to = \"a/up-model\", weight = 0 }, \
                  { to = \"b/up-model\" }]\n";
    let (a, b, gateway) = pair(tables).await;
    for (name, provider) in [("first", "a"), ("off", "b")] {
        for _ in 0..5 {
            assert_eq!(leads(&gateway, name).await.0, provider, "{name}");
        }
    }
    let before = (a.count(), b.count());
    for _ in 0..100 {
        leads(&gateway, "shared").await;
    }
    let (a, b) = (a.count() - before.0, b.count() - before.1);
    // 75 to 25; further off than this is one in a billion.
    assert!(a + b == 100 && (48..=97).contains(&a), "{a} to {b}");
}

#[tokio::test]
async fn several_credentials_share_the_work() {
    let a = answering(Answer::default()).await;
    let config = format!(
        "[providers.a]\npreset = \"openai\"\nbase_url = \"{}\"\n\
         api_keys = [\"sk-one\", {{ name = \"second\", value = \"sk-two\", weight = 3 }}]\n{}{}",
        a.url(),
        toml::model("m", &["a/up-model"]),
        toml::key()
    );
    let gateway = gateway(&config).await;
    for _ in 0..60 {
        assert_eq!(gateway.ask(&chat()).await.status(), 200);
    }
    let second = gateway.events().await.iter().filter(|e| e["credential"] == "second").count();
    let used = a
        .requests()
        .iter()
        .filter(|s| s.request.header("authorization") == Some("Bearer sk-two"))
        .count();
    assert_eq!(second, used);
    // 45 of 60; further off than this is one in a billion.
    assert!((22..=60).contains(&second), "{second}");
}

#[tokio::test]
async fn a_strict_model_refuses_what_would_be_dropped() {
    let a = answering(Answer::default()).await;
    let tables = "[models.\"m\"]\nstrict = true\ntargets = [{ to = \"a/up-model\" }]\n";
    let config = [toml::anthropic("a", &a), tables.into(), toml::key()].concat();
    let gateway = gateway(&config).await;
    let reply = gateway.ask(&chat().set("logit_bias", serde_json::json!({"1": 2}))).await;
    assert_eq!(reply.error(), (400, "invalid_request".into()));
    assert_eq!((&reply.json()["error"]["param"], a.count()), (&"logit_bias".into(), 0));
    assert_eq!(gateway.ask(&chat()).await.status(), 200);
}
