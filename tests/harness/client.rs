//! An HTTP/1.1 client that sees every piece, waits for none it was not told to, and can leave at
//! any byte. Strict: framing that a careful client would refuse fails the test.

use super::reply::{End, Head, Reply, events};
use super::{Ask, soon};
use bytes::{Bytes, BytesMut};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    buf: BytesMut,
    framing: Framing,
    /// Text of the current stream that [`Client::event`] has not given out yet.
    tail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// No body is open.
    Idle,
    Chunked,
    Length(usize),
    UntilClose,
}

/// What a body brings next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes, as they came in one read (or one chunk).
    Data(Bytes),
    End(End),
}

impl Client {
    /// A connection to a port of the loopback.
    pub async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a listener");
        stream.set_nodelay(true).unwrap();
        Self { stream, buf: BytesMut::new(), framing: Framing::Idle, tail: String::new() }
    }
    /// The same, where the gateway may be gone.
    pub async fn try_connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self { stream, buf: BytesMut::new(), framing: Framing::Idle, tail: String::new() })
    }
    /// Bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) {
        soon("a write", self.stream.write_all(bytes)).await.unwrap();
    }
    /// Bytes that the other side may refuse to take; says whether all were taken.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        soon("a write", self.stream.write_all(bytes)).await.is_ok()
    }
    /// A whole exchange.
    pub async fn ask(&mut self, ask: &Ask) -> Reply {
        self.send(&ask.bytes()).await;
        self.reply().await
    }
    /// A request, and its reply's head; the body is left to [`Client::piece`] or [`Client::event`].
    pub async fn begin(&mut self, ask: &Ask) -> Head {
        self.send(&ask.bytes()).await;
        self.head().await
    }
    /// The reply of what was sent.
    pub async fn reply(&mut self) -> Reply {
        let head = self.head().await;
        let mut pieces = vec![];
        loop {
            match self.piece().await {
                Piece::Data(bytes) => pieces.push((Instant::now(), bytes)),
                Piece::End(end) => return Reply { head, pieces, end },
            }
        }
    }
    /// The next head that is not a 1xx. Panics when the connection ends first.
    pub async fn head(&mut self) -> Head {
        self.try_head().await.expect("a reply before the end of the connection")
    }
    /// The next head that is not a 1xx, or `None` when the connection has ended.
    pub async fn try_head(&mut self) -> Option<Head> {
        loop {
            let text = loop {
                if let Some(at) = memchr::memmem::find(&self.buf, b"\r\n\r\n") {
                    break self.buf.split_to(at + 4);
                }
                if !self.read().await {
                    assert!(self.buf.is_empty(), "half a head: {:?}", self.buf);
                    return None;
                }
            };
            let head = parse(std::str::from_utf8(&text).unwrap());
            if head.status >= 200 {
                self.framing = framing(&head);
                self.tail.clear();
                return Some(head);
            }
        }
    }
    /// The next piece of the open body.
    pub async fn piece(&mut self) -> Piece {
        match self.framing {
            Framing::Idle | Framing::Length(0) => self.ended(End::Clean),
            Framing::Chunked => self.chunk().await,
            Framing::UntilClose => match self.any().await {
                Some(bytes) => Piece::Data(bytes),
                None => self.ended(End::Clean),
            },
            Framing::Length(left) => match self.any().await {
                Some(mut bytes) => {
                    let extra = bytes.split_off(bytes.len().min(left));
                    self.buf = extra.iter().chain(self.buf.iter()).copied().collect();
                    self.framing = Framing::Length(left - bytes.len());
                    Piece::Data(bytes)
                }
                None => self.ended(End::Cut),
            },
        }
    }
    /// The data of the stream's next event; `None` at its end.
    pub async fn event(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.tail.find("\n\n") {
                let block: String = self.tail.drain(..at + 2).collect();
                if let Some(data) = events(&block).pop() {
                    return Some(data);
                }
                continue;
            }
            match self.piece().await {
                Piece::Data(bytes) => self.tail.push_str(std::str::from_utf8(&bytes).unwrap()),
                Piece::End(_) => return None,
            }
        }
    }
    /// Events up to the first one whose data holds `part`, that one included.
    pub async fn events_until(&mut self, part: &str) -> Vec<String> {
        let mut all = vec![];
        while let Some(event) = self.event().await {
            let last = event.contains(part);
            all.push(event);
            if last {
                return all;
            }
        }
        panic!("no {part} in {all:?}");
    }
    /// What is left of the body, and how it ended.
    pub async fn rest(&mut self) -> (String, End) {
        let mut text = std::mem::take(&mut self.tail);
        loop {
            match self.piece().await {
                Piece::Data(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                Piece::End(end) => return (text, end),
            }
        }
    }
    /// Whether the other side has closed, nothing unread being left.
    pub async fn closed(&mut self) -> bool {
        self.buf.is_empty() && !self.read().await
    }
    /// Leaves with a RST.
    pub fn abort(self) {
        self.stream.set_zero_linger().unwrap();
    }
    /// Sends a FIN; replies can still be read.
    pub async fn half_close(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    async fn chunk(&mut self) -> Piece {
        let Some(line) = self.line().await else { return self.ended(End::Cut) };
        let size = usize::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("chunk {line:?}"));
        while self.buf.len() < size + 2 {
            if !self.read().await {
                return self.ended(End::Cut);
            }
        }
        let data = self.buf.split_to(size).freeze();
        assert_eq!(&self.buf.split_to(2)[..], b"\r\n", "a chunk ends in CRLF");
        if size == 0 { self.ended(End::Clean) } else { Piece::Data(data) }
    }
    /// The next line, without its end.
    pub async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.buf, b"\r\n") {
                let line = self.buf.split_to(at + 2);
                return Some(String::from_utf8(line[..at].to_vec()).unwrap());
            }
            if !self.read().await {
                return None;
            }
        }
    }
    /// What is there, or comes next.
    async fn any(&mut self) -> Option<Bytes> {
        if self.buf.is_empty() && !self.read().await {
            return None;
        }
        Some(self.buf.split().freeze())
    }
    /// Reads once; false when the connection has ended, by FIN or RST.
    async fn read(&mut self) -> bool {
        soon("bytes", self.stream.read_buf(&mut self.buf)).await.is_ok_and(|n| n > 0)
    }
    fn ended(&mut self, end: End) -> Piece {
        self.framing = Framing::Idle;
        Piece::End(end)
    }
}

fn parse(text: &str) -> Head {
    let mut lines = text.trim_end().split("\r\n");
    let status = lines.next().and_then(|l| l.split(' ').nth(1)).and_then(|s| s.parse().ok());
    let header = |line: &str| {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("header {line:?}"));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    Head { status: status.expect("a status"), headers: lines.map(header).collect() }
}

fn framing(head: &Head) -> Framing {
    let (length, coding) = (head.header("content-length"), head.header("transfer-encoding"));
    match (head.status, length, coding) {
        (_, Some(_), Some(_)) => panic!("both length and chunked: {head:?}"),
        (204 | 304, ..) => Framing::Idle,
        (_, Some(n), None) => Framing::Length(n.parse().unwrap()),
        (_, None, Some("chunked")) => Framing::Chunked,
        (_, None, Some(other)) => panic!("transfer-encoding {other}"),
        (_, None, None) => Framing::UntilClose,
    }
}
