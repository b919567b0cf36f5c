//! A request's body: read whole and unpacked, under a time, a size and the process's byte budget.

use super::intake::{self, Taken};
use super::pace;
use super::unpack::{Stop, Unpack};
use crate::flow::{Held, Ticket};
use bytes::{Bytes, BytesMut};
use http::header;
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use pingora::{Error, Result};
use std::task::Poll;
use std::time::Duration;
use weir_filters::error::{ApiError, Code};

/// What Pingora calls chunks that are none (pingora-core 0.9.1, protocols/http/v1/body.rs).
const INVALID_CHUNK: &str = "InvalidChunk";

/// Reads the whole body; the inner error is what the caller is told.
///
/// # Errors
/// The client is gone.
pub async fn read(session: &mut Session, ticket: &mut Ticket) -> Result<Result<Bytes, Taken>> {
    let server = &ticket.snapshot.server;
    let (within, max) = (server.body, server.max_body);
    let head = session.req_header();
    let mut unpack = match coding(head).map(|coding| Unpack::new(&coding).ok_or(coding)) {
        None => None,
        Some(Ok(unpack)) => Some(unpack),
        Some(Err(coding)) => return Ok(Err(Taken::Refused(unknown(&coding)))),
    };
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    let length: Option<usize> = length.and_then(|v| v.trim().parse().ok());
    if length.is_some_and(|n| n > max) {
        return Ok(Err(Taken::Refused(too_large(max))));
    }
    if head.headers.contains_key(header::EXPECT) {
        session.write_continue_response().await?;
    }
    let mut whole = Whole { buffer: BytesMut::new(), max };
    loop {
        let read = match next(session, ticket, within).await {
            Ok(read) => read,
            Err(refused) => return Ok(Err(refused)),
        };
        let piece = match read {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(error) if is_malformed(&error) => return Ok(Err(Taken::Last(malformed()))),
            Err(error) => return Err(error),
        };
        let taken = match &mut unpack {
            Some(unpack) => whole.unpack(&piece, unpack, &mut ticket.held),
            None if whole.is_alone(&piece, length) => {
                let taken = whole.room(piece.len(), &mut ticket.held);
                return Ok(taken.map(|()| piece).map_err(Taken::Refused));
            }
            None => whole.take(&piece, length, &mut ticket.held),
        };
        if let Err(refused) = taken {
            return Ok(Err(Taken::Refused(refused)));
        }
    }
    if unpack.is_some_and(|unpack| !unpack.is_whole()) {
        return Ok(Err(Taken::Refused(broken())));
    }
    Ok(Ok(whole.buffer.freeze()))
}

/// The next piece. What is there already takes no timer.
async fn next(
    session: &mut Session,
    ticket: &Ticket,
    within: Duration,
) -> Result<Result<Option<Bytes>>, Taken> {
    let mut reading = std::pin::pin!(session.read_request_body());
    if let Poll::Ready(read) = pace::now(reading.as_mut()) {
        return Ok(read);
    }
    tokio::select! {
        read = tokio::time::timeout(within, reading) => read.map_err(|_| Taken::Last(late())),
        () = ticket.bell() => Err(Taken::Refused(intake::leaving())),
    }
}

/// What has been read so far.
struct Whole {
    buffer: BytesMut,
    max: usize,
}

impl Whole {
    /// A body that came in one piece needs no copy.
    fn is_alone(&self, piece: &Bytes, length: Option<usize>) -> bool {
        self.buffer.is_empty() && length == Some(piece.len())
    }

    fn take(&mut self, b: &[u8], length: Option<usize>, held: &mut Held) -> Result<(), ApiError> {
        self.room(b.len(), held)?;
        let left = length.map_or(0, |n| n.saturating_sub(self.buffer.len()));
        self.buffer.reserve(left.max(b.len()));
        self.buffer.extend_from_slice(b);
        Ok(())
    }

    fn unpack(&mut self, b: &[u8], unpack: &mut Unpack, held: &mut Held) -> Result<(), ApiError> {
        let unpacked = unpack.push(b, |bytes| self.take(bytes, None, held));
        unpacked.map_err(|stop| match stop {
            Stop::Broken => broken(),
            Stop::Refused(refused) => refused,
        })
    }

    fn room(&self, more: usize, held: &mut Held) -> Result<(), ApiError> {
        if self.buffer.len() + more > self.max {
            return Err(too_large(self.max));
        }
        if !held.take(more) {
            let why = "too many request bodies are open (max_body_bytes_open)";
            return Err(ApiError::new(Code::Overloaded, why).after(Duration::from_secs(1)));
        }
        Ok(())
    }
}

fn coding(head: &RequestHeader) -> Option<String> {
    let coding =
        head.headers.get(header::CONTENT_ENCODING)?.to_str().unwrap_or("?").trim().to_owned();
    (!coding.is_empty() && !coding.eq_ignore_ascii_case("identity")).then_some(coding)
}

fn unknown(coding: &str) -> ApiError {
    let why = format!(
        "content-encoding {coding:?} is not known here; send gzip, deflate, zstd, or the body plain"
    );
    ApiError { status: 415, ..ApiError::new(Code::InvalidRequest, why) }
}

fn too_large(max: usize) -> ApiError {
    ApiError::new(Code::RequestTooLarge, format!("the request body is larger than {max} bytes"))
}

fn late() -> ApiError {
    let refused = ApiError::new(Code::InvalidRequest, "the request body did not come in time");
    ApiError { status: 408, ..refused }
}

fn broken() -> ApiError {
    ApiError::new(Code::InvalidRequest, "the request body is not what its content-encoding says")
}

fn malformed() -> ApiError {
    ApiError::new(Code::InvalidRequest, "the request body's chunks are malformed")
}

fn is_malformed(error: &Error) -> bool {
    error.etype().as_str() == INVALID_CHUNK
}
