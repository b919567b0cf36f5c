//! Amazon Bedrock's Converse for callers that speak OpenAI chat.

use super::{Ask, Outgoing, Reply, ReplyContext, Whole};
use crate::error::{ApiError, Failure};
use bytes::Bytes;

mod blocks;
mod content;
mod extra;
mod message;
mod request;
mod stream;
mod tools;
mod turns;

pub(super) fn request(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    request::build(ask)
}

pub(super) fn stream(context: ReplyContext) -> Box<dyn Reply> {
    Box::new(stream::Stream::new(context))
}

pub(super) fn whole(body: Bytes, context: ReplyContext) -> Result<Whole, Failure> {
    message::whole(&body, context)
}

/// Whose model it is: that decides what it takes beside the common members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Claude,
    Nova,
    /// Nova of the second generation, which reasons.
    NovaTwo,
    GptOss,
    Other,
}

impl Family {
    /// By the model's id, which may have a region's prefix or be the ARN of a profile.
    fn of(model: &str) -> Self {
        let has = |word: &str| model.contains(word);
        match () {
            () if has("anthropic.") || has("claude") => Self::Claude,
            () if has("nova-2") => Self::NovaTwo,
            () if has("nova") => Self::Nova,
            () if has("gpt-oss") => Self::GptOss,
            () => Self::Other,
        }
    }

    /// It takes cache points; others refuse the whole request for one.
    fn caches(self) -> bool {
        matches!(self, Self::Claude | Self::Nova | Self::NovaTwo)
    }
}

/// `stopReason` in OpenAI's words; `tools`: the caller has seen a call. `end_turn`,
/// `stop_sequence`, `malformed_…` and words that are not known yet are a stop.
fn finish_reason(reason: &str, tools: bool) -> &'static str {
    match reason {
        "tool_use" if tools => "tool_calls",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "content_filtered" | "guardrail_intervened" => "content_filter",
        _ => "stop",
    }
}
