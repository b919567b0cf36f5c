//! Every file under `conf/` is one that a weir of this version takes.

use super::{clean, source};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use weir::config::{check_preset, read_with};

/// Fewer presets than this, and the rule looks at the wrong folder.
const PRESETS_MIN: usize = 12;

/// Faults of one folder laid out as `conf/`.
fn faults(conf: &Path) -> Vec<String> {
    let mut faults = vec![];
    let mut included = BTreeSet::new();
    let files = toml_files(conf);
    // The main config first: what it includes is looked at with it, for fragments are no configs.
    let main = files.iter().filter(|f| f.ends_with("weir.toml"));
    let others = files.iter().filter(|f| !f.ends_with("weir.toml"));
    for file in main.chain(others) {
        if included.contains(file) {
            continue;
        }
        let reading = read_with(file, &|_| Some("from-the-environment".into()));
        match reading.result {
            Ok(loaded) => included.extend(loaded.files),
            Err(wrong) => faults.extend(wrong.iter().map(ToString::to_string)),
        }
    }
    for preset in toml_files(&conf.join("providers")) {
        faults.extend(check_preset(&preset).iter().map(ToString::to_string));
    }
    faults
}

fn toml_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let all = entries.map(|e| e.unwrap().path());
    let mut files: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    files
}

#[test]
fn every_file_under_conf_loads() {
    let conf = source::root().join("conf");
    assert!(toml_files(&conf.join("providers")).len() >= PRESETS_MIN);
    clean(faults(&conf));
}

#[test]
fn a_broken_file_under_conf_is_found() {
    let conf = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = conf.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("weir.toml", "[server]\nlisten = [\"127.0.0.1:8080\"]\n");
    let before = faults(conf.path()).len();
    write("other.toml", "[server]\nlisen = [\"127.0.0.1:8080\"]\n");
    write("providers/x.toml", "wire = \"no-such-wire\"\n");
    let found = faults(conf.path());
    assert!(found.len() >= before + 2, "{found:?}");
    assert!(found.iter().any(|f| f.contains("lisen")), "{found:?}");
    assert!(found.iter().any(|f| f.contains("x.toml")), "{found:?}");
}
