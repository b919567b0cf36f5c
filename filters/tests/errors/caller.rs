//! What callers get: one code for several failures, and sound bytes in both dialects.

use serde_json::{Value, json};
use std::time::Duration;
use weir_filters::dialect::Dialect;
use weir_filters::error::{ApiError, Class, Code, Failure};

#[test]
fn several_failed_targets_are_no_healthy_upstream() {
    for class in [Class::Server, Class::Overloaded, Class::Invalid] {
        let error = ApiError::from_failure(&Failure::new(class, 500, "x"), 2);
        assert_eq!((error.code, error.status, error.retry), (Code::NoHealthyUpstream, 503, true));
        assert_eq!(error.retry_after, Some(Duration::from_secs(1)));
    }
    // an error with a name of its own keeps it: the last one counts
    for (class, code) in
        [(Class::Auth, Code::UpstreamAuth), (Class::Timeout, Code::UpstreamTimeout)]
    {
        assert_eq!(ApiError::from_failure(&Failure::new(class, 401, "x"), 3).code, code);
    }
    let error = ApiError::from_failure(&Failure::new(Class::RateLimited, 429, "x"), 3);
    assert_eq!(
        (error.code, error.retry_after),
        (Code::UpstreamRateLimited, Some(Duration::from_secs(1)))
    );
}

#[test]
fn bodies_and_events_are_valid_whatever_the_message_holds() {
    let nasty = "quote \" slash \\ line\r\n\ndata: x\u{2028}\0 字 \u{1F600}";
    let error = ApiError::new(Code::NoHealthyUpstream, nasty).param("a\"b");
    let body: Value = serde_json::from_slice(&error.body(Dialect::OpenAi, "r\"1")).unwrap();
    assert_eq!(
        body,
        json!({"error": {"message": nasty, "type": "api_error", "param": "a\"b",
        "code": "no_healthy_upstream"}})
    );
    let body: Value = serde_json::from_slice(&error.body(Dialect::Anthropic, "r\"1")).unwrap();
    assert_eq!(
        body,
        json!({"type": "error", "request_id": "r\"1",
        "error": {"type": "overloaded_error", "message": nasty}})
    );
    for (dialect, lead) in
        [(Dialect::OpenAi, "data: "), (Dialect::Anthropic, "event: error\ndata: ")]
    {
        let event = String::from_utf8(error.event(dialect, "r").to_vec()).unwrap();
        let data = event.strip_prefix(lead).unwrap().strip_suffix("\n\n").unwrap();
        assert!(!data.contains(['\n', '\r']), "one line");
        assert_eq!(serde_json::from_str::<Value>(data).unwrap()["error"]["message"], nasty);
    }
}

#[test]
fn anthropic_types_follow_the_status() {
    let cases = [
        (Code::InvalidRequest, "invalid_request_error"),
        (Code::InvalidApiKey, "authentication_error"),
        (Code::BudgetExceeded, "billing_error"),
        (Code::ModelNotAllowed, "permission_error"),
        (Code::NotFound, "not_found_error"),
        (Code::MethodNotAllowed, "invalid_request_error"),
        (Code::RequestTooLarge, "request_too_large"),
        (Code::RateLimitExceeded, "rate_limit_error"),
        (Code::Internal, "api_error"),
        (Code::UpstreamAuth, "api_error"),
        (Code::Overloaded, "overloaded_error"),
        (Code::UpstreamTimeout, "timeout_error"),
    ];
    for (code, kind) in cases {
        let body = ApiError::new(code, "x").body(Dialect::Anthropic, "r");
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["type"], kind, "{code:?}");
    }
}
