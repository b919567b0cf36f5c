//! What no file may say.

use super::source::{File, line_of};

/// Calls that end a process or speak past the log. Clippy holds most of them; this holds them also
/// where someone allowed clippy's lint.
const CALLS: [&str; 10] = [
    ".unwrap()",
    ".expect(",
    "panic!(",
    "todo!(",
    "unimplemented!(",
    "unreachable!(",
    "dbg!(",
    "println!(",
    "eprintln!(",
    "print!(",
];

/// Unfinished work, written so that this file does not name itself.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Places of one machine.
const MACHINES: [&str; 3] = [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];

/// All of it.
pub fn check(files: &[File]) -> Vec<String> {
    files.iter().flat_map(|f| [calls(f), said(f), allowed(f)].concat()).collect()
}

fn calls(file: &File) -> Vec<String> {
    if !file.ships() {
        return vec![];
    }
    let code = file.code();
    let find = |call: &&'static str| {
        let all: Vec<_> = code.match_indices(*call).map(|(at, _)| (at, *call)).collect();
        all
    };
    let found = CALLS.iter().flat_map(find);
    let whole = |at: usize| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    let found = found.filter(|(at, call)| call.starts_with('.') || whole(*at));
    found.map(|(at, call)| format!("{}:{}: {call}", file.path, line_of(&code, at))).collect()
}

fn said(file: &File) -> Vec<String> {
    let mut faults = vec![];
    for (i, line) in file.text.lines().enumerate() {
        let words: Vec<_> = line.split(|c: char| !c.is_alphanumeric()).collect();
        let unfinished = UNFINISHED.iter().filter(|w| words.contains(w));
        let machines = MACHINES.iter().filter(|m| line.contains(**m));
        for what in unfinished.chain(machines) {
            faults.push(format!("{}:{}: {what}", file.path, i + 1));
        }
    }
    faults
}

/// A lint that is silenced without a reason beside it.
fn allowed(file: &File) -> Vec<String> {
    if !file.ships() {
        return vec![];
    }
    let shipped = super::source::without_tests(&file.text);
    let lines: Vec<&str> = shipped.lines().collect();
    let mut faults = vec![];
    for (i, line) in lines.iter().enumerate() {
        let silences = ["#[allow(", "#![allow("].iter().any(|a| line.trim_start().starts_with(a));
        let beside = line.contains("//") || line.contains("reason");
        let above = i > 0 && lines[i - 1].trim_start().starts_with("// ");
        // The item below `#[cfg(test)]` is gone, but an attribute between them may not be.
        if silences && !beside && !above {
            faults.push(format!("{}: silences a lint without a reason: {line}", file.path));
        }
    }
    faults
}

/// Top modules of both crates that the README's map does not name.
pub fn unmapped(files: &[File], readme: &str) -> Vec<String> {
    let roots = files.iter().filter(|f| f.path.ends_with("src/lib.rs"));
    let modules = roots.flat_map(|f| f.text.lines().filter_map(|l| l.strip_prefix("pub mod ")));
    let names = modules.map(|m| m.trim_end_matches(';'));
    let mapped = |name: &str| {
        [format!("`{name}`"), format!("`{name}/`"), format!("`{name}.rs`")]
            .iter()
            .any(|form| readme.contains(form.as_str()))
    };
    names.filter(|n| !mapped(n)).map(|n| format!("README.md: no `{n}`")).collect()
}

#[test]
fn what_must_not_be_said_is_found() {
    use super::finds;
    let check = |path: &str, text: &str, n: usize| finds(check, path, text, n);
    check("src/x.rs", "fn f() { a.unwrap(); b.expect(\"c\"); panic!(); }", 3);
    check("src/x.rs", "fn f() { a.unwrap_or(b); c.expect_err(d); no_panic!(e); }", 0);
    check("src/x.rs", "// a.unwrap()\n#[cfg(test)]\nmod t { fn f() { a.unwrap() } }", 0);
    check("src/x/tests.rs", "fn f() { a.unwrap() }", 0);
    check("tests/x.rs", "fn f() { println!() }", 0);
    check("conf/x.toml", &format!("# {}: later", UNFINISHED[0]), 1);
    check("README.md", &format!("in {}x", MACHINES[0]), 1);
    check("src/x.rs", "#[allow(dead_code)]\nfn f() {}", 1);
    check("src/x.rs", "#[allow(dead_code)] // kept for the ledger's old rows\nfn f() {}", 0);
}
