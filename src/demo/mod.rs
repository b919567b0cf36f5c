//! A provider that does what a script says: the far side of `weir demo`, and of the tests.
//!
//! Raw HTTP/1.1 on tokio, so that it can also do what no HTTP library would let it: cut a reply
//! anywhere, reset, stay silent, send half a chunk. [`start`] serves the script [`knobs`], which
//! answers in OpenAI's and Anthropic's forms and fails in the way the last message asks for.

mod answer;
mod anthropic;
mod knobs;
mod openai;
mod play;
mod request;
mod script;

pub use answer::{Answer, Cut, Tool, Usage};
pub use knobs::{Wish, knobs};
pub use request::Request;
pub use script::{Action, Gate, Script};

use bytes::BytesMut;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The virtual key of the demo.
pub const KEY: &str = "sk-weir-demo";

/// The demo's config. It loads as it stands; [`config`] puts the real ports and folder in.
pub const CONFIG: &str = include_str!("demo.toml");

/// More open connections than this are closed at once: a demo is no load test's far side.
const CONNECTIONS_MAX: usize = 8192;

/// How long a failed accept (out of file descriptors) waits before it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What the provider saw of one request, and what became of it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The request, whole.
    pub request: Request,
    /// When its last byte was read.
    pub at: Instant,
    /// Number of the connection it came on, from 0.
    pub connection: usize,
    /// Bytes of the reply written so far, framing included.
    pub sent: usize,
    /// When the peer was found gone before the script had ended.
    pub left: Option<Instant>,
    /// The script was played to its end.
    pub done: bool,
}

/// A running provider; dropping it closes its listener and every connection.
#[derive(Debug)]
pub struct Provider {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    script: RwLock<Script>,
    /// Newest last, at most `keep` of them.
    seen: Mutex<VecDeque<(usize, Seen)>>,
    keep: usize,
    requests: AtomicUsize,
    connections: AtomicUsize,
    /// Rings at every change of `seen`.
    bell: watch::Sender<usize>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("requests", &self.requests).finish_non_exhaustive()
    }
}

/// Serves [`knobs`] on a listener and remembers nothing of the requests but their number.
///
/// # Errors
/// The listener has no local address.
pub async fn start(listener: TcpListener) -> io::Result<Provider> {
    Provider::serve(listener, knobs(), 0)
}

/// [`CONFIG`] with real ports, and `data` as the folder of store and spool.
#[must_use]
pub fn config(gateway: u16, admin: u16, provider: u16, data: &Path) -> String {
    CONFIG
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{gateway}"))
        .replace("127.0.0.1:9180", &format!("127.0.0.1:{admin}"))
        .replace("127.0.0.1:9191", &format!("127.0.0.1:{provider}"))
        .replace("data/demo", &data.display().to_string())
}

/// What to paste into another terminal, for a gateway on `port` of the loopback.
#[must_use]
pub fn curl_lines(port: u16) -> String {
    let line = |flags: &str, body: &str| {
        format!(
            "curl {flags}http://127.0.0.1:{port}/v1/chat/completions \\\n  \
             -H 'authorization: Bearer {KEY}' -H 'content-type: application/json' \\\n  \
             -d '{body}'\n"
        )
    };
    let body = |model: &str, more: &str, say: &str| {
        format!(r#"{{"model":"{model}",{more}"messages":[{{"role":"user","content":"{say}"}}]}}"#)
    };
    [
        "An answer of an OpenAI-style provider:\n",
        &line("", &body("gpt-4o-mini", "", "Say hello")),
        "\nA stream of an Anthropic-style provider, translated:\n",
        &line("-N ", &body("claude-sonnet-4-5", r#""stream":true,"#, "words=12 delay=0.2")),
        "\nA provider that fails (also: hang=1, cut=2, malformed=html, wait=3, status=500):\n",
        &line("-i ", &body("gpt-4o-mini", "", "status=429 retry_after=30")),
    ]
    .concat()
}

impl Provider {
    /// Serves a script on a listener, and remembers the last `keep` requests.
    ///
    /// # Errors
    /// The listener has no local address.
    pub fn serve(listener: TcpListener, script: Script, keep: usize) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            script: RwLock::new(script),
            seen: Mutex::default(),
            keep,
            requests: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            bell: watch::channel(0).0,
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { port, shared, task })
    }
    /// Where it listens, on the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
    /// `http://127.0.0.1:PORT/v1`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
    /// Another script for the requests that come from now on.
    pub fn play(&self, script: Script) {
        *self.shared.script.write() = script;
    }
    /// Requests read whole since the start.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.requests.load(Ordering::Acquire)
    }
    /// Connections accepted since the start.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Acquire)
    }
    /// The requests it remembers, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.seen.lock().iter().map(|(_, seen)| seen.clone()).collect()
    }
    /// Waits until what it remembers satisfies `enough`; looks again at every change.
    pub async fn until(&self, enough: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let mut bell = self.shared.bell.subscribe();
        loop {
            bell.borrow_and_update();
            let seen = self.requests();
            // The sender lives as long as `self`, so `changed` cannot fail before we return.
            if enough(&seen) || bell.changed().await.is_err() {
                return seen;
            }
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn record(&self, request: Request, connection: usize) -> usize {
        let number = self.requests.fetch_add(1, Ordering::AcqRel);
        if self.keep > 0 {
            let at = Instant::now();
            let seen = Seen { request, at, connection, sent: 0, left: None, done: false };
            let mut all = self.seen.lock();
            if all.len() == self.keep {
                all.pop_front();
            }
            all.push_back((number, seen));
        }
        self.bell.send_modify(|n| *n += 1);
        number
    }
    fn note(&self, number: usize, change: impl FnOnce(&mut Seen)) {
        if let Some((_, seen)) = self.seen.lock().iter_mut().rev().find(|(n, _)| *n == number) {
            change(seen);
        }
        self.bell.send_modify(|n| *n += 1);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if open.len() < CONNECTIONS_MAX => {
                    let number = shared.connections.fetch_add(1, Ordering::AcqRel);
                    open.spawn(connection(stream, number, shared.clone()));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = open.join_next() => {}
        }
    }
}

/// One connection, request after request, until either side has had enough.
async fn connection(mut stream: TcpStream, number: usize, shared: Arc<Shared>) {
    let mut buf = BytesMut::with_capacity(16 << 10);
    // Without it a reply of several writes waits for the peer's delayed acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    while let Ok(Some(request)) = request::read(&mut stream, &mut buf).await {
        let actions = shared.script.read().clone()(&request);
        let close = request.wants_close();
        let serial = shared.record(request, number);
        let mut stage = play::Stage::new(&mut stream, &mut buf);
        let played = stage.play(actions, |sent| shared.note(serial, |s| s.sent = sent)).await;
        let sent = stage.sent();
        shared.note(serial, |seen| {
            seen.sent = sent;
            match played {
                Ok(_) => seen.done = true,
                Err(_) => seen.left = Some(Instant::now()),
            }
        });
        if close || !matches!(played, Ok(play::Next::Keep)) {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
