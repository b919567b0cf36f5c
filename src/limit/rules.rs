//! Every owner's rules, compiled: which of them a request is held against.

use super::rule::{Kind, Owner, Rule, Scope};
use super::spec::{Spec, Twice};
use jiff::tz::TimeZone;
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

/// One owner's rules.
#[derive(Debug, Clone)]
struct Owned {
    spec: Spec,
    rules: Vec<Arc<Rule>>,
    rest: Arc<Rule>,
}

/// Every owner's rules.
#[derive(Debug, Clone)]
pub struct Rules {
    /// One map for each [`Scope`]; shared, since keys of the store are laid over a copy.
    owners: [Arc<HashMap<Arc<str>, Owned>>; 5],
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
        Arc::make_mut(&mut self.owners[owner.scope as usize]).insert(owner.name.clone(), owned);
        Ok(())
    }

    fn compile(&self, owner: &Owner, spec: Spec) -> Result<Owned, Twice> {
        let spec = match owner.scope {
            Scope::Key => spec.or(&self.key_defaults),
            Scope::User => spec.or(&self.user_defaults),
            _ => spec,
        };
        let rules = spec.rules(owner, &self.zone)?;
        Ok(Owned { spec, rules, rest: Arc::new(Rule::new(owner, "rest", "rest", Kind::Rest)) })
    }

    /// Whether an owner has its table, or its defaults.
    #[must_use]
    pub fn knows(&self, scope: Scope, name: &str) -> bool {
        self.owners[scope as usize].contains_key(name)
    }

    /// Every rule there is.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.owners.iter().flat_map(|scope| scope.values()).flat_map(|o| &o.rules)
    }

    /// How many there are, the rest of each owner included.
    #[must_use]
    pub fn count(&self) -> usize {
        let owners = self.owners.iter().flat_map(|scope| scope.values());
        owners.map(|owned| owned.rules.len() + 1).sum()
    }

    /// Every rule there is, and the rest of each owner.
    pub fn all_with_rests(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let owners = self.owners.iter().flat_map(|scope| scope.values());
        owners.flat_map(|owned| owned.rules.iter().chain([&owned.rest]))
    }

    /// One owner's rules.
    pub fn of(&self, scope: Scope, name: &str) -> impl Iterator<Item = &Arc<Rule>> {
        self.owners[scope as usize].get(name).into_iter().flat_map(|o| &o.rules)
    }

    /// The rules that a request of these owners for this model at this endpoint is held against,
    /// the widest owner's first.
    #[must_use]
    pub fn gather(&self, owners: &[(Scope, &str)], model: &str, endpoint: &str) -> Vec<Arc<Rule>> {
        let mut rules = Vec::new();
        let mut rest = None;
        for owned in self.owned(owners) {
            rules.extend(owned.rules.iter().filter(|r| r.holds(model, endpoint)).cloned());
            rest = Some(&owned.rest);
        }
        if let Some(rest) = rest.filter(|_| rules.iter().any(|r| r.penalty.is_some())) {
            rules.push(rest.clone());
        }
        rules
    }

    /// The most tokens that one request of these owners may have, and whose word that is.
    #[must_use]
    pub fn largest_request(
        &self,
        owners: &[(Scope, &str)],
        model: &str,
        endpoint: &str,
    ) -> Option<(u64, Owner)> {
        let bounds = self.owned(owners).filter_map(|owned| {
            Some((owned.spec.largest_request(model, endpoint)?, owned.rest.owner.clone()))
        });
        bounds.min_by_key(|(most, _)| *most)
    }

    fn owned(&self, owners: &[(Scope, &str)]) -> impl Iterator<Item = &Owned> {
        owners.iter().filter_map(|(scope, name)| self.owners[*scope as usize].get(*name))
    }
}
