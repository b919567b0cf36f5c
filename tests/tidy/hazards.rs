//! `tests/hazards.toml`: what went wrong in other gateways, and the test that shows it does not
//! here.

use super::source::{File, blank, root, tree};
use super::{clean, source};
use std::collections::BTreeSet;
use toml::{Table, Value};

/// The list is complete: entries are never taken out.
const HAZARDS: usize = 183;

/// Entries with a reason instead of a test. The number only ever falls.
const EXCUSED_MAX: usize = 38;

/// A reason shorter than this is none.
const REASON_MIN: usize = 20;

fn faults(list: &Table, tests: &BTreeSet<String>) -> Vec<String> {
    let mut faults = vec![];
    for (id, entry) in list {
        let names = match (entry.get("test"), entry.get("why")) {
            (Some(Value::String(one)), None) => vec![one.as_str()],
            (Some(Value::Array(many)), None) => many.iter().filter_map(Value::as_str).collect(),
            (None, Some(Value::String(why))) if why.len() >= REASON_MIN => continue,
            _ => vec![],
        };
        if names.is_empty() {
            faults.push(format!("{id}: needs `test`, or `why` of {REASON_MIN} letters and more"));
        }
        let missing = names.iter().filter(|name| !tests.contains(**name));
        faults.extend(missing.map(|name| format!("{id}: there is no test `{name}`")));
    }
    faults
}

/// Names of functions under `#[test]` or `#[tokio::test…]`.
fn tests(files: &[File]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|f| f.is_rust()) {
        let code = blank(&file.text);
        let mut marked = false;
        for line in code.lines().map(str::trim_start) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
            } else if let (true, Some(at)) = (marked, line.find("fn ")) {
                found.extend(source::words(&line[at + 3..]).next().map(|(_, w)| w.to_owned()));
                marked = false;
            }
        }
    }
    found
}

#[test]
fn every_hazard_has_its_test_or_says_why_not() {
    let text = std::fs::read_to_string(root().join("tests/hazards.toml")).unwrap();
    let list: Table = text.parse().unwrap();
    assert_eq!(list.len(), HAZARDS);
    let excused = list.values().filter(|e| e.get("why").is_some()).count();
    assert!(excused <= EXCUSED_MAX, "{excused} entries without a test");
    clean(faults(&list, &tests(&tree())));
}

#[test]
fn a_hazard_without_its_test_is_found() {
    let text =
        "#[test]\nfn a_b() {}\n#[tokio::test(flavor = \"x\")]\nasync fn c_d() {}\nfn e_f() {}";
    let tests = tests(&[File::new("tests/x.rs", text)]);
    assert_eq!(tests.iter().map(String::as_str).collect::<Vec<_>>(), ["a_b", "c_d"]);
    let check = |entry: &str, n: usize| {
        let list: Table = format!("[S01]\n{entry}").parse().unwrap();
        assert_eq!(faults(&list, &tests).len(), n, "{entry}");
    };
    check("test = \"a_b\"", 0);
    check("test = [\"a_b\", \"c_d\"]", 0);
    check("test = \"e_f\"", 1);
    check("test = [\"a_b\", \"gone\"]", 1);
    check("why = \"caches are not in this version\"", 0);
    check("why = \"later\"", 1);
    check("", 1);
}
