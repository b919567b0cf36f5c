//! The house's rules, held: each is a function from files to faults, shown here to see a fault and
//! then run over the tree.

mod conf;
mod hazards;
mod layers;
mod licences;
mod sizes;
mod source;
mod words;

use source::{File, tree};

/// Fails with all faults at once.
#[track_caller]
fn clean(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The rule finds exactly this many faults in a file of this text.
#[track_caller]
fn finds(rule: impl Fn(&[File]) -> Vec<String>, path: &str, text: &str, n: usize) {
    let found = rule(&[File::new(path, text)]);
    assert_eq!(found.len(), n, "{found:?} in {text}");
}

#[test]
fn arrows_go_down_only() {
    clean(layers::direction(&tree()));
}

#[test]
fn pingora_is_named_in_proxy_and_server_only() {
    clean(layers::pingora(&tree()));
}

#[test]
fn filters_know_no_clock_file_or_socket() {
    clean(layers::purity(&tree()));
}

#[test]
fn files_functions_parameters_and_lines_are_short() {
    clean(sizes::check(&tree()));
}

#[test]
fn nothing_is_unwrapped_printed_or_left_to_do() {
    clean(words::check(&tree()));
}

#[test]
fn every_module_is_on_the_readme_map() {
    let readme = std::fs::read_to_string(source::root().join("README.md")).unwrap();
    clean(words::unmapped(&tree(), &readme));
}

#[test]
fn a_module_the_readme_forgets_is_found() {
    let lib = [File::new("src/lib.rs", "pub mod flow;\npub mod demo;\n")];
    assert_eq!(words::unmapped(&lib, "`flow/` is here").len(), 1);
    assert_eq!(words::unmapped(&lib, "`flow/` and `demo/`").len(), 0);
}
