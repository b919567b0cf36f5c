//! A provider's `params` and the usage we need in a stream, as edits of the caller's body.

use super::edit::{Slot, Step};
use super::{BadBody, Edits, OWN, Peek, read};
use crate::wire::Params;
use bytes::Bytes;

/// Two names of one limit. Where a caller gives both, each is sent as the smaller: providers differ
/// on which they follow, and [`Peek::max_tokens`] is what was held for the request.
const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Adds a provider's edits to `edits`, in the order rename, drop, defaults, clamp, each on the names
/// that the one before left. Gives the caller's names of the members that do not reach the provider.
///
/// - Renames are done all at once. Where the new name stands already, it stays and the old goes.
/// - A default is not applied where the member stands under its own or its renamed name, null included.
/// - A clamp replaces a number outside its range by the nearer bound and leaves everything else.
///
/// # Errors
/// [`BadBody::Member`] where a member that `params` names stands twice.
pub fn apply_params(
    params: &Params,
    peek: &Peek,
    edits: &mut Edits,
) -> Result<Vec<String>, BadBody> {
    once(params, peek)?;
    let mut work = Work {
        peek,
        steps: Vec::new(),
        slots: edits.slots(peek),
    };
    let before = work.gone();
    work.rename(params);
    work.limits();
    for name in &params.drop {
        work.step(Step::Remove(name.clone()));
    }
    let after = work.gone();
    let dropped = after
        .into_iter()
        .filter(|name| !before.contains(name) && !OWN.contains(name));
    let dropped = dropped.map(String::from).collect();
    work.defaults(params);
    work.clamp(params);
    let steps = work.steps;
    steps.into_iter().for_each(|step| edits.push(step));
    Ok(dropped)
}

/// The value of `stream_options` that makes a stream report its usage, the caller's other options
/// kept. `None` where nothing has to change: the caller asks for usage already, or for no stream
/// (providers refuse `stream_options` there).
#[must_use]
pub fn with_include_usage(peek: &Peek) -> Option<Bytes> {
    if peek.include_usage || !peek.stream {
        return None;
    }
    let options = peek
        .find("stream_options")
        .and_then(|m| read::inner(peek, m).ok());
    let mut edits = Edits::default();
    edits.set("include_usage", "true");
    Some(edits.splice(&options.unwrap_or_default(), &[]).concat())
}

/// Steps taken so far, and the members as they are behind them.
struct Work<'a> {
    peek: &'a Peek,
    steps: Vec<Step>,
    slots: Vec<Slot<'a>>,
}

impl<'a> Work<'a> {
    /// The caller's members that are gone so far.
    fn gone(&self) -> Vec<&'a str> {
        self.slots
            .iter()
            .filter(|s| s.gone)
            .filter_map(|s| original(self.peek, s))
            .collect()
    }

    fn step(&mut self, step: Step) {
        step.run(&mut self.slots);
        self.steps.push(step);
    }

    fn rename(&mut self, params: &Params) {
        let pairs = params
            .rename
            .iter()
            .map(|(from, to)| (from.clone(), to.clone()));
        self.step(Step::Rename(pairs.collect()));
    }

    /// Levels the two names of the output limit to what was held for the request.
    fn limits(&mut self) {
        let Some(limit) = self.peek.max_tokens else {
            return;
        };
        let given = self.slots.iter().filter(|s| {
            s.value.is_none() && original(self.peek, s).is_some_and(|n| LIMITS.contains(&n))
        });
        let (gone, standing): (Vec<_>, Vec<_>) = given.partition(|s| s.gone);
        let names: Vec<String> = standing
            .iter()
            .filter(|s| !gone.is_empty() || number(self.peek, s).is_some())
            .map(|s| s.name.to_string())
            .collect();
        for name in names {
            self.step(Step::Set(name, limit.to_string().into()));
        }
    }

    fn defaults(&mut self, params: &Params) {
        for (name, value) in &params.defaults {
            let renamed = params.rename.get(name).unwrap_or(name);
            let stands = |s: &Slot<'_>| s.name == *name || s.name == *renamed;
            if !self.slots.iter().any(|s| !s.gone && stands(s)) {
                self.step(Step::Set(name.clone(), value.clone().into()));
            }
        }
    }

    fn clamp(&mut self, params: &Params) {
        for (name, &(low, high)) in &params.clamp {
            let slot = self.slots.iter().find(|s| !s.gone && s.name == *name);
            let Some(value) = slot.and_then(|s| number(self.peek, s)) else {
                continue;
            };
            let bound = if value < low {
                low
            } else if value > high {
                high
            } else {
                continue;
            };
            if let Some(text) = json(bound) {
                self.step(Step::Set(name.clone(), text.into()));
            }
        }
    }
}

/// Refuses a second member of a name that `params` edits.
fn once(params: &Params, peek: &Peek) -> Result<(), BadBody> {
    let edited = |name: &str| {
        params.rename.contains_key(name)
            || params.rename.values().any(|to| to == name)
            || params.drop.iter().any(|n| n == name)
            || params.defaults.contains_key(name)
            || params.clamp.contains_key(name)
    };
    let mut names: Vec<&str> = peek
        .members
        .iter()
        .map(|m| peek.name(m))
        .filter(|n| edited(n))
        .collect();
    names.sort_unstable();
    match names.array_windows().find(|[a, b]| a == b) {
        Some([twice, _]) => Err(BadBody::twice(twice)),
        None => Ok(()),
    }
}

/// The caller's name of a member.
fn original<'a>(peek: &'a Peek, slot: &Slot<'_>) -> Option<&'a str> {
    peek.members.get(slot.origin?).map(|m| peek.name(m))
}

/// A member's value where it is a number; `1e400` is infinite.
fn number(peek: &Peek, slot: &Slot<'_>) -> Option<f64> {
    let raw = match &slot.value {
        Some(value) => value,
        None => peek.value(peek.members.get(slot.origin?)?),
    };
    // Keeps out what Rust reads as a number and JSON does not: `inf`, `nan`, `+1`.
    raw.first().filter(|b| matches!(b, b'-' | b'0'..=b'9'))?;
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// Shortest JSON of a bound: whole numbers without a point, so that integers stay integers.
fn json(bound: f64) -> Option<String> {
    bound.is_finite().then(|| format!("{bound}"))
}
