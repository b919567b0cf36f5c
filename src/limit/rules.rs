//! Every owner's rules, compiled: which of them a request is held against.

use super::owned::{Group, Owned, SCOPES};
use super::rule::{Owner, Rule, Scope};
use super::spec::{Spec, Twice};
use foldhash::quality::RandomState;
use jiff::tz::TimeZone;
use smol_str::SmolStr;
use std::collections::HashMap;
use std::sync::Arc;

/// What is held for the output of a request that names no maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultOutput {
    /// The model's running mean and two deviations.
    #[default]
    Learned,
    /// So many tokens.
    Fixed(u64),
    /// The most that the provider generates.
    Max,
}

/// Every owner's rules.
#[derive(Debug, Clone)]
pub struct Rules {
    /// One map for each [`Scope`]; shared, since keys of the store are laid over a copy.
    owners: [Arc<HashMap<SmolStr, Arc<Owned>, RandomState>>; SCOPES],
    /// For owners without a table.
    key_defaults: Spec,
    user_defaults: Spec,
    /// Where days, weeks and months begin.
    pub zone: TimeZone,
    /// Held where a request names no maximum.
    pub default_output: DefaultOutput,
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(TimeZone::UTC, DefaultOutput::default())
    }
}

impl Rules {
    /// None yet.
    #[must_use]
    pub fn new(zone: TimeZone, default_output: DefaultOutput) -> Self {
        let (key_defaults, user_defaults) = (Spec::default(), Spec::default());
        Self { owners: Default::default(), key_defaults, user_defaults, zone, default_output }
    }

    /// With what keys and users get where their own tables do not say.
    #[must_use]
    pub fn defaults(mut self, keys: Spec, users: Spec) -> Self {
        (self.key_defaults, self.user_defaults) = (keys, users);
        self
    }

    /// Adds an owner's table.
    ///
    /// # Errors
    /// Two of its rules are the same.
    pub fn add(&mut self, owner: &Owner, spec: Spec) -> Result<(), Twice> {
        let owned = self.compile(owner, spec)?;
        let owners = Arc::make_mut(&mut self.owners[owner.scope as usize]);
        owners.insert(SmolStr::new(&*owner.name), Arc::new(owned));
        Ok(())
    }

    /// Forgets an owner's table.
    pub fn remove(&mut self, owner: &Owner) {
        Arc::make_mut(&mut self.owners[owner.scope as usize]).remove(&*owner.name);
    }

    fn compile(&self, owner: &Owner, spec: Spec) -> Result<Owned, Twice> {
        let spec = match owner.scope {
            Scope::Key => spec.or(&self.key_defaults),
            Scope::User => spec.or(&self.user_defaults),
            _ => spec,
        };
        Owned::new(owner, spec, &self.zone)
    }

    /// Whether an owner has its table, or its defaults.
    #[must_use]
    pub fn knows(&self, scope: Scope, name: &str) -> bool {
        self.owners[scope as usize].contains_key(name)
    }

    /// An owner's compiled table.
    pub(super) fn owned(&self, scope: Scope, name: &str) -> Option<&Arc<Owned>> {
        self.owners[scope as usize].get(name)
    }

    /// Every rule there is.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.owners.iter().flat_map(|scope| scope.values()).flat_map(|o| o.rules())
    }

    /// Every owner with what its table says.
    pub fn specs(&self) -> impl Iterator<Item = (&Owner, &Spec)> {
        let owners = self.owners.iter().flat_map(|scope| scope.values());
        owners.map(|owned| (&owned.owner, &owned.spec))
    }

    /// How many there are, the rest of each owner included.
    #[must_use]
    pub fn count(&self) -> usize {
        let owners = self.owners.iter().flat_map(|scope| scope.values());
        owners.map(|owned| owned.counted().len()).sum()
    }

    /// One owner's rules.
    pub fn of(&self, scope: Scope, name: &str) -> impl Iterator<Item = &Arc<Rule>> {
        self.owners[scope as usize].get(name).into_iter().flat_map(|o| o.rules())
    }

    /// The rules that a request of these owners for this model at this endpoint is held against.
    #[must_use]
    pub fn gather<'a>(
        &self,
        owners: impl IntoIterator<Item = (Scope, &'a str)>,
        model: &str,
        endpoint: &str,
    ) -> Group {
        let find = |(scope, name): (Scope, &str)| self.owners[scope as usize].get(name);
        Group::new(owners.into_iter().filter_map(find), model, endpoint)
    }
}
