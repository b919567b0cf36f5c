//! `[providers.*]`: a preset with the user's table over it, compiled into what a try needs.

mod body;
mod errors;
mod heal;
mod keys;
mod offers;
mod place;
mod proof;
mod reach;
mod waits;

pub(super) use offers::rank;
pub(super) use place::NAMES as PLACES;
pub(super) use place::parse_base;
use place::{base, place};

use super::fault::hint;
use super::preset::{Preset, Presets};
use super::price::Currencies;
use super::source::overlay;
use super::value::{Shape, Table, Value, View, join};
use super::{secret, value};
use crate::base::ProviderId;
use crate::route::{Auth, Provider};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_filters::wire::{WIRES, Wire};

const PROVIDER: Shape = Shape {
    known: &[
        "preset",
        "wire",
        "base_url",
        "auth",
        "api_keys",
        "api_version",
        "timeouts",
        "retry",
        "failover",
        "breaker",
        "cooldown",
        "health",
        "pool",
        "idempotency_header",
        "headers",
        "params",
        "quirks",
        "errors",
        "region",
        "project",
        "location",
        "http2",
        "ca",
        "proxy",
        "models",
    ],
    later: LATER_KEYS,
};

/// Provider keys of later versions.
pub(super) const LATER_KEYS: &[&str] = &[];
/// Headers that are weir's own, or would change how a message is framed.
const OWN_HEADERS: &[&str] = &[
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "proxy-connection",
    "proxy-authorization",
    "accept-encoding",
    "x-request-id",
    "traceparent",
];
/// Headers whose value is a credential.
const CREDENTIAL_HEADERS: &[&str] = &["authorization", "x-api-key", "api-key", "x-goog-api-key"];

/// Every provider by name. Faulty ones are missing, which the faults tell.
pub(super) fn providers(
    root: &View<'_>,
    presets: &Presets,
    currencies: &Currencies,
) -> BTreeMap<ProviderId, Arc<Provider>> {
    let mut out = BTreeMap::new();
    let named = root.named("providers");
    if named.is_empty() {
        root.book.warn(root.at, "providers", "there is none, so every model is unknown");
    }
    for (name, entry) in named {
        let path = join("providers", name);
        if name.is_empty() || name.contains(['/', '*']) {
            root.book.fault(entry.at, &path, "a provider's name has no / and no *");
            continue;
        }
        // A first look checks the user's own keys, a second one reads them over the preset's.
        root.book.broken(name); // until it is compiled
        let Some(user) = value::view(root.book, &entry.node, path, &PROVIDER) else { continue };
        let Some(preset) = preset(&user, name, presets) else { continue };
        let table = preset.map_or_else(|| user.table.clone(), |p| overlay(&p.table, user.table));
        let both = View { table: &table, ..user.clone() };
        let mut made = provider(&both, name, preset, currencies);
        let text = |value: &Value| match value {
            Value::Text(text) => Some(text.to_owned()),
            _ => None,
        };
        let asked = user.get("base_url").and_then(|node| text(&node.value));
        let usual = preset.and_then(|p| p.table.get("base_url")).and_then(|e| text(&e.node.value));
        // The preset's own address, said again, is no other one.
        let moved = asked.is_some() && usual.is_some() && asked != usual;
        if let Some(made) = made.as_mut().filter(|_| moved) {
            body::elsewhere(&user, &mut made.quirks);
        }
        if let Some(provider) = made {
            root.book.mended(name);
            out.insert(provider.id.clone(), Arc::new(provider));
        }
    }
    out
}

/// Compiles a preset by itself, with an address where that is the user's own to give.
pub(super) fn alone(book: &super::fault::Book<'_>, preset: &Preset) {
    use value::{Entry, Node};
    let at = super::fault::At { file: 0, line: 1 };
    let mut table = preset.table.clone();
    let theirs = match table.get("base_url").map(|entry| &entry.node.value) {
        Some(Value::Text(url)) => secret::is_reference(url),
        other => other.is_none(),
    };
    if theirs {
        let node = Node { at, value: Value::Text("http://127.0.0.1:1".into()) };
        table.insert("base_url".into(), Entry { at, node });
    }
    for name in PLACES {
        let node = Node { at, value: Value::Text("somewhere".into()) };
        table.insert(name.into(), Entry { at, node });
    }
    let keyless = Preset { keyless: true, ..preset.clone() };
    let view = View { book, table: &table, at, path: String::new() };
    provider(&view, "preset", Some(&keyless), &super::price::usd());
}

/// The preset of a provider; the outer `None` when it names one that is not there.
fn preset<'p>(user: &View<'_>, name: &str, presets: &'p Presets) -> Option<Option<&'p Preset>> {
    let near = |wanted: &str| hint(wanted, presets.keys().map(String::as_str));
    if user.get("preset").is_none() {
        let found = presets.get(name);
        if found.is_none() && user.get("wire").is_none() && user.book.whole() {
            user.complain(format!("is no preset's name, so it needs a wire{}", near(name)));
        }
        return Some(found);
    }
    let wanted = user.text("preset")?;
    let found = presets.get(wanted);
    if found.is_none() && user.book.whole() {
        user.fault("preset", format!("there is no preset {wanted:?}{}", near(wanted)));
    }
    found.map(Some)
}

fn provider(
    v: &View<'_>,
    name: &str,
    preset: Option<&Preset>,
    currencies: &Currencies,
) -> Option<Provider> {
    let wire = wire(v, preset);
    let auth = wire.and_then(|wire| auth(v, wire));
    let credentials = auth.as_ref().map(|auth| keys::credentials(v, auth, preset));
    let base = base(v, credentials.as_deref().and_then(proof::project));
    let (trust, through) = (reach::trust(v, base.as_ref()), reach::through(v));
    let api_version = v.text("api_version").map(str::to_owned);
    if wire == Some(Wire::Azure) && api_version.is_none() {
        v.complain("wire azure needs an api_version");
    }
    let (timeouts, pool) = (waits::timeouts(v), waits::pool(v));
    let (retry, failover) = (waits::retry(v), waits::failover(v));
    let (breaker, cooldown, health) = (heal::breaker(v), heal::cooldown(v), heal::health(v));
    let (params, quirks, errors) = (body::params(v), body::quirks(v), errors::errors(v));
    let idempotency = idempotency(v);
    let (headers, offers) = (headers(v), offers::offers(v, currencies));
    let credentials = credentials?;
    Some(Provider {
        id: ProviderId::from(name),
        wire: wire?,
        base: base?,
        trust,
        through: through.map(Arc::new),
        http2: v.boolean("http2", false),
        auth: if credentials.is_empty() { Auth::None } else { auth? },
        credentials,
        api_version,
        timeouts,
        retry,
        failover,
        breaker,
        cooldown,
        health,
        pool,
        idempotency,
        headers,
        params,
        quirks,
        errors,
        offers,
        live: std::sync::OnceLock::new(),
    })
}

/// Where a user's own table lacks it, that has been told with the nearest preset.
fn wire(v: &View<'_>, preset: Option<&Preset>) -> Option<Wire> {
    if v.get("wire").is_none() && preset.is_some() {
        v.complain("a preset needs a wire");
    }
    v.choice("wire", WIRES, &[])
}

fn auth(v: &View<'_>, wire: Wire) -> Option<Auth> {
    if v.get("auth").is_none() {
        return Some(match wire {
            Wire::OpenAi | Wire::Vertex | Wire::Bedrock | Wire::Cohere | Wire::DashScope => {
                Auth::Bearer
            }
            Wire::Qianfan => Auth::Query("access_token".into()),
            Wire::Ollama => Auth::None,
            Wire::Gemini => Auth::Header("x-goog-api-key"),
            Wire::Azure => Auth::Header("api-key"),
            Wire::Anthropic => Auth::Header("x-api-key"),
        });
    }
    let text = v.text("auth")?;
    if let Some(name) = text.strip_prefix("query:") {
        let sound = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !sound {
            v.fault("auth", "query: needs the name of a query parameter");
        }
        return sound.then(|| Auth::Query(name.to_owned()));
    }
    let words = ["bearer", "x-api-key", "api-key", "x-goog-api-key", "none", "sigv4", "oauth"];
    Some(match v.choice("auth", &words.map(|word| (word, word)), &[])? {
        // Keys that sign do so by themselves; tokens, given or one's own, are bearers'.
        "bearer" | "sigv4" | "oauth" => Auth::Bearer,
        "none" => Auth::None,
        header => Auth::Header(header),
    })
}

/// `idempotency_header`, in lower case.
fn idempotency(v: &View<'_>) -> Option<http::HeaderName> {
    let (key, name) = ("idempotency_header", v.text("idempotency_header")?);
    let lower = name.to_ascii_lowercase();
    if OWN_HEADERS.contains(&lower.as_str()) || CREDENTIAL_HEADERS.contains(&lower.as_str()) {
        v.fault(key, format!("{name:?} has another meaning"));
    }
    let found = http::HeaderName::from_bytes(lower.as_bytes());
    if found.is_err() {
        v.fault(key, format!("{name:?} is no header name"));
    }
    found.ok()
}

fn headers(v: &View<'_>) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (name, entry) in v.named("headers") {
        let key = join(&v.key("headers"), name);
        let lower = name.to_ascii_lowercase();
        if http::HeaderName::from_bytes(lower.as_bytes()).is_err() {
            v.book.fault(entry.at, &key, "is no header name");
        } else if OWN_HEADERS.contains(&lower.as_str()) {
            v.book.fault(entry.at, &key, "is weir's own to set");
        }
        let value::Value::Text(text) = &entry.node.value else {
            v.book.fault(
                entry.node.at,
                &key,
                format!("a string is needed here, not {}", entry.node.value.kind()),
            );
            continue;
        };
        if CREDENTIAL_HEADERS.contains(&lower.as_str()) && !secret::is_reference(text) {
            v.book.warn(entry.node.at, &key, "holds a secret in the clear; write env:NAME instead");
        }
        let Some(found) = secret::value(v.book, entry.node.at, &key, text) else { continue };
        if http::HeaderValue::from_str(&found).is_err() {
            v.book.fault(entry.node.at, &key, "cannot stand in a header");
        }
        if out.iter().any(|(other, _)| *other == lower) {
            v.book.fault(entry.at, &key, "is set twice: header names have no case");
        }
        out.push((lower, found.to_string()));
    }
    out
}

/// A view of one of a provider's tables, or of an empty one where it is absent.
fn part<'a>(v: &View<'a>, key: &str, shape: &Shape, empty: &'a Table) -> View<'a> {
    v.table(key, shape).unwrap_or_else(|| View {
        book: v.book,
        table: empty,
        at: v.at,
        path: v.key(key),
    })
}
