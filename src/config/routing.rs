//! `[smart]`, `[[routes]]` and what a model says of how its targets are chosen.

use super::fault::At;
use super::models::served;
use super::value::{Node, Shape, Value, View, join, view};
use crate::base::Glob;
use crate::route::rules::{Rule, When};
use crate::route::{Affinity, Model, Smart, Strategy, Table};
use std::sync::Arc;

const SMART: Shape = Shape {
    known: &["default_task", "tiers", "weights", "unseen_latency", "rules", "no_match"],
    later: &[],
};
const WEIGHTS: Shape = Shape { known: &["cost", "latency"], later: &[] };
const ROUTE: Shape = Shape { known: &["when", "model"], later: &[] };
const WHEN: Shape = Shape {
    known: &[
        "key",
        "team",
        "department",
        "user",
        "tag",
        "endpoint",
        "task_type",
        "model",
        "prompt_tokens_over",
    ],
    later: &[],
};

/// Endpoints by their labels.
const ENDPOINTS: &[(&str, &str)] = &[
    ("chat", "chat"),
    ("messages", "messages"),
    ("count_tokens", "count_tokens"),
    ("responses", "responses"),
    ("completions", "completions"),
    ("embeddings", "embeddings"),
    ("images", "images"),
    ("audio", "audio"),
    ("rerank", "rerank"),
    ("moderations", "moderations"),
];
/// Endpoints of later versions.
const LATER_ENDPOINTS: &[&str] = &["realtime"];
/// More equivalent models than this are no equivalents.
const FALLBACKS_MAX: usize = 10;

/// `[smart]`. Its rules' models are looked at when all models are known.
pub(super) fn smart(root: &View<'_>) -> Arc<Smart> {
    let Some(v) = root.table("smart", &SMART) else { return Arc::default() };
    let usual = Smart::default();
    let tiers = v.words("tiers");
    let weights = v.table("weights", &WEIGHTS);
    let weight =
        |key: &str, usual: f64| weights.as_ref().and_then(|w| number(w, key)).unwrap_or(usual);
    let (cost, latency) = (weight("cost", usual.cost), weight("latency", usual.latency));
    if cost + latency <= 0.0 {
        v.fault("weights", "are all 0, so no target is better than another");
    }
    let mut rules = std::collections::HashMap::new();
    for (task, entry) in v.named("rules") {
        match &entry.node.value {
            Value::Text(model) if !model.is_empty() => {
                rules.insert(task.to_owned(), model.clone());
            }
            _ => {
                let key = join(&v.key("rules"), task);
                v.book.fault(entry.node.at, &key, "a model's name is needed here");
            }
        }
    }
    Arc::new(Smart {
        default_task: v.text("default_task").map_or(usual.default_task, str::to_owned),
        tiers: if tiers.is_empty() { usual.tiers } else { tiers },
        cost,
        latency,
        unseen: v.duration("unseen_latency", usual.unseen),
        rules,
        strict: v.choice("no_match", &[("cheapest", false), ("error", true)], &[]).unwrap_or(false),
    })
}

fn number(v: &View<'_>, key: &str) -> Option<f64> {
    let found = v.get(key)?.value.number().and_then(|n| n.parse::<f64>().ok());
    let sound = found.filter(|n| n.is_finite() && *n >= 0.0);
    if sound.is_none() {
        v.fault(key, "a weight of 0 or more is needed here, such as 0.5");
    }
    sound
}

/// What a model's table says of how its targets are chosen, put into the model.
pub(super) fn model(v: &View<'_>, model: &mut Model, smart: &Arc<Smart>) {
    let strategies = [
        ("priority", Strategy::Priority),
        ("weighted", Strategy::Weighted),
        ("latency", Strategy::Latency),
        ("cost", Strategy::Cost),
        ("smart", Strategy::Smart),
    ];
    let affinities = [
        ("off", Affinity::Off),
        ("session", Affinity::Session),
        ("user", Affinity::User),
        ("prefix", Affinity::Prefix),
    ];
    let on_429 = v.choice("on_429", &[("failover", false), ("return", true)], &[]);
    model.return_429 = on_429.unwrap_or(false);
    model.strategy = v.choice("strategy", &strategies, &[]).unwrap_or_default();
    model.affinity = v.choice("affinity", &affinities, &[]).unwrap_or_default();
    model.max_latency = v.duration_or_off("max_latency", None);
    model.smart = smart.clone();
    model.fallback = v.words("fallback");
    if model.fallback.len() > FALLBACKS_MAX {
        v.fault("fallback", format!("names more than {FALLBACKS_MAX} models"));
    }
    if model.fallback.iter().any(|name| name == model.name.as_str()) {
        v.fault("fallback", "names the model itself");
    }
}

/// Names of models in models and in `[smart]` that nobody serves.
pub(super) fn names(root: &View<'_>, routes: &Table) {
    for (name, entry) in root.named("models") {
        let Value::Table(table) = &entry.node.value else { continue };
        let Some(Value::List(items)) = table.get("fallback").map(|e| &e.node.value) else {
            continue;
        };
        for item in items {
            if let Value::Text(to) = &item.value {
                let key = join(&join("models", name), "fallback");
                exact(root, item.at, &key, to, routes);
            }
        }
    }
    let Some(Value::Table(smart)) = root.get("smart").map(|n| &n.value) else { return };
    let Some(Value::Table(rules)) = smart.get("rules").map(|e| &e.node.value) else { return };
    for (task, entry) in rules {
        if let Value::Text(to) = &entry.node.value {
            exact(root, entry.node.at, &join("smart.rules", task), to, routes);
        }
    }
}

fn exact(root: &View<'_>, at: At, key: &str, name: &str, routes: &Table) {
    if name.contains('*') {
        root.book.fault(at, key, format!("{name:?} is a pattern; one model is needed here"));
    }
    served(root.book, at, key, name, routes);
}

/// `[[routes]]`
pub(super) fn rules(root: &View<'_>, routes: &Table) -> Vec<Rule> {
    let Some(node) = root.get("routes") else { return Vec::new() };
    let Value::List(items) = &node.value else {
        root.fault("routes", "is a list of tables: write [[routes]]");
        return Vec::new();
    };
    let mut out: Vec<Rule> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let Some(rule) = rule(root, (i, item), routes) else { continue };
        if let Some(at) = out.iter().position(|other| other.when.covers(&rule.when)) {
            let why = format!("is never reached: rule {} takes all it would", at + 1);
            root.book.fault(item.at, &root.item("routes", i), why);
        }
        out.push(rule);
    }
    out
}

fn rule(root: &View<'_>, (i, item): (usize, &Node), routes: &Table) -> Option<Rule> {
    let v = view(root.book, item, root.item("routes", i), &ROUTE)?;
    if v.get("model").is_none() {
        v.complain("a route needs its `model`");
    }
    let model = v.text("model")?.to_owned();
    exact(root, v.place("model"), &v.key("model"), &model, routes);
    let mut when = When::default();
    if let Some(w) = v.table("when", &WHEN) {
        let text = |key: &str| w.text(key).map(str::to_owned);
        when = When {
            key: text("key"),
            team: text("team"),
            department: text("department"),
            user: text("user"),
            tag: text("tag"),
            endpoint: w.choice("endpoint", ENDPOINTS, LATER_ENDPOINTS).map(str::to_owned),
            task_type: text("task_type"),
            model: w.text("model").map(Glob::new),
            prompt_tokens_over: w.integer("prompt_tokens_over", 0..=u64::from(u32::MAX)),
        };
    }
    Some(Rule { when, model })
}
