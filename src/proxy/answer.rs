//! What we say ourselves: headers of proxied replies, error bodies, and the small local answers.

use crate::flow::Ticket;
use crate::flow::ticket::Degraded;
use crate::limit::Standing;
use bytes::Bytes;
use http::HeaderValue;
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use std::time::Duration;
use weir_filters::error::ApiError;
use weir_filters::usage::NanoUsd;
use weir_filters::wire::segment;

const JSON: &str = "application/json";
/// `x-weir-dropped` is no longer: clients give a whole header block 8 KiB and more.
const DROPPED_BYTES_MAX: usize = 2 << 10;
const REQUESTS: [&str; 3] =
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
const TOKENS: [&str; 3] =
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];

/// The header of a stream: never a length, never a cache, never a buffer on the way.
///
/// # Errors
/// A header that cannot be built; none of ours is.
pub fn stream_header(ticket: &Ticket, close_delimited: bool) -> Result<Box<ResponseHeader>> {
    let mut header = ResponseHeader::build(200, Some(14))?;
    header.insert_header("content-type", "text/event-stream")?;
    header.insert_header("cache-control", "no-cache")?;
    header.insert_header("x-accel-buffering", "no")?;
    if !close_delimited {
        header.insert_header("transfer-encoding", "chunked")?;
    }
    proxied(&mut header, ticket)?;
    Ok(Box::new(header))
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
    let mut header = ResponseHeader::build(200, Some(14))?;
    header.insert_header("content-type", JSON)?;
    header.insert_header("content-length", len)?;
    if let Some(cost) = cost {
        header.insert_header("x-weir-cost-usd", cost.to_string())?;
    }
    proxied(&mut header, ticket)?;
    Ok(Box::new(header))
}

/// What every proxied reply says of itself.
fn proxied(header: &mut ResponseHeader, ticket: &Ticket) -> Result<()> {
    header.insert_header("x-request-id", ticket.arrival.request_id.as_str())?;
    header.insert_header("x-weir-attempts", ticket.tries())?;
    if let Some(running) = ticket.running.as_ref() {
        header.insert_header("x-weir-upstream", running.provider.id.as_str())?;
        header.insert_header("x-weir-model", &*running.model)?;
    }
    if let Some(degraded) = ticket.admission.as_ref().and_then(|a| a.degraded.as_ref()) {
        let Degraded { from, to, reason } = degraded;
        // A model's name is any text; what no header can hold goes without one.
        if let Ok(value) = format!("from={from}; to={to}; reason={reason}").parse::<HeaderValue>() {
            header.insert_header("x-weir-degraded", value)?;
        }
    }
    if !ticket.record.dropped.is_empty() {
        header.insert_header("x-weir-dropped", listed(&ticket.record.dropped))?;
    }
    rates(header, ticket)?;
    let micros = u64::try_from(ticket.record.overhead.as_micros()).unwrap_or(u64::MAX);
    header.insert_header("x-weir-overhead-us", micros)?;
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

/// How the caller's tightest limits stand, in OpenAI's words; nothing where it has none.
fn rates(header: &mut ResponseHeader, ticket: &Ticket) -> Result<()> {
    let tightest = ticket.tightest();
    let mut put = |what: &'static [&'static str; 3], standing: Option<Standing>| -> Result<()> {
        let Some(standing) = standing else { return Ok(()) };
        header.insert_header(what[0], standing.limit)?;
        header.insert_header(what[1], standing.remaining)?;
        header.insert_header(what[2], duration(standing.reset.unwrap_or_default()))
    };
    put(&REQUESTS, tightest.requests)?;
    put(&TOKENS, tightest.tokens)
}

/// As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `1h0m0s`.
fn duration(time: Duration) -> String {
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let (seconds, rest) = (millis / 1000, millis % 1000);
    match (seconds, rest) {
        (0, _) => format!("{millis}ms"),
        (1..60, 0) => format!("{seconds}s"),
        (1..60, _) => format!("{seconds}.{}s", format!("{rest:03}").trim_end_matches('0')),
        (60..3600, _) => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m{}s", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// An error of a request that has a ticket.
///
/// # Errors
/// As above.
pub fn error(ticket: &Ticket, error: &ApiError) -> Result<(Box<ResponseHeader>, Bytes)> {
    let body = error.body(ticket.arrival.dialect, &ticket.arrival.request_id);
    let mut header = ResponseHeader::build(error.status, Some(10))?;
    header.insert_header("content-type", JSON)?;
    header.insert_header("content-length", body.len())?;
    header.insert_header("x-request-id", ticket.arrival.request_id.as_str())?;
    header.insert_header("x-should-retry", if error.retry { "true" } else { "false" })?;
    if let Some(wait) = error.retry_after {
        let (seconds, millis) = retry_after(wait);
        header.insert_header("retry-after", seconds)?;
        header.insert_header("retry-after-ms", millis)?;
    }
    rates(&mut header, ticket)?;
    if ticket.tries() > 0 {
        header.insert_header("x-weir-attempts", ticket.tries())?;
    }
    if let Some(last) = ticket.record.attempts.last() {
        header.insert_header("x-weir-upstream", last.provider.as_str())?;
    }
    Ok((Box::new(header), body))
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
    let mut header = ResponseHeader::build(200, Some(4))?;
    header.insert_header("content-type", JSON)?;
    header.insert_header("content-length", body.len())?;
    header.insert_header("x-request-id", ticket.arrival.request_id.as_str())?;
    Ok(Box::new(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_written_as_openai_writes_it() {
        let check = |ms, want| assert_eq!(duration(Duration::from_millis(ms)), want);
        check(0, "0ms");
        check(12, "12ms");
        check(1_000, "1s");
        check(1_500, "1.5s");
        check(1_005, "1.005s");
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
