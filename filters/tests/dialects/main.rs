//! Dialects over wires: requests by rule, recorded replies at many cuts, and tool loops that come
//! back as they went.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)] // tests

#[path = "../replay/mod.rs"]
mod replay;

mod damaged;
mod embeddings;
mod loops;
mod lost;
mod messages;
mod random;
mod recorded;
mod responses;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::dialect::{Api, Memo};
use weir_filters::error::ApiError;
use weir_filters::usage::Usage;
use weir_filters::wire::{Ask, End, Outgoing, Params, Quirks, ReplyContext, Step, Wire};

/// What a provider is asked.
struct To {
    wire: Wire,
    model: &'static str,
    quirks: Quirks,
}

impl To {
    fn new(wire: Wire) -> Self {
        Self { wire, model: "up-model", quirks: Quirks::default() }
    }

    fn try_ask(&self, api: Api, body: &Value) -> Result<(Outgoing, Memo), ApiError> {
        let peek = api.read(Bytes::from(body.to_string())).map_err(ApiError::from)?;
        let ask = Ask {
            peek: &peek,
            model: self.model,
            quirks: &self.quirks,
            params: &Params::default(),
            max_output: 0,
            base_url: "https://provider.invalid/v1",
            api_version: None,
        };
        api.request(self.wire, &ask)
    }

    /// The provider's request, what was dropped, and what the reply needs.
    fn ask(&self, api: Api, body: &Value) -> (Value, Vec<String>, Memo) {
        let (out, memo) = self.try_ask(api, body).expect("a request");
        let sent = serde_json::from_slice(&out.body.concat()).expect("JSON");
        (sent, out.dropped, memo)
    }
}

/// A body that says hello in a dialect.
fn hello(api: Api) -> Value {
    match api {
        Api::Responses => json!({"model": "m", "input": "hi"}),
        Api::Completions => json!({"model": "m", "prompt": "hi"}),
        _ => {
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})
        }
    }
}

fn context() -> ReplyContext {
    ReplyContext {
        usage_asked: false,
        strip_usage: false,
        id: "chatcmpl-t".into(),
        created: 1_700_000_000,
        model: "up-model".into(),
        encoding: None,
        prompt_tokens: 7,
    }
}

/// One reply, filtered.
struct Filtered {
    /// All that went out: with the withheld tail, or with the error event that ends it.
    out: Vec<u8>,
    complete: bool,
    usage: Option<Usage>,
}

/// Runs a stream in pieces; `clean`: it ended as HTTP says, else its connection was cut.
fn filter(api: Api, wire: Wire, memo: Memo, pieces: &[Bytes], clean: bool) -> Filtered {
    let mut reply = api.stream(wire, memo, context());
    let (mut out, mut end) = (Vec::new(), None);
    let mut take = |step: Step| {
        out.extend(step.out.concat());
        assert!(end.is_none() || step.end.is_none(), "two ends");
        end = step.end.or(end.take());
    };
    for piece in pieces {
        let mut step = Step::default();
        reply.feed(piece.clone(), &mut step);
        take(step);
    }
    let mut step = Step::default();
    reply.finish(clean, &mut step);
    take(step);
    let complete = match end.expect("an end") {
        End::Complete { tail } => {
            out.extend_from_slice(&tail);
            true
        }
        End::Failed(failure) => {
            let error = ApiError::from_failure(&failure, 1);
            let said = reply.error(&error, "req-1");
            out.extend(said.unwrap_or_else(|| api.error_event(&error, "req-1")));
            false
        }
    };
    Filtered { out, complete, usage: reply.tap().usage }
}

/// A stream of chat chunks, each a delta; then the finish and `[DONE]`.
fn chunks(deltas: &[Value], finish: &str) -> Bytes {
    let chunk = |delta: &Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
                           "model": "up-1", "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let mut out = chunk(&json!({"role": "assistant", "content": ""}), Value::Null);
    out.extend(deltas.iter().map(|delta| chunk(delta, Value::Null)));
    out += &chunk(&json!({}), finish.into());
    out += "data: [DONE]\n\n";
    out.into()
}

/// The first fragment of a call.
fn start(index: u64, name: &str, arguments: &str) -> Value {
    json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function",
                           "function": {"name": name, "arguments": arguments}}]})
}

/// A further fragment.
fn more(index: u64, arguments: &str) -> Value {
    json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
}
