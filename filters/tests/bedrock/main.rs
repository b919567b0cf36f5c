//! The bedrock wire for callers that speak OpenAI chat: requests by rule, recorded replies at every
//! cut, and whatever a caller may think of.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

#[path = "../replay/mod.rs"]
mod replay;

mod random;
mod recorded;
mod request;
mod stream;
mod thinking;

use bytes::Bytes;
use replay::drive::{self, Filtered, Sent};
use weir_filters::wire::Wire;

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-v1:0";

fn ask(model: &str, messages: &str, more: &str) -> Sent {
    drive::ask(Wire::Bedrock, model, messages, more)
}

/// A request that says hello, with more members.
fn hello(model: &str, more: &str) -> Sent {
    ask(model, r#"[{"role":"user","content":"hi"}]"#, more)
}

/// A stream of these events in one piece, ended cleanly.
fn stream(events: &[(&str, &str)], asked: bool) -> Filtered {
    drive::filter(Wire::Bedrock, &[frames(events)], asked, true)
}

fn frames(events: &[(&str, &str)]) -> Bytes {
    let frame = |(kind, payload): &(&str, &str)| {
        frame(&[(":event-type", kind), (":message-type", "event")], payload.as_bytes())
    };
    events.iter().flat_map(frame).collect::<Vec<u8>>().into()
}

/// A frame, written without the crate's code.
fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap());
        head.extend(name.as_bytes());
        head.push(7);
        head.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        head.extend(value.as_bytes());
    }
    let total = u32::try_from(head.len() + payload.len() + 16).unwrap();
    let mut out = total.to_be_bytes().to_vec();
    out.extend(u32::try_from(head.len()).unwrap().to_be_bytes());
    out.extend(crc(&out).to_be_bytes());
    out.extend(head);
    out.extend(payload);
    out.extend(crc(&out).to_be_bytes());
    out
}

/// CRC-32, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}
