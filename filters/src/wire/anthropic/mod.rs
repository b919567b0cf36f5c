//! Anthropic Messages for callers that speak OpenAI chat.

use super::{Ask, Outgoing, Reply, ReplyContext, Whole};
use crate::error::{ApiError, Failure};
use bytes::Bytes;

mod blocks;
mod content;
pub(crate) mod event;
pub(crate) mod message;
mod request;
mod stream;
mod tools;
mod turns;

pub(crate) use request::VERSION;
pub(super) use request::budget;
pub(super) use tools::forced;

pub(super) fn request(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    request::build(ask)
}

pub(super) fn stream(context: ReplyContext) -> Box<dyn Reply> {
    Box::new(stream::Stream::new(context))
}

pub(super) fn whole(body: Bytes, context: ReplyContext) -> Result<Whole, Failure> {
    message::whole(&body, &context)
}

/// `stop_reason` in OpenAI's words. `tools`: the caller has seen a tool call; without one (server
/// tools are not shown) `tool_calls` would make its agent wait for a call that never comes.
/// `end_turn`, `stop_sequence`, `pause_turn` and words that are not known yet are a `stop`.
pub(crate) fn finish_reason(stop_reason: &str, tools: bool) -> &'static str {
    match stop_reason {
        "tool_use" if tools => "tool_calls",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "refusal" => "content_filter",
        _ => "stop",
    }
}
