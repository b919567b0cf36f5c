//! The bedrock wire for callers that speak OpenAI chat: requests by rule, recorded replies at every
//! cut, and whatever a caller may think of.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

#[path = "../replay/mod.rs"]
mod replay;

mod frame;
mod random;
mod recorded;
mod request;
mod stream;
mod thinking;

use bytes::Bytes;
use frame::frame;
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
