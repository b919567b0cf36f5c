//! Keys: who calls, what they may ask for, what they see of it.

use crate::harness::*;
use serde_json::{Value, json};

fn config(a: &Provider) -> String {
    [
        &toml::openai("a", a),
        &toml::model("m", &["a/up-model"]),
        &toml::model("big", &["a/big-model"]),
        &toml::model("ok-*", &["a/*"]),
        &toml::key(),
        "[teams.crew]\naliases = { fast = \"big\", quick = \"m\" }\n",
        "[keys.narrow]\nsecret = \"sk-narrow\"\nteam = \"crew\"\nmodels = [\"m\", \"ok-*\"]\n",
        "[keys.other]\nsecret = \"sk-other\"\nmodels = [\"ok-*\"]\n",
        "[keys.later]\nsecret = \"sk-later\"\nexpires = \"2100-01-01T00:00:00Z\"\n",
        "[keys.old]\nsecret = \"sk-old\"\nexpires = \"2020-01-01T00:00:00Z\"\n",
        "[keys.off]\nsecret = \"sk-off\"\nenabled = false\n",
        // SHA-256 of `sk-hashed`
        "[keys.hashed]\nhash = \"sha256:",
        HASH,
        "\"\n",
    ]
    .concat()
}

const HASH: &str = "c291001835042e213221b2f9fca79c9c91d08813d599b717bc695a268edb2ea6";

#[tokio::test]
async fn a_key_may_stand_in_four_headers_and_the_first_counts() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&config(&a)).await;
    let bare = || chat().without("authorization");
    let check = async |ask: Ask, status: u16| assert_eq!(gateway.ask(&ask).await.status(), status);
    for name in ["x-api-key", "api-key", "x-goog-api-key"] {
        check(bare().with(name, KEY), 200).await;
        check(bare().with(name, "sk-wrong"), 401).await;
    }
    check(bare().with("authorization", &format!("bearer  {KEY} ")), 200).await;
    check(chat().with("x-api-key", "sk-wrong"), 200).await;
    check(chat().key("sk-wrong").with("x-api-key", KEY), 401).await;
    check(bare().with("authorization", &format!("Basic {KEY}")), 401).await;
    check(bare().with("authorization", KEY), 401).await;
    check(bare().with("authorization", "Bearer "), 401).await;
    check(Ask { path: format!("/v1/chat/completions?key={KEY}"), ..bare() }, 401).await;
    check(chat().key("sk-hashed"), 200).await;
    check(chat().key(&format!("sha256:{HASH}")), 401).await;
    check(chat().key(HASH), 401).await;
}

#[tokio::test]
async fn keys_expire_and_can_be_switched_off() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&config(&a)).await;
    let code = async |secret| gateway.ask(&chat().key(secret)).await.error().1;
    assert_eq!(gateway.ask(&chat().key("sk-later")).await.status(), 200);
    assert_eq!(code("sk-old").await, "key_expired");
    assert_eq!(code("sk-off").await, "key_disabled");
    assert_eq!(a.count(), 1);
    let names: Vec<_> = gateway.events().await.iter().map(|e| e["key_name"].clone()).collect();
    assert_eq!(names, ["later", "old", "off"]);
}

#[tokio::test]
async fn an_allowlist_holds_for_every_spelling() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&config(&a)).await;
    for model in ["m", "ok-1", "ok-", "quick"] {
        let reply = gateway.ask(&chat().key("sk-narrow").model(model)).await;
        assert_eq!(reply.status(), 200, "{model}: {}", reply.text());
    }
    let before = a.count();
    for model in ["big", "fast", "a/big-model", "a/up-model", "up-model"] {
        let reply = gateway.ask(&chat().key("sk-narrow").model(model)).await;
        assert_eq!(reply.error(), (403, "model_not_allowed".into()), "{model}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        let usable = message.split("may use: ").nth(1).unwrap();
        assert_eq!(usable, "m", "names what the key may use, and no other");
    }
    for model in ["BIG", "big ", " big", "big:fallback", "m ", "M"] {
        let reply = gateway.ask(&chat().key("sk-narrow").model(model)).await;
        assert_eq!(reply.error(), (404, "model_not_found".into()), "{model}");
    }
    assert_eq!(
        gateway.ask(&chat().key("sk-other")).await.error(),
        (403, "model_not_allowed".into())
    );
    assert_eq!(a.count(), before);
    let event = gateway.events().await.swap_remove(3);
    assert_eq!((&event["requested_model"], &event["model"]), (&"quick".into(), &"up-model".into()));
}

#[tokio::test]
async fn models_are_listed_as_far_as_the_key_may_and_in_its_words() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&config(&a)).await;
    let body = gateway.ask(&Ask::get("/v1/models")).await.json();
    let names = ids(&body);
    assert!(["big", "m", "up-model"].iter().all(|n| names.contains(&(*n).to_owned())), "{names:?}");
    assert!(names.is_sorted() && names.iter().all(|n| !n.contains('*')));
    assert_eq!((&body["object"], &body["data"][0]["object"]), (&"list".into(), &"model".into()));
    assert!(body["data"][0]["created"].is_u64() && body["data"][0]["owned_by"].is_string());
    let narrow = gateway.ask(&Ask::get("/v1/models").key("sk-narrow")).await.json();
    assert_eq!(ids(&narrow), ["m"]);
    let anthropic = |path| Ask::get(path).key("sk-narrow").with("anthropic-version", "2023-06-01");
    let body = gateway.ask(&anthropic("/v1/models")).await.json();
    let born = &body["data"][0]["created_at"];
    let model = json!({"type": "model", "id": "m", "display_name": "m", "created_at": born});
    assert_eq!(body, json!({"data": [model], "first_id": "m", "last_id": "m", "has_more": false}));
    assert_eq!(gateway.ask(&anthropic("/v1/models/m")).await.json(), model);
    pages(&gateway, &names).await;
    let one = gateway.ask(&Ask::get("/v1/models/a%2Fup-model")).await.json();
    assert_eq!((&one["id"], &one["object"]), (&"a/up-model".into(), &"model".into()));
    let code = async |path, key| gateway.ask(&Ask::get(path).key(key)).await.error();
    assert_eq!(code("/v1/models/nobody", KEY).await, (404, "model_not_found".into()));
    assert_eq!(code("/v1/models/big", "sk-narrow").await, (403, "model_not_allowed".into()));
    assert_eq!(code("/v1/models", "sk-wrong").await, (401, "invalid_api_key".into()));
    assert_eq!(a.count(), 0);
}

fn ids(body: &Value) -> Vec<String> {
    let list = body["data"].as_array().unwrap().iter();
    list.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

/// Anthropic's list comes in pages, forwards and backwards; OpenAI's has none.
async fn pages(gateway: &Gateway, names: &[String]) {
    let page = async |query: &str| {
        let path = format!("/v1/models?{query}");
        let ask = Ask::get(&path).with("anthropic-version", "2023-06-01");
        let reply = gateway.ask(&ask).await;
        (reply.status(), reply.json())
    };
    let first = page("limit=1").await.1;
    assert_eq!((&first["first_id"], &first["last_id"]), (&json!(names[0]), &json!(names[0])));
    assert_eq!((ids(&first), &first["has_more"]), (names[..1].to_vec(), &json!(true)));
    let rest = page(&format!("limit=1000&after_id={}", names[0].replace('/', "%2F"))).await.1;
    assert_eq!((ids(&rest), &rest["has_more"]), (names[1..].to_vec(), &json!(false)));
    let last = names.last().unwrap().replace('/', "%2F");
    let back = page(&format!("limit=2&before_id={last}")).await.1;
    let want = names[names.len() - 3..names.len() - 1].to_vec();
    assert_eq!((ids(&back), &back["has_more"]), (want, &json!(names.len() > 3)));
    let none = page(&format!("after_id={last}")).await.1;
    let want = json!({"data": [], "first_id": null, "last_id": null, "has_more": false});
    assert_eq!(none, want);
    for bad in ["limit=0", "limit=1001", "limit=x", "after_id=nobody", "before_id=a&after_id=m"] {
        let (status, body) = page(bad).await;
        assert_eq!(
            (status, &body["error"]["type"]),
            (400, &json!("invalid_request_error")),
            "{bad}"
        );
    }
    assert_eq!(ids(&gateway.ask(&Ask::get("/v1/models?limit=1")).await.json()), *names);
}

#[tokio::test]
async fn health_needs_no_key() {
    let a = answering(Answer::default()).await;
    let gateway = gateway(&config(&a)).await;
    for path in ["/", "/health", "/health/ready"] {
        assert_eq!(gateway.ask(&Ask::raw("GET", path, "".into())).await.status(), 200, "{path}");
    }
    let mut client = gateway.client().await;
    client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    gateway.inner.drain.advance(weir::flow::Phase::Leaving);
    let red = gateway.ask(&Ask::raw("GET", "/health/ready", "".into())).await;
    assert_eq!((red.status(), &red.json()["reasons"][0]), (503, &"draining".into()));
    assert_eq!(gateway.ask(&chat()).await.status(), 200, "still serving");
}
