//! The data plane: Pingora's phases in the order they run, each one short call.
//!
//! With `server` this is the only code that names Pingora. `intake` takes a request in, `session`
//! stands between Pingora and the client from then on, `relay` turns the provider's reply into the
//! caller's, `settle` judges what goes wrong, `answer` speaks for ourselves.

mod answer;
mod body;
mod cork;
mod dial;
pub mod dry;
mod endpoint;
mod flood;
mod forward;
pub mod head;
pub mod health;
mod intake;
mod models;
pub mod outbound;
mod pace;
mod peer;
mod relay;
pub mod resolver;
mod session;
mod settle;
mod tries;
mod unpack;

use crate::flow::{Committed, Ending, Gateway, Phase, Ticket};
use crate::meter::Outcome;
use crate::observe::tables::Size;
use async_trait::async_trait;
use cork::Held;
use endpoint::Endpoint;
use forward::Head;
use intake::Taken;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::protocols::http::compression::ResponseCompressionCtx;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, Result};
use relay::Exchange;
use resolver::Resolver;
use session::{Control, Downstream, REJECTED, Timer};
use settle::Verdict;
use std::sync::Arc;
use std::time::Instant;
use weir_filters::error::{ApiError, Code};

/// The gateway as Pingora runs it.
#[derive(Debug)]
pub struct Proxy {
    gateway: Arc<Gateway>,
    resolver: Arc<Resolver>,
    guard: flood::Guard,
    started: Instant,
}

/// What Pingora keeps of one request between two phases.
#[derive(Debug)]
pub struct Context {
    arrived: Instant,
    control: Option<Arc<Control>>,
    committed: Option<Committed>,
    head: Option<Head>,
}

impl Proxy {
    /// A proxy of this gateway.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>) -> Self {
        let guard = flood::Guard::new(gateway.clone());
        let resolver: Arc<Resolver> = Arc::default();
        let (weak, of) = (Arc::downgrade(&gateway), Arc::downgrade(&resolver));
        gateway.metrics.tables.on_scrape(move |tell| {
            if let (Some(gateway), Some(resolver)) = (weak.upgrade(), of.upgrade()) {
                let most = gateway.snapshot.load().routes.providers.len();
                tell(Size::new("addresses", resolver.len(), most));
            }
        });
        Self { gateway, resolver, guard, started: Instant::now() }
    }

    /// Providers' addresses, to be kept fresh by [`resolver::run`].
    #[must_use]
    pub fn resolver(&self) -> Arc<Resolver> {
        self.resolver.clone()
    }

    /// Answers a request that goes nowhere.
    async fn answer(
        &self,
        session: &mut Session,
        c: &mut Context,
        ticket: Box<Ticket>,
        taken: Taken,
    ) -> Result<bool> {
        let (header, body, outcome, error) = match &taken {
            Taken::Local(header, body) => (header.clone(), body.clone(), Outcome::Success, None),
            Taken::Refused(error) | Taken::Last(error) => {
                let (header, body) = answer::error(&ticket, error)?;
                (header, body, Outcome::Refused, Some(error))
            }
            Taken::Proxy => return Ok(false),
        };
        let status = header.status.as_u16();
        let ending = Ending { outcome, status, error, tap: None };
        let unread = !session.is_body_done();
        let last = matches!(taken, Taken::Last(_));
        let hopeless = last || session.req_header().headers.contains_key("expect");
        if last || (unread && hopeless) || ticket.phase() > Phase::Serving {
            session.set_keepalive(None);
        }
        c.committed = Some(ticket.commit(ending));
        answer::write(session, header, body).await?;
        if let Some(committed) = c.committed.take() {
            committed.tell();
        }
        // A socket closed with unread bytes in it is reset, and takes the answer along.
        if unread && !hopeless && session.as_http1().is_some() {
            let _ = session.drain_request_body().await; // one that never ends is reset in the end
        }
        Ok(true)
    }
}

fn rejected<T>() -> Result<T> {
    Error::e_explain(REJECTED, "no try can be made")
}

/// A request in a log line: never its query, which may hold a key.
pub(super) fn summary(head: &RequestHeader) -> String {
    format!("{} {}", head.method, head.uri.path())
}

#[async_trait]
impl ProxyHttp for Proxy {
    // Boxed: Pingora keeps it inside its futures, which it copies for every request.
    type CTX = Box<Context>;

    /// None: Pingora's own one compresses answers, and is not used.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    fn new_ctx(&self) -> Box<Context> {
        let arrived = Instant::now();
        Box::new(Context { arrived, control: None, committed: None, head: None })
    }

    // Pingora calls this after the head and before all else, where the connection has something
    // to say; ours has since its beginning (see `server::front`).
    fn on_connection_reuse(
        &self,
        _session: &mut Session,
        _c: &mut Box<Context>,
        connection: Box<dyn std::any::Any + Send + Sync>,
    ) {
        if let Some(head) = connection.downcast_ref::<head::Head>() {
            head.read();
        }
    }

    async fn request_filter(&self, session: &mut Session, c: &mut Box<Context>) -> Result<bool> {
        let endpoint =
            Endpoint::find(&session.req_header().method, session.req_header().uri.path());
        // On the heap from the start: it goes through many hands.
        let arrival = intake::arrival(session, &endpoint, c.arrived);
        let mut ticket = Box::new(Ticket::new(&self.gateway, arrival));
        ticket.record.free = !endpoint.is_metered();
        let old = session.req_header().version == http::Version::HTTP_10;
        {
            let (server, client) = (&ticket.snapshot.server, &mut session.downstream_session);
            client.set_write_timeout(Some(server.client_write));
            client.set_total_drain_timeout(Some(intake::DRAIN));
            let keep = server.idle.as_secs().max(1);
            // Where Pingora has decided to close (a length beside chunks), it stays so.
            let kept = client.as_http1().is_some_and(|h1| h1.will_keepalive()) && !old;
            client.set_keepalive((kept && ticket.phase() == Phase::Serving).then_some(keep));
            client.set_pipelining_enabled(true);
            client.set_close_on_response_before_downstream_finish(false);
        }
        match intake::take(session, &mut ticket, &endpoint, &self.guard).await {
            Ok(Taken::Proxy) => {
                forward::strip(session.req_header_mut());
                let control = Control::new(Exchange::new(ticket, old), c.arrived);
                Downstream::install(&mut session.downstream_session, control.clone());
                c.control = Some(control);
                Ok(false)
            }
            Ok(taken) => self.answer(session, c, ticket, taken).await,
            Err(error) => {
                let (outcome, status) = (Outcome::ClientAbort, 499);
                let ending = Ending { outcome, status, error: None, tap: None };
                c.committed = Some(ticket.commit(ending));
                Err(error.into_down())
            }
        }
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        c: &mut Box<Context>,
    ) -> Result<Box<HttpPeer>> {
        let Some(control) = c.control.clone() else { return rejected() };
        pace::abreast().await;
        let wait = std::mem::take(&mut control.exchange().wait);
        control.clock.disarm();
        // Pingora keeps the state of the last reply's decompression, and dies of it at the second
        // try (pingora-core 0.9.1, protocols/http/compression/mod.rs, request_filter).
        session.upstream_compression = ResponseCompressionCtx::new(0, false, false);
        self.wait(session, &control, wait).await?;
        self.try_next(session, &control, c).await
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        c: &mut Box<Context>,
        mut error: Box<Error>,
    ) -> Box<Error> {
        let verdict = c.control.as_ref().map_or(Verdict::Stop, |control| {
            settle::connect(&mut control.exchange(), &error, Instant::now())
        });
        error.as_up();
        error.set_retry(verdict == Verdict::Retry);
        error
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        _reused: bool,
        peer: &HttpPeer,
        _fd: std::os::unix::io::RawFd,
        digest: Option<&Digest>,
        c: &mut Box<Context>,
    ) -> Result<()> {
        let Some(control) = c.control.as_ref() else { return Ok(()) };
        let now = Instant::now();
        let mut x = control.exchange();
        // Over HTTP/2 a connection is not one request's.
        if peer.options.alpn.get_max_http_version() == 1 && !x.feed.is_empty() {
            x.feed.follows(digest.and_then(Held::begin));
        }
        if let Some(ticket) = x.ticket() {
            ticket.connected(now);
            let (timer, wait) = if ticket.streams() {
                (Timer::FirstToken, ticket.first_token())
            } else {
                (Timer::Reply, ticket.reply_wait())
            };
            control.clock.arm(timer, now, wait);
        }
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        c: &mut Box<Context>,
    ) -> Result<()> {
        // Each try has its own; without one the caller's would go out, its credentials among it.
        let Some(head) = c.head.take() else { return rejected() };
        head.apply(request);
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        header: &mut ResponseHeader,
        _c: &mut Box<Context>,
    ) -> Result<()> {
        // Nobody was asked to compress, so that Pingora need not look at what was asked for.
        let unpacking = &mut session.upstream_compression;
        if header.headers.contains_key(http::header::CONTENT_ENCODING)
            && unpacking.is_header_phase()
        {
            unpacking.adjust_decompression(true);
            unpacking.response_header_filter(header, false);
        }
        // The relay makes the caller's header; this only keeps Pingora from framing the old one.
        header.remove_header("content-length");
        Ok(())
    }

    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        _session: &mut Session,
        error: Box<Error>,
        c: &mut Box<Context>,
        reused: bool,
    ) -> Box<Error> {
        let mut error = error.more_context(format!("provider at {}", peer._address));
        let Some(control) = c.control.as_ref() else { return error };
        control.clock.disarm();
        let verdict = settle::judge(&mut control.exchange(), &error, reused, Instant::now());
        if verdict == Verdict::Gone {
            error.as_down();
        } else {
            error.as_up();
        }
        error.set_retry(verdict == Verdict::Retry);
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        c: &mut Box<Context>,
    ) -> FailToProxy {
        let Some(control) = c.control.as_ref() else {
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        };
        let later = Downstream::uninstall(&mut session.downstream_session, control);
        session.set_keepalive(None);
        let gone = intake::is_client(error);
        let last = control.exchange().last_words(gone);
        // What was said before the failure comes before it.
        if !gone && Downstream::settle(&mut session.downstream_session, later).await.is_err() {
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        }
        // A client that is gone meanwhile needs no answer, and its event is written.
        let _ = match last {
            relay::Last::Nothing => Ok(()),
            relay::Last::Close => session.write_response_body(None, true).await,
            relay::Last::Event(event) => session.write_response_body(Some(event), true).await,
            relay::Last::Answer(header, body) => answer::write(session, header, body).await,
        };
        FailToProxy { error_code: 0, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, _error: Option<&Error>, c: &mut Box<Context>) {
        if let Some(control) = c.control.take() {
            // Answers that are ready leave first, one behind the other.
            pace::abreast().await;
            Downstream::uninstall(&mut session.downstream_session, &control);
            let mut x = control.exchange();
            x.commit(Outcome::ClientAbort, 499, None);
            c.committed = x.committed();
        }
        if let Some(committed) = c.committed.take() {
            committed.tell();
        }
    }

    fn request_summary(&self, session: &Session, _c: &Box<Context>) -> String {
        summary(session.req_header())
    }

    fn suppress_error_log(&self, _session: &Session, _c: &Box<Context>, _error: &Error) -> bool {
        // Each request has its line in the access log, and its error in its event.
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _c: &Box<Context>,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

/// An error of our own that nothing more is known of.
pub(super) fn internal(message: &str) -> ApiError {
    ApiError::new(Code::Internal, message)
}
