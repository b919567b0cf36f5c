//! One connection, many requests: what may stand between two of them, and when it ends.

use super::*;
use crate::harness::client::Piece;
use crate::harness::reply::End;

#[tokio::test]
async fn a_connection_is_kept_after_json_streams_and_errors() {
    let provider = provider(knobs()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    let asks = [
        (chat(), 200),
        (streamed().say("words=3"), 200),
        (chat().say("status=400"), 400),
        (chat().key("sk-wrong"), 401),
        (chat().model("nobody"), 404),
        (chat().body("{"), 400),
        (Ask::get("/nowhere"), 404),
        (Ask::get("/v1/models"), 200),
        (chat().chunked(11), 200),
    ];
    for round in 0..3 {
        for (i, (ask, want)) in asks.iter().enumerate() {
            let reply = client.ask(ask).await;
            assert_eq!(reply.status(), *want, "round {round}, request {i}: {}", reply.text());
            assert_eq!(reply.header("connection"), Some("keep-alive"), "request {i}");
            assert_eq!(reply.end, End::Clean);
        }
    }
    // The provider's connections are kept as well, after its errors too.
    assert_eq!(provider.count(), 12);
    assert!(provider.connections() < 6, "{} connections", provider.connections());
}

#[tokio::test]
async fn a_stray_crlf_after_a_body_belongs_to_no_request() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    for ask in [chat(), streamed(), chat().chunked(9)] {
        let mut bytes = ask.bytes();
        bytes.extend_from_slice(b"\r\n");
        client.send(&bytes).await;
        assert_eq!(client.reply().await.status(), 200);
    }
    assert_eq!(client.ask(&chat()).await.status(), 200);
    assert_eq!(provider.count(), 4);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let provider = provider(knobs()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    let asks = [
        chat().say("words=1 out=11"),
        streamed().say("words=2"),
        chat().key("sk-wrong"),
        chat().say("words=3 out=33").chunked(5),
        Ask::get("/v1/models"),
        chat().say("words=4 out=44"),
    ];
    let all: Vec<u8> = asks.iter().flat_map(Ask::bytes).collect();
    client.send(&all).await;
    let text = async |client: &mut Client| {
        let reply = client.reply().await;
        reply.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(text(&mut client).await, "w0 ");
    let stream = client.reply().await;
    assert!(stream.done() && stream.content() == "w0 w1 ");
    assert_eq!(client.reply().await.status(), 401);
    assert_eq!(text(&mut client).await, "w0 w1 w2 ");
    assert_eq!(client.reply().await.status(), 200);
    assert_eq!(text(&mut client).await, "w0 w1 w2 w3 ");
    assert_eq!(provider.count(), 4);
}

#[tokio::test]
async fn an_http_1_0_client_gets_no_chunks_and_the_connection_ends_its_answer() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    for ask in [chat(), streamed(), chat().key("sk-wrong")] {
        let text = String::from_utf8(ask.bytes()).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
        let mut client = Client::connect(weir.port).await;
        client.send(text.as_bytes()).await;
        let reply = client.reply().await;
        assert_eq!(reply.header("transfer-encoding"), None);
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(client.closed().await);
        if reply.header("content-type") == Some("text/event-stream") {
            assert!(reply.done() && reply.content() == "Hello world!");
        }
    }
    // 18 bytes are less than h2's preface, and a whole request.
    let mut client = Client::connect(weir.port).await;
    client.send(b"GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.reply().await.status(), 200);
    assert!(client.closed().await);
}

#[tokio::test]
async fn a_client_that_asks_to_close_is_closed() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    for ask in [chat(), streamed(), chat().key("sk-wrong")] {
        let mut client = Client::connect(weir.port).await;
        let reply = client.ask(&ask.with("connection", "close")).await;
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(reply.end == End::Clean && client.closed().await);
    }
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_gets_it_and_a_refused_one_does_not() {
    let provider = answering(Answer::default()).await;
    let lines = "max_body = \"1MiB\"";
    let weir = Weir::with(&toml::simple(&provider), server(lines), &[]).await;
    let ask = chat().body(sized(200_000)).with("expect", "100-continue");
    let mut client = Client::connect(weir.port).await;
    client.send(&ask.head()).await;
    assert_eq!(client.line().await.as_deref(), Some("HTTP/1.1 100 Continue"));
    assert_eq!(client.line().await.as_deref(), Some(""));
    client.send(&ask.body).await;
    assert_eq!(client.reply().await.status(), 200);
    assert_eq!(provider.requests()[0].request.header("expect"), None);
    let large = chat().body(sized(2 << 20)).with("expect", "100-continue");
    for refused in [ask.key("sk-wrong"), large] {
        let mut client = Client::connect(weir.port).await;
        client.send(&refused.head()).await;
        let status = client.line().await.unwrap();
        assert!(status.starts_with("HTTP/1.1 4"), "{status}");
    }
    assert_eq!(provider.count(), 1);
}

#[tokio::test]
async fn two_lengths_or_a_length_beside_chunks_smuggle_nothing() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let key = format!("authorization: Bearer {KEY}\r\n");
    let hidden = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n{key}\r\n");
    let both = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n{key}content-length: 0\r\n\
         transfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
    );
    let two = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n{key}content-length: 0\r\n\
         content-length: {}\r\n\r\n{hidden}",
        hidden.len()
    );
    for text in [both, two] {
        let mut client = Client::connect(weir.port).await;
        client.send(text.as_bytes()).await;
        assert_eq!(client.head().await.status, 400);
        while client.piece().await != Piece::End(End::Clean) {}
        assert!(client.try_head().await.is_none(), "the hidden request was answered");
    }
    assert_eq!(provider.count(), 0);
}

#[tokio::test]
async fn what_an_aborted_stream_left_is_no_other_requests_answer() {
    let provider = provider(knobs()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    for i in 0..5 {
        let mut client = Client::connect(weir.port).await;
        client.begin(&streamed().say("words=5000")).await;
        client.event().await;
        client.abort();
        let words = i + 1;
        let reply = weir.ask(&streamed().say(&format!("words={words}"))).await;
        let want: String = (0..words).map(|w| format!("w{w} ")).collect();
        assert!(reply.done() && reply.content() == want, "{}", reply.text());
    }
    weir.idle().await;
}
