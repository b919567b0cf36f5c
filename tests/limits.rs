//! Limits over the wire: who is let in, what is told of it, and that nothing is kept too long.

mod routes;

use crate::harness::gateway::{Gateway, gateway};
use crate::harness::{Ask, Provider, Reply, chat, found, knobs, provider, streamed, toml};
use serde_json::json;
use std::time::Duration;

/// A provider of wishes, model `m`, and keys of these names and lines.
pub async fn world(keys: &[(&str, &str)], more: &str) -> (Provider, Gateway) {
    let far = provider(knobs()).await;
    let patient = "retry = { attempts = 1 }\nbreaker = { min_requests = 1000000 }";
    let keys: String = keys
        .iter()
        .map(|(name, lines)| format!("[keys.{name}]\nsecret = \"sk-{name}\"\n{lines}\n"))
        .collect();
    let text = [
        toml::custom("a", "openai", &far.url(), patient),
        toml::model("m", &["a/up-model"]),
        keys,
        more.to_owned(),
    ];
    let near = gateway(&text.concat()).await;
    (far, near)
}

/// A chat of this key with wishes and a maximum.
pub fn by(key: &str, wishes: &str, most: u64) -> Ask {
    chat().key(&format!("sk-{key}")).say(wishes).set("max_tokens", most)
}

fn stream_by(key: &str, wishes: &str, most: u64) -> Ask {
    streamed().key(&format!("sk-{key}")).say(wishes).set("max_tokens", most)
}

fn left(reply: &Reply, what: &str) -> Option<u64> {
    let value = reply.header(&format!("x-ratelimit-remaining-{what}"))?;
    Some(value.parse().unwrap())
}

/// How many of so many at once are let in; all others are refused with this status.
pub async fn admitted(near: &Gateway, ask: &Ask, n: usize, status: u16) -> usize {
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..n {
        let (port, ask) = (near.port(), ask.clone());
        all.spawn(
            async move { crate::harness::Client::connect(port).await.ask(&ask).await.status() },
        );
    }
    let mut ok = 0;
    while let Some(got) = all.join_next().await {
        match got.unwrap() {
            200 => ok += 1,
            got => assert_eq!(got, status),
        }
    }
    ok
}

#[tokio::test]
async fn a_fourth_of_three_requests_is_told_when_to_come_back_r08() {
    let (far, near) = world(&[("k", "team = \"t\"\nlimits = { rpm = 3 }")], "").await;
    for want in [2, 1, 0] {
        let reply = near.ask(&by("k", "", 5)).await;
        assert_eq!((reply.status(), left(&reply, "requests")), (200, Some(want)));
        assert_eq!(reply.header("x-ratelimit-limit-requests"), Some("3"));
    }
    let reply = near.ask(&by("k", "", 5)).await;
    assert_eq!(reply.error(), (429, "rate_limit_exceeded".into()));
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    let millis: u64 = reply.header("retry-after-ms").unwrap().parse().unwrap();
    assert!((19..=20).contains(&wait) && millis.div_ceil(1000) == wait, "{wait} s, {millis} ms");
    assert_eq!((left(&reply, "requests"), reply.header("x-should-retry")), (Some(0), Some("true")));
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("key k") && message.contains("rpm"), "{message}");
    assert_eq!(far.count(), 3, "a refused request reaches nobody");
    let events = near.events().await;
    assert_eq!(events[3]["limited_by"], "key:k/rpm");
    assert_eq!(
        (&events[3]["outcome"], &events[3]["cost_nano_usd"]),
        (&json!("refused"), &json!(0))
    );
    let labels = [("scope", "key"), ("limit", "rpm"), ("team", "t")];
    assert_eq!(near.metric("weir_rate_limited_total", &labels), Some(1.0));
}

#[tokio::test]
async fn each_key_has_a_bucket_of_its_own_r12() {
    let one = "limits = { rpm = 1 }";
    let (_far, near) = world(&[("a", one), ("b", one)], "").await;
    for key in ["a", "b"] {
        assert_eq!(near.ask(&stream_by(key, "", 5)).await.status(), 200);
        assert_eq!(near.ask(&by(key, "", 5)).await.status(), 429);
    }
}

#[tokio::test]
async fn tokens_are_settled_by_what_was_used_stream_or_not_r09_r10() {
    let window = "windows = [{ tokens = 10_000, per = \"hour\" }]";
    let (_far, near) = world(&[("k", window)], "").await;
    for i in 0..10 {
        let reply = near.ask(&by("k", "in=40 out=20", 4_000)).await;
        assert_eq!((reply.status(), left(&reply, "tokens")), (200, Some(10_000 - 120 * i - 60)));
        assert_eq!(near.ask(&stream_by("k", "in=40 out=20", 4_000)).await.status(), 200);
    }
    // A window shows when its first use leaves it, and that is an hour away.
    let reply = near.ask(&by("k", "", 9_900)).await;
    assert_eq!(reply.error().0, 429);
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((3_500..=3_661).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_window_s_remaining_falls_and_its_fourth_is_refused_r07() {
    let (_far, near) = world(&[("k", "windows = [{ tokens = 1000, per = \"hour\" }]")], "").await;
    for want in [700, 400, 100] {
        let reply = near.ask(&by("k", "in=200 out=100", 100)).await;
        assert_eq!((reply.status(), left(&reply, "tokens")), (200, Some(want)));
    }
    assert_eq!(near.ask(&by("k", "in=200 out=100", 150)).await.status(), 429);
}

#[tokio::test]
async fn fifty_at_once_share_a_thousand_tokens_r01() {
    // The prompt's estimate is known from the event; the hold is that and the output.
    let (far, near) = world(&[("k", "windows = [{ tokens = 1000, per = \"hour\" }]")], "").await;
    let ask = by("k", "in=9 out=91 wait=0.5", 80);
    assert_eq!(near.ask(&ask).await.status(), 200);
    let held = near.event().await["reserved_tokens"].as_u64().unwrap();
    let fit = (900 / held) as usize;
    assert_eq!(admitted(&near, &ask, 50, 429).await, fit);
    assert_eq!(far.count(), fit + 1);
}

#[tokio::test]
async fn five_hundred_at_once_against_a_hundred_admit_a_hundred() {
    let (far, near) = world(&[("k", "windows = [{ requests = 100, per = \"hour\" }]")], "").await;
    assert_eq!(admitted(&near, &by("k", "", 5), 500, 429).await, 100);
    assert_eq!(far.count(), 100);
}

#[tokio::test]
async fn slots_come_back_however_a_request_ends_r03_r04() {
    let (_far, near) = world(&[("k", "limits = { concurrent = 1 }")], "").await;
    let mut client = near.client().await;
    let open = stream_by("k", "words=200 delay=0.05", 500);
    for _ in 0..3 {
        let mut gone = near.client().await;
        gone.send(&open.bytes()).await;
        gone.head().await;
        let refused = client.ask(&by("k", "", 5)).await;
        assert_eq!(refused.error(), (429, "rate_limit_exceeded".into()));
        assert_eq!(refused.header("retry-after"), Some("1"));
        drop(gone);
        found("the slot", || (near.inner.in_flight() == 0).then_some(())).await;
    }
    let bad = [
        by("k", "status=500", 5),
        by("k", "status=400", 5),
        by("k", "reset=1", 5),
        by("k", "malformed=html", 5),
        by("k", "", 5).model("nope"),
        by("k", "", 5).body("{\"model\": "),
    ];
    for ask in bad {
        assert!(near.ask(&ask).await.status() >= 400);
    }
    assert_eq!(client.ask(&by("k", "", 5)).await.status(), 200);
}

#[tokio::test]
async fn a_hold_comes_back_when_nothing_was_answered_r11_c09() {
    let (far, near) = world(&[("k", "limits = { tpm = 5000 }")], "").await;
    for _ in 0..5 {
        assert!(near.ask(&by("k", "status=500", 4_000)).await.status() >= 500);
    }
    assert_eq!(far.count(), 5, "none was refused here");
    let reply = near.ask(&by("k", "in=9 out=1", 4_000)).await;
    assert_eq!(reply.status(), 200);
    assert!(left(&reply, "tokens").unwrap() >= 4_990);
}

#[tokio::test]
async fn what_never_fits_is_not_to_be_tried_again() {
    let (far, near) = world(&[("k", "limits = { tpm = 400 }")], "").await;
    let reply = near.ask(&by("k", "", 5_000)).await;
    assert_eq!(reply.error(), (429, "rate_limit_exceeded".into()));
    assert_eq!(
        (reply.header("x-should-retry"), reply.header("retry-after")),
        (Some("false"), None)
    );
    // A request that names no maximum is guessed, and a guess always fits into an empty bucket.
    assert_eq!(near.ask(&chat().key("sk-k")).await.status(), 200);
    assert_eq!(far.count(), 1);
}

#[tokio::test]
async fn a_stream_that_outgrows_its_hold_ends_by_itself_and_owes_it_r13() {
    let (_far, near) = world(&[("k", "limits = { tpm = 100 }")], "").await;
    let reply = near.ask(&stream_by("k", "in=9 out=500 words=400", 10)).await;
    assert!(reply.done() && reply.finishes() == ["stop"]);
    let refused = near.ask(&by("k", "", 10)).await;
    assert_eq!((refused.error().0, left(&refused, "tokens")), (429, Some(0)));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((250..=290).contains(&wait), "about 430 tokens at 100 a minute, not {wait} s");
}

#[tokio::test]
async fn a_cutting_limit_ends_a_stream_with_length_and_usage() {
    let cut = "limits = { tpm = 100, on_exhausted = \"cut\" }";
    let (_far, near) = world(&[("k", cut)], "").await;
    let ask = stream_by("k", "in=9 out=500 words=400 delay=0.001 usage=none", 10);
    let ask = ask.set("stream_options", json!({"include_usage": true}));
    let reply = near.ask(&ask).await;
    assert!(reply.done(), "{}", reply.text());
    assert_eq!(reply.finishes(), ["length"]);
    let usage = reply.chunks().pop().unwrap()["usage"].clone();
    let said = usage["completion_tokens"].as_u64().unwrap();
    assert!((60..=200).contains(&said), "{usage}");
    let event = near.event().await;
    assert_eq!((&event["outcome"], &event["status"]), (&json!("limit_cut"), &json!(200)));
    assert_eq!(event["limited_by"], "key:k/tpm");
    assert_eq!(event["output_tokens"].as_u64().unwrap(), said);
    assert!(event["cost_nano_usd"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn all_owners_are_held_in_one_step() {
    let more = "[departments.d]\n[teams.t]\ndepartment = \"d\"\nlimits = { rpm = 4 }\n\
                [users.u]\nlimits = { tpm = 3000 }\n";
    let key = |extra| format!("team = \"t\"\nuser = \"u\"\n{extra}");
    let (a, b) = (key("limits = { rpm = 3, concurrent = 5 }"), key(""));
    let (_far, near) = world(&[("a", &a), ("b", &b)], more).await;
    // The user's tokens refuse it, and the team's and the key's requests are as they were.
    for _ in 0..6 {
        let refused = near.ask(&by("a", "", 3_000)).await;
        assert!(refused.text().contains("user u"), "{}", refused.text());
    }
    for key in ["a", "b", "a", "b"] {
        assert_eq!(near.ask(&by(key, "", 5)).await.status(), 200, "{key}");
    }
    let refused = near.ask(&by("b", "", 5)).await;
    assert!(refused.status() == 429 && refused.text().contains("team t"), "{}", refused.text());
}

#[tokio::test]
async fn a_rule_may_be_for_some_models_only() {
    let more = toml::model("other", &["a/up-model"]);
    let lines = "limits = [{ rpm = 1, models = [\"oth*\"] }, { rpm = 2 }]";
    let (_far, near) = world(&[("k", lines)], &more).await;
    assert_eq!(near.ask(&by("k", "", 5).model("other")).await.status(), 200);
    assert_eq!(near.ask(&by("k", "", 5).model("other")).await.status(), 429);
    assert_eq!(near.ask(&by("k", "", 5)).await.status(), 200);
    assert_eq!(near.ask(&by("k", "", 5)).await.status(), 429);
}

#[tokio::test]
async fn defaults_fill_what_a_key_does_not_say_and_the_gateway_has_its_own() {
    let more = "[key_defaults]\nlimits = { rpm = 1 }\nwindows = [{ requests = 2, per = \"15m\" }]\n\
                [server]\nlimits = { rpm = 4 }\n";
    let own = "limits = { rpm = 9 }";
    let (_far, near) = world(&[("a", ""), ("b", own), ("c", own)], more).await;
    let got = async |key| near.ask(&by(key, "", 5)).await.status();
    assert_eq!([got("a").await, got("a").await], [200, 429]);
    assert_eq!([got("b").await, got("b").await, got("b").await], [200, 200, 429]);
    assert_eq!(got("c").await, 200);
    let refused = near.ask(&by("c", "", 5)).await;
    assert!(refused.status() == 429 && refused.text().contains("the gateway"));
}

#[tokio::test]
async fn one_request_may_be_too_large_before_anything_is_taken() {
    let lines = "limits = { max_tokens_per_request = 100, rpm = 2 }";
    let (far, near) = world(&[("k", lines)], "").await;
    let long = "many words in here ".repeat(200);
    for ask in [by("k", "", 500), by("k", "", 60).set("n", 2), by("k", &long, 5)] {
        assert_eq!(near.ask(&ask).await.error(), (413, "request_too_large".into()));
    }
    let ask = chat().key("sk-k").set("max_completion_tokens", 500);
    assert_eq!(near.ask(&ask).await.status(), 413);
    assert_eq!(far.count(), 0);
    for _ in 0..2 {
        assert_eq!(near.ask(&by("k", "", 50)).await.status(), 200);
    }
}

#[tokio::test]
async fn bad_maxima_are_refused_and_hold_nothing_k07() {
    let (far, near) = world(&[("k", "windows = [{ tokens = 1000, per = \"hour\" }]")], "").await;
    let bad = [json!(0), json!(-1), json!(i64::MIN), json!(1e308), json!("100"), json!(3.5)];
    for most in bad {
        let reply = near.ask(&by("k", "", 5).set("max_tokens", most.clone())).await;
        assert_eq!(reply.status(), 400, "{most}");
    }
    assert_eq!(far.count(), 0);
    let reply = near.ask(&by("k", "in=5 out=5", 5).set("max_tokens", json!(null))).await;
    assert_eq!((reply.status(), left(&reply, "tokens")), (200, Some(990)), "null is absent");
}

#[tokio::test]
async fn a_reload_keeps_counters_and_takes_new_amounts_g02() {
    let (_far, near) = world(&[("k", "windows = [{ requests = 10, per = \"hour\" }]")], "").await;
    let swap = |n: u64| {
        let mut new = (*near.inner.snapshot.load_full()).clone();
        let spec = weir::limit::Spec {
            windows: Some(vec![weir::limit::Window {
                measure: weir::limit::Measure::Requests,
                amount: n,
                length: Duration::from_secs(3_600),
                common: weir::limit::Common::default(),
            }]),
            ..Default::default()
        };
        let owner = weir::limit::Owner::new(weir::limit::Scope::Key, "k");
        new.rules.add(&owner, spec).unwrap();
        near.inner.swap(new);
    };
    let passes = async |n| {
        for _ in 0..n {
            assert_eq!(near.ask(&by("k", "", 5)).await.status(), 200);
        }
    };
    passes(8).await;
    swap(5);
    assert_eq!(near.ask(&by("k", "", 5)).await.status(), 429);
    swap(20);
    passes(12).await;
    assert_eq!(near.ask(&by("k", "", 5)).await.status(), 429);
}

#[tokio::test]
async fn usage_shows_a_key_its_own_limits_and_no_other() {
    let lines = "limits = { tpm = 1000 }\nbudgets = [{ usd = 2.5, per = \"month\" }]";
    let (_far, near) = world(&[("k", lines), ("secretive", "limits = { rpm = 7 }")], "").await;
    assert_eq!(near.ask(&by("k", "in=100 out=50", 60)).await.status(), 200);
    let page = near.ask(&Ask::get("/v1/usage").key("sk-k")).await;
    assert_eq!(page.status(), 200);
    let body = page.json();
    assert_eq!((&body["key"], &body["limits"][0]["limit"]), (&json!("k"), &json!(1000)));
    let budget = &body["budgets"][0];
    assert_eq!((&budget["limit"], &budget["used"]), (&json!("2.500000"), &json!("0.000200")));
    assert!(budget["resets_at"].as_str().unwrap().ends_with("-01T00:00:00Z"), "{budget}");
    assert!(!page.text().contains("secretive"));
    assert_eq!(near.ask(&Ask::get("/v1/usage").without("authorization")).await.status(), 401);
}

#[tokio::test]
async fn a_request_that_names_no_maximum_is_bound_by_what_its_owners_allow_one() {
    let lines = "limits = { max_tokens_per_request = 1000 }";
    let (far, near) = world(&[("k", lines)], "").await;
    let sent = |n: usize| far.requests()[n].request.json();
    let ask = chat().key("sk-k");
    assert_eq!(near.ask(&ask).await.status(), 200);
    let most = sent(0)["max_tokens"].as_u64().unwrap();
    assert!((900..1_000).contains(&most), "what the prompt leaves: {most}");
    assert_eq!(near.ask(&ask.clone().set("n", 2)).await.status(), 200);
    let half = sent(1)["max_tokens"].as_u64().unwrap();
    assert!((most / 2 - 5..=most / 2).contains(&half), "each answer's part: {half}");
    assert_eq!(near.ask(&by("k", "", 7)).await.status(), 200);
    assert_eq!(sent(2)["max_tokens"], 7, "the caller's own stands");
    let long = "many words in here ".repeat(400);
    assert_eq!(near.ask(&ask.clone().say(&long)).await.status(), 413);
    assert_eq!(far.count(), 3);
}

#[tokio::test]
async fn a_key_that_runs_into_a_limit_rests_where_its_owner_says_so() {
    let lines = "penalty = \"10m\"\nlimits = { rpm = 600, burst = 1 }";
    let (far, near) = world(&[("k", lines), ("other", "")], "").await;
    assert_eq!(near.ask(&by("k", "", 5)).await.status(), 200);
    for _ in 0..2 {
        let reply = near.ask(&by("k", "", 5)).await;
        assert_eq!(reply.error(), (429, "rate_limit_exceeded".into()));
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((599..=600).contains(&wait), "{wait}");
        assert!(reply.text().contains("rests"), "{}", reply.text());
    }
    assert_eq!(near.ask(&by("other", "", 5)).await.status(), 200);
    assert_eq!(far.count(), 2);
}

#[tokio::test]
async fn a_failure_s_headers_say_what_is_left_once_its_hold_is_back() {
    let (far, near) = world(&[("k", "limits = { rpm = 1000, tpm = 10000 }")], "").await;
    let reply = near.ask(&by("k", "status=500", 5000)).await;
    assert_eq!((reply.status(), far.count()), (502, 1));
    let left = |what: &str| -> u64 {
        let name = format!("x-ratelimit-remaining-{what}");
        reply.header(&name).unwrap().parse().unwrap()
    };
    assert_eq!((left("tokens"), left("requests")), (10_000, 999), "no token of it was used");
    assert_eq!(reply.header("x-ratelimit-reset-tokens"), Some("0ms"));
}
