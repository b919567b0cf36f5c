//! Google's generateContent, at AI Studio and at Vertex, for callers that speak OpenAI
//! chat.

use super::{Ask, Outgoing, Reply, ReplyContext, Whole, listen};
use crate::error::{ApiError, Failure};
use bytes::Bytes;

mod args;
mod content;
mod reply;
mod request;
mod tools;
mod turns;

pub(crate) use request::{path, vertex_path};

/// Whose door it is: both take the same bodies, but not everything in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// generativelanguage.googleapis.com
    Studio,
    /// aiplatform.googleapis.com, whose base URL ends in `/locations/…`, or in a publisher of it.
    Vertex,
}

pub(super) fn request(door: Door, ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    request::build(door, ask)
}

pub(super) fn stream(context: ReplyContext) -> Box<dyn Reply> {
    Box::new(listen::Listener::new(reply::Speech::default(), context))
}

pub(super) fn whole(body: Bytes, context: ReplyContext) -> Result<Whole, Failure> {
    listen::whole(reply::Speech::default(), body, context)
}
