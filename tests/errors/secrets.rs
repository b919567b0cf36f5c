//! No secret in any error, event, log line or metric, whoever let it slip.

use crate::harness::*;
use serde_json::json;

const SECRETS: [&str; 6] = [
    "sk-upstream-a",
    "sk-upstream-b",
    KEY,
    "sk-guessed-0001",
    "sk-in-the-query-0001",
    "sk-proj-FAKEFAKEFAKEFAKE1234",
];

#[tokio::test]
async fn a_provider_that_echoes_its_key_is_not_quoted() {
    for status in [400, 401, 403, 404, 429, 500, 503] {
        let words = "Incorrect API key provided: sk-upstream-a, or sk-proj-FAKEFAKEFAKEFAKE1234 \
                     (Bearer sk-upstream-a)";
        let error =
            json!({"error": {"message": words, "type": words, "code": words, "param": words}});
        let headers = [("openai-organization", "org-hidden"), ("www-authenticate", words)];
        let a = provider(fixed(vec![Action::json_with(status, &headers, &error)])).await;
        let gateway = gateway(&toml::simple(&a)).await;
        for ask in [chat(), streamed()] {
            let reply = gateway.ask(&ask).await;
            let all = format!("{:?}{}", reply.head, reply.text());
            for secret in SECRETS {
                assert!(!all.contains(secret), "{status}: {secret} in {all}");
            }
            assert!(!all.contains("org-hidden"), "{all}");
        }
        hidden(&gateway).await;
    }
}

async fn hidden(gateway: &Gateway) {
    let traces = gateway.traces().await;
    assert!(traces.contains("event_id"));
    for secret in SECRETS {
        assert!(!traces.contains(secret), "{secret} in {traces}");
    }
}

#[tokio::test]
async fn a_callers_secrets_are_written_nowhere() {
    let a = provider(knobs()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let query = "?key=sk-in-the-query-0001&api_key=sk-in-the-query-0001";
    let asks = [
        chat().key("sk-guessed-0001"),
        chat(),
        Ask { path: format!("/v1/chat/completions{query}"), ..chat() },
        Ask::get(&format!("/nothing{query}")),
        Ask::get("/v1/sk-guessed-0001"),
        chat().model("sk-guessed-0001"),
        chat().with("user-agent", "agent sk-guessed-0001"),
        chat().with("x-request-id", "sk-guessed-0001"),
    ];
    for ask in &asks {
        let reply = gateway.ask(ask).await;
        assert!(!reply.text().contains(KEY) && !reply.text().contains("sk-in-the-query"));
    }
    let lines: Vec<_> = gateway.lines().await.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), asks.len());
    for line in &lines {
        assert!(SECRETS.iter().all(|secret| !line.contains(secret)), "{line}");
    }
    let metrics = gateway.inner.metrics.render();
    assert!(SECRETS.iter().all(|secret| !metrics.contains(secret)));
    for seen in a.requests() {
        assert!(!format!("{:?}", seen.request.headers).contains(KEY));
    }
}

#[tokio::test]
async fn an_unreachable_provider_does_not_give_its_key_away() {
    // The credential in the query is the likeliest to end in a message about a URL.
    let nobody = Refusing::new();
    let more = "auth = \"query:key\"\nretry = { attempts = 1 }\n";
    let config = [
        toml::custom("a", "openai", &nobody.url(), more),
        toml::model("m", &["a/up-model"]),
        toml::key(),
    ];
    let gateway = gateway(&config.concat()).await;
    let reply = gateway.ask(&chat()).await;
    assert_eq!(reply.error(), (502, "upstream_error".into()));
    assert!(!reply.text().contains("sk-upstream-a"), "{}", reply.text());
    hidden(&gateway).await;
}
