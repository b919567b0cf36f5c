//! Bodies that come compressed, and bodies whose framing is broken.

use super::*;
use crate::harness::h2c::H2;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::Write as _;

fn packed(coding: &str, body: &[u8]) -> Bytes {
    match coding {
        "gzip" => {
            let mut to = GzEncoder::new(Vec::new(), Compression::best());
            to.write_all(body).unwrap();
            to.finish().unwrap().into()
        }
        "deflate" => {
            let mut to = ZlibEncoder::new(Vec::new(), Compression::best());
            to.write_all(body).unwrap();
            to.finish().unwrap().into()
        }
        _ => zstd::encode_all(body, 1).unwrap().into(),
    }
}

const CODINGS: [&str; 3] = ["gzip", "deflate", "zstd"];

fn coded(coding: &str, body: &[u8]) -> Ask {
    chat().body(packed(coding, body)).with("content-encoding", coding)
}

#[tokio::test]
async fn a_compressed_body_reaches_the_provider_plain() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let (mut h1, mut h2) = (Client::connect(weir.port).await, H2::connect(weir.port).await);
    for coding in CODINGS {
        for size in [57, 100_000, 3 << 20] {
            let ask = coded(coding, &sized(size));
            let chunked = ask.clone().chunked(if size < 1000 { 1 } else { 20_000 });
            let replies = [h1.ask(&ask).await, h1.ask(&chunked).await, h2.ask(&ask).await];
            let want = renamed(&sized(size), "up-model");
            let seen = provider.requests();
            for (i, reply) in replies.iter().enumerate() {
                assert_eq!(reply.status(), 200, "{coding} {size} {i}: {}", reply.text());
                let request = &seen[seen.len() - 3 + i].request;
                assert!(request.body == want, "{coding} {size} {i}");
                assert_eq!(request.header("content-encoding"), None);
                let length = want.len().to_string();
                assert_eq!(request.header("content-length"), Some(length.as_str()));
            }
        }
    }
    // Its other name, and a name that says nothing.
    let body = sized(57);
    let old = chat().body(packed("gzip", &body)).with("content-encoding", "X-GZIP");
    let plain = chat().body(body).with("content-encoding", "identity");
    assert_eq!((h1.ask(&old).await.status(), h1.ask(&plain).await.status()), (200, 200));
}

#[tokio::test]
async fn a_bomb_is_a_413_and_costs_no_more_than_max_body() {
    let provider = answering(Answer::default()).await;
    let lines = "[server]\nmax_body = \"1MiB\"\nmax_body_bytes_open = \"2MiB\"\n";
    let gateway = gateway(&[lines, &toml::simple(&provider)].concat()).await;
    for coding in CODINGS {
        let bomb = coded(coding, &vec![b' '; 64 << 20]);
        assert!(bomb.body.len() < 1 << 20, "{coding}");
        for ask in [bomb.clone(), bomb.chunked(10_000)] {
            assert_eq!(gateway.ask(&ask).await.error(), (413, "request_too_large".into()));
        }
        // Exactly as large as allowed: taken.
        assert_eq!(gateway.ask(&coded(coding, &sized(1 << 20))).await.status(), 200, "{coding}");
    }
    let back = || (gateway.inner.bodies.open() == 0).then_some(());
    found("the budget to be given back", back).await;
    assert_eq!(provider.count(), 3);
}

#[tokio::test]
async fn unpacked_bytes_are_held_against_the_byte_budget() {
    let provider = answering(Answer::default()).await;
    let lines = "[server]\nmax_body = \"1MiB\"\nmax_body_bytes_open = \"1MiB\"\n";
    let gateway = gateway(&[lines, &toml::simple(&provider)].concat()).await;
    let ask = chat().body(sized(900_000));
    let mut held = gateway.client().await;
    held.send(&ask.head()).await;
    held.send(&ask.body[..800_000]).await;
    let taken = || (gateway.inner.bodies.open() == 800_000).then_some(());
    found("a body that is held", taken).await;
    let reply = gateway.ask(&coded("gzip", &vec![b' '; 300_000])).await;
    assert_eq!((reply.error().0, reply.header("retry-after")), (503, Some("1")));
    held.send(&ask.body[800_000..]).await;
    assert_eq!(held.reply().await.status(), 200);
    assert_eq!(gateway.ask(&coded("gzip", &sized(300_000))).await.status(), 200);
}

#[tokio::test]
async fn a_body_that_is_not_what_its_coding_says_is_a_400_and_an_unknown_coding_a_415() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    for coding in CODINGS {
        let whole = coded(coding, &sized(5000));
        let cut = whole.clone().body(whole.body.slice(..whole.body.len() / 2));
        let noise = whole.clone().body([&whole.body[..], b"noise"].concat());
        let plain = whole.clone().body(sized(100));
        for (i, ask) in [cut, noise, plain].iter().enumerate() {
            let reply = client.ask(ask).await;
            assert_eq!(reply.error(), (400, "invalid_request".into()), "{coding} {i}");
            assert!(reply.text().contains("content-encoding"), "{}", reply.text());
        }
    }
    for coding in ["br", "gzip, zstd", "snappy"] {
        let reply = client.ask(&chat().with("content-encoding", coding)).await;
        assert_eq!(reply.error(), (415, "invalid_request".into()), "{coding}");
        assert!(reply.text().contains("gzip"), "{}", reply.text());
    }
    assert_eq!(client.ask(&chat()).await.status(), 200, "the connection is as good as before");
    assert_eq!(provider.count(), 1);
}

#[tokio::test]
async fn malformed_chunks_are_a_400_in_the_callers_words_and_the_connection_ends() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let faults = ["zz\r\nabc\r\n0\r\n\r\n", "5\r\nabcdefgh\r\n0\r\n\r\n", "-1\r\n\r\n"];
    for (i, fault) in faults.iter().enumerate() {
        for path in ["/v1/chat/completions", "/v1/messages"] {
            let mut client = Client::connect(weir.port).await;
            let ask = Ask::post(path, &serde_json::json!({})).chunked(10);
            client.send(&ask.head()).await;
            client.send(fault.as_bytes()).await;
            let reply = client.reply().await;
            assert_eq!(reply.status(), 400, "{i} {path}: {}", reply.text());
            let anthropic = reply.json()["type"] == "error";
            assert_eq!(anthropic, path == "/v1/messages", "{}", reply.text());
            assert!(reply.text().contains("chunks"), "{}", reply.text());
            assert_eq!(reply.header("connection"), Some("close"));
            assert!(client.closed().await);
        }
    }
    let events = weir.events(faults.len() * 2).await;
    assert!(events.iter().all(|e| e["status"] == 400 && e["outcome"] == "refused"), "{events:?}");
    assert_eq!(provider.count(), 0);
}
