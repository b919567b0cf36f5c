//! TOML files into one immutable [`Snapshot`], or every fault of every file at once.

use crate::access::Keys;
use crate::route::Table;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `[server]`, compiled.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // the names are CONTRACT's
pub struct Server {
    pub listen: Vec<String>,
    pub threads: usize,
    pub max_body: usize,
    pub max_body_bytes_open: usize,
    pub max_requests: usize,
    pub upstream_idle: usize,
    pub hold_max: Duration,
    pub drain: Duration,
    pub drain_delay: Duration,
    pub idle: Duration,
    pub header: Duration,
    pub body: Duration,
    pub client_write: Duration,
    pub default_model: Option<String>,
    pub unpriced: Unpriced,
}

/// What happens to a model without a price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unpriced {
    /// It works, its cost is null, and it is counted.
    Warn,
    /// It is refused.
    Refuse,
    /// It costs this.
    Price(std::sync::Arc<weir_filters::usage::Price>),
}

/// `[admin]`, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Admin {
    pub listen: String,
    pub token: Option<crate::base::Secret>,
    pub metrics_listen: Option<String>,
}

/// `[store]`, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Store {
    /// The SQLite file.
    pub path: PathBuf,
    pub spool: PathBuf,
    /// `None`: `fdatasync` after every line.
    pub sync: Option<Duration>,
    pub retention: Option<Duration>,
}

/// `[log]`, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Log {
    pub level: log::LevelFilter,
    pub access: Access,
    pub redact: bool,
}

/// Where access lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Standard error.
    Stderr,
    /// Nowhere.
    Off,
    /// A file, reopened on SIGUSR1.
    File(PathBuf),
}

/// Everything config says, checked, compiled and immutable. A request keeps the one it came under.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// First 12 hex digits of the SHA-256 over all files, for events and metrics.
    pub version: String,
    /// `[server]`
    pub server: Server,
    /// `[admin]`
    pub admin: Admin,
    /// `[store]`
    pub store: Store,
    /// `[log]`
    pub log: Log,
    /// Virtual keys.
    pub keys: Keys,
    /// Models and providers.
    pub routes: Table,
}

/// A place in a file, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// 1-based; 0 when the fault has no place.
    pub line: usize,
    /// Dotted, as in `providers.openai.retry.attempts`.
    pub key: String,
    /// What is wrong, and the nearest right name where there is one.
    pub message: String,
}

/// A sound config.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What it means.
    pub snapshot: Snapshot,
    /// What is allowed but worth a line in the log (literal secrets, unpriced models).
    pub warnings: Vec<Fault>,
    /// Every file it depends on, `file:` secrets included, for the watcher.
    pub files: Vec<PathBuf>,
}

/// Loads a file and all it includes.
///
/// # Errors
/// Every fault of every file.
pub fn load(_path: &Path) -> Result<Loaded, Vec<Fault>> {
    unimplemented!()
}
