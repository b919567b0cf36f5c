//! Reloads: one thread that reads config again, on a signal, on a call, or when a file changed.

use super::{know, notify, output};
use crate::admin::Reloaded;
use crate::config::{self, Snapshot, Watch};
use crate::flow::{Gateway, Phase};
use crate::observe::{CONFIG, Logger};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How often files are looked at: a change is taken when two looks agree, so within two seconds.
const LOOK: Duration = Duration::from_secs(1);

/// Where the config in force came from.
#[derive(Debug)]
pub enum Source {
    /// A file and all it includes, watched as they were when they were read.
    File(PathBuf, Watch),
    /// No file: the environment, or a text of ours. There is nothing to read again.
    Fixed,
}

/// Asks the reload thread.
#[derive(Debug, Clone)]
pub struct Reloads(Sender<oneshot::Sender<Reloaded>>);

impl Reloads {
    /// Reads the config again; the result comes when it is in force or refused. Who does not care
    /// drops the receiver.
    #[must_use]
    pub fn ask(&self) -> oneshot::Receiver<Reloaded> {
        let (answer, result) = oneshot::channel();
        let _ = self.0.send(answer); // a thread that is gone drops it: the receiver sees that
        result
    }
}

/// Starts the thread. It also ticks the logger, once a second.
pub fn spawn(gateway: Arc<Gateway>, source: Source, logger: Option<&'static Logger>) -> Reloads {
    let (ask, asked) = channel();
    let mut reloader = Reloader { gateway, source, logger };
    let _thread = super::spawn("weir-reload", move || reloader.run(&asked));
    Reloads(ask)
}

struct Reloader {
    gateway: Arc<Gateway>,
    source: Source,
    logger: Option<&'static Logger>,
}

impl Reloader {
    fn run(&mut self, asked: &Receiver<oneshot::Sender<Reloaded>>) {
        let mut next = Instant::now() + LOOK;
        loop {
            match asked.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(answer) => {
                    let _ = answer.send(self.reload("asked")); // who asked may not wait
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + LOOK;
                    self.tick();
                }
            }
        }
    }

    fn tick(&mut self) {
        if let Some(logger) = self.logger {
            logger.tick(Instant::now());
        }
        if let Source::File(_, watch) = &mut self.source
            && watch.changed()
        {
            self.reload("a file changed");
        }
    }

    fn reload(&mut self, why: &str) -> Reloaded {
        if self.gateway.drain.phase() >= Phase::Leaving {
            log::warn!("no reload on the way out");
            return Reloaded::Nothing;
        }
        let Source::File(path, watch) = &mut self.source else {
            log::warn!("there is no config file to reload");
            return Reloaded::Nothing;
        };
        notify::notify(&notify::reloading());
        let reading = config::read(path);
        *watch = Watch::new(&reading);
        let reloaded = match reading.result {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    log::warn!(target: CONFIG, "{warning}");
                }
                self.swap(loaded.snapshot)
            }
            Err(faults) => {
                for fault in &faults {
                    log::error!(target: CONFIG, "{fault}");
                }
                Reloaded::Faults(faults)
            }
        };
        let said = match &reloaded {
            Reloaded::Ok { version, .. } => {
                log::info!(why, version; "config reloaded");
                format!("config {version}")
            }
            _ => {
                log::error!(why; "config refused, the old one stays in force");
                "the new config is refused, the old one stays in force".to_owned()
            }
        };
        notify::notify(&format!("{}\nSTATUS={said}", notify::READY));
        self.gateway.metrics.reloaded(matches!(reloaded, Reloaded::Ok { .. }));
        reloaded
    }

    fn swap(&self, mut new: Snapshot) -> Reloaded {
        let old = self.gateway.snapshot.load_full();
        let needs_restart = keep_started(&old, &mut new);
        if !needs_restart.is_empty() {
            log::warn!("needs restart: {}", needs_restart.join(", "));
        }
        if let Some(logger) = self.logger {
            logger.set(new.log.level, new.log.redact);
        }
        if old.log != new.log
            && let Err(error) = self.gateway.access.set(&output(&new.log.access), new.log.redact)
        {
            log::error!("cannot open the new access log, the old one goes on: {error}");
        }
        know(&self.gateway.metrics, &new);
        let version = new.version.clone();
        self.gateway.swap(new);
        Reloaded::Ok { version, needs_restart }
    }
}

/// Gives a new config the values that only a start takes, and names those that differ.
fn keep_started(old: &Snapshot, new: &mut Snapshot) -> Vec<&'static str> {
    let differ = config::needs_restart(old, new);
    new.server.listen.clone_from(&old.server.listen);
    if differ.contains(&"server.tls.listen") {
        // Its listeners stay, and go on as who they were.
        new.server.tls.clone_from(&old.server.tls);
    }
    new.server.threads = old.server.threads;
    new.server.upstream_idle = old.server.upstream_idle;
    new.admin.listen.clone_from(&old.admin.listen);
    if differ.contains(&"admin.tls") {
        new.admin.tls.clone_from(&old.admin.tls);
    }
    new.admin.metrics_listen.clone_from(&old.admin.metrics_listen);
    new.store = old.store.clone();
    new.redis.clone_from(&old.redis);
    differ
}
