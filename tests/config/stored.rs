//! Keys of the store, compiled under a config.

use super::{P, env};
use std::collections::BTreeMap;
use weir::config::{self, Minted, mint, mint_again};
use weir::store::keys::{KeyRow, SecretRow};

fn row(name: &str, said: &str, secrets: &[u8]) -> KeyRow {
    let secret = |n: &u8| SecretRow { hash: [*n; 32], until: None };
    KeyRow {
        id: format!("{name}~1"),
        name: name.into(),
        definition: said.into(),
        enabled: true,
        created: 1,
        secrets: secrets.iter().map(secret).collect(),
    }
}

fn told(minted: &Minted) -> (BTreeMap<u8, String>, Vec<String>) {
    let keys = minted.keys.0.iter().map(|(hash, key)| (hash[0], format!("{key:?}"))).collect();
    let mut rules: Vec<_> = minted.rules.all().map(|rule| rule.said() + &rule.id).collect();
    rules.sort();
    (keys, rules)
}

#[test]
fn keys_that_changed_are_compiled_as_if_all_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.toml");
    std::fs::write(&path, format!("{P}[key_defaults]\nlimits = {{ rpm = 5 }}\n[teams.t]\n"))
        .unwrap();
    let snapshot = config::read_with(&path, &env).result.unwrap().snapshot;
    let old = [
        row("gone", r#"{"limits":{"tpm":9}}"#, &[1]),
        row("off", "{}", &[2]),
        row("rotated", r#"{"team":"t"}"#, &[3, 4]),
        row("same", r#"{"limits":{"tpm":7},"user":"u"}"#, &[5]),
        row("wider", r#"{"limits":{"tpm":7}}"#, &[6]),
    ];
    let mut new = old[1..].to_vec();
    new[0].enabled = false;
    new[1].secrets.remove(0);
    new[3].definition = r#"{"limits":{"concurrent":8}}"#.into();
    new.push(row("young", r#"{"budgets":[{"usd":1.5,"per":"day"}]}"#, &[7]));
    let before = mint(&snapshot, &old);
    let again = mint_again(&snapshot, &before, &old, &new);
    assert_eq!(told(&again), told(&mint(&snapshot, &new)));
    assert_ne!(told(&again), told(&before));
    let same = |minted: &Minted| minted.keys.0[&[5; 32]].clone();
    assert!(std::sync::Arc::ptr_eq(&same(&before), &same(&again)), "taken over, not compiled");
}
