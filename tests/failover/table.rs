//! Every way a provider can fail before its first content, for JSON and streams, with and without
//! another target.

use super::{QUICK, attempt, config};
use crate::harness::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// One way to fail.
struct Fault {
    name: &'static str,
    /// What the provider does; `None`: nobody listens.
    script: Option<fn(bool) -> Vec<Action>>,
    /// Tries on the failing target.
    tries: u64,
    /// The provider's status, and what each try is booked as: a JSON reply's, a stream's.
    status: u64,
    errors: [&'static str; 2],
    /// The provider may have billed it.
    billed: bool,
    /// What the caller is told when there is nobody else: status, code, x-should-retry.
    alone: (u16, &'static str, &'static str),
    outcome: &'static str,
}

const SERVER: (u16, &str, &str) = (502, "upstream_error", "true");
/// A 200 that broke: most likely billed.
const BROKEN: (u16, &str, &str) = (502, "upstream_error", "false");
const INVALID: (u16, &str, &str) = (502, "upstream_invalid_response", "false");
const LATE: (u16, &str, &str) = (504, "upstream_timeout", "false");
const RATE: (u16, &str, &str) = (429, "upstream_rate_limited", "true");

/// A reply that is an error status.
const fn said(
    name: &'static str,
    script: fn(bool) -> Vec<Action>,
    tries: u64,
    (status, error): (u64, &'static str),
    alone: (u16, &'static str, &'static str),
) -> Fault {
    let (script, errors, billed, outcome) = (Some(script), [error; 2], false, "upstream_error");
    Fault { name, script, tries, status, errors, billed, alone, outcome }
}

/// A 200 that is no answer.
const fn bad(name: &'static str, script: fn(bool) -> Vec<Action>) -> Fault {
    let (errors, alone, outcome) = (["invalid"; 2], INVALID, "upstream_error");
    Fault {
        name,
        script: Some(script),
        tries: 1,
        status: 200,
        errors,
        billed: true,
        alone,
        outcome,
    }
}

/// Silence.
const fn late(name: &'static str, script: fn(bool) -> Vec<Action>, status: u64) -> Fault {
    let (errors, alone, outcome) = (["reply", "first_token"], LATE, "timeout");
    Fault { name, script: Some(script), tries: 1, status, errors, billed: true, alone, outcome }
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "connect refused",
        script: None,
        tries: 2,
        status: 0,
        errors: ["connect"; 2],
        billed: false,
        alone: SERVER,
        outcome: "upstream_error",
    },
    Fault {
        name: "RST before the head",
        script: Some(|_| vec![Action::Reset]),
        tries: 2,
        status: 0,
        errors: ["reset_before_headers"; 2],
        billed: true,
        alone: SERVER,
        outcome: "upstream_error",
    },
    Fault {
        name: "FIN before the head",
        script: Some(|_| vec![Action::Close]),
        tries: 2,
        status: 0,
        errors: ["reset_before_headers"; 2],
        billed: true,
        alone: SERVER,
        outcome: "upstream_error",
    },
    Fault {
        alone: BROKEN,
        ..bad("RST after the head", |stream| vec![head(stream), Action::Reset])
    },
    late("hang before the head", |_| vec![Action::Hang], 0),
    late("hang after the head", |stream| vec![head(stream), Action::Hang], 200),
    bad("comments only", |stream| vec![head(stream), Action::text(": x\n\n: y\n\n")]),
    late("comments, then silence", |s| vec![head(s), Action::text(": x\n\n"), Action::Hang], 200),
    Fault {
        alone: BROKEN,
        ..bad("the role, then RST", |stream| vec![head(stream), role(), Action::Reset])
    },
    bad("the role, then the end", |stream| vec![head(stream), role()]),
    Fault {
        errors: ["server_error"; 2],
        alone: BROKEN,
        ..bad("an error first", |stream| {
            let error = json!({"error": {"message": "x", "type": "server_error", "code": null}});
            match stream {
                true => vec![head(true), Action::Sse(error)],
                false => vec![Action::json(200, &error)],
            }
        })
    },
    bad("200 HTML", |_| whole("text/html", "<html><body>busy</body></html>")),
    bad("200 {}", |_| whole("application/json", "{}")),
    bad("half JSON", |_| whole("application/json", r#"{"id":"chatcmpl-1","choi"#)),
    bad("empty 200", |stream| whole(kind(stream), "")),
    Fault {
        status: 204,
        ..bad("204", |_| vec![Action::Raw("HTTP/1.1 204 No Content\r\n\r\n".into())])
    },
    said("429", |_| error(429, &[], "slow down"), 2, (429, "429"), RATE),
    said("429, long", |_| error(429, &[("retry-after", "60")], "x"), 1, (429, "429"), RATE),
    said(
        "429, hopeless",
        |_| {
            error(429, &[], "Request too large on tokens per min (TPM): Limit 6000, Requested 9021")
        },
        1,
        (429, "429"),
        (429, "upstream_rate_limited", "false"),
    ),
    said(
        "429, no money",
        |_| {
            vec![Action::json(
                429,
                &json!({"error": {"message": "x", "code": "insufficient_quota"}}),
            )]
        },
        1,
        (429, "quota"),
        (502, "upstream_quota", "false"),
    ),
    said("401", |_| error(401, &[], "sk-upstream-a"), 1, (401, "auth"), AUTH),
    said("403", |_| error(403, &[], "sk-upstream-a"), 1, (403, "auth"), AUTH),
    said("402", |_| error(402, &[], "x"), 1, (402, "quota"), (502, "upstream_quota", "false")),
    said("500", |_| error(500, &[], "x"), 1, (500, "500"), SERVER),
    said("502 HTML", |_| html(502), 1, (502, "502"), SERVER),
    said("503", |_| error(503, &[], "x"), 2, (503, "503"), SERVER),
    said("529", |_| error(529, &[], "x"), 2, (529, "529"), SERVER),
];

const AUTH: (u16, &str, &str) = (502, "upstream_auth", "false");

fn kind(stream: bool) -> &'static str {
    if stream { "text/event-stream" } else { "application/json" }
}

fn head(stream: bool) -> Action {
    Action::Head(200, vec![("content-type".into(), kind(stream).into())])
}

fn role() -> Action {
    let delta = json!({"role": "assistant", "content": ""});
    let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
    Action::Sse(json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
                       "model": "up-model", "choices": [choice]}))
}

fn whole(kind: &str, body: &str) -> Vec<Action> {
    let headers = vec![("content-type".into(), kind.into())];
    vec![Action::Whole(200, headers, body.to_owned().into())]
}

fn html(status: u16) -> Vec<Action> {
    let headers = vec![("content-type".into(), "text/html".into())];
    vec![Action::Whole(status, headers, "<html>bad gateway</html>".into())]
}

fn error(status: u16, headers: &[(&str, &str)], message: &str) -> Vec<Action> {
    let body = json!({"error": {"message": message, "type": "x", "code": null}});
    vec![Action::json_with(status, headers, &body)]
}

/// Longer than what Pingora itself could replay (64 KiB): by far, and just so.
const LARGE: usize = 1 << 20;
const ABOVE: usize = 65 << 10;

#[tokio::test]
async fn every_fault_before_content_is_told_or_healed() {
    // All of them, so that one fault does not hide the next; each says what was wrong.
    let mut failed = vec![];
    for fault in FAULTS {
        if tokio::spawn(check(fault)).await.is_err() {
            failed.push(fault.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

async fn check(fault: &'static Fault) {
    let script: Script = Arc::new(|request| {
        fault.script.map_or(vec![], |script| script(request.json()["stream"] == true))
    });
    let a = provider(script).await;
    let nobody = Refusing::new();
    let url = fault.script.map_or(nobody.url(), |_| a.url());
    let b = answering(Answer::default()).await;
    let config = config(&url, &b, QUICK);
    let mut stand = Stand { a, b, gateway: gateway(&config).await };
    for (n, stream) in [false, true, false, true].into_iter().enumerate() {
        // A credential that was turned away rests; each case begins with a fresh one.
        if n > 0 && rests(fault) {
            stand.gateway = gateway(&config).await;
        }
        if n < 2 { alone(fault, stream, &stand).await } else { healed(fault, stream, &stand).await }
    }
}

fn rests(fault: &Fault) -> bool {
    (400..500).contains(&fault.status)
}

struct Stand {
    a: Provider,
    b: Provider,
    gateway: Gateway,
}

impl Stand {
    /// One exchange: the reply, its event, and what each provider saw.
    async fn ask(&self, ask: &Ask) -> (Reply, Value, [Vec<Seen>; 2]) {
        let before = self.gateway.events().await.len();
        let seen = [self.a.count(), self.b.count()];
        let reply = self.gateway.ask(ask).await;
        let mut events = self.gateway.events().await.split_off(before);
        assert_eq!(events.len(), 1, "{events:#?}");
        let since = |provider: &Provider, n: usize| provider.requests().split_off(n);
        (reply, events.remove(0), [since(&self.a, seen[0]), since(&self.b, seen[1])])
    }
}

fn large(stream: bool) -> Ask {
    let text = |size| "a word and more ".repeat(size / 16);
    if stream { streamed().say(&text(ABOVE)) } else { chat().say(&text(LARGE)) }
}

/// What the failed tries may have cost: their prompts, at 1,000 nano-USD a token.
fn wasted(fault: &Fault, ask: &Ask) -> u64 {
    let prompt = weir_filters::peek::chat(ask.body.clone()).unwrap().estimate();
    if fault.billed { fault.tries * prompt * 1000 } else { 0 }
}

/// Requests that the failing provider reads.
fn hits(fault: &Fault) -> usize {
    fault.script.map_or(0, |_| usize::try_from(fault.tries).unwrap())
}

fn check_tries(fault: &Fault, stream: bool, event: &Value) {
    let (name, want) = (fault.name, fault.errors[usize::from(stream)]);
    for n in 0..usize::try_from(fault.tries).unwrap() {
        let (provider, status, error) = attempt(event, n);
        assert_eq!((provider.as_str(), status), ("a", fault.status), "{name} {stream}");
        assert_eq!(error.as_deref(), Some(want), "{name} {stream}");
    }
}

async fn alone(fault: &Fault, stream: bool, stand: &Stand) {
    let name = format!("{}, stream={stream}, alone", fault.name);
    let ask = if stream { streamed() } else { chat() }.model("one");
    let (reply, event, [a, b]) = stand.ask(&ask).await;
    let (status, code, retry) = fault.alone;
    assert_eq!(reply.error(), (status, code.into()), "{name}: {}", reply.text());
    assert_eq!(reply.header("x-should-retry"), Some(retry), "{name}");
    assert_eq!(reply.header("retry-after").is_some(), retry == "true" && status == 429, "{name}");
    assert_eq!(reply.header("x-weir-attempts"), Some(fault.tries.to_string().as_str()), "{name}");
    assert!(!reply.text().contains("sk-upstream"), "{name}");
    assert_eq!((a.len(), b.len()), (hits(fault), 0), "{name}");
    assert_eq!(event["attempts"].as_array().unwrap().len() as u64, fault.tries, "{name}: {event}");
    check_tries(fault, stream, &event);
    assert_eq!((&event["status"], &event["error_code"]), (&status.into(), &code.into()), "{name}");
    assert_eq!(event["outcome"], fault.outcome, "{name}");
    for member in ["input_tokens", "output_tokens", "cached_tokens", "cost_nano_usd"] {
        assert_eq!(event[member], 0, "{name}: {member}");
    }
    assert_eq!(event["wasted_cost_nano_usd"], wasted(fault, &ask), "{name}");
    assert_eq!((&event["provider"], &event["model"]), (&"a".into(), &"up-model".into()), "{name}");
}

async fn healed(fault: &Fault, stream: bool, stand: &Stand) {
    let name = format!("{}, stream={stream}, healed", fault.name);
    let ask = large(stream);
    let (reply, event, [a, b]) = stand.ask(&ask).await;
    assert_eq!(reply.status(), 200, "{name}: {}", reply.text());
    if stream {
        assert!(reply.done(), "{name}: {}", reply.text());
        assert_eq!(
            (reply.content().as_str(), reply.finishes()),
            ("Hello world!", vec!["stop".into()])
        );
    } else {
        assert_eq!(reply.json()["choices"][0]["message"]["content"], "Hello world!", "{name}");
        assert_eq!(reply.header("x-weir-cost-usd"), Some("0.000015"), "{name}");
    }
    let tries = fault.tries + 1;
    assert_eq!(reply.header("x-weir-attempts"), Some(tries.to_string().as_str()), "{name}");
    assert_eq!(reply.header("x-weir-upstream"), Some("b"), "{name}");
    assert_eq!((a.len(), b.len()), (hits(fault), 1), "{name}");
    let sent = text_of(&ask.body);
    let whole = |seen: &Seen| text_of(&seen.request.body) == sent;
    assert!(a.iter().chain(&b).all(whole), "{name}: every try gets the whole body");
    check_tries(fault, stream, &event);
    assert_eq!(attempt(&event, usize::try_from(fault.tries).unwrap()), ("b".into(), 200, None));
    assert_eq!(event["attempts"].as_array().unwrap().len() as u64, tries, "{name}");
    assert_eq!((&event["outcome"], &event["status"]), (&"success".into(), &200.into()), "{name}");
    assert_eq!((&event["input_tokens"], &event["output_tokens"]), (&9.into(), &3.into()), "{name}");
    assert_eq!(
        (&event["cost_nano_usd"], &event["provider"]),
        (&15_000.into(), &"b".into()),
        "{name}"
    );
    assert_eq!(event["wasted_cost_nano_usd"], wasted(fault, &ask), "{name}");
    let duration = Duration::from_millis(event["duration_ms"].as_u64().unwrap());
    assert!(duration < PATIENCE && event["ttft_ms"].is_u64(), "{name}");
}

fn text_of(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["messages"].to_string()
}
