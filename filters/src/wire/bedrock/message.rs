//! A whole reply of Converse.

use super::blocks::{Block, Tokens, tell};
use super::finish_reason;
use crate::chat::raw::{Text, lenient};
use crate::error::{Class, Failure, classify_event};
use crate::wire::scribe::Scribe;
use crate::wire::{ReplyContext, Whole};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape<'a> {
    #[serde(borrow)]
    output: Option<Output<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<Tokens>,
    #[serde(borrow, alias = "Message", alias = "error")]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    message: Option<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<Vec<Block<'a>>>,
}

/// The caller's body for a reply with status 200.
///
/// # Errors
/// An error object, or what is no message at all.
pub(super) fn whole(body: &[u8], context: ReplyContext) -> Result<Whole, Failure> {
    let mut scribe = Scribe::whole(context);
    read(body, &mut scribe);
    scribe.into_whole()
}

/// Tells a whole message, or fails.
pub(super) fn read(body: &[u8], scribe: &mut Scribe) {
    let shape: Shape<'_> = match serde_json::from_slice(body) {
        Ok(shape) => shape,
        Err(_) => return scribe.fail(Class::Invalid, "the reply is no message"),
    };
    let Some(message) = shape.output.and_then(|output| output.message) else {
        return match shape.message {
            Some(_) => scribe.failed(classify_event(body)),
            None => scribe.fail(Class::Invalid, "the reply has no message"),
        };
    };
    scribe.usage = shape.usage.and_then(Tokens::usage);
    scribe.open(0);
    for block in message.content.iter().flatten() {
        tell(block, scribe);
    }
    let reason = shape.stop_reason.as_deref().unwrap_or_default();
    scribe.finish(0, finish_reason(reason, scribe.tools(0) > 0));
    scribe.complete();
}
