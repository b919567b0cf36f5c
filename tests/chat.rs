//! Chat through the gateway: what the provider gets of a request, and who may send one.

mod access;
mod routing;

use crate::harness::*;
use bytes::Bytes;
use serde_json::{Value, json};

/// What provider `a` was sent last.
fn sent(a: &Provider) -> Bytes {
    a.requests().pop().unwrap().request.body
}

/// Every oddity that a parser in between would straighten.
const ODD: &str = "{ \"zebra\":1.0, \"apple\" : 1e400,\"mango\":12345678901234567890,\n\
    \"mod\\u0065l\":  \"m\" ,\"messages\":[{\"role\":\"user\",\"model\":\"m\",\
    \"content\":\"\\u00e9\\/\\ud83e\\udd80 \u{4fee}\"}],\"once\":1,\"Once\":2,\"temperature\":0.50,\
    \"tools\":[{\"z\":-0.0,\"a\":[1E+2]}],\"seed\":-0, \"max_tokens\" :7,\"user\":null }";

#[tokio::test]
async fn a_request_reaches_the_provider_byte_by_byte_but_for_its_model() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let want = ODD.replacen("\"m\" ,", "\"up-model\" ,", 1);
    for ask in [chat().body(ODD), chat().body(ODD).chunked(7)] {
        assert_eq!(gateway.ask(&ask).await.status(), 200);
        assert_eq!(sent(&a), want);
    }
    assert_eq!(gateway.h2().await.ask(&chat().body(ODD)).await.status(), 200);
    assert_eq!(sent(&a), want);
    for seen in a.requests() {
        let lengths =
            seen.request.headers.iter().filter(|(k, _)| k.eq_ignore_ascii_case("content-length"));
        let lengths: Vec<_> = lengths.map(|(_, v)| v.as_str()).collect();
        assert_eq!(lengths, [want.len().to_string()]);
        assert_eq!(seen.request.header("transfer-encoding"), None);
    }
}

#[tokio::test]
async fn a_stream_differs_by_the_usage_we_ask_for_and_nothing_else() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let odd = ODD.replacen("{ ", "{ \"stream\":true,", 1);
    assert!(gateway.ask(&streamed().body(odd.clone())).await.done());
    let want = odd.replacen("\"m\" ,", "\"up-model\" ,", 1);
    let (got, option) = (sent(&a), "\"stream_options\":{\"include_usage\":true}");
    let got = std::str::from_utf8(&got).unwrap();
    let rest = got.replacen(option, "", 1);
    assert!(rest.len() < got.len(), "{got}");
    // The comma of the member is inside; where it is put is not the point.
    assert_eq!(rest.replace(',', ""), want.replace(',', ""));
    assert!(serde_json::from_str::<&serde_json::value::RawValue>(got).is_ok(), "{got}");
    // A caller that asks itself is not touched.
    let asks = odd.replacen("{ ", "{\"stream_options\":{ \"x\":1.0,\"include_usage\":true} ,", 1);
    assert!(gateway.ask(&streamed().body(asks.clone())).await.done());
    assert_eq!(sent(&a), asks.replacen("\"m\" ,", "\"up-model\" ,", 1));
}

#[tokio::test]
async fn members_of_ours_never_travel() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let ask = chat()
        .body(
            "{\"task_type\":\"chat\",\"model\":\"m\",\"extra_body\":{\"top_k\":1.50,\"seed\":9},\
             \"seed\":1,\"messages\":[{}],\"budget_tier\":\"low\"}",
        )
        .with("x-weir-retry", "none")
        .with("x-weir-max-latency-ms", "5");
    assert_eq!(gateway.ask(&ask).await.status(), 200);
    let body = sent(&a);
    let want: Value = json!({"model": "up-model", "seed": 9, "messages": [{}], "top_k": 1.5});
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), want);
    assert!(body.windows(4).any(|w| w == b"1.50"));
    let headers = a.requests().pop().unwrap().request.headers;
    assert!(headers.iter().all(|(k, _)| !k.to_ascii_lowercase().starts_with("x-weir")));
    let event = gateway.event().await;
    assert_eq!((&event["task_type"], &event["budget_tier"]), (&"chat".into(), &"low".into()));
}

#[tokio::test]
async fn nothing_of_the_callers_credentials_and_connection_travels() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let secrets = [
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "proxy-authorization",
        "cookie",
        "openai-organization",
        "openai-project",
        "x-forwarded-for",
        "x-real-ip",
        "forwarded",
        "idempotency-key",
        "x-hop",
    ];
    let mut ask = chat()
        .with("traceparent", &format!("00-{trace}-b7ad6b7169203331-01"))
        .with("tracestate", "hidden-value")
        .with("x-request-id", "mine-7")
        .with("accept-encoding", "gzip")
        .with("openai-beta", "kept-value");
    for name in secrets {
        ask = ask.with(name, "hidden-value");
    }
    // `connection` and `te` have no place in h2, which forbids them.
    let h1 = ask.clone().with("connection", "keep-alive, x-hop").with("te", "trailers");
    gateway.ask(&h1).await;
    gateway.h2().await.ask(&ask.without("x-hop")).await;
    for seen in a.requests() {
        let all = format!("{:?}", seen.request.headers);
        for hidden in ["hidden-value", KEY, "trailers", "keep-alive, x-hop", "b7ad6b7169203331"] {
            assert!(!all.contains(hidden), "{hidden} in {all}");
        }
        let header = |name: &str| seen.request.header(name);
        assert_eq!(header("authorization"), Some("Bearer sk-upstream-a"));
        assert_eq!(header("host"), Some(format!("127.0.0.1:{}", a.port()).as_str()));
        assert_eq!(header("accept-encoding"), Some("identity"));
        assert_eq!(header("content-type"), Some("application/json"));
        assert_eq!(header("openai-beta"), Some("kept-value"));
        assert_eq!(header("x-request-id"), Some("mine-7"));
        let parent = header("traceparent").unwrap();
        assert!(parent.starts_with(&format!("00-{trace}-")) && parent.len() == 55, "{parent}");
        assert_eq!(seen.request.path, "/v1/chat/completions");
        for name in ["transfer-encoding", "te", "upgrade", "expect", "keep-alive"] {
            assert_eq!(header(name), None, "{name}");
        }
        let mut names: Vec<_> =
            seen.request.headers.iter().map(|(k, _)| k.to_lowercase()).collect();
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }
}

#[tokio::test]
async fn params_are_renamed_dropped_filled_and_clamped() {
    let a = answering(Answer::default()).await;
    let params = "params = { rename = { max_tokens = \"max_completion_tokens\" }, \
                  drop = [\"logit_bias\"], \
                  defaults = { top_p = 0.5, seed = 3 }, clamp = { temperature = [0.0, 1.0] } }\n\
                  headers = { \"x-team\" = \"edge\" }\n";
    let config = [
        toml::custom("a", "openai", &a.url(), params),
        toml::model("m", &["a/up-model"]),
        toml::key(),
    ];
    let gateway = gateway(&config.concat()).await;
    let ask = chat().body(
        "{\"temperature\":1.7,\"model\":\"m\",\"logit_bias\":{\"1\":2},\"messages\":[{}],\
         \"max_tokens\":70,\"seed\":1}",
    );
    let reply = gateway.ask(&ask).await;
    assert_eq!((reply.status(), reply.header("x-weir-dropped")), (200, Some("logit_bias")));
    let body: Value = serde_json::from_slice(&sent(&a)).unwrap();
    let want = json!({"temperature": 1, "model": "up-model", "messages": [{}],
                      "max_completion_tokens": 70, "seed": 1, "top_p": 0.5});
    assert_eq!(body, want);
    assert_eq!(a.requests()[0].request.header("x-team"), Some("edge"));
    assert_eq!(
        a.requests()[0].request.header("content-length"),
        Some(sent(&a).len().to_string().as_str())
    );
    let inside = ask.body("{\"temperature\":0.70,\"model\":\"m\",\"messages\":[{}]}");
    assert_eq!(gateway.ask(&inside).await.header("x-weir-dropped"), None);
    assert!(sent(&a).starts_with(b"{\"temperature\":0.70,\"model\":\"up-model\""));
}

#[tokio::test]
async fn a_sound_answer_is_the_providers_own_bytes_with_our_headers() {
    let body = "{ \"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"up-model\",\
        \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\\u0041\",\
        \"odd\":1.0},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\
        \"completion_tokens\":3,\"total_tokens\":12,\"new\":1e400} }";
    let headers = [
        ("content-type", "application/json"),
        ("x-request-id", "theirs"),
        ("x-ratelimit-remaining-tokens", "7"),
        ("openai-organization", "org-hidden"),
        ("server", "x"),
    ];
    let headers = headers.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
    let a = provider(fixed(vec![Action::Whole(200, headers, body.into())])).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let reply = gateway.ask(&chat().with("x-request-id", "bad id")).await;
    assert_eq!(reply.text(), body);
    for (name, value) in [
        ("content-type", Some("application/json")),
        ("x-weir-upstream", Some("a")),
        ("x-weir-model", Some("up-model")),
        ("x-weir-attempts", Some("1")),
        ("x-weir-cost-usd", Some("0.000015")),
        ("x-weir-cache", None),
        ("x-weir-degraded", None),
        ("x-ratelimit-remaining-tokens", None),
        ("openai-organization", None),
    ] {
        assert_eq!(reply.header(name), value, "{name}");
    }
    assert_eq!(reply.header("content-length"), Some(body.len().to_string().as_str()));
    let (id, event) = (reply.header("x-request-id").unwrap(), gateway.event().await);
    assert!(id.starts_with("req-"), "{id}");
    assert_eq!(
        (&event["request_id"], a.requests()[0].request.header("x-request-id")),
        (&id.into(), Some(id))
    );
}

#[tokio::test]
async fn an_anthropic_provider_answers_chat() {
    let tool =
        Tool { id: "t1".into(), name: "get_time".into(), arguments: "{\"tz\":\"A\"}".into() };
    let a =
        answering(Answer { tools: vec![tool], finish: "tool_calls".into(), ..Answer::default() })
            .await;
    let config = [toml::anthropic("a", &a), toml::model("m", &["a/up-model"]), toml::key()];
    let gateway = gateway(&config.concat()).await;
    let json = gateway.ask(&chat()).await.json();
    let message = &json["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &json["choices"][0]["finish_reason"]),
        (&"Hello world!".into(), &"tool_calls".into())
    );
    assert_eq!(message["tool_calls"][0]["function"]["name"], "get_time");
    assert_eq!(json["usage"]["total_tokens"], 12);
    let stream = gateway.ask(&streamed()).await;
    assert!(
        stream.done() && stream.content() == "Hello world!" && stream.finishes() == ["tool_calls"]
    );
    for seen in a.requests() {
        assert_eq!(seen.request.path, "/v1/messages");
        assert_eq!(seen.request.header("x-api-key"), Some("sk-upstream-a"));
        assert_eq!(
            (
                seen.request.header("authorization"),
                seen.request.header("anthropic-version").is_some()
            ),
            (None, true)
        );
        let body = seen.request.json();
        assert!(body["max_tokens"].as_u64().is_some_and(|n| n > 0) && body["model"] == "up-model");
        assert_eq!(body["messages"][0]["role"], "user");
    }
}
