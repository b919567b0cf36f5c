//! What a provider offers: its models, their prices and their limits.

use crate::base::Glob;
use crate::config::fault::hint;
use crate::config::price::{self, Currencies};
use crate::config::value::{Shape, View};
use crate::route::Offer;
use weir_filters::tokens::Encoding;

const OFFER: Shape = Shape {
    known: &[
        "price",
        "context",
        "max_output",
        "tags",
        "tokenizer",
        "tools",
        "images",
        "json_schema",
    ],
    later: &[],
};

/// A context above this is a typing error.
const TOKENS_MAX: u64 = 1 << 32;
/// Vocabularies by the names they are published under.
const TOKENIZERS: &[&str] = &["o200k_base", "cl100k_base"];

/// Exact names first, then patterns, the longest first.
pub(super) fn offers(v: &View<'_>, currencies: &Currencies) -> Vec<Offer> {
    let mut out = Vec::new();
    let models = View { path: v.key("models"), ..v.clone() };
    for (name, entry) in v.named("models") {
        if name.is_empty() || name.matches('*').count() > 1 {
            v.book.fault(entry.at, &models.key(name), "a model's name is exact or has one *");
        }
        let Some(table) = models.child(name, &entry.node, &OFFER) else { continue };
        let price = table
            .get("price")
            .and_then(|node| price::price(v.book, node, table.key("price"), currencies));
        out.push(Offer {
            name: Glob::new(name),
            price: price.map(Into::into),
            context: table.integer("context", 1..=TOKENS_MAX),
            max_output: table.integer("max_output", 1..=TOKENS_MAX),
            tags: table.words("tags"),
            encoding: encoding(&table, name),
            tools: table.boolean("tools", true),
            images: table.boolean("images", true),
            schema: table.boolean("json_schema", true),
        });
    }
    out.sort_by_key(|offer| rank(offer.name.as_str()));
    out
}

/// Exact names before patterns, longer patterns before shorter ones, then by name.
pub(in crate::config) fn rank(name: &str) -> (bool, std::cmp::Reverse<usize>, String) {
    let pattern = name.contains('*');
    let length = if pattern { name.len() } else { 0 };
    (pattern, std::cmp::Reverse(length), name.to_owned())
}

fn encoding(v: &View<'_>, model: &str) -> Option<Encoding> {
    if v.get("tokenizer").is_none() {
        return if model.contains('*') { None } else { Encoding::of_model(model) };
    }
    let name = v.text("tokenizer")?;
    let found = Encoding::by_name(name);
    if found.is_none() {
        let near = hint(name, TOKENIZERS.iter().copied());
        v.fault("tokenizer", format!("{name:?} is none of {}{near}", TOKENIZERS.join(", ")));
    }
    found
}
