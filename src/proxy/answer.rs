//! What we say ourselves: headers of proxied replies, error bodies, and the small local answers.

use crate::flow::Ticket;
use crate::flow::ticket::Degraded;
use crate::limit::Tightest;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use pingora::{ErrorType, OrErr, Result};
use std::time::Duration;
use weir_filters::error::ApiError;
use weir_filters::usage::NanoUsd;
use weir_filters::wire::segment;

const JSON: &str = "application/json";
/// Headers that a proxied reply mostly has, ours and the framing.
const PROXIED: usize = 14;
/// `x-weir-dropped` is no longer: clients give a whole header block 8 KiB and more.
const DROPPED_BYTES_MAX: usize = 2 << 10;
/// Six numbers: two limits, what is left of them, and their times.
const RATES_BYTES: usize = 128;
static REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
static TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

static ATTEMPTS: HeaderName = HeaderName::from_static("x-weir-attempts");
static BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
static COST: HeaderName = HeaderName::from_static("x-weir-cost-usd");
static MODEL: HeaderName = HeaderName::from_static("x-weir-model");
static OVERHEAD: HeaderName = HeaderName::from_static("x-weir-overhead-us");
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static UPSTREAM: HeaderName = HeaderName::from_static("x-weir-upstream");

/// A header of ours. Pingora's own constructor keeps a second table, of the names as they were
/// typed, which costs as much as the first.
fn header(status: u16, headers: HeaderMap) -> Result<Box<ResponseHeader>> {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = http::StatusCode::from_u16(status)
        .or_err(ErrorType::InternalError, "the status of an answer")?;
    parts.headers = headers;
    Ok(Box::new(ResponseHeader::from(parts)))
}

fn text(value: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(value).or_err(ErrorType::InternalError, "a header of an answer")
}

/// One copy, where HeaderValue's own way from a number makes two.
fn number(value: u64) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    HeaderValue::from_str(digits.format(value)).unwrap_or_else(|_| HeaderValue::from(value))
}

fn tries(ticket: &Ticket) -> HeaderValue {
    match ticket.tries() {
        1 => HeaderValue::from_static("1"),
        many => HeaderValue::from(many),
    }
}

fn json_headers(len: usize, room: usize) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(room);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(header::CONTENT_LENGTH, number(len as u64));
    headers
}

/// The header of a stream: never a length, never a cache, never a buffer on the way.
///
/// # Errors
/// A header that cannot be built; none of ours is.
pub fn stream_header(ticket: &Ticket, close_delimited: bool) -> Result<Box<ResponseHeader>> {
    let mut headers = HeaderMap::with_capacity(PROXIED);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(BUFFERING.clone(), HeaderValue::from_static("no"));
    if !close_delimited {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    proxied(&mut headers, ticket)?;
    header(200, headers)
}

/// The header of a JSON answer, its cost included.
///
/// # Errors
/// As above.
pub fn json_header(
    ticket: &Ticket,
    len: usize,
    cost: Option<NanoUsd>,
) -> Result<Box<ResponseHeader>> {
    let mut headers = json_headers(len, PROXIED);
    if let Some(cost) = cost {
        headers.insert(COST.clone(), text(&cost.to_string())?);
    }
    proxied(&mut headers, ticket)?;
    header(200, headers)
}

/// What every proxied reply says of itself.
fn proxied(headers: &mut HeaderMap, ticket: &Ticket) -> Result<()> {
    headers.insert(REQUEST_ID.clone(), text(&ticket.arrival.request_id)?);
    headers.insert(ATTEMPTS.clone(), tries(ticket));
    if let Some(running) = ticket.running.as_ref() {
        headers.insert(UPSTREAM.clone(), text(running.provider.id.as_str())?);
        headers.insert(MODEL.clone(), text(&running.model)?);
    }
    if let Some(degraded) = ticket.admission.as_ref().and_then(|a| a.degraded.as_ref()) {
        let Degraded { from, to, reason } = degraded;
        // A model's name is any text; what no header can hold goes without one.
        if let Ok(value) = format!("from={from}; to={to}; reason={reason}").parse::<HeaderValue>() {
            headers.insert("x-weir-degraded", value);
        }
    }
    if !ticket.record.dropped.is_empty() {
        headers.insert("x-weir-dropped", text(&listed(&ticket.record.dropped))?);
    }
    rates(headers, ticket.tightest());
    let micros = u64::try_from(ticket.record.overhead.as_micros()).unwrap_or(u64::MAX);
    headers.insert(OVERHEAD.clone(), number(micros));
    Ok(())
}

/// Names that a caller chose, in what a header may hold: they can be any text, and a thousand.
fn listed(names: &[String]) -> String {
    let mut out = String::new();
    for name in names {
        let name = segment(name);
        if out.len() + name.len() > DROPPED_BYTES_MAX {
            out.push_str(", ...");
            break;
        }
        let comma = if out.is_empty() { "" } else { ", " };
        out.push_str(comma);
        out.push_str(&name);
    }
    out
}

/// How the caller's tightest limits stand, in OpenAI's words; nothing where it has none. All values
/// are parts of one buffer.
fn rates(headers: &mut HeaderMap, tightest: Tightest) {
    if tightest.requests.is_none() && tightest.tokens.is_none() {
        return;
    }
    let mut buffer = Vec::with_capacity(RATES_BYTES);
    let mut write = |put: &dyn Fn(&mut Vec<u8>)| {
        let start = buffer.len();
        put(&mut buffer);
        start..buffer.len()
    };
    let kinds = [(&REQUESTS, tightest.requests), (&TOKENS, tightest.tokens)];
    let spans = kinds.map(|(names, standing)| {
        standing.map(|s| {
            let reset = s.reset.unwrap_or_default();
            let limit = write(&|out| digits(out, s.limit));
            let remaining = write(&|out| digits(out, s.remaining));
            (names, [limit, remaining, write(&|out| duration(out, reset))])
        })
    });
    let buffer = Bytes::from(buffer);
    for (names, spans) in spans.into_iter().flatten() {
        for (name, span) in names.iter().zip(spans) {
            if let Ok(value) = HeaderValue::from_maybe_shared(buffer.slice(span)) {
                headers.insert(name.clone(), value);
            }
        }
    }
}

fn digits(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}

/// As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `1h0m0s`.
fn duration(out: &mut Vec<u8>, time: Duration) {
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let (seconds, rest) = (millis / 1000, millis % 1000);
    let mut part = |n: u64, unit: &str| {
        digits(out, n);
        out.extend_from_slice(unit.as_bytes());
    };
    match (seconds, rest) {
        (0, _) => part(millis, "ms"),
        (1..60, 0) => part(seconds, "s"),
        (1..60, _) => {
            part(seconds, ".");
            let thousandths = [rest / 100, rest / 10 % 10, rest % 10];
            let last = thousandths.iter().rposition(|n| *n > 0).unwrap_or(0);
            thousandths.iter().take(last).for_each(|n| part(*n, ""));
            part(thousandths[last], "s");
        }
        (60..3600, _) => {
            part(seconds / 60, "m");
            part(seconds % 60, "s");
        }
        _ => {
            part(seconds / 3600, "h");
            part(seconds / 60 % 60, "m");
            part(seconds % 60, "s");
        }
    }
}

/// An error of a request that has a ticket.
///
/// # Errors
/// As above.
pub fn error(ticket: &Ticket, error: &ApiError) -> Result<(Box<ResponseHeader>, Bytes)> {
    let body = error.body(ticket.arrival.dialect, &ticket.arrival.request_id);
    let mut headers = json_headers(body.len(), 12);
    headers.insert(REQUEST_ID.clone(), text(&ticket.arrival.request_id)?);
    let retry = if error.retry { "true" } else { "false" };
    headers.insert("x-should-retry", HeaderValue::from_static(retry));
    if let Some(wait) = error.retry_after {
        let (seconds, millis) = retry_after(wait);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        headers.insert("retry-after-ms", HeaderValue::from(millis));
    }
    rates(&mut headers, ticket.tightest_of_failure());
    if ticket.tries() > 0 {
        headers.insert(ATTEMPTS.clone(), tries(ticket));
    }
    if let Some(last) = ticket.record.attempts.last() {
        headers.insert(UPSTREAM.clone(), text(&last.provider)?);
    }
    Ok((header(error.status, headers)?, body))
}

/// Whole seconds, rounded up and at least 1, and milliseconds.
fn retry_after(wait: Duration) -> (u64, u64) {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    (millis.div_ceil(1000).max(1), millis)
}

/// Writes a whole local answer.
///
/// # Errors
/// The client is gone.
pub async fn write(session: &mut Session, header: Box<ResponseHeader>, body: Bytes) -> Result<()> {
    session.write_response_header(header, false).await?;
    session.write_response_body(Some(body), true).await
}

/// A local JSON answer with status 200.
///
/// # Errors
/// As above.
pub fn local(ticket: &Ticket, body: &Bytes) -> Result<Box<ResponseHeader>> {
    let mut headers = json_headers(body.len(), 4);
    headers.insert(REQUEST_ID.clone(), text(&ticket.arrival.request_id)?);
    header(200, headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_written_as_openai_writes_it() {
        let check = |ms, want: &str| {
            let mut out = Vec::new();
            duration(&mut out, Duration::from_millis(ms));
            assert_eq!(String::from_utf8(out).unwrap(), want);
        };
        check(0, "0ms");
        check(12, "12ms");
        check(1_000, "1s");
        check(1_500, "1.5s");
        check(1_005, "1.005s");
        check(2_050, "2.05s");
        check(59_999, "59.999s");
        check(360_000, "6m0s");
        check(3_661_000, "1h1m1s");
    }

    #[test]
    fn a_wait_is_rounded_up_and_never_zero() {
        let check = |ms, want| assert_eq!(retry_after(Duration::from_millis(ms)), want);
        check(0, (1, 1));
        check(999, (1, 999));
        check(1001, (2, 1001));
        check(7000, (7, 7000));
    }
}
