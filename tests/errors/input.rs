//! Bodies that are none, or not what the endpoint takes: a clear 400, at once, no upstream call.

use crate::harness::*;
use bytes::Bytes;
use std::time::{Duration, Instant};

/// Far above what any of it takes, far below what a quadratic reader would.
const FAST: Duration = Duration::from_secs(5);

struct Stand {
    a: Provider,
    gateway: Gateway,
}

async fn stand() -> Stand {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    Stand { a, gateway }
}

impl Stand {
    async fn refuses(&self, body: impl Into<Bytes>, code: &str, param: Option<&str>) {
        let body = body.into();
        let name = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let (start, hits) = (Instant::now(), self.a.count());
        let reply = self.gateway.ask(&chat().body(body)).await;
        assert!(start.elapsed() < FAST, "{name}: {:?}", start.elapsed());
        assert_eq!(reply.error(), (400, code.into()), "{name}");
        assert_eq!(reply.json()["error"]["param"].as_str(), param, "{name}");
        assert_eq!(reply.header("x-should-retry"), Some("false"), "{name}");
        assert!(reply.body().len() < 4096, "{name}");
        assert_eq!(self.a.count(), hits, "{name}");
    }
    async fn invalid_json(&self, body: impl Into<Bytes>) {
        self.refuses(body, "invalid_json", None).await;
    }
    /// A sound body with these members more.
    async fn invalid(&self, members: &str, param: &str) {
        let body = format!("{{\"model\":\"m\",\"messages\":[{{}}],{members}}}");
        self.refuses(body, "invalid_request", Some(param)).await;
    }
    /// Every refusal has left its event.
    async fn done(self, rows: usize) {
        let events = self.gateway.events().await;
        assert_eq!(events.len(), rows);
        for event in events {
            assert_eq!((&event["outcome"], &event["status"]), (&"refused".into(), &400.into()));
            assert_eq!((&event["key_name"], &event["cost_nano_usd"]), (&"test".into(), &0.into()));
        }
    }
}

#[tokio::test]
async fn what_is_no_json_object_is_said_to_be_none() {
    let stand = stand().await;
    let bodies = [
        "",
        " ",
        "null",
        "[]",
        "\"x\"",
        "1",
        "{",
        "{}}",
        "{\"a\":1,}",
        "{'a':1}",
        "nul",
        "{\"model\":\"m\" \"messages\":[]}",
        "{\"a\":01}",
        "{\"a\":\"\n\"}",
        "{\"a\":NaN}",
        "\u{feff}{\"model\":\"m\",\"messages\":[{}]}",
        "{\"model\":\"m\",\"messages\":[{}]} x",
    ];
    for body in bodies {
        stand.invalid_json(body).await;
    }
    for byte in [0xff, 0xc0, 0xed] {
        let body =
            [b"{\"model\":\"m\",\"messages\":[\"".as_slice(), &[byte, b'x'], b"\"]}"].concat();
        stand.invalid_json(body).await;
    }
    stand.done(bodies.len() + 3).await;
}

#[tokio::test]
async fn huge_nonsense_is_refused_at_once() {
    let stand = stand().await;
    stand.invalid_json(vec![b' '; 10 << 20]).await;
    stand.invalid_json(vec![b'a'; 10 << 20]).await;
    stand.invalid_json(vec![b'\n'; 10 << 20]).await;
    stand.invalid_json(vec![b'['; 1_000_000]).await;
    stand.invalid_json([b"{\"a\":".as_slice(), &[b'['; 1_000_000]].concat()).await;
    stand.invalid_json("{\"a\":".repeat(1_000_000)).await;
    let brackets = ["[".repeat(1_000_000), "]".repeat(1_000_000)].concat();
    stand.invalid_json(format!("{{\"model\":\"m\",\"messages\":[{brackets}]}}")).await;
    let members: Vec<_> = (0..300_000).map(|i| format!("\"k{i}\":1")).collect();
    stand.invalid_json(format!("{{{}}}", members.join(","))).await;
    stand.done(8).await;
}

#[tokio::test]
async fn a_large_sound_body_is_taken_and_quickly() {
    let Stand { a, gateway } = stand().await;
    for text in [" ".repeat(10 << 20), "a".repeat(10 << 20), "修".repeat(3 << 20)] {
        let start = Instant::now();
        assert_eq!(gateway.ask(&chat().say(&text)).await.status(), 200);
        assert!(start.elapsed() < 2 * FAST, "{:?}", start.elapsed());
        assert_eq!(
            a.requests().pop().unwrap().request.body.len(),
            chat().say(&text).model("up-model").body.len()
        );
    }
}

#[tokio::test]
async fn wrong_types_and_values_are_named() {
    let stand = stand().await;
    let mut rows = 0;
    for value in [
        "0",
        "-1",
        "-9223372036854775808",
        "1e308",
        "\"100\"",
        "3.5",
        "1e3",
        "true",
        "[]",
        "18446744073709551616",
        "9007199254740992",
        "{}",
    ] {
        for name in ["max_tokens", "max_completion_tokens", "n"] {
            stand.invalid(&format!("\"{name}\":{value}"), name).await;
            rows += 1;
        }
    }
    for value in ["\"true\"", "1", "[]", "\"\""] {
        stand.invalid(&format!("\"stream\":{value}"), "stream").await;
        stand.invalid(&format!("\"stream_options\":{value}"), "stream_options").await;
        let usage = format!("\"stream_options\":{{\"include_usage\":{value}}}");
        stand.invalid(&usage, "stream_options.include_usage").await;
        rows += 3;
    }
    for name in ["task_type", "budget_tier"] {
        for value in ["1", "\"\"", "[]", "\"a\\u0000b\""] {
            stand.invalid(&format!("\"{name}\":{value}"), name).await;
            rows += 1;
        }
    }
    let long = format!("\"{}\"", "m".repeat(1 << 20));
    for model in ["1", "null", "\"\"", "[\"m\"]", "\"a\\nb\"", "\"\\ud800\"", &long] {
        let body = format!("{{\"messages\":[{{}}],\"model\":{model}}}");
        stand.refuses(body, "invalid_request", Some("model")).await;
        rows += 1;
    }
    for messages in ["null", "[]", "[ ]", "{}", "\"hi\"", "1"] {
        let body = format!("{{\"model\":\"m\",\"messages\":{messages}}}");
        stand.refuses(body, "invalid_request", Some("messages")).await;
        rows += 1;
    }
    stand.refuses("{\"model\":\"m\"}", "invalid_request", Some("messages")).await;
    stand.refuses("{\"messages\":[{}]}", "invalid_request", Some("model")).await;
    stand.done(rows + 2).await;
}

#[tokio::test]
async fn what_stands_twice_is_refused_where_we_act_on_it() {
    let stand = stand().await;
    let members = [
        "\"model\":\"m\"",
        "\"messages\":[{}]",
        "\"stream\":true",
        "\"n\":1",
        "\"max_tokens\":5",
        "\"max_completion_tokens\":5",
        "\"stream_options\":{}",
        "\"task_type\":\"x\"",
        "\"budget_tier\":\"x\"",
        "\"extra_body\":{}",
    ];
    for member in members {
        let name = member.split('"').nth(1).unwrap();
        let escaped =
            member.replacen(name, &format!("\\u00{:02x}{}", name.as_bytes()[0], &name[1..]), 1);
        for second in [member, &escaped] {
            let known = member.starts_with("\"model\"") || member.starts_with("\"messages\"");
            let first = if known { String::new() } else { format!("{member},") };
            stand.invalid(&format!("{first}{second}"), name).await;
        }
    }
    stand.done(2 * members.len()).await;
}

#[tokio::test]
async fn extra_body_may_not_say_who_answers_or_how() {
    let stand = stand().await;
    for inner in [
        "\"model\":\"x\"",
        "\"stream\":true",
        "\"stream_options\":{}",
        "\"extra_body\":{}",
        "\"a\":1,\"a\":2",
        "\"mod\\u0065l\":\"x\"",
    ] {
        stand.invalid(&format!("\"extra_body\":{{{inner}}}"), "extra_body").await;
    }
    for value in ["1", "[]", "\"x\"", "true"] {
        stand.invalid(&format!("\"extra_body\":{value}"), "extra_body").await;
    }
    stand.invalid("\"extra_body\":{\"max_tokens\":0}", "max_tokens").await;
    stand.done(11).await;
}

#[tokio::test]
async fn null_is_absent() {
    let Stand { a, gateway } = stand().await;
    let body = "{\"model\":\"m\",\"messages\":[{}],\"max_tokens\":null,\"n\":null,\"stream\":null,\
                \"stream_options\":null,\"task_type\":null,\"extra_body\":null}";
    assert_eq!(gateway.ask(&chat().body(body)).await.status(), 200);
    assert_eq!(a.count(), 1);
}

#[tokio::test]
async fn a_request_hidden_in_another_is_none() {
    let Stand { a, gateway } = stand().await;
    let hidden = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let both = "content-length: 0\r\ntransfer-encoding: chunked\r\n";
    let twice = "content-length: 4\r\ncontent-length: 5\r\n";
    for (lengths, body) in [(both, format!("0\r\n\r\n{hidden}")), (twice, "abcde".into())] {
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{lengths}\r\n");
        let mut client = gateway.client().await;
        client.send(head.as_bytes()).await;
        client.try_send(body.as_bytes()).await;
        let first = client.reply().await;
        assert!((400..500).contains(&first.status()), "{lengths:?}: {first:?}");
        // Whatever became of the first, the hidden one is never answered.
        assert!(client.try_head().await.is_none_or(|h| h.status == 401), "{lengths:?}");
    }
    assert_eq!(a.count(), 0);
}
