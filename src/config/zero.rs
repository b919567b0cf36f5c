//! A start without any config: every preset whose usual environment variable is set, and one key.

use super::preset::{EMBEDDED, Preset, Presets};
use super::value::Value;
use super::{Env, Loaded, fault, load_text, preset};
use crate::base::Secret;
use std::path::Path;

/// What is named in faults, since there is no file.
const NOWHERE: &str = "(no config)";

/// A config out of the environment.
#[derive(Debug)]
pub struct Zero {
    /// What it means.
    pub loaded: Loaded,
    /// The key's secret where it was made here and must be printed; else `WEIR_KEY` gave it.
    pub generated: Option<Secret>,
    /// The providers' names.
    pub providers: Vec<&'static str>,
}

/// Every preset whose usual environment variable is set, on 127.0.0.1:8080, with one key named
/// `default`: `WEIR_KEY`, or a generated one.
///
/// # Errors
/// What to set, in lines to be shown as they are.
pub fn zero(env: Env<'_>) -> Result<Zero, String> {
    let providers = available(env);
    if providers.is_empty() {
        return Err(nothing_set());
    }
    let given = env("WEIR_KEY").is_some_and(|key| !key.is_empty());
    let generated = if given { None } else { Some(crate::access::new_secret()?) };
    let mut text = String::from("[keys.default]\nsecret = \"env:WEIR_KEY\"\n");
    for name in &providers {
        text.push_str(&format!("[providers.{name}]\n"));
    }
    let with_key = |name: &str| match (&generated, name) {
        (Some(secret), "WEIR_KEY") => Some(secret.expose().to_owned()),
        _ => env(name),
    };
    let lines = |faults: Vec<super::Fault>| {
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let loaded = load_text(Path::new(NOWHERE), &text, &with_key).map_err(lines)?;
    Ok(Zero { loaded, generated, providers })
}

/// The embedded presets whose key is set, and whose address where that is the user's own.
pub(super) fn available(env: Env<'_>) -> Vec<&'static str> {
    let set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
    let presets = embedded(env);
    let ready = |name: &str| {
        let Some(preset) = presets.get(name) else { return false };
        let address = address(preset).is_some_and(|variables| variables.into_iter().all(set));
        address && preset.env.iter().any(|name| set(name))
    };
    EMBEDDED.iter().map(|(name, _)| *name).filter(|name| ready(name)).collect()
}

/// The variables that a preset's address is in; `None` where only config can tell it.
fn address(preset: &Preset) -> Option<Vec<&str>> {
    let said = |key: &str| match preset.table.get(key).map(|entry| &entry.node.value) {
        Some(Value::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let url = said("base_url")?;
    let mut variables: Vec<&str> = url.strip_prefix("env:").into_iter().collect();
    for name in super::provider::PLACES {
        if url.contains(&format!("{{{name}}}")) {
            variables.extend(said(name)?.strip_prefix("env:"));
        }
    }
    Some(variables)
}

fn embedded(env: Env<'_>) -> Presets {
    preset::folders(&fault::Book::new(env), &[], &mut Vec::new(), &mut Vec::new())
}

fn nothing_set() -> String {
    let presets = embedded(&|_| None);
    let mut text = String::from(
        "there is no config, and no provider's key in the environment; \
         set one of these, or run `weir init`:\n",
    );
    for (name, preset) in &presets {
        let Some(variables) = address(preset).filter(|_| !preset.env.is_empty()) else { continue };
        let beside: String = variables.iter().map(|name| format!(" and {name}")).collect();
        text.push_str(&format!("  {name:<12} {}{beside}\n", preset.env.join(" or ")));
    }
    text.push_str("`weir demo` needs none of them.");
    text
}
