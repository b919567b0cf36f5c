//! Calls of the script: what they say of each rule, and what comes back.

use crate::limit::counter::{Hold, Now, Seen, Why};
use crate::limit::rule::{Kind, Rule, Scope};
use crate::limit::standing::Standing;
use redis::{FromRedisValue, Value};
use std::sync::Arc;
use std::time::Duration;

/// One call of the script.
#[derive(Debug, Clone)]
pub struct Call {
    /// Whose counters, for alerts.
    pub rules: Vec<Arc<Rule>>,
    /// The mark, then two keys for each rule.
    pub keys: Vec<String>,
    /// What to do, and eleven words for each rule.
    pub words: Vec<String>,
}

/// Who calls: the hold's id and its keys' common part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The request's id.
    pub id: u128,
    /// The hash tag of the key's and its team's rules: `team:search`, else `key:ci`.
    pub tag: String,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Takes everything or nothing.
    Reserve,
    /// Books what was used.
    Settle,
    /// Gives everything back.
    Release,
    /// Adds to a hold.
    Grow,
    /// Only tells how rules stand.
    Query,
}

/// What one rule is told in a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Units {
    /// To take, to add, or really used.
    pub n: u64,
    /// What is held.
    pub hold: Hold,
    /// What Redis had said of a budget, should it not know any more.
    pub base: Seen,
}

impl Call {
    /// A call about these rules. `ttl` is how long a hold lives.
    pub fn new(op: Op, caller: &Caller, prefix: &str, ttl: Duration) -> Self {
        let word = match op {
            Op::Reserve => "r",
            Op::Settle => "s",
            Op::Release => "x",
            Op::Grow => "g",
            Op::Query => "q",
        };
        let Caller { id, tag } = caller;
        Self {
            rules: Vec::new(),
            keys: vec![format!("{prefix}{{{tag}}}:done:{id:032x}")],
            words: vec![word.into(), format!("{id:032x}"), ttl.as_millis().to_string()],
        }
    }

    /// One more rule.
    pub fn add(&mut self, rule: &Arc<Rule>, units: Units, (tag, prefix): (&str, &str), now: Now) {
        let own;
        let tag = match rule.owner.scope {
            Scope::Team | Scope::Key => tag,
            scope => {
                own = format!("{}:{}", scope.as_str(), rule.owner.name);
                own.as_str()
            }
        };
        let key = format!("{prefix}{{{tag}}}:{}", rule.id);
        let held = format!("{key}:held");
        self.keys.extend([key, held]);
        let (kind, rate, ms, bounds) = shape(rule, now);
        let alert = rule.alert.map(|part| {
            let part = u128::from(rule.capacity()) * u128::from(part);
            part.div_ceil(1_000_000).to_string()
        });
        let period = match &rule.kind {
            Kind::Budget { .. } if bounds.is_empty() => "ever".into(),
            _ => units.hold.period.to_string(),
        };
        self.words.extend([
            kind.to_owned(),
            rate.to_string(),
            rule.capacity().to_string(),
            ms.to_string(),
            bounds,
            units.base.used.to_string(),
            units.base.epoch.to_string(),
            units.n.to_string(),
            units.hold.amount.to_string(),
            period,
            alert.unwrap_or_default(),
        ]);
        self.rules.push(rule.clone());
    }
}

/// Kind, rate, milliseconds and bounds.
fn shape(rule: &Rule, now: Now) -> (&'static str, u64, u128, String) {
    match &rule.kind {
        Kind::Bucket { amount, period, .. } => ("b", *amount, period.as_millis(), String::new()),
        Kind::Concurrent { .. } | Kind::Rest => ("c", 1, 1, String::new()),
        Kind::Window { length, .. } => ("w", 1, length.as_millis(), String::new()),
        Kind::Budget { per, zone, .. } => {
            let this = per.at(now.wall, zone);
            let bounds = this.end.and_then(|end| {
                // A node whose clock is a little off still names the period Redis is in.
                let at = |second| Some(per.at(jiff::Timestamp::from_second(second).ok()?, zone));
                let last = at(this.start - 1)?;
                let next = at(end)?;
                Some(format!("{},{},{end},{}", last.start, this.start, next.end?))
            });
            ("m", 1, 1, bounds.unwrap_or_default())
        }
    }
}

/// What Redis says to a reservation.
#[derive(Debug)]
pub enum Said {
    /// Taken; how each rule stands now, and since when Redis counts it.
    Taken(Vec<(Standing, u64)>),
    /// Refused by this rule.
    Refused(Arc<Rule>, Why),
    /// It came after its own release.
    Late,
    /// Something that is no answer of our script.
    Odd,
}

/// Reads a reservation's answer.
pub fn said(call: &Call, value: Value) -> Said {
    let Value::Array(items) = value else { return Said::Odd };
    let mut items = items.into_iter();
    let word = items.next().and_then(text);
    match word.as_deref() {
        Some("ok") => {
            let numbers: Vec<i64> = items.filter_map(number).collect();
            let stand = |(rule, n): (&Arc<Rule>, &[i64])| standing(rule, n);
            let all: Option<Vec<_>> = call.rules.iter().zip(numbers.chunks(4)).map(stand).collect();
            match all.filter(|all| all.len() == call.rules.len()) {
                Some(all) => Said::Taken(all),
                None => Said::Odd,
            }
        }
        Some("no") => match refused(items).map(|(i, why)| (call.rules.get(i), why)) {
            Some((Some(rule), why)) => Said::Refused(rule.clone(), why),
            _ => Said::Odd,
        },
        Some("late") => Said::Late,
        _ => Said::Odd,
    }
}

fn refused(mut items: impl Iterator<Item = Value>) -> Option<(usize, Why)> {
    let place = usize::try_from(number(items.next()?)?).ok()?.checked_sub(1)?;
    let word = text(items.next()?)?;
    let mut amount = || items.next().and_then(number).and_then(|n| u64::try_from(n).ok());
    let why = match word.as_str() {
        "never" => Why::Never,
        "wait" => Why::Wait(Duration::from_millis(amount()?.max(1))),
        "spent" => {
            let (used, held, resets) = (amount()?, amount()?, amount()?);
            let resets = i64::try_from(resets).ok().filter(|at| *at > 0);
            Why::Spent { used, held, resets }
        }
        _ => return None,
    };
    Some((place, why))
}

fn standing(rule: &Rule, numbers: &[i64]) -> Option<(Standing, u64)> {
    let &[used, held, reset, epoch] = numbers else { return None };
    let (used, held) = (u64::try_from(used).ok()?, u64::try_from(held).ok()?);
    let limit = rule.capacity();
    let remaining = limit.saturating_sub(used.saturating_add(held));
    let reset = u64::try_from(reset).ok().map(Duration::from_millis);
    Some((Standing { limit, used, held, remaining, reset }, u64::try_from(epoch).ok()?))
}

/// What a settlement's answer says of one budget.
#[derive(Debug, Clone)]
pub struct Total {
    /// Which.
    pub rule: Arc<Rule>,
    /// What all nodes have used of it.
    pub seen: Seen,
    /// It has reached its threshold just now.
    pub alert: bool,
}

/// Reads a settlement's answer.
pub fn totals(call: &Call, value: Value) -> Vec<Total> {
    let Value::Array(items) = value else { return Vec::new() };
    let numbers: Vec<i64> = items.into_iter().skip(1).filter_map(number).collect();
    let read = |numbers: &[i64]| {
        let &[place, used, epoch, alert] = numbers else { return None };
        let rule = call.rules.get(usize::try_from(place).ok()?.checked_sub(1)?)?.clone();
        let seen = Seen { used: u64::try_from(used).ok()?, epoch: u64::try_from(epoch).ok()? };
        Some(Total { rule, seen, alert: alert == 1 })
    };
    numbers.chunks(4).filter_map(read).collect()
}

fn text(value: Value) -> Option<String> {
    String::from_redis_value(value).ok()
}

fn number(value: Value) -> Option<i64> {
    i64::from_redis_value(value).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::limit::Measure;
    use crate::limit::{Limit, Owner, Spec, Window};
    use jiff::tz::TimeZone;
    use std::time::Instant;

    fn rules(scope: Scope, name: &str) -> Vec<Arc<Rule>> {
        let limit = Limit { rpm: Some(9), tpm: Some(900), concurrent: Some(2), ..Limit::default() };
        let length = Duration::from_secs(3_600);
        let (measure, amount, common) = (Measure::Tokens, 70, Default::default());
        let window = Window { measure, amount, length, common };
        let (limits, windows) = (Some(vec![limit]), Some(vec![window]));
        let spec = Spec { limits, windows, budgets: None };
        spec.rules(&Owner::new(scope, name), &TimeZone::UTC).unwrap()
    }

    fn call(rules: &[Arc<Rule>], now: Now) -> Call {
        let caller = Caller { id: 7, tag: "team:t".into() };
        let mut call = Call::new(Op::Reserve, &caller, "weir:", Duration::from_secs(60));
        for rule in rules {
            call.add(rule, Units { n: 1, ..Units::default() }, ("team:t", "weir:"), now);
        }
        call
    }

    #[test]
    fn no_word_of_a_call_tells_this_node_s_time_r18() {
        let now = Now { at: Instant::now(), wall: jiff::Timestamp::UNIX_EPOCH };
        let skew = Duration::from_secs(90);
        let late = Now { at: now.at + skew, wall: now.wall + skew };
        let rules = rules(Scope::Key, "k");
        assert_eq!(call(&rules, now).words, call(&rules, late).words);
    }

    #[test]
    fn every_key_is_declared_and_a_team_s_lie_together_r19() {
        let now = Now::read();
        let mut all = rules(Scope::Key, "k");
        all.extend(rules(Scope::Team, "t"));
        let call = call(&all, now);
        assert_eq!(call.keys.len(), 1 + 2 * all.len());
        assert_eq!(call.words.len(), 3 + 11 * all.len());
        assert!(call.keys.iter().all(|k| k.starts_with("weir:{team:t}:")), "{:?}", call.keys);
        let script = include_str!("script.lua");
        let made = script.match_indices("redis.call(").filter(|(at, _)| {
            let name = script[at + 11..].split([',', ')']).nth(1).unwrap_or_default().trim();
            !["r.state", "r.holds", "KEYS[1]"].contains(&name)
        });
        // TIME alone has no key.
        assert_eq!(made.count(), 1);
    }

    #[test]
    fn an_answer_of_another_form_is_no_answer() {
        let rules = rules(Scope::Key, "k");
        let call = call(&rules, Now::read());
        let word = |w: &str| Value::BulkString(w.as_bytes().to_vec());
        for odd in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![word("ok"), Value::Int(1)]),
            Value::Array(vec![word("no"), Value::Int(0), word("never")]),
            Value::Array(vec![word("no"), Value::Int(1), word("wait"), Value::Int(-5)]),
        ] {
            assert!(matches!(said(&call, odd), Said::Odd));
        }
        let late = Value::Array(vec![word("late")]);
        assert!(matches!(said(&call, late), Said::Late));
        let never = Value::Array(vec![word("no"), Value::Int(2), word("never")]);
        let Said::Refused(rule, Why::Never) = said(&call, never) else { panic!() };
        assert_eq!(rule.id, rules[1].id);
    }
}
