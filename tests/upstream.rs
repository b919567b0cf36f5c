//! The way to a provider: TLS, proxies, several addresses, HTTP/2, and replies of odd framing.

mod names;
mod proxies;
mod replies;
mod secure;

use crate::harness::*;

/// A gateway's config: provider `a` at this URL with more lines, alone behind model `m`.
fn config(url: &str, more: &str) -> String {
    let once = format!("retry = {{ attempts = 1 }}\n{more}");
    let a = toml::custom("a", "openai", url, &once);
    [a, toml::model("m", &["a/up-model"]), toml::key()].concat()
}
