//! Keys of the store as people handle them: made, shown, switched, rotated, deleted.

use crate::access;
use crate::base::Secret;
use crate::config::{Fault, Snapshot, key_faults};
use crate::store::keys::{self as rows, KeyRow, SecretRow};
use crate::store::{self, Error as StoreError};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// A longer name is a mistake.
const NAME_BYTES_MAX: usize = 128;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked makes no sense.
    #[error("{0}")]
    Bad(String),
    /// The key does not fit the config.
    #[error("{}", lines(.0))]
    Faults(Vec<Fault>),
    /// There is no such key.
    #[error("there is no key {0:?}")]
    Missing(String),
    /// There is one already.
    #[error("there is a key {0:?} already")]
    Taken(String),
    /// A file defines it, so it is changed there.
    #[error("a file defines the key {0:?}; it is changed there")]
    InFile(String),
    /// The store.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// SQLite.
    #[error("the store: {0}")]
    Sql(#[from] rusqlite::Error),
}

fn lines(faults: &[Fault]) -> String {
    let line = |f: &Fault| format!("{}: {}", f.key, f.message);
    faults.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The keys of one config and its store.
#[derive(Debug, Clone, Copy)]
pub struct Keyring<'s> {
    /// The config.
    pub snapshot: &'s Snapshot,
    /// The moment.
    pub now: Timestamp,
}

impl Keyring<'_> {
    /// Makes a key of what a table of `[keys]` would say, and its name. The secret is nowhere but
    /// in what is returned.
    ///
    /// # Errors
    /// Every kind but [`Error::Missing`].
    pub fn create(&self, name: &str, mut said: Map<String, Value>) -> Result<(Value, Secret), Error> {
        let letter = |c: char| !c.is_control() && !"/~".contains(c);
        if name.trim().is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(letter) {
            return Err(Error::Bad("a name has 1 to 128 characters, without `/` and `~`".into()));
        }
        if self.in_file(name) {
            return Err(Error::InFile(name.to_owned()));
        }
        let enabled = match said.remove("enabled") {
            None => true,
            Some(Value::Bool(enabled)) => enabled,
            Some(_) => return Err(Error::Bad("enabled is true or false".into())),
        };
        let secret = access::new_secret().map_err(Error::Bad)?;
        let hash = access::hash(secret.expose());
        let row = KeyRow {
            // Readable in refusals and reports, and no later key of this name has it.
            id: format!("{name}~{:08x}", fastrand::u32(..)),
            name: name.to_owned(),
            definition: Value::Object(said).to_string(),
            enabled,
            created: self.now.as_microsecond(),
            secrets: vec![SecretRow { hash, until: None }],
        };
        let faults = key_faults(self.snapshot, &row);
        if !faults.is_empty() {
            return Err(Error::Faults(faults));
        }
        if !rows::insert(&mut self.open()?, &row)? {
            return Err(Error::Taken(name.to_owned()));
        }
        Ok((self.shown(&row, None), secret))
    }

    /// Every key, config's first, without a secret or its hash.
    ///
    /// # Errors
    /// The store's.
    pub fn list(&self) -> Result<Vec<Value>, Error> {
        let mut db = self.open()?;
        let used = rows::last_used(&db)?;
        let mut all = self.of_files(&used);
        for row in rows::all(&mut db)?.1 {
            all.push(self.shown(&row, used.get(&row.id).copied()));
        }
        Ok(all)
    }

    /// One key by name or id.
    ///
    /// # Errors
    /// The store's, and [`Error::Missing`].
    pub fn show(&self, name: &str) -> Result<Value, Error> {
        let named = |key: &Value| key["name"] == name || key["id"] == name;
        self.list()?.into_iter().find(named).ok_or_else(|| Error::Missing(name.to_owned()))
    }

    /// Switches a key on or off.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::InFile`], the store's.
    pub fn enable(&self, name: &str, enabled: bool) -> Result<Value, Error> {
        let (mut db, row) = self.stored(name)?;
        self.done(name, rows::enable(&mut db, &row.id, enabled)?)
    }

    /// Gives a key a new secret; the old one opens for `grace` more.
    ///
    /// # Errors
    /// As above.
    pub fn rotate(&self, name: &str, grace: Duration) -> Result<(Value, Secret), Error> {
        let (mut db, row) = self.stored(name)?;
        let until = match grace {
            Duration::ZERO => None,
            grace => {
                let end = self.now.checked_add(grace);
                Some(end.map_err(|_| Error::Bad("the grace never ends".into()))?.as_microsecond())
            }
        };
        let secret = access::new_secret().map_err(Error::Bad)?;
        let rotated = rows::rotate(&mut db, &row.id, access::hash(secret.expose()), until)?;
        Ok((self.done(name, rotated)?, secret))
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// As above.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        let (mut db, row) = self.stored(name)?;
        match rows::delete(&mut db, &row.id)? {
            true => Ok(()),
            false => Err(Error::Missing(name.to_owned())),
        }
    }

    fn open(&self) -> Result<rusqlite::Connection, Error> {
        Ok(store::open(&self.snapshot.store.path)?)
    }

    fn in_file(&self, name: &str) -> bool {
        self.snapshot.keys.0.values().any(|key| key.name == name)
    }

    fn stored(&self, name: &str) -> Result<(rusqlite::Connection, KeyRow), Error> {
        let mut db = self.open()?;
        let mut all = rows::all(&mut db)?.1.into_iter();
        match all.find(|row| row.name == name || row.id == name) {
            Some(row) => Ok((db, row)),
            None if self.in_file(name) => Err(Error::InFile(name.to_owned())),
            None => Err(Error::Missing(name.to_owned())),
        }
    }

    /// Another hand may have deleted it in between.
    fn done(&self, name: &str, done: bool) -> Result<Value, Error> {
        if done { self.show(name) } else { Err(Error::Missing(name.to_owned())) }
    }

    fn of_files(&self, used: &HashMap<String, i64>) -> Vec<Value> {
        let mut keys: Vec<_> = self.snapshot.keys.0.values().collect();
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        let view = |key: &&std::sync::Arc<access::Key>| {
            json!({
                "id": key.id.as_str(),
                "name": key.name,
                "team": key.team.as_ref().map(|t| t.as_str()),
                "department": key.department.as_ref().map(|d| d.as_str()),
                "user": key.user.as_ref().map(|u| u.as_str()),
                "tags": key.tags,
                "enabled": key.enabled,
                "expires": key.expires.map(|at| at.to_string()),
                "last_used": used.get(key.id.as_str()).and_then(|at| moment(*at)),
                "source": "file",
            })
        };
        keys.iter().map(view).collect()
    }

    fn shown(&self, row: &KeyRow, used: Option<i64>) -> Value {
        let mut key = json!({
            "id": row.id,
            "name": row.name,
            "team": null,
            "department": null,
            "user": null,
            "expires": null,
        });
        if let (Some(key), Ok(Value::Object(said))) =
            (key.as_object_mut(), serde_json::from_str(&row.definition))
        {
            key.extend(said);
        }
        // A secret in its days of grace, but not one that is past them.
        let grace = row.secrets.iter().filter_map(|s| s.until).max();
        let grace = grace.filter(|until| *until > self.now.as_microsecond());
        key["enabled"] = json!(row.enabled);
        key["created"] = json!(moment(row.created));
        key["old_secret_until"] = json!(grace.and_then(moment));
        key["last_used"] = json!(used.and_then(moment));
        key["source"] = json!("store");
        key
    }
}

fn moment(micros: i64) -> Option<String> {
    Timestamp::from_microsecond(micros).ok().map(|at| at.to_string())
}
