//! Every wait has its end: who is told, what is booked, and that the provider hears of it.

use crate::failover::config;
use crate::harness::*;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// `first_token`, `idle`, `reply` and `total` of one provider, no second try.
fn waits(first: &str, idle: &str, reply: &str, total: &str) -> String {
    format!(
        "timeouts = {{ connect = \"300ms\", first_token = \"{first}\", idle = \"{idle}\", \
         reply = \"{reply}\", total = \"{total}\" }}\nretry = {{ attempts = 1 }}\n"
    )
}

/// One provider behind `m`, with these lines.
fn single(a: &Provider, more: &str) -> String {
    let model = toml::model("m", &["a/up-model"]);
    [toml::custom("a", "openai", &a.url(), more), model, toml::key()].concat()
}

fn word(text: &str) -> Action {
    let choice = serde_json::json!({"index": 0, "delta": {"content": text}});
    Action::Sse(serde_json::json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
                                   "model": "up-model", "choices": [choice]}))
}

/// Too late for the wait, but not late for no reason: what a loaded machine may add.
const SLACK: Duration = Duration::from_secs(3);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test]
async fn a_target_that_queues_before_its_headers_loses_the_stream_to_the_next() {
    let (a, b) = (provider(fixed(vec![Action::Hang])).await, answering(Answer::default()).await);
    let gateway = gateway(&config(&a.url(), &b, &waits("200ms", "5s", "5s", "20s"))).await;
    let start = Instant::now();
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && reply.header("x-weir-upstream") == Some("b"));
    assert!((ms(200)..SLACK).contains(&start.elapsed()), "{:?}", start.elapsed());
    soon("the first target's end", a.until(|seen| seen[0].left.is_some())).await;
}

#[tokio::test]
async fn comments_and_roles_do_not_end_the_wait_for_the_first_token() {
    let mut actions = vec![Action::stream()];
    for _ in 0..40 {
        actions.push(Action::text(": PROCESSING\n\n"));
        actions.push(Action::Wait(ms(20)));
    }
    let a = provider(fixed(actions)).await;
    let gateway = gateway(&single(&a, &waits("200ms", "100ms", "5s", "20s"))).await;
    let reply = gateway.ask(&streamed()).await;
    assert_eq!(reply.error(), (504, "upstream_timeout".into()));
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("first-token"));
    let event = gateway.event().await;
    assert_eq!((&event["outcome"], &event["ttft_ms"]), (&"timeout".into(), &().into()));
}

#[tokio::test]
async fn a_slow_start_with_comments_is_a_success() {
    let mut actions = vec![Action::stream()];
    for _ in 0..5 {
        actions.push(Action::text(": PROCESSING\n\n"));
        actions.push(Action::Wait(ms(40)));
    }
    let a = provider(std::sync::Arc::new(move |request| {
        let rest = Answer::default().reply(request).split_off(1);
        [actions.clone(), rest].concat()
    }));
    let a = a.await;
    let gateway = gateway(&single(&a, &waits("5s", "5s", "5s", "20s"))).await;
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && reply.content() == "Hello world!");
    let event = gateway.event().await;
    // Measured at the first content, not at the first comment.
    assert!(event["ttft_ms"].as_u64().unwrap() >= 200, "{event}");
    assert_eq!(event["output_tokens"], 3);
}

#[tokio::test]
async fn silence_in_the_middle_ends_in_an_error_event_and_is_booked() {
    let a = provider(fixed(vec![Action::stream(), word("one "), word("two"), Action::Hang])).await;
    let gateway = gateway(&single(&a, &waits("5s", "200ms", "5s", "20s"))).await;
    let start = Instant::now();
    let reply = gateway.ask(&streamed()).await;
    assert!((ms(200)..SLACK).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!((reply.status(), reply.content().as_str()), (200, "one two"));
    assert!(reply.error_event().unwrap().contains("idle") && !reply.text().contains("[DONE]"));
    assert_eq!(reply.end, harness_end());
    soon("the upstream's end", a.until(|seen| seen[0].left.is_some())).await;
    let event = gateway.event().await;
    assert_eq!(
        (&event["outcome"], &event["error_code"]),
        (&"timeout".into(), &"upstream_timeout".into())
    );
    assert_eq!((&event["status"], &event["output_tokens"]), (&200.into(), &2.into()));
    assert!(event["input_tokens"].as_u64().unwrap() > 0 && event["usage_source"] != "provider");
    assert!(event["cost_nano_usd"].as_u64().unwrap() > 0);
}

fn harness_end() -> reply::End {
    reply::End::Clean
}

#[tokio::test]
async fn comments_in_the_middle_do_not_hold_off_the_idle_wait() {
    let mut actions = vec![Action::stream(), word("one")];
    for _ in 0..100 {
        actions.push(Action::text(": ping\n\n"));
        actions.push(Action::Wait(ms(20)));
    }
    let a = provider(fixed(actions)).await;
    let gateway = gateway(&single(&a, &waits("5s", "300ms", "5s", "20s"))).await;
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.error_event().is_some_and(|said| said.contains("idle")), "{}", reply.text());
}

#[tokio::test]
async fn a_json_answer_that_takes_too_long_is_a_504_and_no_row_is_missing() {
    let a = provider(fixed(vec![Action::Hang])).await;
    let gateway = gateway(&single(&a, &waits("5s", "5s", "200ms", "20s"))).await;
    let reply = gateway.ask(&chat().set("max_tokens", 64_000)).await;
    assert_eq!(reply.error(), (504, "upstream_timeout".into()));
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    soon("the upstream's end", a.until(|seen| seen[0].left.is_some())).await;
    let event = gateway.event().await;
    // Nothing reached the caller: what the provider may bill stands under wasted.
    assert_eq!((&event["outcome"], &event["cost_nano_usd"]), (&"timeout".into(), &0.into()));
    assert!(event["wasted_cost_nano_usd"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn the_total_wait_bounds_every_try_together() {
    let (a, b) =
        (provider(fixed(vec![Action::Hang])).await, provider(fixed(vec![Action::Hang])).await);
    let gateway = gateway(&config(&a.url(), &b, &waits("300ms", "5s", "300ms", "500ms"))).await;
    for ask in [chat(), streamed()] {
        let start = Instant::now();
        let reply = gateway.ask(&ask).await;
        assert_eq!(reply.error(), (504, "upstream_timeout".into()));
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains("total"));
        assert!((ms(500)..SLACK).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
    for event in gateway.events().await {
        assert_eq!(
            (&event["outcome"], event["attempts"].as_array().unwrap().len()),
            (&"timeout".into(), 2)
        );
    }
    soon("both ends", b.until(|seen| seen.iter().all(|s| s.left.is_some()))).await;
}

#[tokio::test]
async fn the_total_wait_ends_a_stream_that_never_ends() {
    let mut actions = vec![Action::stream()];
    for _ in 0..200 {
        actions.push(word("x "));
        actions.push(Action::Wait(ms(10)));
    }
    let a = provider(fixed(actions)).await;
    let gateway = gateway(&single(&a, &waits("5s", "5s", "5s", "300ms"))).await;
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.content().starts_with("x x ") && reply.status() == 200);
    assert!(reply.error_event().is_some_and(|said| said.contains("total")), "{}", reply.text());
    assert_eq!(gateway.event().await["outcome"], "timeout");
}

#[tokio::test]
async fn a_connect_that_never_ends_is_given_up_in_time() {
    // A listener whose queue is full answers nothing, as a host behind a dropping firewall.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(1).unwrap();
    let address = full.local_addr().unwrap();
    let mut queued = vec![];
    while let Ok(Ok(stream)) =
        tokio::time::timeout(ms(100), tokio::net::TcpStream::connect(address)).await
    {
        queued.push(stream);
    }
    let b = answering(Answer::default()).await;
    let url = format!("http://{address}/v1");
    let gateway = gateway(&config(&url, &b, &waits("5s", "5s", "5s", "20s"))).await;
    let alone = gateway.ask(&chat().model("one")).await;
    assert_eq!(alone.error(), (504, "upstream_timeout".into()));
    assert!(alone.json()["error"]["message"].as_str().unwrap().contains("connect"));
    let healed = gateway.ask(&streamed()).await;
    assert!(healed.done() && healed.header("x-weir-upstream") == Some("b"));
    let events = gateway.events().await;
    assert_eq!(
        (&events[0]["outcome"], &events[0]["wasted_cost_nano_usd"]),
        (&"timeout".into(), &0.into())
    );
    assert_eq!(events[1]["attempts"][0]["error"], "connect");
}

#[tokio::test]
async fn an_error_body_that_never_ends_is_read_for_a_bounded_time() {
    let head = Action::Head(500, vec![("content-type".into(), "application/json".into())]);
    let a = provider(fixed(vec![head, Action::text("{\"error\":"), Action::Hang])).await;
    let b = answering(Answer::default()).await;
    let gateway = gateway(&config(&a.url(), &b, &waits("20s", "20s", "20s", "25s"))).await;
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && reply.header("x-weir-upstream") == Some("b"));
    assert_eq!(gateway.event().await["attempts"][0]["error"], "500");
}

#[tokio::test]
async fn a_wait_switched_off_is_no_wait_at_all() {
    let gate = Gate::new();
    let a = provider(fixed(vec![
        Action::stream(),
        word("one"),
        Action::Pass(gate.clone()),
        word("two"),
    ]));
    let a = a.await;
    let gateway = gateway(&single(&a, &waits("off", "off", "off", "off"))).await;
    let mut client = gateway.client().await;
    client.begin(&streamed()).await;
    assert!(client.event().await.unwrap().contains("one"));
    gate.open(1);
    assert!(client.events_until("two").await.len() == 1);
}
