//! Streams over real sockets: what reaches the client, when, and in what form.

mod framing;
mod hold;

use crate::harness::reply::End;
use crate::harness::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// One chunk of content.
pub fn word(text: &str) -> Action {
    Action::Sse(chunk(json!({"content": text}), Value::Null))
}

/// The finish, and the end.
pub fn stop() -> Vec<Action> {
    vec![Action::Sse(chunk(json!({}), "stop".into())), Action::text("data: [DONE]\n\n")]
}

pub fn chunk(delta: Value, finish: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up-model",
           "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// Words, each of which waits until the client has told that it has the one before.
fn confirmed(gate: &Gate, words: &[&str]) -> Script {
    let mut actions = vec![Action::stream()];
    for text in words {
        actions.push(word(text));
        actions.push(Action::Pass(gate.clone()));
    }
    fixed([actions, stop()].concat())
}

const WORDS: [&str; 20] = [
    "w0 ", "w1 ", "w2 ", "w3 ", "w4 ", "w5 ", "w6 ", "w7 ", "w8 ", "w9 ", "a0 ", "a1 ", "a2 ",
    "a3 ", "a4 ", "a5 ", "a6 ", "a7 ", "a8 ", "a9 ",
];

#[tokio::test]
async fn every_event_is_with_the_client_before_the_next_is_sent() {
    let gate = Gate::new();
    let a = provider(confirmed(&gate, &WORDS)).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut client = gateway.client().await;
    client.begin(&streamed()).await;
    for text in WORDS {
        // One that were held back would never come: the provider waits for us.
        let event = client.event().await.unwrap();
        assert!(event.contains(text), "{event}");
        gate.open(1);
    }
    assert!(client.events_until("[DONE]").await.len() == 2);
}

#[tokio::test]
async fn the_same_holds_over_h2c_and_for_anthropic() {
    let gate = Gate::new();
    let held = gate.clone();
    let script: Script = Arc::new(move |request| {
        let whole = Answer { words: WORDS.map(str::to_owned).to_vec(), ..Answer::default() };
        let mut actions = vec![];
        for action in whole.reply(request) {
            let speaks =
                matches!(&action, Action::Body(b) if b.windows(10).any(|w| w == b"text_delta"));
            actions.push(action);
            if speaks {
                actions.push(Action::Pass(held.clone()));
            }
        }
        actions
    });
    let a = provider(script).await;
    let config =
        [toml::anthropic("a", &a), toml::model("m", &["a/up-model"]), toml::key()].concat();
    let gateway = gateway(&config).await;
    let (head, mut body) = gateway.h2().await.begin(&streamed()).await;
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let mut text = String::new();
    for word in WORDS {
        while !text.contains(word) {
            let bytes = soon("bytes", body.data()).await.unwrap().unwrap();
            body.flow_control().release_capacity(bytes.len()).unwrap();
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        gate.open(1);
    }
}

#[tokio::test]
async fn a_streams_head_is_that_of_a_stream() {
    let headers = [
        ("x-ratelimit-remaining-requests", "7"),
        ("openai-organization", "org-hidden"),
        ("set-cookie", "a=b"),
        ("content-encoding", "identity"),
        ("x-request-id", "theirs"),
    ];
    let headers = headers.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
    let a = answering(Answer { headers, ..Answer::default() }).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let ask = streamed().with("accept-encoding", "gzip, br").with("x-request-id", "mine");
    let reply = gateway.ask(&ask).await;
    assert!(reply.done());
    for (name, value) in [
        ("content-type", Some("text/event-stream")),
        ("cache-control", Some("no-cache")),
        ("x-accel-buffering", Some("no")),
        ("transfer-encoding", Some("chunked")),
        ("content-length", None),
        ("content-encoding", None),
        ("x-weir-upstream", Some("a")),
        ("x-weir-model", Some("up-model")),
        ("x-weir-attempts", Some("1")),
        ("x-weir-cost-usd", None),
        ("x-request-id", Some("mine")),
        ("x-ratelimit-remaining-requests", None),
        ("openai-organization", None),
        ("set-cookie", None),
    ] {
        assert_eq!(reply.header(name), value, "{name}");
    }
    let ours = reply.header("x-weir-overhead-us").unwrap().parse::<u64>().unwrap();
    assert!(ours < 5_000_000, "{ours}");
}

#[tokio::test]
async fn usage_is_seen_by_those_who_asked_for_it_and_only_by_them() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let options = [None, Some(Value::Null), Some(json!({})), Some(json!({"include_usage": false}))];
    for options in options {
        let ask = options.clone().map_or(streamed(), |o| streamed().set("stream_options", o));
        let reply = gateway.ask(&ask).await;
        assert!(reply.done() && !reply.text().contains("usage"), "{options:?}: {}", reply.text());
        let sent = a.requests().pop().unwrap().request.json();
        assert_eq!(sent["stream_options"], json!({"include_usage": true}), "{options:?}");
    }
    let asked = json!({"include_usage": true, "step_usage_chunks": true});
    let reply = gateway.ask(&streamed().set("stream_options", asked.clone())).await;
    let told: Vec<_> = reply.chunks().into_iter().filter(|c| c.get("usage").is_some()).collect();
    assert_eq!((told.len(), &told[0]["choices"]), (1, &json!([])));
    assert_eq!(told[0]["usage"]["completion_tokens"], 3);
    assert_eq!(a.requests().pop().unwrap().request.json()["stream_options"], asked);
    // Other members of the object stay, and what is no stream gets none of it.
    gateway.ask(&streamed().set("stream_options", json!({"step_usage_chunks": true}))).await;
    let sent = a.requests().pop().unwrap().request.json();
    let merged = json!({"step_usage_chunks": true, "include_usage": true});
    assert_eq!(sent["stream_options"], merged);
    for ask in [chat(), chat().set("stream", false), chat().set("stream", Value::Null)] {
        gateway.ask(&ask).await;
        assert_eq!(a.requests().pop().unwrap().request.json().get("stream_options"), None);
    }
    for event in gateway.events().await {
        assert_eq!(
            (&event["output_tokens"], &event["usage_source"]),
            (&3.into(), &"provider".into())
        );
    }
}

#[tokio::test]
async fn an_old_client_gets_its_stream_without_chunks() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    for (ask, end) in [(streamed(), "data: [DONE]\n\n"), (chat(), "}")] {
        let mut client = gateway.client().await;
        let text = String::from_utf8(ask.bytes()).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
        client.send(text.as_bytes()).await;
        let reply = client.reply().await;
        assert_eq!(
            (reply.status(), reply.header("transfer-encoding"), reply.end),
            (200, None, End::Clean)
        );
        assert!(reply.text().ends_with(end) && reply.text().contains("Hello"), "{}", reply.text());
        assert!(client.closed().await);
    }
    assert_eq!(gateway.events().await.len(), 2);
}

#[tokio::test]
async fn a_refused_stream_is_json_with_its_length() {
    for status in [400, 401, 404, 422, 429, 500, 503] {
        let a = provider(knobs()).await;
        let gateway = gateway(&(toml::simple(&a) + "")).await;
        let ask = streamed().say(&format!("status={status} retry_after=60"));
        let reply = gateway.ask(&ask).await;
        reply.error(); // content type and shape
        let length: usize = reply.header("content-length").unwrap().parse().unwrap();
        assert_eq!((length, reply.end), (reply.body().len(), End::Clean), "{status}");
        assert_eq!(gateway.event().await["status"], reply.status());
    }
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_provider() {
    let a = provider(fixed(vec![Action::stream(), word("one"), Action::Hang])).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut client = gateway.client().await;
    client.begin(&streamed()).await;
    client.events_until("one").await;
    client.abort();
    soon("the upstream's end", a.until(|seen| seen[0].left.is_some())).await;
    let event = gateway.event().await;
    assert_eq!((&event["outcome"], &event["status"]), (&"client_abort".into(), &499.into()));
    // Nothing of the abandoned answer is in the next ones.
    a.play(Arc::new(|request| {
        let said = request.json()["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        Answer { words: vec![said], ..Answer::default() }.reply(request)
    }));
    for n in 0..20 {
        let reply = gateway.ask(&streamed().say(&format!("echo-{n}"))).await;
        assert_eq!(reply.content(), format!("echo-{n}"));
    }
}

#[tokio::test]
async fn a_client_that_leaves_after_the_end_is_a_success() {
    // The provider keeps its stream open after the last word of all.
    let actions = [vec![Action::stream(), word("one")], stop(), vec![Action::Hang]].concat();
    let a = provider(fixed(actions)).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut client = gateway.client().await;
    client.begin(&streamed()).await;
    client.events_until("[DONE]").await;
    client.abort();
    assert_eq!(gateway.event().await["outcome"], "success");
    // And for one that stays the body ends, though the provider's does not.
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done());
    soon("the upstream's end", a.until(|seen| seen.iter().all(|s| s.left.is_some()))).await;
}

#[tokio::test]
async fn what_comes_after_the_end_is_not_passed_on() {
    let more = vec![word("more"), Action::text("data: [DONE]\n\n")];
    let a = provider(fixed([vec![Action::stream(), word("one")], stop(), more].concat())).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && reply.content() == "one", "{}", reply.text());
    assert_eq!(reply.text().matches("[DONE]").count(), 1);
}

#[tokio::test]
async fn many_streams_side_by_side_never_mix() {
    let script: Script = Arc::new(|request| {
        let mark = request.json()["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        Answer { words: vec![mark; 30], ..Answer::default() }.reply(request)
    });
    let a = provider(script).await;
    let gateway = Arc::new(gateway(&toml::simple(&a)).await);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..60 {
        let gateway = gateway.clone();
        tasks.spawn(async move {
            let mark = format!("<{n}>");
            let mut client = gateway.client().await;
            if n % 3 == 0 {
                client.begin(&streamed().say(&mark)).await;
                assert!(client.event().await.is_some());
                return client.abort();
            }
            let reply = client.ask(&streamed().say(&mark)).await;
            assert!(reply.done());
            assert_eq!(reply.content(), mark.repeat(30));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(gateway.events().await.len(), 60);
}

#[tokio::test]
async fn a_connection_serves_streams_and_json_in_turn() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut client = gateway.client().await;
    for ask in [streamed(), chat(), chat().body("{"), streamed(), chat()] {
        let reply = client.ask(&ask).await;
        assert_eq!(reply.end, End::Clean);
    }
    assert_eq!((a.count(), a.connections()), (4, 1));
}

#[tokio::test]
async fn an_h2_body_that_ends_in_an_empty_frame_ends_once() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut h2 = gateway.h2().await;
    for ask in [chat(), streamed(), chat()] {
        let (response, mut body) = h2.open(&ask).await;
        body.send_data(ask.body.clone(), false).unwrap();
        body.send_data(bytes::Bytes::new(), true).unwrap();
        assert_eq!(soon("a reply", response).await.unwrap().status(), 200);
    }
    // The provider reads strictly, and one connection has carried all of it.
    assert_eq!(gateway.ask(&chat()).await.status(), 200);
    assert_eq!((a.count(), gateway.events().await.len()), (4, 4));
}

#[tokio::test]
async fn a_client_that_closes_its_side_is_booked_as_one_that_left() {
    let a = provider(fixed(vec![Action::Hang])).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let mut client = gateway.client().await;
    client.send(&chat().bytes()).await;
    soon("the request", a.until(|seen| seen.len() == 1)).await;
    client.half_close().await;
    soon("the upstream's end", a.until(|seen| seen[0].left.is_some())).await;
    assert_eq!(gateway.event().await["outcome"], "client_abort");
}

#[tokio::test]
async fn a_small_request_is_answered_beside_a_torrent() {
    let text = "torrent ".repeat(64);
    let a = answering(Answer { words: vec![text; 20_000], ..Answer::default() }).await;
    let gateway = Arc::new(gateway(&toml::simple(&a)).await);
    let big = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.ask(&streamed()).await }
    });
    soon("the torrent", a.until(|seen| seen.len() == 1)).await;
    let mut client = gateway.client().await;
    let mut asked = 0;
    while !big.is_finished() && asked < 1000 {
        assert_eq!(client.ask(&Ask::get("/health")).await.status(), 200);
        asked += 1;
    }
    assert!(asked > 1, "nothing was answered while the stream ran");
    assert!(big.await.unwrap().done());
}
