//! Keys of the store: made by the command line and the admin API, in force in a running gateway.

use crate::harness::binary::{TOKEN, Tables};
use crate::harness::{Ask, Client, Provider, Reply, Weir, chat, knobs, provider, toml};
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// README: a store's key acts within a second.
const WITHIN: Duration = Duration::from_secs(1);

fn config(a: &Provider) -> String {
    let team = "[teams.crew]\ndepartment = \"R&D\"\nmodels = [\"m\"]\n[departments.\"R&D\"]\n";
    toml::simple(a) + &toml::model("other", &["a/up-model"]) + team
}

/// A command that must work: what it printed.
fn cli(weir: &Weir, arguments: &[&str]) -> String {
    let output = weir.cli(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn refusal(reply: &Reply) -> (u16, String) {
    let code = reply.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
    (reply.status(), code)
}

/// Asks until the answer is this one.
async fn until(weir: &Weir, ask: &Ask, want: u16) {
    let start = Instant::now();
    loop {
        let status = weir.ask(ask).await.status();
        if status == want {
            return;
        }
        // Twice the promise, for a machine that runs other tests beside this one.
        assert!(start.elapsed() < 2 * WITHIN, "{status}, not {want}, after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn admin(weir: &Weir, method: &str, path: &str, body: Value) -> Reply {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let ask = Ask::raw(method, path, body).with("content-type", "application/json");
    let ask = ask.with("authorization", &format!("Bearer {TOKEN}"));
    Client::connect(weir.admin).await.ask(&ask).await
}

/// No file of the gateway holds any of these.
pub fn nowhere(weir: &Weir, secrets: &[&str]) {
    let mut folders = vec![weir.path().to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let Ok(bytes) = std::fs::read(&path) else { continue };
            for secret in secrets {
                let holds = memchr::memmem::find(&bytes, secret.as_bytes()).is_some();
                assert!(!holds, "{secret} is in {}", path.display());
            }
        }
    }
    assert!(files >= 4, "config, log, store and spool at least, not {files}");
}

#[tokio::test]
async fn a_key_lives_and_dies_within_a_second_of_its_command() {
    let a = provider(knobs()).await;
    let weir = Weir::start(&config(&a)).await;
    let create = ["keys", "create", "--name", "one", "--team", "crew", "--user", "ann"];
    let secret = cli(&weir, &create);
    assert!(secret.starts_with("sk-weir-") && secret.len() == "sk-weir-".len() + 43, "256 bits");
    let ask = chat().key(&secret);
    until(&weir, &ask, 200).await;
    let refused = weir.ask(&ask.clone().set("model", "other")).await;
    assert_eq!(refusal(&refused), (403, "model_not_allowed".into()), "the team's allowlist holds");

    cli(&weir, &["keys", "disable", "one"]);
    until(&weir, &ask, 401).await;
    assert_eq!(refusal(&weir.ask(&ask).await).1, "key_disabled");
    cli(&weir, &["keys", "enable", "one"]);
    until(&weir, &ask, 200).await;

    let second = cli(&weir, &["keys", "rotate", "one", "--grace", "24h"]);
    until(&weir, &chat().key(&second), 200).await;
    assert_eq!(weir.ask(&ask).await.status(), 200, "the old secret has its days of grace");
    let third = cli(&weir, &["keys", "rotate", "one"]);
    until(&weir, &chat().key(&third), 200).await;
    for old in [&secret, &second] {
        assert_eq!(refusal(&weir.ask(&chat().key(old)).await), (401, "invalid_api_key".into()));
    }

    let shown: Value = serde_json::from_str(&cli(&weir, &["keys", "show", "one"])).unwrap();
    assert_eq!((&shown["team"], &shown["source"]), (&json!("crew"), &json!("store")));
    let events = weir.events(8).await;
    let event = events.iter().find(|e| e["key_name"] == "one").expect("an event of the key");
    assert_eq!((&event["key_id"], &event["user"]), (&shown["id"], &json!("ann")));
    assert_eq!(event["department"], "R&D");
    cli(&weir, &["keys", "delete", "one"]);
    until(&weir, &chat().key(&third), 401).await;
    assert!(!cli(&weir, &["keys", "list"]).contains("one "), "it is forgotten");
    nowhere(&weir, &[&secret, &second, &third]);
}

#[tokio::test]
async fn limits_budgets_and_the_end_of_a_stored_key_hold_as_of_one_in_config() {
    let a = provider(knobs()).await;
    let defaults = "[key_defaults]\nlimits = { rpm = 1 }\naliases = { short = \"m\" }\n\
                    tags = [\"untold\"]\n[users.ann]\nmodels = [\"other\"]\n";
    let weir = Weir::start(&(config(&a) + defaults)).await;
    let create = |name: &str, more: &[&str]| {
        cli(&weir, &[&["keys", "create", "--name", name], more].concat())
    };
    let limited = chat().key(&create("limited", &["--rpm", "2"]));
    until(&weir, &limited, 200).await;
    assert_eq!(weir.ask(&limited).await.status(), 200);
    let refused = weir.ask(&limited).await;
    assert_eq!(refusal(&refused), (429, "rate_limit_exceeded".into()));
    assert!(refused.text().contains("key limited"), "{}", refused.text());

    let plain = chat().key(&create("plain", &[]));
    until(&weir, &plain, 200).await;
    assert_eq!(weir.ask(&plain).await.status(), 429, "key_defaults fill what it does not say");
    let ann = chat().key(&create("ann", &["--user", "ann", "--rpm", "9"]));
    until(&weir, &ann.clone().set("model", "other"), 200).await;
    let refused = weir.ask(&ann.set("model", "short")).await;
    assert_eq!(refusal(&refused), (403, "model_not_allowed".into()), "by the default name");

    let poor = create("poor", &["--rpm", "99", "--budget", "0usd/day"]);
    until(&weir, &chat().key(&poor), 402).await;
    let usage = weir.ask(&Ask::get("/v1/usage").key(&poor)).await.json();
    assert_eq!(usage["key"], "poor");
    assert_eq!(usage["budgets"].as_array().unwrap().len(), 1, "{usage}");

    let short = chat().key(&create("short", &["--expires", "2020-01-01"]));
    until(&weir, &short, 401).await;
    let start = Instant::now();
    while refusal(&weir.ask(&short).await).1 != "key_expired" {
        assert!(start.elapsed() < 2 * WITHIN);
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_every_fault() {
    let a = provider(knobs()).await;
    let weir = Weir::prepare(&config(&a), Tables::default(), &[]).await;
    for (arguments, says) in [
        (&["--name", "x", "--team", "creew"][..], "did you mean \"crew\"?"),
        (&["--name", "x", "--models", "nope"], "nobody serves \"nope\""),
        (&["--name", "x", "--rpm", "0"], "limits"),
        (&["--name", "x", "--budget", "20eur/day"], "20usd/day"),
        (&["--name", "x", "--budget", "20usd/year"], "year"),
        (&["--name", "x", "--expires", "soon"], "--expires soon"),
        (&["--name", "test"], "a file defines"),
        (&["--name", "a/b"], "without `/`"),
    ] {
        let output = weir.cli(&[&["keys", "create"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{arguments:?}, said once: {said}");
    }
    cli(&weir, &["keys", "create", "--name", "x"]);
    assert_eq!(weir.cli(&["keys", "create", "--name", "x"]).status.code(), Some(64), "taken");
    assert_eq!(weir.cli(&["keys", "disable", "test"]).status.code(), Some(64), "in a file");
    assert_eq!(weir.cli(&["keys", "disable", "y"]).status.code(), Some(64), "nowhere");
}

#[tokio::test]
async fn the_admin_api_makes_keys_that_act_before_it_answers() {
    let a = provider(knobs()).await;
    let weir = Weir::start(&config(&a)).await;
    let body = json!({"name": "api", "team": "crew", "limits": {"rpm": 1000}});
    let made = admin(&weir, "POST", "/admin/v1/keys", body.clone()).await;
    assert_eq!(made.status(), 201, "{}", made.text());
    let secret = made.json()["secret"].as_str().unwrap().to_owned();
    let ask = chat().key(&secret);
    assert_eq!(weir.ask(&ask).await.status(), 200, "the next request");
    let again = admin(&weir, "POST", "/admin/v1/keys", body).await;
    assert_eq!(refusal(&again), (409, "already_exists".into()));

    let list = admin(&weir, "GET", "/admin/v1/keys", Value::Null).await;
    let keys = list.json()["keys"].as_array().unwrap().clone();
    let sources: Vec<_> = keys.iter().map(|k| (&k["name"], &k["source"])).collect();
    assert_eq!(sources, [(&json!("test"), &json!("file")), (&json!("api"), &json!("store"))]);
    assert!(!list.text().contains(&secret) && !list.text().contains("hash"));

    let post = async |path: &str, body| admin(&weir, "POST", path, body).await;
    assert_eq!(post("/admin/v1/keys/api/disable", Value::Null).await.status(), 200);
    assert_eq!(refusal(&weir.ask(&ask).await), (401, "key_disabled".into()), "the next request");
    post("/admin/v1/keys/api/enable", Value::Null).await;
    let rotated = post("/admin/v1/keys/api/rotate", json!({"grace": "1h"})).await.json();
    let second = rotated["secret"].as_str().unwrap();
    assert!(rotated["old_secret_until"].is_string());
    for secret in [&*secret, second] {
        assert_eq!(weir.ask(&chat().key(secret)).await.status(), 200);
    }
    for path in ["/admin/v1/keys/test/disable", "/admin/v1/keys/test/rotate"] {
        assert_eq!(refusal(&post(path, Value::Null).await), (409, "defined_in_file".into()));
    }
    let gone = admin(&weir, "DELETE", "/admin/v1/keys/test", Value::Null).await;
    assert_eq!(refusal(&gone), (409, "defined_in_file".into()));
    assert_eq!(admin(&weir, "DELETE", "/admin/v1/keys/api", Value::Null).await.status(), 200);
    for secret in [&*secret, second] {
        assert_eq!(refusal(&weir.ask(&chat().key(secret)).await).1, "invalid_api_key");
    }
    let bad = post("/admin/v1/keys", json!({"name": "x", "team": "nobody"})).await;
    assert_eq!(refusal(&bad), (400, "invalid_request".into()));
}

#[tokio::test]
async fn a_store_that_is_away_takes_no_known_key_along() {
    let a = provider(knobs()).await;
    let weir = Weir::start(&config(&a)).await;
    let secret = cli(&weir, &["keys", "create", "--name", "one"]);
    until(&weir, &chat().key(&secret), 200).await;
    let unknown = chat().key("sk-weir-unknown");
    assert_eq!(weir.ask(&unknown).await.status(), 401);
    for part in ["weir.db", "weir.db-wal", "weir.db-shm"] {
        let aside = weir.path().join(format!("aside-{part}"));
        std::fs::rename(weir.path().join(part), aside).unwrap();
    }
    until(&weir, &unknown, 503).await;
    let refused = weir.ask(&unknown).await;
    assert_eq!(refusal(&refused), (503, "store_unavailable".into()));
    assert_eq!(refused.header("x-should-retry"), Some("true"));
    assert_eq!(weir.ask(&chat().key(&secret)).await.status(), 200, "known in the store");
    assert_eq!(weir.ask(&chat()).await.status(), 200, "known in config");
}

#[tokio::test]
async fn a_key_whose_team_is_gone_is_refused_and_never_let_through_with_less() {
    let a = provider(knobs()).await;
    let text = config(&a) + "[teams.late]\nmodels = [\"m\"]\n";
    let weir = Weir::start(&text).await;
    let secret = cli(&weir, &["keys", "create", "--name", "one", "--team", "late"]);
    until(&weir, &chat().key(&secret), 200).await;
    weir.write(&config(&a));
    assert_eq!(weir.admin("POST", "/admin/v1/reload").await.status(), 200);
    assert_eq!(refusal(&weir.ask(&chat().key(&secret)).await), (401, "key_disabled".into()));
    weir.write(&text);
    weir.admin("POST", "/admin/v1/reload").await;
    assert_eq!(weir.ask(&chat().key(&secret)).await.status(), 200);
}

#[tokio::test]
async fn the_flood_guard_stands_before_the_door() {
    let a = provider(knobs()).await;
    let guard = "[flood]\nfailed_auth_per_minute = 3\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let weir = Weir::start(&(config(&a) + guard)).await;
    let from = |ip: &str, ask: Ask| ask.with("x-forwarded-for", ip);
    for _ in 0..3 {
        assert_eq!(weir.ask(&from("1.1.1.1", chat().key("sk-guess"))).await.status(), 401);
    }
    // The minute may end in between: then the count begins anew, and so do the guesses.
    let refused = weir.ask(&from("1.1.1.1", chat())).await;
    assert_eq!(refusal(&refused), (429, "rate_limit_exceeded".into()), "even with a good key");
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert!(refused.text().contains("failed_auth_per_minute 3"), "{}", refused.text());
    assert_eq!(weir.ask(&from("2.2.2.2", chat())).await.status(), 200, "another client");
    let counted = weir.metric("weir_rate_limited_total", &[("scope", "client")]).await;
    assert_eq!(counted, Some(1.0));
}
