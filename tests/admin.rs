//! The admin side over the wire: who may, what is shown, what is not in this version.

use crate::harness::binary::{TOKEN, Tables};
use crate::harness::{
    Ask, Client, PATIENCE, Reply, Weir, chat, closed_port, knobs, provider, soon, toml,
};
use bytes::Bytes;
use std::time::Instant;

fn alone() -> String {
    let nowhere = format!("http://127.0.0.1:{}", closed_port());
    let text = toml::custom("a", "openai", &nowhere, "") + &toml::key();
    text + &toml::model("m", &["a/up-model"])
}

async fn get(port: u16, path: &str) -> Reply {
    Client::connect(port).await.ask(&Ask::raw("GET", path, Bytes::new())).await
}

/// Listeners accept a moment before readiness knows.
async fn until_ready(port: u16) {
    let start = Instant::now();
    while get(port, "/health/ready").await.status() != 200 {
        assert!(start.elapsed() < PATIENCE, "never ready");
    }
}

/// Status and code of an error. (Hints for retries are for clients of the other side.)
fn refusal(reply: &Reply) -> (u16, String) {
    (reply.status(), reply.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn only_the_token_opens_the_api_and_probes_need_none() {
    let weir = Weir::start(&alone()).await;
    until_ready(weir.admin).await;
    for path in ["/health/live", "/health/ready", "/metrics", "/"] {
        assert_eq!(get(weir.admin, path).await.status(), 200, "{path}");
    }
    for path in ["/admin/v1/models", "/admin/v1/keys", "/admin/v1/nothing"] {
        let refused = get(weir.admin, path).await;
        assert_eq!(refusal(&refused), (401, "invalid_admin_token".into()), "{path}");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    }
    let with = async |value: &str| {
        let ask = Ask::raw("GET", "/admin/v1/models", Bytes::new()).with("authorization", value);
        Client::connect(weir.admin).await.ask(&ask).await.status()
    };
    assert_eq!(with("Bearer admin-secre").await, 401);
    assert_eq!(with(&format!("Basic {TOKEN}")).await, 401);
    assert_eq!(with(&format!("bearer {TOKEN}")).await, 200);
    let client = Ask::raw("POST", "/admin/v1/drain", Bytes::new());
    let client = client.with("authorization", "Bearer sk-test");
    let refused = Client::connect(weir.admin).await.ask(&client).await;
    assert_eq!(refused.status(), 401, "a client's key is no admin token");
}

#[tokio::test]
async fn without_a_token_there_is_no_api() {
    let mut weir = Weir::prepare(&alone(), Tables::default(), &[]).await;
    let text = std::fs::read_to_string(weir.config()).unwrap();
    std::fs::write(weir.config(), text.replace(&format!("token = \"{TOKEN}\""), "")).unwrap();
    weir.run();
    weir.ready().await;
    assert_eq!(weir.admin("GET", "/admin/v1/models").await.status(), 404);
    assert_eq!(weir.admin("POST", "/admin/v1/drain").await.status(), 404);
    assert_eq!(weir.admin("GET", "/metrics").await.status(), 200);
    assert_eq!(weir.admin("GET", "/health/live").await.status(), 200);
}

#[tokio::test]
async fn the_metrics_listener_serves_metrics_and_health_alone() {
    let port = closed_port();
    let admin = format!("metrics_listen = \"127.0.0.1:{port}\"");
    let weir = Weir::with(&alone(), Tables { admin, ..Tables::default() }, &[]).await;
    assert!(get(port, "/metrics").await.text().contains("weir_build_info"));
    until_ready(port).await;
    let ask = Ask::raw("GET", "/admin/v1/models", Bytes::new());
    let ask = ask.with("authorization", &format!("Bearer {TOKEN}"));
    assert_eq!(Client::connect(port).await.ask(&ask).await.status(), 404);
    assert_eq!(weir.admin("GET", "/admin/v1/models").await.status(), 200);
}

#[tokio::test]
async fn views_show_what_config_made_and_no_secret() {
    let weir = Weir::start(&alone()).await;
    let providers = weir.admin("GET", "/admin/v1/providers").await;
    let a = &providers.json()["providers"][0];
    assert_eq!((a["name"].as_str(), a["wire"].as_str()), (Some("a"), Some("openai")));
    assert_eq!(a["credentials"][0]["name"], "key-1");
    let models = weir.admin("GET", "/admin/v1/models").await;
    let m = models.json()["models"][0].clone();
    assert_eq!((&m["name"], &m["targets"][0]["model"]), (&"m".into(), &"up-model".into()));
    for text in [providers.text(), models.text()] {
        assert!(!text.contains("sk-upstream-a") && !text.contains("sk-test"), "{text}");
    }
}

#[tokio::test]
async fn what_is_of_a_later_version_answers_501() {
    let weir = Weir::start(&alone()).await;
    for (method, path) in [("PUT", "/admin/v1/models"), ("POST", "/admin/v1/providers")] {
        let reply = weir.admin(method, path).await;
        assert_eq!(refusal(&reply), (501, "not_implemented".into()), "{method} {path}");
    }
    assert_eq!(weir.admin("GET", "/admin/v1/nothing").await.status(), 404);
    assert_eq!(weir.admin("GET", "/nothing").await.status(), 404);
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let weir = Weir::start(&alone()).await;
    for (method, path, right) in [
        ("GET", "/admin/v1/reload", "POST"),
        ("GET", "/admin/v1/drain", "POST"),
        ("PUT", "/admin/v1/usage", "GET,HEAD"),
    ] {
        let reply = weir.admin(method, path).await;
        assert_eq!(refusal(&reply), (405, "method_not_allowed".into()), "{method} {path}");
        assert_eq!(reply.header("allow"), Some(right), "{method} {path}");
    }
}

#[tokio::test]
async fn the_ledger_is_read_over_the_api() {
    let far = provider(knobs()).await;
    let weir = Weir::start(&toml::simple(&far)).await;
    for _ in 0..3 {
        assert_eq!(weir.ask(&chat().say("in=10 out=5")).await.status(), 200);
    }
    weir.ask(&chat().model("nobody")).await;
    weir.events(4).await;
    let get = async |path: &str| weir.admin("GET", path).await;
    soon("the ledger", async {
        while get("/admin/v1/events").await.json()["events"].as_array().unwrap().len() < 4 {}
    })
    .await;
    let usage = get("/admin/v1/usage?by=key,status").await.json();
    assert_eq!(
        (&usage["rows"][0]["status"], &usage["rows"][0]["requests"]),
        (&200.into(), &3.into()),
        "{usage}"
    );
    let events = get("/admin/v1/events?status=200&limit=2").await.json();
    let events = events["events"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["input_tokens"]), (2, &10.into()));
    let id = events[0]["event_id"].as_str().unwrap();
    let one = get(&format!("/admin/v1/events?event_id={id}")).await.json();
    assert_eq!(one["events"], serde_json::json!([events[0]]));
    let spooled = weir.events(4).await;
    let same = spooled.iter().find(|e| e["event_id"] == *id).unwrap();
    for (name, value) in events[0].as_object().unwrap() {
        assert!(same.get(name) == Some(value) || name == "ts", "{name}: {value} of {same}");
    }
    for bad in
        ["usage?by=modl", "usage?since=x", "usage?currency=XYZ", "events?event_id=7", "events?x=1"]
    {
        assert_eq!(get(&format!("/admin/v1/{bad}")).await.status(), 400, "{bad}");
    }
}

#[tokio::test]
async fn teams_are_shown_with_how_they_stand() {
    let far = provider(knobs()).await;
    let team = "[departments.d]\n[teams.crew]\ndepartment = \"d\"\nlimits = { rpm = 9 }\n\
                budgets = [{ tokens = 1000, per = \"ever\" }]\n";
    let weir = Weir::start(&[toml::simple(&far), team.into()].concat()).await;
    weir.ask(&chat().say("in=10 out=5").set("max_tokens", 5)).await;
    let crew = weir.admin("GET", "/admin/v1/teams/crew").await.json();
    assert_eq!((&crew["department"], &crew["keys"]), (&"d".into(), &serde_json::json!(["test"])));
    assert_eq!(crew["budgets"][0]["used"], 15, "{crew}");
    let all = weir.admin("GET", "/admin/v1/teams").await.json();
    assert_eq!(all["teams"][0]["budgets"], crew["budgets"]);
    assert_eq!(weir.admin("GET", "/admin/v1/teams/nobody").await.status(), 404);
    let refused = weir.admin("DELETE", "/admin/v1/teams/crew").await;
    assert_eq!(refusal(&refused), (409, "defined_in_file".into()));
}
