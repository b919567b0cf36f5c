//! Every crate in the build must be under a licence that lets weir be given away under Apache-2.0.

use super::{clean, source};
use serde_json::Value;
use std::process::Command;

/// Licences that ask for no more than their notice.
const ALLOWED: [&str; 12] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    "Unicode-3.0",
    "Unlicense",
];

/// Whether an SPDX expression (`/` is an old way to write `OR`) can be satisfied.
fn satisfied(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = &tokens[..];
    !rest.is_empty() && any(&mut rest) && rest.is_empty()
}

fn any(rest: &mut &[&str]) -> bool {
    let mut ok = all(rest);
    while take(rest, "OR") {
        ok |= all(rest);
    }
    ok
}

fn all(rest: &mut &[&str]) -> bool {
    let mut ok = one(rest);
    while take(rest, "AND") {
        ok &= one(rest);
    }
    ok
}

fn one(rest: &mut &[&str]) -> bool {
    if take(rest, "(") {
        return any(rest) & take(rest, ")");
    }
    let Some((name, more)) = rest.split_first() else { return false };
    *rest = more;
    if !take(rest, "WITH") {
        return ALLOWED.contains(name);
    }
    let Some((exception, more)) = rest.split_first() else { return false };
    *rest = more;
    ALLOWED.contains(&format!("{name} WITH {exception}").as_str())
}

fn take(rest: &mut &[&str], token: &str) -> bool {
    let found = rest.first() == Some(&token);
    *rest = &rest[usize::from(found)..];
    found
}

fn faults(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("packages");
    let fault = |p: &Value| {
        let licence = p["license"].as_str().unwrap_or_default();
        (!satisfied(licence)).then(|| format!("{}: {licence:?}", p["name"]))
    };
    packages.iter().filter_map(fault).collect()
}

#[test]
fn every_crate_is_under_an_allowed_licence() {
    // Offline: the crates are there, else this test would not have been built.
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(source::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(metadata["packages"].as_array().is_some_and(|p| p.len() > 100));
    clean(faults(&metadata));
}

#[test]
fn a_licence_that_asks_for_more_is_found() {
    for fine in ["MIT", "MIT/GPL-3.0", "(MIT OR Apache-2.0) AND Unicode-3.0", "X OR ISC"] {
        assert!(satisfied(fine), "{fine}");
    }
    assert!(satisfied("Apache-2.0 WITH LLVM-exception OR X"));
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT WITH X", "MIT MIT"] {
        assert!(!satisfied(bad), "{bad}");
    }
    let metadata = serde_json::json!({"packages": [{"name": "a", "license": null}]});
    assert_eq!(faults(&metadata).len(), 1);
}
