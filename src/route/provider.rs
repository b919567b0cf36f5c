//! A provider, compiled from its preset and its table: how it is reached, spoken to and waited for.

use super::breaker::Rule;
use super::health::Health;
use super::live::ProviderLive;
use super::rest::Cooldown;
pub use crate::base::Base;
use crate::base::{Glob, ProviderId};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_filters::error::ErrorMap;
use weir_filters::tokens::Encoding;
use weir_filters::usage::Price;
use weir_filters::wire::{Params, Quirks, Wire};

/// Authorities whose certificates are believed, in place of the system's.
#[derive(Debug, Clone)]
pub struct Trust {
    /// In the form Pingora takes them.
    pub roots: Arc<Box<[openssl::x509::X509]>>,
    /// Tells one set from another.
    pub mark: u64,
}

/// An HTTP proxy on the way to a provider; what goes through it is a tunnel (`CONNECT`).
#[derive(Debug, Clone)]
pub struct Through {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port; 80 where the URL has none.
    pub port: u16,
    /// The whole value of `proxy-authorization`.
    pub authorization: Option<crate::base::Secret>,
}

/// Where the credential goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// `authorization: Bearer …`
    Bearer,
    /// The named header holds the bare credential (`x-api-key`, `api-key`, `x-goog-api-key`).
    Header(&'static str),
    /// A query parameter of this name.
    Query(String),
    /// No credential.
    None,
}

/// Waits of one try; `total` is the whole request's. `None` waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP and TLS.
    pub connect: Option<Duration>,
    /// Connected to first content of a stream.
    pub first_token: Option<Duration>,
    /// Between two contents of a stream.
    pub idle: Option<Duration>,
    /// One write to the provider.
    pub write: Option<Duration>,
    /// Connected to the end of a non-stream answer.
    pub reply: Option<Duration>,
    /// The same where nothing is generated: embeddings, rerank, moderations.
    pub quick_reply: Option<Duration>,
    /// The whole request, every try in it.
    pub total: Option<Duration>,
}

/// What can go wrong with a try before anything reached the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No connection.
    Connect,
    /// Connected, cut before a response header.
    ResetBeforeHeaders,
    /// This status, 429 or 5xx.
    Status(u16),
    /// No content in time.
    FirstToken,
    /// No whole answer in time.
    Reply,
    /// A 200 that is no answer.
    Invalid,
    /// The credential was refused (401, 403).
    Auth,
    /// The account is out of money or quota (402 and its kin).
    Quota,
    /// The request's content was refused.
    Filter,
}

/// A set of faults, as `on = [...]` writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// `connect`
    pub connect: bool,
    /// `reset_before_headers`
    pub reset_before_headers: bool,
    /// `first_token`
    pub first_token: bool,
    /// `reply`
    pub reply: bool,
    /// `invalid`
    pub invalid: bool,
    /// `content_filter`
    pub filter: bool,
    /// `5xx`: every status from 500 on.
    pub server: bool,
    /// Single statuses: `429`, `503`, `529`.
    pub statuses: Vec<u16>,
}

impl Faults {
    /// Whether this fault is in the set. Refused credentials and empty accounts always are: no
    /// repetition heals them, another target may.
    #[must_use]
    pub fn holds(&self, fault: Fault) -> bool {
        match fault {
            Fault::Connect => self.connect,
            Fault::ResetBeforeHeaders => self.reset_before_headers,
            Fault::FirstToken => self.first_token,
            Fault::Reply => self.reply,
            Fault::Invalid => self.invalid,
            Fault::Status(s) => (s >= 500 && self.server) || self.statuses.contains(&s),
            Fault::Filter => self.filter,
            Fault::Auth | Fault::Quota => true,
        }
    }
}

/// Tries on one target, where the request surely did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all, the first included.
    pub attempts: u32,
    /// Mean wait before the second try; doubles with each.
    pub backoff: Duration,
    /// Never longer than this.
    pub max_backoff: Duration,
    /// Which faults.
    pub on: Faults,
}

/// Going to another target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// Which faults.
    pub on: Faults,
    /// No further target once the request is this old. `None`: no bound but `total`.
    pub max_elapsed: Option<Duration>,
}

/// Kept connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Closed after being idle this long.
    pub idle_timeout: Option<Duration>,
    /// Not reused when older than this (rounded: connections are grouped by age).
    pub max_age: Option<Duration>,
}

/// One model of a provider, or a pattern of them.
#[derive(Debug, Clone)]
pub struct Offer {
    /// `gpt-4o`, `gpt-4*`, `*`.
    pub name: Glob,
    /// What it costs; `None` is unpriced.
    pub price: Option<Arc<Price>>,
    /// Context length in tokens.
    pub context: Option<u64>,
    /// Most tokens it generates.
    pub max_output: Option<u64>,
    /// For routing.
    pub tags: Vec<String>,
    /// What it is counted with, when known.
    pub encoding: Option<Encoding>,
    /// It takes tools; true where nobody says otherwise.
    pub tools: bool,
    /// It takes images; as above.
    pub images: bool,
    /// It answers by a JSON schema; as above.
    pub schema: bool,
}

impl Offer {
    /// Nothing is known of it but its name.
    #[must_use]
    pub fn new(name: Glob) -> Self {
        Self {
            name,
            price: None,
            context: None,
            max_output: None,
            tags: Vec::new(),
            encoding: None,
            tools: true,
            images: true,
            schema: true,
        }
    }
}

/// A provider.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Its name.
    pub id: ProviderId,
    /// What it speaks.
    pub wire: Wire,
    /// Where it is.
    pub base: Base,
    /// Whom its certificate must be of; `None`: anybody the system trusts.
    pub trust: Option<Trust>,
    /// The proxy in between.
    pub through: Option<Arc<Through>>,
    /// It is spoken to in HTTP/2.
    pub http2: bool,
    /// How it is paid.
    pub auth: Auth,
    /// With what; never empty unless `auth` is `None`.
    pub credentials: Vec<Arc<crate::base::Credential>>,
    /// Azure's.
    pub api_version: Option<String>,
    /// How long.
    pub timeouts: Timeouts,
    /// Same target again.
    pub retry: Retry,
    /// Next target.
    pub failover: Failover,
    /// When one of its models is left alone.
    pub breaker: Rule,
    /// How long a credential is left alone.
    pub cooldown: Cooldown,
    /// How it is probed, where it is.
    pub health: Option<Health>,
    /// Kept connections.
    pub pool: Pool,
    /// The header by which it knows a request again: all tries of one bear the same key.
    pub idempotency: Option<http::HeaderName>,
    /// Sent upstream on every request.
    pub headers: Vec<(String, String)>,
    /// Body edits.
    pub params: Params,
    /// Deviations of its wire.
    pub quirks: Quirks,
    /// Its own words for failures.
    pub errors: ErrorMap,
    /// What it offers: exact names first, then patterns, the longest first.
    pub offers: Vec<Offer>,
    /// What is known of it; set when a gateway adopts its table.
    pub live: OnceLock<Arc<ProviderLive>>,
}

impl Provider {
    /// The first offer that fits a model's name.
    #[must_use]
    pub fn offer(&self, model: &str) -> Option<&Offer> {
        self.offers.iter().find(|o| o.name.matches(model))
    }
}
