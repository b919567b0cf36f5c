//! Prices: every class at its own, of the model that served, exactly.

use crate::harness::*;
use serde_json::Value;

/// Provider `a` with one model at this price, behind `m`; `head` comes first.
fn priced(a: &Provider, price: &str, head: &str) -> String {
    let provider = format!(
        "[providers.a]\npreset = \"openai\"\nbase_url = \"{}\"\napi_keys = [\"sk-upstream-a\"]\n\
         [providers.a.models.\"up-model\"]\n{price}\n",
        a.url()
    );
    [head.to_owned(), provider, toml::model("m", &["a/up-model"]), toml::key()].concat()
}

/// What `usage` costs at `price`, in nano-USD; `null` without a price.
async fn cost(price: &str, head: &str, usage: Usage) -> (Value, Reply, Gateway) {
    let a = answering(Answer { usage: Some(usage), ..Answer::default() }).await;
    let gateway = gateway(&priced(&a, price, head)).await;
    let reply = gateway.ask(&chat()).await;
    (gateway.event().await["cost_nano_usd"].clone(), reply, gateway)
}

fn used(input: u64, cached: u64, output: u64) -> Usage {
    Usage { input, cached, output, reasoning: 0 }
}

#[tokio::test]
async fn each_class_of_tokens_has_its_price_and_none_is_charged_twice() {
    let price = "price = { currency = \"USD\", input = 2.5, cached_input = 1.25, output = 10.0 }";
    let (nanos, reply, _) = cost(price, "", used(10_000, 8_000, 500)).await;
    assert_eq!((nanos, reply.header("x-weir-cost-usd")), (20_000_000.into(), Some("0.020000")));
    // More cached than there was is cut, never negative.
    assert_eq!(cost(price, "", used(100, 900, 0)).await.0, 100 * 1250);
}

#[tokio::test]
async fn a_long_prompt_is_repriced_whole() {
    let price = "price = { currency = \"USD\", input = 1.25, output = 10.0, \
                 tiers = [{ above = 200000, input = 2.5, output = 15.0 }] }";
    assert_eq!(cost(price, "", used(200_000, 0, 100)).await.0, 251_000_000_u64);
    assert_eq!(cost(price, "", used(200_001, 0, 100)).await.0, 501_502_500_u64);
}

#[tokio::test]
async fn another_currency_is_converted_by_its_rate() {
    let price = "price = { currency = \"CNY\", input = 10.0, output = 100.0 }";
    let (nanos, reply, _) = cost(price, "[currency]\nCNY = 0.14\n", used(1_000, 0, 1_000)).await;
    assert_eq!((nanos, reply.header("x-weir-cost-usd")), (15_400_000.into(), Some("0.015400")));
}

#[tokio::test]
async fn a_price_of_nothing_is_a_price() {
    let price = "price = { currency = \"USD\", input = 0.0, output = 0.0 }";
    let (nanos, _, gateway) = cost(price, "", used(10, 0, 10)).await;
    assert_eq!(nanos, 0);
    assert_eq!(gateway.metric("weir_unpriced_requests_total", &[]).unwrap_or(0.0), 0.0);
}

#[tokio::test]
async fn a_model_without_a_price_works_and_is_counted() {
    let (nanos, reply, gateway) = cost("context = 1000", "", used(10, 0, 10)).await;
    assert_eq!((reply.status(), nanos), (200, Value::Null));
    assert_eq!(reply.header("x-weir-cost-usd"), None);
    assert_eq!(gateway.metric("weir_unpriced_requests_total", &[("model", "up-model")]), Some(1.0));
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_where_config_says_so() {
    let a = answering(Answer::default()).await;
    let price = "price = { currency = \"USD\", input = 1.0, output = 1.0 }";
    let gateway = gateway(&priced(&a, price, "[server]\nunpriced = \"refuse\"\n")).await;
    for ask in [chat(), streamed()] {
        let reply = gateway.ask(&ask.clone().model("a/unheard-of")).await;
        assert_eq!((reply.error(), a.count()), ((403, "model_not_allowed".into()), 0));
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains("price"));
    }
    assert!(gateway.events().await.iter().all(|e| e["outcome"] == "refused"));
    assert_eq!(gateway.ask(&chat()).await.status(), 200);
}

#[tokio::test]
async fn a_model_without_a_price_costs_what_config_says() {
    let head = "[server]\nunpriced = { currency = \"USD\", input = 5.0, output = 7.0 }\n";
    let (nanos, _, gateway) = cost("context = 1000", head, used(1_000, 0, 1_000)).await;
    assert_eq!(nanos, 12_000_000);
    assert!(gateway.event().await["price_source"].is_string());
}

#[tokio::test]
async fn a_fallback_is_billed_at_its_own_price() {
    let error = serde_json::json!({"error": {"message": "x"}});
    let a = provider(fixed(vec![Action::json(500, &error)])).await;
    let b = answering(Answer { usage: Some(used(1_000, 0, 1_000)), ..Answer::default() }).await;
    let price = |name: &str, url: &str, input: u32, output: u32| {
        format!(
            "[providers.{name}]\npreset = \"openai\"\nbase_url = \"{url}\"\n\
             api_keys = [\"k-{name}\"]\n\
             [providers.{name}.models.\"{name}-model\"]\n\
             price = {{ currency = \"USD\", input = {input}, output = {output} }}\n"
        )
    };
    let targets = toml::model("m", &["a/a-model", "b/b-model"]);
    let both = [price("a", &a.url(), 10, 30), price("b", &b.url(), 1, 2), targets, toml::key()];
    let gateway = gateway(&both.concat()).await;
    let reply = gateway.ask(&chat()).await;
    assert_eq!(reply.header("x-weir-cost-usd"), Some("0.003000"));
    let event = gateway.event().await;
    let served = (&event["requested_model"], &event["model"], &event["cost_nano_usd"]);
    assert_eq!(served, (&"m".into(), &"b-model".into(), &3_000_000.into()));
    assert_eq!(b.requests()[0].request.json()["model"], "b-model");
}

#[tokio::test]
async fn ten_small_costs_sum_to_the_nano() {
    let a = answering(Answer { usage: Some(used(1, 0, 1)), ..Answer::default() }).await;
    let price = "price = { currency = \"USD\", input = 0.1, output = 0.2 }";
    let gateway = gateway(&priced(&a, price, "")).await;
    for _ in 0..10 {
        gateway.ask(&chat()).await;
    }
    let nanos: u64 =
        gateway.events().await.iter().map(|e| e["cost_nano_usd"].as_u64().unwrap()).sum();
    assert_eq!(nanos, 3_000);
    let metric = gateway.metric("weir_cost_usd_total", &[("team", "crew")]).unwrap();
    assert!((metric - 0.000_003).abs() < 1e-12, "{metric}");
}
