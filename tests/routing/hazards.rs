//! Breakers where others' are blind: behind an equivalent model, and in silence.

use super::{TRIP, alone, error, statuses, two};
use crate::harness::*;

#[tokio::test]
async fn a_failing_equivalent_is_left_alone_like_any_other_target_f04() {
    let (a, b) = (provider(fixed(error(500, &[]))).await, provider(fixed(error(500, &[]))).await);
    let models = toml::model("m", &["a/up-model"])
        + "fallback = [\"spare\"]\n"
        + &toml::model("spare", &["b/up-model"]);
    let gateway = two(&a, &b, &TRIP.replace("500ms", "60s"), &models).await;
    statuses(&gateway, 20).await;
    assert_eq!((a.count(), b.count()), (4, 4));
}

#[tokio::test]
async fn silence_opens_the_breaker_once_for_each_request_x04() {
    let a = provider(fixed(vec![Action::Hang])).await;
    let lines =
        TRIP.replace("500ms", "60s") + "timeouts = { first_token = \"60ms\", reply = \"60ms\" }\n";
    let gateway = alone(&a, &lines).await;
    for n in 0..4 {
        let ask = if n % 2 == 0 { chat() } else { streamed() };
        assert_eq!(gateway.ask(&ask).await.error(), (504, "upstream_timeout".into()));
    }
    assert_eq!(gateway.ask(&chat()).await.error(), (503, "no_healthy_upstream".into()));
    assert_eq!(a.count(), 4);
}

#[tokio::test]
async fn three_failures_are_too_few_to_open_anything_x05() {
    let a = provider(crate::failover::first(3, fixed(error(500, &[])), Answer::default().script()))
        .await;
    let gateway = alone(&a, TRIP).await;
    assert_eq!(statuses(&gateway, 6).await, [502, 502, 502, 200, 200, 200]);
}
