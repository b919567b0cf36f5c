//! HTTP around the body: framing, compression, headers of one hop.

use super::*;
use crate::harness::reply::End;
use base64::Engine as _;
use bytes::Bytes;

/// `{"…","content":"plain",…}` as a completion, by gzip.
const WHOLE: &str = "H4sIAAAAAAACA0WP3Q6CMAyFX4X0Wo3olb6KMWSMCtPRLrQkJoR3t5tR7s75evq3QOjgWoGHXQXcPtFrsYPTg+cxRdTAlIt+QqeYw7W5kTuMOTmn/VfnyMDBoxi+LRCow7fJY06jiOvR3AITxyzAiQRRR1o6mRSprE7RBYLVYOQ+TdzmeTTHaOQRKMjQ2CViR1lYlBOsdyvN/wXWMyZtlF9IufdS5v9e2fjZuLK6uKH6tK4f6gMKaBIBAAA=";

/// `{"error":{"message":"slow down",…}}`, by gzip.
const REFUSAL: &str = "H4sIAAAAAAACA6tWSi0qyi9SslKoVspNLS5OTE8FspWKc/LLFVLyy/OUdBSUSioLwIJFiSWp8TmZuZkl8RBNQLmCxKLEXKBkXmlODpCbnJ+CplSpthYAt4kd0WQAAAA=";

/// A stream that says `plain`, by gzip, flushed after each event.
const STREAM: [&str; 5] = [
    "H4sIAAAAAAACAyRNzQrCMAy+7ylKzjr0ulcRkdhGWu2SsaYwkL67ab19/19AxcV9IQVYHHg4OZDnm7wOGlFnL+uWSZPw7GPlT4/4nVCpV67GVgmUe75u5z/ukSjJUzH5Zusc6DB4McN8Reifu2TqNSwlFUXW0RNW4nEPzfgrcSrxYYdF2FSuObd7m6YfAAAA//8=",
    "ShlAlyM5siAHvzMBAAAA//8=",
    "GiTOTMzMw+9OAAAAAP//",
    "GkB3YnOXUnFJfoES2GUAAAAA//8=",
    "grgs2sXfzzWWiwsAAAD//wMANYqWe7ECAAA=",
];

fn bytes(text: &str) -> Bytes {
    base64::engine::general_purpose::STANDARD.decode(text).unwrap().into()
}

fn headers(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[tokio::test]
async fn a_compressed_reply_is_read_and_leaves_plain() {
    let json = headers(&[("content-type", "application/json"), ("content-encoding", "gzip")]);
    let events = headers(&[("content-type", "text/event-stream"), ("content-encoding", "gzip")]);
    let provider = provider(fixed(vec![])).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let ask = |ask: Ask| ask.with("accept-encoding", "br, gzip");

    provider.play(fixed(vec![Action::Whole(200, json.clone(), bytes(WHOLE))]));
    let whole = weir.ask(&ask(chat())).await;
    assert_eq!(whole.header("content-encoding"), None);
    assert_eq!(whole.json()["choices"][0]["message"]["content"], "plain");
    assert_eq!(newest(&weir, 1).await["output_tokens"], 3);

    provider.play(fixed(vec![Action::Whole(429, json, bytes(REFUSAL))]));
    let refusal = weir.ask(&ask(chat())).await;
    assert_eq!(refusal.error(), (429, "upstream_rate_limited".into()));
    assert_eq!(refusal.header("content-encoding"), None);

    let mut script = vec![Action::Head(200, events)];
    script.extend(STREAM.iter().map(|piece| Action::Body(bytes(piece))));
    provider.play(fixed(script));
    let stream = weir.ask(&ask(streamed())).await;
    assert_eq!(stream.header("content-encoding"), None);
    assert!(stream.done() && stream.content() == "plain", "{:?}", stream.text());

    for seen in provider.requests() {
        assert_eq!(seen.request.header("accept-encoding"), Some("identity"));
    }
}

#[tokio::test]
async fn a_rewritten_stream_is_chunked_whatever_length_the_provider_gave() {
    let mut text = String::new();
    for action in Answer::default().reply(&stream_request()) {
        match action {
            Action::Sse(value) => text.push_str(&format!("data: {value}\n\n")),
            Action::Body(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            _ => {}
        }
    }
    let events = headers(&[("content-type", "text/event-stream")]);
    let provider = provider(fixed(vec![Action::Whole(200, events, text.into())])).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let reply = weir.ask(&streamed()).await;
    assert_eq!(reply.header("content-length"), None);
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    assert!(reply.done() && reply.content() == "Hello world!");
}

#[tokio::test]
async fn headers_of_one_hop_go_no_further() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let ask = chat()
        .with("connection", "keep-alive, x-private")
        .with("x-private", "1")
        .with("keep-alive", "timeout=5")
        .with("proxy-authorization", "Basic eDp5")
        .with("te", "trailers")
        .with("x-public", "2");
    assert_eq!(weir.ask(&ask).await.status(), 200);
    let request = provider.requests().pop().unwrap().request;
    for gone in ["x-private", "keep-alive", "proxy-authorization", "te", "transfer-encoding"] {
        assert_eq!(request.header(gone), None, "{gone}");
    }
    let host = format!("127.0.0.1:{}", provider.port());
    assert_eq!(request.header("host"), Some(host.as_str()));
    let lengths = request.headers.iter().filter(|(k, _)| k.eq_ignore_ascii_case("content-length"));
    assert_eq!(lengths.count(), 1);
}

#[tokio::test]
async fn every_framing_of_a_reply_is_one_event() {
    let provider = provider(fixed(vec![])).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let body = match Answer::default().reply(&weir::demo::Request::default()).pop() {
        Some(Action::Whole(_, _, body)) => body,
        other => panic!("{other:?}"),
    };
    let json = [("content-type", "application/json")];
    let closing = [json[0], ("connection", "close")];
    let none = Action::Raw("HTTP/1.1 204 Nothing\r\n\r\n".into());
    let cases = [
        (vec![Action::Whole(200, headers(&json), body.clone())], 200),
        (vec![Action::Head(200, headers(&json)), Action::Body(body.clone())], 200),
        (vec![Action::Head(200, headers(&closing)), Action::Body(body.clone())], 200),
        (vec![none], 502),
        (vec![Action::Whole(200, headers(&json), Bytes::new())], 502),
        (vec![Action::Head(200, headers(&json)), Action::Body(body), Action::Close], 502),
    ];
    for (i, (script, status)) in cases.into_iter().enumerate() {
        provider.play(fixed(script));
        let reply = weir.ask(&chat()).await;
        assert_eq!((reply.status(), reply.end), (status, End::Clean), "case {i}");
        assert_eq!(newest(&weir, i + 1).await["status"], status, "case {i}");
    }
}
