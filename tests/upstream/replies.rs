//! Replies of odd framing, and providers that speak HTTP/2.

use super::*;
use bytes::Bytes;

/// The bytes of a whole JSON answer.
fn json() -> Bytes {
    match Answer::default().reply(&weir::demo::Request::default()).pop() {
        Some(Action::Whole(_, _, body)) => body,
        other => panic!("{other:?}"),
    }
}

/// What a reply says, whole or streamed.
fn said(reply: &Reply) -> String {
    if reply.header("content-type") == Some("text/event-stream") {
        assert!(reply.done(), "{}", reply.text());
        return reply.content();
    }
    reply.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

/// The bytes of an event stream.
fn events() -> String {
    let ask = weir::demo::Request { body: streamed().body, ..Default::default() };
    let mut text = String::new();
    for action in Answer::default().reply(&ask) {
        match action {
            Action::Sse(value) => text.push_str(&format!("data: {value}\n\n")),
            Action::Body(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            _ => {}
        }
    }
    text
}

fn chunked(head: &str, body: &str, trailers: &str) -> Action {
    let text = format!(
        "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n{trailers}\r\n",
        body.len()
    );
    Action::Raw(text.into())
}

#[tokio::test]
async fn a_reply_is_read_by_what_was_asked_whatever_it_says_it_is() {
    let provider = provider(fixed(vec![])).await;
    let weir = Weir::start(&config(&provider.url(), "")).await;
    let mut client = Client::connect(weir.port).await;
    let whole = String::from_utf8(json().to_vec()).unwrap();
    for kind in ["", "content-type: text/plain\r\n", "content-type: application/octet-stream\r\n"] {
        let head = format!("HTTP/1.1 200 OK\r\n{kind}");
        provider.play(fixed(vec![chunked(&head, &whole, "")]));
        let reply = client.ask(&chat()).await;
        assert_eq!(reply.status(), 200, "{kind:?}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(said(&reply), "Hello world!");
        provider.play(fixed(vec![chunked(&head, &events(), "")]));
        let reply = client.ask(&streamed()).await;
        assert_eq!(reply.header("content-type"), Some("text/event-stream"), "{kind:?}");
        assert!(said(&reply) == "Hello world!", "{kind:?}: {}", reply.text());
    }
}

#[tokio::test]
async fn heads_before_the_head_and_trailers_after_the_body_are_no_answer() {
    let provider = provider(fixed(vec![])).await;
    let weir = Weir::start(&config(&provider.url(), "")).await;
    let mut client = Client::connect(weir.port).await;
    let whole = String::from_utf8(json().to_vec()).unwrap();
    let hints = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let head = format!("{hints}HTTP/1.1 200 OK\r\ntrailer: x-sum\r\n");
    for (ask, body) in [(chat(), whole), (streamed(), events())] {
        let kind = "content-type: text/event-stream\r\n";
        let head = if ask.body == chat().body { head.clone() } else { format!("{head}{kind}") };
        provider.play(fixed(vec![chunked(&head, &body, "x-sum: 1\r\n")]));
        for _ in 0..2 {
            client.send(&ask.bytes()).await;
            let reply = client.reply().await;
            assert_eq!(reply.status(), 200, "{}", reply.text());
            assert_eq!(said(&reply), "Hello world!");
            assert_eq!((reply.header("x-sum"), reply.header("link")), (None, None));
        }
    }
    let events = weir.events(4).await;
    assert!(events.iter().all(|e| e["outcome"] == "success"), "{events:?}");
}

/// A provider in HTTP/2 without TLS that answers every request with this body, and tells how many
/// connections it had.
async fn h2_provider(
    kind: &'static str,
    body: Bytes,
) -> (u16, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let body = body.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((mut request, mut respond))) = connection.accept().await {
                    let body = body.clone();
                    tokio::spawn(async move {
                        assert_eq!(request.uri().path(), "/v1/chat/completions");
                        while let Some(Ok(bytes)) = request.body_mut().data().await {
                            let flow = request.body_mut().flow_control();
                            flow.release_capacity(bytes.len()).unwrap();
                        }
                        // Long enough for requests to be open side by side.
                        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
                        let head = http::Response::builder().header("content-type", kind);
                        let mut send =
                            respond.send_response(head.body(()).unwrap(), false).unwrap();
                        send.send_data(body, true).unwrap();
                    });
                }
            });
        }
    });
    (port, connections)
}

#[tokio::test]
async fn a_provider_in_http_2_is_asked_side_by_side_on_one_connection() {
    for (ask, kind, body) in [
        (chat(), "application/json", json()),
        (streamed(), "text/event-stream", Bytes::from(events())),
    ] {
        let (port, connections) = h2_provider(kind, body).await;
        let url = format!("http://127.0.0.1:{port}/v1");
        let weir = Weir::start(&config(&url, "http2 = true")).await;
        let first = weir.ask(&ask).await;
        assert_eq!(first.status(), 200, "{}", first.text());
        assert_eq!(said(&first), "Hello world!");
        let mut h2 = crate::harness::h2c::H2::connect(weir.port).await;
        assert_eq!(said(&h2.ask(&ask).await), "Hello world!");
        let big = ask.clone().set("user", "u".repeat(500_000));
        assert_eq!(said(&weir.ask(&big).await), "Hello world!");
        let all = (0..20).map(|_| weir.ask(&ask));
        for reply in futures(all).await {
            assert_eq!((reply.status(), said(&reply).as_str()), (200, "Hello world!"));
        }
        let made = connections.load(std::sync::atomic::Ordering::Relaxed);
        assert!(made <= 12, "{made} connections for 23 requests");
        let events = weir.events(23).await;
        assert!(events.iter().all(|e| e["outcome"] == "success"), "{events:?}");
    }
}

/// All of them at once.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut out: Vec<Option<F::Output>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(move |context| {
        for (future, out) in all.iter_mut().zip(&mut out) {
            if out.is_none()
                && let std::task::Poll::Ready(done) = future.as_mut().poll(context)
            {
                *out = Some(done);
            }
        }
        if out.iter().any(Option::is_none) {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(out.iter_mut().map(|o| o.take().unwrap()).collect())
    })
    .await
}
