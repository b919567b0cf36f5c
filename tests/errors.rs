//! Every error that callers are told, provoked over the wire in both dialects, over HTTP/1.1
//! and h2c.

mod input;
mod presets;
mod secrets;

use crate::harness::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use weir::flow::Phase;

/// One row: how it is provoked, and what the caller is told.
struct Row {
    name: &'static str,
    ask: Ask,
    status: u16,
    code: &'static str,
    kind: &'static str,
    retry: &'static str,
    /// `retry-after`, in seconds.
    after: Option<u64>,
    /// Requests at the provider.
    hits: usize,
    /// Events it leaves; one for all that could have cost something.
    events: usize,
    /// Who the event says it was.
    key: Option<&'static str>,
}

const REQUEST: &str = "invalid_request_error";
const AUTH: &str = "authentication_error";
const API: &str = "api_error";

/// A refusal of our own, without an upstream call.
fn ours(name: &'static str, ask: Ask, status: u16, code: &'static str, kind: &'static str) -> Row {
    let (retry, key) = ("false", Some("test"));
    Row { name, ask, status, code, kind, retry, after: None, hits: 0, events: 1, key }
}

/// What a provider's failure becomes.
fn theirs(wish: &'static str, status: u16, code: &'static str, kind: &'static str) -> Row {
    Row { hits: 1, ..ours(wish, chat().say(wish), status, code, kind) }
}

/// The gateway of most rows: provider `a` does what the last message asks for.
fn config(a: &Provider) -> String {
    [
        "[server]\nmax_body = \"1MiB\"\nbody = \"300ms\"\n",
        &toml::custom(
            "a",
            "openai",
            &a.url(),
            "timeouts = { first_token = \"200ms\", reply = \"200ms\" }\nretry = { attempts = 1 }\n",
        ),
        &toml::model("m", &["a/up-model"]),
        &toml::model("two", &["a/up-model", "a/up-model"]),
        &toml::key(),
        "[keys.old]\nsecret = \"sk-old\"\nexpires = \"2020-01-01T00:00:00Z\"\n",
        "[keys.off]\nsecret = \"sk-off\"\nenabled = false\n",
        "[keys.narrow]\nsecret = \"sk-narrow\"\nmodels = [\"two\"]\n",
    ]
    .concat()
}

fn rows() -> Vec<Row> {
    let anonymous = |row| Row { key: None, ..row };
    let unmetered = |row| Row { events: 0, ..row };
    let again = |row| Row { retry: "true", ..row };
    let big = "x".repeat(1 << 20);
    let mut rows = vec![
        anonymous(ours("no key", chat().without("authorization"), 401, "invalid_api_key", AUTH)),
        anonymous(ours("a wrong key", chat().key("sk-wrong"), 401, "invalid_api_key", AUTH)),
        Row { key: Some("old"), ..ours("old", chat().key("sk-old"), 401, "key_expired", AUTH) },
        Row { key: Some("off"), ..ours("off", chat().key("sk-off"), 401, "key_disabled", AUTH) },
        Row {
            key: Some("narrow"),
            ..ours("narrow", chat().key("sk-narrow"), 403, "model_not_allowed", "permission_error")
        },
        ours("no such model", chat().model("nobody"), 404, "model_not_found", REQUEST),
        ours("broken JSON", chat().body("{\"model\":"), 400, "invalid_json", REQUEST),
        ours("a wrong type", chat().set("stream", "yes"), 400, "invalid_request", REQUEST),
        ours("too large", chat().say(&big), 413, "request_too_large", REQUEST),
        ours("chunks too large", chat().say(&big).chunked(9000), 413, "request_too_large", REQUEST),
        ours("a coding", chat().with("content-encoding", "br"), 415, "invalid_request", REQUEST),
        unmetered(ours("no such path", Ask::get("/wp-admin"), 404, "not_found", REQUEST)),
        unmetered(ours(
            "no such method",
            Ask::get("/v1/chat/completions"),
            404,
            "not_found",
            REQUEST,
        )),
        unmetered(ours(
            "another method",
            Ask::post("/v1/models", &json!({})),
            404,
            "not_found",
            REQUEST,
        )),
        theirs("status=400", 400, "invalid_request", REQUEST),
        theirs("status=404", 404, "model_not_found", REQUEST),
        theirs("status=409", 409, "invalid_request", REQUEST),
        theirs("status=413", 413, "request_too_large", REQUEST),
        theirs("status=422", 422, "invalid_request", REQUEST),
        theirs("status=401", 502, "upstream_auth", API),
        theirs("status=403", 502, "upstream_auth", API),
        theirs("status=402", 502, "upstream_quota", API),
        again(theirs("status=500", 502, "upstream_error", API)),
        again(theirs("status=503", 502, "upstream_error", API)),
        theirs("malformed=json", 502, "upstream_invalid_response", API),
        theirs("malformed=html", 502, "upstream_invalid_response", API),
        theirs("hang=1", 504, "upstream_timeout", "timeout_error"),
    ];
    let limited =
        theirs("status=429 retry_after=7", 429, "upstream_rate_limited", "rate_limit_error");
    rows.push(Row { after: Some(7), ..again(limited) });
    let both = theirs("status=500 ", 503, "no_healthy_upstream", API);
    let ask = both.ask.clone().model("two");
    rows.push(Row { ask, hits: 2, after: Some(1), ..again(both) });
    rows.push(ours("not yet", Ask::get("/v1/realtime"), 501, "not_implemented", API));
    rows
}

fn check(row: &Row, protocol: &str, reply: &Reply) {
    let name = format!("{} over {protocol}", row.name);
    assert_eq!(reply.error(), (row.status, row.code.into()), "{name}");
    let body = reply.json();
    let error = body["error"].as_object().unwrap();
    let mut names: Vec<_> = error.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["code", "message", "param", "type"], "{name}");
    assert_eq!(error["type"], row.kind, "{name}");
    assert_eq!(reply.header("x-should-retry"), Some(row.retry), "{name}");
    let after = reply.header("retry-after").map(|v| v.parse::<u64>().unwrap());
    assert_eq!(after, row.after, "{name}");
    let millis = reply.header("retry-after-ms").map(|v| v.parse::<u64>().unwrap());
    assert_eq!(millis.map(|ms| ms.div_ceil(1000)), row.after, "{name}");
    assert!(reply.header("x-request-id").is_some(), "{name}");
    let length = reply.header("content-length").unwrap().parse::<usize>().unwrap();
    assert_eq!((length, reply.end), (reply.body().len(), reply::End::Clean), "{name}");
}

#[tokio::test]
async fn every_row_over_both_protocols() {
    let a = provider(knobs()).await;
    let mut gateway = gateway(&config(&a)).await;
    for row in &rows() {
        for protocol in ["h1", "h2c"] {
            if row.hits > 0 {
                // What failed before rests, or is behind an open breaker.
                gateway = crate::harness::gateway(&config(&a)).await;
            }
            let (hits, events) = (a.count(), gateway.events().await.len());
            let reply = match protocol {
                "h1" => gateway.ask(&row.ask).await,
                _ => gateway.h2().await.ask(&row.ask).await,
            };
            check(row, protocol, &reply);
            let new = gateway.events().await.split_off(events);
            assert_eq!((a.count() - hits, new.len()), (row.hits, row.events), "{}", row.name);
            for event in &new {
                assert_eq!(
                    (&event["status"], &event["error_code"]),
                    (&row.status.into(), &row.code.into())
                );
                assert_eq!(event["key_name"].as_str(), row.key, "{}", row.name);
                let refused = row.status < 500 && row.status != 429 || row.hits == 0;
                assert_eq!(event["outcome"] == "refused", refused, "{}: {event}", row.name);
                assert_eq!(event["cost_nano_usd"], 0, "{}", row.name);
            }
        }
    }
}

#[tokio::test]
async fn every_row_that_anthropics_clients_can_meet() {
    let a = provider(knobs()).await;
    let gateway = gateway(&config(&a)).await;
    let messages =
        || Ask::post("/v1/messages", &json!({"model": "m", "max_tokens": 1, "messages": []}));
    let models = |path: &str| Ask::get(path).with("anthropic-version", "2023-06-01");
    let rows = [
        (messages().without("authorization"), 401, AUTH, 1),
        (messages().without("authorization").with("x-api-key", "sk-wrong"), 401, AUTH, 1),
        (messages().key("sk-old"), 401, AUTH, 1),
        (messages().key("sk-off"), 401, AUTH, 1),
        (messages(), 400, "invalid_request_error", 1),
        (
            messages().without("authorization").with("x-api-key", KEY),
            400,
            "invalid_request_error",
            1,
        ),
        (Ask::get("/v1/messages"), 404, "not_found_error", 0),
        (models("/v1/models").without("authorization"), 401, AUTH, 0),
        (models("/v1/models/nobody"), 404, "not_found_error", 0),
        (models("/v1/models/m").key("sk-narrow"), 403, "permission_error", 0),
    ];
    for (ask, status, kind, metered) in rows {
        for h2 in [false, true] {
            let events = gateway.events().await.len();
            let ask = ask.clone().with("x-request-id", "req-1");
            let reply =
                if h2 { gateway.h2().await.ask(&ask).await } else { gateway.ask(&ask).await };
            let (name, body) = (format!("{} {status}", ask.path), reply.json());
            let message = body["error"]["message"].as_str().unwrap();
            let want = json!({"type": "error", "error": {"type": kind, "message": message},
                              "request_id": "req-1"});
            assert_eq!((reply.status(), &body), (status, &want), "{name}");
            assert_eq!(reply.header("content-type"), Some("application/json"), "{name}");
            assert_eq!(reply.header("x-should-retry"), Some("false"), "{name}");
            let new = gateway.events().await.split_off(events);
            assert_eq!(new.len(), metered, "{name}");
            assert!(new.iter().all(|e| e["dialect"] == "anthropic"), "{new:?}");
        }
    }
    assert_eq!(a.count(), 0);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_a_408() {
    let a = provider(knobs()).await;
    let gateway = gateway(&config(&a)).await;
    let ask = chat();
    let mut client = gateway.client().await;
    client.send(&ask.head()).await;
    client.send(&ask.body[..10]).await;
    let reply = client.reply().await;
    assert_eq!(reply.error(), (408, "invalid_request".into()));
    let mut h2 = gateway.h2().await;
    let (response, mut body) = h2.open(&ask).await;
    body.send_data(ask.body.slice(..10), false).unwrap();
    assert_eq!(soon("a reply", response).await.unwrap().status(), 408);
    assert_eq!((a.count(), gateway.events().await.len()), (0, 2));
}

#[tokio::test]
async fn a_refused_large_body_is_answered_before_it_is_read() {
    let a = provider(knobs()).await;
    let gateway = gateway(&config(&a)).await;
    // The head alone decides; the answer is read whole though the body follows.
    for (ask, status) in [(chat().key("sk-wrong"), 401), (chat(), 413)] {
        let ask = ask.say(&"x".repeat(3 << 20));
        let mut client = gateway.client().await;
        client.send(&ask.head()).await;
        let head = client.head().await;
        assert_eq!(head.status, status);
        client.try_send(&ask.body).await;
        let (text, end) = client.rest().await;
        assert_eq!((end, text.contains("error")), (reply::End::Clean, true));
    }
    assert_eq!(a.count(), 0);
}

#[tokio::test]
async fn no_room_is_a_503_that_time_heals() {
    let gate = Gate::new();
    let (held, answer) = (gate.clone(), Answer::default());
    let script: Script =
        Arc::new(move |r| [vec![Action::Pass(held.clone())], answer.reply(r)].concat());
    let check = async |server: &str, first: Ask, gate: &Gate| {
        let a = provider(script.clone()).await;
        let text = format!("[server]\n{server}\n{}", toml::simple(&a));
        let gateway = gateway(&text).await;
        let mut open = gateway.client().await;
        open.send(&first.bytes()).await;
        soon("the open request", a.until(|seen| seen.len() == 1)).await;
        let refused = gateway.ask(&first).await;
        assert_eq!(refused.error().0, 503, "{server}");
        assert_eq!(refused.header("x-should-retry"), Some("true"));
        assert_eq!(refused.header("retry-after"), Some("1"));
        gate.open(1);
        assert_eq!(open.reply().await.status(), 200);
        gate.open(1);
        assert_eq!(gateway.ask(&first).await.status(), 200, "what was taken is given back");
        assert_eq!(gateway.events().await.len(), 3);
        assert_eq!(gateway.inner.bodies.open(), 0);
    };
    check("max_requests = 1", chat(), &gate).await;
    let large = chat().say(&"x".repeat(700 << 10));
    check("max_body = \"1MiB\"\nmax_body_bytes_open = \"1MiB\"", large, &gate).await;
}

#[tokio::test]
async fn a_closing_gateway_says_so() {
    let a = provider(knobs()).await;
    let gateway = gateway(&config(&a)).await;
    let mut client = gateway.client().await;
    assert_eq!(client.ask(&chat()).await.status(), 200);
    gateway.inner.drain.advance(Phase::Leaving);
    assert_eq!(gateway.ask(&chat()).await.header("connection"), Some("close"));
    gateway.inner.drain.advance(Phase::Closing);
    let reply = client.ask(&chat()).await;
    assert_eq!(reply.error().0, 503);
    assert!(reply.header("retry-after").is_some());
}

#[tokio::test]
async fn a_providers_own_words_reach_the_caller_for_errors_of_the_request() {
    let check = async |status: u16, error: Value, want: (u16, &str)| {
        let a = provider(fixed(vec![Action::json(status, &json!({"error": error}))])).await;
        let gateway = gateway(&toml::simple(&a)).await;
        for ask in [chat(), streamed()] {
            let reply = gateway.ask(&ask).await;
            assert_eq!(reply.error(), (want.0, want.1.into()), "{error}");
            let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains("their words"), "{message}");
        }
        assert_eq!(a.count(), 2);
    };
    let error = |code: &str, param: &str| json!({"message": "their words", "type": "x", "code": code, "param": param});
    check(400, error("y", "top_p"), (400, "invalid_request")).await;
    check(400, error("context_length_exceeded", "messages"), (400, "context_length_exceeded"))
        .await;
    check(413, error("context_length_exceeded", "messages"), (400, "context_length_exceeded"))
        .await;
    check(400, error("content_filter", "prompt"), (400, "content_filter")).await;
    let start = std::time::Instant::now();
    check(422, error("y", "n"), (422, "invalid_request")).await;
    assert!(start.elapsed() < Duration::from_secs(5));
}
