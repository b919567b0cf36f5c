//! `[alerts]`: whom budgets, credentials and breakers are told to.

use super::provider::parse_base;
use super::secret;
use super::value::{Shape, Value, View};
use crate::base::{Base, Secret};
use std::fmt;

pub(super) const ALERTS: Shape = Shape { known: &["time_zone", "webhook"], later: &[] };

/// Words of a path that are so long and have a digit are passwords.
const RANDOM_BYTES_MIN: usize = 16;

/// Where alerts are posted. Its path is as good as a password, so nobody sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook(pub Base);

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "webhook at {}", self.0.authority())
    }
}

/// `webhook`; the table's shape is looked at elsewhere.
pub(super) fn webhook(root: &View<'_>) -> Option<Webhook> {
    let node = root.get("alerts")?;
    let Value::Table(table) = &node.value else { return None };
    let v = View { book: root.book, table, at: node.at, path: "alerts".into() };
    let text = v.text("webhook")?;
    let (at, key) = (v.place("webhook"), v.key("webhook"));
    let url = match secret::is_reference(text) || text.is_empty() || is_secret(text) {
        true => secret::secret(v.book, at, &key, text)?,
        false => Secret::new(text),
    };
    match parse(url.expose()) {
        Ok(base) => Some(Webhook(base)),
        Err(why) => {
            v.fault("webhook", why);
            None
        }
    }
}

/// Whether a URL gives away more than a place: a user, a query, or a word in its path that nobody
/// would make up.
fn is_secret(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let random = |word: &str| {
        word.len() >= RANDOM_BYTES_MIN && word.bytes().any(|b| b.is_ascii_digit() || b == b'%')
    };
    host.contains('@') || url.contains(['?', '#']) || path.split('/').any(random)
}

/// A URL with its query in the path. No fault repeats any of it.
fn parse(url: &str) -> Result<Base, String> {
    let front = url.split(['?', '#']).next().unwrap_or_default();
    let why = "is no http:// or https:// URL of a host (https needs a name, not an address)";
    let base = parse_base(front).map_err(|_| why.to_owned())?;
    let uri: http::Uri = url.parse().map_err(|_| why.to_owned())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(Base { path: path.to_owned(), ..base })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_only_a_place_holds_no_secret() {
        for place in ["http://alerts.internal:9093/hook", "https://x.example/api/v2/alerts", "x"] {
            assert!(!is_secret(place), "{place}");
        }
        for secret in [
            "https://hooks.example/services/T0AB/B0CD/abcdefgh12345678ijklmnop",
            "https://x.example/hook?k=planted",
            "https://me:planted@x.example/hook",
        ] {
            assert!(is_secret(secret), "{secret}");
        }
    }

    #[test]
    fn a_webhook_keeps_its_whole_path_and_shows_none_of_it() {
        let base = parse("https://hooks.example/T0/secret/?k=planted").unwrap();
        assert_eq!((base.tls, &*base.path), (true, "/T0/secret/?k=planted"));
        let shown = format!("{:?}", Webhook(base));
        assert_eq!(shown, "webhook at hooks.example");
        assert_eq!(parse("http://127.0.0.1:9/").unwrap().path, "/");
        for bad in ["", "hooks.example/planted", "ftp://x/planted", "https://1.2.3.4/planted"] {
            assert!(!parse(bad).unwrap_err().contains("planted"), "{bad}");
        }
    }
}
