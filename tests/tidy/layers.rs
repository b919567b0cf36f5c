//! Who may name whom.

use super::source::{File, line_of, words};

/// Every module of `src/` by height: one may name what stands lower, and nothing else. Equal
/// heights are siblings, which never name each other.
const HEIGHTS: [(&str, u8); 18] = [
    ("main", 9),
    ("cli", 8),
    ("server", 7),
    ("proxy", 6),
    ("admin", 6),
    ("flow", 5),
    ("config", 4),
    ("access", 3),
    ("vault", 3),
    ("limit", 3),
    ("route", 3),
    ("cache", 3),
    ("meter", 3),
    ("observe", 3),
    ("store", 2),
    ("base", 1),
    // The provider of the demo and the tests knows nothing of the gateway.
    ("demo", 0),
    ("lib", 0),
];

/// Only assembly starts the simulated provider.
const DEMO_USERS: [&str; 3] = ["main", "cli", "server"];

/// Paths in code that name a module below or beside another one wrongly.
pub fn direction(files: &[File]) -> Vec<String> {
    let mut faults = vec![];
    for file in files.iter().filter(|f| f.ships() && f.path.starts_with("src/")) {
        let module = top(&file.path);
        let code = file.code();
        for (at, other) in named(&code, depth(&file.path)) {
            let fault = match (height(module), height(other)) {
                _ if other == module => None,
                (None, _) => Some(format!("{module} has no height")),
                // A root item (a macro, `crate::Result`), or a module that nobody declared.
                (_, None) => Some(format!("{other} has no height")),
                (Some(a), Some(b)) if a <= b => Some(format!("{module} names {other}")),
                _ if other == "demo" && !DEMO_USERS.contains(&module) => {
                    Some(format!("{module} names demo"))
                }
                _ => None,
            };
            let place = || format!("{}:{}", file.path, line_of(&code, at));
            faults.extend(fault.map(|f| format!("{}: {f}", place())));
        }
    }
    faults
}

/// `pingora` outside of the proxy and the server.
pub fn pingora(files: &[File]) -> Vec<String> {
    let inside = |path: &str| matches!(top(path), "proxy" | "server");
    let outside = files.iter().filter(|f| f.ships() && !inside(&f.path));
    outside.flat_map(|f| naming(f, |w| w == "pingora" || w.starts_with("pingora_"))).collect()
}

/// What a pure crate must not name.
pub fn purity(files: &[File]) -> Vec<String> {
    const WORDS: [&str; 4] = ["tokio", "pingora", "Instant", "SystemTime"];
    const STD: [&str; 6] = ["fs", "net", "process", "env", "thread", "os"];
    let mut faults = vec![];
    for file in files.iter().filter(|f| f.ships() && f.path.starts_with("filters/")) {
        faults.extend(naming(file, |w| WORDS.contains(&w)));
        let code = file.code();
        for (at, _) in words(&code).filter(|(_, w)| *w == "std") {
            let named = after(&code[at + 3..]).into_iter().filter(|w| STD.contains(w));
            let place = format!("{}:{}", file.path, line_of(&code, at));
            faults.extend(named.map(|w| format!("{place}: names std::{w}")));
        }
    }
    faults
}

fn naming(file: &File, wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let code = file.code();
    let found = words(&code).filter(|(_, w)| wrong(w));
    found.map(|(at, w)| format!("{}:{}: names {w}", file.path, line_of(&code, at))).collect()
}

/// `src/flow/admit.rs` → `flow`.
fn top(path: &str) -> &str {
    let inside = path.trim_start_matches("filters/").trim_start_matches("src/");
    inside.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// How many `super` lead from a file to the crate's root.
fn depth(path: &str) -> usize {
    let parts = path.trim_start_matches("src/").split('/').count();
    if path.ends_with("/mod.rs") { parts - 1 } else { parts }
}

fn height(module: &str) -> Option<u8> {
    HEIGHTS.iter().find(|(name, _)| *name == module).map(|(_, h)| *h)
}

/// Top-level modules that blanked code names by `crate::x`, `weir::x`, `super::…::x`, or in a
/// group after one of these.
fn named(code: &str, depth: usize) -> Vec<(usize, &str)> {
    let mut found = vec![];
    for (at, word) in words(code) {
        let rest = match word {
            "crate" | "weir" => &code[at + word.len()..],
            "super" if !code[..at].trim_end().ends_with("super::") => climb(&code[at..], depth),
            _ => continue,
        };
        found.extend(after(rest).into_iter().map(|w| (at, w)));
    }
    found
}

/// The first words after `::`: one, or those of a group.
fn after(rest: &str) -> Vec<&str> {
    let Some(path) = rest.trim_start().strip_prefix("::") else { return vec![] };
    match path.trim_start().strip_prefix('{') {
        Some(group) => firsts(group).collect(),
        None => words(path).next().map(|(_, w)| w).into_iter().collect(),
    }
}

/// What follows a chain of `super::` that reaches the root; nothing when it stops below.
fn climb(chain: &str, depth: usize) -> &str {
    let (mut rest, mut steps) = (chain, 0);
    while let Some(up) = rest.strip_prefix("super") {
        steps += 1;
        if steps == depth {
            return up;
        }
        rest = up.trim_start().strip_prefix("::").unwrap_or_default().trim_start();
    }
    ""
}

/// The first word of each member of a group, up to its closing brace.
fn firsts(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let end = group.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth < 0
    });
    let mut level = 0;
    let members = group[..end.unwrap_or(group.len())].split(move |c| {
        level += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && level == 0
    });
    members.filter_map(|m| words(m).next().map(|(_, w)| w)).filter(|w| *w != "self")
}

#[test]
fn an_arrow_that_goes_up_or_sideways_is_found() {
    use super::finds;
    let check = |path: &str, text: &str, n: usize| finds(direction, path, text, n);
    check("src/route/plan.rs", "use crate::flow::Gateway;", 1);
    check("src/route/plan.rs", "use crate::access::Key;", 1);
    check("src/route/plan.rs", "use crate::{base::X, meter::{self, Event}, config};", 2);
    check("src/route/plan.rs", "use super::super::observe::Metrics;", 1);
    check("src/route/plan.rs", "use super::Target; fn f() { crate::store::open() }", 0);
    check("src/route/mod.rs", "use super::limit::Rule;", 1);
    check("src/admin/mod.rs", "use crate::proxy::Proxy;", 1);
    check("src/proxy/mod.rs", "use crate::{flow, config, meter}; use crate::demo;", 1);
    check("src/cli.rs", "use crate::{demo, server};", 0);
    check("src/server.rs", "use crate::cli;", 1);
    check("src/base.rs", "use crate::store;", 1);
    check("src/new/mod.rs", "use crate::base;", 1);
    check("src/flow/mod.rs", "use crate::new;", 1);
    check("src/route/plan.rs", "// crate::flow\n#[cfg(test)] mod t { use crate::flow; }", 0);
}

#[test]
fn pingora_out_of_its_place_is_found() {
    use super::finds;
    finds(pingora, "src/flow/mod.rs", "use pingora::Result;", 1);
    finds(pingora, "src/admin/mod.rs", "use pingora_core::x;", 1);
    finds(pingora, "src/proxy/mod.rs", "use pingora::Result;", 0);
    finds(pingora, "src/server.rs", "use pingora::Result;", 0);
    finds(pingora, "src/flow/mod.rs", "/// pingora\nlet x = \"pingora\";", 0);
}

#[test]
fn a_clock_in_a_filter_is_found() {
    use super::finds;
    finds(purity, "filters/src/sse.rs", "use std::time::Instant;", 1);
    finds(purity, "filters/src/sse.rs", "fn f() { std::fs::read(p) }", 1);
    finds(purity, "filters/src/sse.rs", "use std::{fmt, fs::File, net};", 2);
    finds(purity, "filters/src/sse.rs", "use std::time::Duration; fn f(env: u8) {}", 0);
    finds(purity, "filters/tests/replay.rs", "use std::fs;", 0);
}
