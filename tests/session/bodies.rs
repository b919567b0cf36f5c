//! Request bodies reach the provider whole, whatever their size and framing, on every try.

use super::*;
use crate::harness::h2c::H2;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A provider that looks at each request once, and takes what is there then. Returns its base URL.
async fn glancing(seen: tokio::sync::mpsc::UnboundedSender<Vec<u8>>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = r#"{"id":"x","object":"chat.completion","created":1,"model":"up-model","choices":[{"index":0,"message":{"role":"assistant","content":"seen"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
        answer.len()
    );
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut glance = vec![0; 64 << 10];
            while let Ok(n) = stream.read(&mut glance).await
                && n > 0
            {
                seen.send(glance[..n].to_vec()).unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    url
}

#[tokio::test]
async fn the_head_and_the_body_of_a_request_reach_the_provider_together() {
    let (tx, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let a = toml::custom("a", "openai", &glancing(tx).await, "");
    let weir = Weir::start(&[a, toml::model("m", &["a/up-model"]), toml::key()].concat()).await;
    let mut client = Client::connect(weir.port).await;
    for size in [57, 300, 20_000] {
        let ask = chat().body(sized(size));
        let reply = client.ask(&ask).await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
        let (got, want) = (seen.recv().await.unwrap(), renamed(&ask.body, "up-model"));
        assert!(got.starts_with(b"POST /v1/chat/completions HTTP/1.1\r\n"));
        assert!(got.ends_with(&want), "{size} bytes: the head came alone");
    }
    assert!(seen.try_recv().is_err());
}

/// The smallest there is; around Pingora's 64 KiB replay buffer; what no buffer holds; and nearly
/// `max_body` (32 MiB).
const SIZES: [usize; 6] = [57, 60_000, 65_536, 65_537, 1 << 20, (32 << 20) - 1];

#[tokio::test]
async fn a_body_of_any_size_and_framing_reaches_the_provider_whole() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let (mut h1, mut h2) = (Client::connect(weir.port).await, H2::connect(weir.port).await);
    for size in SIZES {
        let ask = chat().body(sized(size));
        let framed = ask.clone().with("content-length", &size.to_string());
        let replies = [
            h1.ask(&ask).await,
            h1.ask(&ask.clone().chunked(if size < 1000 { 7 } else { 50_000 })).await,
            h2.ask(&ask).await,
            h2.ask(&framed).await,
        ];
        let want = renamed(&ask.body, "up-model");
        let seen = provider.requests();
        for (i, reply) in replies.iter().enumerate() {
            assert_eq!(reply.status(), 200, "{size} bytes, framing {i}: {}", reply.text());
            let request = &seen[seen.len() - 4 + i].request;
            assert!(request.body == want, "{size} bytes, framing {i}");
            let lengths = request.headers.iter();
            let lengths = lengths.filter(|(k, _)| k.eq_ignore_ascii_case("content-length"));
            let lengths: Vec<_> = lengths.map(|(_, v)| v.as_str()).collect();
            assert_eq!(lengths, [want.len().to_string()], "{size} bytes, framing {i}");
            assert_eq!(request.header("transfer-encoding"), None);
        }
    }
    assert_eq!((provider.count(), weir.events(SIZES.len() * 4).await.len()), (24, 24));
}

#[tokio::test]
async fn each_try_sends_a_body_of_its_own_length() {
    const LONG: &str = "a-model-whose-name-is-longer";
    let failing = provider(fixed(vec![])).await;
    let good = answering(Answer::default()).await;
    let refused = format!("http://127.0.0.1:{}/v1", closed_port());
    let once = "retry = { attempts = 1 }\nbreaker = { min_requests = 1000000 }";
    let config = [
        toml::custom("gone", "openai", &refused, once),
        toml::custom("bad", "openai", &failing.url(), once),
        toml::openai("good", &good),
        toml::model("m", &["gone/up-model", "bad/a", &format!("good/{LONG}")]),
        toml::key(),
    ];
    let weir = Weir::start(&config.concat()).await;
    let (mut h1, mut h2) = (Client::connect(weir.port).await, H2::connect(weir.port).await);
    let busy = Action::json(503, &serde_json::json!({"error": {"message": "busy"}}));
    let fails = [vec![busy], vec![Action::Close], vec![Action::Reset]];
    for size in [57, 65_537, 1 << 20, 8 << 20] {
        for (i, actions) in fails.iter().enumerate() {
            failing.play(fixed(actions.clone()));
            let ask = chat().body(sized(size));
            let chunked = ask.clone().chunked(9_999);
            let replies = [h1.ask(&ask).await, h1.ask(&chunked).await, h2.ask(&ask).await];
            for reply in replies {
                assert_eq!(reply.status(), 200, "{size} bytes, fault {i}: {}", reply.text());
                assert_eq!(reply.header("x-weir-upstream"), Some("good"));
            }
            let last = |p: &Provider| p.requests().pop().unwrap().request.body;
            assert!(last(&failing) == renamed(&ask.body, "a"), "{size} bytes, fault {i}");
            assert!(last(&good) == renamed(&ask.body, LONG), "{size} bytes, fault {i}");
        }
    }
    assert_eq!((failing.count(), good.count()), (36, 36));
}

#[tokio::test]
async fn a_body_that_ends_with_an_empty_h2_frame_leaves_the_kept_connection_clean() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut h2 = H2::connect(weir.port).await;
    for _ in 0..5 {
        let (response, mut body) = h2.open(&chat()).await;
        body.send_data(chat().body, false).unwrap();
        body.send_data(Bytes::new(), true).unwrap();
        assert_eq!(soon("a reply", response).await.unwrap().status(), 200);
        assert_eq!(h2.ask(&chat()).await.status(), 200);
    }
    // A terminator too many would stand before the next request of a kept connection, which the
    // provider would close. (It is not always the same one: an answer is sometimes with the client
    // before its connection is back in the pool.)
    assert_eq!(provider.count(), 10);
    assert!(provider.connections() < 10, "no connection was used twice");
    for seen in provider.requests() {
        assert!(seen.request.body == renamed(&chat().body, "up-model"));
        assert_eq!(seen.request.header("transfer-encoding"), None);
    }
}
