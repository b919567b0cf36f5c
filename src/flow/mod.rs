//! A request's life without HTTP: admit, attempt, finish.

pub mod admit;
pub mod alerts;
pub mod attempt;
pub mod budget;
mod cap;
mod doubt;
pub mod drain;
pub mod explain;
#[cfg(debug_assertions)]
pub mod failpoint;
pub mod finish;
mod gauges;
pub mod govern;
pub mod keyring;
pub mod minted;
mod nobody;
mod parts;
mod route;
mod spent;
mod tell;
pub mod ticket;
mod usage;
mod user;

pub use attempt::{Attempt, Step};
pub use budget::{ByteBudget, Held};
pub use drain::{Drain, Phase};
pub use finish::Committed;
pub use ticket::{Arrival, Ending, Ticket, Wishes};
pub use usage::standings;

use crate::config::Snapshot;
use crate::limit::Limits;
use crate::meter::Spool;
use crate::observe::{AccessLog, Health, Metrics};
use crate::route::live::Registry;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Everything that outlives a snapshot: what a reload must not reset.
#[derive(Debug)]
pub struct Gateway {
    /// The config in force.
    pub snapshot: ArcSwap<Snapshot>,
    /// Where events are written.
    pub spool: Spool,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// One line a request.
    pub access: AccessLog,
    /// Whether we are leaving.
    pub drain: Drain,
    /// Bytes of bodies in memory.
    pub bodies: Arc<ByteBudget>,
    /// What is known of providers' targets and credentials.
    pub registry: Registry,
    /// What callers have used of their limits and budgets.
    pub limits: Arc<Limits>,
    /// Keys of the store.
    pub keys: minted::StoreKeys,
    /// What the webhook is to be told.
    pub alerts: alerts::Alerts,
    /// Requests between their head and their event.
    in_flight: AtomicUsize,
}

impl Gateway {
    /// A gateway under its first snapshot.
    #[must_use]
    pub fn new(snapshot: Snapshot, spool: Spool, metrics: Metrics, access: AccessLog) -> Arc<Self> {
        let registry = Registry::default();
        let now = Instant::now();
        registry.adopt(&snapshot.routes, now);
        let gateway = Arc::new(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            spool,
            metrics,
            access,
            drain: Drain::default(),
            bodies: Arc::default(),
            registry,
            limits: Limits::new(now),
            keys: minted::StoreKeys::default(),
            alerts: alerts::Alerts::default(),
            in_flight: AtomicUsize::new(0),
        });
        gauges::watch(&gateway);
        let first = gateway.snapshot.load_full();
        spent::recall(&gateway, &first.rules, &first.store.path);
        gateway.mint_under(first);
        gateway.look_at_store();
        gateway
    }
    /// Puts a new snapshot in force. Requests under the old one keep it to their end.
    pub fn swap(&self, snapshot: Snapshot) {
        spent::recall(self, &snapshot.rules, &snapshot.store.path);
        self.registry.adopt(&snapshot.routes, Instant::now());
        self.mint_under(Arc::new(snapshot));
        spent::recall(self, &self.rules(), &self.snapshot.load().store.path);
    }
    /// Requests open now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }
    /// Whether traffic should be sent here.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.metrics.facts())
    }
    fn entered(&self) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }
    fn left(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
