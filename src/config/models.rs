//! `[models."…"]`: public names and the targets behind them.

use super::fault::hint;
use super::provider::rank;
use super::routing;
use super::value::{Node, Shape, Value, View, join, view};
use super::{Server, Unpriced};
use crate::base::{Glob, ProviderId};
use crate::route::{Model, Provider, Table, Target};
use std::collections::BTreeMap;
use std::sync::Arc;

const MODEL: Shape = Shape {
    known: &["strategy", "targets", "strict", "on_429", "affinity", "fallback", "max_latency"],
    later: &["hedge", "cache"],
};
const TARGET: Shape = Shape { known: &["to", "weight", "priority"], later: &[] };

/// A share above this is a typing error.
const WEIGHT_MAX: u64 = 1_000_000;
/// As many groups as anyone can think about.
const PRIORITY_MAX: u64 = 1_000;

type Providers = BTreeMap<ProviderId, Arc<Provider>>;

pub(super) fn models(root: &View<'_>, providers: Providers, unpriced: &Unpriced) -> Table {
    let mut models = Vec::new();
    let smart = routing::smart(root);
    for (name, entry) in root.named("models") {
        let path = join("models", name);
        if name.is_empty() || name.matches('*').count() > 1 {
            root.book.fault(entry.at, &path, "a model's name is exact or has one *");
        }
        let Some(v) = view(root.book, &entry.node, path, &MODEL) else { continue };
        let strict = v.boolean("strict", false);
        let targets = targets(&v, &providers, unpriced);
        let mut model = Model::new(Glob::new(name), targets);
        model.strict = strict;
        routing::model(&v, &mut model, &smart);
        models.push(Arc::new(model));
    }
    models.sort_by_key(|m: &Arc<Model>| rank(m.name.as_str()));
    unpriced_offers(root, &providers, unpriced);
    let mut table = Table { models, providers, smart, rules: Vec::new() };
    routing::names(root, &table);
    table.rules = routing::rules(root, &table);
    table
}

fn targets(v: &View<'_>, providers: &Providers, unpriced: &Unpriced) -> Vec<Target> {
    let Some(node) = v.get("targets") else {
        v.complain("needs targets");
        return Vec::new();
    };
    let Value::List(items) = &node.value else {
        v.fault("targets", format!("a list is needed here, not {}", node.value.kind()));
        return Vec::new();
    };
    let ways = (providers, unpriced);
    if items.is_empty() {
        v.fault("targets", "is empty, so nobody serves this model");
    }
    let out: Vec<Target> =
        items.iter().enumerate().filter_map(|(i, item)| target(v, (i, item), ways)).collect();
    if !out.is_empty() && out.len() == items.len() && out.iter().all(|t| t.weight == 0) {
        v.fault("targets", "all weights are 0, so nobody serves this model");
    }
    out
}

fn target(
    v: &View<'_>,
    (i, item): (usize, &Node),
    (providers, unpriced): (&Providers, &Unpriced),
) -> Option<Target> {
    let key = v.item("targets", i);
    if let Value::Text(to) = &item.value {
        let (provider, model) = resolve(v, (item, &key), to, (providers, unpriced))?;
        return Some(Target::new(provider, model));
    }
    let table = view(v.book, item, key.clone(), &TARGET)?;
    let weight = table.integer("weight", 0..=WEIGHT_MAX).unwrap_or(1) as u32;
    let priority = table.integer("priority", 1..=PRIORITY_MAX).unwrap_or(1) as u32;
    if table.get("to").is_none() {
        table.complain("a target needs `to`");
    }
    let (provider, model) = resolve(v, (item, &key), table.text("to")?, (providers, unpriced))?;
    Some(Target { weight, priority, ..Target::new(provider, model) })
}

type Found = (Arc<Provider>, Option<Arc<str>>);

/// `provider/model` or `provider/*`.
fn resolve(
    v: &View<'_>,
    (item, key): (&Node, &str),
    to: &str,
    (providers, unpriced): (&Providers, &Unpriced),
) -> Option<Found> {
    let Some((name, model)) = to.split_once('/').filter(|(p, m)| !p.is_empty() && !m.is_empty())
    else {
        v.book.fault(item.at, key, format!("{to:?} is no \"provider/model\""));
        return None;
    };
    if model != "*" && model.contains('*') {
        v.book.fault(item.at, key, format!("{to:?}: a target's model is exact or *"));
        return None;
    }
    let Some(provider) = providers.get(&ProviderId::from(name)) else {
        missing(v, (item, key), name, providers);
        return None;
    };
    let priced = |m: &str| provider.offer(m).is_some_and(|offer| offer.price.is_some());
    if model != "*" && !priced(model) {
        match unpriced {
            Unpriced::Warn => {
                v.book.warn(item.at, key, format!("{to} has no price: its cost is unknown"));
            }
            Unpriced::Refuse => {
                let why = format!("{to} has no price, and server.unpriced is \"refuse\"");
                v.book.fault(item.at, key, why);
            }
            Unpriced::Price(_) => {}
        }
    }
    Some((provider.clone(), (model != "*").then(|| model.into())))
}

/// A provider that is not there: one with faults of its own has been told already.
fn missing(v: &View<'_>, (item, key): (&Node, &str), name: &str, providers: &Providers) {
    if v.book.whole() && !v.book.is_broken(name) {
        let near = hint(name, providers.keys().map(ProviderId::as_str));
        v.book.fault(item.at, key, format!("there is no provider {name:?}{near}"));
    }
}

/// One line for each provider with offers that have no price.
fn unpriced_offers(root: &View<'_>, providers: &Providers, unpriced: &Unpriced) {
    if *unpriced != Unpriced::Warn {
        return;
    }
    for (id, provider) in providers {
        let names: Vec<&str> =
            provider.offers.iter().filter(|o| o.price.is_none()).map(|o| o.name.as_str()).collect();
        if !names.is_empty() {
            let at =
                root.named("providers").iter().find(|(n, _)| *n == id.as_str()).map(|(_, e)| e.at);
            let message = format!("no price for {}: their cost is unknown", names.join(", "));
            root.book.warn(at.unwrap_or(root.at), &join("providers", id.as_str()), message);
        }
    }
}

/// The model of requests that name none must be there.
pub(super) fn default_model(root: &View<'_>, server: &Server, routes: &Table) {
    let Some(name) = &server.default_model else { return };
    let node = match root.get("server").map(|n| &n.value) {
        Some(Value::Table(table)) => table.get("default_model"),
        _ => None,
    };
    let at = node.map_or(root.at, |entry| entry.node.at);
    served(root.book, at, "server.default_model", name, routes);
}

/// An exact name that nobody serves is a fault.
pub(super) fn served(
    book: &super::fault::Book<'_>,
    at: super::fault::At,
    key: &str,
    name: &str,
    routes: &Table,
) {
    // With other faults about, a name may be missing for their sake.
    if name.contains('*') || routes.resolve(name).is_some() || book.may_be_missing() {
        return;
    }
    let offering: Vec<&str> = routes
        .providers
        .iter()
        .filter(|(_, p)| p.offer(name).is_some())
        .map(|(id, _)| id.as_str())
        .collect();
    if let [first, _, ..] = offering[..] {
        let all = offering.join(", ");
        let say = format!("say {:?}, or write [models.{name:?}]", format!("{first}/{name}"));
        book.fault(at, key, format!("{name:?} is offered by {all}: {say}"));
        return;
    }
    let names = routes.names();
    let near = hint(name, names.iter().map(String::as_str));
    book.fault(at, key, format!("nobody serves {name:?}{near}"));
}
