//! A request to be sent, over HTTP/1.1 or h2c.

use super::{KEY, PROMPT};
use bytes::Bytes;
use serde_json::{Value, json};

/// A request.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// Send the body in chunks of so many bytes instead of with its length (HTTP/1.1).
    pub chunks: Option<usize>,
}

/// `POST /v1/chat/completions` to model `m`, with the key.
pub fn chat() -> Ask {
    Ask::post("/v1/chat/completions", &body(false))
}

/// The same as a stream.
pub fn streamed() -> Ask {
    Ask::post("/v1/chat/completions", &body(true))
}

fn body(stream: bool) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": PROMPT}]});
    if stream {
        body["stream"] = true.into();
    }
    body
}

impl Ask {
    /// A POST of JSON with the key.
    pub fn post(path: &str, body: &Value) -> Self {
        Self::raw("POST", path, body.to_string().into())
            .with("content-type", "application/json")
            .with("authorization", &format!("Bearer {KEY}"))
    }
    /// A GET with the key.
    pub fn get(path: &str) -> Self {
        Self::raw("GET", path, Bytes::new()).with("authorization", &format!("Bearer {KEY}"))
    }
    /// A request without any header but `host` and the body's length.
    pub fn raw(method: &str, path: &str, body: Bytes) -> Self {
        let (method, path) = (method.into(), path.into());
        Self { method, path, headers: vec![], body, chunks: None }
    }
    /// One header more.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
    /// Without a header.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(k, _)| !k.eq_ignore_ascii_case(name));
        self
    }
    /// Another key.
    pub fn key(self, secret: &str) -> Self {
        self.without("authorization").with("authorization", &format!("Bearer {secret}"))
    }
    /// A top-level member of the body set.
    pub fn set(mut self, member: &str, value: impl Into<Value>) -> Self {
        let mut body: Value = serde_json::from_slice(&self.body).unwrap();
        body[member] = value.into();
        self.body = body.to_string().into();
        self
    }
    /// Another model.
    pub fn model(self, name: &str) -> Self {
        self.set("model", name)
    }
    /// What the last message says: wishes for [`super::knobs`].
    pub fn say(self, text: &str) -> Self {
        self.set("messages", json!([{"role": "user", "content": text}]))
    }
    /// The body as these bytes.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
    /// The body in chunks of `n` bytes.
    pub fn chunked(mut self, n: usize) -> Self {
        self.chunks = Some(n);
        self
    }
    /// As HTTP/1.1.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.head();
        match self.chunks {
            None => out.extend_from_slice(&self.body),
            Some(n) => {
                for piece in self.body.chunks(n) {
                    out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    out.extend_from_slice(piece);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\n\r\n");
            }
        }
        out
    }
    /// Its HTTP/1.1 head alone, blank line included.
    pub fn head(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nhost: gateway\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        match self.chunks {
            Some(_) => text.push_str("transfer-encoding: chunked\r\n"),
            None if self.method != "GET" => {
                text.push_str(&format!("content-length: {}\r\n", self.body.len()));
            }
            None => {}
        }
        text.push_str("\r\n");
        text.into()
    }
}
