//! Who calls: virtual keys, found by the hash of their secret, and what each may use.

use crate::base::{DepartmentName, Glob, KeyId, Secret, TeamName, UserName};
use smol_str::SmolStr;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// SHA-256 of a secret.
pub type Hash = [u8; 32];

/// A virtual key, compiled: what its own table, its team's and its department's say together.
#[derive(Debug, Clone)]
pub struct Key {
    /// Its identity.
    pub id: KeyId,
    /// Its name.
    pub name: SmolStr,
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
    /// The highest `budget_tier` it may ask for or be served by: the lowest that it, its team and
    /// its department name.
    pub max_tier: Option<String>,
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
pub struct Keys(pub HashMap<Hash, Arc<Key>, BuildHasherDefault<Digest>>);

/// A hasher of what is a digest already: its last eight bytes. Who could choose them for many
/// secrets could still put none of those into the map.
#[derive(Debug, Default, Clone, Copy)]
pub struct Digest(u64);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 = u64::from_le_bytes(*last);
        }
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

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
        self.open(&hash(secret), now)
    }

    /// The same by the secret's hash.
    ///
    /// # Errors
    /// As above.
    pub fn open(
        &self,
        hash: &Hash,
        now: jiff::Timestamp,
    ) -> Result<Arc<Key>, (Denied, Option<Arc<Key>>)> {
        let Some(key) = self.0.get(hash) else { return Err((Denied::Unknown, None)) };
        if !key.enabled {
            return Err((Denied::Disabled, Some(key.clone())));
        }
        if key.expires.is_some_and(|at| now >= at) {
            return Err((Denied::Expired, Some(key.clone())));
        }
        Ok(key.clone())
    }
}

/// Random bytes of a secret: 256 bits, so that its hash needs neither salt nor stretching.
const SECRET_BYTES: usize = 32;

/// A new secret of a virtual key: `sk-weir-…`.
///
/// # Errors
/// The system has no randomness to give.
pub fn new_secret() -> Result<Secret, String> {
    use base64::Engine as _;
    use ring::rand::SecureRandom as _;
    let mut bytes = zeroize::Zeroizing::new([0; SECRET_BYTES]);
    ring::rand::SystemRandom::new()
        .fill(&mut *bytes)
        .map_err(|_| "the system gives no random bytes".to_owned())?;
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(*bytes);
    let text = zeroize::Zeroizing::new(text);
    Ok(Secret::new(&zeroize::Zeroizing::new(format!("sk-weir-{}", *text))))
}

/// `sha256:` and 64 hex digits, as config writes a hash.
#[must_use]
pub fn written(hash: &Hash) -> String {
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// SHA-256 of a secret, as `hash = "sha256:…"` writes it.
#[must_use]
pub fn hash(secret: &str) -> Hash {
    let digest = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}
