//! Certificates and keys in PEM: our own on TLS listeners, and those that a provider is trusted by.

use super::secret;
use super::value::{Shape, View};
use crate::route::Trust;
use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{AlpnError, SslAcceptor, SslMethod, select_next_proto};
use openssl::x509::X509;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

const TLS: Shape = Shape { known: &["listen", "cert", "key"], later: &[] };
/// Of the admin listener, which has its address already.
const ADMIN_TLS: Shape = Shape { known: &["cert", "key"], later: &[] };
/// What is spoken to clients, the better one first, as ALPN writes it (RFC 7301).
const PROTOCOLS: &[u8] = b"\x02h2\x08http/1.1";
const ADMIN_PROTOCOLS: &[u8] = b"\x08http/1.1";

/// `[server] tls`, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Addresses of its own, `host:port`.
    pub listen: Vec<String>,
    /// Who we say we are; a reload may bring another.
    pub identity: Arc<Identity>,
}

/// A certificate, those between it and its root, and its key, ready for handshakes.
#[derive(Clone)]
pub struct Identity {
    /// TLS 1.2 and 1.3 with Mozilla's intermediate ciphers.
    pub acceptor: SslAcceptor,
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
    let identity = identity(&v, TLS.known, PROTOCOLS)?;
    Some(Tls { listen, identity })
}

/// `[admin] tls`.
pub(super) fn admin(admin: &View<'_>) -> Option<Arc<Identity>> {
    identity(&admin.table("tls", &ADMIN_TLS)?, ADMIN_TLS.known, ADMIN_PROTOCOLS)
}

fn identity(v: &View<'_>, needs: &[&str], protocols: &'static [u8]) -> Option<Arc<Identity>> {
    for key in needs {
        if v.get(key).is_none() {
            v.complain(format!("needs a {key}"));
        }
    }
    let (chain, key) = (document(v, "cert"), document(v, "key"));
    let (cert_text, key_text) = (chain?, key?);
    let chain = certificates(v, "cert", &cert_text)?;
    let Ok(key) = PKey::private_key_from_pem(key_text.as_bytes()) else {
        v.fault("key", "is no private key in PEM (one with a passphrase cannot be read)");
        return None;
    };
    let fits = chain.first()?.public_key().is_ok_and(|public| public.public_eq(&key));
    if !fits {
        v.fault("key", "is not the key of the first certificate in cert");
        return None;
    }
    let acceptor = acceptor(&chain, &key, protocols)
        .map_err(|why| v.fault("cert", format!("cannot be used: {why}")))
        .ok()?;
    Some(Arc::new(Identity { acceptor, mark: mark(&[&cert_text, &key_text]) }))
}

fn acceptor(
    chain: &[X509],
    key: &PKey<Private>,
    protocols: &'static [u8],
) -> Result<SslAcceptor, ErrorStack> {
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls())?;
    if let Some((own, between)) = chain.split_first() {
        builder.set_certificate(own)?;
        builder.set_private_key(key)?;
        for certificate in between {
            builder.add_extra_chain_cert(certificate.clone())?;
        }
    }
    builder.set_alpn_select_callback(move |_, offered| {
        select_next_proto(protocols, offered).ok_or(AlpnError::NOACK)
    });
    Ok(builder.build())
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
