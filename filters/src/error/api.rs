//! An error as a caller of weir sees it: code, status, retry rule, and its bytes in each dialect.

use super::{Class, Failure};
use crate::dialect::Dialect;
use bytes::Bytes;
use serde_json::json;
use std::time::Duration;

/// The wait that a caller is told where the provider named none.
const WAIT_DEFAULT: Duration = Duration::from_secs(1);

/// What a caller is told, one variant a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // each is its own name in the table of `Code::row`
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

impl Code {
    /// Name, status, OpenAI's type, `x-should-retry` unless the case says otherwise.
    fn row(self) -> (&'static str, u16, &'static str, bool) {
        const REQUEST: &str = "invalid_request_error";
        const AUTH: &str = "authentication_error";
        const RATE: &str = "rate_limit_error";
        const API: &str = "api_error";
        match self {
            Self::InvalidJson => ("invalid_json", 400, REQUEST, false),
            Self::InvalidRequest => ("invalid_request", 400, REQUEST, false),
            Self::ContextLengthExceeded => ("context_length_exceeded", 400, REQUEST, false),
            Self::ContentFilter => ("content_filter", 400, REQUEST, false),
            Self::InvalidApiKey => ("invalid_api_key", 401, AUTH, false),
            Self::KeyExpired => ("key_expired", 401, AUTH, false),
            Self::KeyDisabled => ("key_disabled", 401, AUTH, false),
            Self::ModelNotAllowed => ("model_not_allowed", 403, "permission_error", false),
            Self::ModelNotFound => ("model_not_found", 404, REQUEST, false),
            Self::NotFound => ("not_found", 404, REQUEST, false),
            Self::MethodNotAllowed => ("method_not_allowed", 405, REQUEST, false),
            Self::NotImplemented => ("not_implemented", 501, API, false),
            Self::RequestTooLarge => ("request_too_large", 413, REQUEST, false),
            Self::LengthRequired => ("length_required", 411, REQUEST, false),
            Self::BudgetExceeded => ("budget_exceeded", 402, "insufficient_quota", false),
            Self::RateLimitExceeded => ("rate_limit_exceeded", 429, RATE, true),
            Self::UpstreamRateLimited => ("upstream_rate_limited", 429, RATE, true),
            Self::UpstreamQuota => ("upstream_quota", 502, API, false),
            Self::UpstreamAuth => ("upstream_auth", 502, API, false),
            Self::UpstreamError => ("upstream_error", 502, API, true),
            // a provider that says 200 has most likely billed it
            Self::UpstreamInvalidResponse => ("upstream_invalid_response", 502, API, false),
            Self::NoHealthyUpstream => ("no_healthy_upstream", 503, API, true),
            Self::StoreUnavailable => ("store_unavailable", 503, API, true),
            Self::UpstreamTimeout => ("upstream_timeout", 504, "timeout_error", false),
            Self::Overloaded => ("no_healthy_upstream", 503, API, true),
            Self::Internal => ("internal_error", 500, API, false),
        }
    }

    /// As the error body writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Its status.
    #[must_use]
    pub fn status(self) -> u16 {
        self.row().1
    }

    /// OpenAI's `type`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        self.row().2
    }

    /// `x-should-retry`, unless the case at hand says otherwise.
    #[must_use]
    pub fn retry(self) -> bool {
        self.row().3
    }
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

impl ApiError {
    /// An error with its code's status and retry rule.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let (_, status, _, retry) = code.row();
        Self { code, status, message: message.into(), param: None, retry, retry_after: None }
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
    pub fn from_failure(failure: &Failure, tried: usize) -> Self {
        let said = failure.message.as_str();
        let mut error = match failure.class {
            Class::BadRequest => {
                let kept = matches!(failure.status, 404 | 409 | 413 | 422);
                let mut error = Self::new(Code::InvalidRequest, said);
                error.status = if kept { failure.status } else { error.status };
                error
            }
            Class::ContextLength => Self::new(Code::ContextLengthExceeded, said),
            Class::ContentFilter => Self::new(Code::ContentFilter, said),
            Class::TooLarge => Self::new(Code::RequestTooLarge, said),
            Class::ModelNotFound => Self::new(Code::ModelNotFound, said),
            // the provider's words may hold a part of the key or our account's name
            Class::Auth => Self::new(
                Code::UpstreamAuth,
                format!("the provider refused the gateway's credential ({})", failure.status),
            ),
            Class::Quota => Self::new(
                Code::UpstreamQuota,
                "the gateway's account with the provider is out of money or quota",
            ),
            Class::RateLimited => Self::new(Code::UpstreamRateLimited, said)
                .after(failure.retry_after.unwrap_or(WAIT_DEFAULT)),
            Class::RateHopeless => {
                Self { retry: false, ..Self::new(Code::UpstreamRateLimited, said) }
            }
            Class::Timeout => Self::new(Code::UpstreamTimeout, said),
            Class::Overloaded | Class::Server | Class::Invalid => Self::failed(failure, tried),
        };
        // only an error of the request itself can have a member at fault
        if error.status < 429 {
            error.param.clone_from(&failure.param);
        }
        error
    }

    fn failed(failure: &Failure, tried: usize) -> Self {
        let said = &failure.message;
        if tried > 1 {
            let message = format!("{tried} providers failed; the last said: {said}");
            let wait = failure.retry_after.unwrap_or(WAIT_DEFAULT);
            return Self::new(Code::NoHealthyUpstream, message).after(wait);
        }
        let mut error = match failure.class {
            Class::Invalid => Self::new(Code::UpstreamInvalidResponse, said),
            // a broken connection has no status, and an error inside a 200 none of its own
            _ if failure.status < 300 => {
                Self::new(Code::UpstreamError, format!("the provider failed: {said}"))
            }
            _ => {
                let message = format!("the provider failed ({}): {said}", failure.status);
                Self::new(Code::UpstreamError, message)
            }
        };
        error.retry_after = failure.retry_after;
        error
    }

    /// The whole JSON body in the caller's dialect.
    #[must_use]
    pub fn body(&self, dialect: Dialect, request_id: &str) -> Bytes {
        let message = &self.message;
        let value = match dialect {
            Dialect::OpenAi => json!({"error": {
                "message": message,
                "type": self.code.kind(),
                "param": self.param,
                "code": self.code.as_str(),
            }}),
            Dialect::Anthropic => json!({
                "type": "error",
                "error": {"type": self.anthropic_kind(), "message": message},
                "request_id": request_id,
            }),
        };
        Bytes::from(value.to_string())
    }

    /// The error as one SSE event in the caller's dialect, for a stream that has begun.
    #[must_use]
    pub fn event(&self, dialect: Dialect, request_id: &str) -> Bytes {
        let lead: &[u8] = match dialect {
            Dialect::OpenAi => b"data: ",
            Dialect::Anthropic => b"event: error\ndata: ",
        };
        // one line: JSON text of serde_json holds no raw line end
        Bytes::from([lead, &self.body(dialect, request_id), b"\n\n"].concat())
    }

    /// Anthropic's types by status (its API reference, Errors).
    fn anthropic_kind(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            402 => "billing_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            503 | 529 => "overloaded_error",
            504 => "timeout_error",
            _ => "api_error",
        }
    }
}
