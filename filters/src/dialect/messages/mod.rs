//! Anthropic's Messages as callers speak it.
//!
//! Towards a provider that speaks it too, bytes pass (`pass`, `tap`); towards any other, `request`
//! and `turns` make a chat of the request, `stream` and `whole` write the answer's events.

mod blocks;
mod late;
mod pass;
mod request;
mod seals;
mod sent;
mod stream;
mod tap;
mod turns;
mod whole;

pub(super) use pass::{pass, pass_whole};
pub(super) use request::{Target, parse, reasons, to_chat};
pub(super) use stream::Stream;
pub(super) use tap::tap;
pub(super) use whole::whole;

/// A message's id out of a chat's: Anthropic's begin with `msg_`.
fn message_id(chat: &str) -> String {
    format!("msg_{}", chat.trim_start_matches("chatcmpl-"))
}

/// Anthropic's word for why an answer ended. A call makes it `tool_use` whatever the provider said,
/// since agents act on that word alone.
fn stop_reason(finish: &str, called: bool, refused: bool) -> &'static str {
    match finish {
        "length" => "max_tokens",
        "content_filter" => "refusal",
        _ if called => "tool_use",
        _ if refused => "refusal",
        _ => "end_turn",
    }
}
