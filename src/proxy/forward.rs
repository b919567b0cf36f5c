//! The head of a request as a provider sees it: ours where it must be, the caller's where it may.

use crate::base::{Aws, Proof, Secret};
use crate::flow::Attempt;
use crate::route::{Auth, Provider};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, OrErr, Result};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_filters::sign;
use weir_filters::wire::segment;

/// What AWS signatures of a model's requests are good for.
const AWS_SERVICE: &str = "bedrock";
const JSON: &str = "application/json";
const IDENTITY: &str = "identity";

/// What never travels upstream: credentials and whereabouts of the caller, what belongs to the
/// caller's own connection, and what we set ourselves.
fn is_dropped(name: &str) -> bool {
    name.starts_with("x-weir-")
        || matches!(
            name,
            "authorization"
                | "x-api-key"
                | "api-key"
                | "x-goog-api-key"
                | "proxy-authorization"
                | "cookie"
                | "openai-organization"
                | "openai-project"
                | "forwarded"
                | "x-forwarded-for"
                | "x-forwarded-host"
                | "x-forwarded-proto"
                | "x-forwarded-port"
                | "x-real-ip"
                | "via"
                | "connection"
                | "keep-alive"
                | "proxy-connection"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
                | "expect"
                | "host"
                | "content-length"
                | "content-type"
                | "content-encoding"
                | "accept-encoding"
                | "accept"
                | "idempotency-key"
                | "traceparent"
                | "tracestate"
                | "x-request-id"
                | "range"
                | "if-match"
                | "if-none-match"
                | "if-modified-since"
                | "if-unmodified-since"
                | "if-range"
        )
}

/// What is left of the head of a try when it has been handed to Pingora.
#[derive(Debug, Clone)]
pub struct Head {
    /// Path and query.
    pub uri: Uri,
    /// In order; later ones win.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Makes the head of a try.
///
/// # Errors
/// A value that no header or path can hold.
pub fn head(
    attempt: &Attempt,
    request_id: &str,
    traceparent: String,
    stream: bool,
) -> Result<Head> {
    let provider = &attempt.provider;
    let mut path = [provider.base.path.as_str(), &attempt.outgoing.path].concat();
    let mut headers = Vec::with_capacity(12 + provider.headers.len());
    let accept = if stream { "text/event-stream" } else { JSON };
    set(&mut headers, header::HOST, provider.base.authority())?;
    headers.push((header::CONTENT_TYPE, HeaderValue::from_static(JSON)));
    headers.push((header::CONTENT_LENGTH, HeaderValue::from(attempt.outgoing.body.len())));
    headers.push((header::ACCEPT, HeaderValue::from_static(accept)));
    headers.push((header::ACCEPT_ENCODING, HeaderValue::from_static(IDENTITY)));
    set(&mut headers, HeaderName::from_static("x-request-id"), request_id.to_owned())?;
    set(&mut headers, HeaderName::from_static("traceparent"), traceparent)?;
    for (name, value) in &attempt.outgoing.headers {
        set(&mut headers, HeaderName::from_static(name), value.to_string())?;
    }
    if let (Some(name), Some(key)) = (&provider.idempotency, &attempt.idempotency) {
        set(&mut headers, name.clone(), key.clone())?;
    }
    for (name, value) in &provider.headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .or_err(ErrorType::InternalError, "a header name of the provider's")?;
        set(&mut headers, name, value.clone())?;
    }
    if let Some(token) = &attempt.token {
        pay(&provider.auth, token, &mut headers, &mut path)?;
    }
    if let Some(Proof::Aws(keys)) = attempt.credential.as_ref().map(|c| &c.proof) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        sign_with(keys, attempt, &path, time, &mut headers)?;
    }
    let uri = path.try_into().or_err(ErrorType::InternalError, "the provider's path")?;
    Ok(Head { uri, headers })
}

/// Makes the head of a GET that shows whether the provider answers.
///
/// # Errors
/// As above.
pub fn probe(provider: &Provider, path: &str, now: Instant) -> Result<Head> {
    let mut path = format!("{}{path}", provider.base.path);
    let mut headers = Vec::with_capacity(4 + provider.headers.len());
    set(&mut headers, header::HOST, provider.base.authority())?;
    headers.push((header::ACCEPT, HeaderValue::from_static(JSON)));
    headers.push((header::ACCEPT_ENCODING, HeaderValue::from_static(IDENTITY)));
    for (name, value) in &provider.headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .or_err(ErrorType::InternalError, "a header name of the provider's")?;
        set(&mut headers, name, value.clone())?;
    }
    // One that signs, or waits for its token, goes without: a refusal is an answer too.
    let used = provider.credentials.iter().find(|c| c.weight > 0);
    if let Some(Ok(Some(token))) = used.map(|c| c.proof.show(now)) {
        pay(&provider.auth, &token, &mut headers, &mut path)?;
    }
    let uri = path.parse().or_err(ErrorType::InternalError, "the probe's path")?;
    Ok(Head { uri, headers })
}

/// What bears the credential, where it is sent as it is.
fn pay(
    auth: &Auth,
    token: &Secret,
    headers: &mut Vec<(HeaderName, HeaderValue)>,
    path: &mut String,
) -> Result<()> {
    let secret = token.expose();
    match auth {
        Auth::Bearer => secretly(headers, header::AUTHORIZATION, ["Bearer ", secret].concat()),
        Auth::Header(name) => secretly(headers, HeaderName::from_static(name), secret.to_owned()),
        Auth::Query(name) => {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(name);
            path.push('=');
            path.push_str(&segment(secret));
            Ok(())
        }
        Auth::None => Ok(()),
    }
}

/// Signs the try as it will be sent. `time` in Unix seconds.
fn sign_with(
    keys: &Aws,
    attempt: &Attempt,
    path: &str,
    time: u64,
    headers: &mut Vec<(HeaderName, HeaderValue)>,
) -> Result<()> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let host = attempt.provider.base.authority();
    let request = sign::Request {
        method: "POST",
        path,
        query,
        headers: &[("host", &host), ("content-type", "application/json")],
        body: &attempt.outgoing.body.0,
    };
    let credentials = sign::Credentials {
        access_key: &keys.access_key_id,
        secret_key: keys.secret_access_key.expose(),
        session_token: keys.session_token.as_ref().map(Secret::expose),
    };
    let scope = sign::Scope { region: &keys.region, service: AWS_SERVICE };
    for (name, value) in sign::sign(&request, &credentials, scope, time) {
        secretly(headers, HeaderName::from_static(name), value)?;
    }
    Ok(())
}

fn set(
    headers: &mut Vec<(HeaderName, HeaderValue)>,
    name: HeaderName,
    value: String,
) -> Result<()> {
    let value = HeaderValue::try_from(value)
        .map_err(|_| Error::explain(ErrorType::InternalError, format!("the value of {name}")))?;
    headers.push((name, value));
    Ok(())
}

fn secretly(
    headers: &mut Vec<(HeaderName, HeaderValue)>,
    name: HeaderName,
    value: String,
) -> Result<()> {
    set(headers, name, value)?;
    if let Some((_, value)) = headers.last_mut() {
        value.set_sensitive(true);
    }
    Ok(())
}

/// Leaves of the caller's head what providers may see of it, once it has been read: Pingora copies
/// and walks it for every try.
pub fn strip(request: &mut RequestHeader) {
    let nominated = nominated(request);
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let text = name.as_str();
        if !is_dropped(text) && !nominated.iter().any(|gone| gone == text) {
            headers.append(name.clone(), value.clone());
        }
    }
    let (method, uri) = (request.method.clone(), request.uri.clone());
    *request = made(method, uri, request.version, headers);
}

impl Head {
    /// Turns the caller's head, [`strip`]ped, into the provider's.
    pub fn apply(self, request: &mut RequestHeader) {
        let mut headers = HeaderMap::with_capacity(self.headers.len() + request.headers.len());
        // Pingora makes a `host` out of the authority of HTTP/2.
        let theirs = request.headers.iter().filter(|(name, _)| !is_dropped(name.as_str()));
        headers.extend(theirs.map(|(name, value)| (name.clone(), value.clone())));
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        *request = made(Method::POST, self.uri, request.version, headers);
    }
}

/// A head of its own: taking one header after the other out of another costs more, and its table of
/// names as they were typed would have to be kept in step.
fn made(method: Method, uri: Uri, version: http::Version, headers: HeaderMap) -> RequestHeader {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    (parts.method, parts.uri, parts.version, parts.headers) = (method, uri, version, headers);
    RequestHeader::from(parts)
}

/// What the caller's `connection` header names is for us alone.
fn nominated(request: &RequestHeader) -> Vec<String> {
    (request.headers.get_all(header::CONNECTION).iter())
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(|n| n.trim().to_ascii_lowercase())
        .filter(|n| !n.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_of_the_caller_survives() {
        let mut request = RequestHeader::build("POST", b"/v1/chat/completions?x=1", None).unwrap();
        for name in ["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "x-hop"] {
            request.insert_header(name, "sk-weir-secret").unwrap();
        }
        request.insert_header("connection", "x-hop, close").unwrap();
        request.insert_header("x-weir-retry", "none").unwrap();
        request.insert_header("openai-beta", "v2").unwrap();
        let head = Head { uri: "/v1/up".parse().unwrap(), headers: vec![] };
        strip(&mut request);
        assert!(!format!("{request:?}").contains("sk-weir-secret"));
        head.apply(&mut request);
        assert!(!format!("{request:?}").contains("sk-weir-secret"));
        let left: Vec<_> = request.headers.keys().map(|k| k.as_str().to_owned()).collect();
        assert_eq!(left, ["openai-beta"]);
        assert_eq!(request.uri, "/v1/up");
    }

    #[test]
    fn a_credential_in_a_query_is_encoded() {
        assert_eq!(segment("a+b/c=é~"), "a%2Bb%2Fc%3D%C3%A9~");
    }
}
