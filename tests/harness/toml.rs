//! Pieces of config for a gateway under test.

use super::{KEY, Provider};

/// A provider of preset `openai`, with one priced model `up-model`: 1 USD a million in, 0.1 from
/// the cache, 2 out.
pub fn openai(name: &str, provider: &Provider) -> String {
    custom(name, "openai", &provider.url(), "")
}

/// The same for preset `anthropic`.
pub fn anthropic(name: &str, provider: &Provider) -> String {
    custom(name, "anthropic", &provider.url(), "")
}

/// A provider with more lines of its table.
pub fn custom(name: &str, preset: &str, url: &str, more: &str) -> String {
    format!(
        "[providers.{name}]\npreset = \"{preset}\"\nbase_url = \"{url}\"\n\
         api_keys = [\"sk-upstream-{name}\"]\n{more}\n\
         [providers.{name}.models.\"up-model\"]\n\
         price = {{ currency = \"USD\", input = 1.0, cached_input = 0.1, cache_write = 1.25, \
         output = 2.0 }}\n"
    )
}

/// The key [`KEY`], named `test`, of team `crew`.
pub fn key() -> String {
    format!("[keys.test]\nsecret = \"{KEY}\"\nteam = \"crew\"\n")
}

/// A model with its targets in order: `a/up-model` is priority 1, the next 2, …
pub fn model(name: &str, targets: &[&str]) -> String {
    let numbered = targets.iter().enumerate();
    let each = numbered.map(|(i, to)| format!("{{ to = \"{to}\", priority = {} }}", i + 1));
    format!("[models.\"{name}\"]\ntargets = [{}]\n", each.collect::<Vec<_>>().join(", "))
}

/// One provider `a` behind model `m`, and the key.
pub fn simple(provider: &Provider) -> String {
    [openai("a", provider), model("m", &["a/up-model"]), key()].concat()
}

/// Provider `a`, then provider `b`, behind model `m`, and the key.
pub fn pair(a: &Provider, b: &Provider) -> String {
    let targets = ["a/up-model", "b/up-model"];
    [openai("a", a), openai("b", b), model("m", &targets), key()].concat()
}
