//! A client connection before its first request: counted, and told h1 from h2c in bounded time.
//!
//! With h2c on, Pingora waits for 24 bytes of any new connection and sets no limit
//! (pingora-core 0.9.1, apps/mod.rs `process_new`): a client that sends nothing stays for ever, and
//! `GET / HTTP/1.0` in 18 bytes is never answered. Here two bytes decide, under `server.header`,
//! and every head of the connection has that time too.

use super::{Shared, files, tls};
use crate::flow::Gateway;
use crate::proxy::Proxy;
use crate::proxy::head::{Head, Timed};
use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// `PRI * HTTP/2.0…` (RFC 9113 section 3.4) is the only thing that begins so and is not HTTP/1.
const H2_BEGINS: &[u8; 2] = b"PR";
/// The whole preface: Pingora peeks at this much.
const H2_PREFACE_BYTES: usize = 24;

/// The application behind every client listener.
pub struct Front {
    gateway: Arc<Gateway>,
    shared: Arc<Shared>,
    proxy: Arc<HttpProxy<Proxy>>,
    /// Listeners that speak TLS.
    secure: Vec<SocketAddr>,
    h1: HttpServerOptions,
    h2c: HttpServerOptions,
}

impl Front {
    /// One proxy, spoken to in either protocol.
    pub fn new(
        gateway: Arc<Gateway>,
        shared: Arc<Shared>,
        proxy: HttpProxy<Proxy>,
        secure: Vec<SocketAddr>,
    ) -> Self {
        let idle = gateway.snapshot.load().server.idle;
        let options = |h2c| {
            let mut options = HttpServerOptions::default();
            options.h2c = h2c;
            options.h2_idle_timeout = Some(idle);
            options
        };
        let (h1, h2c) = (options(false), options(true));
        Self { gateway, shared, proxy: Arc::new(proxy), secure, h1, h2c }
    }

    async fn begins_h2(&self, stream: &mut Stream) -> Option<bool> {
        let limit = self.limit();
        let peek = async {
            let mut two = [0; H2_BEGINS.len()];
            if !stream.try_peek(&mut two).await.ok()? {
                return Some(false);
            }
            let h2 = &two == H2_BEGINS;
            if h2 {
                stream.try_peek(&mut [0; H2_PREFACE_BYTES]).await.ok()?;
            }
            Some(h2)
        };
        tokio::time::timeout(limit, peek).await.ok().flatten()
    }

    /// Connections that clients may have.
    fn most(&self) -> u64 {
        files::clients(self.shared.files, self.gateway.snapshot.load().server.max_requests)
    }

    fn limit(&self) -> Duration {
        self.gateway.snapshot.load().server.header
    }
}

#[async_trait]
impl ServerApp for Front {
    async fn process_new(
        self: &Arc<Self>,
        mut stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let open = Open::new(&self.shared.connections);
        if open.count > self.most() {
            if self.shared.turned_away.fetch_add(1, Ordering::Relaxed) == 0 {
                log::warn!("too many client connections: new ones are closed until some end");
            }
            return None;
        }
        self.shared.pulse.is_here();
        if tls::is_secure(&self.secure, &stream) {
            stream = tls::shake(stream, &self.gateway.snapshot.load_full()).await?;
        }
        // Silent for too long, or gone: there is no request to answer.
        let h2c = self.begins_h2(&mut stream).await?;
        let head = Head::default();
        // A preface that is there needs no watch.
        let stream = match h2c {
            true => stream,
            false => Box::new(Timed::new(stream, head.clone(), self.limit())) as Stream,
        };
        let options = if h2c { &self.h2c } else { &self.h1 }.clone();
        let app = Arc::new(Speaks { proxy: self.proxy.clone(), options, head });
        app.process_new(stream, shutdown).await
    }

    async fn cleanup(&self) {
        // One proxy behind both: this ends the connections that wait for a next request.
        self.proxy.http_cleanup().await;
    }
}

/// The proxy, as one connection speaks to it.
struct Speaks {
    proxy: Arc<HttpProxy<Proxy>>,
    options: HttpServerOptions,
    head: Head,
}

type Reused<'a> = Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'a>>;
type Unit<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

// Written out instead of by #[async_trait]: a request costs no second box this way.
impl HttpServerApp for Speaks {
    fn process_new_http<'s, 'w, 'f>(
        self: &'s Arc<Self>,
        mut session: ServerSession,
        shutdown: &'w ShutdownWatch,
    ) -> Reused<'f>
    where
        's: 'f,
        'w: 'f,
        Self: 'f,
    {
        if session.as_http1().is_some() {
            self.head.expected();
            session.set_connection_user_context(Some(Box::new(self.head.clone())));
        }
        self.proxy.process_new_http(session, shutdown)
    }
    fn h2_options(&self) -> Option<H2Options> {
        self.proxy.h2_options()
    }
    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
    fn http_cleanup<'s, 'f>(&'s self) -> Unit<'f>
    where
        's: 'f,
        Self: 'f,
    {
        self.proxy.http_cleanup()
    }
}

/// One more connection, until it is dropped.
struct Open<'a> {
    all: &'a AtomicU64,
    /// How many there were with this one.
    count: u64,
}

impl<'a> Open<'a> {
    fn new(all: &'a AtomicU64) -> Self {
        Self { all, count: all.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}
