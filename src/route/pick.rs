//! Picking one of a model's targets by its strategy, without a list of them.

use super::plan::Plan;
use super::strategy::{Strategy, cost};
use super::{Model, Smart, Target};
use std::time::{Duration, Instant};

/// Scores this near to the best one share its traffic by weight.
const TIE: f64 = 1e-9;

/// The targets of a model's first group, with the sums of their weights up to each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    members: Vec<usize>,
    sums: Vec<u64>,
}

impl Lane {
    fn of(model: &Model) -> Self {
        let used = || model.targets.iter().enumerate().filter(|(_, t)| t.weight > 0);
        let group = used().map(|(_, t)| t.priority).min().unwrap_or(0);
        let (mut members, mut sums, mut sum) = (Vec::new(), Vec::new(), 0);
        for (i, target) in used().filter(|(_, t)| t.priority == group) {
            sum += u64::from(target.weight);
            members.push(i);
            sums.push(sum);
        }
        Self { members, sums }
    }
}

impl Plan {
    /// The next target to try: of those that can be asked and fit, in the lowest group that has
    /// one, by the model's strategy. Targets that are slower than the request bears, or that have
    /// just come back and get their traffic step by step, come after the others.
    pub(super) fn pick(&self, now: Instant) -> Option<usize> {
        if self.need.once && self.targets_tried() > 0 {
            return None;
        }
        self.pick_quickly(now)
            .or_else(|| self.pick_among(now, true))
            .or_else(|| self.pick_among(now, false))
    }

    /// A target of the first group without a look at the others, where the strategy needs none
    /// and the one whose turn it is can be asked. With many targets this is most of the work.
    fn pick_quickly(&self, now: Instant) -> Option<usize> {
        if self.need.affinity.is_some() {
            return None;
        }
        let lane = self.model.lane.get_or_init(|| Lane::of(&self.model));
        let usable = |place: usize| {
            let at = *lane.members.get(place)?;
            let target = self.model.targets.get(at)?;
            self.is_usable(at, target, now, true).then_some((at, target))
        };
        let many = lane.members.len() as u64;
        match self.strategy {
            Strategy::Priority | Strategy::Weighted => {
                let sum = *lane.sums.last()?;
                let turn = if many > 1 { self.draw(sum) } else { 0 };
                usable(lane.sums.partition_point(|upto| *upto <= turn)).map(|(at, _)| at)
            }
            Strategy::Latency if many > 1 => {
                let (one, other) = self.two_of(many);
                let (one, other) = (usable(one as usize)?, usable(other as usize)?);
                let later = self.latency(one.1, now) > self.latency(other.1, now);
                Some(if later { other.0 } else { one.0 })
            }
            _ => None,
        }
    }

    /// The next of the model's turns.
    fn draw(&self, sum: u64) -> u64 {
        match self.model.turns.get() {
            Some(turns) => turns.next(sum),
            None => self.seed % sum.max(1),
        }
    }

    /// Two different numbers below `many`, which is 2 or more.
    fn two_of(&self, many: u64) -> (u64, u64) {
        let one = self.seed % many;
        (one, (one + 1 + (self.seed >> 32) % (many - 1)) % many)
    }

    fn is_usable(&self, at: usize, target: &Target, now: Instant, best: bool) -> bool {
        target.weight > 0
            && !self.is_gone(at)
            && self.lacks(target).is_none_or(|lack| self.lenient && lack.is_doubtful())
            && self.is_tagged(target)
            && self.check(target, now).is_ok()
            && !(best && (self.is_held_back(at, target, now) || self.is_slow(target)))
    }

    fn pick_among(&self, now: Instant, best: bool) -> Option<usize> {
        let (mut group, mut sum, mut many, mut first) = (u32::MAX, 0, 0, None);
        for (i, target) in self.model.targets.iter().enumerate() {
            if target.priority > group || !self.is_usable(i, target, now, best) {
                continue;
            }
            if target.priority < group {
                (group, sum, many, first) = (target.priority, 0, 0, Some(i));
            }
            sum += u64::from(target.weight);
            many += 1;
        }
        if many < 2 {
            return first;
        }
        let members = || {
            (self.model.targets.iter().enumerate())
                .filter(move |(_, target)| target.priority == group)
                .filter(move |(i, target)| self.is_usable(*i, target, now, best))
        };
        let picked = match (self.need.affinity, self.strategy) {
            (Some(hash), _) => nearest(members(), hash),
            (None, Strategy::Priority | Strategy::Weighted) => self.turn(members(), sum),
            (None, Strategy::Latency) => self.faster(members(), many, now),
            (None, Strategy::Cost | Strategy::Smart) => self.best(members, now),
        };
        picked.or(first)
    }

    fn turn<'a>(&self, all: impl Iterator<Item = (usize, &'a Target)>, sum: u64) -> Option<usize> {
        let mut turn = self.draw(sum);
        for (i, target) in all {
            match turn.checked_sub(u64::from(target.weight)) {
                Some(left) => turn = left,
                None => return Some(i),
            }
        }
        None
    }

    /// The faster of two drawn at random: no herd runs to the one that was fastest a moment ago.
    fn faster<'a>(
        &self,
        all: impl Iterator<Item = (usize, &'a Target)>,
        many: u64,
        now: Instant,
    ) -> Option<usize> {
        let (one, other) = self.two_of(many);
        let drawn = all.enumerate().filter(|(n, _)| [one, other].contains(&(*n as u64)));
        let scored = drawn.map(|(_, (i, target))| (i, self.latency(target, now)));
        scored.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
    }

    /// The lowest score; equal ones in turn.
    fn best<'a, I: Iterator<Item = (usize, &'a Target)>>(
        &self,
        all: impl Fn() -> I,
        now: Instant,
    ) -> Option<usize> {
        let most = self.most(all().map(|(_, target)| target), now);
        let lowest = all().map(|(_, t)| self.score(t, most, now)).min_by(f64::total_cmp)?;
        let equal = || all().filter(|(_, t)| self.score(t, most, now) <= lowest + TIE);
        self.turn(equal(), equal().map(|(_, t)| u64::from(t.weight)).sum())
    }

    /// The highest cost and the highest latency among some targets.
    pub(super) fn most<'a>(
        &self,
        all: impl Iterator<Item = &'a Target>,
        now: Instant,
    ) -> (f64, f64) {
        all.fold((0.0, 0.0), |most: (f64, f64), target| {
            let finite = Some(self.cost(target)).filter(|c| *c < f64::MAX).unwrap_or(0.0);
            (most.0.max(finite), most.1.max(self.latency(target, now)))
        })
    }

    /// What a target asks for this request, in nano-USD.
    pub(super) fn cost(&self, target: &Target) -> f64 {
        cost(self.model.offer(target, &self.asked), &self.need)
    }

    /// A target's latency as it is compared, in seconds.
    pub(super) fn latency(&self, target: &Target, now: Instant) -> f64 {
        let unseen = self.model.smart.unseen;
        let score = |live: &super::live::TargetLive| {
            let latency = live.latency(self.need.stream);
            match self.strategy {
                Strategy::Latency => latency.score(unseen, now),
                _ => latency.average().unwrap_or(unseen).as_secs_f64(),
            }
        };
        target.live.get().map_or(unseen.as_secs_f64(), |live| score(live))
    }

    /// Cost alone, or cost and latency, each as a part of the highest among the candidates.
    pub(super) fn score(&self, target: &Target, most: (f64, f64), now: Instant) -> f64 {
        let part = |value: f64, most: f64| if most > 0.0 { (value / most).min(2.0) } else { 0.0 };
        let dear = part(self.cost(target), most.0);
        let Smart { cost, latency, .. } = *self.model.smart;
        match self.strategy {
            Strategy::Smart => cost * dear + latency * part(self.latency(target, now), most.1),
            _ => dear,
        }
    }

    fn is_slow(&self, target: &Target) -> bool {
        let least = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let Some(most) = least(self.model.max_latency, self.need.max_latency) else { return false };
        let live = target.live.get();
        let average = live.and_then(|live| live.latency(self.need.stream).average());
        average.is_some_and(|average| average > most)
    }

    fn is_held_back(&self, at: usize, target: &Target, now: Instant) -> bool {
        let Some(live) = target.live.get() else { return false };
        let share = live.share(&target.provider.breaker, now);
        // 53 bits are exact in a float.
        #[allow(clippy::cast_precision_loss)]
        let draw = (mix(self.seed, at as u64) >> 11) as f64 / (1u64 << 53) as f64;
        share < 1.0 && draw >= share
    }
}

/// Weighted rendezvous hashing: each target draws a number from the hash and its own name, and
/// the highest wins. A target that leaves or comes moves its own share of requests alone.
fn nearest<'a>(all: impl Iterator<Item = (usize, &'a Target)>, hash: u64) -> Option<usize> {
    let drawn = all.map(|(i, target)| {
        let model = target.model.as_deref().unwrap_or("*");
        let name = [target.provider.id.as_str(), "/", model].concat();
        let number = mix(hash, digest(name.as_bytes()));
        // 53 bits are exact in a float; never 0, whose logarithm is none.
        #[allow(clippy::cast_precision_loss)]
        let unit = ((number >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (i, f64::from(target.weight) / -unit.ln())
    });
    drawn.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
}

/// FNV-1a: the same on every machine and in every version, so that nodes agree.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Two numbers into one that looks random (the finisher of SplitMix64).
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
