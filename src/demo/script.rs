//! What a provider does with a request: a list of actions.

use super::request::Request;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A request's script.
pub type Script = Arc<dyn Fn(&Request) -> Vec<Action> + Send + Sync>;

/// One step of a reply. When the list ends, an open chunked body is closed and the connection kept.
#[derive(Debug, Clone)]
pub enum Action {
    /// Status and headers. The body that follows is chunked, unless a header gives its length, or
    /// says `connection: close` (then it ends with the connection).
    Head(u16, Vec<(String, String)>),
    /// A piece of the body, in one chunk and one write.
    Body(Bytes),
    /// A piece of the body: one `data:` event.
    Sse(serde_json::Value),
    /// Head, content-length and body at once.
    Whole(u16, Vec<(String, String)>, Bytes),
    /// Bytes as they are, without any framing.
    Raw(Bytes),
    /// Silence for so long.
    Wait(Duration),
    /// Silence until a token is put into the gate.
    Pass(Gate),
    /// Silence until the peer has gone.
    Hang,
    /// The connection ends with a RST.
    Reset,
    /// The connection ends with a FIN, whatever is still open.
    Close,
}

impl Action {
    /// A JSON reply.
    #[must_use]
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::json_with(status, &[], body)
    }
    /// A JSON reply with headers beside its content type.
    #[must_use]
    pub fn json_with(status: u16, more: &[(&str, &str)], body: &serde_json::Value) -> Self {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Self::Whole(status, headers, body.to_string().into())
    }
    /// The head of an event stream.
    #[must_use]
    pub fn stream() -> Self {
        Self::Head(200, vec![("content-type".into(), "text/event-stream".into())])
    }
    /// A piece of the body, from text.
    #[must_use]
    pub fn text(body: &str) -> Self {
        Self::Body(Bytes::copy_from_slice(body.as_bytes()))
    }
}

/// A door in a script that someone else opens, one passage at a time: what proves that a byte
/// arrived before the next one was sent, without a clock.
#[derive(Debug, Clone)]
pub struct Gate(Arc<(Semaphore, AtomicUsize)>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new((Semaphore::new(0), AtomicUsize::new(0))))
    }
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Lets `n` scripts pass, now or later.
    pub fn open(&self, n: usize) {
        self.0.0.add_permits(n);
    }
    /// Scripts that have come to this gate so far, those that passed included.
    #[must_use]
    pub fn reached(&self) -> usize {
        self.0.1.load(Ordering::Acquire)
    }
    /// Waits for a token and takes it.
    pub(super) async fn pass(&self) {
        self.0.1.fetch_add(1, Ordering::AcqRel);
        if let Ok(token) = self.0.0.acquire().await {
            token.forget();
        }
    }
}
