//! Names and identities, and nothing else: what every module may know of the others' things.

mod credential;

pub use credential::{Aws, Caps, Credential, Grant, Lack, Lease, Proof};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(SmolStr);

        impl $name {
            /// The name as it is written in config.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl $name {
            /// The text, which costs no copy of a long one.
            #[must_use]
            pub fn text(&self) -> SmolStr {
                self.0.clone()
            }
        }
        impl From<&str> for $name {
            fn from(s: &str) -> Self {
                Self(s.into())
            }
        }
        impl From<String> for $name {
            fn from(s: String) -> Self {
                Self(s.into())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    )*};
}

names! {
    /// A virtual key's identity: its name in config, an id of the store's making otherwise.
    KeyId,
    /// A team.
    TeamName,
    /// A department.
    DepartmentName,
    /// A user.
    UserName,
    /// A provider's table name.
    ProviderId,
    /// A model's name, ours or a provider's.
    ModelName,
}

/// The identity of one request in the ledger: a UUIDv7 of our own making.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(pub uuid::Uuid);

impl EventId {
    /// A new one; later ones sort after earlier ones of the same process.
    #[must_use]
    pub fn now() -> Self {
        Self(uuid::Uuid::now_v7())
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A pattern of names: exact, or with `*` for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    pattern: String,
    /// Where its first `*` is; an exact name has none.
    star: Option<usize>,
}

impl Glob {
    /// Any string is a pattern.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self { pattern: pattern.into(), star: pattern.find('*') }
    }
    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.pattern
    }
    /// Whether the whole of `name` fits. Linear in `name` for each `*`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let Some(star) = self.star else { return self.pattern == name };
        let Some(mut rest) = name.strip_prefix(&self.pattern[..star]) else { return false };
        let mut end = &self.pattern[star + 1..];
        while !end.is_empty()
            && let Some((middle, more)) = end.split_once('*')
        {
            let Some(at) = rest.find(middle) else { return false };
            rest = &rest[at + middle.len()..];
            end = more;
        }
        rest.ends_with(end)
    }
}

/// A secret. It has no `Display`, its `Debug` is `***`, and its last owner leaves zeros in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<Zeroizing<String>>);

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: &str) -> Self {
        Self(Arc::new(Zeroizing::new(value.to_owned())))
    }
    /// The value itself, for the one place that sends or hashes it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// `base_url`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// `https`.
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port; 443 or 80 where the URL has none.
    pub port: u16,
    /// Path without a trailing slash: `/v1`, or empty.
    pub path: String,
}

impl Base {
    /// The `Host` header: with the port where it is not the scheme's own, IPv6 in brackets.
    #[must_use]
    pub fn authority(&self) -> String {
        // Written for every request.
        let mut out = String::with_capacity(self.host.len() + 8);
        if self.host.contains(':') {
            out.extend(["[", &self.host, "]"]);
        } else {
            out.push_str(&self.host);
        }
        if self.port != if self.tls { 443 } else { 80 } {
            out.extend([":", itoa::Buffer::new().format(self.port)]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_the_whole_name_only() {
        let check = |p: &str, n: &str| Glob::new(p).matches(n);
        assert!(check("gpt-4o", "gpt-4o") && !check("gpt-4o", "gpt-4o-mini"));
        assert!(check("gpt-*", "gpt-") && check("*", "") && check("*", "x/y"));
        assert!(check("*-mini", "gpt-4o-mini") && !check("*-mini", "gpt-4o-minis"));
        assert!(check("a*b*c", "a1b2c") && check("a*b*c", "abbc") && !check("a*b*c", "acb"));
        assert!(!check("ab*ba", "aba"), "prefix and suffix do not share characters");
        assert!(check("", "") && !check("", "x"));
    }
}
