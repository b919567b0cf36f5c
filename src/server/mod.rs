//! Assembly: listeners, background tasks, signals, drain.
//!
//! Everything that can fail does so before the first byte is accepted: addresses are claimed, the
//! spool is opened and applied to the ledger, logs are opened. Then Pingora gets the main thread,
//! and a control thread of ours gets the signals. It alone ends the process: Pingora's own way out
//! sleeps its whole grace period (pingora-core 0.9.1, server/mod.rs `run`).

mod alerts;
pub mod changes;
mod control;
mod files;
mod front;
mod leave;
mod listen;
mod notify;
mod pulse;
mod redis;
mod reload;
mod serve;
mod store;
mod tls;
mod tokens;

pub use listen::{Claim, Unavailable};
pub use reload::Source;

use crate::admin;
use crate::config::{Access, Loaded, Snapshot};
use crate::flow::{Gateway, Phase};
use crate::meter::{Ledger, Spool, Stop};
use crate::observe::{AccessLog, CONFIG, Gauges, Logger, Metrics, Output, stderr};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// Fine.
pub const EXIT_OK: u8 = 0;
/// A needed service is unavailable: a port, a folder, a file (sysexits.h EX_UNAVAILABLE).
pub const EXIT_UNAVAILABLE: u8 = 69;

/// What is printed once every listener accepts, given the first client address.
pub type Banner = Box<dyn FnOnce(SocketAddr) -> String + Send>;

/// What a start needs beside its config.
pub struct Options {
    /// Where the config came from, for reloads.
    pub source: Source,
    /// More to print than where we listen.
    pub banner: Option<Banner>,
}

/// What background threads and handlers share beside the [`Gateway`].
#[derive(Debug, Default)]
struct Shared {
    /// Every listener has accepted a connection.
    listening: AtomicBool,
    /// Client connections open now.
    connections: AtomicU64,
    /// Client connections closed because there were too many.
    turned_away: AtomicU64,
    /// Files that the process may have open.
    files: u64,
    /// Of the runtime that serves them.
    pulse: pulse::Pulse,
}

/// All that was claimed, opened and applied before the first connection.
struct Ready {
    gateway: Arc<Gateway>,
    shared: Arc<Shared>,
    claims: Vec<Claim>,
    admin: TcpListener,
    metrics: Option<TcpListener>,
    ledger: Ledger,
    logger: Option<&'static Logger>,
}

/// Runs the gateway until a signal ends it. Returns only when it could not start (the exit code;
/// its reason is on standard error): a running gateway ends the process itself.
#[must_use]
pub fn run(loaded: Loaded, options: Options) -> u8 {
    match prepare(loaded) {
        Ok(ready) => start(ready, options),
        Err(fault) => {
            let _ = writeln!(io::stderr(), "weir: {fault}");
            EXIT_UNAVAILABLE
        }
    }
}

fn prepare(loaded: Loaded) -> Result<Ready, Unavailable> {
    let snapshot = loaded.snapshot;
    let logger = Logger::new(snapshot.log.level, snapshot.log.redact).install().ok();
    for warning in &loaded.warnings {
        log::warn!(target: CONFIG, "{warning}");
    }
    let plain = snapshot.server.listen.iter().map(|address| (address, false));
    let tls = snapshot.server.tls.iter().flat_map(|tls| &tls.listen).map(|address| (address, true));
    let claims = plain.chain(tls).map(|(address, tls)| Claim::client(address, tls));
    let claims = claims.collect::<Result<_, _>>()?;
    let admin = listen::bind(&snapshot.admin.listen)?;
    let metrics = snapshot.admin.metrics_listen.as_deref().map(listen::bind).transpose()?;
    let spool_dir = snapshot.store.spool.clone();
    let spool = Spool::open(&spool_dir)
        .map_err(|error| Unavailable::new("open the spool", spool_dir.display(), error))?
        .sync_every(snapshot.store.sync);
    let mut ledger = Ledger::open(&snapshot.store.path)
        .map_err(|error| Unavailable::new("open", "the ledger", io::Error::other(error)))?
        .retention(snapshot.store.retention);
    // What earlier processes left behind is booked before the first new request.
    ledger
        .apply_all(&spool, jiff::Timestamp::now())
        .map_err(|error| Unavailable::new("fill", "the ledger", io::Error::other(error)))?;
    let output = output(&snapshot.log.access);
    let access = AccessLog::open(&output, snapshot.log.redact)
        .map_err(|error| Unavailable::new("open the access log", format!("{output:?}"), error))?;
    let counters = Metrics::new()
        .map_err(|e| Unavailable::new("make", "metrics", io::Error::other(e.to_string())))?;
    know(&counters, &snapshot);
    let gateway = Gateway::new(snapshot, spool, counters, access);
    redis::start(&gateway)
        .map_err(|why| Unavailable::new("use", "redis", io::Error::other(why)))?;
    let shared = Arc::new(Shared { files: files::raise(), ..Shared::default() });
    watch_facts(&gateway, &shared);
    Ok(Ready { gateway, shared, claims, admin, metrics, ledger, logger })
}

fn start(ready: Ready, options: Options) -> u8 {
    let Ready { gateway, shared, claims, admin, metrics, ledger, logger } = ready;
    let stop = Stop::default();
    let writers = writers(&gateway, ledger, &stop);
    let reloads = reload::spawn(gateway.clone(), options.source, logger);
    let _store = store::spawn(gateway.clone(), reloads.clone(), stop.clone());
    changes::spawn(gateway.clone(), reloads.clone());
    tokens::spawn(&gateway);
    alerts::spawn(&gateway);
    let (way, leaving) = leave::way();
    let hands = admin::Hands {
        reload: Box::new({
            let reloads = reloads.clone();
            move || reloads.ask()
        }),
        changed: Box::new({
            let gateway = gateway.clone();
            move || changes::tell(&gateway.snapshot.load())
        }),
        drain: Box::new({
            let way = way.clone();
            move || way.take(leave::Way::Drain)
        }),
    };
    let admin_address = admin.local_addr().ok();
    let metrics_address = metrics.as_ref().and_then(|m| m.local_addr().ok());
    admin::spawn(gateway.clone(), hands, admin, metrics);
    let (close, closing) = tokio::sync::watch::channel(false);
    let (server, resolver) = serve::build(&gateway, &shared, &claims);
    let (hearing, heard) = std::sync::mpsc::channel();
    let parts = control::Parts {
        gateway,
        shared,
        resolver,
        claims,
        admin: admin_address,
        metrics: metrics_address,
        banner: options.banner,
        reloads,
        way,
        leaving,
        close,
        stop,
        writers,
        hearing,
    };
    let _control = spawn("weir-control", move || control::run(parts));
    // A signal that came before its handler would end the process without a drain.
    let _ = heard.recv();
    serve::run(server, closing);
    // Pingora is done and the control thread is not: its drain is what we wait for.
    loop {
        thread::park();
    }
}

/// The threads that bring events to the disk and into the ledger, until `stop`.
fn writers(gateway: &Arc<Gateway>, ledger: Ledger, stop: &Stop) -> Vec<Option<JoinHandle<()>>> {
    let spool = {
        let (gateway, stop) = (gateway.clone(), stop.clone());
        move || gateway.spool.run(&stop)
    };
    let ledger = {
        let (gateway, stop) = (gateway.clone(), stop.clone());
        move || ledger.run(&gateway.spool, &stop)
    };
    vec![spawn("weir-spool", spool), spawn("weir-ledger", ledger)]
}

/// A named thread. A process that cannot make one at its start has nothing to serve with.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let made = thread::Builder::new().name(name.into()).spawn(work);
    made.inspect_err(|error| log::error!("cannot start thread {name}: {error}")).ok()
}

/// Where config says access lines go, in `observe`'s words.
fn output(access: &Access) -> Output {
    match access {
        Access::Stderr => Output::Stderr,
        Access::Off => Output::Off,
        Access::File(path) => Output::File(path.clone()),
    }
}

/// Tells metrics which names a config knows.
fn know(metrics: &Metrics, snapshot: &Snapshot) {
    let routes = &snapshot.routes;
    let public = routes.models.iter().map(|m| m.name.as_str());
    let targets = routes.models.iter().flat_map(|m| m.targets.iter());
    let targets = targets.filter_map(|t| t.model.as_deref());
    let offers = routes.providers.values().flat_map(|p| p.offers.iter().map(|o| o.name.as_str()));
    let teams = snapshot.keys.0.values().filter_map(|k| k.team.as_ref().map(|t| t.as_str()));
    let teams = teams.chain(snapshot.owners.teams());
    metrics.know(public.chain(targets).chain(offers), teams);
}

/// Hands the process's facts to metrics, for scrapes and readiness.
fn watch_facts(gateway: &Arc<Gateway>, shared: &Arc<Shared>) {
    let (weak, shared) = (Arc::downgrade(gateway), shared.clone());
    gateway.metrics.on_scrape(move || {
        let Some(gateway) = weak.upgrade() else { return Gauges::default() };
        let stats = gateway.spool.stats();
        let version = &gateway.snapshot.load().version;
        Gauges {
            listening: shared.listening.load(Ordering::Acquire),
            draining: gateway.drain.phase() >= Phase::Leaving,
            spool_failing: gateway.spool.failing(),
            store_up: stats.store_up(),
            redis_down: gateway.limits.redis_up() == Some(false),
            in_flight: gateway.in_flight() as u64,
            open_connections: shared.connections.load(Ordering::Relaxed),
            connections_refused: shared.turned_away.load(Ordering::Relaxed),
            spool_bytes: stats.spool_bytes(),
            spool_later_segments: stats.later(),
            ledger_lag_events: stats.lag(),
            events_lost: stats.lost(),
            log_lines_lost: gateway.access.lost() + stderr::dropped(),
            config_version: u64::from_str_radix(version, 16).unwrap_or_default(),
        }
    });
}
