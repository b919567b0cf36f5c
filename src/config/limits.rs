//! `limits`, `windows` and `budgets` of every owner, and what fills them where an owner is silent.

use super::alerts::ALERTS;
use super::fault::hint;
use super::models;
use super::units;
use super::value::{Node, Shape, Value, View, join, view};
use crate::access::Keys;
use crate::limit::{
    Budget, Common, DefaultOutput, Downgrade, Exhausted, Limit, Measure, Owner, Per, Rules, Scope,
    Spec, Window,
};
use crate::route::Table;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;
use std::time::Duration;
use weir_filters::usage::NanoUsd;

const LIMIT: Shape = Shape {
    known: &[
        "rpm",
        "rps",
        "tpm",
        "tps",
        "burst",
        "burst_tokens",
        "concurrent",
        "max_tokens_per_request",
        "models",
        "endpoints",
        "on_exhausted",
        "penalty",
    ],
    later: &[],
};
const WINDOW: Shape = Shape {
    known: &["requests", "tokens", "per", "models", "endpoints", "on_exhausted", "penalty"],
    later: &[],
};
const BUDGET: Shape = Shape {
    known: &[
        "usd",
        "tokens",
        "per",
        "alert",
        "downgrade",
        "models",
        "endpoints",
        "on_exhausted",
        "penalty",
    ],
    later: &[],
};
const DOWNGRADE: Shape = Shape { known: &["at", "to"], later: &[] };
/// Larger amounts are typing errors; Redis' numbers are exact far beyond.
const AMOUNT_MAX: u64 = 1_000_000_000_000;
/// Endpoints that a rule may be narrowed to, by their labels.
const ENDPOINTS: &[&str] = &[
    "chat",
    "messages",
    "completions",
    "embeddings",
    "responses",
    "images",
    "audio",
    "rerank",
    "moderations",
];

/// Every owner's rules.
pub(super) fn rules(root: &View<'_>, routes: &Table, keys: &Keys) -> Rules {
    let reader = Reader { routes };
    let defaults = |name: &str| plain(root, name).map(|v| reader.spec(&v)).unwrap_or_default();
    let (key_defaults, user_defaults) = (defaults("key_defaults"), defaults("user_defaults"));
    let mut rules =
        Rules::new(zone(root), default_output(root)).defaults(key_defaults, user_defaults);
    let mut add = |v: &View<'_>, scope, name: &str, spec| {
        if let Err(twice) = rules.add(&Owner::new(scope, name), spec) {
            v.complain(twice.to_string());
        }
    };
    if let Some(v) = plain(root, "server") {
        let limits = v.get("limits").map(|_| reader.limits(&v));
        add(&v, Scope::Gateway, "", Spec { limits, ..Spec::default() });
    }
    // Users need no table: those whom keys name get the defaults.
    let mut users: BTreeSet<&str> =
        keys.0.values().filter_map(|k| k.user.as_ref().map(|u| u.as_str())).collect();
    let scopes = [
        ("departments", Scope::Department),
        ("teams", Scope::Team),
        ("users", Scope::User),
        ("keys", Scope::Key),
    ];
    for (kind, scope) in scopes {
        for (name, entry) in root.named(kind) {
            let path = join(kind, name);
            // These were looked at before, and their faults told.
            let Value::Table(table) = &entry.node.value else { continue };
            let v = View { book: root.book, table, at: entry.node.at, path };
            add(&v, scope, name, reader.spec(&v));
            if scope == Scope::User {
                users.remove(name);
            }
        }
    }
    for user in users {
        add(root, Scope::User, user, Spec::default());
    }
    rules
}

/// A table whose shape is looked at elsewhere.
fn plain<'a>(root: &View<'a>, name: &str) -> Option<View<'a>> {
    let node = root.get(name)?;
    let Value::Table(table) = &node.value else { return None };
    Some(View { book: root.book, table, at: node.at, path: name.to_owned() })
}

/// `time_zone` of `[alerts]`; UTC where it is absent or a fault.
fn zone(root: &View<'_>) -> TimeZone {
    let read = |v: View<'_>| {
        let name = v.text("time_zone")?;
        let zone = TimeZone::get(name);
        if zone.is_err() {
            v.fault("time_zone", format!("{name:?} is no time zone such as \"Europe/Berlin\""));
        }
        zone.ok()
    };
    root.table("alerts", &ALERTS).and_then(read).unwrap_or(TimeZone::UTC)
}

fn default_output(root: &View<'_>) -> DefaultOutput {
    let Some(v) = plain(root, "server") else { return DefaultOutput::Learned };
    match v.get("default_output").map(|n| &n.value) {
        Some(Value::Integer(_)) => v
            .integer("default_output", 1..=AMOUNT_MAX)
            .map_or(DefaultOutput::Learned, DefaultOutput::Fixed),
        _ => {
            let words = [("learned", DefaultOutput::Learned), ("max", DefaultOutput::Max)];
            v.choice("default_output", &words, &[]).unwrap_or_default()
        }
    }
}

/// What one owner's table says, for an owner that stands in no file.
pub(super) fn spec(v: &View<'_>, routes: &Table) -> Spec {
    Reader { routes }.spec(v)
}

struct Reader<'r> {
    routes: &'r Table,
}

impl Reader<'_> {
    fn spec(&self, v: &View<'_>) -> Spec {
        let some = |key: &str| v.get(key).is_some();
        let penalty = some("penalty").then(|| v.duration("penalty", Duration::ZERO));
        let mut spec = Spec {
            limits: some("limits").then(|| self.limits(v)),
            windows: some("windows").then(|| self.each(v, "windows", &WINDOW, |t| self.window(t))),
            budgets: some("budgets").then(|| self.each(v, "budgets", &BUDGET, |t| self.budget(t))),
        };
        // The owner's own word for all of its rules that do not say.
        spec.commons().for_each(|common| common.penalty = common.penalty.or(penalty));
        spec
    }

    /// A table, or a list of tables.
    fn each<T>(
        &self,
        v: &View<'_>,
        key: &str,
        shape: &Shape,
        read: impl Fn(&View<'_>) -> Option<T>,
    ) -> Vec<T> {
        let items: Vec<(&Node, String)> = match v.get(key) {
            Some(Node { value: Value::List(items), .. }) => {
                items.iter().enumerate().map(|(i, item)| (item, v.item(key, i))).collect()
            }
            one => one.into_iter().map(|node| (node, v.key(key))).collect(),
        };
        let tables = items.into_iter().filter_map(|(item, key)| view(v.book, item, key, shape));
        tables.filter_map(|t| read(&t)).collect()
    }

    fn limits(&self, v: &View<'_>) -> Vec<Limit> {
        self.each(v, "limits", &LIMIT, |t| {
            let amount = |key| t.integer(key, 1..=AMOUNT_MAX);
            let limit = Limit {
                rpm: amount("rpm"),
                rps: amount("rps"),
                tpm: amount("tpm"),
                tps: amount("tps"),
                burst: amount("burst"),
                burst_tokens: amount("burst_tokens"),
                concurrent: amount("concurrent"),
                max_tokens_per_request: amount("max_tokens_per_request"),
                common: self.common(t),
            };
            let needs = |key: &str, of: [&str; 2]| {
                if t.get(key).is_some() && of.iter().all(|k| t.get(k).is_none()) {
                    t.fault(key, format!("needs {} or {} beside it", of[0], of[1]));
                }
            };
            needs("burst", ["rpm", "rps"]);
            needs("burst_tokens", ["tpm", "tps"]);
            if LIMIT.known[..8].iter().all(|k| t.get(k).is_none()) {
                t.complain("limits nothing");
            }
            Some(limit)
        })
    }

    fn window(&self, t: &View<'_>) -> Option<Window> {
        let (measure, amount) = match (t.get("requests").is_some(), t.get("tokens").is_some()) {
            (true, false) => (Measure::Requests, t.integer("requests", 1..=AMOUNT_MAX)),
            (false, true) => (Measure::Tokens, t.integer("tokens", 1..=AMOUNT_MAX)),
            _ => {
                t.complain("needs either `requests` or `tokens`");
                return None;
            }
        };
        let length = match t.text("per") {
            None => {
                t.complain("needs `per`: minute, hour, day or a duration");
                return None;
            }
            Some("minute") => Ok(Duration::from_secs(60)),
            Some("hour") => Ok(Duration::from_secs(3_600)),
            Some("day") => Ok(Duration::from_secs(86_400)),
            Some(text) => units::duration(text).and_then(|d| {
                if d < Duration::from_secs(1) { Err("is under a second".into()) } else { Ok(d) }
            }),
        };
        let length = length.map_err(|why| t.fault("per", why)).ok()?;
        Some(Window { measure, amount: amount?, length, common: self.common(t) })
    }

    fn budget(&self, t: &View<'_>) -> Option<Budget> {
        let (measure, amount) = match (t.get("usd"), t.get("tokens").is_some()) {
            (Some(node), false) => (Measure::Money, money(t, node)),
            (None, true) => (Measure::Tokens, t.integer("tokens", 0..=AMOUNT_MAX)),
            _ => {
                t.complain("needs either `usd` or `tokens`");
                return None;
            }
        };
        let words = [
            ("hour", Per::Hour),
            ("day", Per::Day),
            ("week", Per::Week),
            ("month", Per::Month),
            ("ever", Per::Ever),
        ];
        if t.get("per").is_none() {
            t.complain("needs `per`: hour, day, week, month or ever");
        }
        let (per, alert) = (t.choice("per", &words, &[]), part(t, "alert"));
        let downgrade = self.downgrade(t);
        let common = self.common(t);
        Some(Budget { measure, amount: amount?, per: per?, alert, downgrade, common })
    }

    fn downgrade(&self, t: &View<'_>) -> Option<Downgrade> {
        let v = t.table("downgrade", &DOWNGRADE)?;
        let (at, to) = (part(&v, "at"), v.text("to"));
        if let Some(to) = to {
            models::served(v.book, v.place("to"), &v.key("to"), to, self.routes);
        }
        if v.get("at").is_none() || v.get("to").is_none() {
            v.complain("needs `at` and `to`");
        }
        Some(Downgrade { at: at?, to: to?.into() })
    }

    fn common(&self, t: &View<'_>) -> Common {
        for (at, name) in t.texts("models").iter().flatten() {
            models::served(t.book, *at, &t.key("models"), name, self.routes);
        }
        for (at, name) in t.texts("endpoints").iter().flatten() {
            if !ENDPOINTS.contains(name) {
                let near = hint(name, ENDPOINTS.iter().copied());
                t.book.fault(*at, &t.key("endpoints"), format!("no endpoint {name:?}{near}"));
            }
        }
        for key in ["models", "endpoints"] {
            if t.texts(key).is_some_and(|list| list.is_empty()) {
                t.fault(key, "is empty, so the rule holds for nothing");
            }
        }
        let words = [("finish", Exhausted::Finish), ("cut", Exhausted::Cut)];
        Common {
            models: t.words("models"),
            endpoints: t.words("endpoints"),
            exhausted: t.choice("on_exhausted", &words, &[]).unwrap_or_default(),
            penalty: t.get("penalty").map(|_| t.duration("penalty", Duration::ZERO)),
        }
    }
}

/// Dollars, exactly.
fn money(t: &View<'_>, node: &Node) -> Option<u64> {
    let parsed = node.value.number().and_then(|text| text.parse::<NanoUsd>().ok());
    if parsed.is_none() {
        t.fault("usd", "an amount of dollars such as 20 or 0.5 is needed here");
    }
    parsed.map(|usd| usd.0)
}

/// A part of a budget, in millionths: above 0, at most 1.
fn part(t: &View<'_>, key: &str) -> Option<u32> {
    let number = t.get(key)?.value.number().and_then(|text| text.parse::<f64>().ok());
    // In range by the check, so the cast is exact.
    let part = number.filter(|n| *n > 0.0 && *n <= 1.0).map(|n| (n * 1e6).round() as u32);
    if part.is_none() {
        t.fault(key, "a part of the budget above 0 and up to 1 is needed here, such as 0.8");
    }
    part
}
