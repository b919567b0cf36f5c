//! A gateway in this process: the real proxy, spool, metrics and access log, on a port of its own.

use super::binary::metric;
use super::h2c::H2;
use super::{Ask, Client, Reply, found, spool};
use pingora::apps::{HttpServerOptions, ServerApp};
use pingora::protocols::Stream;
use pingora::proxy::{HttpProxy, http_proxy};
use pingora::server::configuration::ServerConf;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use weir::config::{Access, Loaded, load_text};
use weir::flow::Phase;
use weir::observe::{AccessLog, Gauges, Metrics, Output};
use weir::proxy::Proxy;

/// A running gateway; dropping it closes its listener and every connection.
#[derive(Debug)]
pub struct Gateway {
    /// What the proxy runs on, for tests that look inside or drain it.
    pub inner: Arc<weir::flow::Gateway>,
    port: u16,
    dir: TempDir,
    task: JoinHandle<()>,
    _shutdown: watch::Sender<bool>,
}

/// Starts a gateway under this config; a faulty one fails the test with every fault.
pub async fn gateway(toml: &str) -> Gateway {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let head = format!("[log]\naccess = \"{}\"\n", log.display());
    let text = if toml.contains("[log]") { toml.to_owned() } else { head + toml };
    let Loaded { snapshot, .. } = load_text(&dir.path().join("weir.toml"), &text, &|_| None)
        .unwrap_or_else(|faults| panic!("{faults:#?} in\n{text}"));
    let spool = weir::meter::Spool::open(&dir.path().join("spool")).unwrap();
    let output = match &snapshot.log.access {
        Access::File(path) => Output::File(path.clone()),
        Access::Stderr | Access::Off => Output::Off,
    };
    let access = AccessLog::open(&output, snapshot.log.redact).unwrap();
    let metrics = Metrics::new().unwrap();
    let providers = snapshot.routes.providers.values();
    let offers = providers.flat_map(|p| p.offers.iter().map(|o| o.name.as_str().to_owned()));
    let offers: Vec<_> = offers.collect();
    metrics.know(offers.iter().map(String::as_str), ["crew"]);
    let inner = weir::flow::Gateway::new(snapshot, spool, metrics, access);
    let weak = Arc::downgrade(&inner);
    inner.metrics.on_scrape(move || Gauges {
        listening: true,
        store_up: true,
        draining: weak.upgrade().is_some_and(|g| g.drain.phase() >= Phase::Leaving),
        in_flight: weak.upgrade().map_or(0, |g| g.in_flight() as u64),
        ..Gauges::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (shutdown, watched) = watch::channel(false);
    let task = tokio::spawn(accept(listener, Front::new(&inner), watched));
    Gateway { inner, port, dir, task, _shutdown: shutdown }
}

/// One proxy, spoken to in either protocol: Pingora looks for h2c in 24 bytes, which a short
/// HTTP/1.0 request does not have.
struct Front {
    h1: Arc<HttpProxy<Proxy>>,
    h2c: Arc<HttpProxy<Proxy>>,
}

impl Front {
    fn new(gateway: &Arc<weir::flow::Gateway>) -> Arc<Self> {
        let conf = Arc::new(ServerConf { max_retries: 64, ..ServerConf::default() });
        let proxy = |h2c| {
            let mut proxy = http_proxy(&conf, Proxy::new(gateway.clone()));
            let mut options = HttpServerOptions::default();
            options.h2c = h2c;
            proxy.server_options = Some(options);
            Arc::new(proxy)
        };
        Arc::new(Self { h1: proxy(false), h2c: proxy(true) })
    }
    async fn serve(&self, stream: TcpStream, shutdown: &watch::Receiver<bool>) {
        let mut two = [0; 2];
        let h2 = stream.peek(&mut two).await.is_ok() && &two == b"PR";
        let app = if h2 { &self.h2c } else { &self.h1 };
        stream.set_nodelay(true).unwrap();
        let stream = pingora::protocols::l4::stream::Stream::from(stream);
        let mut next: Option<Stream> = Some(Box::new(stream));
        while let Some(stream) = next {
            next = app.process_new(stream, shutdown).await;
        }
    }
}

async fn accept(listener: TcpListener, front: Arc<Front>, shutdown: watch::Receiver<bool>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.unwrap();
                let (front, shutdown) = (front.clone(), shutdown.clone());
                open.spawn(async move { front.serve(stream, &shutdown).await });
            }
            Some(_) = open.join_next() => {}
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Gateway {
    /// Where it listens, on the loopback.
    pub fn port(&self) -> u16 {
        self.port
    }
    /// Its spool.
    pub fn spool(&self) -> PathBuf {
        self.dir.path().join("spool")
    }
    /// A connection.
    pub async fn client(&self) -> Client {
        Client::connect(self.port).await
    }
    /// A connection in h2c.
    pub async fn h2(&self) -> H2 {
        H2::connect(self.port).await
    }
    /// One exchange on a connection of its own.
    pub async fn ask(&self, ask: &Ask) -> Reply {
        self.client().await.ask(ask).await
    }
    /// Every event, once no request is open.
    pub async fn events(&self) -> Vec<Value> {
        found("the last request's end", || (self.inner.in_flight() == 0).then_some(())).await;
        spool::read(&self.spool())
    }
    /// The one event there is.
    pub async fn event(&self) -> Value {
        let mut events = self.events().await;
        assert_eq!(events.len(), 1, "{events:#?}");
        events.remove(0)
    }
    /// The access log's lines, once no request is open.
    pub async fn lines(&self) -> Vec<Value> {
        self.events().await;
        self.inner.access.flush();
        let text = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }
    /// The sum of a metric's series that bear these labels; `None` when there is none.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        metric(&self.inner.metrics.render(), name, labels)
    }
    /// All that it has written anywhere: spool, access log, metrics.
    pub async fn traces(&self) -> String {
        let events = self.events().await;
        let spool: Vec<_> = spool::lines(&self.spool()).iter().map(Value::to_string).collect();
        let lines: Vec<_> = self.lines().await.iter().map(Value::to_string).collect();
        assert!(spool.len() >= events.len());
        [spool.concat(), lines.concat(), self.inner.metrics.render()].join("\n")
    }
}
