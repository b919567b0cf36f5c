//! The same client over HTTP/2 with prior knowledge, without TLS.

use super::reply::{End, Head, Reply};
use super::{Ask, soon};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// One connection; streams may run side by side.
#[derive(Debug)]
pub struct H2 {
    send: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl H2 {
    /// A connection to a port of the loopback.
    pub async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a listener");
        stream.set_nodelay(true).unwrap();
        Self::over(stream).await
    }
    /// On a connection that is there.
    pub async fn over<S>(stream: S) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (send, connection) = soon("h2", h2::client::handshake(stream)).await.unwrap();
        Self { send, connection: tokio::spawn(connection) }
    }
    /// Sends a head and nothing of its body.
    pub async fn open(&mut self, ask: &Ask) -> (ResponseFuture, SendStream<Bytes>) {
        let mut request = http::Request::builder()
            .method(ask.method.as_str())
            .uri(format!("http://gateway{}", ask.path));
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        let request = request.body(()).unwrap();
        let mut ready = soon("h2", self.send.clone().ready()).await.unwrap();
        ready.send_request(request, false).unwrap()
    }
    /// The same where the other side may have ended the connection.
    pub async fn try_open(&mut self, ask: &Ask) -> Option<(ResponseFuture, SendStream<Bytes>)> {
        let mut request = http::Request::post(format!("http://gateway{}", ask.path));
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        let mut ready = soon("h2", self.send.clone().ready()).await.ok()?;
        ready.send_request(request.body(()).unwrap(), false).ok()
    }
    /// Sends a request and reads the reply's head.
    pub async fn begin(&mut self, ask: &Ask) -> (Head, RecvStream) {
        let (response, mut body) = self.open(ask).await;
        body.send_data(ask.body.clone(), true).unwrap();
        let (parts, body) = soon("a reply", response).await.unwrap().into_parts();
        let text = |v: &http::HeaderValue| v.to_str().unwrap().to_owned();
        let headers = parts.headers.iter().map(|(k, v)| (k.to_string(), text(v))).collect();
        (Head { status: parts.status.as_u16(), headers }, body)
    }
    /// A whole exchange.
    pub async fn ask(&mut self, ask: &Ask) -> Reply {
        let (head, mut body) = self.begin(ask).await;
        let mut pieces = vec![];
        let end = loop {
            match soon("bytes", body.data()).await {
                None => break End::Clean,
                Some(Err(_)) => break End::Cut,
                Some(Ok(bytes)) => {
                    body.flow_control().release_capacity(bytes.len()).unwrap();
                    pieces.push((Instant::now(), bytes));
                }
            }
        };
        Reply { head, pieces, end }
    }
    /// Waits for the connection's end: `Ok` after a GOAWAY without error, or a plain close.
    pub async fn ended(self) -> Result<(), h2::Error> {
        drop(self.send);
        soon("the connection's end", self.connection).await.unwrap()
    }
}
