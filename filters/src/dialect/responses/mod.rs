//! OpenAI's Responses as callers speak them.
//!
//! Towards a provider that has `/responses` itself, bytes pass (`pass`, `tap`); towards any other,
//! `request`, `input` and `tools` make a chat of the request, `stream` and `whole` write the
//! answer's items. No response is kept here, so none can be referred to later.

use crate::error::{ApiError, Code};
use bytes::Bytes;

mod input;
mod items;
mod pass;
mod request;
mod said;
mod stream;
mod tap;
mod tools;
mod whole;

pub(super) use pass::{pass, pass_whole};
pub(super) use request::to_chat;
pub(super) use stream::Stream;
pub(super) use tap::tap;
pub(super) use whole::whole;

/// A response's id out of a chat's: OpenAI's begin with `resp_`.
fn response_id(chat: &str) -> String {
    format!("resp_{}", chat.trim_start_matches("chatcmpl-"))
}

/// A failure before anything of an answer was said, as a stream of its own.
pub(super) fn failed(error: &ApiError, request_id: &str) -> Bytes {
    stream::failed(error, request_id)
}

/// What needs a kept response, which a translated request cannot have.
fn kept(param: &str) -> ApiError {
    let why = format!("`{param}` names a response, and no responses are kept here for this model");
    ApiError::new(Code::InvalidRequest, why).param(param)
}
