//! Before each try: the wait that is due, the provider whose turn it is, the way to it.

use super::dial::Way;
use super::peer::{self, Left};
use super::session::Control;
use super::settle::{self, Verdict};
use super::{Context, Proxy, forward, intake, pace, rejected};
use crate::flow::{Phase, Step};
use crate::route::Provider;
use pingora::proxy::Session;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use std::task::Poll;
use std::time::{Duration, Instant};
use weir_filters::error::Class;

impl Proxy {
    /// The wait before a try, watched: a client that leaves ends it, and so do the request's own
    /// time and the end of the drain.
    pub(super) async fn wait(
        &self,
        session: &mut Session,
        control: &Control,
        wait: Duration,
    ) -> Result<()> {
        if wait.is_zero() {
            return Ok(());
        }
        let mut error = tokio::select! {
            () = tokio::time::sleep(wait) => return Ok(()),
            end = session.downstream_session.read_body_or_idle(true) => match end {
                Ok(_) => Error::explain(ErrorType::ConnectionClosed, "the client left"),
                Err(error) => error,
            },
        };
        let x = &mut control.exchange();
        // What is none of our own errors is the client's: nobody else is there.
        if !matches!(error.etype(), ErrorType::Custom(_)) {
            error.as_down();
        }
        if settle::judge(x, &error, false, Instant::now()) == Verdict::Gone {
            error.as_down();
        } else {
            error.as_in();
        }
        error.set_retry(false);
        Err(error)
    }

    /// Makes the next try: its request, its deadlines, its address. Where everybody is too fast
    /// for a moment, the moment is waited for.
    pub(super) async fn try_next(
        &self,
        session: &mut Session,
        control: &Control,
        c: &mut Context,
    ) -> Result<Box<HttpPeer>> {
        let attempt = loop {
            match self.make_try(control, c)? {
                Step::Try(attempt) => break attempt,
                Step::Wait(wait) => self.wait(session, control, wait).await?,
            }
        };
        let provider = attempt.provider.clone();
        control.exchange().begin(*attempt);
        let found = match &provider.through {
            Some(_) => Ok(None),
            None => self.way(&provider, control).await.map(Some),
        };
        let way = match found {
            Ok(way) => way,
            Err(why) => {
                let x = &mut control.exchange();
                let verdict = settle::unresolved(x, why.0, &why.1, Instant::now());
                return rejected().map_err(|mut e: Box<Error>| {
                    e.set_retry(verdict == Verdict::Retry);
                    e
                });
            }
        };
        let now = Instant::now();
        let total = control.clock.total_left(now);
        let times = &provider.timeouts;
        let silence = control.exchange().ticket().and_then(|ticket| match ticket.streams() {
            true => times.first_token.zip(times.idle).map(|(a, b)| a.max(b)),
            false => ticket.reply_wait(),
        });
        let left = Left { total, silence };
        Ok(Box::new(peer::peer(
            &provider,
            way,
            left,
            now.saturating_duration_since(self.started).as_secs(),
        )))
    }

    /// The way to a provider, in the time that a connection to it has.
    async fn way(&self, provider: &Provider, control: &Control) -> Result<Way, (Class, String)> {
        let mut way = std::pin::pin!(async {
            self.resolver.way(&provider.base).await.map_err(|why| (Class::Server, why))
        });
        if let Poll::Ready(known) = pace::now(way.as_mut()) {
            return known;
        }
        let left = control.clock.total_left(Instant::now());
        let Some(within) = peer::sooner(provider.timeouts.connect, left) else { return way.await };
        let late = |_| {
            let why = format!("connect timeout: no address of {} in time", provider.base.host);
            Err((Class::Timeout, why))
        };
        tokio::time::timeout(within, way).await.unwrap_or_else(late)
    }

    fn make_try(&self, control: &Control, c: &mut Context) -> Result<Step> {
        let since = Instant::now();
        let mut x = control.exchange();
        let Some(ticket) = x.ticket() else { return rejected() };
        if ticket.phase() == Phase::Cut {
            settle::cut(&mut x);
            return rejected();
        }
        let step = match ticket.attempt(since) {
            Ok(step) => step,
            Err(error) => {
                x.refuse(error);
                return rejected();
            }
        };
        if let Step::Try(attempt) = &step {
            let (id, trace) = (&ticket.arrival.request_id, &ticket.arrival.trace_id);
            let head = forward::head(attempt, id, intake::traceparent(trace), ticket.streams());
            c.head = Some(head?);
            if ticket.tries() == 0 {
                ticket.announce();
            }
            control.clock.arm_total(ticket.arrival.at, attempt.provider.timeouts.total);
        }
        ticket.own_since(since);
        Ok(step)
    }
}
