//! What stands between us and a provider: whom its certificate must be of, and a proxy.

use crate::base::Secret;
use crate::config::value::{LATER, View};
use crate::config::{secret, tls};
use crate::route::{Base, Through, Trust};
use base64::Engine as _;

pub(super) fn trust(v: &View<'_>, base: Option<&Base>) -> Option<Trust> {
    v.get("ca")?;
    if base.is_some_and(|base| !base.tls) {
        v.fault("ca", "is for https, and base_url is http");
    }
    tls::trust(v)
}

pub(super) fn through(v: &View<'_>) -> Option<Through> {
    let text = v.text("proxy")?;
    let url = secret::value(v.book, v.place("proxy"), &v.key("proxy"), text)?;
    match parse(&url) {
        Ok(through) => {
            if through.authorization.is_some() && !secret::is_reference(text) {
                let why = "holds a password in the clear; write env:NAME or file:/path instead";
                v.book.warn(v.place("proxy"), &v.key("proxy"), why);
            }
            Some(through)
        }
        Err(why) => {
            v.fault("proxy", why);
            None
        }
    }
}

/// Takes `http://[user:password@]host[:port]` apart. No message holds what it was given.
fn parse(url: &str) -> Result<Through, String> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest.strip_suffix('/').unwrap_or(rest),
        Some(("https" | "socks5" | "socks5h", _)) => {
            return Err(format!("a proxy spoken to in anything but http:// is {LATER}"));
        }
        _ => return Err("is no http:// URL".into()),
    };
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest),
    };
    let authority: http::uri::Authority =
        place.parse().map_err(|_| "has no host, or more than a host and a port")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = match authority.port_u16() {
        Some(port) if port > 0 => port,
        None if authority.as_str().ends_with(authority.host()) => 80,
        _ => return Err("has no sound port after the colon".into()),
    };
    if host.is_empty() {
        return Err("has no host".into());
    }
    let authorization = user.map(|user| {
        let plain = if user.contains(':') {
            decoded(user)
        } else {
            [decoded(user), b":".to_vec()].concat()
        };
        let coded = base64::engine::general_purpose::STANDARD.encode(plain);
        Secret::new(&format!("Basic {coded}"))
    });
    Ok(Through { host, port, authorization })
}

/// Percent-decoded (RFC 3986, section 2.1); what is no code stays.
fn decoded(text: &str) -> Vec<u8> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&b) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).filter(|_| b == b'%');
        let code = code.and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(b);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_taken_apart() {
        let check = |url: &str, host: &str, port: u16, authorization: Option<&str>| {
            let got = parse(url).unwrap();
            let secret = got.authorization.as_ref().map(|s| s.expose().to_owned());
            assert_eq!((got.host.as_str(), got.port), (host, port), "{url}");
            assert_eq!(secret.as_deref(), authorization, "{url}");
        };
        check("http://proxy", "proxy", 80, None);
        check("http://proxy:3128/", "proxy", 3128, None);
        check("http://[::1]:3128", "::1", 3128, None);
        check("http://user:pa%40ss@proxy:1", "proxy", 1, Some("Basic dXNlcjpwYUBzcw=="));
        check("http://user@proxy", "proxy", 80, Some("Basic dXNlcjo="));
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_its_password() {
        for url in [
            "proxy:3128",
            "https://u:word@p",
            "http://",
            "http://p/path",
            "http://p:0",
            "http://p:",
            "http://u:word@",
            "socks5://u:word@p:1",
        ] {
            let why = parse(url).unwrap_err();
            assert!(!why.contains("word"), "{url}: {why}");
        }
    }
}
