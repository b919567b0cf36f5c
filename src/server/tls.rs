//! TLS for callers: who we are is looked up at each handshake, so that a reload changes it at once.

use super::Unavailable;
use crate::flow::Gateway;
use async_trait::async_trait;
use pingora::listeners::TlsAccept;
use pingora::listeners::tls::TlsSettings;
use pingora::tls::error::ErrorStack;
use pingora::tls::ext::{ssl_add_chain_cert, ssl_use_certificate, ssl_use_private_key};
use pingora::tls::ssl::SslRef;
use std::io;
use std::sync::Arc;

/// TLS 1.2 and 1.3 with Mozilla's intermediate ciphers, h2 and HTTP/1.1 by ALPN.
///
/// # Errors
/// The TLS library cannot be set up.
pub fn settings(gateway: &Arc<Gateway>) -> Result<TlsSettings, Unavailable> {
    let identity = Box::new(Current(gateway.clone()));
    let mut settings = TlsSettings::with_callbacks(identity)
        .map_err(|e| Unavailable::new("set up", "tls", io::Error::other(e.to_string())))?;
    settings.enable_h2();
    Ok(settings)
}

/// The identity of the config in force.
struct Current(Arc<Gateway>);

#[async_trait]
impl TlsAccept for Current {
    async fn certificate_callback(&self, ssl: &mut SslRef) {
        // A handshake without a certificate fails by itself.
        if let Err(error) = self.show(ssl) {
            log::error!("cannot use the certificate of [server] tls: {error}");
        }
    }
}

impl Current {
    fn show(&self, ssl: &mut SslRef) -> Result<(), ErrorStack> {
        let snapshot = self.0.snapshot.load();
        let Some(tls) = &snapshot.server.tls else { return Ok(()) };
        let identity = &tls.identity;
        let Some((own, between)) = identity.chain.split_first() else { return Ok(()) };
        ssl_use_certificate(ssl, own)?;
        ssl_use_private_key(ssl, &identity.key)?;
        between.iter().try_for_each(|certificate| ssl_add_chain_cert(ssl, certificate))
    }
}
