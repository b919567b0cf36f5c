//! A rule: who may use how much of what, in which time.

use super::period::Per;
use crate::base::Glob;
use jiff::tz::TimeZone;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use weir_filters::usage::NanoUsd;

/// What kind of owner a rule has, from the widest to the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The whole gateway.
    Gateway,
    /// A department.
    Department,
    /// A team.
    Team,
    /// A user.
    User,
    /// A virtual key.
    Key,
}

impl Scope {
    /// As ids, metrics and messages write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Department => "department",
            Self::Team => "team",
            Self::User => "user",
            Self::Key => "key",
        }
    }
}

/// Whose a rule is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its kind.
    pub scope: Scope,
    /// Its name; empty for the gateway.
    pub name: Arc<str>,
}

impl Owner {
    /// An owner of this kind and name.
    #[must_use]
    pub fn new(scope: Scope, name: &str) -> Self {
        Self { scope, name: name.into() }
    }
}

/// `team search`, or `the gateway`.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Gateway => f.write_str("the gateway"),
            scope => write!(f, "{} {}", scope.as_str(), self.name),
        }
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Requests.
    Requests,
    /// Prompt and output tokens.
    Tokens,
    /// Nano-USD.
    Money,
}

impl Measure {
    /// As ids and messages write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Money => "usd",
        }
    }

    /// An amount for people: dollars for money, else the number.
    #[must_use]
    pub fn show(self, amount: u64) -> String {
        match self {
            Self::Money => format!("{} USD", NanoUsd(amount)),
            Self::Requests | Self::Tokens => format!("{amount} {}", self.as_str()),
        }
    }
}

/// How a rule counts.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A bucket of `burst` units that fills with `amount` units in each `period`.
    Bucket {
        /// Requests or tokens.
        measure: Measure,
        /// Units that flow in during a period; at least 1.
        amount: u64,
        /// A second or a minute.
        period: Duration,
        /// What it holds when full; at least 1.
        burst: u64,
    },
    /// At most so many at once.
    Concurrent {
        /// At least 1.
        amount: u64,
    },
    /// At most so many in any stretch of this length.
    Window {
        /// Requests or tokens.
        measure: Measure,
        /// At least 1.
        amount: u64,
        /// At least a second.
        length: Duration,
    },
    /// At most so much in each period of the calendar.
    Budget {
        /// Tokens or money.
        measure: Measure,
        /// 0 leaves only what is free.
        amount: u64,
        /// The period.
        per: Per,
        /// Whose calendar.
        zone: TimeZone,
    },
    /// The owner rests for a while after it ran into a rule with a penalty.
    Rest,
}

/// What happens to a running stream when the rule has nothing left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Exhausted {
    /// It ends by itself, and what it used too much is owed.
    #[default]
    Finish,
    /// It is cut.
    Cut,
}

/// A cheaper model when a budget is nearly spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downgrade {
    /// From this part of the budget on, in millionths.
    pub at: u32,
    /// The model's public name.
    pub to: Arc<str>,
}

/// One rule of one owner. In C's order, so that what every request reads of it lies together: with
/// many keys a rule is rarely in a cache.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct Rule {
    /// How it counts.
    pub kind: Kind,
    /// The key rests for so long after running into it.
    pub penalty: Option<Duration>,
    /// A budget's cheaper model.
    pub downgrade: Option<Box<Downgrade>>,
    /// A budget's alert, in millionths of its amount.
    pub alert: Option<u32>,
    /// For running streams.
    pub exhausted: Exhausted,
    /// The identity of its counter: the same after a reload that changes only amounts.
    pub id: Arc<str>,
    /// Whose it is.
    pub owner: Owner,
    /// As config names it: `rpm`, `concurrent`, `tokens per hour`, `usd per month`.
    pub name: Arc<str>,
    /// Only for these models, by the name they are asked for; empty is all.
    pub models: Vec<Glob>,
    /// Only for these endpoints' labels; empty is all.
    pub endpoints: Vec<String>,
}

impl Rule {
    /// A rule for every model and endpoint. `tail` tells rules of one owner apart: `rpm`,
    /// `budget/usd/month`.
    #[must_use]
    pub fn new(owner: &Owner, tail: &str, name: &str, kind: Kind) -> Self {
        let id: Arc<str> = format!("{}:{}/{tail}", owner.scope.as_str(), owner.name).into();
        Self {
            id,
            owner: owner.clone(),
            name: name.into(),
            kind,
            models: Vec::new(),
            endpoints: Vec::new(),
            exhausted: Exhausted::Finish,
            penalty: None,
            alert: None,
            downgrade: None,
        }
    }

    /// Narrowed to some models and endpoints, which become part of its identity.
    #[must_use]
    pub fn only(mut self, models: &[String], endpoints: &[String]) -> Self {
        if !models.is_empty() || !endpoints.is_empty() {
            self.id = format!("{}[{}|{}]", self.id, models.join(","), endpoints.join(",")).into();
        }
        self.models = models.iter().map(|m| Glob::new(m)).collect();
        self.endpoints = endpoints.to_vec();
        self
    }

    /// Whether a request for this model at this endpoint is held against it.
    #[must_use]
    pub fn holds(&self, model: &str, endpoint: &str) -> bool {
        (self.models.is_empty() || self.models.iter().any(|g| g.matches(model)))
            && (self.endpoints.is_empty() || self.endpoints.iter().any(|e| e == endpoint))
    }

    /// What it counts; `None` for slots and rests.
    #[must_use]
    pub fn measure(&self) -> Option<Measure> {
        match &self.kind {
            Kind::Bucket { measure, .. }
            | Kind::Window { measure, .. }
            | Kind::Budget { measure, .. } => Some(*measure),
            Kind::Concurrent { .. } | Kind::Rest => None,
        }
    }

    /// The most it ever lets through at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match &self.kind {
            Kind::Bucket { burst, .. } => *burst,
            Kind::Concurrent { amount }
            | Kind::Window { amount, .. }
            | Kind::Budget { amount, .. } => *amount,
            Kind::Rest => 1,
        }
    }

    /// What it lets through, as config says it: `rps 2, burst 4`, `tpm 600 for gpt-4o*`.
    #[must_use]
    pub fn said(&self) -> String {
        let burst = match &self.kind {
            Kind::Bucket { amount, burst, .. } if amount != burst => format!(", burst {burst}"),
            _ => String::new(),
        };
        let amount = match &self.kind {
            Kind::Bucket { amount, .. } => amount.to_string(),
            Kind::Budget { measure: Measure::Money, amount, .. } => NanoUsd(*amount).to_string(),
            _ => self.capacity().to_string(),
        };
        format!("{} {amount}{burst}{}", self.name, self.narrowed())
    }

    /// The models and endpoints it is for, in words; nothing where it is for all.
    #[must_use]
    pub fn narrowed(&self) -> String {
        let models: Vec<_> = self.models.iter().map(Glob::as_str).collect();
        narrowed(&models, &self.endpoints)
    }

    /// A budget's period, as config writes it.
    #[must_use]
    pub fn per(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Budget { per, .. } => Some(per.as_str()),
            _ => None,
        }
    }

    /// Whether it is a budget.
    #[must_use]
    pub fn is_budget(&self) -> bool {
        matches!(self.kind, Kind::Budget { .. })
    }
}

/// ` for gpt-4o* at embeddings`; a list that is empty stands for all.
pub(super) fn narrowed<T: AsRef<str>>(models: &[T], endpoints: &[String]) -> String {
    let mut words = String::new();
    if !models.is_empty() {
        let models: Vec<&str> = models.iter().map(AsRef::as_ref).collect();
        words = format!(" for {}", models.join(", "));
    }
    if !endpoints.is_empty() {
        words = format!("{words} at {}", endpoints.join(", "));
    }
    words
}
