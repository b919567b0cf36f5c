//! Any provider's failure: its class, and the caller's words for it (CONTRACT section 5).

use crate::dialect::Dialect;
use bytes::Bytes;
use std::time::Duration;

/// What a provider's failure is, whatever its own wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The request is wrong (400, 404, 409, 413, 422 keep their status).
    BadRequest,
    /// Too many tokens for the model.
    ContextLength,
    /// The provider refused the request's content.
    ContentFilter,
    /// Our credential was refused (401, 403).
    Auth,
    /// The provider has no such model.
    ModelNotFound,
    /// The account is out of money or quota.
    Quota,
    /// Too fast; time heals it.
    RateLimited,
    /// Above the limit in one request; no time heals it.
    RateHopeless,
    /// The body is too large for the provider.
    TooLarge,
    /// The provider says it timed out (408, 504).
    Timeout,
    /// 503, 529.
    Overloaded,
    /// Any other 5xx, and errors inside a 200.
    Server,
    /// A 200 that is no answer.
    Invalid,
}

/// A provider's failure, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it is.
    pub class: Class,
    /// The provider's HTTP status (200 for an error inside a 200).
    pub status: u16,
    /// The provider's words, secrets masked, at most 2,000 characters.
    pub message: String,
    /// The provider's own code.
    pub code: Option<String>,
    /// The provider's own param.
    pub param: Option<String>,
    /// How long the provider asked us to wait.
    pub retry_after: Option<Duration>,
}

/// Reads a provider's error reply: status, headers (by a look-up) and at most 64 KiB of body, in
/// any of the shapes of protocols.md sections 4 and 5.
#[must_use]
pub fn classify(_status: u16, _header: &dyn Fn(&str) -> Option<String>, _body: &[u8]) -> Failure {
    unimplemented!()
}

/// CONTRACT section 5, one variant a row's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Code {
    InvalidJson,
    InvalidRequest,
    ContextLengthExceeded,
    ContentFilter,
    InvalidApiKey,
    KeyExpired,
    KeyDisabled,
    ModelNotAllowed,
    ModelNotFound,
    NotFound,
    MethodNotAllowed,
    NotImplemented,
    RequestTooLarge,
    LengthRequired,
    BudgetExceeded,
    RateLimitExceeded,
    UpstreamRateLimited,
    UpstreamQuota,
    UpstreamAuth,
    UpstreamError,
    UpstreamInvalidResponse,
    NoHealthyUpstream,
    StoreUnavailable,
    UpstreamTimeout,
    Overloaded,
    Internal,
}

/// An error as a caller of weir sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// Its code.
    pub code: Code,
    /// Its HTTP status; the code's own unless a provider's 4xx keeps its status.
    pub status: u16,
    /// For people; never holds a secret.
    pub message: String,
    /// The request member at fault.
    pub param: Option<String>,
    /// `x-should-retry`.
    pub retry: bool,
    /// `retry-after` and `retry-after-ms`.
    pub retry_after: Option<Duration>,
}

impl Code {
    /// As the error body writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        unimplemented!()
    }
    /// Its status.
    #[must_use]
    pub fn status(self) -> u16 {
        unimplemented!()
    }
    /// OpenAI's `type`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        unimplemented!()
    }
}

impl ApiError {
    /// An error with its code's status and retry rule.
    #[must_use]
    pub fn new(_code: Code, _message: impl Into<String>) -> Self {
        unimplemented!()
    }
    /// With the member at fault.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }
    /// With a time that heals it.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
    /// The caller's view of the last provider failure. `tried` is the number of different targets
    /// that failed: one gives `upstream_error`, several `no_healthy_upstream`.
    #[must_use]
    pub fn from_failure(_failure: &Failure, _tried: usize) -> Self {
        unimplemented!()
    }
    /// The whole JSON body in the caller's dialect.
    #[must_use]
    pub fn body(&self, _dialect: Dialect, _request_id: &str) -> Bytes {
        unimplemented!()
    }
    /// The error as one SSE event in the caller's dialect, for a stream that has begun.
    #[must_use]
    pub fn event(&self, _dialect: Dialect, _request_id: &str) -> Bytes {
        unimplemented!()
    }
}
