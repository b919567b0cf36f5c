//! From the provider's reply to the caller's: what is held back, what is let through, and when
//! the event is written.
//!
//! The session hands over everything the provider sends before any of it is written. Nothing goes
//! out before the first content; a whole JSON answer is read to its end first, so that a bad one
//! can fail over and its cost stands in the header. The event is appended before the bytes that
//! end the answer are returned, so a caller never sees a finished answer without its row.

mod batch;
mod refusal;
mod reply;

use super::answer;
use super::session::{Feed, Timer};
use crate::flow::{Attempt, Committed, Ending, Ticket};
use crate::meter::Outcome;
use crate::route::Fault;
use crate::route::plan::Next;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use pingora::http::ResponseHeader;
use std::time::{Duration, Instant};
use weir_filters::dialect::{Api, Memo};
use weir_filters::error::{ApiError, Class, Code, ErrorMap, Failure};
use weir_filters::wire::{Reply, ReplyContext, Wire};

/// Whether the exchange goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It does.
    On,
    /// What is written now is the last of it, whatever the provider still sends.
    End,
}

/// How a reply is read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What the caller speaks.
    pub api: Api,
    /// What the provider speaks.
    pub wire: Wire,
    /// What was asked of it.
    pub memo: Memo,
    /// Names and numbers of the request.
    pub context: ReplyContext,
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
        /// The provider's `content-type`, where the caller is to see it.
        kind: Option<HeaderValue>,
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
    ticket: Option<Box<Ticket>>,
    committed: Option<Committed>,
    /// An event that is made now may wait for the others that end with it.
    gathers: bool,
    /// The body of the running try.
    pub feed: Feed,
    /// How the running try's reply is read.
    reading: Option<Reading>,
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
    /// Bytes of the stream since its tokens were last held against its limits.
    unwatched: usize,
    /// A limit has cut the stream.
    limit_cut: bool,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("ticket", &self.ticket).field("sent", &self.sent).finish()
    }
}
impl Exchange {
    /// For an admitted request.
    #[must_use]
    pub fn new(ticket: Box<Ticket>, close_delimited: bool) -> Self {
        Self {
            ticket: Some(ticket),
            committed: None,
            gathers: false,
            feed: Feed::default(),
            reading: None,
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
            unwatched: 0,
            limit_cut: false,
        }
    }

    /// The request, until its event is written.
    pub fn ticket(&mut self) -> Option<&mut Ticket> {
        self.ticket.as_deref_mut()
    }
    /// The event, once written; taken to be told about.
    pub fn committed(&mut self) -> Option<Committed> {
        self.committed.take()
    }
    /// Whether [`Exchange::settle`] is called before what ends the answer is written.
    pub(in crate::proxy) fn gather(&mut self, gathers: bool) {
        self.gathers = gathers;
    }
    /// The event is in the spool after this.
    pub(in crate::proxy) fn settle(&mut self) {
        if let Some(committed) = self.committed.as_mut() {
            committed.settle();
        }
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
        self.ticket.as_ref().is_some_and(|ticket| ticket.streams())
    }
    pub(in crate::proxy) fn hold_max(&self) -> Duration {
        let hour = Duration::from_secs(3600);
        self.ticket.as_ref().map_or(hour, |t| t.snapshot.server.hold_max)
    }
    pub(in crate::proxy) fn ticket_bell(&self) -> tokio::sync::futures::OwnedNotified {
        match self.ticket.as_ref() {
            Some(ticket) => ticket.bell(),
            None => std::sync::Arc::new(tokio::sync::Notify::new()).notified_owned(),
        }
    }
    /// A timer has run out; what it means is decided where errors are.
    pub(in crate::proxy) fn expired(&mut self, timer: Timer) {
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

    /// Nobody can be asked: the caller is told so, and booked as refused where nobody was.
    pub fn refuse(&mut self, error: ApiError) {
        if self.error.is_none() {
            self.outcome = Outcome::Refused;
        }
        self.error = Some(error);
    }

    /// A try begins: its body, and how its reply will be read.
    pub fn begin(&mut self, attempt: Attempt) {
        let api = self.ticket.as_ref().map_or(Api::Chat, |t| t.arrival.api);
        let wire = attempt.provider.wire;
        let (memo, context) = (attempt.memo, attempt.context);
        self.reading = Some(Reading { api, wire, memo, context });
        self.replying = Replying::Waiting;
        self.feed = Feed::new(attempt.outgoing.body);
    }

    /// The 200 of a stream that has nothing to say yet; `None` when it went out before.
    pub(in crate::proxy) fn early_header(&mut self) -> Option<Box<ResponseHeader>> {
        if self.sent > Sent::Nothing {
            return None;
        }
        let ticket = self.ticket.as_ref()?;
        let header = answer::stream_header(ticket, self.close_delimited).ok()?;
        self.sent = Sent::Header;
        Some(header)
    }

    /// The body of an error reply did not end in time: what has come of it must do.
    pub fn error_body_late(&mut self, now: Instant) -> Option<Next> {
        let late = std::mem::replace(&mut self.replying, Replying::Over);
        let Replying::Error { status, headers, pieces, .. } = late else { return None };
        let (fault, failure) = refusal::read(status, &headers, &pieces.concat(), self.words());
        Some(self.book(fault, &failure, now))
    }

    /// The running provider's own words for failures.
    fn words(&self) -> Option<&ErrorMap> {
        self.ticket.as_ref()?.running.as_ref().map(|running| &running.provider.errors)
    }

    /// Books a failed try that the relay did not see end; says what follows.
    pub fn book(&mut self, fault: Fault, failure: &Failure, now: Instant) -> Next {
        let Some(ticket) = self.ticket.as_mut() else { return Next::Stop };
        let tap = match &mut self.replying {
            Replying::Stream { filter, .. } => Some(filter.tap()),
            _ => None,
        };
        let next = ticket.failed(fault, failure, now, tap);
        let mut error = ApiError::from_failure(failure, ticket.record.targets_failed);
        // A 200 has most likely been billed, and another one would be too.
        error.retry &= error.code != Code::UpstreamError || fault != Fault::Invalid;
        self.outcome = outcome_of(failure, &error);
        self.error = Some(error);
        next
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
        let event = self.error_event(&error);
        let last = match self.ticket.as_ref() {
            Some(ticket) if self.sent == Sent::Nothing => match answer::error(ticket, &error) {
                Ok((header, body)) => Last::Answer(header, body),
                Err(_) => Last::Nothing,
            },
            Some(_) => event.map_or(Last::Nothing, Last::Event),
            None => Last::Nothing,
        };
        let status = if self.sent == Sent::Nothing { error.status } else { 200 };
        self.commit(outcome, status, Some(&error));
        self.ended = true;
        last
    }

    /// The error in the words of the stream that has begun.
    fn error_event(&mut self, error: &ApiError) -> Option<Bytes> {
        let arrival = &self.ticket.as_ref()?.arrival;
        let said = match &mut self.replying {
            Replying::Stream { filter, .. } if self.sent == Sent::Content => {
                filter.error(error, &arrival.request_id)
            }
            _ => None,
        };
        Some(said.unwrap_or_else(|| arrival.api.error_event(error, &arrival.request_id)))
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
            let ending = Ending { outcome, status, error, tap };
            self.committed =
                Some(if self.gathers { ticket.gather(ending) } else { ticket.commit(ending) });
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

/// How a failure before any content is booked.
pub fn outcome_of(failure: &Failure, error: &ApiError) -> Outcome {
    match failure.class {
        Class::Timeout => Outcome::Timeout,
        _ if error.status < 500 && error.status != 429 => Outcome::Refused,
        _ => Outcome::UpstreamError,
    }
}
