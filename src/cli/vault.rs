//! `weir vault`: provider credentials, sealed at rest.

use super::keys::read_secret;
use super::{EXIT_CONFIG, EXIT_USAGE, complain, refuse, say, table};
use crate::config;
use crate::server;
use crate::vault::{Error, Vault as Sealed};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;
use std::fs::File;
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Vault {
    /// Seal a value; it is in use at once
    Set(Value),
    /// Names and versions, never a value
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Seal a candidate beside the value in use
    Rotate(Value),
    /// Put the candidate in use
    Promote {
        /// The entry
        name: String,
    },
    /// Forget an entry
    Delete {
        /// The entry
        name: String,
    },
}

/// An entry and where its value comes from.
#[derive(Debug, Args)]
pub struct Value {
    /// The entry
    name: String,
    /// env:NAME or file:PATH; else standard input is read
    #[arg(long, value_name = "SOURCE")]
    from: Option<String>,
}

/// Does it.
pub fn vault(path: Option<&Path>, what: &Vault) -> u8 {
    let Some(path) = path else {
        complain("weir vault: no config: give --config FILE with a [vault] in it");
        return EXIT_CONFIG;
    };
    let vault = match config::read_vault(path) {
        Ok(vault) => vault,
        Err(faults) => return refuse(&faults),
    };
    match act(&vault, what) {
        Ok(()) => {
            // A config with faults elsewhere has no nodes that could hear.
            if !matches!(what, Vault::List { .. })
                && let Ok(loaded) = config::load(path)
            {
                server::changes::tell(&loaded.snapshot);
            }
            server::EXIT_OK
        }
        Err(error) => {
            complain(&format!("weir vault: {error}"));
            match error {
                Error::WrongKey(_) => EXIT_CONFIG,
                Error::Store(_) | Error::Sql(_) => server::EXIT_UNAVAILABLE,
                _ => EXIT_USAGE,
            }
        }
    }
}

fn act(vault: &Sealed, what: &Vault) -> Result<(), Error> {
    let now = Timestamp::now().as_microsecond();
    match what {
        Vault::Set(value) => {
            vault.put(&value.name, &read(value)?, true, now)?;
            say(&format!("{} is set", value.name));
        }
        Vault::Rotate(value) => {
            vault.put(&value.name, &read(value)?, false, now)?;
            say(&format!(
                "{0} has a candidate; `weir vault promote {0}` puts it in use",
                value.name
            ));
        }
        Vault::Promote { name } => {
            vault.promote(name)?;
            say(&format!("{name} uses its candidate now"));
        }
        Vault::Delete { name } => {
            vault.delete(name)?;
            say(&format!("{name} is deleted"));
        }
        Vault::List { json } => list(vault, *json)?,
    }
    Ok(())
}

fn list(vault: &Sealed, as_json: bool) -> Result<(), Error> {
    let rows = vault.list()?.into_iter().map(|row| {
        let state = if row.current { "current" } else { "candidate" };
        let created = Timestamp::from_microsecond(row.created).unwrap_or_default().to_string();
        (row.name, row.version, state, created)
    });
    if as_json {
        let entries = rows.map(|(name, version, state, created)| {
            json!({"name": name, "version": version, "state": state, "created": created})
        });
        let entries: Vec<_> = entries.collect();
        say(&format!("{:#}", json!({ "vault": entries })));
    } else {
        let rows = rows.map(|(n, v, s, c)| vec![n, v.to_string(), s.to_owned(), c]);
        say(&table(&["name", "version", "state", "created"], rows));
    }
    Ok(())
}

fn read(value: &Value) -> Result<Zeroizing<String>, Error> {
    let bad = |why: String| Error::Bad(why);
    match value.from.as_deref() {
        None => read_secret(&mut io::stdin().lock()).map_err(bad),
        Some(from) => {
            if let Some(name) = from.strip_prefix("env:") {
                let found = std::env::var(name).map(Zeroizing::new);
                let found = found.map_err(|_| bad(format!("there is no variable {name}")))?;
                read_secret(&mut found.as_bytes()).map_err(|_| bad(format!("{from} is empty")))
            } else if let Some(path) = from.strip_prefix("file:") {
                let mut file = File::open(path).map_err(|e| bad(format!("{path}: {e}")))?;
                read_secret(&mut file).map_err(|_| bad(format!("{path} holds no one secret")))
            } else {
                Err(bad(format!("--from {from}: write env:NAME or file:PATH")))
            }
        }
    }
}
