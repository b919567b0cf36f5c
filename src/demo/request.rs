//! One HTTP/1.1 request off a socket, whole.

use bytes::{Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No gateway sends more head than this.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// Twice the gateway's default `max_body`, so that tests of that limit are not stopped here.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path, query included.
    pub path: String,
    /// Headers in order, names and values as they were written.
    pub headers: Vec<(String, String)>,
    /// The body, chunked framing removed.
    pub body: Bytes,
}

impl Request {
    /// The first header of this name, whatever its case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(k, _)| k.eq_ignore_ascii_case(name));
        found.map(|(_, v)| v.as_str())
    }
    /// The body as JSON; null when it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
    /// The path without its query.
    #[must_use]
    pub fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
    /// The peer will send nothing more on this connection.
    pub(super) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"))
    }
    fn chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"))
    }
}

/// The next request, or `None` when the peer has closed between two.
///
/// # Errors
/// The connection broke, or what came is no HTTP/1.1 within the limits.
pub(super) async fn read(
    stream: &mut TcpStream,
    buf: &mut BytesMut,
) -> io::Result<Option<Request>> {
    let head = loop {
        if let Some(at) = memchr::memmem::find(buf, b"\r\n\r\n") {
            break buf.split_to(at + 4);
        }
        if buf.len() > HEAD_BYTES_MAX {
            return Err(bad("head"));
        }
        if stream.read_buf(buf).await? == 0 {
            return if buf.is_empty() { Ok(None) } else { Err(bad("end in a head")) };
        }
    };
    let mut request = parse(&head)?;
    if request.header("expect").is_some_and(|v| v.eq_ignore_ascii_case("100-continue")) {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    request.body = if request.chunked() {
        read_chunks(stream, buf).await?
    } else {
        let length = match request.header("content-length") {
            Some(v) => v.parse().map_err(|_| bad("content-length"))?,
            None => 0,
        };
        read_exact(stream, buf, length).await?
    };
    Ok(Some(request))
}

fn parse(head: &[u8]) -> io::Result<Request> {
    let text = std::str::from_utf8(head).map_err(|_| bad("head"))?;
    let mut lines = text.trim_end().split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some(_)) = (first.next(), first.next(), first.next()) else {
        return Err(bad("request line"));
    };
    let headers = lines
        .map(|line| line.split_once(':').map(|(k, v)| (k.to_owned(), v.trim().to_owned())))
        .collect::<Option<_>>()
        .ok_or_else(|| bad("header"))?;
    Ok(Request { method: method.into(), path: path.into(), headers, body: Bytes::new() })
}

async fn read_exact(stream: &mut TcpStream, buf: &mut BytesMut, n: usize) -> io::Result<Bytes> {
    if n > BODY_BYTES_MAX {
        return Err(bad("body"));
    }
    while buf.len() < n {
        if stream.read_buf(buf).await? == 0 {
            return Err(bad("end in a body"));
        }
    }
    Ok(buf.split_to(n).freeze())
}

async fn read_chunks(stream: &mut TcpStream, buf: &mut BytesMut) -> io::Result<Bytes> {
    let mut body = BytesMut::new();
    loop {
        let line = loop {
            if let Some(at) = memchr::memmem::find(buf, b"\r\n") {
                break buf.split_to(at + 2);
            }
            if buf.len() > HEAD_BYTES_MAX || stream.read_buf(buf).await? == 0 {
                return Err(bad("chunk"));
            }
        };
        let digits = line[..].split(|b| *b == b';' || *b == b'\r').next().unwrap_or_default();
        let size = std::str::from_utf8(digits)
            .ok()
            .and_then(|s| usize::from_str_radix(s.trim(), 16).ok())
            .filter(|n| body.len() + n <= BODY_BYTES_MAX)
            .ok_or_else(|| bad("chunk size"))?;
        body.extend_from_slice(&read_exact(stream, buf, size).await?);
        if !read_exact(stream, buf, 2).await?.eq(&b"\r\n"[..]) {
            return Err(bad("chunk end"));
        }
        if size == 0 {
            return Ok(body.freeze());
        }
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
