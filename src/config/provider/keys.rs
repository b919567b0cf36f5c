//! A provider's credentials: listed, or found where its preset says they usually are.

use super::proof;
use crate::base::{Caps, Credential, Proof};
use crate::config::fault::At;
use crate::config::preset::Preset;
use crate::config::secret;
use crate::config::value::{Node, Shape, Table, Value, View, view};
use crate::route::Auth;
use std::sync::Arc;

const KEY: Shape = Shape {
    known: &[
        "name",
        "value",
        "weight",
        "limits",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "service_account",
        "api_key",
        "secret_key",
    ],
    later: &[],
};

const CAPS: Shape = Shape { known: &["rpm", "tpm", "concurrent"], later: &[] };

/// More than any account is given; larger numbers are typing errors.
const CAP_MAX: u64 = 1_000_000_000_000;
/// A share above this is a typing error.
const WEIGHT_MAX: u64 = 1_000_000;

pub(super) fn credentials(
    v: &View<'_>,
    auth: &Auth,
    preset: Option<&Preset>,
) -> Vec<Arc<Credential>> {
    let Some(node) = v.get("api_keys") else {
        return if *auth == Auth::None { Vec::new() } else { usual(v, preset) };
    };
    let Value::List(items) = &node.value else {
        v.fault("api_keys", format!("a list is needed here, not {}", node.value.kind()));
        return Vec::new();
    };
    if *auth == Auth::None {
        v.fault("api_keys", "auth is none, so nothing would send them");
    } else if items.is_empty() {
        v.fault("api_keys", "is empty");
    }
    let all: Vec<(At, Credential)> =
        items.iter().enumerate().filter_map(|(i, item)| one(v, item, i + 1)).collect();
    for (i, (at, key)) in all.iter().enumerate() {
        if all[..i].iter().any(|(_, other)| other.name == key.name) {
            v.book.fault(*at, &v.key("api_keys"), format!("two are named {:?}", key.name));
        }
    }
    if !all.is_empty() && all.iter().all(|(_, key)| key.weight == 0) {
        v.fault("api_keys", "all weights are 0");
    }
    all.into_iter().map(|(_, key)| Arc::new(key)).collect()
}

fn one(v: &View<'_>, item: &Node, number: usize) -> Option<(At, Credential)> {
    let key = v.item("api_keys", number - 1);
    let name = format!("key-{number}");
    if let Value::Text(text) = &item.value {
        let proof = Proof::Bare(secret::secret(v.book, item.at, &key, text)?);
        return Some((item.at, Credential { name, proof, weight: 1, caps: None }));
    }
    let table = view(v.book, item, key, &KEY)?;
    let weight = table.integer("weight", 0..=WEIGHT_MAX).unwrap_or(1) as u32;
    let name = table.text("name").map_or(name, str::to_owned);
    let proof = proof::proof(v, &table)?;
    Some((item.at, Credential { name, proof, weight, caps: caps(&table) }))
}

fn caps(v: &View<'_>) -> Option<Caps> {
    let v = v.table("limits", &CAPS)?;
    if v.table.is_empty() {
        v.complain("limits nothing");
    }
    let amount = |key| v.integer(key, 1..=CAP_MAX);
    Some(Caps { rpm: amount("rpm"), tpm: amount("tpm"), concurrent: amount("concurrent") })
}

/// The first of the preset's environment variables that is set and not empty.
fn usual(v: &View<'_>, preset: Option<&Preset>) -> Vec<Arc<Credential>> {
    let Some(preset) = preset else {
        v.complain("needs api_keys, or auth = \"none\"");
        return Vec::new();
    };
    let set = |name: &str| (v.book.env)(name).filter(|value| !value.is_empty());
    if let Some(name) = preset.env.iter().find(|name| set(name).is_some()) {
        let found = secret::secret(v.book, v.at, &v.key("api_keys"), &format!("env:{name}"));
        let one = |secret| {
            let (name, proof) = ("key-1".into(), Proof::Bare(secret));
            Credential { name, proof, weight: 1, caps: None }
        };
        return found.map(one).map(Arc::new).into_iter().collect();
    }
    let parts = preset.parts.iter().find_map(|node| filled(node, &set));
    if let Some(node) = parts {
        return one(v, &node, 1).map(|(_, key)| Arc::new(key)).into_iter().collect();
    }
    if !preset.keyless {
        let mut names = preset.env.clone();
        names.extend(preset.parts.iter().map(variables));
        let names = names.join(" or ");
        v.complain(format!("needs api_keys, since the environment has no {names}"));
    }
    Vec::new()
}

/// A credential's parts where the environment has all of them; a session token may lack.
fn filled(node: &Node, set: &dyn Fn(&str) -> Option<String>) -> Option<Node> {
    let Value::Table(table) = &node.value else { return None };
    let mut out: Table = table.clone();
    for (key, entry) in table {
        let Value::Text(text) = &entry.node.value else { return None };
        let name = text.split_once(':').map_or("", |(_, name)| name);
        match set(name) {
            None if key == "session_token" => drop(out.remove(key)),
            None => return None,
            Some(path) if text.starts_with("path:") => {
                out.get_mut(key)?.node.value = Value::Text(format!("file:{path}"));
            }
            Some(_) => {}
        }
    }
    Some(Node { at: node.at, value: Value::Table(out) })
}

/// The variables that a credential's parts are in, for people.
fn variables(node: &Node) -> String {
    let Value::Table(table) = &node.value else { return String::new() };
    let needed = table.iter().filter(|(key, _)| *key != "session_token");
    let names = needed.filter_map(|(_, entry)| match &entry.node.value {
        Value::Text(text) => text.split_once(':').map(|(_, name)| name),
        _ => None,
    });
    names.collect::<Vec<_>>().join(" and ")
}
