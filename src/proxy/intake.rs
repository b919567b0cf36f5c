//! A request comes in: its head, who calls, its body, and whether it may go on.

use super::answer;
use super::endpoint::{Endpoint, Kind};
use super::flood::{self, Guard};
use super::settle::LEAVING;
use crate::config::Flood;
use crate::flow::{Arrival, Phase, Ticket, Wishes};
use bytes::Bytes;
use http::{HeaderMap, header};
use pingora::http::ResponseHeader;
use pingora::protocols::l4::socket::SocketAddr as Address;
use pingora::proxy::Session;
use pingora::{Error, Result};
use smol_str::{SmolStr, SmolStrBuilder, ToSmolStr as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use weir_filters::dialect::{Api, Dialect};
use weir_filters::error::{ApiError, Code};

/// A caller's own request id is taken up to this length.
const REQUEST_ID_MAX: usize = 128;
/// Of the path, for the access log.
const PATH_MAX: usize = 256;
/// Of the user agent, for the access log.
const AGENT_MAX: usize = 128;
/// How long an unwanted body is read on, so that its sender sees our answer and not a reset.
pub const DRAIN: Duration = Duration::from_secs(5);
/// Where the caller's key may stand, in the order they are looked at.
const KEY_HEADERS: &[&str] = &["x-api-key", "api-key", "x-goog-api-key"];

/// What follows the intake.
pub enum Taken {
    /// The request is admitted.
    Proxy,
    /// It is answered here.
    Local(Box<ResponseHeader>, Bytes),
    /// It is refused.
    Refused(ApiError),
    /// It is refused, and what follows on its connection can be no request.
    Last(ApiError),
}

/// What is read of a head, found in one walk over it.
#[derive(Default)]
struct Said<'a> {
    request_id: Option<&'a str>,
    traceparent: Option<&'a str>,
    agent: Option<&'a str>,
    task_type: Option<&'a str>,
    budget_tier: Option<&'a str>,
    user: Option<&'a str>,
    latency: Option<&'a str>,
    retry: Option<&'a str>,
    session: Option<&'a str>,
    timeouts: [Option<&'a str>; 2],
}

impl<'a> Said<'a> {
    /// Of a header given twice the first counts.
    fn read(headers: &'a HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in headers {
            let place = match name.as_str() {
                "x-request-id" => &mut said.request_id,
                "traceparent" => &mut said.traceparent,
                "user-agent" => &mut said.agent,
                "x-weir-task-type" => &mut said.task_type,
                "x-weir-budget-tier" => &mut said.budget_tier,
                "x-weir-user" => &mut said.user,
                "x-weir-max-latency-ms" => &mut said.latency,
                "x-weir-retry" => &mut said.retry,
                "x-session-id" => &mut said.session,
                "x-stainless-read-timeout" => &mut said.timeouts[0],
                "x-stainless-timeout" => &mut said.timeouts[1],
                _ => continue,
            };
            if place.is_none() {
                *place = value.to_str().ok();
            }
        }
        said
    }

    /// How the caller wants to be served. OpenAI's and Anthropic's libraries tell how many seconds
    /// they wait; ours to keep, theirs to enforce.
    fn wishes(&self) -> Wishes {
        let seconds = |given: &str| {
            let given = given.trim().parse::<f64>().ok()?;
            Duration::try_from_secs_f64(given).ok().filter(|d| !d.is_zero())
        };
        let millis = self.latency.and_then(|v| v.trim().parse().ok()).filter(|ms| *ms > 0);
        let once = self.retry.is_some_and(|v| v.trim().eq_ignore_ascii_case("none"));
        // What is misspelt must not count for nothing.
        let faulty = [
            ("x-weir-max-latency-ms", self.latency.is_some() && millis.is_none()),
            ("x-weir-retry", self.retry.is_some() && !once),
        ];
        Wishes {
            max_latency: millis.map(Duration::from_millis),
            once,
            faulty: faulty.into_iter().find(|(_, faulty)| *faulty).map(|(name, _)| name),
            session: self.session.filter(|v| !v.is_empty()).map(str::to_owned),
            patience: self.timeouts.into_iter().flatten().filter_map(seconds).min(),
        }
    }
}

/// What the head says.
#[must_use]
pub fn arrival(session: &Session, endpoint: &Endpoint, at: Instant) -> Arrival {
    let head = session.req_header();
    let said = Said::read(&head.headers);
    let (path, agent) = (head.uri.path(), said.agent.unwrap_or(""));
    Arrival {
        at,
        ts: jiff::Timestamp::now(),
        request_id: request_id(said.request_id),
        trace_id: trace_id(said.traceparent),
        endpoint: endpoint.label,
        dialect: dialect(endpoint, &head.headers),
        api: match endpoint.kind {
            Kind::Ask(api) => api,
            _ => Api::default(),
        },
        method: SmolStr::new(head.method.as_str()),
        path: SmolStr::new(&path[..path.floor_char_boundary(PATH_MAX)]),
        client: session.client_addr().map(written).unwrap_or_default(),
        agent: SmolStr::new(&agent[..agent.floor_char_boundary(AGENT_MAX)]),
        task_type: said.task_type.map(str::to_owned),
        budget_tier: said.budget_tier.map(str::to_owned),
        user: said.user.map(str::to_owned),
        wishes: said.wishes(),
    }
}

/// Anthropic's clients say so on the shared paths too.
fn dialect(endpoint: &Endpoint, headers: &HeaderMap) -> Dialect {
    let shared = matches!(endpoint.kind, Kind::Models | Kind::Model);
    if shared && headers.contains_key("anthropic-version") {
        return Dialect::Anthropic;
    }
    endpoint.dialect
}

fn request_id(given: Option<&str>) -> String {
    let sound = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    match given {
        Some(id) if !id.is_empty() && id.len() <= REQUEST_ID_MAX && id.bytes().all(sound) => {
            id.to_owned()
        }
        _ => {
            let mut out = String::with_capacity(36);
            out.push_str("req-");
            hex(uuid::Uuid::now_v7().as_u128(), 32, &mut out);
            out
        }
    }
}

/// A number's last `digits` in hexadecimal; what `{:032x}` does in five times the time.
fn hex(number: u128, digits: usize, out: &mut String) {
    let mut text = [0; 32];
    out.push_str(&uuid::Uuid::from_u128(number).simple().encode_lower(&mut text)[32 - digits..]);
}

/// An address as its `Display` writes it, which takes ten times as long for IPv4.
fn written(address: &Address) -> SmolStr {
    let Some(SocketAddr::V4(v4)) = address.as_inet() else { return address.to_smolstr() };
    let (mut out, mut digits) = (SmolStrBuilder::new(), itoa::Buffer::new());
    for (part, end) in v4.ip().octets().into_iter().zip(['.', '.', '.', ':']) {
        out.push_str(digits.format(part));
        out.push(end);
    }
    out.push_str(digits.format(v4.port()));
    out.finish()
}

/// The caller's trace goes on; a bad or absent one begins anew (W3C Trace Context, section 3.2).
fn trace_id(traceparent: Option<&str>) -> String {
    let given = traceparent.and_then(|t| t.split('-').nth(1)).unwrap_or("");
    let sound = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if given.len() == 32 && given.bytes().all(sound) && given.bytes().any(|b| b != b'0') {
        return given.to_owned();
    }
    let mut out = String::with_capacity(32);
    hex(fastrand::u128(1..), 32, &mut out);
    out
}

/// A span of our own in a trace.
#[must_use]
pub fn traceparent(trace_id: &str) -> String {
    let mut out = String::with_capacity(55);
    out.push_str("00-");
    out.push_str(trace_id);
    out.push('-');
    hex(u128::from(fastrand::u64(1..)), 16, &mut out);
    out.push_str("-01");
    out
}

fn secret(headers: &HeaderMap) -> Option<&str> {
    if let Some(bearer) = headers.get(header::AUTHORIZATION) {
        let text = bearer.to_str().ok()?;
        let (scheme, secret) = text.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim());
    }
    let found = KEY_HEADERS.iter().find_map(|name| headers.get(*name))?;
    found.to_str().ok().map(str::trim)
}

/// Walks a request to the door of its first try.
///
/// # Errors
/// The client is gone; there is nobody to answer.
pub async fn take(
    session: &mut Session,
    ticket: &mut Ticket,
    endpoint: &Endpoint,
    guard: &Guard,
) -> Result<Taken> {
    match endpoint.kind {
        Kind::Health => return local(ticket, r#"{"status":"ok"}"#.into()),
        Kind::Ready => return ready(ticket),
        _ => {}
    }
    if let Some(refused) = closed(ticket) {
        return Ok(Taken::Refused(refused));
    }
    let asking = asking(session, ticket);
    if let Some((flood, client)) = &asking
        && let Err(refused) = guard.pass(flood, *client)
    {
        return Ok(Taken::Refused(refused));
    }
    match endpoint.kind {
        Kind::Unknown => {
            let why = format!("there is nothing at {}", ticket.arrival.path);
            return Ok(Taken::Refused(ApiError::new(Code::NotFound, why)));
        }
        Kind::OtherMethod(allowed) => {
            let why = format!("{} takes {allowed} only", ticket.arrival.path);
            return Ok(Taken::Refused(ApiError::new(Code::NotFound, why)));
        }
        _ => {}
    }
    if let Err(refused) = ticket.authenticate(secret(&session.req_header().headers)) {
        if let (Some((flood, client)), 401) = (&asking, refused.status) {
            guard.failed(flood, *client);
        }
        return Ok(Taken::Refused(refused));
    }
    match endpoint.kind {
        Kind::Models => {
            let query = session.req_header().uri.query().unwrap_or_default();
            super::models::list(ticket, query)
        }
        Kind::Model => super::models::one(ticket),
        Kind::Usage => Ok(match ticket.usage().await {
            Ok(page) => local(ticket, page.to_string().into())?,
            Err(refused) => Taken::Refused(refused),
        }),
        Kind::NotYet => {
            let why = format!("{} is not in this version", ticket.arrival.path);
            Ok(Taken::Refused(ApiError::new(Code::NotImplemented, why)))
        }
        _ => ask(session, ticket).await,
    }
}

/// The flood guard's rules, and whom they count.
fn asking(session: &Session, ticket: &Ticket) -> Option<(Flood, IpAddr)> {
    let flood = ticket.snapshot.flood.clone()?;
    let peer = session.client_addr()?.as_inet()?.ip();
    let client = flood::client(peer, &session.req_header().headers, &flood);
    Some((flood, client))
}

fn closed(ticket: &Ticket) -> Option<ApiError> {
    if ticket.phase() >= Phase::Closing {
        return Some(leaving());
    }
    if ticket.crowded() {
        let refused = ApiError::new(Code::Overloaded, "too many requests are open (max_requests)");
        return Some(refused.after(Duration::from_secs(1)));
    }
    None
}

pub(super) fn leaving() -> ApiError {
    ApiError::new(Code::Overloaded, LEAVING).after(Duration::from_secs(1))
}

async fn ask(session: &mut Session, ticket: &mut Ticket) -> Result<Taken> {
    ticket.own_since(ticket.arrival.at);
    if let Some(name) = ticket.arrival.wishes.faulty {
        return Ok(Taken::Refused(faulty(name)));
    }
    let body = match super::body::read(session, ticket).await? {
        Ok(body) => body,
        Err(refused) => return Ok(refused),
    };
    let since = Instant::now();
    let mut admitted = ticket.admit(body, fastrand::u64(..));
    if admitted.is_ok()
        && let Some(body) = ticket.answered_here()
    {
        return local(ticket, body);
    }
    if admitted.is_ok() {
        admitted = ticket.reserve().await;
    }
    ticket.own_since(since);
    Ok(match admitted {
        Ok(()) => Taken::Proxy,
        Err(refused) => Taken::Refused(refused),
    })
}

/// A header of ours that says nothing we know.
fn faulty(name: &str) -> ApiError {
    let takes = match name {
        "x-weir-retry" => "`none`, or nothing",
        _ => "a whole number of milliseconds from 1 on",
    };
    let why = format!("the header `{name}` takes {takes}");
    ApiError::new(Code::InvalidRequest, why).param(name)
}

/// As on the admin side.
fn ready(ticket: &Ticket) -> Result<Taken> {
    let health = ticket.health();
    let body = Bytes::from(health.json());
    let mut header = answer::local(ticket, &body)?;
    header.set_status(if health.is_ready() { 200 } else { 503 })?;
    Ok(Taken::Local(header, body))
}

/// A local 200.
pub(super) fn local(ticket: &Ticket, body: Bytes) -> Result<Taken> {
    Ok(Taken::Local(answer::local(ticket, &body)?, body))
}

/// The client left, or sent what is no request, before it was admitted.
#[must_use]
pub fn is_client(error: &Error) -> bool {
    *error.esource() == pingora::ErrorSource::Downstream
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (http::HeaderName::from_static(k), v.parse().unwrap())).collect()
    }

    #[test]
    fn the_first_present_header_is_the_key() {
        let check = |pairs: &[(&'static str, &str)], want: Option<&str>| {
            assert_eq!(secret(&headers(pairs)), want);
        };
        check(&[("authorization", "Bearer a"), ("x-api-key", "b")], Some("a"));
        check(&[("authorization", "bearer  a ")], Some("a"));
        check(&[("authorization", "Basic a"), ("x-api-key", "b")], None);
        check(&[("x-goog-api-key", "d"), ("api-key", "c")], Some("c"));
        check(&[], None);
    }

    #[test]
    fn only_harmless_request_ids_are_taken() {
        assert_eq!(request_id(Some("a-B_1.2")), "a-B_1.2");
        for bad in [None, Some(""), Some("a b"), Some("a/b"), Some("x".repeat(129).as_str())] {
            let made = request_id(bad);
            assert!(made.starts_with("req-") && made.len() == 36, "{made}");
        }
    }

    #[test]
    fn a_trace_goes_on_or_begins() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(trace_id(Some(&format!("00-{id}-b7ad6b7169203331-01"))), id);
        for bad in [None, Some("00-0-0-0"), Some("00-00000000000000000000000000000000-1-01")] {
            let made = trace_id(bad);
            assert!(made.len() == 32 && made.bytes().any(|b| b != b'0'));
        }
        assert_eq!(traceparent(id).len(), 55);
        let mut text = String::new();
        hex(0xab, 16, &mut text);
        assert_eq!(text, "00000000000000ab");
    }

    #[test]
    fn an_address_is_written_as_its_display_does() {
        for text in ["0.0.0.0:0", "127.0.0.1:29100", "255.255.255.255:65535", "[2001:db8::1]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(written(&Address::Inet(address)), text);
        }
    }
}
