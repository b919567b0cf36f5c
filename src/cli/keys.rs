//! `weir keys`: virtual keys in the store.

use super::{EXIT_USAGE, complain, say, snapshot, table};
use crate::access;
use crate::base::Secret;
use crate::config::duration;
use crate::flow::keyring::{Error, Keyring};
use crate::server;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;
use zeroize::Zeroizing;

/// A longer secret on standard input is a mistaken file.
pub(super) const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Make a key and print its secret, once
    Create(Box<Create>),
    /// Every key, config's too, and when each was last used
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// One key, by name or id
    Show(One),
    /// Let a key in again
    Enable(One),
    /// Refuse a key for now
    Disable(One),
    /// Give a key a new secret and print it, once
    Rotate {
        #[command(flatten)]
        one: One,
        /// How long the old secret goes on, such as 24h; without this it ends at once
        #[arg(long, value_name = "TIME")]
        grace: Option<String>,
    },
    /// Forget a key
    Delete(One),
    /// The hash of a secret on standard input, for a key that is kept in config
    Hash {
        /// `-` stands for standard input, which is read anyway
        #[arg(value_parser = ["-"])]
        from: Option<String>,
    },
}

/// A key that is there.
#[derive(Debug, Args)]
pub struct One {
    /// Its name or id
    name: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A key to be made.
#[derive(Debug, Args)]
pub struct Create {
    /// Its name
    #[arg(long)]
    name: String,
    /// Its team
    #[arg(long)]
    team: Option<String>,
    /// Its user
    #[arg(long)]
    user: Option<String>,
    /// Its department, where its team has none
    #[arg(long)]
    department: Option<String>,
    /// Models it may use, with commas between them; `*` stands for any run of characters
    #[arg(long, value_delimiter = ',')]
    models: Option<Vec<String>>,
    /// Requests per minute
    #[arg(long)]
    rpm: Option<u64>,
    /// Tokens per minute
    #[arg(long)]
    tpm: Option<u64>,
    /// Requests at once
    #[arg(long)]
    concurrent: Option<u64>,
    /// Such as 20usd/day or 1000000tokens/month; may be given again
    #[arg(long)]
    budget: Vec<String>,
    /// When it ends: 2027-01-01 or 2027-01-01T08:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "expires_in")]
    expires: Option<String>,
    /// In how long it ends, such as 30d
    #[arg(long, value_name = "TIME")]
    expires_in: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn keys(path: Option<&Path>, what: Keys) -> u8 {
    if let Keys::Hash { .. } = what {
        return hash();
    }
    let snapshot = match snapshot(path) {
        Ok(snapshot) => snapshot,
        Err(code) => return code,
    };
    let ring = Keyring { snapshot: &snapshot, now: Timestamp::now() };
    let changes = !matches!(what, Keys::List { .. } | Keys::Show(_));
    match act(&ring, what) {
        Ok(()) => {
            if changes {
                server::changes::tell(&snapshot);
            }
            server::EXIT_OK
        }
        Err(error) => {
            complain(&format!("weir keys: {error}"));
            match error {
                Error::Store(_) | Error::Sql(_) => server::EXIT_UNAVAILABLE,
                _ => EXIT_USAGE,
            }
        }
    }
}

fn act(ring: &Keyring<'_>, what: Keys) -> Result<(), Error> {
    match what {
        Keys::Create(create) => {
            let (key, secret) = ring.create(&create.name, said(&create, ring.now)?)?;
            minted(key, &secret, create.json);
        }
        Keys::List { json } => list(&ring.list()?, json),
        Keys::Show(one) => say(&pretty(&ring.show(&one.name)?)),
        Keys::Enable(one) => changed(&ring.enable(&one.name, true)?, &one, "enabled"),
        Keys::Disable(one) => changed(&ring.enable(&one.name, false)?, &one, "disabled"),
        Keys::Rotate { one, grace } => {
            let grace = grace.as_deref().map_or(Ok(Duration::ZERO), duration);
            let (key, secret) = ring.rotate(&one.name, grace.map_err(Error::Bad)?)?;
            minted(key, &secret, one.json);
        }
        Keys::Delete(one) => {
            ring.delete(&one.name)?;
            changed(&json!({"name": one.name, "deleted": true}), &one, "deleted");
        }
        Keys::Hash { .. } => {}
    }
    Ok(())
}

/// The secret alone on standard output, so that a script can take it.
fn minted(mut key: Value, secret: &Secret, as_json: bool) {
    if as_json {
        key["secret"] = json!(secret.expose());
        return say(&pretty(&key));
    }
    say(secret.expose());
    complain(&format!("the secret of key {}, shown this once", key["name"]));
}

fn changed(key: &Value, one: &One, how: &str) {
    if one.json { say(&pretty(key)) } else { say(&format!("{} is {how}", one.name)) }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() // a Value always has JSON
}

fn list(keys: &[Value], as_json: bool) {
    if as_json {
        return say(&pretty(&json!({ "keys": keys })));
    }
    let text = |key: &Value, name: &str| match &key[name] {
        Value::String(text) => text.clone(),
        Value::Bool(b) => (if *b { "yes" } else { "no" }).into(),
        _ => "-".into(),
    };
    let columns = ["name", "team", "user", "enabled", "expires", "last_used", "source"];
    let rows = keys.iter().map(|key| columns.map(|column| text(key, column)).to_vec());
    say(&table(&columns, rows));
}

/// What a table of `[keys]` would say.
fn said(create: &Create, now: Timestamp) -> Result<Map<String, Value>, Error> {
    let mut said = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        said.extend(value.map(|value| (key.to_owned(), value)));
    };
    put("team", create.team.as_ref().map(|t| json!(t)));
    put("user", create.user.as_ref().map(|u| json!(u)));
    put("department", create.department.as_ref().map(|d| json!(d)));
    put("models", create.models.as_ref().map(|m| json!(m)));
    let limits = [("rpm", create.rpm), ("tpm", create.tpm), ("concurrent", create.concurrent)];
    let limits = limits.into_iter().filter_map(|(name, n)| Some((name.to_owned(), json!(n?))));
    let limits: Map<String, Value> = limits.collect();
    put("limits", (!limits.is_empty()).then_some(Value::Object(limits)));
    let budgets: Vec<Value> = create.budget.iter().map(|b| budget(b)).collect::<Result<_, _>>()?;
    put("budgets", (!budgets.is_empty()).then_some(Value::Array(budgets)));
    put("expires", expires(create, now)?.map(|at| json!(at.to_string())));
    Ok(said)
}

fn expires(create: &Create, now: Timestamp) -> Result<Option<Timestamp>, Error> {
    if let Some(text) = &create.expires {
        let exact = text.parse().or_else(|_| format!("{text}T00:00:00Z").parse());
        let bad = |_| Error::Bad(format!("--expires {text}: write 2027-01-01T08:00:00Z"));
        return exact.map(Some).map_err(bad);
    }
    let Some(text) = &create.expires_in else { return Ok(None) };
    let wait = duration(text).map_err(Error::Bad)?;
    now.checked_add(wait).map(Some).map_err(|e| Error::Bad(e.to_string()))
}

/// `20usd/day`, `1000000tokens/month`.
fn budget(text: &str) -> Result<Value, Error> {
    let bad = || Error::Bad(format!("--budget {text}: write 20usd/day or 1000000tokens/month"));
    let (amount, per) = text.split_once('/').ok_or_else(bad)?;
    let at = amount.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (number, unit) = amount.split_at(at);
    let number: serde_json::Number = number.trim().parse().map_err(|_| bad())?;
    match unit {
        "usd" | "tokens" => Ok(json!({unit: number, "per": per})),
        _ => Err(bad()),
    }
}

/// `sha256:…` of the secret on standard input, its line end left out.
fn hash() -> u8 {
    match read_secret(&mut io::stdin().lock()) {
        Ok(secret) => {
            say(&access::written(&access::hash(&secret)));
            server::EXIT_OK
        }
        Err(why) => {
            complain(&format!("weir keys hash: {why}"));
            EXIT_USAGE
        }
    }
}

/// One secret, its line end left out.
pub(super) fn read_secret(from: &mut impl io::Read) -> Result<Zeroizing<String>, String> {
    let mut text = Zeroizing::new(String::new());
    let read = from.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text);
    let secret = text.trim_end_matches(['\r', '\n']);
    if read.is_err() || secret.is_empty() || secret.len() as u64 > SECRET_BYTES_MAX {
        return Err("one secret on standard input, please".into());
    }
    Ok(Zeroizing::new(secret.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_an_amount_a_unit_and_a_period() {
        assert_eq!(budget("20usd/day").unwrap(), json!({"usd": 20, "per": "day"}));
        assert_eq!(budget("0.5usd/month").unwrap(), json!({"usd": 0.5, "per": "month"}));
        assert_eq!(budget("9tokens/ever").unwrap(), json!({"tokens": 9, "per": "ever"}));
        for bad in ["", "20", "20usd", "usd/day", "20eur/day", "-usd/day", "2 0usd/day"] {
            assert!(budget(bad).is_err(), "{bad}");
        }
    }
}
