//! The anthropic wire.

use super::{Ask, Outgoing, Reply, ReplyContext, Whole};
use crate::error::{ApiError, Failure};
use bytes::Bytes;

pub(super) fn request(_ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    unimplemented!()
}

pub(super) fn stream(_context: ReplyContext) -> Box<dyn Reply> {
    unimplemented!()
}

pub(super) fn whole(_body: Bytes, _context: ReplyContext) -> Result<Whole, Failure> {
    unimplemented!()
}
