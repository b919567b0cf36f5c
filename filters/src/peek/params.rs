//! A provider's `params` and the usage we need in a stream, as edits of the caller's body.

use super::edit::{Slot, Step};
use super::{BadBody, Edits, OWN, Peek, read};
use crate::wire::Params;
use bytes::Bytes;

/// Two names of one limit. Where a caller gives both, each is sent as the smaller: providers differ
/// on which they follow, and [`Peek::max_tokens`] is what was held for the request.
const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Adds a provider's edits to `edits`, in the order rename, drop, defaults, clamp, each on the
/// names that the one before left. Gives the caller's names of what does not reach the provider.
///
/// - Renames are done all at once. Where the new name stands already, it stays and the old goes.
/// - A default is not applied where the member stands, null included, under its own or its
///   renamed name.
/// - A clamp replaces a number outside its range by the nearer bound and leaves everything else.
///
/// # Errors
/// [`BadBody::Member`] where a member that `params` names stands twice.
pub fn apply_params(
    params: &Params,
    peek: &Peek,
    edits: &mut Edits,
) -> Result<Vec<String>, BadBody> {
    if is_idle(params, peek) {
        return Ok(Vec::new());
    }
    once(params, peek)?;
    let mut work = Work { peek, steps: Vec::new(), slots: edits.slots(peek) };
    let before = work.gone();
    work.rename(params);
    work.limits();
    for name in &params.drop {
        work.step(Step::Remove(name.clone()));
    }
    let after = work.gone();
    let dropped = after.into_iter().filter(|name| !before.contains(name) && !OWN.contains(name));
    let dropped = dropped.map(String::from).collect();
    work.defaults(params);
    work.clamp(params);
    let steps = work.steps;
    steps.into_iter().for_each(|step| edits.push(step));
    Ok(dropped)
}

/// There is nothing to edit: the provider names no member, and the caller at most one limit, as
/// the digits that it was held for.
fn is_idle(params: &Params, peek: &Peek) -> bool {
    let none = params.rename.is_empty()
        && params.drop.is_empty()
        && params.defaults.is_empty()
        && params.clamp.is_empty();
    let mut limits = peek.members.iter().filter(|m| LIMITS.contains(&peek.name(m)));
    let (first, second) = (limits.next(), limits.next());
    let held = |limit: u64| {
        let mut digits = itoa::Buffer::new();
        first.is_none_or(|m| peek.value(m) == digits.format(limit).as_bytes())
    };
    none && second.is_none() && peek.max_tokens.is_none_or(held)
}

/// The value of `stream_options` that makes a stream report its usage, the caller's other options
/// kept. `None` where nothing has to change: the caller asks for usage already, or for no stream
/// (providers refuse `stream_options` there).
#[must_use]
pub fn with_include_usage(peek: &Peek) -> Option<Bytes> {
    if peek.include_usage || !peek.stream {
        return None;
    }
    let options = peek.find("stream_options").and_then(|m| read::inner(peek, m).ok());
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
        self.slots.iter().filter(|s| s.gone).filter_map(|s| original(self.peek, s)).collect()
    }

    fn step(&mut self, step: Step) {
        step.run(&mut self.slots);
        self.steps.push(step);
    }

    fn rename(&mut self, params: &Params) {
        let pairs = params.rename.iter().map(|(from, to)| (from.clone(), to.clone()));
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
    let mut names: Vec<&str> =
        peek.members.iter().map(|m| peek.name(m)).filter(|n| edited(n)).collect();
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::peek;

    fn read(body: &str) -> Peek {
        peek::chat(Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    /// Params of `rename a b`, `drop a`, `default a 1`, `clamp a 0 1`, one a line.
    fn params(lines: &str) -> Params {
        let mut params = Params::default();
        for line in lines.split(';').map(str::trim) {
            let words: Vec<&str> = line.split(' ').collect();
            let name = words[1].to_string();
            match words[0] {
                "rename" => drop(params.rename.insert(name, words[2].into())),
                "drop" => params.drop.push(name),
                "default" => drop(params.defaults.insert(name, words[2].into())),
                _ => {
                    let range = (words[2].parse().unwrap(), words[3].parse().unwrap());
                    params.clamp.insert(name, range);
                }
            }
        }
        params
    }

    /// Members beside `"messages":[0]` before and after, and what was dropped.
    fn check(lines: &str, before: &str, after: &str, dropped: &[&str]) {
        let peek = read(&format!(r#"{{{before}"messages":[0]}}"#));
        let mut edits = Edits::default();
        let names = apply_params(&params(lines), &peek, &mut edits).unwrap();
        let out = edits.apply(&peek).concat();
        let out = std::str::from_utf8(&out).unwrap().replace(r#""messages":[0]"#, "");
        assert_eq!(out, format!("{{{after}}}"), "{lines} of {before}");
        assert_eq!(names, dropped, "{lines} of {before}");
    }

    #[test]
    fn a_rename_leaves_the_value_alone() {
        check("rename a b", r#""a" : 1.0,"#, r#""b" : 1.0,"#, &[]);
        check("rename a b", r#""c":1,"#, r#""c":1,"#, &[]);
        check("rename a b; rename b a", r#""a":1,"b":2,"#, r#""b":1,"a":2,"#, &[]);
        check("rename a b; rename b c", r#""a":1,"b":2,"#, r#""b":1,"c":2,"#, &[]);
        check("rename a b", r#""a":1,"b":2,"#, r#""b":2,"#, &["a"]);
        check("rename a x; rename b x", r#""b":1,"a":2,"#, r#""x":1,"#, &["a"]);
    }

    #[test]
    fn a_drop_takes_the_renamed_and_names_the_callers() {
        check("drop a; drop z", r#""a":1,"b":2,"#, r#""b":2,"#, &["a"]);
        check("rename a b; drop b", r#""a":1,"#, "", &["a"]);
        check("rename a b; drop a", r#""a":1,"#, r#""b":1,"#, &[]);
        check("drop task_type", r#""task_type":"x","#, "", &[]);
    }

    #[test]
    fn a_default_stands_back_for_whatever_the_caller_said() {
        check("default a 0.70", "", r#","a":0.70"#, &[]);
        check("default a 0.7", r#""a":1,"#, r#""a":1,"#, &[]);
        check("default a 0.7", r#""\u0061":null,"#, r#""\u0061":null,"#, &[]);
        check("rename a b; default a 2", r#""a":1,"#, r#""b":1,"#, &[]);
        check("rename a b; default a 2", r#""b":1,"#, r#""b":1,"#, &[]);
        check("rename a b; default b 2", r#""a":1,"#, r#""b":1,"#, &[]);
        check("drop a; default a 2", r#""a":1,"#, r#","a":2"#, &["a"]);
    }

    #[test]
    fn a_clamp_changes_only_what_is_out_of_range() {
        check("clamp a 0.0 1.0", r#""a":1.0,"#, r#""a":1.0,"#, &[]);
        check("clamp a 0.0 1.0", r#""a":10e-1,"#, r#""a":10e-1,"#, &[]);
        check("clamp a 0.0 1.0", r#""a" : 1.5,"#, r#""a" : 1,"#, &[]);
        check("clamp a 0.0 0.95", r#""a":1e400,"#, r#""a":0.95,"#, &[]);
        check("clamp a 0.0 1.0", r#""a":-0.5,"#, r#""a":0,"#, &[]);
        check("clamp max_tokens 1 4096", r#""max_tokens":5000,"#, r#""max_tokens":4096,"#, &[]);
        for value in ["null", "\"9\"", "[9]", "true"] {
            let same = format!(r#""a":{value},"#);
            check("clamp a 0.0 1.0", &same, &same, &[]);
        }
        check("rename a b; clamp b 0 1", r#""a":3,"#, r#""b":1,"#, &[]);
        check("default a 3; clamp a 0 1", "", r#","a":1"#, &[]);
        check("clamp a inf 1", r#""a":0,"#, r#""a":0,"#, &[]);
    }

    #[test]
    fn both_names_of_the_output_limit_say_what_was_held() {
        let both = r#""max_tokens":1,"max_completion_tokens":900,"#;
        let rename = "rename max_tokens max_completion_tokens";
        check("drop x", both, r#""max_tokens":1,"max_completion_tokens":1,"#, &[]);
        check(rename, both, r#""max_completion_tokens":1,"#, &["max_tokens"]);
        let null = r#""max_tokens":5,"max_completion_tokens":null,"#;
        check(rename, null, r#""max_completion_tokens":5,"#, &["max_tokens"]);
        check("drop x", null, null, &[]);
        check(rename, r#""max_tokens":5,"#, r#""max_completion_tokens":5,"#, &[]);
    }

    #[test]
    fn a_member_that_params_edit_may_not_stand_twice() {
        // No body that was read has one; the spans of another kind of body may.
        let mut twice = read(r#"{"messages":[0],"a":1,"b":9}"#);
        twice.body = Bytes::from_static(br#"{"messages":[0],"a":1,"a":9}"#);
        for lines in ["rename a b", "drop a", "default a 1", "clamp a 0 1"] {
            let fault = apply_params(&params(lines), &twice, &mut Edits::default()).unwrap_err();
            assert_eq!(fault, BadBody::twice("a"), "{lines}");
        }
        assert!(apply_params(&params("drop c"), &twice, &mut Edits::default()).is_ok());
    }

    #[test]
    fn earlier_edits_count_as_said() {
        let peek = read(r#"{"messages":[0],"a":1,"b":2}"#);
        let mut edits = Edits::default();
        edits.set("c", "3");
        edits.remove("a");
        let lines = "default c 4; drop b; clamp c 0 2; default a 5";
        let dropped = apply_params(&params(lines), &peek, &mut edits).unwrap();
        assert_eq!(dropped, ["b"]);
        assert_eq!(edits.apply(&peek).concat(), r#"{"messages":[0],"c":2,"a":5}"#);
    }

    #[test]
    fn usage_is_asked_for_beside_the_callers_own_options() {
        let options =
            |members: &str| with_include_usage(&read(&format!(r#"{{"messages":[0],{members}}}"#)));
        let injected = Some(Bytes::from(r#"{"include_usage":true}"#));
        assert_eq!(options(r#""stream":true"#), injected);
        assert_eq!(options(r#""stream":true,"stream_options":null"#), injected);
        assert_eq!(options(r#""stream":true,"stream_options":{}"#), injected);
        let no = r#""stream":true,"stream_options":{"include_usage":false}"#;
        assert_eq!(options(no), injected);
        let null = r#""stream":true,"stream_options":{"include_usage":null}"#;
        assert_eq!(options(null), injected);
        let others =
            r#""stream":true,"stream_options":{ "step_usage_chunks" : 1.0, "task_type":1 }"#;
        let merged = r#"{ "step_usage_chunks" : 1.0, "task_type":1,"include_usage":true }"#;
        assert_eq!(options(others), Some(Bytes::from(merged)));
        assert_eq!(options(r#""stream":true,"stream_options":{"include_usage":true}"#), None);
        assert_eq!(options(r#""stream":false"#), None);
        assert_eq!(options(r#""stream_options":{}"#), None);
    }
}
