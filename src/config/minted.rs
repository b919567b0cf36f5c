//! Keys of the store, compiled against a config as if they stood in it.

use super::fault::{At, Book};
use super::value::{Entry, Node, Shape, Table, Value, View, join};
use super::{Fault, Snapshot, keys, limits};
use crate::access::{Key, Keys};
use crate::base::KeyId;
use crate::limit::{Owner, Rules, Scope, Spec};
use crate::store::keys::KeyRow;
use jiff::Timestamp;
use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a stored key may say: a table of `[keys]` without its secret.
const STORED: Shape = Shape {
    known: &[
        "team",
        "department",
        "user",
        "tags",
        "end_users",
        "models",
        "aliases",
        "max_budget_tier",
        "penalty",
        "expires",
        "limits",
        "windows",
        "budgets",
    ],
    later: &[],
};

/// Keys of the store, and the rules of every owner with theirs among them.
#[derive(Debug, Default)]
pub struct Minted {
    /// By the hash of each of their secrets.
    pub keys: Keys,
    /// Config's, and theirs.
    pub rules: Rules,
}

/// Compiles the store's keys. A key that no longer fits the config (its team is gone) is refused
/// as disabled, never let through with fewer rules than it was made with.
#[must_use]
pub fn mint(snapshot: &Snapshot, rows: &[KeyRow]) -> Minted {
    let mut minted = Minted { keys: Keys::default(), rules: snapshot.rules.clone() };
    minted.add(snapshot, rows.iter());
    minted
}

/// The same after rows have changed, from what `old` ones were compiled to under this config. Of a
/// hundred thousand keys those that are as they were cost nothing.
#[must_use]
pub fn mint_again(snapshot: &Snapshot, minted: &Minted, old: &[KeyRow], rows: &[KeyRow]) -> Minted {
    fn by_id(rows: &[KeyRow]) -> HashMap<&str, &KeyRow> {
        rows.iter().map(|row| (row.id.as_str(), row)).collect()
    }
    let (before, after) = (by_id(old), by_id(rows));
    let mut again = Minted { keys: minted.keys.clone(), rules: minted.rules.clone() };
    for row in old.iter().filter(|row| after.get(row.id.as_str()) != Some(row)) {
        row.secrets.iter().for_each(|secret| drop(again.keys.0.remove(&secret.hash)));
        again.rules.remove(&Owner::new(Scope::Key, &row.id));
    }
    again.add(snapshot, rows.iter().filter(|row| before.get(row.id.as_str()) != Some(row)));
    again
}

impl Minted {
    fn add<'r>(&mut self, snapshot: &Snapshot, rows: impl Iterator<Item = &'r KeyRow>) {
        let names: HashSet<&str> = snapshot.keys.0.values().map(|key| key.name.as_str()).collect();
        for row in rows {
            self.add_one(snapshot, row, names.contains(row.name.as_str()));
        }
    }

    /// `taken`: config defines a key of this name.
    fn add_one(&mut self, snapshot: &Snapshot, row: &KeyRow, taken: bool) {
        let (mut key, spec, faults) = one(snapshot, row, true);
        if taken {
            log::warn!("key {:?} of the store is off: config defines one of its name", row.name);
        }
        for fault in &faults {
            log::warn!("key {:?} of the store is off: {}: {}", row.name, fault.key, fault.message);
        }
        key.enabled = row.enabled && !taken && faults.is_empty();
        if self.rules.add(&Owner::new(Scope::Key, &row.id), spec).is_err() {
            key.enabled = false;
        }
        let user = key.user.as_ref();
        if let Some(user) = user.filter(|u| !self.rules.knows(Scope::User, u.as_str())) {
            // Without a table a user has the defaults, which are sound by themselves.
            let _ = self.rules.add(&Owner::new(Scope::User, user.as_str()), Spec::default());
        }
        secrets(&mut self.keys, key, row);
    }
}

/// A key opens by each of its secrets; one in its days of grace ends earlier than the key.
fn secrets(keys: &mut Keys, key: Key, row: &KeyRow) {
    let whole = Arc::new(key);
    for secret in &row.secrets {
        let end = secret.until.and_then(|until| Timestamp::from_microsecond(until).ok());
        let key = match (end, whole.expires) {
            (None, _) => whole.clone(),
            (Some(end), Some(expires)) if expires <= end => whole.clone(),
            (Some(end), _) => Arc::new(Key { expires: Some(end), ..(*whole).clone() }),
        };
        keys.0.insert(secret.hash, key);
    }
}

/// What is wrong with a key that is about to be stored.
#[must_use]
pub fn faults(snapshot: &Snapshot, row: &KeyRow) -> Vec<Fault> {
    let (_, spec, mut faults) = one(snapshot, row, false);
    let mut rules = snapshot.rules.clone();
    if let Err(twice) = rules.add(&Owner::new(Scope::Key, &row.id), spec) {
        let (file, key) = (PathBuf::new(), row.name.clone());
        faults.push(Fault { file, line: 0, key, message: twice.to_string() });
    }
    faults
}

/// `stands`: it is stored already, so models that config no longer serves are no fault.
fn one(snapshot: &Snapshot, row: &KeyRow, stands: bool) -> (Key, Spec, Vec<Fault>) {
    let nothing = |_: &str| None;
    let book = Book::new(&nothing);
    let at = At { file: book.open(Path::new("").to_owned()), line: 0 };
    if stands {
        book.hide();
    }
    let (table, sound) = match serde_json::from_str(&row.definition).map(|json| node(json, at)) {
        Ok(Some(Node { value: Value::Table(table), .. })) => (table, true),
        _ => (Table::new(), false),
    };
    let path = join("keys", &row.name);
    let v = View::new(&book, &table, at, path, &STORED);
    if !sound {
        v.complain("is no JSON object");
    }
    let mut key = keys::key(&v, &row.name, &snapshot.owners, &snapshot.routes);
    key.id = KeyId::from(row.id.as_str());
    if let Some(team) = key.team.as_ref().filter(|t| !snapshot.owners.has_team(t.as_str()))
        && !snapshot.owners.is_free()
    {
        v.complain(format!("there is no team {:?}", team.as_str()));
    }
    let spec = limits::spec(&v, &snapshot.routes);
    (key, spec, book.faults())
}

/// JSON as a value of config; `None` for what TOML cannot say.
fn node(json: Json, at: At) -> Option<Node> {
    let value = match json {
        Json::Null => return None,
        Json::Bool(b) => Value::Bool(b),
        Json::Number(n) => match n.as_i64() {
            Some(n) => Value::Integer(n.into()),
            None => Value::Float(n.to_string()),
        },
        Json::String(text) => Value::Text(text),
        Json::Array(items) => {
            Value::List(items.into_iter().map(|i| node(i, at)).collect::<Option<_>>()?)
        }
        Json::Object(members) => {
            let entry = |(key, json)| Some((key, Entry { at, node: node(json, at)? }));
            Value::Table(members.into_iter().map(entry).collect::<Option<_>>()?)
        }
    };
    Some(Node { at, value })
}
