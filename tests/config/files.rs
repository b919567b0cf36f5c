//! Several files: includes, presets of one's own, secrets in files, and noticing their changes.

use super::{bare, env, lines};
use std::fs;
use std::path::Path;
use weir::config::{self, Loaded, Watch};

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        put(folder.path(), name, text);
    }
    folder
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn read(folder: &Path) -> config::Reading {
    config::read_with(&folder.join("weir.toml"), &env)
}

#[track_caller]
fn sound(folder: &Path) -> Loaded {
    read(folder).result.unwrap_or_else(|faults| panic!("{}", lines(&faults)))
}

/// Every fault, with the folder's own path cut away.
fn faults(folder: &Path) -> String {
    read(folder).complaint().replace(&format!("{}/", folder.display()), "")
}

const MAIN: &str = "include = [\"conf.d/*.toml\"]\n[providers.p]\nwire = \"openai\"\n\
                    base_url = \"http://127.0.0.1:1\"\nauth = \"none\"\n";

#[test]
fn included_files_are_one_config() {
    let dir = folder(&[
        ("weir.toml", MAIN),
        ("conf.d/keys.toml", "include = [\"more/k*.toml\"]\n[keys.a]\nsecret = \"env:SET\"\n"),
        ("conf.d/more/k2.toml", "[keys.b]\nsecret = \"env:LAPTOP_KEY\"\n"),
        ("conf.d/more/other.toml", "[keys.c]\n"),
        ("conf.d/.hidden.toml", "[keys.d]\n"),
        ("conf.d/prices.toml", "[providers.p.models.m]\nprice = { input = 1, output = 2 }\n"),
    ]);
    let snapshot = sound(dir.path()).snapshot;
    assert_eq!(snapshot.keys.0.len(), 2);
    assert!(
        snapshot.routes.resolve("m").unwrap().targets[0]
            .provider
            .offer("m")
            .unwrap()
            .price
            .is_some()
    );
}

#[test]
fn a_table_defined_twice_names_both_places() {
    let dir = folder(&[
        ("weir.toml", &format!("{MAIN}[server]\n[providers.p.models.m]\ncontext = 1\n")),
        ("conf.d/a.toml", "\n[providers.p]\nwire = \"openai\"\n[keys.k]\nsecret = \"env:SET\"\n"),
        (
            "conf.d/b.toml",
            "[server]\n[keys.k]\nsecret = \"env:SET\"\n[providers.p.models.m]\ncontext = 2\n",
        ),
    ]);
    let wanted = [
        "conf.d/a.toml:2: providers.p: is defined twice, first in weir.toml:2",
        "conf.d/b.toml:1: server: is defined twice, first in weir.toml:6",
        "conf.d/b.toml:2: keys.k: is defined twice, first in conf.d/a.toml:4",
        "conf.d/b.toml:4: providers.p.models.m: is defined twice, first in weir.toml:7",
    ];
    assert_eq!(faults(dir.path()).lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn syntax_errors_hide_their_own_file_alone() {
    let dir = folder(&[
        (
            "weir.toml",
            &format!("{MAIN}[models.x]\ntargets = [\"q/m\"]\n[server]\ndrian = \"5s\"\n"),
        ),
        ("conf.d/a.toml", "[providers.q]\nwire = \n[keys.k\nx = 1\n"),
        ("conf.d/b.toml", "[log]\nlevle = \"info\"\n"),
    ]);
    let found = faults(dir.path());
    assert!(found.contains("weir.toml:9: server.drian: unknown key"), "{found}");
    assert!(found.contains("conf.d/a.toml:2: ") && found.contains("conf.d/a.toml:3: "), "{found}");
    assert!(found.contains("conf.d/b.toml:2: log.levle: unknown key"), "{found}");
    assert!(!found.contains("no provider"), "q may stand in the broken file: {found}");
}

#[test]
fn files_that_cannot_be_read_are_faults() {
    let dir = folder(&[("weir.toml", "include = [\"gone.toml\", \"none/*.toml\"]\n")]);
    let found = faults(dir.path());
    assert!(found.starts_with("weir.toml:1: include: gone.toml: cannot be read"), "{found}");
    assert_eq!(found.lines().count(), 1, "a pattern may match nothing: {found}");
    let dir = tempfile::tempdir().unwrap();
    assert!(faults(dir.path()).starts_with("weir.toml: cannot be read"));
    fs::create_dir(dir.path().join("weir.toml")).unwrap();
    assert!(faults(dir.path()).contains("is no file"));
}

#[test]
fn a_file_that_includes_itself_is_a_fault() {
    let dir = folder(&[
        ("weir.toml", "include = [\"*.toml\"]\n"),
        ("b.toml", "include = [\"weir.toml\"]\n"),
    ]);
    let found = faults(dir.path());
    assert!(found.contains("b.toml:1: include: weir.toml includes itself"), "{found}");
    assert!(found.contains("weir.toml:1: include: weir.toml includes itself"), "{found}");
}

#[test]
fn the_readmes_example_adds_a_provider_without_code() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let example = readme.split("```toml\n").find(|s| s.starts_with("# conf/providers/")).unwrap();
    let example = example.split("```").next().unwrap();
    let main = "presets = [\"presets\"]\n[providers.example]\n";
    let dir = folder(&[("weir.toml", main), ("presets/example.toml", example)]);
    assert_eq!(lines(&config::check_preset(&dir.path().join("presets/example.toml"))), "");
    let loaded = config::read_with(&dir.path().join("weir.toml"), &|name| {
        (name == "EXAMPLE_API_KEY").then(|| "sk-example".to_owned())
    });
    let loaded = loaded.result.unwrap_or_else(|faults| panic!("{}", lines(&faults)));
    let provider = &loaded.snapshot.routes.providers[&"example".into()];
    assert_eq!(bare(&provider.credentials[0]), "sk-example");
    assert!(provider.offer("example-large").unwrap().price.is_some());
    assert!(!provider.quirks.stream_options && provider.errors != Default::default());
}

#[test]
fn presets_of_ones_own_stand_beside_the_embedded_ones() {
    let house = r#"wire = "openai"
base_url = "http://127.0.0.1:1/v1"
env = ["SET"]
[models.big]
context = 1000
price = { input = 1, output = 2, source = "us", date = "2026-11-30" }
"#;
    let main = r#"
presets = ["presets"]
[providers.house]
[providers.openai]
[providers.x]
preset = "house"
[providers.x.models.big]
max_output = 10
"#;
    let dir = folder(&[("weir.toml", main), ("presets/house.toml", house)]);
    let routes = sound(dir.path()).snapshot.routes;
    let x = &routes.providers[&"x".into()];
    assert_eq!(bare(&x.credentials[0]), "value-of-SET");
    let big = x.offer("big").unwrap();
    assert_eq!((big.context, big.max_output), (Some(1000), Some(10)), "laid over key by key");
    assert_eq!(big.price.as_ref().unwrap().source, "us 2026-11-30");
    put(
        dir.path(),
        "presets/house.toml",
        &house.replace("source = \"us\", ", "").replace("env", "evn"),
    );
    let found = faults(dir.path());
    assert!(
        found.contains("presets/house.toml:3: evn: unknown key, did you mean \"env\"?"),
        "{found}"
    );
    assert!(found.contains("a preset's price needs its `source`"), "{found}");
    put(dir.path(), "weir.toml", "presets = [\"gone\"]\n[providers.x]\npreset = \"opnai\"\n");
    let found = faults(dir.path());
    assert!(found.contains("weir.toml:1: presets: gone is no folder"), "{found}");
    assert!(found.contains("there is no preset \"opnai\", did you mean \"openai\"?"), "{found}");
}

#[test]
fn a_secret_in_a_file_loses_its_line_end_and_stands_beside_the_file_that_names_it() {
    let dir = folder(&[
        ("weir.toml", "include = [\"conf.d/a.toml\"]\n"),
        (
            "conf.d/a.toml",
            "[keys.k]\nsecret = \"file:key.txt\"\n[keys.c]\nsecret = \"cred:other\"\n",
        ),
        ("conf.d/key.txt", "s3cret\r\n"),
        ("creds/other", "second\n"),
    ]);
    let creds = dir.path().join("creds").display().to_string();
    let with_creds =
        |name: &str| if name == "CREDENTIALS_DIRECTORY" { Some(creds.clone()) } else { env(name) };
    let loaded = config::read_with(&dir.path().join("weir.toml"), &with_creds).result.unwrap();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(loaded.snapshot.keys.find("s3cret", now).unwrap().name, "k");
    assert_eq!(loaded.snapshot.keys.find("second", now).unwrap().name, "c");
    assert!(loaded.files.contains(&dir.path().join("conf.d/key.txt")), "{:?}", loaded.files);
    let warned: Vec<&str> = loaded.warnings.iter().map(|w| w.key.as_str()).collect();
    assert_eq!(warned, ["providers"], "there is none here; the references are fine");
}

#[test]
fn the_version_follows_the_text_of_every_file() {
    let dir = folder(&[("weir.toml", MAIN), ("conf.d/a.toml", "")]);
    let first = sound(dir.path()).snapshot.version;
    assert!(first.len() == 12 && first.bytes().all(|b| b.is_ascii_hexdigit()), "{first}");
    assert_eq!(first, sound(dir.path()).snapshot.version);
    put(dir.path(), "conf.d/a.toml", "# a comment\n");
    assert_ne!(first, sound(dir.path()).snapshot.version);
}

/// Two looks, as the poll does them; whether the second says that something changed.
fn looks(watch: &mut Watch) -> bool {
    assert!(!watch.changed(), "one look is never enough");
    watch.changed()
}

#[test]
fn changed_new_and_removed_files_are_noticed() {
    let text = format!("{MAIN}[keys.k]\nsecret = \"file:key.txt\"\n");
    let dir = folder(&[("weir.toml", &text), ("key.txt", "one"), ("conf.d/a.toml", "")]);
    let path = dir.path();
    let change = |what: &str, act: &dyn Fn()| {
        let mut watch = Watch::new(&read(path));
        assert!(!looks(&mut watch), "nothing has changed before: {what}");
        act();
        assert!(looks(&mut watch), "{what}");
    };
    change("a secret's file", &|| put(path, "key.txt", "two"));
    change("a new file in the pattern", &|| put(path, "conf.d/b.toml", ""));
    change("a removed file", &|| fs::remove_file(path.join("conf.d/b.toml")).unwrap());
    change("a file moved over another", &|| {
        put(path, "next", &format!("{text}# more\n"));
        fs::rename(path.join("next"), path.join("weir.toml")).unwrap();
    });
    change("a file that breaks", &|| put(path, "conf.d/a.toml", "[["));
    change("and is mended, though it did not load", &|| put(path, "conf.d/a.toml", ""));
    fs::remove_file(path.join("key.txt")).unwrap();
    change("a missing secret that appears", &|| put(path, "key.txt", "three"));
}

#[test]
fn a_change_between_the_reading_and_the_first_look_is_not_missed() {
    let dir = folder(&[("weir.toml", MAIN)]);
    let mut watch = Watch::new(&read(dir.path()));
    put(dir.path(), "weir.toml", &format!("{MAIN}# more\n"));
    assert!(looks(&mut watch));
}

#[test]
fn what_a_new_config_gives_and_takes_is_told() {
    let text = |key: &str, target: &str, price: &str| {
        format!(
            "{}[models.m]\ntargets = [\"p/{target}\"]\n\
             [keys.k]\nsecret = \"env:SET\"\nmodels = {key}\n",
            super::P.replace("input = 1.0", price)
        )
    };
    let dir = folder(&[
        ("old.toml", &text("[\"*\"]", "m", "input = 1.0")),
        ("weir.toml", &text("[\"p/*\"]", "n", "input = 1.5")),
    ]);
    let (new, old) = (dir.path().join("weir.toml"), dir.path().join("old.toml"));
    let load = |path| config::read_with(path, &env).result.unwrap().snapshot;
    let said = config::diff(&load(&old), &load(&new));
    assert!(said.contains("- keys.k: may use m\n"), "{said}");
    assert!(said.contains("- models.\"m\": target p/m (priority 1, weight 1)"), "{said}");
    assert!(said.contains("+ models.\"m\": target p/n (priority 1, weight 1)"), "{said}");
    assert!(
        said.contains("+ providers.p.models.\"m\": price above 0")
            && said.contains("input 1500000000"),
        "{said}"
    );
    assert_eq!(config::diff(&load(&old), &load(&old)), "");
    assert!(!config::check(&dir.path().join("gone.toml"), None).is_sound());
}

#[test]
fn a_limit_that_changed_is_told_with_its_owner() {
    let text = |team: &str, key: &str| {
        format!(
            "{}[departments.d]\nbudgets = [{{ usd = 5.0, per = \"month\" }}]\n[teams.t]\n{team}\n\
             [keys.k]\nsecret = \"env:SET\"\nteam = \"t\"\n{key}\n",
            super::P
        )
    };
    let budget = "budgets = [{ usd = 20.5, per = \"day\", alert = 0.8, on_exhausted = \"cut\" }]";
    let one = "limits = { max_tokens_per_request = 100 }";
    let dir = folder(&[
        ("old.toml", &text("limits = { rpm = 60, burst = 5 }", budget)),
        ("weir.toml", &text("limits = { rpm = 70, models = [\"m*\"] }", one)),
    ]);
    let load = |name: &str| config::read_with(&dir.path().join(name), &env).result.unwrap();
    let said = config::diff(&load("old.toml").snapshot, &load("weir.toml").snapshot);
    let want = [
        "- keys.k: usd per day 20.500000, alert at 0.8, cuts streams",
        "+ keys.k: max_tokens_per_request 100",
        "- teams.t: rpm 60, burst 5",
        "+ teams.t: rpm 70 for m*",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), want);
}

#[test]
fn a_check_is_told_as_json_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.toml");
    std::fs::write(&path, "[server]\nthread = 1\n[log]\nlevel = \"loud\"\n").unwrap();
    let told = config::check(&path, None).json();
    assert_eq!((&told["sound"], told["faults"].as_array().unwrap().len()), (&false.into(), 2));
    assert_eq!(
        (&told["faults"][0]["line"], &told["faults"][0]["key"]),
        (&2.into(), &"server.thread".into())
    );
    std::fs::write(&path, "[log]\nlevel = \"warn\"\n").unwrap();
    let told = config::check(&path, Some(&path)).json();
    assert_eq!(
        (&told["sound"], &told["faults"], &told["diff"]),
        (&true.into(), &serde_json::json!([]), &serde_json::json!([]))
    );
}
