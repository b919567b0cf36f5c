//! A client connection whose request heads must come in time, all of each one.
//!
//! Pingora bounds each read of a head and not the head (pingora-core 0.9.1,
//! protocols/http/v1/server.rs `read_request_buf`): a client that sends a byte now and then keeps
//! its connection for ever. [`Timed`] lies under the session and knows three times: waiting for a
//! next request, which is Pingora's to bound; reading a head, which is ours; and all the rest.

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use pingora::tls::ssl::SslRef;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The preface of HTTP/2 (RFC 9113, section 3.4); what follows has the idle time of its own.
const H2_PREFACE_BYTES: usize = 24;

/// The first request is expected; its time runs.
const FIRST: u8 = 0;
/// A head has begun; its time runs.
const HEAD: u8 = 1;
/// Nothing of a next request has come yet.
const WAITING: u8 = 2;
/// The head is through.
const REST: u8 = 3;

/// Where a connection is, shared by the stream and those who read requests from it.
#[derive(Debug, Clone, Default)]
pub struct Head(Arc<AtomicU8>);

impl Head {
    /// A request is going to be read.
    pub fn expected(&self) {
        let next = if self.at() == FIRST { HEAD } else { WAITING };
        self.0.store(next, Ordering::Relaxed);
    }

    /// Its head has been read.
    pub fn read(&self) {
        self.0.store(REST, Ordering::Relaxed);
    }

    fn at(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A client's connection under such a watch.
#[derive(Debug)]
pub struct Timed {
    inner: Stream,
    head: Head,
    limit: Duration,
    /// Made when a head does not come in one read, which is rare.
    timer: Option<Pin<Box<Sleep>>>,
    /// Of HTTP/2's preface; 0 once it is there, and for HTTP/1.
    preface: usize,
}

impl Timed {
    /// Watches a connection; `limit` is how long a head may take from its first byte, the first
    /// one from now.
    #[must_use]
    pub fn new(inner: Stream, head: Head, limit: Duration) -> Self {
        let h2 = matches!(inner.selected_alpn_proto(), Some(ALPN::H2));
        let preface = if h2 { H2_PREFACE_BYTES } else { 0 };
        Self { inner, head, limit, timer: None, preface }
    }

    /// Whether a head is late, asked when nothing more is there to be read.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        timer.as_mut().poll(context).is_ready()
    }

    fn got(&mut self, n: usize) {
        if self.preface > 0 {
            self.preface = self.preface.saturating_sub(n);
            if self.preface == 0 {
                self.head.read();
            }
        } else if n > 0 && self.head.at() == WAITING {
            self.head.0.store(HEAD, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let running = matches!(self.head.at(), FIRST | HEAD);
        if !running && self.timer.is_some() {
            self.timer = None;
        }
        if read.is_pending() {
            if running && self.is_late(context) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            return Poll::Pending;
        }
        ready!(read)?;
        let n = buffer.filled().len() - before;
        self.got(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, bytes)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for Timed {
    async fn shutdown(&mut self) {
        self.inner.shutdown().await;
    }
}

impl UniqueID for Timed {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for Timed {
    fn get_ssl(&self) -> Option<&SslRef> {
        self.inner.get_ssl()
    }
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }
    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

#[async_trait]
impl Peek for Timed {
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        self.inner.try_peek(buffer).await
    }
}

impl GetTimingDigest for Timed {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
    fn get_read_pending_time(&self) -> Duration {
        self.inner.get_read_pending_time()
    }
    fn get_write_pending_time(&self) -> Duration {
        self.inner.get_write_pending_time()
    }
}

impl GetProxyDigest for Timed {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
    fn set_proxy_digest(&mut self, digest: ProxyDigest) {
        self.inner.set_proxy_digest(digest);
    }
}

impl GetSocketDigest for Timed {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
    fn set_socket_digest(&mut self, digest: SocketDigest) {
        self.inner.set_socket_digest(digest);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    const LIMIT: Duration = Duration::from_secs(10);
    const STEP: Duration = Duration::from_secs(4);

    fn pair() -> (DuplexStream, Timed, Head) {
        let (client, server) = tokio::io::duplex(64);
        let head = Head::default();
        (client, Timed::new(Box::new(server), head.clone(), LIMIT), head)
    }

    async fn drip(mut client: DuplexStream, n: usize) -> DuplexStream {
        for _ in 0..n {
            tokio::time::sleep(STEP).await;
            let _ = client.write_all(b"a").await;
        }
        client
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_drips_is_late_however_often_a_byte_comes() {
        let (client, mut server, head) = pair();
        head.expected();
        let client = tokio::spawn(drip(client, 5));
        let start = tokio::time::Instant::now();
        let mut all = [0; 5];
        let late = server.read_exact(&mut all).await.unwrap_err();
        assert_eq!((late.kind(), start.elapsed()), (io::ErrorKind::TimedOut, LIMIT));
        drop(client.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_waits_as_long_as_it_likes_and_then_its_head_has_the_limit() {
        let (mut client, mut server, head) = pair();
        head.expected();
        client.write_all(b"a").await.unwrap();
        server.read_u8().await.unwrap();
        head.read();
        // A body, or a wait, longer than a head's time.
        let waits = tokio::time::timeout(LIMIT * 5, server.read_u8()).await;
        assert!(waits.is_err(), "{waits:?}");
        head.expected();
        let waits = tokio::time::timeout(LIMIT * 5, server.read_u8()).await;
        assert!(waits.is_err(), "{waits:?}");
        let client = tokio::spawn(drip(client, 5));
        let start = tokio::time::Instant::now();
        let late = server.read_exact(&mut [0; 5]).await.unwrap_err();
        assert_eq!((late.kind(), start.elapsed()), (io::ErrorKind::TimedOut, STEP + LIMIT));
        drop(client.await.unwrap());
    }
}
