//! From the provider's reply to the caller's: what is held back, what is let through, and when
//! the event is written.
//!
//! The session hands over everything the provider sends before any of it is written. Nothing goes
//! out before the first content; a whole JSON answer is read to its end first, so that a bad one
//! can fail over and its cost stands in the header. The event is appended before the bytes that
//! end the answer are returned, so a caller never sees a finished answer without its row.

use super::answer;
use super::session::{Clock, Feed, REJECTED, Timer};
use crate::flow::{Committed, Ending, Ticket};
use crate::meter::Outcome;
use crate::route::Fault;
use crate::route::plan::Next;
use bytes::Bytes;
use http::HeaderMap;
use pingora::http::ResponseHeader;
use pingora::protocols::http::HttpTask;
use pingora::{Error, Result};
use std::time::{Duration, Instant};
use weir_filters::error::{ApiError, Class, Failure, classify};
use weir_filters::wire::{End, Reply, ReplyContext, Step, Wire};

/// An error body beyond this is not read: no message is longer.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// How long an error body may take.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(2);
/// How long a provider may keep its stream open after the end of the answer.
const LINGER: Duration = Duration::from_millis(500);
/// A JSON answer beyond this is no answer.
const REPLY_BYTES_MAX: usize = 32 << 20;

/// Whether the exchange goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It does.
    On,
    /// What is written now is the last of it, whatever the provider still sends.
    End,
}

/// What the caller has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    Nothing,
    /// The 200 of a stream, and comments.
    Header,
    Content,
}

/// The reply of the running try.
enum Replying {
    /// No header yet.
    Waiting,
    Stream {
        filter: Box<dyn Reply>,
        prelude: Vec<Bytes>,
        /// Its first event has come.
        begun: bool,
    },
    Whole {
        pieces: Vec<Bytes>,
        size: usize,
    },
    Error {
        status: u16,
        headers: HeaderMap,
        pieces: Vec<Bytes>,
        size: usize,
    },
    /// All that matters has been read.
    Over,
}

/// One admitted request between its first try and its end.
pub struct Exchange {
    ticket: Option<Ticket>,
    committed: Option<Committed>,
    /// The body of the running try.
    pub feed: Feed,
    /// How the running try's reply is read.
    context: Option<(Wire, ReplyContext)>,
    replying: Replying,
    sent: Sent,
    /// The caller speaks HTTP/1.0: its answer ends with the connection.
    close_delimited: bool,
    next: Option<Next>,
    /// How long the next try waits.
    pub wait: Duration,
    error: Option<ApiError>,
    outcome: Outcome,
    ended: bool,
    expired: Option<Timer>,
    stale: u8,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("ticket", &self.ticket).field("sent", &self.sent).finish()
    }
}

impl Exchange {
    /// For an admitted request.
    #[must_use]
    pub fn new(ticket: Ticket, close_delimited: bool) -> Self {
        Self {
            ticket: Some(ticket),
            committed: None,
            feed: Feed::default(),
            context: None,
            replying: Replying::Waiting,
            sent: Sent::Nothing,
            close_delimited,
            next: None,
            wait: Duration::ZERO,
            error: None,
            outcome: Outcome::UpstreamError,
            ended: false,
            expired: None,
            stale: 0,
        }
    }

    /// The request, until its event is written.
    pub fn ticket(&mut self) -> Option<&mut Ticket> {
        self.ticket.as_mut()
    }
    /// The event, once written; taken to be told about.
    pub fn committed(&mut self) -> Option<Committed> {
        self.committed.take()
    }
    /// The event is written.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.ticket.is_none()
    }
    /// The caller has got content, or the end.
    #[must_use]
    pub fn has_content(&self) -> bool {
        self.sent == Sent::Content || self.is_committed()
    }
    /// The caller asked for a stream.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.ticket.as_ref().is_some_and(Ticket::streams)
    }
    pub(super) fn hold_max(&self) -> Duration {
        let hour = Duration::from_secs(3600);
        self.ticket.as_ref().map_or(hour, |t| t.snapshot.server.hold_max)
    }
    pub(super) fn ticket_bell(&self) -> tokio::sync::futures::OwnedNotified {
        match self.ticket.as_ref() {
            Some(ticket) => ticket.bell(),
            None => std::sync::Arc::new(tokio::sync::Notify::new()).notified_owned(),
        }
    }
    /// A timer has run out; what it means is decided where errors are.
    pub(super) fn expired(&mut self, timer: Timer) {
        self.expired = Some(timer);
    }
    /// The timer that ended this try.
    pub fn take_expired(&mut self) -> Option<Timer> {
        self.expired.take()
    }
    /// What the relay decided when it rejected the answer.
    pub fn take_next(&mut self) -> Option<Next> {
        self.next.take()
    }
    /// The error the caller will be told, and how the request is booked.
    pub fn set_error(&mut self, outcome: Outcome, error: ApiError) {
        self.outcome = outcome;
        self.error = Some(error);
    }
    /// The error the caller will be told, and how the request is booked.
    #[must_use]
    pub fn error(&self) -> Option<(Outcome, ApiError)> {
        self.error.clone().map(|e| (self.outcome, e))
    }
    /// Counts dead pooled connections: true while another one may be tried.
    pub fn stale_again(&mut self) -> bool {
        self.stale += 1;
        if let Some(ticket) = self.ticket.as_mut() {
            ticket.stale();
        }
        self.stale <= 2
    }

    /// A try begins: its body, and how its reply will be read.
    pub fn begin(&mut self, wire: Wire, context: ReplyContext, feed: Feed) {
        self.context = Some((wire, context));
        self.replying = Replying::Waiting;
        self.feed = feed;
    }

    /// The 200 of a stream that has nothing to say yet; `None` when it went out before.
    pub(super) fn early_header(&mut self) -> Option<Box<ResponseHeader>> {
        if self.sent > Sent::Nothing {
            return None;
        }
        let ticket = self.ticket.as_ref()?;
        let header = answer::stream_header(ticket, self.close_delimited).ok()?;
        self.sent = Sent::Header;
        Some(header)
    }

    /// Reads one batch. `out` is what the client gets for it.
    ///
    /// # Errors
    /// The try has failed and nothing of this batch may be written.
    pub fn relay(
        &mut self,
        tasks: Vec<HttpTask>,
        clock: &Clock,
        out: &mut Vec<HttpTask>,
    ) -> Result<Turn> {
        let mut batch = Batch { now: Instant::now(), header: None, body: Vec::new(), end: false };
        let mut turn = Turn::On;
        for task in tasks {
            let step = match task {
                HttpTask::Header(header, end) => self.header(&header, end, clock, &mut batch),
                HttpTask::Body(piece, end) | HttpTask::UpgradedBody(piece, end) => {
                    self.piece(piece.unwrap_or_default(), end, clock, &mut batch)
                }
                HttpTask::Trailer(_) | HttpTask::Done => self.end(true, clock, &mut batch),
                HttpTask::Failed(error) => self.cut(error, clock, &mut batch),
            }?;
            if step == Turn::End {
                turn = Turn::End;
                break;
            }
        }
        self.ended |= batch.end;
        batch.write(out);
        Ok(turn)
    }

    fn header(
        &mut self,
        header: &ResponseHeader,
        end: bool,
        clock: &Clock,
        batch: &mut Batch,
    ) -> Result<Turn> {
        if header.status.is_informational() {
            return Ok(Turn::On);
        }
        let status = header.status.as_u16();
        let stream = self.is_streaming();
        let (Some(ticket), Some((wire, context))) = (self.ticket.as_mut(), self.context.clone())
        else {
            return Ok(Turn::On);
        };
        ticket.replied(status);
        self.replying = if !header.status.is_success() {
            clock.arm(Timer::ErrorBody, batch.now, Some(ERROR_BODY_WAIT));
            let headers = header.headers.clone();
            Replying::Error { status, headers, pieces: Vec::new(), size: 0 }
        } else if stream {
            Replying::Stream { filter: wire.stream(context), prelude: Vec::new(), begun: false }
        } else {
            Replying::Whole { pieces: Vec::new(), size: 0 }
        };
        if end { self.end(true, clock, batch) } else { Ok(Turn::On) }
    }

    fn piece(&mut self, piece: Bytes, end: bool, clock: &Clock, batch: &mut Batch) -> Result<Turn> {
        let len = piece.len();
        match &mut self.replying {
            Replying::Waiting | Replying::Over => {}
            Replying::Stream { filter, .. } => {
                let mut step = Step::default();
                if len > 0 {
                    filter.feed(piece, &mut step);
                }
                let turn = self.step(step, clock, batch)?;
                if turn == Turn::End {
                    return Ok(turn);
                }
            }
            Replying::Whole { pieces, size } => {
                *size += len;
                pieces.push(piece);
                let room = *size <= REPLY_BYTES_MAX;
                if !room || !self.ticket.as_mut().is_some_and(|t| t.held.take(len)) {
                    let failure = invalid("the provider's answer is too large to hold");
                    return self.fail(Fault::Invalid, &failure, batch);
                }
            }
            Replying::Error { pieces, size, .. } => {
                if *size < ERROR_BYTES_MAX {
                    pieces.push(piece);
                }
                *size += len;
            }
        }
        if end { self.end(true, clock, batch) } else { Ok(Turn::On) }
    }

    /// The provider's body is over: by its own framing (`clean`), or cut.
    fn end(&mut self, clean: bool, clock: &Clock, batch: &mut Batch) -> Result<Turn> {
        clock.disarm();
        match std::mem::replace(&mut self.replying, Replying::Over) {
            Replying::Stream { mut filter, prelude, begun } => {
                let mut step = Step::default();
                filter.finish(clean, &mut step);
                self.replying = Replying::Stream { filter, prelude, begun };
                let turn = self.step(step, clock, batch)?;
                batch.end = true;
                if self.is_committed() {
                    clock.disarm();
                    return Ok(if clean { Turn::On } else { Turn::End });
                }
                if turn == Turn::End {
                    Ok(turn)
                } else {
                    self.fail(Fault::Invalid, &no_end(), batch)
                }
            }
            Replying::Whole { pieces, .. } => {
                batch.end = true;
                self.whole(&pieces, batch)
            }
            Replying::Error { status, headers, pieces, .. } => {
                batch.end = true;
                let (fault, failure) = read_error(status, &headers, &pieces.concat());
                self.fail(fault, &failure, batch)
            }
            Replying::Waiting => {
                self.fail(Fault::Invalid, &invalid("an answer without a header"), batch)
            }
            Replying::Over => {
                batch.end = true;
                Ok(Turn::On)
            }
        }
    }

    /// The body of an error reply did not end in time: what has come of it must do.
    pub fn error_body_late(&mut self, now: Instant) -> Option<Next> {
        let late = std::mem::replace(&mut self.replying, Replying::Over);
        let Replying::Error { status, headers, pieces, .. } = late else { return None };
        let (fault, failure) = read_error(status, &headers, &pieces.concat());
        Some(self.book(fault, &failure, now))
    }

    /// Books a failed try that the relay did not see end; says what follows.
    pub fn book(&mut self, fault: Fault, failure: &Failure, now: Instant) -> Next {
        let Some(ticket) = self.ticket.as_mut() else { return Next::Stop };
        let tap = match &mut self.replying {
            Replying::Stream { filter, .. } => Some(filter.tap()),
            _ => None,
        };
        let next = ticket.failed(fault, failure, now, tap);
        let error = ApiError::from_failure(failure, ticket.record.targets_failed);
        self.outcome = outcome_of(failure, &error);
        self.error = Some(error);
        next
    }

    fn cut(&mut self, error: Box<Error>, clock: &Clock, batch: &mut Batch) -> Result<Turn> {
        if self.is_committed() {
            return Ok(Turn::End);
        }
        match &self.replying {
            Replying::Stream { .. } => self.end(false, clock, batch),
            _ => Err(error),
        }
    }

    /// What a stream's filter made of the provider's bytes.
    fn step(&mut self, step: Step, clock: &Clock, batch: &mut Batch) -> Result<Turn> {
        let Replying::Stream { prelude, begun, .. } = &mut self.replying else {
            return Ok(Turn::On);
        };
        let failed = matches!(step.end, Some(End::Failed(_)));
        if self.sent < Sent::Content && (!step.started || (failed && !step.alive)) {
            // The first event of an answer shows that it has begun: its first token gets the
            // whole wait once more from here. Comments show nothing.
            if !*begun && step.out.iter().any(|b| b.starts_with(b"data:")) {
                *begun = true;
                let wait = self.ticket.as_ref().and_then(Ticket::first_token);
                clock.arm(Timer::FirstToken, batch.now, wait);
            }
            prelude.extend(step.out);
        } else if !step.out.is_empty() || step.started {
            self.release(step.out, clock, batch)?;
        }
        match step.end {
            None => Ok(Turn::On),
            Some(End::Complete { tail }) => {
                self.release(vec![tail], clock, batch)?;
                self.commit(Outcome::Success, 200, None);
                clock.stop();
                clock.arm(Timer::Linger, batch.now, Some(LINGER));
                Ok(Turn::On)
            }
            Some(End::Failed(failure)) => self.fail(Fault::Invalid, &failure, batch),
        }
    }

    /// Content may go: the header and what was held back go before it.
    fn release(&mut self, out: Vec<Bytes>, clock: &Clock, batch: &mut Batch) -> Result<()> {
        let Some(ticket) = self.ticket.as_mut() else { return Ok(()) };
        if self.sent < Sent::Content {
            ticket.first_content(batch.now);
            ticket.own_since(batch.now);
            if self.sent == Sent::Nothing {
                batch.header = Some(answer::stream_header(ticket, self.close_delimited)?);
            }
            self.sent = Sent::Content;
            if let Replying::Stream { prelude, .. } = &mut self.replying {
                batch.body.append(prelude);
            }
        }
        clock.arm(Timer::Idle, batch.now, ticket.idle());
        batch.body.extend(out);
        Ok(())
    }

    fn whole(&mut self, pieces: &[Bytes], batch: &mut Batch) -> Result<Turn> {
        let (Some(ticket), Some((wire, context))) = (self.ticket.as_mut(), self.context.take())
        else {
            return Ok(Turn::End);
        };
        let body = match pieces {
            [one] => one.clone(),
            many => many.concat().into(),
        };
        match wire.whole(body, context) {
            Ok(mut whole) => {
                ticket.first_content(batch.now);
                ticket.own_since(batch.now);
                let cost = ticket.measure(Outcome::Success, Some(&mut whole.tap)).cost;
                batch.header = Some(answer::json_header(ticket, whole.body.len(), cost)?);
                batch.body.push(whole.body);
                self.sent = Sent::Content;
                self.commit_with(Outcome::Success, 200, None, Some(&mut whole.tap));
                Ok(Turn::On)
            }
            Err(failure) => self.fail(Fault::Invalid, &failure, batch),
        }
    }

    /// The running try has failed. While the caller has no content another one may follow (the
    /// error says so to Pingora); else the caller gets the error here.
    fn fail(&mut self, fault: Fault, failure: &Failure, batch: &mut Batch) -> Result<Turn> {
        if self.sent == Sent::Content {
            let outcome = if is_cut(failure) { Outcome::Truncated } else { Outcome::UpstreamError };
            let error = ApiError::from_failure(failure, 1);
            self.say(&error, batch);
            self.commit(outcome, 200, Some(&error));
            return Ok(Turn::End);
        }
        let next = self.book(fault, failure, batch.now);
        if next != Next::Stop {
            self.next = Some(next);
            return Error::e_explain(REJECTED, failure.message.clone());
        }
        let (Some(ticket), Some(error)) = (self.ticket.as_ref(), self.error.clone()) else {
            return Ok(Turn::End);
        };
        let outcome = self.outcome;
        if self.sent == Sent::Header {
            self.say(&error, batch);
            self.commit(outcome, 200, Some(&error));
            return Ok(Turn::End);
        }
        let (header, body) = answer::error(ticket, &error)?;
        batch.header = Some(header);
        batch.body.push(body);
        self.sent = Sent::Content;
        self.commit(outcome, error.status, Some(&error));
        // An error body has been read to its end, so the connections may be kept.
        let whole = std::mem::replace(&mut batch.end, true);
        Ok(if whole { Turn::On } else { Turn::End })
    }

    fn say(&self, error: &ApiError, batch: &mut Batch) {
        if let Some(ticket) = self.ticket.as_ref() {
            batch.body.push(error.event(ticket.arrival.dialect, &ticket.arrival.request_id));
        }
        batch.end = true;
    }

    /// How an exchange that Pingora ends is ended for the caller; the event is written first.
    pub fn last_words(&mut self, gone: bool) -> Last {
        if self.is_committed() {
            return if gone || self.ended { Last::Nothing } else { Last::Close };
        }
        if gone {
            self.commit(Outcome::ClientAbort, 499, None);
            return Last::Nothing;
        }
        let (outcome, error) = self.error().unwrap_or_else(|| {
            (Outcome::UpstreamError, super::internal("the request could not be finished"))
        });
        let last = match self.ticket.as_ref() {
            Some(ticket) if self.sent == Sent::Nothing => match answer::error(ticket, &error) {
                Ok((header, body)) => Last::Answer(header, body),
                Err(_) => Last::Nothing,
            },
            Some(ticket) => {
                let (dialect, id) = (ticket.arrival.dialect, &ticket.arrival.request_id);
                Last::Event(error.event(dialect, id))
            }
            None => Last::Nothing,
        };
        let status = if self.sent == Sent::Nothing { error.status } else { 200 };
        self.commit(outcome, status, Some(&error));
        self.ended = true;
        last
    }

    /// Writes the event, with what the reply has told so far.
    pub fn commit(&mut self, outcome: Outcome, status: u16, error: Option<&ApiError>) {
        match std::mem::replace(&mut self.replying, Replying::Over) {
            Replying::Stream { mut filter, .. } => {
                self.commit_with(outcome, status, error, Some(filter.tap()));
            }
            _ => self.commit_with(outcome, status, error, None),
        }
    }

    fn commit_with(
        &mut self,
        outcome: Outcome,
        status: u16,
        error: Option<&ApiError>,
        tap: Option<&mut weir_filters::wire::Tap>,
    ) {
        if let Some(ticket) = self.ticket.take() {
            self.committed = Some(ticket.commit(Ending { outcome, status, error, tap }));
        }
    }
}

/// What is still to be written when Pingora ends an exchange.
pub enum Last {
    /// Nothing; it has ended, or nobody is there.
    Nothing,
    /// The end of a body whose content is whole.
    Close,
    /// An error event, then the end.
    Event(Bytes),
    /// A whole answer.
    Answer(Box<ResponseHeader>, Bytes),
}

/// What one batch gives the client: at most one header and one body.
struct Batch {
    now: Instant,
    header: Option<Box<ResponseHeader>>,
    body: Vec<Bytes>,
    end: bool,
}

impl Batch {
    /// One write for all that has come together.
    fn write(self, out: &mut Vec<HttpTask>) {
        if let Some(header) = self.header {
            out.push(HttpTask::Header(header, false));
        }
        let body = match self.body.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        };
        if !body.is_empty() || self.end {
            out.push(HttpTask::Body(Some(body), self.end));
        }
    }
}

/// A provider's error reply, read.
fn read_error(status: u16, headers: &HeaderMap, body: &[u8]) -> (Fault, Failure) {
    let look = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let failure = classify(status, &look, body);
    let fault = match failure.class {
        Class::Auth => Fault::Auth,
        Class::Quota => Fault::Quota,
        Class::RateLimited | Class::RateHopeless => Fault::Status(429),
        _ => Fault::Status(status),
    };
    (fault, failure)
}

/// How a failure before any content is booked.
pub fn outcome_of(failure: &Failure, error: &ApiError) -> Outcome {
    match failure.class {
        Class::Timeout => Outcome::Timeout,
        _ if error.status < 500 && error.status != 429 => Outcome::Refused,
        _ => Outcome::UpstreamError,
    }
}

fn is_cut(failure: &Failure) -> bool {
    failure.code.as_deref() == Some("truncated")
}

fn invalid(message: &str) -> Failure {
    Failure {
        class: Class::Invalid,
        status: 200,
        message: message.into(),
        code: None,
        param: None,
        retry_after: None,
    }
}

fn no_end() -> Failure {
    invalid("the provider's stream ended without an end")
}
