//! The downstream session in our hands: what Pingora reads from it is the body of this try, what
//! it writes to it passes the relay first, and while it waits our timers run.
//!
//! Pingora 0.9.1 replays 64 KiB of a request body at most, knows one read timeout, and writes a
//! header as soon as it has one. A gateway needs another body per try, several deadlines, and a
//! header that waits for the first content. So [`Downstream`] stands in the place of the real
//! session (a public field) from the moment the request is admitted to its last byte.

pub mod body;
pub mod clock;
mod delegate;
mod hold;
mod join;
mod part;

use body::Room;

pub use body::Feed;
pub use clock::{Clock, Timer};

use super::pace;
use super::relay::{Exchange, Turn};
use crate::flow::Phase;
#[cfg(debug_assertions)]
use crate::flow::failpoint;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::{Error, ErrorType, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Sleep;

/// A timer of ours has run out; the error's context says which.
pub const TIMER: ErrorType = ErrorType::Custom("WeirTimer");
/// The drain time is over.
pub const CUT: ErrorType = ErrorType::Custom("WeirCut");
/// The relay has ended the exchange: all is written that should be.
pub const ENDED: ErrorType = ErrorType::Custom("WeirEnded");
/// The relay found the provider's answer wanting, with nothing sent to the caller yet.
pub const REJECTED: ErrorType = ErrorType::Custom("WeirRejected");
/// The client does not read.
pub const STALLED: ErrorType = ErrorType::Custom("WeirStalled");

/// What the phases of one request and its session share.
pub struct Control {
    /// Its deadlines.
    pub clock: Clock,
    exchange: Mutex<Exchange>,
    slot: Mutex<Option<(Box<ServerSession>, join::Later)>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Control {
    /// For a request that begins its tries.
    #[must_use]
    pub fn new(exchange: Exchange, base: Instant) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::new(base),
            exchange: Mutex::new(exchange),
            slot: Mutex::new(None),
        })
    }

    /// The exchange. Held for single steps only, never over an await; the session and the phases
    /// take turns, so nobody ever waits for it.
    pub fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock()
    }
}

/// The stand-in for the client's session.
pub struct Downstream {
    inner: Box<ServerSession>,
    control: Arc<Control>,
    sleep: Pin<Box<Sleep>>,
    bell: Pin<Box<OwnedNotified>>,
    hold: hold::Hold,
    later: join::Later,
}

fn nobody() -> Box<ServerSession> {
    Box::new(ServerSession::Custom(Box::new(())))
}

impl Downstream {
    /// Puts itself in the session's place.
    pub fn install(session: &mut Box<ServerSession>, control: Arc<Control>) {
        let inner = std::mem::replace(session, nobody());
        let now = tokio::time::Instant::now();
        let (bell, hold) = {
            let x = control.exchange();
            (Box::pin(x.ticket_bell()), hold::Hold::new(&x))
        };
        let sleep = Box::pin(tokio::time::sleep_until(now + std::time::Duration::from_secs(3600)));
        let it = Self { inner, control, sleep, bell, hold, later: join::Later::default() };
        **session = ServerSession::Custom(Box::new(it));
    }

    /// Gives the place back, and what is not written yet; nothing happens where it has been given
    /// back before.
    pub fn uninstall(session: &mut Box<ServerSession>, control: &Control) -> Vec<HttpTask> {
        if !session.is_custom() {
            return Vec::new();
        }
        // Dropping the stand-in puts the session it held into the slot.
        **session = ServerSession::Custom(Box::new(()));
        let Some((inner, mut later)) = control.slot.lock().take() else { return Vec::new() };
        *session = inner;
        later.take()
    }

    /// Writes what [`Downstream::uninstall`] gave back.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn settle(session: &mut ServerSession, later: Vec<HttpTask>) -> Result<()> {
        join::go_on(session).await?;
        if !later.is_empty() {
            session.response_duplex_vec(later).await?;
        }
        Ok(())
    }

    /// Waits for the client's next move while our own timers run. Ends by itself only with the
    /// next piece of the body, where `room` is waited for: an error says what ended the wait.
    /// This is polled whenever Pingora waits for the provider.
    async fn watch(&mut self, room: Option<Arc<Room>>) -> Result<Option<Bytes>> {
        self.release().await;
        loop {
            let deadline = self.control.clock.next();
            let next = self.hold.sooner(deadline.map(|(at, _)| at));
            if let Some(at) = next.map(tokio::time::Instant::from_std)
                && (at < self.sleep.deadline() || self.sleep.is_elapsed())
            {
                self.sleep.as_mut().reset(at);
            }
            let fired = tokio::select! {
                moved = join::next_move(&mut self.inner) => match moved? {
                    join::Move::Read(read) => return Ok(read),
                    join::Move::Wrote => continue,
                },
                () = self.sleep.as_mut() => true,
                () = self.bell.as_mut() => false,
                () = back(room.as_deref()) => {
                    let piece = self.control.exchange().feed.next_piece();
                    if piece.is_some() {
                        return Ok(piece);
                    }
                    continue;
                }
            };
            if !fired {
                join::go_on_now(&mut self.inner)?;
                return Error::e_explain(CUT, "the drain time is over");
            }
            let now = Instant::now();
            if let Some((at, timer)) = self.control.clock.next()
                && now >= at
            {
                if timer == Timer::Total {
                    join::go_on_now(&mut self.inner)?;
                }
                self.control.exchange().expired(timer);
                return Error::e_explain(TIMER, timer.as_str());
            }
            self.keep_alive(now)?;
            // A timer that fired early (its deadline has moved on since) is set anew above.
            if self.sleep.is_elapsed() {
                let later = now + std::time::Duration::from_secs(3600);
                self.sleep.as_mut().reset(later.into());
            }
        }
    }

    /// Passes what the provider sent through the relay, and writes what is left of it.
    async fn relay(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        // The provider's side is through, so that nothing of it can end these waits.
        let through =
            tasks.last().is_some_and(HttpTask::is_end) && self.control.exchange().feed.is_written();
        if through {
            pace::abreast().await;
        }
        let mut out = Vec::with_capacity(2);
        let mut hand = tasks.len();
        let (turn, leaving, waits) = {
            let mut x = self.control.exchange();
            let leaving = x.ticket().is_some_and(|t| t.phase() > Phase::Serving);
            x.gather(through);
            let turn = x.relay(tasks, &self.control.clock, &mut out);
            x.gather(false);
            let ends = through && out.last().is_some_and(HttpTask::is_end);
            let waits = ends && matches!(turn, Ok(Turn::On));
            if !waits {
                x.settle();
            }
            let turn = turn?;
            // An end waits for nothing, and while a body is still sent, that is what is waited for.
            if turn == Turn::End || x.is_committed() || !x.feed.is_done() || !self.joins() {
                hand = 0;
            }
            (turn, leaving, waits)
        };
        if turn == Turn::End || leaving {
            self.inner.set_keepalive(None);
        }
        if waits {
            pace::abreast().await;
            self.control.exchange().settle();
        }
        let done = match self.later.keep(hand, out) {
            Some(out) if !out.is_empty() => self.write(out).await?,
            _ => false,
        };
        #[cfg(debug_assertions)]
        if self.control.exchange().is_committed() {
            failpoint::pass(failpoint::Point::AfterWrite);
        }
        match turn {
            Turn::On => Ok(done),
            Turn::End => Error::e_explain(ENDED, "the answer has ended"),
        }
    }

    async fn write(&mut self, out: Vec<HttpTask>) -> Result<bool> {
        if out.iter().all(part::fits) {
            return self.write_part(out).await;
        }
        let mut done = false;
        for task in out {
            for part in part::parts(task) {
                done = self.write_part(vec![part]).await?;
            }
        }
        Ok(done)
    }

    /// One write, bounded by the request's deadline and the drain: a client that does not read
    /// must not keep either from coming.
    async fn write_part(&mut self, part: Vec<HttpTask>) -> Result<bool> {
        let total = self.control.clock.total_left(Instant::now());
        let write = async {
            join::go_on(&mut self.inner).await?;
            self.inner.response_duplex_vec(part).await
        };
        tokio::pin!(write);
        if let std::task::Poll::Ready(done) = pace::now(write.as_mut()) {
            return done;
        }
        let since = Instant::now();
        let late = async {
            match total {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = write => {
                // The provider could not be heard meanwhile: its silence was ours.
                self.control.clock.postpone(since.elapsed());
                done
            }
            () = late => Error::e_explain(STALLED, "the client does not read"),
            () = self.bell.as_mut() => Error::e_explain(STALLED, "the client does not read"),
        }
    }
}

/// When another piece of the body may be handed out.
async fn back(room: Option<&Room>) {
    match room {
        Some(room) => room.back().await,
        None => std::future::pending().await,
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        let later = std::mem::take(&mut self.later);
        *self.control.slot.lock() = Some((std::mem::replace(&mut self.inner, nobody()), later));
    }
}
