//! Whatever a request took of the process is given back, however it ended; looked at from inside.

use super::*;
use crate::harness::gateway::gateway;
use std::sync::Arc;
use weir::flow::Phase;

const SERVER: &str = "[server]\nmax_body = \"1MiB\"\nmax_body_bytes_open = \"2MiB\"\n";

/// Waits until a gateway holds nothing of any request.
async fn all_back(inner: &Arc<weir::flow::Gateway>) {
    let back = || (inner.in_flight() == 0 && inner.bodies.open() == 0).then_some(());
    found("everything to be given back", back).await;
}

#[tokio::test]
async fn no_end_of_a_request_keeps_bytes_of_the_budget_or_a_place() {
    let provider = provider(knobs()).await;
    let gateway = gateway(&[SERVER, &toml::simple(&provider)].concat()).await;
    let big = sized(500_000);
    for ask in [
        chat().body(big.clone()),
        streamed(),
        chat().body(sized((1 << 20) + 1)),
        chat().body(sized((1 << 20) + 1)).chunked(10_000),
        chat().body("{").chunked(1),
        chat().say("status=503"),
        chat().say("malformed=half"),
        streamed().say("words=3 cut=2"),
        chat().key("sk-wrong"),
    ] {
        Client::connect(gateway.port()).await.ask(&ask).await;
        all_back(&gateway.inner).await;
    }
    for (say, upload) in [("hang=1", None), ("words=2 stall=1", None), ("", Some(300_000))] {
        let mut client = Client::connect(gateway.port()).await;
        let ask = if upload.is_some() { chat().body(big.clone()) } else { streamed().say(say) };
        let bytes = ask.bytes();
        client.send(&bytes[..upload.unwrap_or(bytes.len())]).await;
        let held = || (gateway.inner.bodies.open() > 0).then_some(());
        found("a body that is held", held).await;
        client.abort();
        all_back(&gateway.inner).await;
    }
}

#[tokio::test]
async fn the_end_of_the_drain_reaches_uploads_and_waits_between_tries() {
    let busy = serde_json::json!({"error": {"message": "busy"}});
    let script = fixed(vec![Action::json_with(503, &[("retry-after", "8")], &busy)]);
    let provider = provider(script).await;
    let gateway = gateway(&[SERVER, &toml::simple(&provider)].concat()).await;
    let mut waiting = Client::connect(gateway.port()).await;
    waiting.send(&chat().bytes()).await;
    soon("the first try", provider.until(|seen| seen.len() == 1 && seen[0].done)).await;
    let mut upload = Client::connect(gateway.port()).await;
    let ask = chat().body(sized(500_000));
    upload.send(&ask.head()).await;
    upload.send(&ask.body[..300_000]).await;
    let held = || (gateway.inner.bodies.open() > 250_000).then_some(());
    found("a body that is held", held).await;
    gateway.inner.drain.advance(Phase::Cut);
    for mut client in [waiting, upload] {
        let reply = client.reply().await;
        assert_eq!((reply.error().0, reply.header("connection")), (503, Some("close")));
        assert!(reply.text().contains("shutting down"), "{}", reply.text());
    }
    all_back(&gateway.inner).await;
    let events = gateway.events().await;
    let ends: Vec<_> = events.iter().map(|e| e["outcome"].as_str().unwrap()).collect();
    assert!(ends.contains(&"interrupted") && ends.contains(&"refused"), "{ends:?}");
    assert_eq!(provider.count(), 1);
}
