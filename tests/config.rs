//! Config: what loads, what does not, and what is said about it.

mod files;
mod leaves;
mod limits;
mod money;
mod papers;
mod parts;
mod start;
mod stored;

use std::path::Path;
use weir::config::{self, Fault, Loaded};

/// The environment of these tests.
fn env(name: &str) -> Option<String> {
    let set = [
        "OPENAI_API_KEY",
        "OPENAI_API_KEY_2",
        "WEIR_ADMIN_TOKEN",
        "WEIR_REDIS_PASSWORD",
        "LAPTOP_KEY",
        "SET",
    ];
    match name {
        "ALERT_URL" => Some("https://hooks.example/in".into()),
        "EMPTY" => Some(String::new()),
        "LINES" => Some("one\ntwo".into()),
        name => set.contains(&name).then(|| format!("value-of-{name}")),
    }
}

fn load(text: &str) -> Result<Loaded, Vec<Fault>> {
    config::load_text(Path::new("weir.toml"), text, &env)
}

fn sound(text: &str) -> Loaded {
    load(text).unwrap_or_else(|faults| panic!("{}", lines(&faults)))
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Every fault of a text, one a line; empty when it is sound.
fn faults(text: &str) -> String {
    load(text).map_or_else(|faults| lines(&faults), |_| String::new())
}

/// The text has exactly this one fault.
#[track_caller]
fn check(text: &str, fault: &str) {
    let found = faults(text);
    assert!(found.contains(fault) && found.lines().count() == 1, "{text}\n{found}\nwanted {fault}");
}

/// A credential that is sent as it is.
fn bare(credential: &weir::base::Credential) -> String {
    match &credential.proof {
        weir::base::Proof::Bare(secret) => secret.expose().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// A provider without a preset, named `p`, with one priced model `m`.
const P: &str = r#"
[providers.p]
wire = "openai"
base_url = "http://127.0.0.1:1/v1"
auth = "none"
[providers.p.models.m]
price = { input = 1.0, output = 2.0 }
"#;

#[test]
fn every_fault_is_told_at_once_with_its_line() {
    let text = r#"[server]
drian = "5s"
idle = "0s"
max_body = "huge"

[providers.openai]
retry = { atempts = 3 }
timeouts = { connect = 5 }

[models.chat]
targets = ["opnai/gpt-4o"]

[keys.a]
secret = "env:UNSET"
expires = "tomorrow"
"#;
    let found = faults(text);
    let wanted = [
        "weir.toml:2: server.drian: unknown key, did you mean \"drain\"?",
        "weir.toml:3: server.idle: zero is no wait",
        "weir.toml:4: server.max_body: \"huge\" is no size",
        "weir.toml:7: providers.openai.retry.atempts: unknown key, did you mean \"attempts\"?",
        "weir.toml:8: providers.openai.timeouts.connect: a duration such as \"5s\" is needed here",
        "weir.toml:11: models.chat.targets[0]: there is no provider \"opnai\", did you mean \"o",
        "weir.toml:14: keys.a.secret: the environment variable UNSET is not set",
        "weir.toml:15: keys.a.expires: \"tomorrow\" is no time",
    ];
    assert_eq!(found.lines().count(), wanted.len(), "{found}");
    for (line, wanted) in found.lines().zip(wanted) {
        assert!(line.starts_with(wanted), "{line}\nwanted {wanted}");
    }
}

#[test]
fn a_slip_in_a_providers_name_and_a_key_said_twice_are_told_by_name() {
    check(
        "[providers.opnai]\nbase_url = \"http://x\"\n",
        "providers.opnai: is no preset's name, so it needs a wire, did",
    );
    check(
        "[providers.mine]\nbase_url = \"http://x\"\n",
        "providers.mine: is no preset's name, so it needs a wire",
    );
    check("[keys.a]\n[keys.a]\n", "weir.toml:2: a: duplicate key");
    check("[log]\nlevel = \"info\"\nlevel = \"warn\"\n", "weir.toml:3: level: duplicate key");
}

#[test]
fn values_of_the_wrong_kind_are_faults_and_hide_nothing() {
    let text = "[server]\nlisten = 8080\nthreads = \"two\"\nmax_requests = -1\n[log]\nredact = 1\n\
                [store]\nspool = true\n[keys]\na = 1\n[providers.p]\nmodels = []\n";
    let found = faults(text);
    for line in [2, 3, 4, 6, 8, 10, 11, 12] {
        assert!(found.contains(&format!("weir.toml:{line}: ")), "line {line} in\n{found}");
    }
}

#[test]
fn what_the_contract_names_for_later_is_refused_by_name() {
    for name in ["idempotency", "telemetry"] {
        check(&format!("[{name}]\n"), &format!("{name}: `[{name}]` is not in this version"));
    }
    let p = |line: &str| format!("[providers.ollama]\n{line}\n");
    let m = |line: &str| format!("{P}[models.x]\ntargets = [\"p/m\"]\n{line}\n");
    let price = |line: &str| {
        p(&format!("[providers.ollama.models.x]\nprice = {{ input = 0, output = 0, {line} }}"))
    };
    let refused = [
        "[store]\nurl = \"postgres://u:p@h/db\"".to_owned(),
        p("proxy = \"socks5://x\""),
        price("batch = 0.5"),
        price("input_audio = 1.0"),
        m("hedge = { after = \"2s\" }"),
        m("cache = { exact = \"on\" }"),
        "[redis]\nurl = \"redis://h\"\nmode = \"leased\"".into(),
        "[redis]\nurl = \"redis://h\"\nlease = 0.05".into(),
        "[redis]\nurl = \"redis://h\"\nshards = { \"key:ci\" = 8 }".into(),
        "[redis]\nurl = [\"redis://a\", \"redis://b\"]".into(),
        "[redis]\nurl = \"rediss://h\"".into(),
    ];
    for text in refused {
        check(&text, "not in this version");
    }
}

#[test]
fn listeners_beyond_loopback_and_twice_on_one_address_are_refused() {
    check("[admin]\nlisten = \"0.0.0.0:9180\"\n", "weir.toml:2: admin.listen: is beyond loopback");
    check("[admin]\nlisten = \"10.0.0.1:9180\"\ntoken = \"env:SET\"\n", "beyond loopback");
    sound("[admin]\nlisten = \"0.0.0.0:9180\"\nallow_remote = true\n");
    sound("[admin]\nlisten = \"[::1]:9180\"\nmetrics_listen = \"0.0.0.0:9181\"\n");
    check(
        "[admin]\nlisten = \"127.0.0.1:8080\"\n",
        "admin.listen: 127.0.0.1:8080 is listened on twice",
    );
    for address in ["8080", ":8080", "127.0.0.1", "127.0.0.1:x", "1.2.3.400:80", "http://x:80"] {
        check(&format!("[server]\nlisten = [\"{address}\"]\n"), "is no address");
    }
}

#[test]
fn a_reference_that_holds_nothing_is_a_fault() {
    let k = |secret: &str| format!("[keys.k]\nsecret = \"{secret}\"\n");
    check(&k("env:UNSET"), "weir.toml:2: keys.k.secret: the environment variable UNSET is not set");
    check(&k("env:EMPTY"), "env:EMPTY is empty");
    check(&k("env:LINES"), "line end");
    check(&k(""), "is empty");
    check(&k("file:/nowhere/at/all"), "/nowhere/at/all: cannot be read");
    check(&k("cred:x"), "CREDENTIALS_DIRECTORY");
    check("[providers.openai]\napi_keys = [\"env:UNSET\"]\n", "UNSET");
    check(
        "[providers.deepseek]\n",
        "providers.deepseek: needs api_keys, since the environment has no DEEPSEEK_API_KEY",
    );
}

#[test]
fn a_literal_secret_is_taken_with_a_warning_and_never_shown() {
    let text = format!("{P}[keys.k]\nsecret = \"sk-hidden\"\n[admin]\ntoken = \"sk-hidden-too\"\n");
    let loaded = sound(&text);
    let warned: Vec<&str> = loaded.warnings.iter().map(|w| w.key.as_str()).collect();
    assert_eq!(warned, ["keys.k.secret", "admin.token"]);
    let shown = format!("{loaded:?}{}", lines(&loaded.warnings));
    assert!(!shown.contains("hidden"), "{shown}");
    assert!(sound(&text.replace("sk-hidden-too", "env:SET")).warnings.len() == 1);
}

#[test]
fn a_key_opens_by_hash_or_secret_and_no_two_by_the_same() {
    let hash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let loaded = sound(&format!("[keys.k]\nhash = \"{hash}\"\nexpires = 2027-01-01T00:00:00Z\n"));
    let now = "2026-12-31T23:59:59Z".parse().unwrap();
    assert_eq!(loaded.snapshot.keys.find("secret", now).unwrap().name, "k");
    assert!(loaded.snapshot.keys.find("secret", "2027-01-01T00:00:00Z".parse().unwrap()).is_err());
    let twice = format!("[keys.a]\nsecret = \"secret\"\n[keys.b]\nhash = \"{hash}\"\n");
    check(&twice, "weir.toml:3: keys.b: has the same secret as keys.a");
    check("[keys.k]\n", "needs the hash of its secret");
    check("[keys.k]\nhash = \"md5:00\"\n", "is no \"sha256:\" and 64 hex digits");
    check(&format!("[keys.k]\nhash = \"{}\"\n", hash.replace("2b", "+b")), "64 hex digits");
    check(&format!("[keys.k]\nhash = \"{hash}\"\nsecret = \"env:SET\"\n"), "one is enough");
}

#[test]
fn names_that_lead_nowhere_are_faults() {
    let k = |line: &str| {
        format!("{P}[models.chat]\ntargets = [\"p/m\"]\n[keys.k]\nsecret = \"env:SET\"\n{line}\n")
    };
    check(
        &k("models = [\"chta\"]"),
        "keys.k.models: nobody serves \"chta\", did you mean \"chat\"?",
    );
    check(&k("aliases = { a = \"chta\" }"), "keys.k.aliases.a: nobody serves \"chta\"");
    sound(&k("models = [\"chat\", \"p/anything\", \"m\", \"nobody-*\"]"));
    check("[server]\ndefault_model = \"x\"\n", "server.default_model: nobody serves \"x\"");
    let two = format!(
        "{P}{}[keys.k]\nsecret = \"env:SET\"\nmodels = [\"m\"]\n",
        P.replace("providers.p", "providers.q")
    );
    check(&two, "\"m\" is offered by p, q: say \"p/m\", or write [models.\"m\"]");
    check(
        &k("team = \"serch\"\n[teams.search]"),
        "there is no team \"serch\", did you mean \"search\"?",
    );
    sound(&k("team = \"only-named\""));
    let dept = k("team = \"t\"\ndepartment = \"b\"\n[teams.t]\ndepartment = \"a\"");
    check(&dept, "keys.k.department: the department of its team is \"a\"");
}

#[test]
fn a_faulty_provider_is_told_once_not_again_by_all_who_name_it() {
    let text = r#"
        providers.p = { wire = "openai", auth = "none" }
        models.x = { targets = ["p/m"] }
        keys.k = { secret = "env:SET", models = ["m"] }
        server.default_model = "m"
    "#;
    check(text, "providers.p: needs a base_url");
}

#[test]
fn targets_are_checked() {
    let m = |targets: &str| format!("{P}[models.x]\ntargets = {targets}\n");
    check(&m("[]"), "models.x.targets: is empty");
    check(&m("[\"m\"]"), "\"m\" is no \"provider/model\"");
    check(&m("[\"p/a*\"]"), "a target's model is exact or *");
    check(&m("[{ weight = 1 }]"), "a target needs `to`");
    check(&m("[{ to = \"p/m\", weight = 0 }, { to = \"p/m\", weight = 0 }]"), "all weights are 0");
    check(&format!("{P}[models.x]\n"), "models.x: needs targets");
    check(&format!("{P}[models.\"a*b*\"]\ntargets = [\"p/m\"]\n"), "is exact or has one *");
    let loaded = sound(&m("[{ to = \"p/m\", weight = 3, priority = 2 }, \"p/*\"]"));
    let targets = &loaded.snapshot.routes.resolve("x").unwrap().targets;
    assert_eq!(
        (targets[0].weight, targets[0].priority, targets[0].model.as_deref()),
        (3, 2, Some("m"))
    );
    assert_eq!((targets[1].weight, targets[1].priority, targets[1].model.as_deref()), (1, 1, None));
}

#[test]
fn exact_names_go_before_patterns_and_longer_patterns_before_shorter() {
    let mut text = P.to_owned();
    for name in ["*", "gpt-*", "gpt-4*", "gpt-4o"] {
        text.push_str(&format!("[models.\"{name}\"]\ntargets = [\"p/m\"]\n"));
        text.push_str(&format!("[providers.p.models.\"{name}\"]\ncontext = 1\n"));
    }
    let routes = sound(&text).snapshot.routes;
    let names: Vec<&str> = routes.models.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["gpt-4o", "gpt-4*", "gpt-*", "*"]);
    let offers = &routes.providers.values().next().unwrap().offers;
    let names: Vec<&str> = offers.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["gpt-4o", "m", "gpt-4*", "gpt-*", "*"]);
}

#[test]
fn a_key_holds_its_own_list_and_its_teams() {
    let text = format!(
        r#"{P}
        [teams.t]
        department = "d"
        models = ["p/*"]
        aliases = {{ a = "p/1", b = "p/2" }}
        [keys.k]
        secret = "env:SET"
        team = "t"
        models = ["p/1", "m"]
        aliases = {{ a = "m" }}
        "#
    );
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let key = sound(&text).snapshot.keys.find("value-of-SET", now).unwrap();
    assert!(key.allows("p/1") && !key.allows("m") && !key.allows("p/2"));
    assert_eq!((key.aliases["a"].as_str(), key.aliases["b"].as_str()), ("m", "p/2"));
    assert_eq!(key.department.as_ref().unwrap().as_str(), "d");
}

#[test]
fn what_would_break_requests_is_no_header_and_no_param() {
    let p = |line: &str| format!("[providers.ollama]\n{line}\n");
    check(&p("headers = { host = \"x\" }"), "providers.ollama.headers.host: is weir's own to set");
    check(&p("headers = { \"a b\" = \"x\" }"), "is no header name");
    check(&p("headers = { x-a = \"1\", X-A = \"2\" }"), "is set twice");
    check(&p("headers = { x-a = \"env:UNSET\" }"), "UNSET");
    check(&p("params = { drop = [\"model\"] }"), "\"model\" is weir's own to write");
    check(&p("params = { rename = { a = \"stream\" } }"), "\"stream\" is weir's own");
    check(&p("params = { defaults = { a = nan } }"), "no number in JSON");
    check(&p("params = { clamp = { a = [2.0, 1.0] } }"), "the lower one first");
    let loaded =
        sound(&p("params = { defaults = { a = 1.0, b = { c = [true, \"x\\n\", 1e5] } } }"));
    let defaults = &loaded.snapshot.routes.providers.values().next().unwrap().params.defaults;
    assert_eq!(
        (defaults["a"].as_str(), defaults["b"].as_str()),
        ("1.0", r#"{"c":[true,"x\n",1e5]}"#)
    );
}

#[test]
fn retries_hold_only_what_surely_did_not_start() {
    let p = |line: &str| format!("[providers.ollama]\n{line}\n");
    check(&p("retry = { on = [\"first_token\"] }"), "providers.ollama.retry.on: first_token");
    check(&p("retry = { on = [\"404\"] }"), "404 is the request's own fault");
    check(&p("failover = { on = [\"conect\"] }"), "did you mean \"connect\"?");
    check(&p("retry = { attempts = 0 }"), "0 is not within 1 and 10");
    check(&p("retry = { backoff = \"9s\", max_backoff = \"1s\" }"), "is shorter than backoff");
    let retry = &sound(&p("retry = { attempts = 3 }"))
        .snapshot
        .routes
        .providers
        .values()
        .next()
        .unwrap()
        .retry
        .clone();
    assert_eq!((retry.attempts, retry.on.statuses.as_slice()), (3, [429, 503, 529].as_slice()));
}

#[test]
fn what_would_never_choose_a_target_is_a_fault() {
    let m = |line: &str| format!("{P}[models.x]\ntargets = [\"p/m\"]\n{line}\n");
    let p = |line: &str| format!("[providers.ollama]\n{line}\n");
    check(&m("fallback = [\"y\"]"), "nobody serves \"y\"");
    check(&m("fallback = [\"x\"]"), "names the model itself");
    check(&m("fallback = [\"p/*\"]"), "is a pattern");
    check(&m("strategy = \"fastest\""), "is none of");
    check(&m("[smart]\nrules = { chat = \"y\" }"), "nobody serves \"y\"");
    check(&m("[smart]\nweights = { cost = 0.0, latency = 0 }"), "are all 0");
    check(&m("[smart]\nweights = { cost = -1 }"), "a weight of 0 or more");
    check(&m("[[routes]]\nmodel = \"y\""), "nobody serves \"y\"");
    let wide = "[[routes]]\nwhen = { team = \"t\" }\nmodel = \"x\"\n";
    let narrow = "[[routes]]\nwhen = { team = \"t\", tag = \"a\" }\nmodel = \"x\"\n";
    check(&m(&format!("{wide}{narrow}")), "is never reached: rule 1");
    check(
        &m("[[routes]]\nwhen = { endpoint = \"realtime\" }\nmodel = \"x\""),
        "not in this version",
    );
    check(&p("breaker = { error_rate = 1.5 }"), "up to 1");
    check(&p("breaker = { probes = 0 }"), "is not within");
    check(&p("breaker = { open_for = \"0s\" }"), "zero is no wait");
    check(&p("cooldown = { rate = \"off\" }"), "no duration");
}
