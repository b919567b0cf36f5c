//! What went wrong in other gateways and belongs to no area of its own (`hazards.toml` has the
//! whole list, and where each of the others is shown).

mod http;
mod streams;

use crate::harness::binary::Tables;
use crate::harness::{
    self, Action, Answer, Ask, Client, Gate, Usage, Weir, answering, chat, fixed, knobs, provider,
    soon, streamed, toml,
};
use serde_json::{Value, json};

/// The outcome and status of the newest of `n` events.
async fn newest(weir: &Weir, n: usize) -> Value {
    let mut events = weir.events(n).await;
    assert_eq!(events.len(), n, "one event a request: {events:#?}");
    events.pop().unwrap()
}

#[tokio::test]
async fn every_way_to_end_has_its_own_outcome() {
    let provider = provider(knobs()).await;
    let waits = "timeouts = { first_token = \"400ms\", reply = \"400ms\" }";
    let config = [
        toml::custom("a", "openai", &provider.url(), waits),
        toml::model("m", &["a/up-model"]),
        toml::key(),
    ];
    let weir = Weir::start(&config.concat()).await;
    let cases = [
        (chat(), "success", 200),
        (streamed().say("words=3"), "success", 200),
        (chat().say("status=500"), "upstream_error", 502),
        (chat().say("hang=1"), "timeout", 504),
        (streamed().say("hang=1"), "timeout", 504),
        (streamed().say("words=3 end=2"), "truncated", 200),
        (chat().key("sk-wrong"), "refused", 401),
        (chat().body("{"), "refused", 400),
    ];
    for (i, (ask, outcome, status)) in cases.iter().enumerate() {
        assert_eq!(weir.ask(ask).await.status(), *status, "{outcome}");
        let event = newest(&weir, i + 1).await;
        assert_eq!((event["outcome"].as_str(), &event["status"]), (Some(*outcome), &json!(status)));
        // The event comes first, the metric after the reply.
        soon(outcome, async {
            let labels = [("outcome", *outcome)];
            while weir.metric("weir_requests_total", &labels).await.is_none_or(|n| n < 1.0) {}
        })
        .await;
    }
    let mut client = Client::connect(weir.port).await;
    client.begin(&streamed().say("words=3 stall=2")).await;
    client.events_until("w1").await;
    client.abort();
    assert_eq!(newest(&weir, cases.len() + 1).await["outcome"], "client_abort");
}

#[tokio::test]
async fn a_fallback_is_billed_at_the_price_of_the_model_that_served() {
    let broken =
        provider(fixed(vec![Action::json(500, &json!({"error": {"message": "x"}}))])).await;
    let usage = Usage { input: 1000, cached: 0, output: 500, reasoning: 0 };
    let answer = Answer { usage: Some(usage), model: "dear".into(), ..Answer::default() };
    let sound = answering(answer).await;
    let config = [
        toml::openai("a", &broken),
        format!("[providers.b]\npreset = \"openai\"\nbase_url = \"{}\"\n", sound.url()),
        "api_keys = [\"sk-b\"]\n[providers.b.models.dear]\n".into(),
        "price = { currency = \"USD\", input = 3.0, output = 15.0 }\n".into(),
        toml::model("m", &["a/up-model", "b/dear"]),
        toml::key(),
    ];
    let weir = Weir::start(&config.concat()).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    let event = newest(&weir, 1).await;
    // 1000 × 3 USD + 500 × 15 USD, a million each; at the first target's price it would be 0.002.
    assert_eq!(event["cost_nano_usd"], 10_500_000);
    assert_eq!((&event["requested_model"], &event["model"]), (&json!("m"), &json!("dear")));
    assert_eq!(event["attempts"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn no_spelling_of_a_model_gets_past_the_allowlist() {
    let provider = answering(Answer::default()).await;
    let config = [
        toml::openai("a", &provider),
        toml::model("m", &["a/up-model"]),
        toml::model("secret", &["a/up-model"]),
        "[keys.test]\nsecret = \"sk-test\"\nmodels = [\"m\"]\n".into(),
    ];
    let weir = Weir::start(&config.concat()).await;
    for name in ["secret", "a/up-model", "up-model"] {
        let error = weir.ask(&chat().model(name)).await.error();
        assert_eq!(error, (403, "model_not_allowed".into()), "{name}");
    }
    for name in ["M", "m ", "a/m", "m/", "*", "", "m*", "secret\u{0}m", "a//up-model"] {
        let (status, code) = weir.ask(&chat().model(name)).await.error();
        assert!((400..405).contains(&status), "{name:?}: {status} {code}");
    }
    let twice = "{\"model\":\"m\",\"model\":\"secret\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    assert_eq!(weir.ask(&chat().body(twice)).await.status(), 400);
    assert_eq!(provider.count(), 0);
    assert_eq!(weir.ask(&chat()).await.status(), 200);
}

#[tokio::test]
async fn names_are_looked_up_and_one_that_is_not_there_hurts_nobody_else() {
    let provider = answering(Answer::default()).await;
    let named = format!("http://localhost:{}/v1", provider.port());
    let config = [
        toml::custom("a", "openai", &named, ""),
        toml::custom("b", "openai", "http://no-such-host.invalid/v1", ""),
        toml::model("m", &["a/up-model"]),
        toml::model("lost", &["b/up-model"]),
        toml::key(),
    ];
    let weir = Weir::start(&config.concat()).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    let lost = weir.ask(&chat().model("lost")).await;
    assert_eq!(lost.error(), (502, "upstream_error".into()));
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert!(!weir.stderr().contains("panicked"), "{}", weir.stderr());
}

#[tokio::test]
async fn a_provider_that_a_reload_removes_finishes_its_stream() {
    let gate = Gate::new();
    let mut script = Answer::default().reply(&stream_request());
    let end = script.split_off(script.len() - 2);
    script.push(Action::Pass(gate.clone()));
    script.extend(end);
    let old = provider(fixed(script)).await;
    let new = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&old)).await;
    let mut client = Client::connect(weir.port).await;
    client.begin(&streamed()).await;
    client.events_until("!").await;

    let config = [toml::openai("b", &new), toml::model("m", &["b/up-model"]), toml::key()];
    weir.write(&config.concat());
    weir.signal(rustix::process::Signal::HUP);
    soon("a reload", async {
        while weir.metric("weir_config_reloads_total", &[]).await.unwrap_or(0.0) < 1.0 {}
    })
    .await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!((old.count(), new.count()), (1, 1));

    gate.open(1);
    let (rest, end) = client.rest().await;
    assert!(rest.contains("[DONE]") && end == harness::reply::End::Clean, "{rest}");
    let outcomes: Vec<_> = weir.events(2).await.iter().map(|e| e["outcome"].clone()).collect();
    assert_eq!(outcomes, ["success", "success"]);
    soon("an empty house", async {
        while weir.metric("weir_in_flight", &[]).await != Some(0.0) {}
    })
    .await;
}

/// A request that asks for a stream, for scripts made by hand.
fn stream_request() -> weir::demo::Request {
    weir::demo::Request { body: streamed().body, ..Default::default() }
}
