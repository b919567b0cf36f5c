//! The openai wire: chat completions as OpenAI specifies them, out of everything that claims to be.
//!
//! Callers of this wire speak the same dialect, so bytes in which nothing deviates leave as they
//! came. [`chunk`] has the strict shapes and `fits` says whether a chunk holds to them, `repair`
//! and `calls` write anew what does not, `stream` and `whole` frame the two kinds of reply, and
//! `request` edits the caller's body. Reading order: state, stream, fits, repair.

mod again;
mod assemble;
mod calls;
mod chunk;
mod finish;
mod fits;
mod history;
mod members;
mod plain;
mod repair;
mod request;
mod state;
mod stream;
mod usage;
mod whole;

pub(super) use request::request;
pub(crate) use request::{path, short_ids};
pub(super) use whole::whole;

use super::{Reply, ReplyContext};

/// More choices than `n` may ask for (OpenAI's own limit is 128) are numbered by their place.
const CHOICES_MAX: u32 = 128;

pub(super) fn stream(context: ReplyContext) -> Box<dyn Reply> {
    Box::new(stream::Stream::new(context))
}
