//! Error bodies that nobody recorded: shapes, states, waits, secrets, markup.

use crate::check;
use serde_json::json;
use weir_filters::error::{ApiError, Class, ErrorMap, Failure, classify, classify_event};

fn plain(status: u16, body: &str) -> Failure {
    classify(status, &|_| None, body.as_bytes())
}

#[test]
fn shapes_that_nobody_recorded_are_read_too() {
    let cases = [
        (401, r#"{"statusCode":401,"message":"Access denied due to invalid key"}"#, Class::Auth),
        (
            400,
            r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.",
            "status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]"#,
            Class::Auth,
        ),
        (
            400,
            r#"{"error":{"message":"The response was filtered","type":null,"param":"prompt",
            "code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
            Class::ContentFilter,
        ),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota",
            "code":"insufficient_quota"}}"#,
            Class::Quota,
        ),
        (
            400,
            r#"{"error":{"code":"Arrearage","message":"Access denied, account in arrears"}}"#,
            Class::Quota,
        ),
        (402, r#"{"error":{"message":"Insufficient Balance"}}"#, Class::Quota),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error",
            "message":"Your credit balance is too low"}}"#,
            Class::Quota,
        ),
        (400, r#"{"message":"Input is too long for requested model."}"#, Class::ContextLength),
        (
            400,
            r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}"#,
            Class::ModelNotFound,
        ),
        (
            409,
            r#"{"error":{"message":"a conversation is locked","code":"conflict"}}"#,
            Class::BadRequest,
        ),
        (404, r#"{"error":{"message":"No such file","code":"file_not_found"}}"#, Class::BadRequest),
        (424, r#"{"message":"the model failed"}"#, Class::Server),
        (529, "", Class::Overloaded),
        (302, "", Class::Server),
        (500, "not json at all", Class::Server),
        (
            403,
            "event: error\ndata: {\"code\":\"Arrearage\",\"message\":\"pay first\"}\n\n",
            Class::Quota,
        ),
        (
            429,
            r#"{"error":{"message":"Request too large on tokens per min (TPM): Limit 30000,
            Requested 51234."}}"#,
            Class::RateHopeless,
        ),
        (400, r#"{"detail":[{"loc":["body","n"],"msg":"must be an integer"}]}"#, Class::BadRequest),
        (400, r#"{"error":{"message":"content_filter_results is unknown"}}"#, Class::BadRequest),
    ];
    for (status, body, class) in cases {
        // the line ends above stand in for blanks
        check(body, &plain(status, &body.replace('\n', " ")), class);
    }
}

#[test]
fn an_error_inside_a_200_gets_the_status_it_states_or_means() {
    let cases = [
        (r#"{"error":{"message":"x","code":503}}"#, 503, Class::Overloaded),
        (r#"{"error":{"message":"x","status_code":"429"}}"#, 429, Class::RateLimited),
        (r#"{"message":"slow down","type":"throttlingException"}"#, 429, Class::RateLimited),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#,
            529,
            Class::Overloaded,
        ),
        (
            r#"{"type":"error","error":{"type":"authentication_error","message":"x"}}"#,
            401,
            Class::Auth,
        ),
        (r#"{"type":"error","code":"rate_limit_exceeded","message":"x"}"#, 429, Class::RateLimited),
        (
            r#"{"type":"response.failed","response":{"error":{"code":"server_error"}}}"#,
            500,
            Class::Server,
        ),
        (r#"{"error":{"status":"UNAVAILABLE","message":"x"}}"#, 503, Class::Overloaded),
        (r#"{"error":"an error was encountered"}"#, 500, Class::Server),
        ("{}", 500, Class::Server),
        ("", 500, Class::Server),
    ];
    for (value, status, class) in cases {
        let failure = classify_event(value.as_bytes());
        assert_eq!((failure.status, failure.class), (status, class), "{value}");
        check(value, &failure, class);
    }
}

#[test]
fn a_preset_s_own_words_overrule_what_is_read_of_an_error() {
    let map = ErrorMap::new([
        ("1113", Class::Quota),
        ("Sensitive*", Class::ContentFilter),
        ("sensitive.soft", Class::BadRequest),
        ("out of range of input", Class::ContextLength),
        ("slow_down", Class::RateLimited),
    ]);
    let read = |body: &str| map.refine(plain(400, body), false).class;
    assert_eq!(read(r#"{"error":{"code":"1113","message":"x"}}"#), Class::Quota);
    assert_eq!(read(r#"{"error":{"code":1113,"message":"x"}}"#), Class::Quota);
    assert_eq!(read(r#"{"error":{"code":"11130","message":"1113"}}"#), Class::BadRequest);
    assert_eq!(read(r#"{"error":{"type":"sensitiveText","code":"x"}}"#), Class::ContentFilter);
    assert_eq!(read(r#"{"error":{"code":"Sensitive.Soft"}}"#), Class::BadRequest, "whole first");
    assert_eq!(read(r#"{"message":"Out of range of input length"}"#), Class::ContextLength);
    let text = r#"{"error":{"code":"slow_down","message":"retry in 3s"}}"#;
    let inside = map.refine(classify_event(text.as_bytes()), true);
    assert_eq!((inside.class, inside.status), (Class::RateLimited, 429));
    assert_eq!(inside.retry_after.map(|wait| wait.as_secs()), Some(3));
    let hopeless = r#"{"error":{"code":"slow_down","message":"Limit 10, Requested 20"}}"#;
    assert_eq!(map.refine(plain(429, hopeless), false).class, Class::RateHopeless);
}

#[test]
fn waits_come_from_headers_then_from_the_body() {
    let wait = |status, headers: &[(&str, &str)], body: &str| {
        let header = |name: &str| {
            headers.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        classify(status, &header, body.as_bytes()).retry_after.map(|wait| wait.as_millis())
    };
    let spent = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "6m0s"),
        ("x-ratelimit-remaining-tokens", "12"),
        ("x-ratelimit-reset-tokens", "9h"),
    ];
    assert_eq!(wait(429, &[("retry-after", "0.5"), ("retry-after-ms", "120")], ""), Some(120));
    assert_eq!(wait(503, &[("retry-after", "20")], ""), Some(20_000));
    assert_eq!(wait(429, &spent, ""), Some(360_000), "of what is used up");
    assert_eq!(wait(400, &spent, ""), None);
    let dates = [
        ("date", "Mon, 30 Nov 2026 23:59:58 GMT"),
        ("retry-after", "Tue, 01 Dec 2026 00:00:03 GMT"),
    ];
    assert_eq!(wait(429, &dates, ""), Some(5_000));
    assert_eq!(wait(429, &dates[1..], ""), None, "no clock, no guess");
    let info = r#"{"error":{"code":429,"message":"m","details":[{"retryDelay":"18.5s"}]}}"#;
    assert_eq!(wait(429, &[], info), Some(18_500));
    assert_eq!(wait(429, &[], r#"{"error":{"message":"try again in 2.5s."}}"#), Some(2_500));
    assert_eq!(wait(400, &[], r#"{"error":{"message":"try again in 2.5s."}}"#), None);
}

#[test]
fn no_part_of_a_provider_s_key_reaches_the_caller() {
    let body = r#"{"error":{"message":"Incorrect API key provided: sk-prov-SECRET1234"}}"#;
    let failure = plain(401, body);
    assert!(!failure.message.contains("SECRET1234"), "{}", failure.message);
    let error = ApiError::from_failure(&failure, 1);
    assert!(!error.message.contains("Incorrect"), "not even the provider's words: {error:?}");
    let failure = plain(400, &body.replace("Incorrect API key", "bad credential"));
    let error = ApiError::from_failure(&failure, 1);
    assert!(error.message.contains("[hidden]") && !error.message.contains("SECRET"), "{error:?}");
}

#[test]
fn a_page_of_markup_becomes_its_title() {
    let page =
        "<html>\r\n<head><title>502 Bad\n Gateway</title></head><body><h1>x</h1></body></html>";
    assert_eq!(plain(502, page).message, "502 Bad Gateway");
    assert_eq!(plain(502, "<!doctype html><p>busy").message, "a page of markup");
    assert_eq!(plain(503, "").message, "status 503 without a message");
    assert_eq!(plain(503, "  upstream\n  is\tdown ").message, "upstream is down");
    assert!(plain(500, &"字".repeat(60_000)).message.chars().count() <= 2_000);
    let long = json!({"error": {"message": "长 ".repeat(9_000)}}).to_string();
    assert_eq!(plain(500, &long).message.chars().count(), 2_000);
    assert!(plain(500, &"[".repeat(60_000)).class == Class::Server, "depth is no crash");
}
