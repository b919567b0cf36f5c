//! Where a provider is: `base_url`, and the places that stand in it.

use crate::config::secret;
use crate::config::value::View;
use crate::route::Base;

/// What may stand in braces in a base URL.
pub(in crate::config) const NAMES: [&str; 3] = ["region", "project", "location"];

/// `base_url`; `project` is the one of an account, for a URL that needs it and config that does
/// not say it.
pub(super) fn base(v: &View<'_>, project: Option<&str>) -> Option<Base> {
    if v.get("base_url").is_none() {
        v.complain("needs a base_url");
    }
    let text = v.text("base_url")?;
    let url = secret::value(v.book, v.place("base_url"), &v.key("base_url"), text)?;
    let url = fill(v, &url, project)?;
    match parse_base(&url) {
        Ok(base) => Some(base),
        Err(why) => {
            v.fault("base_url", why);
            None
        }
    }
}

/// One of [`NAMES`], which `why` needs.
pub(super) fn place(v: &View<'_>, name: &str, why: &str) -> Option<String> {
    if v.get(name).is_none() {
        v.complain(format!("needs a {name}: {why}"));
    }
    let text = secret::value(v.book, v.place(name), &v.key(name), v.text(name)?)?;
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if !text.chars().all(sound) {
        v.fault(name, "has letters, digits and -_.: only");
        return None;
    }
    Some(text.to_string())
}

/// A base URL with its places filled in.
fn fill(v: &View<'_>, url: &str, project: Option<&str>) -> Option<String> {
    let mut out = url.to_owned();
    for name in NAMES {
        let hole = format!("{{{name}}}");
        if out.contains(&hole) {
            let place = match project.filter(|_| name == "project" && v.get(name).is_none()) {
                Some(project) => project.to_owned(),
                None => place(v, name, &format!("base_url has {hole} in it"))?,
            };
            // Vertex's global endpoint has no place in its host (cloud.google.com, locations).
            out = out.replace(
                &format!("//{hole}-"),
                &match place.as_str() {
                    "global" => "//".to_owned(),
                    place => format!("//{place}-"),
                },
            );
            out = out.replace(&hole, &place);
        }
    }
    Some(out)
}

/// Takes a URL apart.
///
/// # Errors
/// What a base URL may not be.
pub(super) fn parse_base(url: &str) -> Result<Base, String> {
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
