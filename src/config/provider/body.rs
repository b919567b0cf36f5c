//! `params` and `quirks`: edits of a provider's requests, and its deviations from the wire.

use super::part;
use crate::config::value::{Shape, Table, Value, View, join, json};
use weir_filters::wire::{Params, Quirks};

const PARAMS: Shape = Shape { known: &["rename", "drop", "defaults", "clamp"], later: &[] };
const QUIRKS: Shape = Shape {
    known: &[
        "stream_options",
        "usage_unasked",
        "reasoning_back",
        "refused",
        "responses",
        "completions",
    ],
    later: &[],
};

/// Members that weir itself reads and writes: an edit of theirs would break the request.
const OWN_MEMBERS: &[&str] = &["model", "stream", "messages"];

pub(super) fn quirks(v: &View<'_>) -> Quirks {
    let empty = Table::new();
    let v = part(v, "quirks", &QUIRKS, &empty);
    let usual = Quirks::default();
    Quirks {
        stream_options: v.boolean("stream_options", usual.stream_options),
        usage_unasked: v.boolean("usage_unasked", usual.usage_unasked),
        reasoning_back: v.boolean("reasoning_back", usual.reasoning_back),
        refused: v.words("refused"),
        responses: v.boolean("responses", usual.responses),
        completions: v.boolean("completions", usual.completions),
    }
}

/// At another address than the preset's own, what stands beside the wire itself is there only if
/// the user says so.
pub(super) fn elsewhere(user: &View<'_>, quirks: &mut Quirks) {
    let said = |key: &str| match user.get("quirks").map(|node| &node.value) {
        Some(Value::Table(table)) => table.contains_key(key),
        _ => false,
    };
    quirks.responses &= said("responses");
    quirks.completions &= said("completions");
}

pub(super) fn params(v: &View<'_>) -> Params {
    let empty = Table::new();
    let v = part(v, "params", &PARAMS, &empty);
    let mut out = Params { drop: v.words("drop"), ..Params::default() };
    for name in &out.drop {
        own(&v, "drop", name);
    }
    for (name, entry) in v.named("rename") {
        own(&v, "rename", name);
        match &entry.node.value {
            Value::Text(to) if !to.is_empty() && to != name => {
                own(&v, "rename", to);
                out.rename.insert(name.to_owned(), to.clone());
            }
            _ => v.book.fault(
                entry.node.at,
                &name_of(&v, "rename", name),
                "another name is needed here",
            ),
        }
    }
    for (name, entry) in v.named("defaults") {
        own(&v, "defaults", name);
        match json(&entry.node) {
            Ok(raw) => drop(out.defaults.insert(name.to_owned(), raw)),
            Err(why) => v.book.fault(entry.node.at, &name_of(&v, "defaults", name), why),
        }
    }
    for (name, entry) in v.named("clamp") {
        own(&v, "clamp", name);
        match range(&entry.node.value) {
            Some(range) => drop(out.clamp.insert(name.to_owned(), range)),
            None => {
                let what = "two numbers are needed here, the lower one first";
                v.book.fault(entry.node.at, &name_of(&v, "clamp", name), what);
            }
        }
    }
    out
}

fn name_of(v: &View<'_>, key: &str, name: &str) -> String {
    join(&v.key(key), name)
}

fn own(v: &View<'_>, key: &str, name: &str) {
    if OWN_MEMBERS.contains(&name) {
        v.fault(key, format!("{name:?} is weir's own to write"));
    }
}

fn range(value: &Value) -> Option<(f64, f64)> {
    let Value::List(items) = value else { return None };
    let numbers: Vec<f64> = items.iter().filter_map(|i| i.value.number()?.parse().ok()).collect();
    match numbers[..] {
        [low, high] if items.len() == 2 && low.is_finite() && high.is_finite() && low <= high => {
            Some((low, high))
        }
        _ => None,
    }
}
