//! `[server]`, `[admin]`, `[store]` and `[log]`.

use super::price::{self, Currencies};
use super::value::{LATER, Node, Shape, Value, View};
use super::{Access, Admin, Log, Server, Store, Unpriced, secret};
use std::path::PathBuf;
use std::time::Duration;

const SERVER: Shape = Shape {
    known: &[
        "listen",
        "tls",
        "threads",
        "max_body",
        "max_body_bytes_open",
        "max_requests",
        "upstream_idle",
        "hold_max",
        "drain",
        "drain_delay",
        "idle",
        "header",
        "body",
        "client_write",
        "default_model",
        "unpriced",
        "limits",
        "default_output",
    ],
    later: &[],
};
const ADMIN: Shape =
    Shape { known: &["listen", "token", "metrics_listen", "allow_remote", "tls"], later: &[] };
const STORE: Shape = Shape { known: &["url", "spool", "sync", "retention"], later: &[] };
const LOG: Shape = Shape { known: &["level", "access", "redact"], later: &[] };

/// More threads than any machine has cores are a typing error.
const THREADS_MAX: u64 = 1024;
/// A request that waits holds a task and its buffers: a million of them are gigabytes.
const REQUESTS_MAX: u64 = 1_000_000;
/// Every kept connection is a file descriptor.
const IDLE_MAX: u64 = 1_000_000;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The section, or an empty one where it is absent.
fn section<'a>(
    root: &View<'a>,
    name: &str,
    shape: &Shape,
    empty: &'a super::value::Table,
) -> View<'a> {
    root.table(name, shape).unwrap_or_else(|| View {
        book: root.book,
        table: empty,
        at: root.at,
        path: name.to_owned(),
    })
}

pub(super) fn server(root: &View<'_>, currencies: &Currencies) -> Server {
    let empty = super::value::Table::new();
    let v = section(root, "server", &SERVER, &empty);
    let size = |key, default| v.size(key, default);
    let count = |key, max, default| v.integer(key, 1..=max).unwrap_or(default) as usize;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let server = Server {
        listen: addresses(&v).unwrap_or_else(|| vec!["127.0.0.1:8080".into()]),
        tls: super::tls::tls(&v),
        threads: match v.integer("threads", 0..=THREADS_MAX) {
            None | Some(0) => cores(),
            Some(n) => n as usize,
        },
        max_body: size("max_body", 32 << 20),
        max_body_bytes_open: size("max_body_bytes_open", 1 << 30),
        max_requests: count("max_requests", REQUESTS_MAX, 20_000),
        upstream_idle: count("upstream_idle", IDLE_MAX, 1024),
        hold_max: v.duration("hold_max", seconds(15)),
        drain: v.duration("drain", seconds(600)),
        drain_delay: v.duration_or_zero("drain_delay", Duration::ZERO),
        idle: v.duration("idle", seconds(75)),
        header: v.duration("header", seconds(10)),
        body: v.duration("body", seconds(60)),
        client_write: v.duration("client_write", seconds(60)),
        default_model: v.text("default_model").map(str::to_owned),
        unpriced: unpriced(&v, currencies),
    };
    if server.max_body > server.max_body_bytes_open {
        v.fault("max_body", "is larger than max_body_bytes_open, so the largest body never fits");
    }
    server
}

/// `listen` of a table; `None` where it is absent.
pub(super) fn addresses(v: &View<'_>) -> Option<Vec<String>> {
    let places = v.texts("listen")?;
    if places.is_empty() {
        v.fault("listen", "names no address");
    }
    for (at, text) in &places {
        if host(text).is_none() {
            v.book.fault(*at, &v.key("listen"), not_an_address(text));
        }
    }
    Some(places.into_iter().map(|(_, text)| text.to_owned()).collect())
}

fn unpriced(v: &View<'_>, currencies: &Currencies) -> Unpriced {
    match v.get("unpriced") {
        None => Unpriced::Warn,
        Some(node @ Node { value: Value::Table(_), .. }) => {
            let price = price::price(v.book, node, v.key("unpriced"), currencies);
            price.map_or(Unpriced::Warn, |p| Unpriced::Price(p.into()))
        }
        Some(_) => {
            let words = [("warn", Unpriced::Warn), ("refuse", Unpriced::Refuse)];
            let words: Vec<(&str, &Unpriced)> = words.iter().map(|(w, u)| (*w, u)).collect();
            v.choice("unpriced", &words, &[]).cloned().unwrap_or(Unpriced::Warn)
        }
    }
}

/// The host of `host:port`.
fn host(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.ip().to_string());
    }
    let (name, port) = text.rsplit_once(':')?;
    let sound =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    // A dotted number that is no address is one with a typing error.
    let number = name.chars().all(|c| c.is_ascii_digit() || c == '.');
    port.parse::<u16>().ok().filter(|_| sound && !number).map(|_| name.to_owned())
}

fn not_an_address(text: &str) -> String {
    format!("{text:?} is no address; write it as \"127.0.0.1:8080\" or \"[::]:8080\"")
}

fn local(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

pub(super) fn admin(root: &View<'_>) -> Admin {
    let empty = super::value::Table::new();
    let v = section(root, "admin", &ADMIN, &empty);
    let address = |key: &str| {
        let text = v.text(key)?;
        if host(text).is_none() {
            v.fault(key, not_an_address(text));
        }
        Some(text.to_owned())
    };
    let listen = address("listen").unwrap_or_else(|| "127.0.0.1:9180".into());
    let metrics_listen = address("metrics_listen");
    let allow_remote = v.boolean("allow_remote", false);
    let guarded = v.get("token").is_some() && v.get("tls").is_some();
    if host(&listen).is_some_and(|host| !local(&host)) && !allow_remote && !guarded {
        v.fault("listen", "is beyond loopback: that needs a token and tls, or allow_remote = true");
    }
    let token = v
        .text("token")
        .and_then(|text| secret::secret(v.book, v.place("token"), &v.key("token"), text));
    Admin { listen, token, metrics_listen, tls: super::tls::admin(&v) }
}

/// Two listeners on one address: the second could never open.
pub(super) fn distinct(root: &View<'_>, server: &Server, admin: &Admin) {
    let mut seen: Vec<&str> = Vec::new();
    let tls = server.tls.iter().flat_map(|tls| &tls.listen).map(|l| ("server", "tls", l));
    let all = server.listen.iter().map(|l| ("server", "listen", l)).chain(tls);
    let all = all.chain([("admin", "listen", &admin.listen)]);
    for (table, key, address) in
        all.chain(admin.metrics_listen.iter().map(|l| ("admin", "metrics_listen", l)))
    {
        if seen.contains(&address.as_str()) && !address.ends_with(":0") {
            let place = root.get(table).and_then(|node| match &node.value {
                Value::Table(table) => table.get(key).map(|entry| entry.node.at),
                _ => None,
            });
            let name = format!("{table}.{key}");
            root.book.fault(
                place.unwrap_or(root.at),
                &name,
                format!("{address} is listened on twice"),
            );
        }
        seen.push(address);
    }
}

pub(super) fn store(root: &View<'_>) -> Store {
    let empty = super::value::Table::new();
    let v = section(root, "store", &STORE, &empty);
    let url =
        v.text("url").and_then(|text| secret::value(v.book, v.place("url"), &v.key("url"), text));
    let url = url.map_or_else(|| "sqlite:data/weir.db".into(), |url| url.to_string());
    let path = match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() && path != ":memory:" => path.to_owned(),
        Some(("postgres" | "postgresql", _)) => {
            v.fault("url", format!("`postgres` is {LATER}"));
            String::new()
        }
        _ => {
            v.fault("url", "is no \"sqlite:\" and a file");
            String::new()
        }
    };
    let sync = match v.get("sync") {
        Some(Node { value: Value::Text(text), .. }) if text == "always" => None,
        _ => Some(v.duration("sync", seconds(1))),
    };
    Store {
        path: PathBuf::from(path),
        spool: PathBuf::from(v.text("spool").unwrap_or("data/spool")),
        sync,
        retention: v.duration_or_off("retention", Some(seconds(400 * 86_400))),
    }
}

pub(super) fn log(root: &View<'_>) -> Log {
    use log::LevelFilter as L;
    let empty = super::value::Table::new();
    let v = section(root, "log", &LOG, &empty);
    let levels = [
        ("off", L::Off),
        ("error", L::Error),
        ("warn", L::Warn),
        ("info", L::Info),
        ("debug", L::Debug),
        ("trace", L::Trace),
    ];
    let access = match v.text("access") {
        None | Some("stderr") => Access::Stderr,
        Some("off") => Access::Off,
        Some(path) => Access::File(path.into()),
    };
    Log {
        level: v.choice("level", &levels, &[]).unwrap_or(L::Info),
        access,
        redact: v.boolean("redact", true),
    }
}
