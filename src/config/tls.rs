//! Certificates and keys in PEM: our own on TLS listeners, and those that a provider is trusted by.

use super::secret;
use super::value::{Shape, View};
use crate::route::Trust;
use openssl::asn1::Asn1Time;
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

const TLS: Shape = Shape { known: &["listen", "cert", "key"], later: &[] };

/// `[server] tls`, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Addresses of its own, `host:port`.
    pub listen: Vec<String>,
    /// Who we say we are; a reload may bring another.
    pub identity: Arc<Identity>,
}

/// A certificate, those between it and its root, and its key.
#[derive(Clone)]
pub struct Identity {
    /// Our own first.
    pub chain: Vec<X509>,
    /// The first one's.
    pub key: PKey<Private>,
    mark: u64,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("mark", &self.mark).finish_non_exhaustive()
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.mark == other.mark
    }
}

impl Eq for Identity {}

pub(super) fn tls(server: &View<'_>) -> Option<Tls> {
    let v = server.table("tls", &TLS)?;
    let listen = super::server::addresses(&v).unwrap_or_default();
    for key in ["listen", "cert", "key"] {
        if v.get(key).is_none() {
            v.complain(format!("needs a {key}"));
        }
    }
    let (chain, key) = (document(&v, "cert"), document(&v, "key"));
    let (cert_text, key_text) = (chain?, key?);
    let chain = certificates(&v, "cert", &cert_text)?;
    let Ok(key) = PKey::private_key_from_pem(key_text.as_bytes()) else {
        v.fault("key", "is no private key in PEM (one with a passphrase cannot be read)");
        return None;
    };
    let fits = chain.first()?.public_key().is_ok_and(|public| public.public_eq(&key));
    if !fits {
        v.fault("key", "is not the key of the first certificate in cert");
        return None;
    }
    let mark = mark(&[&cert_text, &key_text]);
    Some(Tls { listen, identity: Arc::new(Identity { chain, key, mark }) })
}

/// The authorities a provider's certificate may be of, in place of the system's.
pub(super) fn trust(v: &View<'_>) -> Option<Trust> {
    let text = document(v, "ca")?;
    let roots = certificates(v, "ca", &text)?;
    Some(Trust { roots: Arc::new(roots.into()), mark: mark(&[&text]) })
}

fn document(v: &View<'_>, key: &str) -> Option<zeroize::Zeroizing<String>> {
    let text = v.text(key)?;
    secret::paper(v.book, v.place(key), text).map_err(|why| v.fault(key, why)).ok()
}

fn certificates(v: &View<'_>, key: &str, text: &str) -> Option<Vec<X509>> {
    let found = X509::stack_from_pem(text.as_bytes()).unwrap_or_default();
    if found.is_empty() {
        v.fault(key, "holds no certificate in PEM");
        return None;
    }
    let now = Asn1Time::days_from_now(0).ok()?;
    if found.iter().any(|certificate| certificate.not_after() < &*now) {
        v.book.warn(v.place(key), &v.key(key), "holds a certificate that has expired");
    }
    Some(found)
}

/// Tells one document from another; nothing is protected by it.
fn mark(texts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish()
}
