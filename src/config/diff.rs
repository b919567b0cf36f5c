//! What one snapshot has and another has not: for `weir check --diff`, and for a reload's warning.

use super::Snapshot;
use crate::access::Key;
use crate::limit::{Exhausted, Owner, Rule, Scope};
use crate::route::{Model, Offer, Table};
use std::collections::{BTreeMap, BTreeSet};

/// What a key, model or owner has, in words, by `keys.NAME`, `models."NAME"`, `teams.NAME`.
type Facts = BTreeMap<String, BTreeSet<String>>;

/// What keys, models and owners of limits gain (`+`) or lose (`-`), one a line; empty when nothing
/// changes.
#[must_use]
pub fn diff(old: &Snapshot, new: &Snapshot) -> String {
    let (old, new) = (facts(old), facts(new));
    let empty = BTreeSet::new();
    let mut lines = Vec::new();
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let before = old.get(name).unwrap_or(&empty);
        let after = new.get(name).unwrap_or(&empty);
        lines.extend(before.difference(after).map(|fact| format!("- {name}: {fact}")));
        lines.extend(after.difference(before).map(|fact| format!("+ {name}: {fact}")));
    }
    lines.join("\n")
}

/// What a running gateway cannot take over from a new config.
#[must_use]
pub fn needs_restart(old: &Snapshot, new: &Snapshot) -> Vec<&'static str> {
    let changed = [
        ("server.listen", old.server.listen != new.server.listen),
        ("server.tls.listen", tls_listen(old) != tls_listen(new)),
        ("server.threads", old.server.threads != new.server.threads),
        ("server.upstream_idle", old.server.upstream_idle != new.server.upstream_idle),
        ("admin.listen", old.admin.listen != new.admin.listen),
        ("admin.tls", old.admin.tls.is_some() != new.admin.tls.is_some()),
        ("admin.metrics_listen", old.admin.metrics_listen != new.admin.metrics_listen),
        ("store", old.store != new.store),
        ("redis", old.redis != new.redis),
    ];
    changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
}

fn tls_listen(snapshot: &Snapshot) -> Option<&Vec<String>> {
    snapshot.server.tls.as_ref().map(|tls| &tls.listen)
}

fn facts(snapshot: &Snapshot) -> Facts {
    let routes = &snapshot.routes;
    let names = routes.names();
    let mut out = Facts::new();
    for key in snapshot.keys.0.values() {
        out.insert(super::value::join("keys", &key.name), of_key(key, &names));
    }
    for model in &routes.models {
        out.insert(format!("models.{:?}", model.name.as_str()), of_model(model));
    }
    for name in names {
        let model = routes.resolve(&name);
        let known = out.entry(format!("models.{name:?}")).or_default();
        known.extend(model.iter().flat_map(|m| of_model(m)));
    }
    priced(routes, &mut out);
    limited(snapshot, &mut out);
    out
}

/// Limits, windows and budgets of every owner.
fn limited(snapshot: &Snapshot, out: &mut Facts) {
    for (owner, spec) in snapshot.rules.specs() {
        let rules = snapshot.rules.of(owner.scope, &owner.name).map(|rule| of_rule(rule));
        let all: Vec<String> = rules.chain(spec.said_of_largest()).collect();
        if !all.is_empty() {
            out.entry(table_of(owner)).or_default().extend(all);
        }
    }
}

/// The table of config that an owner has.
fn table_of(owner: &Owner) -> String {
    let tables = match owner.scope {
        Scope::Gateway => return "server".into(),
        Scope::Department => "departments",
        Scope::Team => "teams",
        Scope::User => "users",
        Scope::Key => "keys",
    };
    super::value::join(tables, &owner.name)
}

fn of_rule(rule: &Rule) -> String {
    let part = |millionths: u32| f64::from(millionths) / 1e6;
    let mut said = rule.said();
    let mut add = |words: String| said = format!("{said}, {words}");
    rule.alert.iter().for_each(|at| add(format!("alert at {}", part(*at))));
    rule.downgrade.iter().for_each(|d| add(format!("from {} on {}", part(d.at), d.to)));
    rule.penalty.iter().for_each(|rest| add(format!("penalty {} s", rest.as_secs_f64())));
    if rule.exhausted == Exhausted::Cut {
        add("cuts streams".into());
    }
    said
}

fn of_key(key: &Key, names: &[String]) -> BTreeSet<String> {
    let allowed =
        names.iter().filter(|name| key.allows(name)).map(|name| format!("may use {name}"));
    let mut facts: BTreeSet<String> = allowed.collect();
    facts.insert("exists".into());
    facts.extend(key.team.iter().map(|t| format!("team {t}")));
    facts.extend(key.department.iter().map(|d| format!("department {d}")));
    facts.extend(key.user.iter().map(|u| format!("user {u}")));
    facts.extend(key.expires.iter().map(|at| format!("expires {at}")));
    facts.extend(key.aliases.iter().map(|(from, to)| format!("alias {from} = {to}")));
    facts.extend(key.tags.iter().map(|tag| format!("tag {tag}")));
    facts.extend(key.max_tier.iter().map(|tier| format!("max_budget_tier {tier}")));
    if key.end_users {
        facts.insert("end users are believed".into());
    }
    if key.enabled {
        facts.insert("enabled".into());
    }
    facts
}

fn of_model(model: &Model) -> BTreeSet<String> {
    let target = |t: &crate::route::Target| {
        let name = t.model.as_deref().unwrap_or("*");
        format!("target {}/{name} (priority {}, weight {})", t.provider.id, t.priority, t.weight)
    };
    let mut facts: BTreeSet<String> = model.targets.iter().map(target).collect();
    if model.strict {
        facts.insert("strict".into());
    }
    facts
}

/// Prices and ceilings of what providers offer.
fn priced(routes: &Table, out: &mut Facts) {
    for (id, provider) in &routes.providers {
        for offer in &provider.offers {
            let name = format!("providers.{id}.models.{:?}", offer.name.as_str());
            out.insert(name, of_offer(offer));
        }
    }
}

fn of_offer(offer: &Offer) -> BTreeSet<String> {
    let mut facts = BTreeSet::from(["offered".to_owned()]);
    facts.extend(offer.context.map(|n| format!("context {n}")));
    facts.extend(offer.max_output.map(|n| format!("max_output {n}")));
    if let Some(price) = &offer.price {
        let step = |above: u64, r: &weir_filters::usage::Rates| {
            format!(
                "price above {above} tokens (nano-USD per million): input {}, cached {}, \
                 cache write {}, output {}, reasoning {}",
                r.input,
                r.cached_input,
                r.cache_write,
                r.output,
                r.reasoning.unwrap_or(r.output),
            )
        };
        facts.insert(step(0, &price.base));
        facts.extend(price.tiers.iter().map(|(above, rates)| step(*above, rates)));
        facts.extend(
            (price.per_request.0 > 0)
                .then(|| format!("per request {} nano-USD", price.per_request.0)),
        );
    }
    facts
}
