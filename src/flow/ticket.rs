//! One request's guard: all that is known of it, and the one event it will leave behind.

use super::Gateway;
use super::budget::Held;
use super::parts::Parts;
use crate::access::Key;
use crate::base::{Credential, EventId};
use crate::config::{Minted, Snapshot};
use crate::limit::{Ask, Group, Refusal, Reservation};
use crate::meter::{Attempt as Tried, Outcome};
use crate::route::caps::Seat;
use crate::route::live::Pass;
use crate::route::{Model, Need, Plan, Provider};
use smol_str::SmolStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_filters::dialect::{Api, Dialect};
use weir_filters::error::ApiError;
use weir_filters::peek::Peek;
use weir_filters::usage::{Price, Units};

/// What a request's head says.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// When the head was read.
    pub at: Instant,
    /// The same moment on the wall.
    pub ts: jiff::Timestamp,
    /// The caller's, or made.
    pub request_id: String,
    /// 32 hex digits.
    pub trace_id: String,
    /// The endpoint's label: `chat`, `models`, … or `other`.
    pub endpoint: &'static str,
    /// How the caller is answered.
    pub dialect: Dialect,
    /// What it asks for, and in whose words.
    pub api: Api,
    /// For the access log.
    pub method: SmolStr,
    /// For the access log, without the query.
    pub path: SmolStr,
    /// The peer's address.
    pub client: SmolStr,
    /// `user-agent`, at most 128 bytes of it.
    pub agent: SmolStr,
    /// `x-weir-task-type`.
    pub task_type: Option<String>,
    /// `x-weir-budget-tier`.
    pub budget_tier: Option<String>,
    /// `x-weir-user`.
    pub user: Option<String>,
    /// What the head says of how it wants to be served.
    pub wishes: Wishes,
}

/// How a caller wants to be served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// `x-weir-max-latency-ms`.
    pub max_latency: Option<Duration>,
    /// `x-weir-retry: none`.
    pub once: bool,
    /// `x-session-id`.
    pub session: Option<String>,
    /// A header of ours with a value that it cannot have.
    pub faulty: Option<&'static str>,
    /// The caller gives up this long after it came (`x-stainless-timeout` and its kin): nothing
    /// new begins for it then.
    pub patience: Option<Duration>,
}

/// A request after admission: what it asks, and where it may go.
#[derive(Debug)]
pub struct Admission {
    /// The body, read.
    pub peek: Peek,
    /// The public model.
    pub origin: Arc<Model>,
    /// The name it was asked by, after aliases and routes.
    pub asked: String,
    /// What it needs of a target.
    pub need: Arc<Need>,
    /// A random number of its own.
    pub seed: u64,
    /// What is tried, of `origin` or of an equivalent model.
    pub plan: Plan,
    /// How many equivalent models have been looked at.
    pub fallbacks: usize,
    /// An equivalent model serves.
    pub degraded: Option<Degraded>,
    /// Estimated prompt tokens.
    pub prompt_tokens: u64,
}

/// An equivalent model serves instead of the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degraded {
    /// The model that was asked for.
    pub from: String,
    /// The one that serves.
    pub to: String,
    /// Why, in one word.
    pub reason: &'static str,
}

/// The try that is running, or the last one.
#[derive(Debug)]
pub struct Running {
    /// Whose.
    pub provider: Arc<Provider>,
    /// The provider's name of the model.
    pub model: Arc<str>,
    /// What it is paid with.
    pub credential: Option<Arc<Credential>>,
    /// The credential's place among the provider's.
    pub key: usize,
    /// Leave of the target's breaker; taken when it is told how the try went.
    pub pass: Option<Pass>,
    /// What it takes of its credential's caps; taken when it is known what was used.
    pub seat: Option<Seat>,
    /// What it costs.
    pub price: Option<Arc<Price>>,
    /// When it began.
    pub began: Instant,
    /// The provider's status; 0 before its header.
    pub status: u16,
    /// The request went out on a connection.
    pub sent: bool,
}

/// What a request has come to so far; its event is made of it.
#[derive(Debug, Default)]
pub struct Record {
    /// Whom the caller speaks for, where its key may say so.
    pub end_user: Option<String>,
    /// What was asked, before aliases.
    pub requested_model: Option<String>,
    /// A stream was asked for.
    pub streamed: bool,
    /// Failed tries.
    pub attempts: Vec<Tried>,
    /// Different targets among them.
    pub targets_failed: usize,
    /// The last failure, for the caller where nobody else can be asked.
    pub failure: Option<weir_filters::error::Failure>,
    /// What failed tries may have been billed, in nano-USD.
    pub wasted: u64,
    /// From the arrival to the first content.
    pub ttft: Option<Duration>,
    /// Our own time so far.
    pub overhead: Duration,
    /// The endpoint costs nothing, and leaves no event.
    pub free: bool,
    /// What the answer has beside tokens.
    pub units: Units,
    /// Request members the provider could not take.
    pub dropped: Vec<String>,
    /// The rule that refused it or cut it.
    pub limited_by: Option<Arc<str>>,
}

/// What a request takes of its owners' rules.
#[derive(Debug, Default)]
pub struct Taken {
    /// The rules it is held against.
    pub rules: Group,
    /// What it asks for at most.
    pub ask: Ask,
    /// The most that each answer may have, where its owners bound a request that does not bound
    /// itself.
    pub cap: Option<u64>,
    /// One of the rules is a budget of money, so a model without a price is no choice.
    pub priced: bool,
    /// What it holds of them; absent before it is admitted.
    pub reservation: Option<Reservation>,
    /// Why it was not.
    pub refused: Option<Refusal>,
}

/// One request, from its head to its event. Dropped without [`Ticket::commit`] it books itself as
/// interrupted, so that a panic or a killed runtime leaves its row as well.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    pub(super) gateway: Arc<Gateway>,
    /// The config this request lives under.
    pub snapshot: Arc<Snapshot>,
    /// Its identity in the ledger.
    pub event_id: EventId,
    /// Its head.
    pub arrival: Arrival,
    /// Who calls; known even where the key was refused as expired or disabled.
    pub key: Option<Arc<Key>>,
    /// Keys of the store, where the key is one of them.
    pub(super) minted: Option<Arc<Minted>>,
    /// Set by `admit`.
    pub admission: Option<Admission>,
    /// Set by `attempt`.
    pub running: Option<Running>,
    /// Everything else.
    pub record: Record,
    /// Answered parts of a request that becomes several calls.
    pub(super) parts: Parts,
    /// What it takes of limits and budgets.
    pub taken: Taken,
    /// Bytes of bodies it holds.
    pub held: Held,
    pub(super) done: bool,
}

/// How a request ends, for [`Ticket::commit`].
#[derive(Debug)]
pub struct Ending<'a> {
    /// Its kind.
    pub outcome: Outcome,
    /// What the caller saw, 499 where it left.
    pub status: u16,
    /// What it was told.
    pub error: Option<&'a ApiError>,
    /// What the running try's reply told us; `None` where nothing may be billed.
    pub tap: Option<&'a mut weir_filters::wire::Tap>,
}

impl Ticket {
    /// A request begins; the gateway counts it as in flight until its event is written.
    pub fn new(gateway: &Arc<Gateway>, arrival: Arrival) -> Self {
        let snapshot = gateway.snapshot.load_full();
        gateway.entered();
        let held = Held::none(gateway.bodies.clone(), snapshot.server.max_body_bytes_open);
        Self {
            gateway: gateway.clone(),
            snapshot,
            event_id: EventId::now(),
            arrival,
            key: None,
            minted: None,
            admission: None,
            running: None,
            record: Record::default(),
            parts: Parts::default(),
            taken: Taken::default(),
            held,
            done: false,
        }
    }

    /// Nothing of it is booked: it was no request but a question about one.
    pub(super) fn forget(mut self) {
        self.done = true;
        self.gateway.left();
    }

    /// A stream was asked for.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.record.streamed
    }

    /// How far the process is on its way out.
    #[must_use]
    pub fn phase(&self) -> super::Phase {
        self.gateway.drain.phase()
    }

    /// More requests are open than `max_requests` allows, this one among them.
    #[must_use]
    pub fn crowded(&self) -> bool {
        self.gateway.in_flight() > self.snapshot.server.max_requests
    }

    /// Whether traffic should be sent to this process.
    #[must_use]
    pub fn health(&self) -> crate::observe::Health {
        self.gateway.health()
    }

    /// Rings when the drain time is over.
    pub fn bell(&self) -> tokio::sync::futures::OwnedNotified {
        self.gateway.drain.bell()
    }

    /// The running provider's wait between two contents.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        self.running.as_ref().and_then(|r| r.provider.timeouts.idle)
    }

    /// The running provider's wait for the first content.
    #[must_use]
    pub fn first_token(&self) -> Option<Duration> {
        self.running.as_ref().and_then(|r| r.provider.timeouts.first_token)
    }

    /// The running provider's wait for a whole answer: shorter where nothing is generated.
    #[must_use]
    pub fn reply_wait(&self) -> Option<Duration> {
        let timeouts = self.running.as_ref().map(|r| r.provider.timeouts)?;
        if self.arrival.api.is_quick() { timeouts.quick_reply } else { timeouts.reply }
    }

    /// Adds the time since `since` to what is our own.
    pub fn own_since(&mut self, since: Instant) {
        self.record.overhead += since.elapsed();
    }

    /// Tries so far, the running one included.
    #[must_use]
    pub fn tries(&self) -> usize {
        let running = self.running.as_ref().is_some_and(|r| r.sent);
        self.record.attempts.len() + usize::from(running)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.done {
            let ending =
                Ending { outcome: Outcome::Interrupted, status: 500, error: None, tap: None };
            drop(self.write(ending));
        }
    }
}
