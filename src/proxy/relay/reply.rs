//! The provider's reply, read piece by piece: what is held, what is released, what fails.

use super::super::answer;
use super::super::session::{Clock, REJECTED, Timer};
use super::batch::Batch;
use super::{Exchange, Reading, Replying, Sent, Turn, refusal};
#[cfg(debug_assertions)]
use crate::flow::failpoint;
use crate::meter::Outcome;
use crate::route::Fault;
use crate::route::plan::Next;
use bytes::Bytes;
use http::HeaderValue;
use pingora::http::ResponseHeader;
use pingora::protocols::http::HttpTask;
use pingora::{Error, Result};
use std::time::{Duration, Instant};
use weir_filters::error::{ApiError, Class, Failure};
use weir_filters::wire::{End, Step};

/// An error body beyond this is not read: no message is longer.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// How long an error body may take.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(2);
/// How long a provider may keep its stream open after the end of the answer.
const LINGER: Duration = Duration::from_millis(500);
/// A JSON answer beyond this is no answer.
const REPLY_BYTES_MAX: usize = 32 << 20;
/// A stream's tokens are looked at each time so many bytes have come, about 4 to 8 events: often
/// enough to cut near a limit, too seldom to cost.
const WATCH_EVERY: usize = 1 << 10;

impl Exchange {
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
        let (Some(ticket), Some(reading)) = (self.ticket.as_mut(), self.reading.clone()) else {
            return Ok(Turn::On);
        };
        ticket.replied(status);
        if header.status.is_success() {
            ticket.told_left(&|name| refusal::look(&header.headers, name), batch.now);
        }
        self.replying = if !header.status.is_success() {
            clock.arm(Timer::ErrorBody, batch.now, Some(ERROR_BODY_WAIT));
            let headers = header.headers.clone();
            Replying::Error { status, headers, pieces: Vec::new(), size: 0 }
        } else if stream {
            let filter = reading.api.stream(reading.wire, reading.memo, reading.context);
            Replying::Stream { filter, prelude: Vec::new(), begun: false }
        } else {
            let opaque = reading.api.is_opaque();
            let kind = header.headers.get("content-type").filter(|_| opaque).cloned();
            Replying::Whole { pieces: Vec::new(), size: 0, kind }
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
                    #[cfg(debug_assertions)]
                    failpoint::in_filter();
                    filter.feed(piece, &mut step);
                }
                self.unwatched += len;
                if self.unwatched >= WATCH_EVERY
                    && step.started
                    && step.end.is_none()
                    && let Some(ticket) = self.ticket.as_mut()
                {
                    self.unwatched = 0;
                    if ticket.outgrown(|| filter.tap()) {
                        self.limit_cut = true;
                        filter.cut(&mut step);
                    }
                }
                let turn = self.step(step, clock, batch)?;
                if turn == Turn::End {
                    return Ok(turn);
                }
            }
            Replying::Whole { pieces, size, .. } => {
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
                    return Ok(if clean { self.over() } else { Turn::End });
                }
                if turn == Turn::End {
                    Ok(turn)
                } else {
                    self.fail(Fault::Invalid, &no_end(), batch)
                }
            }
            Replying::Whole { pieces, kind, .. } => {
                batch.end = true;
                self.whole(&pieces, kind, batch)
            }
            Replying::Error { status, headers, pieces, .. } => {
                batch.end = true;
                let (fault, failure) =
                    refusal::read(status, &headers, &pieces.concat(), self.words());
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
            if !*begun && step.out.iter().any(|b| !b.starts_with(b":")) {
                *begun = true;
                let wait = self.ticket.as_ref().and_then(|ticket| ticket.first_token());
                clock.arm(Timer::FirstToken, batch.now, wait);
            }
            prelude.extend(step.out);
        } else if !step.out.is_empty() || step.started {
            self.release(step.out, step.alive, clock, batch)?;
        }
        match step.end {
            None => Ok(Turn::On),
            Some(End::Complete { tail }) => {
                self.release(vec![tail], false, clock, batch)?;
                if self.limit_cut {
                    self.commit(Outcome::LimitCut, 200, None);
                    clock.stop();
                    batch.end = true;
                    return Ok(Turn::End);
                }
                self.commit(Outcome::Success, 200, None);
                clock.stop();
                clock.arm(Timer::Linger, batch.now, Some(LINGER));
                Ok(Turn::On)
            }
            Some(End::Failed(failure)) => self.fail(Fault::Invalid, &failure, batch),
        }
    }

    /// Content may go: the header and what was held back go before it. Only what is `alive` starts
    /// the idle wait anew: a provider that sends comments for ever says nothing.
    fn release(
        &mut self,
        out: Vec<Bytes>,
        mut alive: bool,
        clock: &Clock,
        batch: &mut Batch,
    ) -> Result<()> {
        let Some(ticket) = self.ticket.as_mut() else { return Ok(()) };
        if self.sent < Sent::Content {
            ticket.first_content(batch.now);
            ticket.own_since(batch.now);
            if self.sent == Sent::Nothing {
                batch.header = Some(answer::stream_header(ticket, self.close_delimited)?);
            }
            self.sent = Sent::Content;
            alive = true;
            if let Replying::Stream { prelude, .. } = &mut self.replying {
                batch.body.append(prelude);
            }
        }
        if alive {
            clock.arm(Timer::Idle, batch.now, ticket.idle());
        }
        batch.body.extend(out);
        Ok(())
    }

    fn whole(
        &mut self,
        pieces: &[Bytes],
        kind: Option<HeaderValue>,
        batch: &mut Batch,
    ) -> Result<Turn> {
        let (Some(ticket), Some(reading)) = (self.ticket.as_mut(), self.reading.take()) else {
            return Ok(Turn::End);
        };
        let body = match pieces {
            [one] => one.clone(),
            many => many.concat().into(),
        };
        #[cfg(debug_assertions)]
        failpoint::in_filter();
        if ticket.has_more_parts() {
            return match ticket.part(body, batch.now) {
                Ok(next) => {
                    self.next = Some(next);
                    Error::e_explain(REJECTED, "a part of the answer")
                }
                Err(failure) => self.fail(Fault::Invalid, &failure, batch),
            };
        }
        let body = ticket.joined(body);
        let Reading { api, wire, memo, context } = reading;
        match api.whole(wire, &memo, body, context) {
            Ok(mut whole) => {
                ticket.first_content(batch.now);
                ticket.own_since(batch.now);
                if let Some(admission) = ticket.admission.as_ref() {
                    ticket.record.units = api.units(&admission.peek, &whole.body);
                }
                let measured = ticket.measure(Outcome::Success, Some(&mut whole.tap));
                // Settled before the header, which tells what is left.
                ticket.settle_and_tell(&measured);
                let mut header = answer::json_header(ticket, whole.body.len(), measured.cost)?;
                if let Some(kind) = kind {
                    header.insert_header("content-type", kind)?;
                }
                batch.header = Some(header);
                batch.body.push(whole.body);
                self.sent = Sent::Content;
                self.commit_with(Outcome::Success, 200, None, Some(&mut whole.tap));
                Ok(self.over())
            }
            Err(failure) => self.fail(Fault::Invalid, &failure, batch),
        }
    }

    /// The running try has failed. While the caller has no content another one may follow (the
    /// error says so to Pingora); else the caller gets the error here.
    fn fail(&mut self, fault: Fault, failure: &Failure, batch: &mut Batch) -> Result<Turn> {
        let refined = match self.words() {
            Some(words) if fault == Fault::Invalid => words.refine(failure.clone(), true),
            _ => failure.clone(),
        };
        let failure = &refined;
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
        Ok(if whole { self.over() } else { Turn::End })
    }

    /// A whole answer has been read. One that came before the request's body was sent ends the
    /// exchange all the same: the provider may never take the rest.
    fn over(&self) -> Turn {
        if self.feed.is_done() { Turn::On } else { Turn::End }
    }

    fn say(&mut self, error: &ApiError, batch: &mut Batch) {
        batch.body.extend(self.error_event(error));
        batch.end = true;
    }
}

fn is_cut(failure: &Failure) -> bool {
    failure.code.as_deref() == Some("truncated")
}

fn invalid(message: &str) -> Failure {
    Failure::new(Class::Invalid, 200, message)
}

fn no_end() -> Failure {
    invalid("the provider's stream ended without an end")
}
