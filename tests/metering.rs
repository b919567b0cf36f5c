//! What a request used and what that costs: the ledger's numbers against the text that the caller
//! really received, however the answer ended.

mod event;
mod money;

use crate::harness::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Text that no estimate by bytes gets right.
const WORDS: [&str; 6] =
    ["Antidisestablishmentarianism", " 修复了", " \n\n  {}", " 🦀🦀", " 1234567", "."];

/// One provider of this preset behind `m`, its model counted with a known tokenizer.
fn counted(a: &Provider, preset: &str) -> String {
    let provider = toml::custom("a", preset, &a.url(), "");
    let model = toml::model("m", &["a/up-model"]);
    [provider, "tokenizer = \"o200k_base\"\n".into(), model, toml::key()].concat()
}

fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}

fn answer(usage: Option<Usage>) -> Answer {
    Answer { words: WORDS.map(str::to_owned).to_vec(), usage, ..Answer::default() }
}

/// Nothing like the truth, so that nothing counted can look like it.
const TOLD: Usage = Usage { input: 1234, cached: 200, output: 777, reasoning: 50 };

/// Prompt estimate of a request, as it was admitted.
fn estimate(ask: &Ask) -> u64 {
    weir_filters::peek::chat(ask.body.clone()).unwrap().estimate()
}

/// Input, cached, output, reasoning, and whose numbers they are.
fn numbers(event: &Value) -> (u64, u64, u64, u64, &str) {
    let n = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("{name} in {event}"));
    let source = event["usage_source"].as_str().unwrap();
    let reasoning = n("reasoning_tokens");
    (n("input_tokens"), n("cached_tokens"), n("output_tokens"), reasoning, source)
}

fn is(event: &Value, outcome: &str, status: u16) {
    assert_eq!((&event["outcome"], &event["status"]), (&outcome.into(), &status.into()), "{event}");
}

/// A streamed request whose client leaves once it has everything that comes before the gate.
async fn abandoned(gateway: &Gateway, words: &[&str]) -> Ask {
    let ask = streamed();
    let mut client = gateway.client().await;
    client.begin(&ask).await;
    client.events_until(words.last().unwrap().trim()).await;
    client.abort();
    ask
}

/// An answer's stream up to its `n`th word, then a closed gate.
fn gated(answer: Answer, n: usize) -> Script {
    let broken = Answer { cut: Some((n, Cut::Hang)), ..answer };
    broken.script()
}

#[tokio::test]
async fn what_the_provider_reports_wins() {
    for preset in ["openai", "anthropic"] {
        let a = answering(answer(Some(TOLD))).await;
        let gateway = gateway(&counted(&a, preset)).await;
        for (n, ask) in [chat(), streamed()].iter().enumerate() {
            let reply = gateway.ask(ask).await;
            assert_eq!(reply.status(), 200);
            let event = gateway.events().await.remove(n);
            let reasoning = if preset == "openai" { 50 } else { 0 }; // Anthropic does not tell
            assert_eq!(numbers(&event), (1034, 200, 777, reasoning, "provider"), "{preset}");
            assert_eq!(event["cost_nano_usd"], 1034 * 1000 + 200 * 100 + 777 * 2000);
            is(&event, "success", 200);
        }
    }
}

#[tokio::test]
async fn what_the_provider_does_not_report_is_counted() {
    for preset in ["openai", "anthropic"] {
        let a = answering(answer(None)).await;
        let gateway = gateway(&counted(&a, preset)).await;
        for (n, ask) in [chat(), streamed()].iter().enumerate() {
            let reply = gateway.ask(ask).await;
            let whole = |reply: &Reply| reply.json()["choices"][0]["message"]["content"].clone();
            let text =
                if n == 0 { whole(&reply).as_str().unwrap().to_owned() } else { reply.content() };
            assert_eq!(text, WORDS.concat());
            let event = gateway.events().await.remove(n);
            let want = (estimate(ask), 0, tokens(&text) as u64, 0, "counted");
            assert_eq!(numbers(&event), want, "{preset} {n}");
            assert_eq!(event["cost_nano_usd"], want.0 * 1000 + want.2 * 2000);
            is(&event, "success", 200);
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_pays_for_what_it_received() {
    for preset in ["openai", "anthropic"] {
        for usage in [None, Some(TOLD)] {
            let a = provider(gated(answer(usage), 4)).await;
            let gateway = gateway(&counted(&a, preset)).await;
            let ask = abandoned(&gateway, &WORDS[..4]).await;
            let event = gateway.event().await;
            is(&event, "client_abort", 499);
            let (input, _, output, _, source) = numbers(&event);
            assert_eq!(output, tokens(&WORDS[..4].concat()) as u64, "{preset} {event}");
            assert!(event["cost_nano_usd"].as_u64().unwrap() >= output * 2000, "{preset}");
            if preset == "openai" || usage.is_none() {
                assert_eq!((input, source), (estimate(&ask), "counted"), "{preset}");
            }
            soon("the upstream's end", a.until(|seen| seen[0].left.is_some())).await;
            assert_eq!(event["attempts"].as_array().unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_cut_stream_pays_for_what_came_through() {
    for (cut, outcome) in
        [(Cut::Reset, "truncated"), (Cut::End, "truncated"), (Cut::Error, "upstream_error")]
    {
        for preset in ["openai", "anthropic"] {
            let a = answering(Answer { cut: Some((3, cut)), ..answer(None) }).await;
            let gateway = gateway(&counted(&a, preset)).await;
            let ask = streamed();
            let reply = gateway.ask(&ask).await;
            assert_eq!(reply.content(), WORDS[..3].concat(), "{preset} {cut:?}");
            assert!(reply.error_event().is_some() && !reply.text().contains("[DONE]"));
            let event = gateway.event().await;
            let output = tokens(&WORDS[..3].concat()) as u64;
            assert_eq!(
                numbers(&event),
                (estimate(&ask), 0, output, 0, "counted"),
                "{preset} {cut:?}"
            );
            is(&event, outcome, 200);
        }
    }
}

#[tokio::test]
async fn a_finish_without_usage_is_never_free() {
    // EOF right after the last text: no finish, no usage, no [DONE].
    let a = answering(Answer { cut: Some((6, Cut::End)), ..answer(None) }).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    let reply = gateway.ask(&streamed()).await;
    assert_eq!(reply.content(), WORDS.concat());
    let event = gateway.event().await;
    assert_eq!(event["output_tokens"], tokens(&WORDS.concat()));
    assert!(event["cost_nano_usd"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn a_client_that_leaves_before_a_json_answer_stops_the_provider_and_is_booked_once() {
    let a = provider(fixed(vec![Action::Hang])).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    let mut client = gateway.client().await;
    client.send(&chat().bytes()).await;
    soon("the request", a.until(|seen| seen.len() == 1)).await;
    client.abort();
    soon("the upstream's end", a.until(|seen| seen[0].left.is_some())).await;
    let event = gateway.event().await;
    is(&event, "client_abort", 499);
    assert_eq!(numbers(&event), (estimate(&chat()), 0, 0, 0, "estimated"));
}

#[tokio::test]
async fn what_never_reached_a_provider_is_free() {
    let nobody = Refusing::new();
    let config = [
        toml::custom("a", "openai", &nobody.url(), super::failover::QUICK),
        toml::model("m", &["a/up-model"]),
        toml::key(),
    ];
    let gateway = gateway(&config.concat()).await;
    for ask in [chat(), streamed()] {
        gateway.ask(&ask).await;
    }
    for event in gateway.events().await {
        assert_eq!(numbers(&event), (0, 0, 0, 0, "estimated"));
        assert_eq!(
            (&event["cost_nano_usd"], &event["wasted_cost_nano_usd"]),
            (&0.into(), &0.into())
        );
    }
}

/// A stream whose chunks bear these usage members.
fn with_usage(chunks: &[(&str, Value)], finish: Value) -> Script {
    let chunk = |text: Option<&str>, finish: Option<&str>, usage: &Value| {
        let delta = text.map_or(json!({}), |t| json!({"content": t}));
        Action::Sse(
            json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up-model",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": usage}),
        )
    };
    let mut actions = vec![Action::stream()];
    actions.extend(chunks.iter().map(|(text, usage)| chunk(Some(text), None, usage)));
    actions.push(chunk(None, Some("stop"), &finish));
    actions.push(Action::text("data: [DONE]\n\n"));
    fixed(actions)
}

#[tokio::test]
async fn running_totals_are_never_summed() {
    let usage =
        |n: u64| json!({"prompt_tokens": 64, "completion_tokens": n, "total_tokens": 64 + n});
    let chunks: Vec<_> = (1..5).map(|n| ("x", usage(n))).collect();
    let a = provider(with_usage(&chunks, usage(5))).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && !reply.text().contains("usage"), "nobody asked: {}", reply.text());
    assert_eq!(numbers(&gateway.event().await), (64, 0, 5, 0, "provider"));
}

#[tokio::test]
async fn usage_null_everywhere_is_counted() {
    let chunks: Vec<_> = WORDS.iter().map(|w| (*w, Value::Null)).collect();
    let a = provider(with_usage(&chunks, Value::Null)).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    let ask = streamed().set("stream_options", json!({"include_usage": true}));
    let reply = gateway.ask(&ask).await;
    assert!(reply.done());
    let event = gateway.event().await;
    let output = tokens(&WORDS.concat()) as u64;
    assert_eq!(numbers(&event), (estimate(&ask), 0, output, 0, "counted"));
    // The caller asked for numbers: it gets the ledger's, once.
    let told: Vec<_> = reply.chunks().into_iter().filter(|c| c["usage"].is_object()).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["usage"]["completion_tokens"], &told[0]["choices"]),
        (&output.into(), &json!([]))
    );
    assert_eq!(told[0]["usage"]["prompt_tokens"], estimate(&ask));
}

#[tokio::test]
async fn anthropics_totals_replace_those_of_the_start() {
    let event =
        |v: Value| Action::text(&format!("event: {}\ndata: {v}\n\n", v["type"].as_str().unwrap()));
    let start = json!({"type": "message_start", "message": {"id": "m", "type": "message",
        "role": "assistant", "model": "up-model", "content": [], "stop_reason": null,
        "usage": {"input_tokens": 30, "output_tokens": 2, "cache_read_input_tokens": 7,
                  "cache_creation_input_tokens": 4}}});
    let block = json!({"type": "text", "text": ""});
    let delta = json!({"type": "text_delta", "text": "hi"});
    let a = provider(fixed(vec![
        Action::stream(),
        event(start),
        event(json!({"type": "content_block_start", "index": 0, "content_block": block})),
        event(json!({"type": "content_block_delta", "index": 0, "delta": delta})),
        event(json!({"type": "content_block_stop", "index": 0})),
        event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                     "usage": {"output_tokens": 18}})),
        event(json!({"type": "message_stop"})),
    ]));
    let a = a.await;
    let gateway = gateway(&counted(&a, "anthropic")).await;
    assert!(gateway.ask(&streamed()).await.done());
    let event = gateway.event().await;
    assert_eq!(numbers(&event), (30, 7, 18, 0, "provider"));
    assert_eq!(event["cache_write_tokens"], 4);
    assert_eq!(event["cost_nano_usd"], 30 * 1000 + 7 * 100 + 4 * 1250 + 18 * 2000);
}

#[tokio::test]
async fn reasoning_is_inside_the_output() {
    let usage = Usage { input: 10, cached: 0, output: 500, reasoning: 400 };
    let a = answering(Answer { usage: Some(usage), ..Answer::default() }).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    gateway.ask(&chat()).await;
    let event = gateway.event().await;
    assert_eq!(numbers(&event), (10, 0, 500, 400, "provider"));
    assert_eq!(event["cost_nano_usd"], 10 * 1000 + 500 * 2000);
}

#[tokio::test]
async fn reasoning_that_passes_is_counted_as_such() {
    let thinking: Vec<_> = WORDS.map(str::to_owned).to_vec();
    let a = answering(Answer { thinking, usage: None, ..Answer::default() }).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    gateway.ask(&streamed()).await;
    let (_, _, output, reasoning, source) = {
        let event = gateway.event().await;
        let (a, b, c, d, e) = numbers(&event);
        (a, b, c, d, e.to_owned())
    };
    assert_eq!(reasoning, tokens(&WORDS.concat()) as u64);
    assert_eq!((output, source.as_str()), (reasoning + tokens("Hello world!") as u64, "counted"));
}

#[tokio::test]
async fn an_error_inside_a_stream_is_no_output() {
    let message = "x ".repeat(1000);
    let error = json!({"error": {"message": message, "type": "server_error", "code": null}});
    let a = provider(fixed(vec![Action::stream(), Action::Sse(error)])).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    assert_eq!(gateway.ask(&streamed()).await.error(), (502, "upstream_error".into()));
    let event = gateway.event().await;
    assert_eq!((&event["output_tokens"], &event["cost_nano_usd"]), (&0.into(), &0.into()));
    // At most its prompt: the error's words are not generated text.
    assert_eq!(event["wasted_cost_nano_usd"], estimate(&streamed()) * 1000);
}

#[tokio::test]
async fn a_retried_request_is_booked_once() {
    let body = json!({"error": {"message": "x"}});
    let used = Usage { input: 10, cached: 0, output: 20, reasoning: 0 };
    let good = Answer { usage: Some(used), ..Answer::default() }.script();
    let (a, b) = (provider(fixed(vec![Action::json(500, &body)])).await, provider(good).await);
    let gateway = gateway(&toml::pair(&a, &b)).await;
    gateway.ask(&chat()).await;
    let event = gateway.event().await;
    assert_eq!(numbers(&event), (10, 0, 20, 0, "provider"));
    assert_eq!(event["attempts"].as_array().map(Vec::len), Some(2));
    let labels = [("team", "crew"), ("type", "output")];
    assert_eq!(gateway.metric("weir_tokens_total", &labels), Some(20.0));
    assert_eq!(gateway.metric("weir_requests_total", &[]), Some(1.0));
}

#[tokio::test]
async fn a_stream_of_many_small_texts_is_counted_exactly() {
    let words: Vec<String> = (0..400).map(|i| format!("{}字{i}", " x".repeat(i % 3))).collect();
    let text = words.concat();
    let a = answering(Answer { words, usage: None, ..Answer::default() }).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    assert_eq!(gateway.ask(&streamed()).await.content(), text);
    assert_eq!(gateway.event().await["output_tokens"], tokens(&text));
}

#[tokio::test]
async fn the_event_is_there_before_the_answer_ends() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&counted(&a, "openai")).await;
    for n in 1..=5 {
        let mut client = gateway.client().await;
        client.begin(&streamed()).await;
        client.events_until("[DONE]").await;
        // No wait: whoever sees the end finds the row.
        assert_eq!(spool::read(&gateway.spool()).len(), n);
    }
    let gate = Gate::new();
    let (held, answer) = (gate.clone(), Answer::default());
    a.play(Arc::new(move |request| {
        let mut actions = answer.reply(request);
        actions.insert(actions.len() - 1, Action::Pass(held.clone()));
        actions
    }));
    let mut client = gateway.client().await;
    client.begin(&streamed()).await;
    client.events_until("world").await;
    assert_eq!(spool::read(&gateway.spool()).len(), 5);
    gate.open(1);
    client.events_until("[DONE]").await;
    assert_eq!(spool::read(&gateway.spool()).len(), 6);
    let reached = Duration::from_millis(gateway.events().await[5]["duration_ms"].as_u64().unwrap());
    assert!(reached < PATIENCE);
}
