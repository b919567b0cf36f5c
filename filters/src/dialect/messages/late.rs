//! A message that came as JSON though a stream was asked for, as the stream's events.

use super::super::canon::{self, Speaker, used};
use super::super::names::Names;
use super::stream::Stream;
use crate::chat::reply::Chunks;
use crate::wire::anthropic::message::Message;
use crate::wire::{ReplyContext, Tap};

/// What goes at once and what ends it; `tap` takes what the message tells.
pub(super) fn events(
    message: Message,
    context: &ReplyContext,
    tap: &mut Tap,
) -> (Vec<u8>, Vec<u8>) {
    tap.model = message.model;
    message.completion.count(&mut tap.counter);
    tap.usage = message.usage;
    tap.finish = Some(message.completion.finish);
    let model = tap.model.as_deref().unwrap_or(&context.model);
    let chunks = Chunks::new(&context.id, context.created, model, false);
    let mut speaker = Stream::new(Names::default(), context);
    let mut out = Vec::new();
    for chunk in [vec![chunks.role()], chunks.whole(&message.completion)].concat() {
        canon::events(&chunk, &mut speaker, &mut out);
    }
    let usage = used(tap, context.prompt_tokens);
    let tail = speaker.end(&usage, &mut out);
    (out, tail)
}
