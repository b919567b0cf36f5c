//! OpenAI's completions of a bare prompt, as callers speak them.
//!
//! A provider that has the endpoint for this model gets the body as it is (`pass`, `tap`); any
//! other gets the prompt as a chat's one message, and the chat's text comes back.

mod pass;
mod request;
mod speak;
mod tap;

pub(super) use pass::{has, pass, pass_whole};
pub(super) use request::to_chat;
pub(super) use speak::{Stream, whole};
pub(super) use tap::tap;

/// A completion's id out of a chat's: OpenAI's begin with `cmpl-`.
fn completion_id(chat: &str) -> String {
    format!("cmpl-{}", chat.trim_start_matches("chatcmpl-"))
}

/// A chat's finish reason as a completion may have it.
fn finish_reason(finish: &str) -> &str {
    match finish {
        "tool_calls" | "function_call" => "stop",
        other => other,
    }
}
