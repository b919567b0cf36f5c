//! The head of a request and the first piece of its body as one packet.
//!
//! Pingora sends the head before it looks at the body (pingora-core 0.9.1,
//! `write_request_header`): two sends, two packets, and a provider woken for a head of which it can
//! make nothing yet. `TCP_CORK` keeps the head in the socket until the piece is behind it.

use pingora::http::ResponseHeader;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{Digest, GetProxyDigest as _};
use rustix::net::sockopt::set_tcp_cork;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Weak};
use tokio::net::TcpStream;

/// A second descriptor of a connection's socket. Pingora's hooks name a connection by a bare
/// number, which safe code can do nothing with; this one lives and ends with the connection.
struct Hand(Arc<OwnedFd>);

/// A connection of Pingora's whose packets can be held.
///
/// It can do without where the descriptor or the head of a reply that there is none of cannot be
/// had: packets are not held then.
#[must_use]
pub fn stream(socket: TcpStream) -> Stream {
    let hand = socket.as_fd().try_clone_to_owned().ok();
    let mut stream = Stream::from(socket);
    if let (Some(hand), Ok(none)) = (hand, ResponseHeader::build_no_case(200, Some(0))) {
        let hand: Box<Hand> = Box::new(Hand(Arc::new(hand)));
        stream.set_proxy_digest(ProxyDigest::new(Box::new(none), Some(hand)));
    }
    stream
}

/// Packets are held while this is there.
#[derive(Debug)]
pub struct Held(Weak<OwnedFd>);

impl Held {
    /// Begins to hold what is sent over a connection made by [`stream`].
    #[must_use]
    pub fn begin(digest: &Digest) -> Option<Self> {
        let data = digest.proxy_digest.as_ref()?.user_data.as_ref()?;
        let Hand(socket) = data.downcast_ref()?;
        set_tcp_cork(socket, true).ok()?;
        Some(Self(Arc::downgrade(socket)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(socket) = self.0.upgrade() {
            // Where this fails the kernel lets go by itself after 200 ms (tcp(7)).
            set_tcp_cork(socket, false).ok();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        near.set_nodelay(true).unwrap();
        (stream(near), listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn what_is_held_arrives_as_one_and_the_next_at_once() {
        let (mut near, mut far) = pair().await;
        let digest = Digest { proxy_digest: near.get_proxy_digest(), ..Digest::default() };
        let mut got = [0; 64];
        for _ in 0..2 {
            let held = Held::begin(&digest).unwrap();
            near.write_all(b"head").await.unwrap();
            near.flush().await.unwrap();
            near.write_all(b"body").await.unwrap();
            near.flush().await.unwrap();
            drop(held);
            let n = far.read(&mut got).await.unwrap();
            assert_eq!(&got[..n], b"headbody");
            near.write_all(b"more").await.unwrap();
            near.flush().await.unwrap();
            let n = far.read(&mut got).await.unwrap();
            assert_eq!(&got[..n], b"more");
        }
    }

    #[tokio::test]
    async fn a_hold_keeps_no_connection_open() {
        let (near, mut far) = pair().await;
        let digest = Digest { proxy_digest: near.get_proxy_digest(), ..Digest::default() };
        let held = Held::begin(&digest).unwrap();
        drop((near, digest));
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0);
        drop(held);
    }
}
