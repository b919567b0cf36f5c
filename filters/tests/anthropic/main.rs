//! The anthropic wire for callers that speak OpenAI chat: requests by rule, recorded replies at
//! every cut, and whatever a caller may think of.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

#[path = "../replay/mod.rs"]
mod replay;

mod content;
mod ends;
mod random;
mod recorded;
mod request;
mod stream;
mod thinking;
mod tools;

use bytes::Bytes;
use serde_json::Value;
use weir_filters::error::ApiError;
use weir_filters::peek;
use weir_filters::usage::Usage;
use weir_filters::wire::{Ask, End, Outgoing, Params, Quirks, ReplyContext, Step, Wire};

/// The request of a body with these params; `max_output` as the model's config has it.
fn try_ask(body: &str, params: &Params, max_output: u64) -> Result<Outgoing, ApiError> {
    build("claude-x", body, params, max_output)
}

/// The same of another model.
fn try_model(model: &str, body: &str) -> Result<Outgoing, ApiError> {
    build(model, body, &Params::default(), 0)
}

fn build(model: &str, body: &str, params: &Params, max_output: u64) -> Result<Outgoing, ApiError> {
    let peek = peek::chat(Bytes::copy_from_slice(body.as_bytes())).expect("a body that is taken");
    let ask = Ask {
        peek: &peek,
        model,
        quirks: &Quirks::default(),
        params,
        max_output,
        base_url: "https://provider.invalid/v1",
        api_version: None,
    };
    Wire::Anthropic.request(&ask)
}

/// What was sent, as text and as JSON, and what was dropped.
struct Sent {
    text: String,
    json: Value,
    dropped: Vec<String>,
}

/// The request of `{"model","messages":…}` with more members.
fn ask(messages: &str, more: &str) -> Sent {
    let comma = if more.is_empty() { "" } else { "," };
    let body = format!("{{\"model\":\"m\",\"messages\":{messages}{comma}{more}}}");
    sent(try_ask(&body, &Params::default(), 0).expect("a request"))
}

fn sent(out: Outgoing) -> Sent {
    let text = String::from_utf8(out.body.concat().to_vec()).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    Sent { text, json, dropped: out.dropped }
}

/// A request that says hello, with more members.
fn hello(more: &str) -> Sent {
    ask(r#"[{"role":"user","content":"hi"}]"#, more)
}

fn context(usage_asked: bool) -> ReplyContext {
    ReplyContext {
        usage_asked,
        strip_usage: false,
        id: "chatcmpl-t".into(),
        created: 1_700_000_000,
        model: "claude-x".into(),
        encoding: None,
        prompt_tokens: 7,
    }
}

/// One reply, filtered.
#[derive(Debug)]
struct Filtered {
    /// All that went out, the withheld tail included.
    out: Vec<u8>,
    end: Option<End>,
    started: bool,
    usage: Option<Usage>,
    finish: Option<&'static str>,
    model: Option<String>,
    counted: u64,
}

impl Filtered {
    fn complete(&self) -> bool {
        matches!(self.end, Some(End::Complete { .. }))
    }
    fn failure(&self) -> &weir_filters::error::Failure {
        match &self.end {
            Some(End::Failed(failure)) => failure,
            other => panic!("not failed: {other:?} {}", String::from_utf8_lossy(&self.out)),
        }
    }
    /// What a client reads, every strict rule held.
    fn seen(&self, asked: bool) -> replay::chat::Seen {
        let seen = replay::chat::stream(&self.out, asked, self.complete());
        let text = String::from_utf8_lossy(&self.out);
        assert!(seen.faults.is_empty(), "{:?} in {text}", seen.faults);
        seen
    }
}

/// Runs a stream in pieces; `clean`: it ended as HTTP says, else its connection was cut.
fn filter(pieces: &[Bytes], asked: bool, clean: bool) -> Filtered {
    let mut reply = Wire::Anthropic.stream(context(asked));
    let (mut out, mut end, mut started) = (Vec::new(), None, false);
    let mut take = |step: Step| {
        out.extend(step.out.concat());
        started |= step.started;
        if step.end.is_some() {
            assert!(end.is_none(), "two ends");
            end = step.end;
        }
    };
    for piece in pieces {
        let mut step = Step::default();
        reply.feed(piece.clone(), &mut step);
        take(step);
    }
    let mut step = Step::default();
    reply.finish(clean, &mut step);
    take(step);
    if let Some(End::Complete { tail }) = &end {
        out.extend_from_slice(tail);
    }
    let tap = reply.tap();
    Filtered {
        out,
        end,
        started,
        usage: tap.usage,
        finish: tap.finish,
        model: tap.model.clone(),
        counted: tap.counter.total(),
    }
}

/// A stream of these data lines in one piece, ended cleanly.
fn stream(events: &[&str], asked: bool) -> Filtered {
    filter(&[sse(events)], asked, true)
}

/// Events with the names that their types say. Data that a test wrote on several lines is joined.
fn sse(events: &[&str]) -> Bytes {
    let mut out = String::new();
    for data in events {
        let data: String = data.lines().map(str::trim_start).collect();
        let json: Value = serde_json::from_str(&data).unwrap_or_default();
        if let Some(name) = json["type"].as_str() {
            out += &format!("event: {name}\n");
        }
        out += &format!("data: {data}\n\n");
    }
    out.into()
}
