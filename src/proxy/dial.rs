//! Connections to providers that Pingora cannot make: to one of several addresses, the next where
//! one fails, and through an HTTP proxy; all of them such that packets can be held ([`cork`]).

use super::cork;
use super::resolver::Known;
use crate::route::{Base, Through};
use async_trait::async_trait;
use pingora::connectors::l4::Connect;
use pingora::protocols::l4::socket::SocketAddr as Address;
use pingora::protocols::l4::stream::Stream;
use pingora::{Error, ErrorType, Result};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What a proxy may say before the tunnel is open.
const PROXY_HEAD_MAX: usize = 16 << 10;
/// No address gets less than this, however many there are.
const SHARE_MIN: Duration = Duration::from_millis(250);

/// Where a provider is: the address of this turn, and where there are others, all of them.
#[derive(Debug, Clone)]
pub struct Way {
    /// This turn's.
    pub address: SocketAddr,
    /// `None` where it is the only one.
    pub known: Option<Arc<Known>>,
}

impl Way {
    /// How to connect; `within` bounds all addresses together.
    #[must_use]
    pub fn dial(self, within: Option<Duration>) -> Arc<Dial> {
        Arc::new(Dial { way: self, within })
    }
}

/// One of a provider's addresses, beginning with this turn's.
#[derive(Debug)]
pub struct Dial {
    way: Way,
    within: Option<Duration>,
}

#[async_trait]
impl Connect for Dial {
    async fn connect(&self, _: &Address) -> Result<Stream> {
        let Some(known) = &self.way.known else {
            let only = self.way.address;
            let socket = tcp(only, self.within).await;
            return socket.map(cork::stream).map_err(|error| unreachable(&error, only));
        };
        let order = known.from(self.way.address);
        let count = u32::try_from(order.len()).unwrap_or(u32::MAX).max(1);
        // One that is silent must leave time for the next.
        let share = self.within.map(|all| (all / count).max(SHARE_MIN).min(all));
        let mut last = None;
        for address in order {
            match tcp(address, share).await {
                Ok(socket) => {
                    known.answers(address, true);
                    return Ok(cork::stream(socket));
                }
                Err(error) => {
                    known.answers(address, false);
                    last = Some(unreachable(&error, address));
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::explain(ErrorType::ConnectError, "no address")))
    }
}

async fn tcp(address: SocketAddr, within: Option<Duration>) -> io::Result<TcpStream> {
    match within {
        None => TcpStream::connect(address).await,
        Some(within) => tokio::time::timeout(within, TcpStream::connect(address)).await?,
    }
}

fn unreachable(error: &io::Error, address: SocketAddr) -> Box<Error> {
    failed(error, format!("connecting to {address}"))
}

fn failed(error: &io::Error, what: String) -> Box<Error> {
    let kind = match error.kind() {
        io::ErrorKind::TimedOut => ErrorType::ConnectTimedout,
        io::ErrorKind::ConnectionRefused => ErrorType::ConnectRefused,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            ErrorType::ConnectNoRoute
        }
        _ => ErrorType::ConnectError,
    };
    Error::explain(kind, format!("{what}: {error}"))
}

/// A tunnel through an HTTP proxy (RFC 9110, section 9.3.6).
#[derive(Debug)]
pub struct Tunnel {
    through: Arc<Through>,
    target: String,
}

impl Tunnel {
    /// A tunnel to a provider.
    #[must_use]
    pub fn new(through: Arc<Through>, base: &Base) -> Self {
        let host = &base.host;
        let bracketed = host.contains(':').then(|| format!("[{host}]:{}", base.port));
        let target = bracketed.unwrap_or_else(|| format!("{host}:{}", base.port));
        Self { through, target }
    }

    fn request(&self) -> String {
        let target = &self.target;
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n");
        if let Some(secret) = &self.through.authorization {
            head.push_str("proxy-authorization: ");
            head.push_str(secret.expose());
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        head
    }

    async fn open(&self) -> Result<TcpStream> {
        let (host, port) = (self.through.host.as_str(), self.through.port);
        let broken = |error: &io::Error| failed(error, format!("the proxy at {host}:{port}"));
        let mut stream = TcpStream::connect((host, port)).await.map_err(|e| broken(&e))?;
        stream.write_all(self.request().as_bytes()).await.map_err(|e| broken(&e))?;
        let mut head = Vec::with_capacity(512);
        loop {
            // A byte too many would be the provider's: it is read one by one, and is short.
            let byte = stream.read_u8().await.map_err(|e| broken(&e))?;
            head.push(byte);
            if head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n") {
                break;
            }
            if head.len() > PROXY_HEAD_MAX {
                return refused("a head without end");
            }
        }
        match status(&head) {
            Some(200..=299) => Ok(stream),
            Some(status) => refused(&status.to_string()),
            None => refused("something that is not HTTP"),
        }
    }
}

fn refused<T>(with: &str) -> Result<T> {
    Error::e_explain(ErrorType::ConnectProxyFailure, format!("the proxy answered {with}"))
}

/// The status of a reply's head.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|b| *b == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    rest.split(' ').nth(1)?.trim().parse().ok()
}

#[async_trait]
impl Connect for Tunnel {
    async fn connect(&self, _: &Address) -> Result<Stream> {
        Ok(cork::stream(self.open().await?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::net::{TcpListener, TcpSocket};

    /// Three addresses of the loopback with one port: the first refuses, the second is silent (its
    /// queue is full), the third answers.
    #[tokio::test]
    async fn the_next_address_is_tried_where_one_refuses_or_is_silent() {
        let good = TcpListener::bind("127.0.0.3:0").await.unwrap();
        let port = good.local_addr().unwrap().port();
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind(([127, 0, 0, 2], port).into()).unwrap();
        let silent = silent.listen(0).unwrap();
        let at = silent.local_addr().unwrap();
        let mut fill = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(at)).await
        {
            fill.push(stream);
        }
        let all = [1, 2, 3].map(|n| SocketAddr::from(([127, 0, 0, n], port)));
        let known = Arc::new(Known::new(all.into()));
        let way = |address| Way { address, known: Some(known.clone()) };
        let nobody = Address::Inet(all[0]);
        let start = Instant::now();
        let first = way(all[0]).dial(Some(Duration::from_millis(900)));
        let stream = first.connect(&nobody).await;
        assert!(stream.is_ok(), "{stream:?}");
        assert!(start.elapsed() >= Duration::from_millis(290), "the silent one had its share");
        // Both are known now, and are the last to be asked.
        assert_eq!(known.from(all[2])[0], all[2]);
        assert_eq!(known.from(all[0])[1], all[2], "even where this turn's is a failed one");
        drop(good);
        let none = way(all[2]).dial(Some(Duration::from_millis(900)));
        let error = none.connect(&nobody).await.unwrap_err();
        assert!(matches!(error.etype(), ErrorType::ConnectRefused | ErrorType::ConnectTimedout));
    }

    #[test]
    fn a_proxys_answer_has_a_status_or_is_none() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407 x\r\n\r\n"), Some(407));
        assert_eq!(status(b"HTTP/1.1 204\r\n\r\n"), Some(204));
        assert_eq!(status(b"SSH-2.0-x\n\n"), None);
    }
}
