//! What an error of Pingora's or a timer of ours means: one place that decides, for every try,
//! whether it was the provider, the caller or us, and what follows.

use super::relay::Exchange;
use super::session::{CUT, ENDED, REJECTED, STALLED, TIMER, Timer};
use crate::meter::Outcome;
use crate::route::Fault;
use crate::route::plan::Next;
use pingora::{Error, ErrorSource, ErrorType};
use std::time::Instant;
use weir_filters::error::{ApiError, Class, Code, Failure};

/// What a caller is told by a process on its way out.
pub const LEAVING: &str = "the gateway is shutting down";

/// What follows an error of a running try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Another try, after [`Exchange::wait`].
    Retry,
    /// The caller is told [`Exchange::error`], or has been.
    Stop,
    /// The caller is gone.
    Gone,
}

/// Judges an error between the connect and the end of a try.
pub fn judge(x: &mut Exchange, error: &Error, reused: bool, now: Instant) -> Verdict {
    if x.is_committed() {
        return Verdict::Stop;
    }
    let etype = error.etype();
    if *etype == REJECTED {
        let next = x.take_next().unwrap_or(Next::Stop);
        return follow(x, next);
    }
    if *etype == TIMER {
        let timer = x.take_expired().unwrap_or(Timer::Total);
        return expired(x, timer, now);
    }
    if *etype == CUT {
        cut(x);
        return Verdict::Stop;
    }
    if *etype == ENDED {
        return Verdict::Stop;
    }
    if *etype == STALLED || *error.esource() == ErrorSource::Downstream {
        return Verdict::Gone;
    }
    upstream(x, error, reused, now)
}

/// The drain time is over.
pub fn cut(x: &mut Exchange) {
    x.set_error(Outcome::Interrupted, ApiError::new(Code::Overloaded, LEAVING));
}

fn upstream(x: &mut Exchange, error: &Error, reused: bool, now: Instant) -> Verdict {
    let broken = matches!(
        error.etype(),
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError
    );
    let status = x.ticket().and_then(|t| t.running.as_ref()).map_or(0, |r| r.status);
    if x.has_content() {
        let failure =
            failure(Class::Server, "the provider cut its answer short", Some("truncated"));
        x.set_error(Outcome::Truncated, ApiError::from_failure(&failure, 1));
        return Verdict::Stop;
    }
    if broken && reused && status == 0 && x.stale_again() {
        return Verdict::Retry;
    }
    if matches!(error.etype(), ErrorType::WriteTimedout | ErrorType::ReadTimedout) {
        let fault = if x.is_streaming() { Fault::FirstToken } else { Fault::Reply };
        let why = "the provider neither takes the request nor answers it in time";
        let next = x.book(fault, &failure(Class::Timeout, why, None), now);
        return follow(x, next);
    }
    let (fault, why) = if status == 0 {
        (Fault::ResetBeforeHeaders, "the provider closed the connection without an answer")
    } else {
        (Fault::Invalid, "the provider cut its answer before any content")
    };
    let next = x.book(fault, &failure(Class::Server, why, None), now);
    follow(x, next)
}

fn expired(x: &mut Exchange, timer: Timer, now: Instant) -> Verdict {
    let who = x.ticket().and_then(|t| t.running.as_ref().map(|r| r.provider.id.to_string()));
    let who = who.unwrap_or_default();
    let why = match timer {
        Timer::FirstToken => format!("first-token timeout: no content from {who} in time"),
        Timer::Idle => format!("idle timeout: {who} went silent in the middle of its answer"),
        Timer::Reply => format!("reply timeout: no whole answer from {who} in time"),
        Timer::Total => "total timeout: the request took too long".to_owned(),
        Timer::ErrorBody | Timer::Linger => String::new(),
    };
    let late = failure(Class::Timeout, &why, None);
    match timer {
        Timer::FirstToken | Timer::Reply if !x.has_content() => {
            let fault = if timer == Timer::Reply { Fault::Reply } else { Fault::FirstToken };
            let next = x.book(fault, &late, now);
            follow(x, next)
        }
        Timer::ErrorBody => {
            let next = x.error_body_late(now).unwrap_or(Next::Stop);
            follow(x, next)
        }
        _ if x.has_content() => {
            x.set_error(Outcome::Timeout, ApiError::from_failure(&late, 1));
            Verdict::Stop
        }
        // The whole time is used up: whatever could be tried next has none left.
        _ => {
            let fault = if x.is_streaming() { Fault::FirstToken } else { Fault::Reply };
            x.book(fault, &late, now);
            x.set_error(Outcome::Timeout, ApiError::from_failure(&late, 1));
            Verdict::Stop
        }
    }
}

/// Judges a failed connect.
pub fn connect(x: &mut Exchange, error: &Error, now: Instant) -> Verdict {
    let who = x.ticket().and_then(|t| t.running.as_ref().map(|r| r.provider.id.to_string()));
    let who = who.unwrap_or_default();
    let (class, why) = match error.etype() {
        ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => {
            (Class::Timeout, format!("connect timeout: {who} could not be reached in time"))
        }
        ErrorType::InvalidCert => (
            Class::Server,
            format!(
                "TLS to {who} failed: its certificate is not trusted (another name, expired, or of \
                 an authority that neither the system nor `ca` knows)"
            ),
        ),
        ErrorType::TLSHandshakeFailure | ErrorType::HandshakeError => {
            (Class::Server, format!("TLS to {who} failed: {}", reason(error)))
        }
        ErrorType::ConnectProxyFailure => {
            let why = error.context.as_ref().map_or("no tunnel", |c| c.as_str());
            (Class::Server, format!("cannot connect to {who}: {why}"))
        }
        other => (Class::Server, format!("cannot connect to {who}: {}", other.as_str())),
    };
    let next = x.book(Fault::Connect, &failure(class, &why, None), now);
    follow(x, next)
}

/// Why a handshake failed, in OpenSSL's words: of `error:code:library:function:reason:…` only the
/// reason says something to a person.
fn reason(error: &Error) -> String {
    let context = error.context.as_ref().map_or("", |context| context.as_str());
    let stack = context.split("error:").nth(1).and_then(|stack| stack.split(':').nth(3));
    stack.map_or_else(|| "the connection ended".to_owned(), str::to_owned)
}

/// Judges a name without an address.
pub fn unresolved(x: &mut Exchange, class: Class, why: &str, now: Instant) -> Verdict {
    let next = x.book(Fault::Connect, &failure(class, why, None), now);
    follow(x, next)
}

fn follow(x: &mut Exchange, next: Next) -> Verdict {
    match next {
        Next::Again(wait) => {
            x.wait = wait;
            Verdict::Retry
        }
        Next::Other => Verdict::Retry,
        Next::Stop => Verdict::Stop,
    }
}

fn failure(class: Class, message: &str, code: Option<&str>) -> Failure {
    Failure {
        class,
        status: 0,
        message: message.into(),
        code: code.map(str::to_owned),
        kind: None,
        param: None,
        retry_after: None,
    }
}
