//! `[providers.*]`: a preset with the user's table over it, compiled into what a try needs.

mod body;
mod heal;
mod keys;
mod offers;
mod waits;

pub(super) use offers::rank;

use super::fault::hint;
use super::preset::{Preset, Presets};
use super::price::Currencies;
use super::source::overlay;
use super::value::{LATER, Shape, Table, Value, View, join};
use super::{secret, value};
use crate::base::ProviderId;
use crate::route::{Auth, Base, Provider};
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
        "http2",
        "models",
    ],
    later: LATER_KEYS,
};

/// Provider keys of later versions.
pub(super) const LATER_KEYS: &[&str] = &["ca", "proxy", "region", "project", "location", "errors"];
/// Wires of later versions.
const LATER_WIRES: &[&str] = &["dashscope"];
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
    for (name, entry) in root.named("providers") {
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
    let keyless = Preset { keyless: true, ..preset.clone() };
    let view = View { book, table: &table, at, path: String::new() };
    provider(&view, "preset", Some(&keyless), &super::price::usd());
}

/// The preset of a provider; the outer `None` when it names one that is not there.
fn preset<'p>(user: &View<'_>, name: &str, presets: &'p Presets) -> Option<Option<&'p Preset>> {
    if user.get("preset").is_none() {
        return Some(presets.get(name));
    }
    let wanted = user.text("preset")?;
    let found = presets.get(wanted);
    if found.is_none() && user.book.whole() {
        let near = hint(wanted, presets.keys().map(String::as_str));
        user.fault("preset", format!("there is no preset {wanted:?}{near}"));
    }
    found.map(Some)
}

fn provider(
    v: &View<'_>,
    name: &str,
    preset: Option<&Preset>,
    currencies: &Currencies,
) -> Option<Provider> {
    if v.boolean("http2", false) {
        v.fault("http2", format!("`http2 = true` is {LATER}"));
    }
    let (wire, base) = (wire(v), base(v));
    let auth = wire.and_then(|wire| auth(v, wire));
    let credentials = auth.as_ref().map(|auth| keys::credentials(v, auth, preset));
    let api_version = v.text("api_version").map(str::to_owned);
    if wire == Some(Wire::Azure) && api_version.is_none() {
        v.complain("wire azure needs an api_version");
    }
    let (timeouts, pool) = (waits::timeouts(v), waits::pool(v));
    let (retry, failover) = (waits::retry(v), waits::failover(v));
    let (breaker, cooldown, health) = (heal::breaker(v), heal::cooldown(v), heal::health(v));
    let (params, quirks) = (body::params(v), body::quirks(v));
    let idempotency = idempotency(v);
    let (headers, offers) = (headers(v), offers::offers(v, currencies));
    let credentials = credentials?;
    Some(Provider {
        id: ProviderId::from(name),
        wire: wire?,
        base: base?,
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
        offers,
        live: std::sync::OnceLock::new(),
    })
}

fn wire(v: &View<'_>) -> Option<Wire> {
    if v.get("wire").is_none() {
        v.complain("has no preset, so it needs a wire");
    }
    v.choice("wire", WIRES, LATER_WIRES)
}

fn auth(v: &View<'_>, wire: Wire) -> Option<Auth> {
    if v.get("auth").is_none() {
        return Some(match wire {
            Wire::OpenAi | Wire::Vertex | Wire::Bedrock | Wire::Cohere => Auth::Bearer,
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
    let words =
        ["bearer", "x-api-key", "api-key", "x-goog-api-key", "none"].map(|word| (word, word));
    Some(match v.choice("auth", &words, &["sigv4", "oauth"])? {
        "bearer" => Auth::Bearer,
        "none" => Auth::None,
        header => Auth::Header(header),
    })
}

fn base(v: &View<'_>) -> Option<Base> {
    if v.get("base_url").is_none() {
        v.complain("needs a base_url");
    }
    let text = v.text("base_url")?;
    let url = secret::value(v.book, v.place("base_url"), &v.key("base_url"), text)?;
    match parse_base(&url) {
        Ok(base) => Some(base),
        Err(why) => {
            v.fault("base_url", why);
            None
        }
    }
}

/// Takes a URL apart.
///
/// # Errors
/// What a base URL may not be.
fn parse_base(url: &str) -> Result<Base, String> {
    let (scheme, rest) =
        url.split_once("://").ok_or_else(|| format!("{url:?} is no http:// or https:// URL"))?;
    let tls = match scheme {
        "https" => true,
        "http" => false,
        _ => return Err(format!("{scheme}:// is neither http:// nor https://")),
    };
    if rest.contains(['?', '#']) {
        return Err("has a query or fragment; paths are appended to it".into());
    }
    let uri: http::Uri = url.parse().map_err(|e| format!("{url:?}: {e}"))?;
    let authority = uri.authority().ok_or("has no host")?;
    if authority.as_str().contains('@') {
        return Err("holds a user name; credentials belong in api_keys".into());
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err("has no host".into());
    }
    // The port as the parser sees it: an empty or too large one is no port.
    let port = match authority.port_u16() {
        Some(0) => return Err("port 0 is no port to connect to".into()),
        Some(port) => port,
        None if authority.as_str().ends_with(authority.host()) => {
            if tls {
                443
            } else {
                80
            }
        }
        None => return Err("has no port after the colon".into()),
    };
    if tls && host.parse::<std::net::IpAddr>().is_ok() {
        return Err("https needs a host name: certificates are verified by name".into());
    }
    Ok(Base { tls, host, port, path: uri.path().trim_end_matches('/').to_owned() })
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_apart() {
        let base = |url: &str| parse_base(url).unwrap();
        let check = |url: &str, tls: bool, host: &str, port: u16, path: &str| {
            let want = Base { tls, host: host.into(), port, path: path.into() };
            assert_eq!(base(url), want, "{url}");
        };
        check("https://api.openai.com/v1", true, "api.openai.com", 443, "/v1");
        check("https://api.openai.com/v1/", true, "api.openai.com", 443, "/v1");
        check("http://127.0.0.1:9000/p0/v1", false, "127.0.0.1", 9000, "/p0/v1");
        check("http://[::1]:8080", false, "::1", 8080, "");
        check("http://localhost", false, "localhost", 80, "");
    }

    #[test]
    fn what_is_no_base_url_is_refused() {
        for url in [
            "api.openai.com/v1",
            "ftp://x/v1",
            "https://",
            "https://u:p@x/v1",
            "https://x/v1?a=b",
            "https://1.2.3.4/v1",
            "https://[::1]/v1",
            "http://x:0/",
            "http://x:99999/",
            "http://x:/v1",
            "http://x y/",
        ] {
            assert!(parse_base(url).is_err(), "{url}");
        }
    }
}
