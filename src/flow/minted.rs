//! Keys of the store in a running gateway: read again when they change, known when it is away.

use super::{Gateway, spent};
use crate::access::{Denied, Hash, Key};
use crate::config::{Minted, Snapshot, mint, mint_again};
use crate::limit::{Limits, Rules};
use crate::store::keys::{self as rows, KeyRow, What};
use crate::store::{self, Error};
use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a hash opens nothing, and the key where it is known.
type Refused = (Denied, Option<Arc<Key>>);

/// The store's keys, compiled under the config in force.
#[derive(Debug, Default)]
pub struct StoreKeys {
    now: ArcSwap<Minted>,
    /// The store could not be read when it was last looked at, so a key may be one of its own.
    away: AtomicBool,
    /// Readers take turns: what was read later is in force later.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    /// A store has been there once, so that one that is missing is away.
    was_there: bool,
    rows: Vec<KeyRow>,
    keys: Option<i64>,
    vault: Option<i64>,
    /// The count of the vault's changes that somebody has acted on.
    told: Option<i64>,
}

/// A connection, and the file it was made to: one that was moved away is another store.
#[derive(Debug)]
struct Open {
    db: Connection,
    file: (u64, u64),
}

impl StoreKeys {
    /// The keys as they are now.
    #[must_use]
    pub fn load(&self) -> Arc<Minted> {
        self.now.load_full()
    }

    /// The key behind a hash, and the rules it came with.
    ///
    /// # Errors
    /// As of config's keys; `None` where it is not known and might be, were the store there.
    pub fn open(
        &self,
        hash: &Hash,
        now: Timestamp,
    ) -> Result<(Arc<Key>, Arc<Minted>), Option<Refused>> {
        let minted = self.load();
        match minted.keys.open(hash, now) {
            Ok(key) => Ok((key, minted)),
            Err((Denied::Unknown, _)) if self.away.load(Ordering::Acquire) => Err(None),
            Err(denied) => Err(Some(denied)),
        }
    }

    /// Compiles what was read last: under another config whole, else what is not as in `old`.
    fn adopt(&self, snapshot: &Snapshot, state: &State, old: Option<&[KeyRow]>, limits: &Limits) {
        let minted = match old {
            Some(old) => mint_again(snapshot, &self.load(), old, &state.rows),
            None => mint(snapshot, &state.rows),
        };
        limits.adopt(&minted.rules);
        self.now.store(Arc::new(minted));
    }
}

impl State {
    /// Reads what has changed; where keys have, those there were.
    fn read(&mut self, path: &Path) -> Result<Option<Vec<KeyRow>>, Error> {
        let meta = std::fs::metadata(path).map_err(|_| Error::Missing(path.to_owned()))?;
        let file = (meta.dev(), meta.ino());
        if self.open.as_ref().is_none_or(|open| open.file != file) {
            self.open = Some(Open { db: store::open_read(path)?, file });
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let sql = |e: rusqlite::Error| Error::of(path, &e);
        let vault = Some(rows::changes(&open.db, What::Vault).map_err(sql)?);
        let keys = Some(rows::changes(&open.db, What::Keys).map_err(sql)?);
        if keys == Some(0) && !self.rows.is_empty() {
            // The ledger makes a file anew where its own is gone; that takes no key along.
            let why = "it was replaced by one in which no key was ever made".to_owned();
            return Err(Error::Failed { path: path.to_owned(), why });
        }
        self.vault = vault;
        // What is there at the first look is what config was read with.
        self.told = self.told.or(vault);
        self.was_there = true;
        if self.keys == keys {
            return Ok(None);
        }
        let (n, all) = rows::all(&mut open.db).map_err(sql)?;
        self.keys = Some(n);
        Ok(Some(std::mem::replace(&mut self.rows, all)))
    }
}

impl Gateway {
    /// Puts the store's keys in force where they have changed.
    pub fn refresh_keys(&self) {
        self.look(&mut self.keys.state.lock());
    }

    /// The same; true where the vault has changed since this was asked last, so that config's
    /// references are to be read again.
    pub fn look_at_store(&self) -> bool {
        let mut state = self.keys.state.lock();
        self.look(&mut state);
        let vault = state.vault;
        std::mem::replace(&mut state.told, vault) != vault
    }

    fn look(&self, state: &mut State) {
        let snapshot = self.snapshot.load_full();
        match state.read(&snapshot.store.path) {
            Ok(old) => {
                if self.keys.away.swap(false, Ordering::AcqRel) {
                    log::info!("the store is back");
                }
                if let Some(old) = old {
                    self.keys.adopt(&snapshot, state, Some(&old), &self.limits);
                    spent::recall(self, &self.keys.load().rules, &snapshot.store.path);
                }
            }
            Err(Error::Missing(_)) if !state.was_there => {}
            Err(error) => {
                state.open = None;
                if !self.keys.away.swap(true, Ordering::AcqRel) {
                    log::error!("the store is away, its keys stay as they were: {error}");
                }
            }
        }
    }

    /// Puts the store's keys in force under a new config, with it.
    pub(super) fn mint_under(&self, snapshot: Arc<Snapshot>) {
        let state = self.keys.state.lock();
        self.keys.adopt(&snapshot, &state, None, &self.limits);
        self.snapshot.store(snapshot);
    }

    /// Every owner's rules, keys of the store among them.
    pub(super) fn rules(&self) -> Rules {
        self.keys.load().rules.clone()
    }
}
