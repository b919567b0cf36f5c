//! Credentials of several parts, the places of a base URL, and a provider's words for failures.

use super::{check, env, lines, sound};
use weir::config;

#[test]
fn credentials_of_several_parts_are_whole_or_faults() {
    let aws =
        |keys: &str| format!("[providers.bedrock]\nregion = \"eu\"\napi_keys = [{{ {keys} }}]\n");
    check(&aws("access_key_id = \"AK\""), "needs its `secret_access_key`");
    check(&aws("secret_access_key = \"env:SET\""), "needs its `access_key_id`");
    check(&aws("value = \"env:SET\", access_key_id = \"AK\""), "a credential is either a `value`");
    check(&aws("name = \"x\""), "a credential is either a `value`");
    let pair = "[providers.qianfan-v1]\napi_keys = [{ api_key = \"env:SET\" }]\n";
    check(pair, "needs its `secret_key`");
    let keys = "api_keys = [{ access_key_id = \"A\", secret_access_key = \"env:SET\" }]\n";
    check(
        &format!("[providers.openai]\n{keys}"),
        "needs a region: keys that sign are good for one",
    );
    check("[providers.bedrock]\napi_keys = [\"env:SET\"]\nregion = \"a b\"\n", "letters, digits");
    let account = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key.json"), text).unwrap();
        let main = "[providers.vertex]\napi_keys = [{ service_account = \"file:key.json\" }]\n";
        std::fs::write(dir.path().join("weir.toml"), main).unwrap();
        let reading = config::read_with(&dir.path().join("weir.toml"), &env);
        lines(&reading.result.err().unwrap_or_default())
    };
    for text in ["", "{}", "sk-planted", r#"{"client_email":"a","private_key":"sk-planted"}"#] {
        let said = account(text);
        assert!(said.contains("service_account") && !said.contains("planted"), "{said}");
    }
    let text = r#"{"client_email":"a","private_key":"sk-planted","token_uri":"https://h/token"}"#;
    let said = account(text);
    assert!(said.contains("is no RSA key") && !said.contains("planted"), "{said}");
}

#[test]
fn words_for_failures_are_known_classes() {
    let p = |row: &str| format!("[providers.ollama.errors]\n{row}\n");
    check(&p("x = \"qota\""), "providers.ollama.errors.x: \"qota\" is none of invalid_request");
    check(&p("x = \"qota\""), "did you mean \"quota\"?");
    check(&p("x = 1"), "a string is needed here");
}

#[test]
fn places_fill_a_base_url() {
    let p = "[providers.vertex]\nauth = \"bearer\"\napi_keys = [\"env:SET\"]\nproject = \"p1\"\n";
    let base = |more: &str| {
        let snapshot = sound(&format!("{p}{more}")).snapshot;
        let base = &snapshot.routes.providers[&"vertex".into()].base;
        (base.host.clone(), base.path.clone())
    };
    let path = |place: &str| format!("/v1/projects/p1/locations/{place}");
    assert_eq!(base(""), ("aiplatform.googleapis.com".into(), path("global")));
    let west = "europe-west4-aiplatform.googleapis.com".to_owned();
    assert_eq!(base("location = \"europe-west4\"\n"), (west, path("europe-west4")));
    check(&p.replace("project = \"p1\"\n", ""), "needs a project: base_url has {project} in it");
}
