//! What the tests stand on: a scripted provider, a gateway in process or as the binary, and a
//! client that sees every byte.
//!
//! Nothing here sleeps for luck: what is waited for is looked at until it is there, and
//! [`PATIENCE`] ends a test that would hang.

pub mod ask;
pub mod binary;
pub mod client;
pub mod gateway;
pub mod h2c;
pub mod reply;
pub mod spool;
pub mod tls;
pub mod toml;
pub mod wires;

mod selftest;

pub use ask::{Ask, chat, streamed};
pub use binary::Weir;
pub use client::Client;
pub use gateway::{Gateway, gateway};
pub use reply::Reply;
pub use weir::demo::{Action, Answer, Cut, Gate, Provider, Script, Seen, Tool, Usage, knobs};

use std::future::Future;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything a test waits for. Whoever runs out of it has hung.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The virtual key of [`toml::key`].
pub const KEY: &str = "sk-test";

/// The prompt of [`chat`]: what the provider's own count is compared with.
pub const PROMPT: &str = "Say hello";

/// A provider that plays a script and remembers every request.
pub async fn provider(script: Script) -> Provider {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    Provider::serve(listener, script, 100_000).unwrap()
}

/// A provider that gives one answer to everything.
pub async fn answering(answer: Answer) -> Provider {
    provider(answer.script()).await
}

/// A script of fixed actions.
pub fn fixed(actions: Vec<Action>) -> Script {
    std::sync::Arc::new(move |_| actions.clone())
}

/// Has no divisor in common with the number of ports: each is met once a round.
const LEAP: u32 = 7_919;

/// A port of the loopback where nobody listens. None that the kernel gives to outgoing connections
/// (from 32768 on): one of the suite's own clients would take it before its listener does.
pub fn closed_port() -> u16 {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU16::new(fastrand::u16(..)));
    loop {
        // In leaps, so that two suites that begin side by side do not walk the same road.
        let n = u32::from(next.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + (n * LEAP % 20_000) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A port of the loopback that refuses every connection and that nobody else can get meanwhile.
#[derive(Debug)]
pub struct Refusing(tokio::net::TcpSocket);

impl Refusing {
    /// Bound, and never listening.
    pub fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }
    /// As a provider's.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.0.local_addr().unwrap())
    }
}

/// Waits for something that must not take long, and says what it was when it does.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

/// Looks every 10 ms until `look` finds something: for what changes outside of this process.
pub async fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A test that cannot run here says so. With `WEIR_REQUIRE=1` that is a failure.
pub fn skip(why: &str) {
    assert!(std::env::var_os("WEIR_REQUIRE").is_none_or(|v| v != "1"), "required, but {why}");
    eprintln!("skipped: {why}");
}

/// The recorded cases: `WEIR_FIXTURES`, else beside the project. `None` (after [`skip`]) when they
/// are not there.
pub fn fixtures() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    let path = std::env::var_os("WEIR_FIXTURES").map_or_else(beside, PathBuf::from);
    if !path.is_dir() {
        skip(&format!("there are no recorded cases at {}", path.display()));
        return None;
    }
    Some(path)
}
