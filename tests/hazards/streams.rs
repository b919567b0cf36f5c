//! Streams: order, room for others, silence, and when the first token came.

use super::*;
use crate::harness::client::Piece;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn word(text: &str) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up-model",
           "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn finish() -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up-model",
           "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
}

#[tokio::test]
async fn an_event_reaches_the_client_before_the_next_one_is_sent() {
    let gate = Gate::new();
    let mut script = vec![Action::stream()];
    for i in 0..20 {
        script.extend([Action::Pass(gate.clone()), Action::Sse(word(&format!("w{i} ")))]);
    }
    script.extend([Action::Sse(finish()), Action::text("data: [DONE]\n\n")]);
    let provider = provider(fixed(script)).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    let mut client = Client::connect(weir.port).await;
    client.send(&streamed().bytes()).await;
    gate.open(1);
    assert_eq!(client.head().await.status, 200);
    for i in 0..20 {
        // Anything that gathers events would wait here for ever: the next is not sent yet.
        client.events_until(&format!("w{i} ")).await;
        gate.open(1);
    }
    let (rest, _) = client.rest().await;
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_stream_leaves_room_for_others() {
    const PIECES: usize = 300;
    let event = format!("data: {}\n\n", word(" quick"));
    let piece = Bytes::from(event.repeat((64 << 10) / event.len()));
    let mut script = vec![Action::stream()];
    script.extend(std::iter::repeat_n(Action::Body(piece.clone()), PIECES));
    script.extend([Action::Sse(finish()), Action::text("data: [DONE]\n\n")]);
    let provider = provider(fixed(script)).await;
    // One worker: what keeps it busy keeps everybody waiting.
    let tables = Tables { server: "threads = 1".into(), ..Tables::default() };
    let weir = Weir::with(&toml::simple(&provider), tables, &[]).await;

    let running = Arc::new(AtomicBool::new(true));
    let read = Arc::new(AtomicUsize::new(0));
    let reader = tokio::spawn({
        let (port, running, read) = (weir.port, running.clone(), read.clone());
        async move {
            let mut client = Client::connect(port).await;
            client.begin(&streamed()).await;
            let mut last = Bytes::new();
            while let Piece::Data(bytes) = client.piece().await {
                read.fetch_add(bytes.len(), Ordering::Relaxed);
                last = bytes;
            }
            running.store(false, Ordering::Relaxed);
            last
        }
    });
    let (mut probes, mut worst) = (0, Duration::ZERO);
    let mut client = Client::connect(weir.port).await;
    while running.load(Ordering::Relaxed) {
        let since = Instant::now();
        assert_eq!(client.ask(&Ask::get("/health")).await.status(), 200);
        if read.load(Ordering::Relaxed) > 0 && running.load(Ordering::Relaxed) {
            probes += 1;
            worst = worst.max(since.elapsed());
        }
    }
    let last = reader.await.unwrap();
    assert!(last.ends_with(b"data: [DONE]\n\n"), "the stream is whole");
    assert!(read.load(Ordering::Relaxed) >= PIECES * piece.len());
    // On a loaded machine of two cores; a worker that is never given up answers none at all.
    assert!(probes >= 3 && worst < Duration::from_secs(2), "{probes} probes, worst {worst:?}");
}

#[tokio::test]
async fn a_long_silence_is_bridged_with_comments_and_failover_stays_possible() {
    let gate = Gate::new();
    let script = vec![
        Action::stream(),
        Action::text(": queued\n\n"),
        Action::Pass(gate.clone()),
        Action::Reset,
    ];
    let silent = provider(fixed(script)).await;
    let sound = answering(Answer::default()).await;
    let tables = Tables { server: "hold_max = \"100ms\"".into(), ..Tables::default() };
    let weir = Weir::with(&toml::pair(&silent, &sound), tables, &[]).await;
    let mut client = Client::connect(weir.port).await;
    let head = client.begin(&streamed()).await;
    assert_eq!((head.status, sound.count()), (200, 0));
    let Piece::Data(comment) = client.piece().await else { panic!("no comment came") };
    assert!(comment.starts_with(b":") && comment.ends_with(b"\n\n"), "{comment:?}");
    gate.open(1);
    let (rest, _) = client.rest().await;
    assert!(rest.contains("Hello") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert_eq!((silent.count(), sound.count()), (1, 1));
    let event = newest(&weir, 1).await;
    assert_eq!((&event["provider"], &event["outcome"]), (&json!("b"), &json!("success")));
}

#[tokio::test]
async fn the_first_token_is_measured_at_the_token() {
    const LATE: Duration = Duration::from_millis(300);
    let role = json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
        "model": "up-model",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]});
    let script = vec![
        Action::stream(),
        Action::Sse(role),
        Action::Wait(LATE),
        Action::Sse(word("late")),
        Action::Wait(LATE),
        Action::Sse(finish()),
        Action::text("data: [DONE]\n\n"),
    ];
    let provider = provider(fixed(script)).await;
    let weir = Weir::start(&toml::simple(&provider)).await;
    assert!(weir.ask(&streamed()).await.done());
    let event = newest(&weir, 1).await;
    let (first, whole) =
        (event["ttft_ms"].as_u64().unwrap(), event["duration_ms"].as_u64().unwrap());
    let late = u64::try_from(LATE.as_millis()).unwrap();
    assert!(first >= late && whole >= 2 * late && whole > first, "{first} of {whole} ms");
}
