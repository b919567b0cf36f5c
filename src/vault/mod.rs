//! Provider credentials, sealed at rest: AES-256-GCM under a key that never enters the store.
//!
//! A seal is bound to its entry's name and version, so that a row copied over another one opens
//! nothing. Plaintext lives in buffers that leave zeros behind.

pub mod exchange;

use crate::store::vault::{self as rows, VaultRow};
use crate::store::{self, Error as StoreError};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// How a seal is written: this byte, the nonce, the ciphertext with its tag.
const FORMAT: u8 = 1;
/// AES-256.
const KEY_BYTES: usize = 32;
/// A longer name is a mistaken value.
const NAME_BYTES_MAX: usize = 128;

/// Why an entry gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was sealed under another key.
    #[error(
        "the vault key does not open {0:?}: another key sealed it (vault.old_keys may name \
             it), or the row was tampered with"
    )]
    WrongKey(String),
    /// A value that nothing can send.
    #[error("{0}")]
    Bad(String),
    /// There is no such entry.
    #[error("the vault has no {0:?}; `weir vault set {0}` makes it")]
    Missing(String),
    /// There is an entry, but no candidate.
    #[error("{0:?} has no candidate; `weir vault rotate {0}` makes one")]
    NoCandidate(String),
    /// The store.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// SQLite.
    #[error("the store: {0}")]
    Sql(#[from] rusqlite::Error),
}

/// What seals and opens.
pub struct Keys {
    /// The first one seals; all open.
    keys: Vec<LessSafeKey>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} vault keys", self.keys.len())
    }
}

impl Keys {
    /// Keys as config holds them, in base64; the first one seals.
    ///
    /// # Errors
    /// The index of the one that is no key, and why.
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, (usize, String)> {
        let keys = texts.into_iter().enumerate().map(|(i, text)| key(text).map_err(|e| (i, e)));
        Ok(Self { keys: keys.collect::<Result<_, _>>()? })
    }

    /// Seals a value for one name and version.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn seal(&self, name: &str, version: i64, plain: &str) -> Result<Vec<u8>, Error> {
        let failed = || Error::Bad("the system gives no random bytes".into());
        let key = self.keys.first().ok_or_else(failed)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| failed())?;
        // Room for the tag as well: a buffer that grows leaves its old bytes behind.
        let mut buffer = Zeroizing::new(Vec::with_capacity(plain.len() + AES_256_GCM.tag_len()));
        buffer.extend_from_slice(plain.as_bytes());
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(bound(name, version)),
            &mut *buffer,
        )
        .map_err(|_| failed())?;
        Ok([&[FORMAT], &nonce[..], &buffer].concat())
    }

    /// Opens a seal.
    ///
    /// # Errors
    /// [`Error::WrongKey`]
    pub fn open(&self, name: &str, version: i64, seal: &[u8]) -> Result<Zeroizing<String>, Error> {
        let wrong = || Error::WrongKey(name.to_owned());
        let (format, rest) = seal.split_first().ok_or_else(wrong)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).ok_or_else(wrong)?;
        if *format != FORMAT {
            return Err(wrong());
        }
        for key in &self.keys {
            let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong())?;
            let mut buffer = Zeroizing::new(sealed.to_vec());
            let aad = Aad::from(bound(name, version));
            if let Ok(plain) = key.open_in_place(nonce, aad, &mut buffer) {
                let text = std::str::from_utf8(plain).map_err(|_| wrong())?;
                return Ok(Zeroizing::new(text.to_owned()));
            }
        }
        Err(wrong())
    }
}

fn key(text: &str) -> Result<LessSafeKey, String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
    let engines = [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD];
    let bytes = engines.iter().find_map(|e| e.decode(text.trim()).ok()).map(Zeroizing::new);
    let bytes = bytes.filter(|b| b.len() == KEY_BYTES);
    let bytes = bytes.ok_or("is no 32 bytes in base64; `openssl rand -base64 32` makes them")?;
    let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| "is no key".to_owned())?;
    Ok(LessSafeKey::new(key))
}

/// What a seal is bound to. The version has a fixed length, so no two pairs look alike.
fn bound(name: &str, version: i64) -> Vec<u8> {
    [b"weir vault 1\0", &version.to_be_bytes()[..], name.as_bytes()].concat()
}

/// The store's vault under config's keys.
#[derive(Debug)]
pub struct Vault {
    /// The SQLite file.
    pub path: PathBuf,
    /// What opens it.
    pub keys: Keys,
}

impl Vault {
    /// The value in use.
    ///
    /// # Errors
    /// Every kind but [`Error::Bad`].
    pub fn value(&self, name: &str) -> Result<Zeroizing<String>, Error> {
        let missing = || Error::Missing(name.to_owned());
        let db = match store::open_read(&self.path) {
            Err(StoreError::Missing(_)) => return Err(missing()),
            db => db?,
        };
        let row = match rows::current(&db, name) {
            // A store of an earlier version, which has no vault yet.
            Err(e) if e.to_string().contains("no such table") => None,
            row => row?,
        };
        let row = row.ok_or_else(missing)?;
        self.keys.open(name, row.version, &row.sealed)
    }

    /// Seals a value and stores it: in use, or as the candidate beside the one in use.
    ///
    /// # Errors
    /// Every kind. Nothing is stored where our keys do not open what is in use already: a second
    /// key beside the first would be found out by the next reload.
    pub fn put(&self, name: &str, value: &str, current: bool, now: i64) -> Result<(), Error> {
        sound(name, value)?;
        let mut db = store::open(&self.path)?;
        let mut others = rows::all(&db)?;
        others.retain(|row| row.name != name || !current);
        for row in others.iter().filter(|row| row.current) {
            self.keys.open(&row.name, row.version, &row.sealed)?;
        }
        let seal = |version| self.keys.seal(name, version, value);
        match rows::put(&mut db, name, (current, now), seal)? {
            true => Ok(()),
            false => Err(Error::Missing(name.to_owned())),
        }
    }

    /// Every value, without the values.
    ///
    /// # Errors
    /// The store's.
    pub fn list(&self) -> Result<Vec<VaultRow>, Error> {
        Ok(rows::all(&store::open(&self.path)?)?)
    }

    /// Makes the candidate the value in use, if it opens.
    ///
    /// # Errors
    /// Every kind but [`Error::Bad`].
    pub fn promote(&self, name: &str) -> Result<(), Error> {
        let mut db = store::open(&self.path)?;
        let mut all = rows::all(&db)?;
        all.retain(|row| row.name == name);
        if all.is_empty() {
            return Err(Error::Missing(name.to_owned()));
        }
        for row in all.iter().filter(|row| !row.current) {
            self.keys.open(name, row.version, &row.sealed)?;
        }
        let done = rows::promote(&mut db, name)?;
        done.then_some(()).ok_or_else(|| Error::NoCandidate(name.to_owned()))
    }

    /// Forgets an entry and its candidate.
    ///
    /// # Errors
    /// The store's, and [`Error::Missing`].
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        let done = rows::delete(&mut store::open(&self.path)?, name)?;
        done.then_some(()).ok_or_else(|| Error::Missing(name.to_owned()))
    }
}

fn sound(name: &str, value: &str) -> Result<(), Error> {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(letter) {
        let why = "a name in the vault has up to 128 of A-Z a-z 0-9 - _ .";
        return Err(Error::Bad(why.into()));
    }
    if value.is_empty() {
        return Err(Error::Bad("the value is empty".into()));
    }
    if value.chars().any(char::is_control) {
        let why = "the value holds a line end or another control character, so no header can \
                   carry it";
        return Err(Error::Bad(why.into()));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use base64::Engine as _;

    fn keys(bytes: &[u8]) -> Keys {
        let encode = |b: &u8| base64::engine::general_purpose::STANDARD.encode([*b; 32]);
        let texts: Vec<String> = bytes.iter().map(encode).collect();
        Keys::new(texts.iter().map(String::as_str)).unwrap()
    }

    #[test]
    fn a_seal_opens_under_its_own_key_name_and_version_alone() {
        let seal = keys(&[1]).seal("openai", 3, "sk-planted").unwrap();
        assert_eq!(&**keys(&[1]).open("openai", 3, &seal).unwrap(), "sk-planted");
        assert_eq!(&**keys(&[2, 1]).open("openai", 3, &seal).unwrap(), "sk-planted", "an old key");
        for (key, name, version) in [(2, "openai", 3), (1, "openai2", 3), (1, "openai", 4)] {
            let error = keys(&[key]).open(name, version, &seal).unwrap_err();
            assert!(matches!(error, Error::WrongKey(_)), "{error}");
            assert!(!error.to_string().contains("planted"));
        }
    }

    #[test]
    fn no_bit_of_a_seal_can_be_changed_and_no_two_seals_are_alike() {
        let keys = keys(&[1]);
        let seal = keys.seal("a", 1, "value").unwrap();
        for at in 0..seal.len() {
            let mut other = seal.clone();
            other[at] ^= 1;
            assert!(keys.open("a", 1, &other).is_err(), "byte {at}");
            assert!(keys.open("a", 1, &seal[..at]).is_err(), "cut at {at}");
        }
        assert_ne!(seal, keys.seal("a", 1, "value").unwrap());
    }

    #[test]
    fn only_32_bytes_are_a_key() {
        for bad in ["", "short", "AAAA", &"A".repeat(64)] {
            assert_eq!(Keys::new(["", bad]).unwrap_err().0, 0);
            assert!(key(bad).unwrap_err().contains("32 bytes"), "{bad}");
        }
    }

    #[test]
    fn a_wrong_key_stores_nothing_beside_what_it_cannot_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.db");
        let vault = |key| Vault { path: path.clone(), keys: keys(key) };
        vault(&[1]).put("a", "one", true, 0).unwrap();
        assert!(matches!(vault(&[2]).put("b", "two", true, 0), Err(Error::WrongKey(_))));
        assert!(matches!(vault(&[2]).value("a"), Err(Error::WrongKey(_))));
        assert!(matches!(vault(&[1]).value("b"), Err(Error::Missing(_))));
        vault(&[2, 1]).put("b", "two", true, 0).unwrap();
        assert_eq!(&**vault(&[2, 1]).value("a").unwrap(), "one");
    }

    #[test]
    fn a_candidate_serves_once_it_is_promoted() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault { path: dir.path().join("weir.db"), keys: keys(&[1]) };
        assert!(matches!(vault.put("a", "two", false, 0), Err(Error::Missing(_))));
        vault.put("a", "one", true, 0).unwrap();
        assert!(matches!(vault.promote("a"), Err(Error::NoCandidate(_))));
        vault.put("a", "two", false, 0).unwrap();
        assert_eq!(&**vault.value("a").unwrap(), "one");
        vault.promote("a").unwrap();
        assert_eq!(&**vault.value("a").unwrap(), "two");
        let list = vault.list().unwrap();
        assert!(list.len() == 1 && list[0].version == 2 && list[0].current);
        vault.delete("a").unwrap();
        assert!(matches!(vault.value("a"), Err(Error::Missing(_))));
        vault.put("a", "three", true, 0).unwrap();
        assert_eq!(vault.list().unwrap()[0].version, 3, "a version is never used again");
    }
}
