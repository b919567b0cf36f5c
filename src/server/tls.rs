//! TLS for callers: who we are is looked up at each handshake, so that a reload changes it at
//! once, and a handshake has a head's time.
//!
//! Pingora would shake hands itself, under a minute of its own that nothing changes
//! (pingora-core 0.9.1, services/listening.rs `run_endpoint`): so its listeners are plain, and
//! hands are shaken here.

use crate::config::Snapshot;
use pingora::protocols::Stream;
use pingora::protocols::l4;
use pingora::protocols::tls::server::handshake;
use std::net::SocketAddr;

/// Whether a connection came to one of these listeners.
pub fn is_secure(listeners: &[SocketAddr], stream: &Stream) -> bool {
    if listeners.is_empty() {
        return false;
    }
    let digest = stream.get_socket_digest();
    let local = digest.as_ref().and_then(|digest| digest.local_addr()?.as_inet().copied());
    local.is_some_and(|local| listeners.iter().any(|listener| took(*listener, local)))
}

/// Whether a listener's connection has this address on our side.
fn took(listener: SocketAddr, local: SocketAddr) -> bool {
    let same = || listener.ip().to_canonical() == local.ip().to_canonical();
    listener.port() == local.port() && (listener.ip().is_unspecified() || same())
}

/// Shakes hands; `None` where the caller would not, or took longer than a head may.
pub async fn shake(stream: Stream, snapshot: &Snapshot) -> Option<Stream> {
    let tls = snapshot.server.tls.as_ref()?;
    let stream = stream.into_any().downcast::<l4::stream::Stream>().ok()?;
    let shaking = handshake(&tls.identity.acceptor, *stream);
    match tokio::time::timeout(snapshot.server.header, shaking).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            log::debug!("a caller's TLS handshake failed: {error}");
            None
        }
        Err(_) => {
            log::debug!("a caller's TLS handshake did not end in time");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_its_listeners_whatever_form_the_address_has() {
        let at = |text: &str| text.parse::<SocketAddr>().ok();
        let cases = [
            ("0.0.0.0:8443", "10.0.0.1:8443", true),
            ("[::]:8443", "[::ffff:10.0.0.1]:8443", true),
            ("[::]:8443", "[::1]:8443", true),
            ("10.0.0.1:8443", "10.0.0.1:8443", true),
            ("10.0.0.1:8443", "[::ffff:10.0.0.1]:8443", true),
            ("10.0.0.1:8443", "10.0.0.2:8443", false),
            ("0.0.0.0:8443", "10.0.0.1:8080", false),
        ];
        for (listener, local, is) in cases {
            let both = at(listener).zip(at(local));
            assert_eq!(both.map(|(a, b)| took(a, b)), Some(is), "{listener} {local}");
        }
    }
}
