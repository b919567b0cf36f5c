//! One owner's counters, and those of all owners of a request, locked together: what is asked of
//! every rule is taken in one step, or nothing of any.

use super::Refusal;
use super::counter::{Frame, Hold, Seen, State, Why};
use super::owned::{Group, Link, SCOPES};
use super::rule::{Kind, Rule};
use super::table::Ask;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// One owner's counters, side by side under one lock: a request touches few lines of memory, and
/// takes no lock twice.
#[derive(Debug, Default)]
pub(super) struct Account(pub Mutex<Slots>);

/// Counters by their places, which never change.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub ids: Vec<Arc<str>>,
    pub states: Vec<State>,
}

impl Slots {
    /// The counters of these rules. Who has the others' places goes on with what was here: only
    /// requests do that are under way while the rules change.
    pub fn only(&self, rules: &[Arc<Rule>]) -> Self {
        let kept = self.ids.iter().zip(&self.states);
        let kept = kept.filter(|(id, _)| rules.iter().any(|rule| rule.id == **id));
        let (ids, states) = kept.map(|(id, state)| (id.clone(), state.clone())).unzip();
        Self { ids, states }
    }
}

/// The accounts of a group, found once for a request.
#[derive(Debug, Default)]
pub(super) struct Seats(pub [Option<Link>; SCOPES]);

/// The same, locked: from the widest owner to the narrowest, as every request does it, so that no
/// two wait for each other.
pub(super) struct Locked<'a> {
    group: &'a Group,
    seats: &'a Seats,
    guards: [Option<MutexGuard<'a, Slots>>; SCOPES],
}

impl Seats {
    /// Locks the accounts of this group, which the seats were found for.
    pub fn lock<'a>(&'a self, group: &'a Group) -> Locked<'a> {
        let lock = |seat: &'a Option<Link>| seat.as_ref().map(|link| link.account.0.lock());
        Locked { group, seats: self, guards: self.0.each_ref().map(lock) }
    }
}

impl Locked<'_> {
    /// Every rule with its number and its counter, which is not brought to this moment.
    fn raw(&mut self, mut act: impl FnMut(usize, &Arc<Rule>, &mut State)) {
        let mut n = 0;
        let seats = self.seats.0.iter().zip(&mut self.guards);
        for (part, (seat, guard)) in self.group.by_scope().iter().zip(seats) {
            let (Some(part), Some(seat), Some(guard)) = (part, seat, guard) else { continue };
            for (at, rule) in part.iter() {
                let place = seat.places.get(at).map_or(usize::MAX, |place| *place as usize);
                if let Some(state) = guard.states.get_mut(place) {
                    act(n, rule, state);
                }
                n += 1;
            }
        }
    }

    /// The same at this moment.
    pub fn each(&mut self, f: &Frame, mut act: impl FnMut(usize, &Arc<Rule>, &mut State)) {
        self.raw(|i, rule, state| {
            state.roll(rule, f);
            act(i, rule, state);
        });
    }

    /// Takes these amounts, whether they fit or not. A rule's rest holds nothing.
    pub fn take(&mut self, amounts: &[u64], f: &Frame) -> Vec<Hold> {
        let mut holds = Vec::with_capacity(self.group.len());
        self.each(f, |i, rule, state| {
            holds.push(state.take(rule, amounts.get(i).copied().unwrap_or(0)));
        });
        holds
    }

    /// Gives holds back. Without a clock: what a bucket gets back late is refilled late, and never
    /// more.
    pub fn give(&mut self, holds: &[Hold]) {
        self.raw(|i, rule, state| {
            if let Some(hold) = holds.get(i) {
                state.give(rule, *hold);
            }
        });
    }

    /// What Redis last said is used of each rule, should it have forgotten.
    pub fn bases(&mut self) -> Vec<Seen> {
        let mut bases = Vec::with_capacity(self.group.len());
        self.raw(|_, _, state| bases.push(state.seen()));
        bases
    }

    /// Takes what is asked of every rule, or nothing of any. A refusal names the rule that heals
    /// last.
    pub fn reserve(&mut self, ask: &Ask, f: &Frame) -> Result<Vec<Hold>, Refusal> {
        if let Some((refusal, rests)) = self.refusal(ask, f) {
            // A key that rests runs into nothing.
            return Err(if rests { refusal } else { self.punish(refusal, f) });
        }
        let mut holds = Vec::with_capacity(self.group.len());
        self.raw(|_, rule, state| {
            holds.push(state.take(rule, ask.of(rule, f.capacity(rule))));
        });
        Ok(holds)
    }

    /// Why what is asked does not fit, by the rule that heals last, and whether the key rests.
    pub fn refusal(&mut self, ask: &Ask, f: &Frame) -> Option<(Refusal, bool)> {
        let (mut worst, mut rests) = (None::<Refusal>, false);
        self.each(f, |_, rule, state| {
            if let Err(why) = state.fits(rule, ask.of(rule, f.capacity(rule)), f) {
                rests |= rule.kind == Kind::Rest;
                if worst.as_ref().is_none_or(|other| gravity(why) > gravity(other.why)) {
                    worst = Some(Refusal { rule: rule.clone(), why });
                }
            }
        });
        worst.map(|refusal| (refusal, rests))
    }

    /// The key rests where the rule it ran into says so. What never fits runs into nothing.
    pub fn punish(&mut self, mut refusal: Refusal, f: &Frame) -> Refusal {
        let penalty = refusal.rule.penalty.filter(|_| refusal.why != Why::Never);
        let Some(penalty) = penalty else { return refusal };
        self.raw(|_, _, state| {
            if let State::Rest { until } = state {
                *until = f.now.at.checked_add(penalty);
            }
        });
        // The rule itself may take longer to heal than the key rests.
        let rests_longer = match refusal.why {
            Why::Wait(wait) => penalty >= wait,
            Why::Spent { resets: Some(at), .. } => {
                f.now.wall.checked_add(penalty).is_ok_and(|end| end.as_second() >= at)
            }
            Why::Spent { resets: None, .. } | Why::Rests(_) | Why::Never => false,
        };
        if rests_longer {
            refusal.why = Why::Rests(penalty);
        }
        refusal
    }
}

/// Refusals in the order in which they heal.
fn gravity(why: Why) -> (u8, Duration) {
    match why {
        Why::Wait(wait) | Why::Rests(wait) => (1, wait),
        Why::Spent { resets, .. } => {
            let at = resets.and_then(|at| u64::try_from(at).ok());
            (2, at.map_or(Duration::MAX, Duration::from_secs))
        }
        Why::Never => (3, Duration::MAX),
    }
}
