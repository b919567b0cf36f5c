//! conf/weir.toml, key by key: each is a default that is true, and each changes what is compiled.

use super::papers::placed;
use super::{bare, env, lines};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir::config::{self, Snapshot};

/// Every key of conf/weir.toml with another value of its own, or `""` where only its default is
/// legal in this version (any other is refused by name, which is tested elsewhere).
const OTHERS: &[(&str, &str)] = &[
    ("server.listen", r#"["127.0.0.1:1"]"#),
    ("server.tls.listen", r#"["127.0.0.1:2"]"#),
    ("server.tls.cert", r#""tls/other.pem""#),
    ("server.tls.key", r#""tls/same-key.pem""#),
    ("server.threads", "77"),
    ("server.max_body", r#""1MiB""#),
    ("server.max_body_bytes_open", r#""2GiB""#),
    ("server.max_requests", "1"),
    ("server.upstream_idle", "1"),
    ("server.hold_max", r#""1s""#),
    ("server.drain", r#""1s""#),
    ("server.drain_delay", r#""1s""#),
    ("server.idle", r#""1s""#),
    ("server.header", r#""1s""#),
    ("server.body", r#""1s""#),
    ("server.client_write", r#""1s""#),
    ("server.default_model", r#""chat""#),
    ("server.default_output", r#""max""#),
    ("server.limits.concurrent", "1"),
    ("server.unpriced", r#"{ input = 1.0, output = 1.0 }"#),
    ("admin.listen", r#""127.0.0.1:1""#),
    ("admin.token", r#""env:SET""#),
    ("admin.metrics_listen", r#""127.0.0.1:1""#),
    ("admin.tls.cert", r#""tls/other.pem""#),
    ("admin.tls.key", r#""tls/same-key.pem""#),
    ("admin.allow_remote", ""), // its effect: tests/config.rs, listeners_beyond_loopback…
    ("store.url", r#""sqlite:x.db""#),
    ("store.spool", r#""x""#),
    ("store.sync", r#""always""#),
    ("store.retention", r#""off""#),
    ("log.level", r#""warn""#),
    ("log.access", r#""off""#),
    ("log.redact", "false"),
    ("providers.openai.preset", r#""groq""#),
    ("providers.openai.wire", r#""anthropic""#),
    ("providers.openai.base_url", r#""https://other.example""#),
    ("providers.openai.auth", r#""api-key""#),
    ("providers.openai.api_keys", r#"["env:SET"]"#),
    ("providers.openai.api_version", r#""2025-01-01""#),
    ("providers.openai.http2", "true"),
    ("providers.openai.ca", r#""file:tls/other.pem""#),
    ("providers.openai.proxy", r#""http://other""#),
    ("providers.openai.timeouts.connect", r#""1s""#),
    ("providers.openai.timeouts.first_token", r#""1s""#),
    ("providers.openai.timeouts.idle", r#""1s""#),
    ("providers.openai.timeouts.write", r#""1s""#),
    ("providers.openai.timeouts.reply", r#""1s""#),
    ("providers.openai.timeouts.total", r#""off""#),
    ("providers.openai.retry.attempts", "1"),
    ("providers.openai.retry.backoff", r#""1ms""#),
    ("providers.openai.retry.max_backoff", r#""1s""#),
    ("providers.openai.retry.on", r#"["connect"]"#),
    ("providers.openai.failover.on", "[]"),
    ("providers.openai.failover.max_elapsed", r#""off""#),
    ("providers.openai.breaker.window", r#""1s""#),
    ("providers.openai.breaker.min_requests", "1"),
    ("providers.openai.breaker.error_rate", "0.1"),
    ("providers.openai.breaker.consecutive", "1"),
    ("providers.openai.breaker.open_for", r#""1s""#),
    ("providers.openai.breaker.probes", "2"),
    ("providers.openai.cooldown.quota", r#""1s""#),
    ("providers.openai.cooldown.auth", r#""1s""#),
    ("providers.openai.cooldown.rate", r#""1s""#),
    ("providers.openai.idempotency_header", r#""x-once""#),
    ("providers.openai.health.path", r#""/v1""#),
    ("providers.openai.health.every", r#""1s""#),
    ("providers.openai.health.timeout", r#""1s""#),
    ("providers.openai.pool.idle_timeout", r#""1s""#),
    ("providers.openai.pool.max_age", r#""1s""#),
    ("providers.openai.headers.x-team", r#""env:SET""#),
    ("providers.openai.params.rename.max_tokens", r#""x""#),
    ("providers.openai.params.drop", "[]"),
    ("providers.openai.params.defaults.temperature", "0.71"),
    ("providers.openai.params.clamp.temperature", "[0.0, 2.0]"),
    ("providers.openai.quirks.stream_options", "false"),
    ("providers.openai.quirks.usage_unasked", "true"),
    ("providers.openai.quirks.reasoning_back", "true"),
    ("providers.openai.quirks.refused", "[\"audio\"]"),
    ("providers.openai.quirks.responses", "false"),
    ("providers.openai.quirks.completions", "true"),
    ("providers.openai.errors.insufficient_quota", r#""auth""#),
    ("providers.openai.models.gpt-4o.price.currency", r#""CNY""#),
    ("providers.openai.models.gpt-4o.price.input", "3"),
    ("providers.openai.models.gpt-4o.price.cached_input", "3"),
    ("providers.openai.models.gpt-4o.price.cache_write", "3"),
    ("providers.openai.models.gpt-4o.price.output", "3"),
    ("providers.openai.models.gpt-4o.price.reasoning", "3"),
    ("providers.openai.models.gpt-4o.price.per_request", "3"),
    ("providers.openai.models.gpt-4o.price.image", "3"),
    ("providers.openai.models.gpt-4o.price.audio_second", "3"),
    ("providers.openai.models.gpt-4o.price.character", "3"),
    ("providers.openai.models.gpt-4o.price.tiers", "[]"),
    ("providers.openai.models.gpt-4o.price.source", r#""x""#),
    ("providers.openai.models.gpt-4o.price.date", r#""2026-12-01""#),
    ("providers.openai.models.gpt-4o.context", "1"),
    ("providers.openai.models.gpt-4o.max_output", "1"),
    ("providers.openai.models.gpt-4o.tags", "[]"),
    ("providers.openai.models.gpt-4o.tokenizer", r#""cl100k_base""#),
    ("providers.openai.models.gpt-4o.tools", "false"),
    ("providers.openai.models.gpt-4o.images", "false"),
    ("providers.openai.models.gpt-4o.json_schema", "false"),
    ("currency.CNY", "0.2"),
    ("models.chat.strategy", r#""latency""#),
    ("models.chat.targets", r#"["openai/gpt-4o"]"#),
    ("models.chat.fallback", "[]"),
    ("models.chat.on_429", r#""return""#),
    ("models.chat.strict", "true"),
    ("models.chat.affinity", r#""session""#),
    ("models.chat.max_latency", r#""1s""#),
    ("smart.default_task", r#""x""#),
    ("smart.tiers", r#"["standard", "x"]"#),
    ("smart.weights.cost", "1.0"),
    ("smart.weights.latency", "1.0"),
    ("smart.unseen_latency", r#""1s""#),
    ("smart.rules.reason", r#""chat""#),
    ("smart.no_match", r#""error""#),
    ("routes", "[]"),
    ("teams.search.department", r#""none""#),
    ("teams.search.models", r#"["gpt-*"]"#),
    ("teams.search.aliases.gpt-4-turbo", r#""chat""#),
    (
        "keys.ci.hash",
        r#""sha256:1111111111111111111111111111111111111111111111111111111111111111""#,
    ),
    ("keys.ci.team", r#""other""#),
    ("keys.ci.user", r#""x""#),
    ("keys.ci.tags", "[]"),
    ("keys.ci.end_users", "true"),
    ("keys.ci.models", r#"["chat"]"#),
    ("keys.ci.aliases.default", r#""chat""#),
    ("keys.ci.max_budget_tier", r#""low""#),
    ("keys.ci.expires", r#""2028-01-01T00:00:00Z""#),
    ("keys.ci.enabled", "false"),
    ("keys.ci.limits.rpm", "1"),
    ("keys.ci.limits.tpm", "1"),
    ("keys.ci.limits.rps", "1"),
    ("keys.ci.limits.tps", "1"),
    ("keys.ci.limits.burst", "1"),
    ("keys.ci.limits.burst_tokens", "1"),
    ("keys.ci.limits.concurrent", "1"),
    ("keys.ci.limits.max_tokens_per_request", "1"),
    ("keys.ci.windows", r#"[{ requests = 1, per = "hour" }]"#),
    ("keys.ci.budgets", r#"[{ usd = 0.5, per = "day" }]"#),
    ("departments.R&D.budgets", r#"[{ tokens = 1, per = "ever" }]"#),
    ("teams.search.limits.rpm", "1"),
    ("teams.search.limits.tpm", "1"),
    ("teams.search.budgets", "[]"),
    ("users.alice.models", r#"["chat"]"#),
    ("users.alice.aliases.best", r#""chat""#),
    ("users.alice.max_budget_tier", r#""low""#),
    ("users.alice.limits.concurrent", "1"),
    ("key_defaults.models", r#"["chat"]"#),
    ("key_defaults.aliases.small", r#""gpt-4o""#),
    ("key_defaults.tags", "[]"),
    ("key_defaults.expires", r#""2031-01-01T00:00:00Z""#),
    ("key_defaults.end_users", "true"),
    ("key_defaults.max_budget_tier", r#""low""#),
    ("key_defaults.limits.rpm", "1"),
    ("user_defaults.models", r#"["chat"]"#),
    ("user_defaults.aliases.large", r#""chat""#),
    ("user_defaults.max_budget_tier", r#""low""#),
    ("user_defaults.windows", r#"[{ tokens = 1, per = "day" }]"#),
    ("alerts.webhook", r#""http://other""#),
    ("alerts.time_zone", r#""Asia/Shanghai""#),
    ("redis.url", r#""redis://127.0.0.1:1""#),
    ("redis.username", r#""x""#),
    ("redis.password", r#""env:SET""#),
    ("redis.mode", ""), // "leased" is refused by name: tests/config/limits.rs
    ("redis.timeout", r#""60ms""#),
    ("redis.prefix", r#""x:""#),
    ("keys.laptop.secret", r#""env:SET""#),
    ("keys.laptop.user", r#""x""#),
    ("keys.laptop.department", r#""none""#),
];

/// Keys that say which files are read: their effect is in tests/config/files.rs.
const FILES: &[&str] = &["include", "presets"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/weir.toml")
}

/// The shipped file with every commented key taken in.
fn whole() -> String {
    let text = std::fs::read_to_string(root()).unwrap();
    let open = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => format!("{key}\n"),
        _ => format!("{line}\n"),
    };
    placed(&text.lines().map(open).collect::<String>())
}

fn load(text: &str) -> Snapshot {
    let loaded = config::load_text(&root(), text, &env);
    loaded.unwrap_or_else(|faults| panic!("{}", lines(&faults))).snapshot
}

/// Everything that is compiled, secrets in the clear, in a fixed order.
fn print(s: &Snapshot) -> String {
    let token = s.admin.token.as_ref().map(|t| t.expose().to_owned());
    let mut text =
        format!("{:?}{:?}{token:?}{:?}{:?}{:?}", s.server, s.admin, s.store, s.log, s.routes);
    for provider in s.routes.providers.values() {
        text.extend(provider.credentials.iter().map(|c| format!("{c:?}{}", bare(c))));
    }
    let keys: BTreeMap<_, _> =
        s.keys.0.iter().map(|(hash, key)| (key.id.clone(), (hash, key))).collect();
    for (hash, key) in keys.into_values() {
        let mut key = weir::access::Key::clone(key);
        let aliases: BTreeMap<_, _> = std::mem::take(&mut key.aliases).into_iter().collect();
        text.push_str(&format!("{hash:?}{key:?}{aliases:?}"));
    }
    let mut rules: Vec<_> = s.rules.all().collect();
    rules.sort_by(|a, b| a.id.cmp(&b.id));
    let ci = [(weir::limit::Scope::Key, "ci")];
    let largest = s.rules.gather(ci, "gpt-4o", "chat");
    let largest = largest.largest_request("gpt-4o", "chat");
    let (zone, output) = (&s.rules.zone, s.rules.default_output);
    let redis = s.redis.as_ref().map(|r| {
        let password = r.password.as_ref().map(|p| p.expose().to_owned());
        format!("{r:?}{}{password:?}", r.url.expose())
    });
    let webhook = s.webhook.as_ref();
    text.push_str(&format!("{rules:?}{largest:?}{zone:?}{output:?}{redis:?}{webhook:?}"));
    text
}

/// Dotted names of every value that is no table.
fn leaves(table: &toml::Table, path: &str, out: &mut Vec<String>) {
    for (key, value) in table {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            toml::Value::Table(inner) => leaves(inner, &path, out),
            _ => out.push(path),
        }
    }
}

/// Replaces one leaf. Model names hold dots, so the path is matched key by key.
fn set(table: &mut toml::Table, path: &str, value: &toml::Value) -> bool {
    for (key, old) in table.iter_mut() {
        if key == path {
            *old = value.clone();
            return true;
        }
        let rest = path.strip_prefix(key.as_str()).and_then(|p| p.strip_prefix('.'));
        if let (Some(rest), toml::Value::Table(inner)) = (rest, old) {
            return set(inner, rest, value);
        }
    }
    false
}

#[test]
fn the_list_of_keys_is_the_files() {
    let mut found = Vec::new();
    leaves(&whole().parse().unwrap(), "", &mut found);
    let mut listed: Vec<String> = OTHERS.iter().map(|(path, _)| (*path).to_owned()).collect();
    listed.extend(FILES.iter().map(|path| (*path).to_owned()));
    found.sort();
    listed.sort();
    assert_eq!(found, listed);
}

#[test]
fn every_key_that_is_known_stands_in_the_shipped_config() {
    let shipped = whole();
    let mut keys = 0;
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // Presets have keys of their own.
            let text = std::fs::read_to_string(&path).unwrap();
            for list in text.split("known: &[").skip(1).filter(|_| !path.ends_with("preset.rs")) {
                for key in list.split(']').next().unwrap().split('"').skip(1).step_by(2) {
                    let said = [format!("{key} ="), format!("[{key}]"), format!("[{key}.")];
                    assert!(said.iter().any(|s| shipped.contains(s.as_str())), "{key}");
                    keys += 1;
                }
            }
        }
    }
    assert!(keys > 80, "{keys} keys were found in the shapes");
}

/// Takes out what would hide or forbid another value of this key.
fn make_room(tree: &mut toml::Table, path: &str) {
    match path {
        // A preset's effect is what the provider's own table does not say again.
        "providers.openai.preset" => {
            let openai = tree["providers"]["openai"].as_table_mut().unwrap();
            openai.remove("base_url");
        }
        // A rate acts on prices in its currency.
        "currency.CNY" => {
            let price = "providers.openai.models.gpt-4o.price.currency";
            assert!(set(tree, price, &toml::Value::String("CNY".into())));
        }
        // A team or department without a table is known only where none has one.
        "keys.ci.team" => drop(tree.remove("teams")),
        path if path.ends_with(".department") => drop(tree.remove("departments")),
        _ => {}
    }
}

#[test]
fn every_key_of_the_shipped_config_changes_what_is_compiled() {
    let whole: toml::Table = whole().parse().unwrap();
    for (path, other) in OTHERS.iter().filter(|(_, other)| !other.is_empty()) {
        let mut tree = whole.clone();
        make_room(&mut tree, path);
        let before = print(&load(&tree.to_string()));
        let value =
            placed(&format!("x = {other}")).parse::<toml::Table>().unwrap().remove("x").unwrap();
        assert!(set(&mut tree, path, &value), "{path}");
        assert!(before != print(&load(&tree.to_string())), "{path} = {other} changes nothing");
    }
}

/// A table inside another, as text.
fn inside(names: &[&str], table: &toml::Table) -> String {
    let mut out = table.clone();
    for name in names.iter().rev() {
        out = toml::Table::from_iter([((*name).to_owned(), toml::Value::Table(out))]);
    }
    out.to_string()
}

/// A table of the whole file without some of its keys.
fn part(names: &[&str], without: &[&str]) -> String {
    let mut table: toml::Table = whole().parse().unwrap();
    for name in names {
        table = table[*name].as_table().unwrap().clone();
    }
    without.iter().for_each(|key| drop(table.remove(*key)));
    inside(names, &table)
}

#[test]
fn defaults_in_the_shipped_config_are_the_ones_in_force() {
    let same = |text: &str, bare: &str| assert!(print(&load(text)) == print(&load(bare)), "{text}");
    same(&part(&["server"], &["default_model", "listen", "tls", "limits"]), "");
    same(&part(&["admin"], &["token", "metrics_listen", "tls"]), "");
    same(&part(&["store"], &[]), "");
    same(&part(&["log"], &[]), "");
    let examples =
        "api_keys api_version ca proxy idempotency_header health headers params errors models";
    let examples: Vec<&str> = examples.split(' ').collect();
    let openai = "[providers.openai]\n";
    // Said, `reply` holds for embeddings too, whose own default is shorter.
    let said = part(&["providers", "openai"], &examples).replace("reply = \"5m\"\n", "");
    same(&said, openai);
    let model = format!("{openai}[models.chat]\ntargets = [\"openai/gpt-4o\"]\n");
    let defaults = part(&["models", "chat"], &["targets", "fallback"]).replace("[models.chat]", "");
    same(&format!("{model}{defaults}"), &model);
    same(&part(&["smart"], &["rules"]), "");
    let examples = "hash team user tags models aliases max_budget_tier expires department limits \
                    windows budgets";
    let examples: Vec<&str> = examples.split(' ').collect();
    let key = "[keys.ci]\nsecret = \"env:SET\"\n";
    same(&format!("{key}{}", part(&["keys", "ci"], &examples).replace("[keys.ci]", "")), key);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    /// Whatever is cut out of a config or written into it, it loads or is refused, and never worse.
    #[test]
    fn a_mangled_config_is_refused_or_loads(
        cut in 0usize..8_000, len in 0usize..200, put in "[\\PC\n]{0,20}",
    ) {
        let mut text: Vec<char> = whole().chars().collect();
        let start = cut.min(text.len());
        let end = (start + len).min(text.len());
        text.splice(start..end, put.chars());
        let text: String = text.into_iter().collect();
        if let Err(faults) = config::load_text(&root(), &text, &env) {
            proptest::prop_assert!(!faults.is_empty());
            let last = text.lines().count() + 1;
            let placed = faults.iter().all(|f| f.file != root() || f.line <= last);
            proptest::prop_assert!(placed, "{}", lines(&faults));
        }
    }
}
