//! Plays a script's actions onto a socket.

use super::script::Action;
use bytes::{Bytes, BytesMut};
use std::future::Future;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A peer that talks more than this while it waits for its reply is cut off.
const PIPELINED_BYTES_MAX: usize = 1 << 20;

/// What becomes of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits for the next request.
    Keep,
    /// It ends.
    Drop,
}

/// One reply being sent.
pub(super) struct Stage<'a> {
    stream: &'a mut TcpStream,
    buf: &'a mut BytesMut,
    chunked: bool,
    close: bool,
    sent: usize,
}

impl<'a> Stage<'a> {
    /// `buf` takes what the peer sends meanwhile.
    pub(super) fn new(stream: &'a mut TcpStream, buf: &'a mut BytesMut) -> Self {
        Self { stream, buf, chunked: false, close: false, sent: 0 }
    }
    /// Bytes written, framing included.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }
    /// Plays all of it. `progress` hears the bytes sent before every silence.
    ///
    /// # Errors
    /// The peer has gone.
    pub(super) async fn play(
        &mut self,
        actions: Vec<Action>,
        progress: impl Fn(usize),
    ) -> io::Result<Next> {
        for action in actions {
            match action {
                Action::Head(status, headers) => self.head(status, &headers).await?,
                Action::Body(bytes) => self.body(&bytes).await?,
                Action::Sse(value) => self.body(format!("data: {value}\n\n").as_bytes()).await?,
                Action::Whole(status, headers, body) => self.whole(status, headers, body).await?,
                Action::Raw(bytes) => self.write(&bytes).await?,
                Action::Reset => {
                    self.stream.set_zero_linger()?;
                    return Ok(Next::Drop);
                }
                Action::Close => return Ok(Next::Drop),
                silence => {
                    progress(self.sent);
                    self.silence(silence).await?;
                }
            }
        }
        if self.chunked {
            self.write(b"0\r\n\r\n").await?;
        }
        Ok(if self.close { Next::Drop } else { Next::Keep })
    }
    async fn silence(&mut self, action: Action) -> io::Result<()> {
        match action {
            Action::Wait(time) => self.unless_gone(tokio::time::sleep(time)).await,
            Action::Pass(gate) => self.unless_gone(gate.pass()).await,
            _ => self.unless_gone(std::future::pending()).await,
        }
    }
    /// Waits for `what`, and looks whether the peer is still there. What it sends is kept.
    async fn unless_gone(&mut self, what: impl Future<Output = ()>) -> io::Result<()> {
        tokio::pin!(what);
        loop {
            tokio::select! {
                () = &mut what => return Ok(()),
                read = self.stream.read_buf(self.buf) => {
                    if read? == 0 || self.buf.len() > PIPELINED_BYTES_MAX {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }
    async fn head(&mut self, status: u16, headers: &[(String, String)]) -> io::Result<()> {
        let has = |name: &str| headers.iter().find(|(k, _)| k.eq_ignore_ascii_case(name));
        self.close = has("connection").is_some_and(|(_, v)| v.eq_ignore_ascii_case("close"));
        self.chunked = !self.close && has("content-length").is_none();
        let mut text = start(status, headers);
        if self.chunked {
            text.push_str("transfer-encoding: chunked\r\n");
        }
        text.push_str("\r\n");
        self.write(text.as_bytes()).await
    }
    async fn body(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.chunked {
            return self.write(bytes).await;
        }
        let mut framed = Vec::with_capacity(bytes.len() + 16);
        framed.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.write(&framed).await
    }
    async fn whole(
        &mut self,
        status: u16,
        headers: Vec<(String, String)>,
        body: Bytes,
    ) -> io::Result<()> {
        let mut text = start(status, &headers);
        text.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let mut all = text.into_bytes();
        all.extend_from_slice(&body);
        self.write(&all).await
    }
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.sent += bytes.len();
        Ok(())
    }
}

fn start(status: u16, headers: &[(String, String)]) -> String {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text
}
