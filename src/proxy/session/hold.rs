//! While a stream has no content yet: after a time the caller gets its 200 and comments, so that
//! nobody in front takes the silence for a dead connection.

use super::super::relay::Exchange;
use super::{Downstream, STALLED, pace};
use bytes::Bytes;
use pingora::protocols::http::HttpTask;
use pingora::{Error, Result};
use std::task::Poll;
use std::time::{Duration, Instant};

const COMMENT: &[u8] = b": keep-alive\n\n";

/// When the next sign of life is due.
#[derive(Debug)]
pub(super) struct Hold {
    due: Option<Instant>,
    every: Duration,
}

impl Hold {
    pub(super) fn new(x: &Exchange) -> Self {
        let every = x.hold_max();
        Self { due: x.is_streaming().then(|| Instant::now() + every), every }
    }

    /// The earlier of the sign of life and another deadline.
    pub(super) fn sooner(&self, other: Option<Instant>) -> Option<Instant> {
        match (self.due, other) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Downstream {
    /// Sends the sign of life that is due. The future that called us may be dropped at any await,
    /// and half a chunk cannot be taken back: so the write is polled once, and a client whose
    /// socket does not even take a comment is gone.
    pub(super) fn keep_alive(&mut self, now: Instant) -> Result<()> {
        if self.hold.due.is_none_or(|due| now < due) {
            return Ok(());
        }
        let mut tasks = Vec::with_capacity(2);
        {
            let mut x = self.control.exchange();
            if x.has_content() {
                self.hold.due = None;
                return Ok(());
            }
            if let Some(header) = x.early_header() {
                tasks.push(HttpTask::Header(header, false));
            }
        }
        self.hold.due = Some(now + self.hold.every);
        tasks.push(HttpTask::Body(Some(Bytes::from_static(COMMENT)), false));
        let write = self.inner.response_duplex_vec(tasks);
        tokio::pin!(write);
        match pace::now(write.as_mut()) {
            Poll::Ready(done) => done.map(drop),
            Poll::Pending => Error::e_explain(STALLED, "the client does not read"),
        }
    }
}
