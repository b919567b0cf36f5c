//! Alibaba's DashScope in its own protocol, for callers that speak OpenAI chat (help.aliyun.com,
//! model-studio: DashScope API of text and multimodal generation).

use super::{Ask, Outgoing, Reply, ReplyContext, Whole, listen};
use crate::error::{ApiError, Failure};
use bytes::Bytes;

mod reply;
mod request;

pub(super) fn request(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    request::build(ask)
}

pub(super) fn stream(context: ReplyContext) -> Box<dyn Reply> {
    Box::new(listen::Listener::new(reply::Speech::default(), context))
}

pub(super) fn whole(body: Bytes, context: ReplyContext) -> Result<Whole, Failure> {
    listen::whole(reply::Speech::default(), body, context)
}
