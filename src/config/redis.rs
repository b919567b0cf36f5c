//! `[redis]`: where all nodes count together.

use super::value::{LATER, Node, Shape, Value, View};
use super::{Redis, secret};
use crate::limit::client;
use std::time::Duration;

const REDIS: Shape = Shape {
    known: &["url", "mode", "timeout", "prefix", "username", "password"],
    later: &["lease", "shards", "ca"],
};
/// A request waits for it, so it is short.
const TIMEOUT: Duration = Duration::from_millis(50);

pub(super) fn redis(root: &View<'_>) -> Option<Redis> {
    let v = root.table("redis", &REDIS)?;
    v.choice("mode", &[("exact", ())], &["leased"]);
    let timeout = v.duration("timeout", TIMEOUT);
    let prefix = v.text("prefix").unwrap_or("weir:").to_owned();
    if prefix.contains(['{', '}']) {
        v.fault("prefix", "holds a brace, which tells Redis where a key lies");
    }
    let username = v.text("username").map(str::to_owned);
    let hidden = |key: &str| {
        let text = v.text(key)?;
        secret::secret(v.book, v.place(key), &v.key(key), text)
    };
    let password = hidden("password");
    let url = match v.get("url") {
        None => {
            v.complain("needs a url such as \"redis://127.0.0.1:6379\"");
            return None;
        }
        Some(Node { value: Value::List(_), .. }) => {
            v.fault("url", format!("several servers, a cluster, are {LATER}"));
            return None;
        }
        Some(_) => {
            let text = v.text("url")?;
            secret::value(v.book, v.place("url"), &v.key("url"), text)?
        }
    };
    match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("redis") => {
            if let Err(why) = client(&url, None, None) {
                v.fault("url", format!("is no address of Redis: {why}"));
            }
        }
        Some("rediss") => v.fault("url", format!("`rediss` is {LATER}")),
        _ => v.fault("url", "is no \"redis://host:port\""),
    }
    let url = crate::base::Secret::new(&url);
    Some(Redis { url, username, password, timeout, prefix })
}
