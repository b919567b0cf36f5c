//! The admin side's connections: so many at once, none silent for long, over TLS where config says
//! so. The library behind them bounds none of it.

use crate::flow::Gateway;
use axum::serve::Listener;
use openssl::ssl::Ssl;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_openssl::SslStream;

/// Scrapers, probes and a few people; each connection is a task and its buffers.
const OPEN_MAX: usize = 256;
/// A TLS handshake, all of it.
const SHAKE_MAX: Duration = Duration::from_secs(10);
/// Longer than scrapers pause, and than any answer of ours takes.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// One listener of the admin side.
pub struct Door {
    listener: TcpListener,
    /// Where the identity is found; `None` without TLS.
    tls: Option<Arc<Gateway>>,
    places: Arc<Semaphore>,
    shaking: JoinSet<Option<(Link, SocketAddr)>>,
}

impl Door {
    /// On a bound socket; over TLS with `[admin] tls` of the config in force where `tls` is given.
    ///
    /// # Errors
    /// The runtime does not take the socket.
    pub fn new(listener: std::net::TcpListener, tls: Option<Arc<Gateway>>) -> io::Result<Self> {
        let listener = TcpListener::from_std(listener)?;
        let places = Arc::new(Semaphore::new(OPEN_MAX));
        Ok(Self { listener, tls, places, shaking: JoinSet::new() })
    }
}

impl Listener for Door {
    type Io = Link;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Link, SocketAddr) {
        loop {
            let place = self.places.clone();
            let next = async {
                let place = place.acquire_owned().await.ok(); // never closed
                (Listener::accept(&mut self.listener).await, place)
            };
            tokio::select! {
                ((stream, from), place) = next => {
                    let Some(gateway) = self.tls.clone() else {
                        return (Link::new(Box::pin(stream), place), from);
                    };
                    self.shaking.spawn(async move {
                        let secure = timeout(SHAKE_MAX, shake(&gateway, stream)).await.ok()??;
                        Some((Link::new(Box::pin(secure), place), from))
                    });
                }
                Some(done) = self.shaking.join_next() => {
                    if let Ok(Some(shaken)) = done {
                        return shaken;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

async fn shake(gateway: &Gateway, stream: TcpStream) -> Option<SslStream<TcpStream>> {
    let identity = gateway.snapshot.load().admin.tls.clone()?;
    let ssl = Ssl::new(identity.acceptor.context()).ok()?;
    let mut stream = SslStream::new(ssl, stream).ok()?;
    Pin::new(&mut stream).accept().await.ok()?;
    Some(stream)
}

trait Wire: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Wire for T {}

/// One connection: its place, and how long it has been silent.
pub struct Link {
    wire: Pin<Box<dyn Wire>>,
    silence: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Link {
    fn new(wire: Pin<Box<dyn Wire>>, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { wire, silence: Box::pin(sleep(SILENCE_MAX)), _place: place }
    }

    /// A step's result: one that moved something ends the silence, one that waits is cut by it.
    fn heard<T>(
        &mut self,
        context: &mut Context<'_>,
        step: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match step {
            Poll::Ready(done) => {
                self.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
                Poll::Ready(done)
            }
            Poll::Pending if self.silence.as_mut().poll(context).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let step = self.wire.as_mut().poll_read(context, buffer);
        self.heard(context, step)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let step = self.wire.as_mut().poll_write(context, bytes);
        self.heard(context, step)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.as_mut().poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.as_mut().poll_shutdown(context)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let step = self.wire.as_mut().poll_write_vectored(context, bytes);
        self.heard(context, step)
    }
    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_ends_and_one_that_speaks_now_and_then_does_not() {
        let (mut client, server) = tokio::io::duplex(16);
        let mut link = Link::new(Box::pin(server), None);
        for _ in 0..3 {
            let speak = async {
                sleep(SILENCE_MAX / 2).await;
                client.write_all(b"a").await.unwrap();
            };
            let (byte, ()) = tokio::join!(link.read_u8(), speak);
            assert_eq!(byte.unwrap(), b'a');
        }
        let start = Instant::now();
        assert_eq!(link.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), SILENCE_MAX);
        // One that does not read: its pipe is full after 16 bytes.
        let (client, server) = tokio::io::duplex(16);
        let mut link = Link::new(Box::pin(server), None);
        let start = Instant::now();
        assert_eq!(link.write_all(&[0; 99]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), SILENCE_MAX);
        drop(client);
    }

    #[tokio::test]
    async fn one_connection_more_than_there_are_places_waits_for_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let mut door = Door::new(listener, None).unwrap();
        let mut open = Vec::new();
        for _ in 0..OPEN_MAX {
            let client = TcpStream::connect(address).await.unwrap();
            open.push((client, door.accept().await.0));
        }
        let _more = TcpStream::connect(address).await.unwrap();
        let waits = timeout(Duration::from_millis(50), door.accept()).await;
        assert!(waits.is_err(), "no place is left");
        open.pop();
        assert!(timeout(SHAKE_MAX, door.accept()).await.is_ok());
    }
}
