//! Who calls: virtual keys, found by the hash of their secret, and what each may use.

use crate::base::{DepartmentName, Glob, KeyId, TeamName, UserName};
use std::collections::HashMap;
use std::sync::Arc;

/// SHA-256 of a secret.
pub type Hash = [u8; 32];

/// A virtual key, compiled: what its own table, its team's and its department's say together.
#[derive(Debug, Clone)]
pub struct Key {
    /// Its identity.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// Its team.
    pub team: Option<TeamName>,
    /// Its team's department, or its own.
    pub department: Option<DepartmentName>,
    /// Its user.
    pub user: Option<UserName>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Allowlists that must all hold: its own and its team's, where given.
    pub models: Vec<Vec<Glob>>,
    /// Names replaced before routing: the key's own first, then its team's.
    pub aliases: HashMap<String, String>,
    /// No longer valid from this moment.
    pub expires: Option<jiff::Timestamp>,
    /// False: refused.
    pub enabled: bool,
    /// `x-weir-user` and the body's user fields are believed.
    pub end_users: bool,
}

impl Key {
    /// Whether every allowlist holds for this model name.
    #[must_use]
    pub fn allows(&self, model: &str) -> bool {
        self.models.iter().all(|list| list.iter().any(|g| g.matches(model)))
    }
}

/// Why a secret opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No secret, or none that we know.
    Unknown,
    /// It was valid once.
    Expired,
    /// It was switched off.
    Disabled,
}

/// Every key of a snapshot, by the hash of its secret.
#[derive(Debug, Default, Clone)]
pub struct Keys(pub HashMap<Hash, Arc<Key>>);

impl Keys {
    /// The key behind a secret. One hash and one look-up, whatever the number of keys.
    ///
    /// # Errors
    /// [`Denied`]; the key as well where it is known, so that the refusal can be booked on it.
    pub fn find(
        &self,
        secret: &str,
        now: jiff::Timestamp,
    ) -> Result<Arc<Key>, (Denied, Option<Arc<Key>>)> {
        let Some(key) = self.0.get(&hash(secret)) else { return Err((Denied::Unknown, None)) };
        if !key.enabled {
            return Err((Denied::Disabled, Some(key.clone())));
        }
        if key.expires.is_some_and(|at| now >= at) {
            return Err((Denied::Expired, Some(key.clone())));
        }
        Ok(key.clone())
    }
}

/// SHA-256 of a secret, as `hash = "sha256:…"` writes it.
#[must_use]
pub fn hash(secret: &str) -> Hash {
    let digest = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}
