//! A provider's credentials: listed, or found where its preset says they usually are.

use crate::base::{Caps, Credential, Secret};
use crate::config::fault::At;
use crate::config::preset::Preset;
use crate::config::secret;
use crate::config::value::{Node, Shape, Value, View, view};
use crate::route::Auth;
use std::sync::Arc;

const KEY: Shape = Shape {
    known: &["name", "value", "weight", "limits"],
    later: &[
        "access_key_id",
        "secret_access_key",
        "session_token",
        "service_account",
        "api_key",
        "secret_key",
    ],
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
    let key = v.key("api_keys");
    let name = format!("key-{number}");
    if let Value::Text(text) = &item.value {
        let secret = secret::secret(v.book, item.at, &key, text)?;
        return Some((item.at, Credential { name, secret, weight: 1, caps: None }));
    }
    let table = view(v.book, item, key, &KEY)?;
    let weight = table.integer("weight", 0..=WEIGHT_MAX).unwrap_or(1) as u32;
    let name = table.text("name").map_or(name, str::to_owned);
    if table.get("value").is_none() {
        table.complain("a credential needs its `value`");
    }
    let text = table.text("value")?;
    let secret = secret::secret(v.book, table.place("value"), &table.key("value"), text)?;
    Some((item.at, Credential { name, secret, weight, caps: caps(&table) }))
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
    match from_env(v, preset) {
        Some(secret) => {
            let name = "key-1".into();
            vec![Arc::new(Credential { name, secret, weight: 1, caps: None })]
        }
        None => {
            if !preset.keyless {
                let names = preset.env.join(" or ");
                v.complain(format!("needs api_keys, since the environment has no {names}"));
            }
            Vec::new()
        }
    }
}

fn from_env(v: &View<'_>, preset: &Preset) -> Option<Secret> {
    let name = preset.env.iter().find(|name| (v.book.env)(name).is_some_and(|s| !s.is_empty()))?;
    secret::secret(v.book, v.at, &v.key("api_keys"), &format!("env:{name}"))
}
