//! Heads that dawdle, and connections that end in the middle of one.

use super::*;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(500);
/// Between two bytes of a head that drips: far below the limit.
const DRIP: Duration = Duration::from_millis(50);

/// Sends a head byte by byte until the other side has had enough; how long that took.
async fn drip(client: &mut Client, head: &[u8]) -> Duration {
    let start = Instant::now();
    for byte in head {
        // What is sent to a closed socket is refused at the second try.
        if !client.try_send(&[*byte]).await {
            break;
        }
        tokio::time::sleep(DRIP).await;
    }
    assert!(client.closed().await, "an answer to half a head");
    start.elapsed()
}

#[tokio::test]
async fn a_head_that_drips_ends_in_time_on_a_new_connection_and_on_a_kept_one() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::with(&toml::simple(&provider), server("header = \"500ms\""), &[]).await;
    let head = chat().with("x-long", &"a".repeat(200)).head();
    let late = LIMIT + Duration::from_secs(3);
    let mut new = Client::connect(weir.port).await;
    let took = drip(&mut new, &head).await;
    assert!(took >= LIMIT && took < late, "{took:?}");
    // An answer that takes longer than a head may, a wait that does, and a body that drips.
    let slow = Answer { delay: Duration::from_millis(300), ..Answer::default() };
    provider.play(slow.script());
    let mut kept = Client::connect(weir.port).await;
    assert!(kept.ask(&streamed()).await.done());
    tokio::time::sleep(LIMIT * 2).await;
    let ask = chat();
    kept.send(&ask.head()).await;
    for piece in ask.body.chunks(10) {
        kept.send(piece).await;
        tokio::time::sleep(LIMIT / 5).await;
    }
    assert_eq!(kept.reply().await.status(), 200);
    let took = drip(&mut kept, &head).await;
    assert!(took >= LIMIT && took < late, "{took:?}");
    // A head in two halves is as good as in one.
    let mut halves = Client::connect(weir.port).await;
    let whole = chat().bytes();
    for part in whole.chunks(whole.len() / 2 + 1) {
        halves.send(part).await;
        tokio::time::sleep(DRIP).await;
    }
    assert_eq!(halves.reply().await.status(), 200);
}

#[tokio::test]
async fn strangers_that_leave_in_the_middle_of_a_head_write_nothing_into_the_log() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::with(&toml::simple(&provider), server("header = \"300ms\""), &[]).await;
    let before = weir.stderr();
    for bytes in
        ["G", "GET /v1/models HT", "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n", "PRI"]
    {
        let mut leaves = Client::connect(weir.port).await;
        leaves.send(bytes.as_bytes()).await;
        leaves.half_close().await;
        assert!(leaves.closed().await);
        let mut resets = Client::connect(weir.port).await;
        resets.send(bytes.as_bytes()).await;
        resets.abort();
        let mut waits = Client::connect(weir.port).await;
        waits.send(bytes.as_bytes()).await;
        assert!(waits.closed().await);
    }
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!(weir.stderr(), before);
}

/// The frames of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

#[tokio::test]
async fn an_h2_head_that_never_ends_does_not_keep_its_connection() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::with(&toml::simple(&provider), server("idle = \"1s\""), &[]).await;
    let mut client = Client::connect(weir.port).await;
    let settings = frame(4, 0, 0, &[]);
    // HEADERS without END_HEADERS: CONTINUATION is due, and does not come.
    let half = frame(1, 0, 1, &[0x83]);
    client.send(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &half].concat()).await;
    let closed = async { while weir.metric("weir_open_connections", &[]).await != Some(0.0) {} };
    soon("the connection to be closed", closed).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!(weir.events(1).await.len(), 1, "what never was a request has no event");
    drop(client);
}
