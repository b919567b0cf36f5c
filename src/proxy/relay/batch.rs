//! What one batch of the provider's bytes gives the client: at most one header and one body.

use bytes::Bytes;
use pingora::http::ResponseHeader;
use pingora::protocols::http::HttpTask;
use std::time::Instant;

/// What one batch gives the client: at most one header and one body.
pub(super) struct Batch {
    pub(super) now: Instant,
    pub(super) header: Option<Box<ResponseHeader>>,
    pub(super) body: Vec<Bytes>,
    pub(super) end: bool,
}

impl Batch {
    /// One write for all that has come together.
    pub(super) fn write(self, out: &mut Vec<HttpTask>) {
        if let Some(header) = self.header {
            out.push(HttpTask::Header(header, false));
        }
        let body = match self.body.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        };
        if !body.is_empty() || self.end {
            out.push(HttpTask::Body(Some(body), self.end));
        }
    }
}
