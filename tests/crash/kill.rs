//! `kill -9` at each instruction that matters. A debug build can be told where to die.

use super::*;
use crate::harness::reply::End;
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;

/// Starts a gateway that dies at the `n`th pass of a point; requests before it are served.
async fn failing(provider: &Provider, point: &str) -> Weir {
    Weir::with(&toml::simple(provider), Tables::default(), &[("WEIR_FAIL", point)]).await
}

/// Sends a request to a gateway that dies of it: all that the client got.
async fn last_words(weir: &mut Weir, ask: &Ask) -> String {
    let mut client = Client::connect(weir.port).await;
    client.send(&ask.bytes()).await;
    let mut text = String::new();
    if client.try_head().await.is_some() {
        let (body, end) = client.rest().await;
        let whole = body.contains("[DONE]") || ask.body == chat().body;
        assert!(end == End::Cut || whole, "half a stream ended cleanly: {body}");
        text = body;
    }
    let (status, _) = weir.ended().await;
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    text
}

/// The process starts again, without its fault, and applies what the dead one left.
async fn again(weir: &mut Weir) {
    weir.unset("WEIR_FAIL");
    weir.run();
    weir.ready().await;
}

/// What the ledger must say of `n` requests after a restart, and after another.
async fn settled(weir: &mut Weir, n: usize) -> Vec<Row> {
    let first = rows(weir, n).await;
    assert_eq!(first.len(), n, "{first:?}");
    weir.kill().await;
    again(weir).await;
    // One more request shows that the applier has passed over all that came before it.
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    let second = rows(weir, n + 1).await;
    assert_eq!(second.len(), n + 1);
    assert!(first.iter().all(|row| second.contains(row)), "{first:?}\n{second:?}");
    assert_eq!(summed(weir), n as u64 + 1);
    second
}

#[tokio::test]
async fn killed_before_the_append_the_client_has_no_end_and_no_finished_row() {
    let provider = answering(Answer::default()).await;
    let mut weir = failing(&provider, "before-append:2").await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!(last_words(&mut weir, &chat()).await, "");
    again(&mut weir).await;
    // A JSON answer that nobody saw leaves nothing behind.
    settled(&mut weir, 1).await;
    drop(weir); // its place among the running gateways, too

    let mut weir = failing(&provider, "before-append:2").await;
    assert!(weir.ask(&streamed()).await.done());
    let text = last_words(&mut weir, &streamed()).await;
    assert!(!text.contains("[DONE]"), "{text}");
    again(&mut weir).await;
    // A stream that ran is booked as interrupted, with the prompt it was admitted with.
    let rows = settled(&mut weir, 2).await;
    let cut: Vec<_> = rows.iter().filter(|r| r.outcome == "interrupted").collect();
    assert!(cut.len() == 1 && cut[0].input > 0 && cut[0].output == 0, "{rows:?}");
}

#[tokio::test]
async fn killed_after_the_append_the_row_stands_and_the_client_has_no_end() {
    let provider = answering(Answer::default()).await;
    for ask in [chat(), streamed()] {
        let mut weir = failing(&provider, "after-append:2").await;
        assert_eq!(weir.ask(&ask).await.status(), 200);
        let text = last_words(&mut weir, &ask).await;
        assert!(!text.contains("[DONE]") && !text.contains("usage"), "{text}");
        again(&mut weir).await;
        let rows = settled(&mut weir, 2).await;
        let whole = |r: &&Row| r.outcome == "success" && (r.input, r.output) == (9, 3);
        assert_eq!(rows.iter().filter(whole).count(), 3, "{rows:?}");
    }
}

#[tokio::test]
async fn killed_after_the_write_the_client_has_the_end_and_its_row() {
    let provider = answering(Answer::default()).await;
    let mut weir = failing(&provider, "after-write:2").await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    let text = last_words(&mut weir, &chat()).await;
    assert!(text.contains("Hello world!"), "{text}");
    again(&mut weir).await;
    settled(&mut weir, 2).await;
    drop(weir);

    let mut weir = failing(&provider, "after-write").await;
    let text = last_words(&mut weir, &streamed()).await;
    assert!(text.contains("[DONE]"), "{text}");
    again(&mut weir).await;
    let rows = settled(&mut weir, 1).await;
    assert!(rows.iter().all(|r| r.outcome == "success"), "{rows:?}");
}
