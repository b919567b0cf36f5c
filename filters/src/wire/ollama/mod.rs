//! Ollama's own `/api/chat`, JSON lines, for callers that speak OpenAI chat.

use super::{Ask, Outgoing, Reply, ReplyContext, Whole, listen};
use crate::error::{ApiError, Failure};
use bytes::Bytes;

mod reply;
mod request;

pub(super) fn request(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    request::build(ask)
}

pub(super) fn stream(context: ReplyContext) -> Box<dyn Reply> {
    Box::new(listen::Listener::new(reply::Speech, context))
}

pub(super) fn whole(body: Bytes, context: ReplyContext) -> Result<Whole, Failure> {
    listen::whole(reply::Speech, body, context)
}
