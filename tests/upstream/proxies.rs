//! An HTTP proxy on the way.

use super::*;
use crate::harness::tls::{Papers, terminator};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A proxy that answers every CONNECT with this, opens the tunnel where that is a 200, and
/// remembers the heads it got.
async fn proxy(answer: &'static str, to: u16) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                seen.lock().unwrap().push(String::from_utf8(head).unwrap());
                client.write_all(answer.as_bytes()).await.unwrap();
                if answer.contains(" 200 ") {
                    let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    (port, heads)
}

const OPEN: &str = "HTTP/1.1 200 Connection established\r\nx-proxy: 1\r\n\r\n";

#[tokio::test]
async fn a_provider_is_reached_through_a_proxy_that_looks_its_name_up() {
    let provider = answering(Answer::default()).await;
    let authority = Papers::authority();
    let tls = terminator(&authority.issue("models.example"), provider.port()).await;
    let (port, heads) = proxy(OPEN, tls).await;
    let more = "ca = \"file:ca.pem\"\nproxy = \"env:PROXY\"";
    let url = "https://models.example/v1";
    let env = [("PROXY", format!("http://user:pass@127.0.0.1:{port}"))];
    let env: Vec<_> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let mut weir = Weir::prepare(&config(url, more), Default::default(), &env).await;
    std::fs::write(weir.path().join("ca.pem"), authority.cert_pem()).unwrap();
    weir.run();
    weir.ready().await;
    for _ in 0..3 {
        assert_eq!(weir.ask(&chat()).await.status(), 200);
    }
    assert!(weir.ask(&streamed()).await.done());
    let heads = heads.lock().unwrap().clone();
    assert!(heads.len() < 4, "tunnels are kept: {heads:?}");
    let want = "CONNECT models.example:443 HTTP/1.1\r\nhost: models.example:443\r\n\
                proxy-authorization: Basic dXNlcjpwYXNz\r\n\r\n";
    assert_eq!(heads[0], want);
    let seen = provider.requests().pop().unwrap().request;
    assert_eq!(seen.header("host"), Some("models.example"));
    assert_eq!(seen.header("proxy-authorization"), None);
    assert!(!weir.stderr().contains("dns"), "{}", weir.stderr());
}

#[tokio::test]
async fn a_plain_provider_goes_through_the_tunnel_too() {
    let provider = answering(Answer::default()).await;
    let (port, heads) = proxy(OPEN, provider.port()).await;
    let more = format!("proxy = \"http://127.0.0.1:{port}\"");
    let weir = Weir::start(&config("http://models.example:8000/v1", &more)).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    let head = heads.lock().unwrap()[0].clone();
    assert_eq!(head, "CONNECT models.example:8000 HTTP/1.1\r\nhost: models.example:8000\r\n\r\n");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_and_its_password_is_not() {
    let answers = [
        ("HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", "answered 407"),
        ("HTTP/1.0 403 Forbidden\r\n\r\n", "answered 403"),
        ("SSH-2.0-x\r\n\r\n", "not HTTP"),
    ];
    for (answer, said) in answers {
        let (port, _) = proxy(answer, 1).await;
        let more = format!("proxy = \"http://user:hunter2@127.0.0.1:{port}\"");
        let weir = Weir::start(&config("http://models.example/v1", &more)).await;
        let reply = weir.ask(&chat()).await;
        assert_eq!(reply.error(), (502, "upstream_error".into()));
        assert!(reply.text().contains(said), "{}", reply.text());
        for text in [reply.text(), weir.stderr(), format!("{:?}", weir.events(1).await)] {
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
    let nobody = Refusing::new();
    let at = nobody.url().replace("/v1", "");
    let more = format!("proxy = \"{at}\"");
    let weir = Weir::start(&config("http://models.example/v1", &more)).await;
    let text = weir.ask(&chat()).await.text();
    assert!(text.contains("cannot connect to a"), "{text}");
}
