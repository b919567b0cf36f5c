//! Starting with little or nothing: defaults, presets, no config at all, `weir init`.

use super::{bare, env, lines, sound};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir::config::{self, Access, Unpriced};
use weir::route::{Auth, Provider};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn an_empty_config_has_the_contracts_defaults() {
    let s = sound("").snapshot;
    let server = s.server;
    assert_eq!(server.listen, ["127.0.0.1:8080"]);
    assert!(server.threads >= 1);
    assert_eq!((server.max_body, server.max_body_bytes_open), (32 << 20, 1 << 30));
    assert_eq!((server.max_requests, server.upstream_idle), (20_000, 1_024));
    assert_eq!(
        (server.hold_max, server.drain, server.drain_delay),
        (seconds(15), seconds(600), seconds(0))
    );
    assert_eq!((server.idle, server.header), (seconds(75), seconds(10)));
    assert_eq!((server.body, server.client_write), (seconds(60), seconds(60)));
    assert_eq!((server.default_model, server.unpriced), (None, Unpriced::Warn));
    assert_eq!(
        (s.admin.listen.as_str(), s.admin.token, s.admin.metrics_listen),
        ("127.0.0.1:9180", None, None)
    );
    assert_eq!(
        (s.store.path, s.store.spool),
        (PathBuf::from("data/weir.db"), PathBuf::from("data/spool"))
    );
    assert_eq!((s.store.sync, s.store.retention), (Some(seconds(1)), Some(seconds(400 * 86_400))));
    assert_eq!(
        (s.log.level, s.log.access, s.log.redact),
        (log::LevelFilter::Info, Access::Stderr, true)
    );
}

#[test]
fn off_and_always_are_words_where_they_mean_something() {
    let s = sound("[store]\nsync = \"always\"\nretention = \"off\"\n").snapshot;
    assert_eq!((s.store.sync, s.store.retention), (None, None));
    super::check("[server]\ndrain = \"off\"\n", "\"off\" is no duration");
    super::check("[store]\nsync = \"off\"\n", "\"off\" is no duration");
    let p = provider("[providers.ollama]\ntimeouts = { idle = \"off\" }\n");
    assert_eq!(
        (p.timeouts.idle, p.timeouts.connect),
        (None, Some(seconds(5))),
        "others keep theirs"
    );
}

fn provider(text: &str) -> Provider {
    let providers = sound(text).snapshot.routes.providers;
    Provider::clone(providers.values().next().unwrap())
}

#[test]
fn a_name_equal_to_a_preset_implies_it() {
    let p = provider("[providers.openai]\n");
    assert_eq!((p.base.authority().as_str(), p.base.path.as_str()), ("api.openai.com", "/v1"));
    assert_eq!((p.auth, p.credentials[0].name.as_str()), (Auth::Bearer, "key-1"));
    assert_eq!(bare(&p.credentials[0]), "value-of-OPENAI_API_KEY");
    let p = provider(
        r#"
[providers.mine]
preset = "anthropic"
api_keys = ["env:SET", { name = "b", value = "env:SET", weight = 3 }]
"#,
    );
    assert_eq!(p.auth, Auth::Header("x-api-key"));
    let names: Vec<(&str, u32)> =
        p.credentials.iter().map(|c| (c.name.as_str(), c.weight)).collect();
    assert_eq!(names, [("key-1", 1), ("b", 3)]);
    assert_eq!(provider("[providers.ollama]\n").auth, Auth::None, "a key is optional");
    super::check("[providers.vllm]\n", "providers.vllm: needs a base_url");
    super::check(
        "[providers.ollama]\nauth = \"none\"\napi_keys = [\"env:SET\"]\n",
        "nothing would send them",
    );
    super::check(
        "[providers.ollama]\napi_keys = [{ name = \"key-2\", value = \"env:SET\" }, \"env:SET\"]\n",
        "two are named \"key-2\"",
    );
}

fn presets() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/providers");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_preset_is_sound_embedded_and_priced_from_a_source() {
    for path in presets() {
        let faults = config::check_preset(&path);
        assert!(faults.is_empty(), "{}", lines(&faults));
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = format!(
            "[providers.{name}]\nbase_url = \"http://127.0.0.1:1\"\napi_keys = [\"env:SET\"]\n"
        );
        let provider = provider(&text);
        for offer in &provider.offers {
            let Some(price) = &offer.price else { continue };
            let date = price.source.rsplit(' ').next().unwrap_or_default();
            assert!(
                date.parse::<jiff::civil::Date>().is_ok(),
                "{name}: {}: {}",
                offer.name.as_str(),
                price.source
            );
        }
    }
    assert_eq!(presets().len(), 34);
}

#[test]
fn a_preset_without_a_prices_source_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.toml");
    let text =
        "wire = \"openai\"\n[models.m]\nprice = { input = 1, output = 2, source = \"us\" }\n";
    std::fs::write(&path, text).unwrap();
    assert!(
        lines(&config::check_preset(&path))
            .contains("x.toml:3: models.\"m\".price: a preset's price needs its `date`")
    );
}

#[test]
fn without_config_every_provider_whose_key_is_set_starts() {
    let set = |name: &str| match name {
        "OPENAI_API_KEY" | "AZURE_OPENAI_API_KEY" | "ANTHROPIC_API_KEY" => Some("sk-x".to_owned()),
        "MISTRAL_API_KEY" => Some(String::new()),
        _ => None,
    };
    let zero = config::zero(&set).unwrap();
    assert_eq!(zero.providers, ["anthropic", "openai"], "azure lacks its address, mistral its key");
    let secret = zero.generated.unwrap();
    assert!(secret.expose().starts_with("sk-weir-") && secret.expose().len() >= 40);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let snapshot = zero.loaded.snapshot;
    assert_eq!(snapshot.keys.find(secret.expose(), now).unwrap().name, "default");
    assert_eq!(snapshot.server.listen, ["127.0.0.1:8080"]);
    let with_key = |name: &str| if name == "WEIR_KEY" { Some("sk-mine".into()) } else { set(name) };
    let zero = config::zero(&with_key).unwrap();
    assert!(zero.generated.is_none() && zero.loaded.snapshot.keys.find("sk-mine", now).is_ok());
    assert_ne!(config::zero(&set).unwrap().generated.unwrap(), secret, "made anew each time");
}

#[test]
fn without_config_and_keys_it_is_told_what_to_set() {
    let told = config::zero(&|_| None).unwrap_err();
    for name in [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "DASHSCOPE_API_KEY",
        "ZHIPUAI_API_KEY or ZAI_API_KEY",
        "AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT",
        "weir init",
    ] {
        assert!(told.contains(name), "{name} in {told}");
    }
    assert!(!told.contains("VLLM"), "its address is only in a config");
}

#[test]
fn init_writes_five_lines_that_load_and_never_twice() {
    let dir = tempfile::tempdir().unwrap();
    for (folder, set, provider) in [("a", "", "ollama"), ("b/c", "OPENAI_API_KEY", "openai")] {
        let folder = dir.path().join(folder);
        let env = |name: &str| (name == set).then(|| "sk-x".to_owned());
        let said = config::init_with(&folder, &env).unwrap();
        let path = folder.join("weir.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 5, "{text}");
        let loaded =
            config::read_with(&path, &env).result.unwrap_or_else(|f| panic!("{}", lines(&f)));
        assert!(loaded.snapshot.routes.providers.contains_key(&provider.into()));
        let secret = said.split_whitespace().find(|word| word.starts_with("sk-weir-")).unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(loaded.snapshot.keys.find(secret, now).unwrap().name, "me");
        assert!(!text.contains(secret), "the file holds the hash alone");
        assert!(config::init_with(&folder, &env).unwrap_err().contains("is there already"));
    }
}

#[test]
fn what_needs_a_restart_is_named() {
    let old = sound("").snapshot;
    let text = r#"
        server = { listen = ["127.0.0.1:1"], threads = 77, upstream_idle = 7, idle = "1s" }
        admin = { listen = "127.0.0.1:2" }
        store = { spool = "x" }
        log = { level = "warn" }
    "#;
    let named = config::needs_restart(&old, &sound(text).snapshot);
    assert_eq!(
        named,
        ["server.listen", "server.threads", "server.upstream_idle", "admin.listen", "store"]
    );
    assert!(config::needs_restart(&old, &sound("[server]\nidle = \"1s\"\n").snapshot).is_empty());
}

#[test]
fn the_shipped_config_loads_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/weir.toml");
    let loaded =
        config::read_with(&path, &|_| None).result.unwrap_or_else(|f| panic!("{}", lines(&f)));
    assert_eq!(loaded.snapshot.server.listen, ["0.0.0.0:8080"]);
    assert!(config::read_with(&path, &env).result.is_ok());
}
