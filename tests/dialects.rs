//! Callers of every dialect over the wire: headers, events, errors, failover.

use crate::harness::{
    Action, Answer, Ask, Cut, Gate, Gateway, Provider, Tool, Usage, answering, fixed, gateway,
    provider, toml,
};
use serde_json::{Value, json};

fn messages(stream: bool) -> Ask {
    let body = json!({"model": "m", "max_tokens": 100, "stream": stream,
                      "messages": [{"role": "user", "content": "hi"}]});
    Ask::post("/v1/messages?beta=true", &body)
        .without("authorization")
        .with("x-api-key", crate::harness::KEY)
        .with("anthropic-version", "2023-06-01")
}

fn responses(stream: bool) -> Ask {
    Ask::post("/v1/responses", &json!({"model": "m", "input": "hi", "stream": stream}))
}

fn anthropic(provider: &Provider) -> String {
    [toml::anthropic("a", provider), toml::model("m", &["a/up-model"]), toml::key()].concat()
}

fn tool() -> Answer {
    let tool = Tool { id: "call_1".into(), name: "f".into(), arguments: "{\"a\":1}".into() };
    Answer { tools: vec![tool], finish: "tool_calls".into(), ..Answer::default() }
}

/// Type and data of each event of a stream.
fn events(text: &str) -> Vec<(String, Value)> {
    let each = |block: &str| {
        let (mut name, mut data) = (String::new(), Value::Null);
        for line in block.lines() {
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = serde_json::from_str(text).unwrap();
            }
        }
        (name, data)
    };
    let blocks = text.split("\n\n").filter(|block| block.contains("data: "));
    blocks.map(each).collect()
}

async fn both_wires(answer: Answer) -> Vec<(Gateway, Provider)> {
    let mut all = vec![];
    for config in [toml::simple as fn(&Provider) -> String, anthropic] {
        let provider = answering(answer.clone()).await;
        all.push((gateway(&config(&provider)).await, provider));
    }
    all
}

#[tokio::test]
async fn messages_reach_either_wire_as_a_stream_and_whole() {
    for (weir, provider) in both_wires(tool()).await {
        let reply = weir.ask(&messages(false)).await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
        let body = reply.json();
        assert_eq!((&body["type"], &body["stop_reason"]), (&json!("message"), &json!("tool_use")));
        assert_eq!(body["content"][0]["text"], "Hello world!");
        assert_eq!(body["content"][1]["input"], json!({"a": 1}));
        assert_eq!(reply.header("x-weir-upstream"), Some("a"));
        assert!(reply.header("x-weir-cost-usd").is_some());

        let reply = weir.ask(&messages(true)).await;
        let events = events(&reply.text());
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        assert_eq!(events.first().unwrap().0, "message_start");
        assert_eq!(events.last().unwrap().0, "message_stop");
        let texts = events.iter().filter_map(|(_, e)| e["delta"]["text"].as_str());
        assert_eq!(texts.collect::<String>(), "Hello world!");

        let booked = weir.events().await;
        for event in &booked {
            assert_eq!(
                (&event["endpoint"], &event["dialect"]),
                (&json!("messages"), &json!("anthropic"))
            );
            assert_eq!(
                (&event["outcome"], &event["usage_source"]),
                (&json!("success"), &json!("provider"))
            );
            assert_eq!((&event["input_tokens"], &event["output_tokens"]), (&json!(9), &json!(3)));
            assert_eq!(event["cost_nano_usd"], 15_000);
        }
        assert_eq!((booked.len(), provider.count()), (2, 2));
        assert_eq!(weir.metric("weir_requests_total", &[("endpoint", "messages")]), Some(2.0));
    }
}

#[tokio::test]
async fn responses_reach_either_wire_as_a_stream_and_whole() {
    for (weir, _provider) in both_wires(tool()).await {
        let body = weir.ask(&responses(false)).await.json();
        assert_eq!((&body["object"], &body["status"]), (&json!("response"), &json!("completed")));
        assert_eq!(body["output"][0]["content"][0]["text"], "Hello world!");
        assert_eq!(body["output"][1]["arguments"], "{\"a\":1}");
        assert_eq!(body["usage"]["total_tokens"], 12);

        let events = events(&weir.ask(&responses(true)).await.text());
        assert_eq!(events.first().unwrap().0, "response.created");
        let (last, data) = events.last().unwrap();
        assert_eq!(
            (last.as_str(), &data["response"]["output"][1]["name"]),
            ("response.completed", &json!("f"))
        );
        let booked = weir.events().await;
        assert!(booked.iter().all(|e| e["endpoint"] == "responses" && e["outcome"] == "success"));
        assert_eq!(booked.len(), 2);
    }
}

#[tokio::test]
async fn errors_are_told_in_the_caller_s_dialect() {
    let error = json!({"error": {"message": "slow down", "type": "rate_limit_error"}});
    let limited =
        provider(fixed(vec![Action::json_with(429, &[("retry-after", "60")], &error)])).await;
    let weir = gateway(&toml::simple(&limited)).await;
    let reply = weir.ask(&messages(true)).await;
    let body = reply.json();
    assert_eq!((reply.status(), reply.header("retry-after")), (429, Some("60")));
    assert_eq!(
        (&body["type"], &body["error"]["type"]),
        (&json!("error"), &json!("rate_limit_error"))
    );
    assert!(body["request_id"].is_string());
    for (ask, status, kind) in [
        (messages(false).body("{"), 400, "invalid_request_error"),
        (messages(false).set("max_tokens", 0), 400, "invalid_request_error"),
        (messages(false).model("none"), 404, "not_found_error"),
        (messages(false).without("x-api-key"), 401, "authentication_error"),
    ] {
        let reply = weir.ask(&ask).await;
        assert_eq!((reply.status(), &reply.json()["error"]["type"]), (status, &json!(kind)));
    }
    let weir = gateway(&toml::simple(&answering(Answer::default()).await)).await;
    let reply = weir.ask(&responses(false).set("previous_response_id", "resp_1")).await;
    assert_eq!(reply.error(), (400, "invalid_request".into()));
    assert_eq!(reply.json()["error"]["param"], "previous_response_id");
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_the_dialect_s_own_error() {
    let answer = Answer { cut: Some((2, Cut::Reset)), ..Answer::default() };
    for (weir, _provider) in both_wires(answer).await {
        let last = events(&weir.ask(&messages(true)).await.text()).pop().unwrap();
        assert_eq!((last.0.as_str(), &last.1["error"]["type"]), ("error", &json!("api_error")));
        let all = events(&weir.ask(&responses(true)).await.text());
        let (name, data) = all.last().unwrap();
        assert_eq!(name, "response.failed");
        assert_eq!(data["response"]["error"]["code"], "upstream_error");
        assert_eq!(data["sequence_number"], all.len() - 1);
        let booked = weir.events().await;
        assert!(booked.iter().all(|event| event["outcome"] == "truncated"), "{booked:#?}");
    }
}

#[tokio::test]
async fn a_caller_of_messages_fails_over_from_one_wire_to_the_other() {
    let broken =
        provider(fixed(vec![Action::json(500, &json!({"error": {"message": "x"}}))])).await;
    let sound = answering(Answer::default()).await;
    let config = [
        toml::anthropic("a", &broken),
        toml::openai("b", &sound),
        toml::model("m", &["a/up-model", "b/up-model"]),
        toml::key(),
    ];
    let weir = gateway(&config.concat()).await;
    for stream in [false, true] {
        let reply = weir.ask(&messages(stream)).await;
        assert_eq!((reply.status(), reply.header("x-weir-upstream")), (200, Some("b")));
        assert!(reply.text().contains("end_turn"));
    }
}

#[tokio::test]
async fn the_first_word_is_not_held_back_by_the_translation() {
    let gate = Gate::new();
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        Action::Sse(json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
                           "model": "up-model", "choices": [choice]}))
    };
    let script = vec![
        Action::stream(),
        chunk(json!({"role": "assistant", "content": "first"}), Value::Null),
        Action::Pass(gate.clone()),
        chunk(json!({}), "stop".into()),
        Action::text("data: [DONE]\n\n"),
    ];
    let provider = provider(fixed(script)).await;
    let weir = gateway(&toml::simple(&provider)).await;
    let mut client = weir.client().await;
    client.send(&messages(true).bytes()).await;
    assert_eq!(client.head().await.status, 200);
    // The end is not sent yet: whoever gathers would wait here for ever.
    client.events_until("first").await;
    gate.open(1);
    let (rest, _) = client.rest().await;
    assert!(rest.trim_end().ends_with("{\"type\":\"message_stop\"}"), "{rest}");
}

#[tokio::test]
async fn what_a_provider_cannot_say_is_named_or_refused() {
    let provider = answering(Answer::default()).await;
    let weir = gateway(&toml::simple(&provider)).await;
    let reply = weir.ask(&messages(false).set("top_k", 5)).await;
    assert_eq!(reply.header("x-weir-dropped"), Some("top_k"));
    let strict = toml::simple(&provider).replace("[models.\"m\"]", "[models.\"m\"]\nstrict = true");
    let weir = gateway(&strict).await;
    let reply = weir.ask(&messages(false).set("top_k", 5)).await;
    assert_eq!(reply.status(), 400);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("`top_k`"));
}

#[tokio::test]
async fn counting_costs_nothing_and_asks_nobody() {
    let provider = answering(Answer::default()).await;
    let weir = gateway(&toml::simple(&provider)).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Say hello"}]});
    let reply = weir.ask(&Ask::post("/v1/messages/count_tokens", &body)).await;
    assert!(reply.json()["input_tokens"].as_u64().unwrap() > 0);
    assert_eq!((provider.count(), weir.events().await.len()), (0, 0));
}

#[tokio::test]
async fn embeddings_come_as_asked_and_are_booked_by_their_prompt() {
    let reply = json!({"object": "list", "model": "e", "data": [{"object": "embedding", "index": 0,
        "embedding": [0.5, -1.25]}], "usage": {"prompt_tokens": 4, "total_tokens": 4}});
    let provider = provider(fixed(vec![Action::json(200, &reply)])).await;
    let weir = gateway(&toml::simple(&provider)).await;
    let body = json!({"model": "m", "input": "x", "encoding_format": "base64"});
    let reply = weir.ask(&Ask::post("/v1/embeddings", &body)).await;
    assert_eq!(reply.json()["data"][0]["embedding"], "AAAAPwAAoL8=");
    let event = weir.event().await;
    assert_eq!((&event["endpoint"], &event["input_tokens"]), (&json!("embeddings"), &json!(4)));
    assert_eq!((&event["output_tokens"], &event["cost_nano_usd"]), (&json!(0), &json!(4000)));
}

#[tokio::test]
async fn audio_is_handed_on_as_a_form_and_back_as_it_is() {
    let reply = json!({"text": "hello", "duration": 2.5});
    let heard = provider(fixed(vec![Action::json(200, &reply)])).await;
    let priced =
        toml::simple(&heard).replace("output = 2.0", "output = 2.0, audio_second = 0.0001");
    let weir = gateway(&priced).await;
    let form = |model: &str| {
        format!(
            "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n\
             RIFF\0\r\n--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n\
             --XX--\r\n"
        )
    };
    let ask = Ask::raw("POST", "/v1/audio/transcriptions", form("m").into())
        .with("content-type", "multipart/form-data; boundary=XX")
        .key(crate::harness::KEY);
    assert_eq!(weir.ask(&ask).await.json()["text"], "hello");
    let seen = heard.requests();
    assert_eq!(seen[0].request.body, form("up-model"));
    assert_eq!(
        seen[0].request.header("content-type"),
        Some("multipart/form-data; boundary=\"XX\"")
    );
    assert_eq!(seen[0].request.route(), "/v1/audio/transcriptions");
    let event = weir.event().await;
    assert_eq!(
        (&event["units"]["seconds"], &event["cost_nano_usd"]),
        (&json!(2.5), &json!(250_000))
    );

    let headers = vec![("content-type".to_owned(), "audio/mpeg".to_owned())];
    let speech = provider(fixed(vec![Action::Whole(200, headers, vec![0xff, 0xfb].into())])).await;
    let weir = gateway(&toml::simple(&speech)).await;
    let body = json!({"model": "m", "input": "héllo", "voice": "alloy"});
    let reply = weir.ask(&Ask::post("/v1/audio/speech", &body)).await;
    assert_eq!(
        (reply.body(), reply.header("content-type")),
        (vec![0xff, 0xfb], Some("audio/mpeg"))
    );
    assert_eq!(weir.event().await["units"]["characters"], 5);
}

#[tokio::test]
async fn what_a_gathered_stream_says_is_booked_and_its_error_found() {
    let delta = "data: {\"type\":\"transcript.text.delta\",\"delta\":\"hel\"}\n\n";
    let done = "data: {\"type\":\"transcript.text.done\",\"text\":\"hello\",\
                \"usage\":{\"type\":\"tokens\",\"input_tokens\":14,\"output_tokens\":3}}\n\n";
    let events = |text: String| {
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        vec![Action::Whole(200, headers, text.into())]
    };
    let failed = format!("{delta}data: {{\"error\":{{\"message\":\"boom\"}}}}\n\n");
    let form = "--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n\
                --XX\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--XX--\r\n";
    for (sent, status, tokens) in
        [(format!("{delta}{done}"), 200, 14), (failed, 502, 0), (delta.to_owned(), 502, 0)]
    {
        let heard = provider(fixed(events(sent.clone()))).await;
        let weir = gateway(&toml::simple(&heard)).await;
        let ask = Ask::raw("POST", "/v1/audio/transcriptions", form.into())
            .with("content-type", "multipart/form-data; boundary=XX")
            .key(crate::harness::KEY);
        let reply = weir.ask(&ask).await;
        assert_eq!(reply.status(), status, "{sent}");
        assert!(status != 200 || reply.body() == sent.as_bytes(), "as it came");
        let event = weir.event().await;
        assert_eq!(event["input_tokens"], tokens, "{sent}: {event:#}");
    }
}

#[tokio::test]
async fn who_thinks_gets_its_thoughts_back_within_an_agents_tool_loop() {
    let loops = [
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 100, "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "r"}]}]}),
        ),
        (
            "/v1/responses",
            json!({"model": "m", "input": [
                {"role": "user", "content": "go"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "r"}]}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1",
                    "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "r"}]}),
        ),
    ];
    for preset in ["deepseek", "moonshot", "zhipu"] {
        let a = answering(Answer::default()).await;
        let text = toml::custom("a", preset, &a.url(), "") + &toml::model("m", &["a/up-model"]);
        let weir = gateway(&(text + &toml::key())).await;
        for (path, body) in &loops {
            let reply = weir.ask(&Ask::post(path, body)).await;
            assert_eq!(reply.status(), 200, "{preset} {path}: {}", reply.text());
            let sent = a.requests().pop().unwrap().request.json();
            // Clients of OpenAI's chat keep none; a call without any is answered 400.
            let want = if path.contains("chat") { " " } else { "hm" };
            assert_eq!(sent["messages"][1]["reasoning_content"], want, "{preset} {path}: {sent}");
            assert_eq!(sent["messages"][1]["tool_calls"][0]["id"], "call_1", "{preset} {path}");
        }
    }
}

#[tokio::test]
async fn rerank_reaches_cohere_and_is_charged_by_the_search() {
    let reply = json!({"id": "r", "results": [{"index": 1, "relevance_score": 0.9}],
        "meta": {"billed_units": {"search_units": 1}}});
    let a = provider(fixed(vec![Action::json(200, &reply)])).await;
    let table = toml::custom("a", "cohere", &a.url(), "");
    let table = table.replace("output = 2.0", "output = 2.0, per_request = 0.002");
    let weir = gateway(&(table + &toml::key())).await;
    let body = json!({"model": "a/up-model", "query": "q", "documents": ["x", "y"], "top_n": 1});
    assert_eq!(weir.ask(&Ask::post("/v1/rerank", &body)).await.json(), reply);
    let seen = a.requests().remove(0).request;
    assert!(seen.route().ends_with("/rerank"), "{}", seen.route());
    let sent: Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!((&sent["model"], &sent["documents"]), (&json!("up-model"), &json!(["x", "y"])));
    let event = weir.event().await;
    assert_eq!((&event["cost_nano_usd"], &event["input_tokens"]), (&json!(2_000_000), &json!(0)));
}

#[tokio::test]
async fn cached_tokens_are_told_and_charged_apart_in_every_dialect() {
    let usage = Usage { input: 1000, cached: 800, output: 10, reasoning: 0 };
    let answer = Answer { usage: Some(usage), ..Answer::default() };
    for (weir, _provider) in both_wires(answer).await {
        let told = weir.ask(&messages(false)).await.json()["usage"].clone();
        assert_eq!(
            (&told["input_tokens"], &told["cache_read_input_tokens"]),
            (&json!(200), &json!(800))
        );
        let told = weir.ask(&responses(false)).await.json()["usage"].clone();
        assert_eq!(told["input_tokens"], 1000);
        assert_eq!(told["input_tokens_details"]["cached_tokens"], 800);
        // 200 at 1 USD a million, 800 at 0.1, 10 at 2.
        let costs = weir.events().await;
        assert!(costs.iter().all(|event| event["cost_nano_usd"] == 300_000), "{costs:#?}");
    }
}
