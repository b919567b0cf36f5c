//! TOML files into one immutable [`Snapshot`], or every fault of every file at once.
//!
//! [`source`] reads files into one tree of values with their places, [`value`] looks at tables
//! through shapes that list their keys, and one file for each kind of table compiles it.

mod alerts;
mod check;
mod diff;
mod fault;
mod flood;
mod keys;
mod limits;
mod minted;
mod models;
mod preset;
mod price;
mod provider;
mod redis;
mod routing;
mod secret;
mod server;
mod source;
mod tls;
mod units;
mod value;
mod vault;
pub mod watch;
mod zero;

pub use alerts::Webhook;
pub use check::{Report, check, check_preset, init, init_with};
pub use diff::{diff, needs_restart};
pub use flood::Net;
pub use keys::Owners;
pub use minted::{Minted, faults as key_faults, mint, mint_again};
pub use tls::{Identity, Tls};
pub use units::duration;
pub use vault::read_vault;
pub use watch::Watch;
pub use zero::{Zero, zero};

use crate::access::Keys;
use crate::limit::Rules;
use crate::route::Table;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `[server]`, compiled.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each is told in conf/weir.toml
pub struct Server {
    pub listen: Vec<String>,
    pub tls: Option<Tls>,
    /// Never 0: one per core where config says so.
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
#[allow(missing_docs)] // each is told in conf/weir.toml
pub struct Admin {
    pub listen: String,
    pub token: Option<crate::base::Secret>,
    pub metrics_listen: Option<String>,
    /// Who we say we are on `listen`; `None` without TLS.
    pub tls: Option<std::sync::Arc<Identity>>,
}

/// `[store]`, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each is told in conf/weir.toml
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
#[allow(missing_docs)] // each is told in conf/weir.toml
pub struct Log {
    pub level: log::LevelFilter,
    pub access: Access,
    pub redact: bool,
}

/// `[redis]`, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each is told in conf/weir.toml
pub struct Redis {
    /// May hold a password.
    pub url: crate::base::Secret,
    pub username: Option<String>,
    pub password: Option<crate::base::Secret>,
    pub timeout: Duration,
    pub prefix: String,
}

/// `[flood]`, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each is told in conf/weir.toml
pub struct Flood {
    pub requests_per_second: Option<u64>,
    pub failed_auth_per_minute: Option<u64>,
    /// Whose word on who asks is believed.
    pub trusted: Vec<Net>,
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
    /// `[flood]`
    pub flood: Option<Flood>,
    /// Virtual keys.
    pub keys: Keys,
    /// What teams and departments give to keys.
    pub owners: Owners,
    /// Models and providers.
    pub routes: Table,
    /// Limits, windows and budgets of every owner.
    pub rules: Rules,
    /// `[redis]`, where all nodes count together.
    pub redis: Option<Redis>,
    /// `[vault]`, where the store's credentials are opened.
    pub vault: Option<std::sync::Arc<crate::vault::Vault>>,
    /// What one unit of each currency is worth, in nano-USD.
    pub currencies: std::collections::BTreeMap<String, std::num::NonZeroU64>,
    /// Whom alerts are posted to.
    pub webhook: Option<Webhook>,
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

/// Looks up an environment variable.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One look at a config: what it means or what is wrong, and what to watch either way.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What it means, or every fault.
    pub result: Result<Loaded, Vec<Fault>>,
    /// Every file it depends on, `file:` secrets included, as it was read.
    pub contents: watch::Contents,
    /// Patterns whose matches belong to it: `include` and preset folders.
    pub globs: Vec<PathBuf>,
}

/// Loads a file and all it includes.
///
/// # Errors
/// Every fault of every file.
pub fn load(path: &Path) -> Result<Loaded, Vec<Fault>> {
    read(path).result
}

/// Loads a file and all it includes, and tells what to watch whether it is sound or not.
#[must_use]
pub fn read(path: &Path) -> Reading {
    read_with(path, &environment)
}

/// [`read`] under an environment of the caller's.
#[must_use]
pub fn read_with(path: &Path, env: Env<'_>) -> Reading {
    let book = fault::Book::new(env);
    let tree = source::gather(&book, path);
    compile(&book, tree)
}

/// Loads a text as if it stood in `path`, which need not exist.
///
/// # Errors
/// Every fault.
pub fn load_text(path: &Path, text: &str, env: Env<'_>) -> Result<Loaded, Vec<Fault>> {
    let book = fault::Book::new(env);
    let tree = source::gather_text(&book, path, text);
    compile(&book, tree).result
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Top-level names.
const ROOT: value::Shape = value::Shape {
    known: &[
        "include",
        "presets",
        "server",
        "admin",
        "store",
        "log",
        "providers",
        "currency",
        "models",
        "smart",
        "routes",
        "departments",
        "teams",
        "users",
        "keys",
        "key_defaults",
        "user_defaults",
        "alerts",
        "redis",
        "vault",
        "flood",
    ],
    later: &["idempotency", "telemetry"],
};

fn compile(book: &fault::Book<'_>, tree: source::Tree) -> Reading {
    let mut texts = tree.texts;
    let mut globs = tree.globs;
    let at = fault::At { file: 0, line: 0 };
    let root = value::View::new(book, &tree.root, at, String::new(), &ROOT);
    let presets = preset::folders(book, &tree.presets, &mut texts, &mut globs);
    let currencies = price::currencies(&root);
    let store = server::store(&root);
    let vault = vault::vault(&root, &store).map(std::sync::Arc::new);
    book.unlock(vault.clone());
    let server = server::server(&root, &currencies);
    let admin = server::admin(&root);
    server::distinct(&root, &server, &admin);
    let log = server::log(&root);
    let providers = provider::providers(&root, &presets, &currencies);
    let routes = models::models(&root, providers, &server.unpriced);
    let (keys, owners) = keys::keys(&root, &routes);
    let rules = limits::rules(&root, &routes, &keys);
    let redis = redis::redis(&root);
    let webhook = alerts::webhook(&root);
    let flood = flood::flood(&root);
    models::default_model(&root, &server, &routes);
    let contents = book.contents();
    let result = if book.sound() {
        let version = source::version(&texts);
        let snapshot = Snapshot {
            version,
            server,
            admin,
            store,
            log,
            flood,
            keys,
            owners,
            routes,
            rules,
            redis,
            webhook,
            vault,
            currencies: price::worth(&currencies),
        };
        Ok(Loaded {
            snapshot,
            warnings: book.warnings(),
            files: contents.keys().cloned().collect(),
        })
    } else {
        Err(book.faults())
    };
    Reading { result, contents, globs }
}
