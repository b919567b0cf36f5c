//! Which of a provider's credentials a try may have: its share, its rests and its caps.

use super::{Block, ProviderLive, TargetLive, tokenless};
use crate::base::Credential;
use crate::route::breaker::Rule;
use crate::route::caps::{Full, Seat, Seats};
use crate::route::rest::{Rest, Rests, Why};
use std::sync::Arc;
use std::time::Instant;

/// Which credential a try may have.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// One that rests by our own guess alone will do as well.
    pub insist: bool,
    /// What the try is estimated to use.
    pub tokens: u64,
}

/// The credential of one try.
#[derive(Debug, Default)]
pub struct Key {
    /// Its place among the provider's.
    pub at: usize,
    /// `None`: the provider takes none.
    pub credential: Option<Arc<Credential>>,
    /// What the try takes of its caps, where it has some.
    pub seat: Option<Seat>,
}

/// A credential.
#[derive(Debug)]
pub struct CredentialLive {
    /// As config has it.
    pub credential: Arc<Credential>,
    /// Tells it from any other of this process. 0: the one that stands for none.
    pub(super) id: u64,
    /// Refused, or out of money.
    pub(super) rests: Rests,
    /// What is used of its caps.
    pub(super) seats: Arc<Seats>,
}

impl CredentialLive {
    fn room(&self, tokens: u64, now: Instant) -> Result<(), Full> {
        self.credential.caps.as_ref().map_or(Ok(()), |caps| self.seats.room(caps, tokens, now))
    }

    fn take(&self, tokens: u64, now: Instant) -> Result<Option<Seat>, Full> {
        let caps = self.credential.caps.as_ref();
        caps.map(|caps| self.seats.take(caps, tokens, now)).transpose()
    }
}

impl ProviderLive {
    /// The credential for a try of `target`, each in its share, its place, and what the try takes
    /// of its caps. `None`: the provider takes none.
    ///
    /// # Errors
    /// Every one rests or is full; of the reasons the one that ends first, those that heal by
    /// themselves before the others.
    pub fn credential(
        &self,
        target: &TargetLive,
        wanted: Wanted,
        now: Instant,
    ) -> Result<Key, Block> {
        if self.credentials.is_empty() {
            let free = self.rest(target, 0, now).is_none_or(|r| wanted.insist && r.is_guess());
            return if free { Ok(Key::default()) } else { Err(self.blocked(target, wanted, now)) };
        }
        // Whoever is taken by another between a look and the taking is not free at the next look.
        for _ in 0..=self.credentials.len() {
            let Some(at) = self.turn(target, wanted, now) else { break };
            let live = &self.credentials[at];
            if let Ok(seat) = live.take(wanted.tokens, now) {
                return Ok(Key { at, credential: Some(live.credential.clone()), seat });
            }
        }
        Err(self.blocked(target, wanted, now))
    }

    /// Whose turn it is among those that can be asked.
    fn turn(&self, target: &TargetLive, wanted: Wanted, now: Instant) -> Option<usize> {
        let all = || self.credentials.iter().enumerate().filter(|(_, c)| c.credential.weight > 0);
        let weight = |i: usize, c: &CredentialLive| {
            let free = self.block(target, i, wanted, now).is_none();
            u64::from(if free { c.credential.weight } else { 0 })
        };
        let sum: u64 = all().map(|(i, c)| weight(i, c)).sum();
        let mut turn = if sum == 0 { 0 } else { self.turns.next(sum) };
        for (i, live) in all() {
            match turn.checked_sub(weight(i, live)) {
                None => return Some(i),
                Some(left) => turn = left,
            }
        }
        // All rest, or one lay down between the two looks.
        None
    }

    /// Why the credential at this place cannot be asked (0: the place of none).
    fn block(&self, target: &TargetLive, i: usize, wanted: Wanted, now: Instant) -> Option<Block> {
        let rest = self.rest(target, i, now).filter(|rest| !(wanted.insist && rest.is_guess()));
        let full = || self.credentials.get(i)?.room(wanted.tokens, now).err();
        rest.map(Block::Resting).or_else(|| full().map(Block::Full))
    }

    fn blocked(&self, target: &TargetLive, wanted: Wanted, now: Instant) -> Block {
        let used = |i: &usize| self.credentials.get(*i).is_none_or(|c| c.credential.weight > 0);
        let places = (0..self.credentials.len().max(1)).filter(used);
        let all = places.filter_map(|i| self.block(target, i, wanted, now));
        let soon = Block::Resting(Rest { until: now, why: Why::Rate, named: false });
        all.min_by_key(|block| block.rank(now)).unwrap_or(soon)
    }

    fn rest(&self, target: &TargetLive, i: usize, now: Instant) -> Option<Rest> {
        let Some(live) = self.credentials.get(i) else { return target.rates.of(0, now) };
        let lack = || live.credential.proof.lack(now).map(|lack| tokenless(lack, now));
        live.rests.of(0, now).or_else(|| target.rates.of(live.id, now)).or_else(lack)
    }

    /// A credential rests from now on (0: the place of none). True where that is news.
    pub fn lie_down(&self, target: &TargetLive, i: usize, rest: Rest, now: Instant) -> bool {
        let live = self.credentials.get(i);
        match (rest.why, live) {
            (Why::Rate, _) => target.rates.lie_down(live.map_or(0, |c| c.id), rest, now),
            (_, Some(live)) => live.rests.lie_down(0, rest, now),
            (_, None) => false,
        }
    }

    /// Whether a target can be asked now for a try of so many tokens, as far as one look tells.
    ///
    /// # Errors
    /// Why not.
    pub fn check(
        &self,
        target: &TargetLive,
        rule: &Rule,
        tokens: u64,
        now: Instant,
    ) -> Result<(), Block> {
        if self.pulse.is_down() {
            return Err(Block::Down);
        }
        target.check(rule, now).map_err(Block::Open)?;
        let calm = |c: &Arc<CredentialLive>| {
            let credential = &c.credential;
            c.rests.is_empty() && credential.caps.is_none() && credential.proof.lack(now).is_none()
        };
        if target.rates.is_empty() && self.credentials.iter().all(calm) {
            return Ok(());
        }
        let wanted = Wanted { insist: false, tokens };
        let free = |i: usize| {
            self.credentials.get(i).is_none_or(|c| c.credential.weight > 0)
                && self.block(target, i, wanted, now).is_none()
        };
        if (0..self.credentials.len().max(1)).any(free) {
            Ok(())
        } else {
            Err(self.blocked(target, wanted, now))
        }
    }
}
