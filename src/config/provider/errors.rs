//! `errors`: a provider's own words for its failures.

use crate::config::fault::hint;
use crate::config::value::{Value, View, join};
use weir_filters::error::{CLASSES, Class, ErrorMap};

pub(super) fn errors(v: &View<'_>) -> ErrorMap {
    let mut rows: Vec<(&str, Class)> = Vec::new();
    for (name, entry) in v.named("errors") {
        let fault = |why: String| v.book.fault(entry.node.at, &join(&v.key("errors"), name), why);
        let Value::Text(text) = &entry.node.value else {
            fault(format!("a string is needed here, not {}", entry.node.value.kind()));
            continue;
        };
        let names = || CLASSES.iter().map(|(name, ..)| *name);
        match CLASSES.iter().find(|(name, ..)| name == text) {
            Some((_, class, _)) => rows.push((name, *class)),
            None => {
                let all = names().collect::<Vec<_>>().join(", ");
                fault(format!("{text:?} is none of {all}{}", hint(text, names())));
            }
        }
    }
    ErrorMap::new(rows)
}
