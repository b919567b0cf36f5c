//! The vault: values that config names, that a running gateway takes over, and that no file holds.

use crate::harness::binary::Tables;
use crate::harness::{Provider, Weir, chat, knobs, provider, toml};
use crate::keys::{admin, nowhere};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const FIRST: &str = "sk-planted-first-Zq81xYpL";
const SECOND: &str = "sk-planted-second-Mw33aaaa";

fn config(a: &Provider) -> String {
    let text = toml::simple(a) + "[vault]\nkey = \"env:VAULT_KEY\"\nold_keys = [\"env:OLD_KEY\"]\n";
    text.replace("\"sk-upstream-a\"", "\"vault:prov\"")
}

fn key(byte: u8) -> String {
    STANDARD.encode([byte; 32])
}

/// The exit code and all that was said; values come by the environment.
fn cli(weir: &Weir, arguments: &[&str]) -> (i32, String) {
    let output = weir.cli(&[&["vault"], arguments].concat());
    let all = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(all).unwrap())
}

async fn prepared(a: &Provider, sealing: u8) -> Weir {
    let (new, old) = (key(sealing), key(7));
    let env = [("VAULT_KEY", &*new), ("OLD_KEY", &*old), ("FIRST", FIRST), ("SECOND", SECOND)];
    Weir::prepare(&config(a), Tables { log: "level = \"debug\"".into(), ..Tables::default() }, &env)
        .await
}

/// What the provider was sent last.
fn last(a: &Provider) -> String {
    let seen = a.requests().pop().unwrap().request;
    seen.header("authorization").unwrap_or_default().to_owned()
}

/// Asks until the provider sees this credential.
async fn until_sent(weir: &Weir, a: &Provider, credential: &str) {
    let (start, want) = (Instant::now(), format!("Bearer {credential}"));
    loop {
        assert_eq!(weir.ask(&chat()).await.status(), 200);
        if last(a) == want {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(3), "{want} never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_sealed_credential_serves_and_a_promoted_one_takes_over_without_a_restart() {
    let a = provider(knobs()).await;
    let mut weir = prepared(&a, 1).await;
    let (code, said) = (weir.cli(&["check"]).status.code(), weir.cli(&["check"]).stderr);
    let said = String::from_utf8(said).unwrap();
    assert!(code == Some(78) && said.contains("weir vault set prov"), "{said}");

    assert_eq!(cli(&weir, &["set", "prov", "--from", "env:FIRST"]).0, 0);
    weir.run();
    weir.ready().await;
    until_sent(&weir, &a, FIRST).await;
    assert_eq!(cli(&weir, &["rotate", "prov", "--from", "env:SECOND"]).0, 0);
    let (_, list) = cli(&weir, &["list"]);
    assert!(list.contains("current") && list.contains("candidate"), "{list}");
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert_eq!(last(&a), format!("Bearer {FIRST}"));
    assert_eq!(cli(&weir, &["promote", "prov"]).0, 0);
    until_sent(&weir, &a, SECOND).await;
    // What is gone is no reason to stop serving: the reload is refused, the old config stays.
    assert_eq!(cli(&weir, &["delete", "prov"]).0, 0);
    assert_eq!(weir.admin("POST", "/admin/v1/reload").await.status(), 422);
    assert_eq!(weir.ask(&chat()).await.status(), 200);

    weir.stop().await;
    let encoded = [FIRST, SECOND].map(|s| STANDARD.encode(s));
    nowhere(&weir, &[FIRST, SECOND, &encoded[0], &encoded[1], &key(1)]);
}

#[tokio::test]
async fn a_wrong_vault_key_is_exit_78_and_says_so() {
    let a = provider(knobs()).await;
    let weir = prepared(&a, 7).await;
    assert_eq!(cli(&weir, &["set", "prov", "--from", "env:FIRST"]).0, 0);
    let copy = |other: &Weir| {
        std::fs::copy(weir.path().join("weir.db"), other.path().join("weir.db")).unwrap();
    };
    let right = prepared(&a, 1).await;
    copy(&right);
    let checked = right.cli(&["check"]);
    assert!(checked.status.success(), "old_keys open what earlier keys sealed");
    // Without the old key nothing opens, and nothing is put beside what does not open.
    let text = config(&a).replace("old_keys = [\"env:OLD_KEY\"]", "");
    right.write(&text);
    let checked = right.cli(&["check"]);
    let said = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(checked.status.code(), Some(78), "{said}");
    assert!(said.contains("the vault key does not open \"prov\""), "{said}");
    let (code, said) = cli(&right, &["set", "other", "--from", "env:SECOND"]);
    assert!(code == 78 && said.contains("does not open"), "{code}: {said}");
}

#[tokio::test]
async fn what_is_no_value_or_no_key_is_refused() {
    let a = provider(knobs()).await;
    let weir = prepared(&a, 1).await;
    for (arguments, want) in [
        (&["set", "prov"][..], 64), // standard input is empty
        (&["set", "prov", "--from", "env:NOT_THERE"], 64),
        (&["set", "prov", "--from", "sk-literal"], 64),
        (&["set", "a/b", "--from", "env:FIRST"], 64),
        (&["rotate", "prov", "--from", "env:FIRST"], 64), // nothing to stand beside
        (&["promote", "prov"], 64),
        (&["delete", "prov"], 64),
    ] {
        let (code, said) = cli(&weir, arguments);
        assert_eq!(code, want, "{arguments:?}: {said}");
        assert!(!said.contains(FIRST), "{said}");
    }
    weir.write(&config(&a).replace("env:VAULT_KEY", "env:FIRST"));
    let (code, said) = cli(&weir, &["list"]);
    assert!(code == 78 && said.contains("32 bytes in base64"), "{code}: {said}");
    assert!(!said.contains(FIRST), "{said}");
}

#[tokio::test]
async fn the_admin_api_seals_rotates_and_promotes_without_a_word_of_the_value() {
    let a = provider(knobs()).await;
    let mut weir = prepared(&a, 1).await;
    assert_eq!(cli(&weir, &["set", "prov", "--from", "env:FIRST"]).0, 0);
    weir.run();
    weir.ready().await;
    let post = async |path: &str, body| admin(&weir, "POST", path, body).await;
    let value = json!({ "value": SECOND });
    let rotated = post("/admin/v1/vault/prov/rotate", value.clone()).await;
    assert_eq!(rotated.status(), 200, "{}", rotated.text());
    let list = admin(&weir, "GET", "/admin/v1/vault", Value::Null).await;
    let states: Vec<Value> =
        list.json()["vault"].as_array().unwrap().iter().map(|e| e["state"].clone()).collect();
    assert_eq!(states, ["current", "candidate"]);
    assert_eq!(post("/admin/v1/vault/prov/promote", Value::Null).await.status(), 200);
    until_sent(&weir, &a, SECOND).await;
    assert_eq!(post("/admin/v1/vault/prov/promote", Value::Null).await.status(), 409);
    assert_eq!(post("/admin/v1/vault/nobody/rotate", value).await.status(), 404);
    let made = post("/admin/v1/vault", json!({"name": "prov", "value": FIRST})).await;
    assert_eq!(made.status(), 201);
    until_sent(&weir, &a, FIRST).await;
    for bad in [json!({"name": "x"}), json!({"value": FIRST}), json!({"name": "x", "value": ""})] {
        let refused = post("/admin/v1/vault", bad).await;
        assert!(refused.status() == 400 && !refused.text().contains("planted"));
    }
    let gone = admin(&weir, "DELETE", "/admin/v1/vault/prov", Value::Null).await;
    assert_eq!(gone.status(), 200);
    weir.stop().await;
    nowhere(&weir, &[FIRST, SECOND]);
}
