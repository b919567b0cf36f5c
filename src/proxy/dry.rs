//! A try that is not made: its request as the provider would get it, without the secrets.

use super::endpoint::{Endpoint, Kind};
use super::{forward, intake};
use crate::flow::Attempt;
use crate::route::Auth;
use http::{HeaderName, HeaderValue, Method};
use serde::Serialize;
use serde_json::value::RawValue;
use weir_filters::dialect::Api;

/// What stands where a secret was.
const MASK: &str = "***";

/// A request to a provider.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// Whose.
    pub provider: String,
    /// The credential's name.
    pub credential: Option<String>,
    /// HTTP.
    pub method: &'static str,
    /// Whole, a secret in its query masked.
    pub url: String,
    /// In order, secrets masked. Harmless headers of a caller would stand beside them.
    #[serde(serialize_with = "as_map")]
    pub headers: Vec<(String, String)>,
    /// Every byte of it; a string where it is no JSON.
    pub body: Box<RawValue>,
    /// Members that the provider cannot take.
    pub dropped: Vec<String>,
}

/// An endpoint by its path, its path without `/v1`, or its label: the label, and what is spoken.
#[must_use]
pub fn endpoint(name: &str) -> Option<(&'static str, Api)> {
    let name = name.trim_start_matches('/').trim_start_matches("v1/");
    let found = Endpoint::find(&Method::POST, &format!("/v1/{name}"));
    let found = if let Kind::Ask(_) = found.kind { Some(found) } else { Endpoint::named(name) };
    found.and_then(|e| match e.kind {
        Kind::Ask(api) => Some((e.label, api)),
        _ => None,
    })
}

/// Shows a try.
///
/// # Errors
/// A value that no header or path can hold.
pub fn show(attempt: &Attempt, stream: bool) -> Result<Shown, String> {
    // As a real one would bear them, if its caller names none.
    let id = format!("req-{}", uuid::Uuid::now_v7().simple());
    let trace = intake::traceparent(&format!("{:032x}", fastrand::u128(1..)));
    let head = forward::head(attempt, &id, trace, stream);
    let head = head.map_err(|error| error.to_string())?;
    let provider = &attempt.provider;
    let scheme = if provider.base.tls { "https" } else { "http" };
    let query = match &provider.auth {
        Auth::Query(name) => name.as_str(),
        _ => "",
    };
    let uri = without_secret(&head.uri.to_string(), query);
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in &head.headers {
        headers.retain(|(other, _)| other != name.as_str()); // later ones win
        headers.push((name.as_str().to_owned(), shown(name, value)));
    }
    Ok(Shown {
        provider: provider.id.to_string(),
        credential: attempt.credential.as_ref().map(|c| c.name.clone()),
        method: "POST",
        url: format!("{scheme}://{}{uri}", provider.base.authority()),
        headers,
        body: raw(&attempt.outgoing.body.concat())?,
        dropped: attempt.outgoing.dropped.clone(),
    })
}

fn as_map<S: serde::Serializer>(all: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(all.iter().map(|(name, value)| (name, value)))
}

/// JSON as it is; what is none as a string of it.
fn raw(body: &[u8]) -> Result<Box<RawValue>, String> {
    let text = String::from_utf8_lossy(body).into_owned();
    let string = || serde_json::value::to_raw_value(&text);
    RawValue::from_string(text.clone()).or_else(|_| string()).map_err(|error| error.to_string())
}

fn shown(name: &HeaderName, value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes());
    let low = name.as_str();
    let telling = ["auth", "key", "token", "secret", "cookie", "credential", "password"];
    if !value.is_sensitive() && !telling.iter().any(|word| low.contains(word)) {
        return weir_filters::error::mask(&text);
    }
    match text.split_once(' ') {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("bearer") => format!("{scheme} {MASK}"),
        _ => MASK.into(),
    }
}

/// A path and query with the value of this parameter masked.
fn without_secret(uri: &str, name: &str) -> String {
    let Some((path, query)) = uri.split_once('?').filter(|_| !name.is_empty()) else {
        return uri.to_owned();
    };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if key == name => format!("{key}={MASK}"),
        _ => pair.to_owned(),
    });
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let check = |name: &str, value: &str, sensitive: bool, want: &str| {
            let mut value = HeaderValue::from_str(value).unwrap();
            value.set_sensitive(sensitive);
            assert_eq!(shown(&name.parse().unwrap(), &value), want, "{name}");
        };
        check("authorization", "Bearer sk-1", true, "Bearer ***");
        check("x-custom", "abc", true, "***");
        check("x-gateway-token", "abc", false, "***");
        check("anthropic-version", "2023-06-01", false, "2023-06-01");
        assert_eq!(without_secret("/a?x=1&key=s%2Fk&y=2", "key"), "/a?x=1&key=***&y=2");
        assert_eq!(without_secret("/a?key=s", ""), "/a?key=s");
    }

    #[test]
    fn an_endpoint_has_several_names() {
        for name in ["chat", "/v1/chat/completions", "chat/completions", "v1/chat/completions"] {
            assert_eq!(endpoint(name), Some(("chat", Api::Chat)), "{name}");
        }
        assert_eq!(endpoint("messages"), Some(("messages", Api::Messages)));
        assert_eq!(endpoint("models").or(endpoint("nothing")), None);
    }
}
