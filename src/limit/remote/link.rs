//! The connection to Redis: kept, watched by signs of life, and the one task that tells Redis what
//! is settled.

use super::Remote;
use super::call::Call;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, ServerErrorKind, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const SCRIPT: &str = include_str!("script.lua");
const BEAT: &str = include_str!("beat.lua");

/// Between two signs of life.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// The same while Redis is away.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// A node that gave no sign of life for so long is none.
const NODE_LIVES: Duration = Duration::from_secs(10);
/// A connection that answers nothing for so many signs of life is given up: its other end may
/// have vanished without a word.
const DEAF_MAX: u32 = 8;
/// For a connection to be made.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// For one settlement: nobody waits for it, so it may be slower than a reservation.
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// Settlements told at once.
const BATCH: usize = 64;

/// A connection and its scripts' names.
#[derive(Clone)]
pub struct Link {
    connection: MultiplexedConnection,
    script: String,
    beat: String,
}

impl Link {
    async fn open(client: &Client) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { connection, script: sha1(SCRIPT), beat: sha1(BEAT) })
    }

    /// One call of the script.
    ///
    /// # Errors
    /// Redis' or the connection's.
    pub(super) async fn invoke(&self, call: &Call) -> Result<Value, RedisError> {
        self.run((&self.script, SCRIPT), &call.keys, &call.words).await
    }

    async fn beat(&self, nodes: &str, name: &str) -> Result<u64, RedisError> {
        let words = [name.to_owned(), NODE_LIVES.as_millis().to_string()];
        let value = self.run((&self.beat, BEAT), &[nodes.to_owned()], &words).await?;
        redis::from_redis_value(value).map_err(Into::into)
    }

    /// By its hash; a server that has forgotten the script gets it whole.
    async fn run(
        &self,
        (hash, code): (&str, &str),
        keys: &[String],
        words: &[String],
    ) -> Result<Value, RedisError> {
        let mut connection = self.connection.clone();
        let command = |name: &str, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script).arg(keys.len()).arg(keys).arg(words);
            command
        };
        match command("EVALSHA", hash).query_async(&mut connection).await {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                command("EVAL", code).query_async(&mut connection).await
            }
            answer => answer,
        }
    }

    /// What the server does when its memory is full.
    async fn policy(&self) -> Option<String> {
        let mut info = redis::cmd("INFO");
        let text: String =
            info.arg("memory").query_async(&mut self.connection.clone()).await.ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("maxmemory_policy:"));
        line.map(|l| l.trim().to_owned())
    }
}

/// A script's name on the server is its SHA-1; nothing secret depends on it.
fn sha1(code: &str) -> String {
    use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, code.as_bytes());
    digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// A client of one server.
///
/// # Errors
/// An address that is none.
pub fn client(
    url: &str,
    user: Option<&str>,
    password: Option<&str>,
) -> Result<redis::Client, String> {
    use redis::IntoConnectionInfo as _;
    let said = |e: redis::RedisError| e.to_string();
    let mut info = url.into_connection_info().map_err(said)?;
    // Without CLIENT SETINFO, which Redis before 7.2 cannot even grant.
    let mut settings = info.redis_settings().clone().set_skip_set_lib_name();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    info = info.set_redis_settings(settings);
    redis::Client::open(info).map_err(said)
}

pub(super) async fn run(remote: Arc<Remote>, calls: mpsc::Receiver<Call>, client: Client) {
    let name = format!("{:016x}", fastrand::u64(..));
    let nodes = format!("{}{{nodes}}", remote.settings.prefix);
    tokio::join!(watch(&remote, &client, &nodes, &name), tell(&remote, calls));
}

/// Connects, and asks for signs of life: in time, and Redis counts; else this node does.
async fn watch(remote: &Remote, client: &Client, nodes: &str, name: &str) {
    let mut deaf = 0;
    let mut warned = false;
    loop {
        let link = match remote.link.load_full() {
            Some(link) => Some(link),
            None => match Link::open(client).await {
                Ok(link) => {
                    deaf = 0;
                    let link = Arc::new(link);
                    remote.link.store(Some(link.clone()));
                    Some(link)
                }
                Err(error) => {
                    remote.fails(&error);
                    None
                }
            },
        };
        let Some(link) = link else {
            remote.set_up(false);
            sleep(PROBE_EVERY).await;
            continue;
        };
        match timeout(remote.settings.timeout, link.beat(nodes, name)).await {
            Ok(Ok(count)) => {
                deaf = 0;
                remote.nodes.store(count, std::sync::atomic::Ordering::Relaxed);
                remote.set_up(true);
                if !std::mem::replace(&mut warned, true) {
                    warn(&link).await;
                }
            }
            Ok(Err(error)) => {
                remote.fails(&error);
                remote.set_up(false);
                remote.link.store(None);
            }
            // One late sign of life may be ours to blame; the calls in between decide.
            Err(_) => {
                deaf += 1;
                if deaf > 1 {
                    remote.set_up(false);
                }
                if deaf >= DEAF_MAX {
                    remote.link.store(None);
                }
            }
        }
        sleep(if remote.is_up() { BEAT_EVERY } else { PROBE_EVERY }).await;
    }
}

async fn warn(link: &Link) {
    if let Some(policy) = link.policy().await.filter(|p| p != "noeviction") {
        log::warn!(
            policy = policy.as_str();
            "redis may drop counters when its memory is full: set maxmemory-policy to noeviction"
        );
    }
}

/// Tells Redis every settlement in order, each until it is heard.
async fn tell(remote: &Arc<Remote>, mut calls: mpsc::Receiver<Call>) {
    let mut batch = Vec::with_capacity(BATCH);
    while calls.recv_many(&mut batch, BATCH).await > 0 {
        let mut left = std::mem::take(&mut batch);
        while !left.is_empty() {
            let Some(link) = remote.link.load_full().filter(|_| remote.is_up()) else {
                sleep(PROBE_EVERY).await;
                continue;
            };
            left = together(remote, &link, left).await;
        }
    }
}

/// Those that were not heard.
async fn together(remote: &Arc<Remote>, link: &Arc<Link>, calls: Vec<Call>) -> Vec<Call> {
    let mut running = JoinSet::new();
    for call in calls {
        let link = link.clone();
        running.spawn(async move {
            let answer = timeout(SETTLE_MAX, link.invoke(&call)).await;
            (call, answer)
        });
    }
    let mut left = Vec::new();
    while let Some(done) = running.join_next().await {
        let Ok((call, answer)) = done else { continue };
        match answer {
            Ok(Ok(value)) => {
                remote.heard(&call, value);
                remote.told();
            }
            // What the server itself refuses would be refused again.
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::Server(_)) && !passing(&error) => {
                log::error!("redis refuses a settlement: {error}");
                remote.told();
            }
            Ok(Err(_)) | Err(_) => {
                (remote.hooks.called)(None);
                remote.set_up(false);
                left.push(call);
            }
        }
    }
    left
}

/// Errors of a server that is starting, or is a replica for a moment.
fn passing(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
        )
    )
}
