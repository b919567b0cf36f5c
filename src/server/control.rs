//! The control thread: signals in, the process's end out.

use super::leave::{self, Way};
use super::reload::Reloads;
use super::{Banner, Claim, EXIT_OK, EXIT_UNAVAILABLE, Shared, listen, notify};
use crate::flow::Gateway;
use crate::meter::Stop;
use crate::proxy::health;
use crate::proxy::resolver::{self, Resolver};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Pingora binds within milliseconds of its start; after this long it never will.
const LISTEN_MAX: Duration = Duration::from_secs(10);
/// How often a listener is tried until it accepts.
const LISTEN_LOOK: Duration = Duration::from_millis(5);
/// How often systemd hears how the way out goes.
const TELL: Duration = Duration::from_secs(1);
/// How long it waits for the next word: a machine that starves us for so long is lost.
const EXTENSION: Duration = Duration::from_secs(30);
/// What the writers of spool and ledger get for their last pass; the rest waits for the next start.
const WRITERS_MAX: Duration = Duration::from_secs(5);

/// What the control thread works with.
pub struct Parts {
    pub gateway: Arc<Gateway>,
    pub shared: Arc<Shared>,
    pub resolver: Arc<Resolver>,
    pub claims: Vec<Claim>,
    pub admin: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub banner: Option<Banner>,
    pub reloads: Reloads,
    pub way: leave::Ask,
    pub leaving: watch::Receiver<Way>,
    pub close: watch::Sender<bool>,
    pub stop: Stop,
    pub writers: Vec<Option<JoinHandle<()>>>,
    /// Told once signals are heard: only then may anybody see us listen.
    pub hearing: std::sync::mpsc::Sender<()>,
}

/// Runs until the process ends, and ends it.
pub fn run(parts: Parts) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let code = match runtime {
        Ok(runtime) => runtime.block_on(control(parts)),
        Err(error) => {
            log::error!("cannot start the control thread: {error}");
            EXIT_UNAVAILABLE
        }
    };
    log::logger().flush();
    std::process::exit(i32::from(code));
}

async fn control(mut parts: Parts) -> u8 {
    let signals =
        tokio::spawn(signals(parts.gateway.clone(), parts.reloads.clone(), parts.way.clone()));
    // The task runs to its first wait, by which the handlers are in place.
    tokio::task::yield_now().await;
    let _ = parts.hearing.send(()); // nobody waits only where the process is ending
    let addresses = tokio::spawn(resolver::run(parts.resolver.clone(), parts.gateway.clone()));
    let probes = tokio::spawn(health::run(parts.resolver.clone(), parts.gateway.clone()));
    if let Err(code) = announce(&mut parts).await {
        return code;
    }
    let (gateway, shared) = (parts.gateway.clone(), parts.shared.clone());
    let pulse = tokio::spawn(async move { shared.pulse.run().await });
    let told = tokio::spawn(tell(gateway, parts.leaving.clone()));
    leave::leave(&parts.gateway, parts.leaving.clone(), &parts.close).await;
    told.abort();
    signals.abort();
    addresses.abort();
    probes.abort();
    notify::notify(&format!("STATUS=writing the ledger\n{}", notify::extend(EXTENSION)));
    settle(parts);
    pulse.abort();
    EXIT_OK
}

/// Tells systemd how the way out goes, from its first step on: a drain may take longer than the
/// unit's `TimeoutStopSec`, and takes no longer than it must.
async fn tell(gateway: Arc<Gateway>, mut leaving: watch::Receiver<Way>) {
    // An error means that nobody can ask any more: that is the way out as well.
    let _ = leaving.wait_for(|w| *w != Way::Stay).await;
    notify::notify(notify::STOPPING);
    loop {
        let (open, extend) = (gateway.in_flight(), notify::extend(EXTENSION));
        notify::notify(&format!("STATUS=leaving, {open} requests are open\n{extend}"));
        sleep(TELL).await;
    }
}

/// Waits until every listener accepts, then says so: on standard output, to systemd, to readiness.
async fn announce(parts: &mut Parts) -> Result<(), u8> {
    let ours = parts.admin.into_iter().chain(parts.metrics).map(listen::reachable);
    let all: Vec<_> = parts.claims.iter().map(Claim::reachable).chain(ours).collect();
    for address in all {
        let knock = async {
            while TcpStream::connect(address).await.is_err() {
                sleep(LISTEN_LOOK).await;
            }
        };
        tokio::select! {
            knocked = timeout(LISTEN_MAX, knock) => if knocked.is_err() {
                log::error!("nobody listens on {address}");
                return Err(EXIT_UNAVAILABLE);
            },
            // Asked to leave before we were up: the way out begins at once.
            _ = parts.leaving.wait_for(|w| *w != Way::Stay) => return Ok(()),
        }
    }
    parts.shared.listening.store(true, Ordering::Release);
    let banner = parts.banner.take();
    let mut text = String::new();
    for claim in &parts.claims {
        let scheme = if claim.tls { "https" } else { "http" };
        text.push_str(&format!("listening on {scheme}://{}\n", claim.address));
    }
    if let Some(admin) = parts.admin {
        let tls = parts.gateway.snapshot.load().admin.tls.is_some();
        let scheme = if tls { "https" } else { "http" };
        text.push_str(&format!("admin on {scheme}://{admin}\n"));
    }
    if let (Some(banner), Some(first)) = (banner, parts.claims.first()) {
        text.push_str(&banner(first.reachable()));
    }
    // A closed standard output is no reason to serve nobody.
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let version = &parts.gateway.snapshot.load().version;
    notify::notify(&format!("{}\nSTATUS=config {version}", notify::READY));
    Ok(())
}

/// Every signal to the one who acts on it. SIGQUIT drains like SIGTERM: there is no hand-over of
/// sockets to another process in this version.
async fn signals(gateway: Arc<Gateway>, reloads: Reloads, way: leave::Ask) {
    let open = |kind| signal(kind).inspect_err(|e| log::error!("cannot hear a signal: {e}"));
    let (Ok(mut term), Ok(mut quit), Ok(mut int), Ok(mut hup), Ok(mut usr1)) = (
        open(SignalKind::terminate()),
        open(SignalKind::quit()),
        open(SignalKind::interrupt()),
        open(SignalKind::hangup()),
        open(SignalKind::user_defined1()),
    ) else {
        way.take(Way::Drain);
        return;
    };
    loop {
        tokio::select! {
            _ = term.recv() => way.take(Way::Drain),
            _ = quit.recv() => way.take(Way::Drain),
            _ = int.recv() => way.take(Way::Fast),
            _ = hup.recv() => drop(reloads.ask()),
            _ = usr1.recv() => match gateway.access.reopen() {
                Ok(()) => log::info!("log files reopened"),
                Err(error) => log::error!("cannot reopen the access log: {error}"),
            },
        }
    }
}

/// Nothing runs any more: what is written goes to the disk and into the ledger.
fn settle(parts: Parts) {
    super::redis::finish(&parts.gateway);
    parts.gateway.access.flush();
    if let Err(error) = parts.gateway.spool.sync() {
        log::error!("cannot sync the spool: {error}");
    }
    parts.stop.ring();
    let (done, all_done) = std::sync::mpsc::channel();
    let writers = parts.writers;
    let _joiner = super::spawn("weir-settle", move || {
        for writer in writers.into_iter().flatten() {
            let _ = writer.join(); // a writer that panicked has said so itself
        }
        let _ = done.send(());
    });
    if all_done.recv_timeout(WRITERS_MAX).is_err() {
        log::warn!("the ledger is not up to date: the next start applies the rest of the spool");
    }
    log::info!("gone");
}
