//! The gemini and vertex wires for callers that speak OpenAI chat: requests by rule, recorded
//! replies at every cut, and whatever a caller may think of.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

#[path = "../replay/mod.rs"]
mod replay;

mod random;
mod recorded;
mod request;
mod stream;
mod tools;

use bytes::Bytes;
use replay::drive::{self, Filtered, Sent};
use weir_filters::wire::Wire;

const MODEL: &str = "gemini-2.5-flash";

fn ask(messages: &str, more: &str) -> Sent {
    drive::ask(Wire::Gemini, MODEL, messages, more)
}

/// A request that says hello, with more members.
fn hello(more: &str) -> Sent {
    ask(r#"[{"role":"user","content":"hi"}]"#, more)
}

/// A stream of these chunks in one piece, ended cleanly.
fn stream(chunks: &[&str], asked: bool) -> Filtered {
    drive::filter(Wire::Gemini, &[sse(chunks)], asked, true)
}

fn sse(chunks: &[&str]) -> Bytes {
    let line = |chunk: &&str| {
        let data: String = chunk.lines().map(str::trim_start).collect();
        format!("data: {data}\r\n\r\n")
    };
    chunks.iter().map(line).collect::<String>().into()
}

/// A chunk of these parts; `more` goes beside them in the candidate.
fn parts(parts: &str, more: &str) -> String {
    let comma = if more.is_empty() { "" } else { "," };
    format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}}{comma}{more}}}]}}"#)
}
