//! Connections that nobody uses are closed after `idle`, and those in use never; h1 and h2 alike.

use super::*;
use crate::harness::h2c::H2;
use std::time::{Duration, Instant};

const IDLE: Duration = Duration::from_secs(1);

/// A stream that is longer than `idle`.
fn long() -> Answer {
    let words = (0..8).map(|i| format!("{i} ")).collect();
    Answer { words, delay: IDLE / 4, ..Answer::default() }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_with_a_long_stream_is_not() {
    let provider = answering(long()).await;
    let weir = Weir::with(&toml::simple(&provider), server("idle = \"1s\""), &[]).await;
    let (mut h1, mut h2) = (Client::connect(weir.port).await, H2::connect(weir.port).await);
    let start = Instant::now();
    h1.begin(&streamed()).await;
    let two = h2.ask(&streamed()).await;
    let (_, end) = h1.rest().await;
    assert!(start.elapsed() > IDLE, "{:?}: not long enough to show anything", start.elapsed());
    assert!(two.done() && end == crate::harness::reply::End::Clean);
    let start = Instant::now();
    assert!(h1.closed().await);
    h2.ended().await.unwrap();
    let took = start.elapsed();
    assert!(took >= IDLE / 2 && took < IDLE * 10, "{took:?}");
    let closed = async { while weir.metric("weir_open_connections", &[]).await != Some(0.0) {} };
    soon("no connection to be open", closed).await;
}

#[tokio::test]
async fn a_kept_connection_that_is_used_in_time_stays_open() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::with(&toml::simple(&provider), server("idle = \"1s\""), &[]).await;
    let (mut h1, mut h2) = (Client::connect(weir.port).await, H2::connect(weir.port).await);
    for _ in 0..6 {
        assert_eq!(h1.ask(&chat()).await.status(), 200);
        assert_eq!(h2.ask(&chat()).await.status(), 200);
        tokio::time::sleep(IDLE / 3).await;
    }
}

/// Who says that it is through is not waited for. Its event says so.
#[tokio::test]
async fn a_client_that_half_closes_in_the_middle_of_its_answer_is_gone() {
    let provider = answering(long()).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    client.begin(&streamed()).await;
    client.half_close().await;
    let event = weir.events(1).await.remove(0);
    assert_eq!(
        (event["outcome"].as_str(), event["status"].as_u64()),
        (Some("client_abort"), Some(499))
    );
    soon("the provider to be left", provider.until(|seen| seen[0].left.is_some())).await;
    weir.idle().await;
}
