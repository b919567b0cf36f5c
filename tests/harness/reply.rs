//! A reply as a client saw it.

use bytes::Bytes;
use serde_json::Value;
use std::time::Instant;

/// Status and headers.
#[derive(Debug, Clone, Default)]
pub struct Head {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The value of a header that must not stand twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(k, _)| k == name);
        let first = all.next().map(|(_, v)| v.as_str());
        assert!(all.next().is_none(), "{name} stands twice in {self:?}");
        first
    }
}

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As its framing says.
    Clean,
    /// The connection ended first.
    Cut,
}

/// A reply, read to its end.
#[derive(Debug, Clone)]
pub struct Reply {
    pub head: Head,
    /// The body's pieces as the network brought them, framing removed, and when.
    pub pieces: Vec<(Instant, Bytes)>,
    pub end: End,
}

impl Reply {
    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status
    }
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }
    /// The whole body.
    pub fn body(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect()
    }
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body()).expect("a body of UTF-8")
    }
    /// The body as JSON.
    pub fn json(&self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text:?}"))
    }
    /// Status and `error.code` of an error in OpenAI's form, after a look at the form itself.
    pub fn error(&self) -> (u16, String) {
        let body = self.json();
        let error = &body["error"];
        let said = error["message"].as_str().is_some_and(|m| !m.is_empty());
        assert!(said && error["type"].is_string(), "no error of ours: {body}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        let sure = self.header("x-should-retry");
        assert!(matches!(sure, Some("true" | "false")), "x-should-retry is {sure:?}");
        (self.status(), error["code"].as_str().unwrap_or_default().into())
    }
    /// The data of each event of a stream.
    pub fn events(&self) -> Vec<String> {
        events(&self.text())
    }
    /// The JSON of each event but `[DONE]`.
    pub fn chunks(&self) -> Vec<Value> {
        let parse = |e: &String| serde_json::from_str(e).unwrap_or_else(|x| panic!("{x}: {e}"));
        self.events().iter().filter(|e| *e != "[DONE]").map(parse).collect()
    }
    /// The stream's last event is `[DONE]`, and its body ended cleanly.
    pub fn done(&self) -> bool {
        self.end == End::Clean && self.events().last().is_some_and(|e| e == "[DONE]")
    }
    /// The joined content of a stream's first choice.
    pub fn content(&self) -> String {
        let chunks = self.chunks();
        let texts = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str());
        texts.collect()
    }
    /// Every finish reason of a stream, in order.
    pub fn finishes(&self) -> Vec<String> {
        let chunks = self.chunks();
        let all = chunks.iter().filter_map(|c| c["choices"][0]["finish_reason"].as_str());
        all.map(str::to_owned).collect()
    }
    /// The message of the error event that ended a stream.
    pub fn error_event(&self) -> Option<String> {
        let last = self.chunks().pop()?;
        last["error"]["message"].as_str().map(str::to_owned)
    }
}

/// The data of each whole event; an event without its blank line is none.
pub fn events(text: &str) -> Vec<String> {
    let blocks: Vec<_> = text.split("\n\n").collect();
    let whole = blocks.split_last().map_or(&[][..], |(_, whole)| whole);
    let data = |block: &&str| {
        let lines = block.lines().filter_map(|l| l.strip_prefix("data:"));
        let lines: Vec<_> = lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    };
    whole.iter().filter_map(data).collect()
}
