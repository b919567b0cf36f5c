//! What a provider's error reply says.

use crate::route::Fault;
use http::HeaderMap;
use weir_filters::error::{Class, ErrorMap, Failure, classify};

/// A provider's error reply, read.
pub(super) fn read(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    words: Option<&ErrorMap>,
) -> (Fault, Failure) {
    let failure = classify(status, &|name| look(headers, name), body);
    let failure = match words {
        Some(words) => words.refine(failure, false),
        None => failure,
    };
    let fault = match failure.class {
        Class::Auth => Fault::Auth,
        Class::Quota => Fault::Quota,
        Class::RateLimited | Class::RateHopeless => Fault::Status(429),
        _ => Fault::Status(status),
    };
    (fault, failure)
}

/// A reply's header. Dates are measured against the provider's own clock, or ours where it tells
/// none.
pub(super) fn look(headers: &HeaderMap, name: &str) -> Option<String> {
    let found = headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    // RFC 9110, section 5.6.7
    let ours = || jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    found.or_else(|| (name == "date").then(ours))
}
