//! One owner's rules, compiled, and the rules of several owners that one request is held against.

use super::rule::{Kind, Owner, Rule};
use super::seats::Account;
use super::spec::{Spec, Twice};
use jiff::tz::TimeZone;
use std::sync::{Arc, OnceLock};

/// As many as there are scopes: a request has at most one owner of each.
pub(super) const SCOPES: usize = 5;

/// One owner's rules. In C's order, as rules are.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Owned {
    /// Every rule holds for every model and endpoint.
    plain: bool,
    /// Its rest is the last one.
    rules: Box<[Arc<Rule>]>,
    /// Its counters, once they were looked for.
    link: OnceLock<Link>,
    pub owner: Owner,
    pub spec: Spec,
}

/// Where an owner's rules are counted.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// Whose account it is: tables of other gateways in one process have their own.
    pub table: u64,
    pub account: Arc<Account>,
    /// The place of each rule's counter in it.
    pub places: Arc<[u32]>,
}

impl Owned {
    /// The rules of an owner's table.
    ///
    /// # Errors
    /// Two of them are the same.
    pub fn new(owner: &Owner, spec: Spec, zone: &TimeZone) -> Result<Self, Twice> {
        let rules = spec.rules(owner, zone)?;
        Ok(Self::of(owner, spec, rules))
    }

    fn of(owner: &Owner, spec: Spec, mut rules: Vec<Arc<Rule>>) -> Self {
        let plain = rules.iter().all(|r| r.models.is_empty() && r.endpoints.is_empty());
        rules.push(Arc::new(Rule::new(owner, "rest", "rest", Kind::Rest)));
        let (owner, rules) = (owner.clone(), rules.into());
        Self { spec, owner, rules, plain, link: OnceLock::new() }
    }

    /// Its rules, without its rest.
    pub fn rules(&self) -> &[Arc<Rule>] {
        self.rules.split_last().map_or(&[], |(_, rules)| rules)
    }

    /// All that may be counted: its rules, and its rest.
    pub fn counted(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Whether their places were handed out.
    pub fn is_linked(&self) -> bool {
        self.link.get().is_some()
    }

    /// Where they are counted; `find` looks for it, once.
    pub fn link(&self, table: u64, find: impl Fn() -> Link) -> Link {
        let link = self.link.get_or_init(&find);
        if link.table == table { link.clone() } else { find() }
    }
}

/// The rules that one request is held against: of each of its owners, the widest first.
#[derive(Debug, Clone, Default)]
pub struct Group {
    parts: [Option<Part>; SCOPES],
}

/// Those of one owner that hold.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub owned: Arc<Owned>,
    /// The places of those that hold; `None` where they are the first `len`.
    picked: Option<Arc<[u32]>>,
    len: usize,
}

impl Part {
    fn new(owned: &Arc<Owned>, model: &str, endpoint: &str) -> Self {
        let all = owned.rules();
        if owned.plain {
            return Self { owned: owned.clone(), picked: None, len: all.len() };
        }
        let held = (0u32..).zip(all).filter(|(_, rule)| rule.holds(model, endpoint));
        let picked: Arc<[u32]> = held.map(|(i, _)| i).collect();
        Self { owned: owned.clone(), len: picked.len(), picked: Some(picked) }
    }

    /// The place among the owner's rules of the one at this place of the part.
    fn at(&self, i: usize) -> usize {
        match &self.picked {
            None => i,
            Some(picked) => picked.get(i).map_or(usize::MAX, |place| *place as usize),
        }
    }

    /// Rules with their places among the owner's.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<Rule>)> {
        (0..self.len).filter_map(|i| {
            let at = self.at(i);
            Some((at, self.owned.rules.get(at)?))
        })
    }

    /// With the owner's rest.
    fn rest(&mut self) {
        let rest = self.owned.rules.len().saturating_sub(1);
        if let Some(picked) = &self.picked {
            let rest = u32::try_from(rest).unwrap_or(u32::MAX);
            self.picked = Some(picked.iter().copied().chain([rest]).collect());
        }
        self.len += 1;
    }
}

impl Group {
    /// Those of these owners that hold for this model at this endpoint. Where one of them has a
    /// penalty, the narrowest owner's rest is among them.
    pub(super) fn new<'a>(
        owners: impl Iterator<Item = &'a Arc<Owned>>,
        model: &str,
        endpoint: &str,
    ) -> Self {
        let mut group = Self::default();
        for owned in owners {
            if let Some(place) = group.parts.get_mut(owned.owner.scope as usize) {
                *place = Some(Part::new(owned, model, endpoint));
            }
        }
        if group.iter().any(|rule| rule.penalty.is_some())
            && let Some(last) = group.parts.iter_mut().flatten().last()
        {
            last.rest();
        }
        group
    }

    /// The widest owner's rules first; the rest is the last.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.parts().flat_map(Part::iter).map(|(_, rule)| rule)
    }

    /// Its owners, the widest first.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().flatten()
    }

    /// The same by their scopes' numbers.
    pub(super) fn by_scope(&self) -> &[Option<Part>; SCOPES] {
        &self.parts
    }

    /// How many rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts().map(|part| part.len).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts().all(|part| part.len == 0)
    }

    /// The rule at this place.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&Arc<Rule>> {
        self.iter().nth(i)
    }

    /// The most tokens that one request may have, and whose word that is.
    #[must_use]
    pub fn largest_request(&self, model: &str, endpoint: &str) -> Option<(u64, &Owner)> {
        let bounds = self.parts().filter_map(|part| {
            Some((part.owned.spec.largest_request(model, endpoint)?, &part.owned.owner))
        });
        bounds.min_by_key(|(most, _)| *most)
    }
}

/// Rules of owners without a table, each of which has one.
#[cfg(test)]
impl From<&[Arc<Rule>]> for Group {
    fn from(rules: &[Arc<Rule>]) -> Self {
        let mut group = Self::default();
        for rule in rules.iter().filter(|r| r.kind != Kind::Rest) {
            let place = &mut group.parts[rule.owner.scope as usize];
            let mut all = place.as_ref().map(|p| p.owned.rules().to_vec()).unwrap_or_default();
            all.push(rule.clone());
            let owned = Arc::new(Owned::of(&rule.owner, Spec::default(), all));
            let len = owned.rules().len();
            *place = Some(Part { owned, picked: None, len });
        }
        if rules.iter().any(|r| r.kind == Kind::Rest) {
            group.parts.iter_mut().flatten().last().into_iter().for_each(Part::rest);
        }
        group
    }
}
