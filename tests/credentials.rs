//! Credentials of several parts, through the binary: keys that sign, accounts and pairs of keys
//! that are exchanged for tokens in the background.

use crate::harness::binary::Tables;
use crate::harness::{Action, Provider, Script, Weir, chat, found, provider, toml};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::sign::Verifier;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir::demo::Seen;
use weir_filters::sign;

/// A provider's table behind the model `m`, with these lines.
fn config(preset: &str, lines: &str) -> String {
    let table = format!("[providers.a]\npreset = \"{preset}\"\n{lines}\n");
    [&table, toml::model("m", &["a/up-model"]).as_str(), toml::key().as_str()].concat()
}

/// Answers an exchange with token after token, each living `life` seconds; the chat with `reply`,
/// or 401 while the token is one that was `withdrawn`.
fn exchanging(life: u64, withdrawn: usize, reply: Value) -> (Script, Arc<AtomicUsize>) {
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    let script: Script = Arc::new(move |request| {
        if request.route().ends_with("/token") {
            let n = count.fetch_add(1, Ordering::SeqCst) + 1;
            let token = json!({"access_token": format!("token-{n}"), "expires_in": life});
            return vec![Action::json(200, &token)];
        }
        let shown = format!("{} {}", request.path, request.header("authorization").unwrap_or(""));
        let old = (1..=withdrawn).any(|n| shown.contains(&format!("token-{n}")));
        match old {
            true => vec![Action::json(401, &json!({"error": {"message": "expired"}}))],
            false => vec![Action::json(200, &reply)],
        }
    });
    (script, given)
}

fn gemini_reply() -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]},
        "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3,
        "candidatesTokenCount": 1, "totalTokenCount": 4}})
}

fn exchanges(a: &Provider) -> Vec<Seen> {
    let all = a.requests().into_iter();
    all.filter(|seen| seen.request.route().ends_with("/token")).collect()
}

fn chats(a: &Provider) -> Vec<Seen> {
    let all = a.requests().into_iter();
    all.filter(|seen| !seen.request.route().ends_with("/token")).collect()
}

/// A service account as Google writes its file, and its public key.
fn account(folder: &Path, token_uri: &str) -> (String, PKey<openssl::pkey::Private>) {
    let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    let pem = String::from_utf8(key.private_key_to_pem_pkcs8().unwrap()).unwrap();
    let file = folder.join("account.json");
    let account = json!({"type": "service_account", "project_id": "proj-7",
        "private_key_id": "kid-1", "private_key": pem, "client_email": "robot@proj-7.example",
        "token_uri": token_uri});
    std::fs::write(&file, serde_json::to_string_pretty(&account).unwrap()).unwrap();
    (file.display().to_string(), key)
}

#[tokio::test]
async fn bedrock_requests_are_signed_as_they_are_sent() {
    let reply = json!({"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}},
        "stopReason": "end_turn", "usage": {"inputTokens": 3, "outputTokens": 1, "totalTokens": 4}});
    let a = provider(Arc::new(move |_| vec![Action::json(200, &reply)])).await;
    let url = a.url();
    let lines = format!(
        "base_url = \"{url}\"\nregion = \"eu-west-1\"\napi_keys = [{{ name = \"aws\", \
         access_key_id = \"AKIAPLANTED\", secret_access_key = \"env:AWS_SECRET\", \
         session_token = \"env:AWS_SESSION\" }}]"
    );
    let text = config("bedrock", &lines).replace("a/up-model", "a/amazon.nova-2-lite-v1:0");
    let env = [("AWS_SECRET", "planted-secret-key"), ("AWS_SESSION", "planted-session")];
    let weir = Weir::with(&text, Tables::default(), &env).await;
    let got = weir.ask(&chat()).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    let seen = a.requests().pop().unwrap().request;
    assert!(seen.path.ends_with("/model/amazon.nova-2-lite-v1%3A0/converse"), "{}", seen.path);
    assert_eq!(seen.header("x-amz-security-token"), Some("planted-session"));
    let date = seen.header("x-amz-date").unwrap();
    let stamp = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", date).unwrap();
    let time = jiff::tz::TimeZone::UTC.to_timestamp(stamp).unwrap().as_second();
    let headers = [("host", seen.header("host").unwrap()), ("content-type", "application/json")];
    let request = sign::Request {
        method: "POST",
        path: &seen.path,
        query: "",
        headers: &headers,
        body: std::slice::from_ref(&seen.body),
    };
    let keys = sign::Credentials {
        access_key: "AKIAPLANTED",
        secret_key: "planted-secret-key",
        session_token: Some("planted-session"),
    };
    let scope = sign::Scope { region: "eu-west-1", service: "bedrock" };
    let wanted = sign::sign(&request, &keys, scope, u64::try_from(time).unwrap());
    let wanted = wanted.iter().find(|(name, _)| *name == "authorization").unwrap();
    assert_eq!(seen.header("authorization"), Some(wanted.1.as_str()));
    let events = weir.events(1).await;
    assert_eq!(
        (events[0]["provider"].as_str(), events[0]["credential"].as_str()),
        (Some("a"), Some("aws"))
    );
    let said = weir.stderr();
    assert!(!said.contains("planted-secret-key") && !said.contains("planted-session"));
}

#[tokio::test]
async fn a_service_account_signs_a_claim_and_its_token_bears_every_request() {
    let (script, given) = exchanging(3_600, 0, gemini_reply());
    let a = provider(script).await;
    let dir = tempfile::tempdir().unwrap();
    let host = a.url().trim_end_matches("/v1").to_owned();
    let (file, key) = account(dir.path(), &format!("{host}/token"));
    let lines = format!(
        "base_url = \"{host}/v1/projects/{{project}}/locations/{{location}}\"\n\
         api_keys = [{{ service_account = \"file:{file}\" }}]"
    );
    let weir = Weir::start(&config("vertex", &lines)).await;
    for _ in 0..3 {
        let got = weir.ask(&chat()).await;
        assert_eq!(got.status(), 200, "{}", got.text());
    }
    assert_eq!(given.load(Ordering::SeqCst), 1, "one token serves them all");
    for seen in chats(&a) {
        assert_eq!(seen.request.header("authorization"), Some("Bearer token-1"));
        assert_eq!(
            seen.request.path,
            "/v1/projects/proj-7/locations/global/publishers/google/models/up-model:generateContent"
        );
    }
    let form = String::from_utf8(exchanges(&a)[0].request.body.to_vec()).unwrap();
    let (grant, jwt) = form.split_once("&assertion=").unwrap();
    assert_eq!(grant, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer");
    let (signed, signature) = jwt.rsplit_once('.').unwrap();
    let mut verifier = Verifier::new(MessageDigest::sha256(), &key).unwrap();
    verifier.update(signed.as_bytes()).unwrap();
    assert!(verifier.verify(&URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap());
    let part = |at: usize| -> Value {
        let text = signed.split('.').nth(at).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    assert_eq!(part(0), json!({"alg": "RS256", "typ": "JWT", "kid": "kid-1"}));
    let claim = part(1);
    assert_eq!(
        (&claim["iss"], &claim["aud"]),
        (&json!("robot@proj-7.example"), &json!(format!("{host}/token")))
    );
    assert_eq!(claim["exp"].as_u64().unwrap() - claim["iat"].as_u64().unwrap(), 3_600);
}

#[tokio::test]
async fn a_token_is_renewed_before_its_end_without_a_request() {
    let (script, given) = exchanging(2, 0, gemini_reply());
    let a = provider(script).await;
    let dir = tempfile::tempdir().unwrap();
    let host = a.url().trim_end_matches("/v1").to_owned();
    let (file, _) = account(dir.path(), &format!("{host}/token"));
    let lines =
        format!("base_url = \"{host}\"\napi_keys = [{{ service_account = \"file:{file}\" }}]");
    let weir = Weir::start(&config("vertex", &lines)).await;
    found("a second token", || (given.load(Ordering::SeqCst) >= 2).then_some(())).await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    assert!(!chats(&a)[0].request.header("authorization").unwrap().ends_with("token-1"));
}

#[tokio::test]
async fn a_withdrawn_token_is_fetched_anew_and_the_caller_sees_nothing_of_it() {
    let (script, given) = exchanging(3_600, 1, gemini_reply());
    let a = provider(script).await;
    let dir = tempfile::tempdir().unwrap();
    let host = a.url().trim_end_matches("/v1").to_owned();
    let (file, _) = account(dir.path(), &format!("{host}/token"));
    let lines =
        format!("base_url = \"{host}\"\napi_keys = [{{ service_account = \"file:{file}\" }}]");
    let weir = Weir::start(&config("vertex", &lines)).await;
    let got = weir.ask(&chat()).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert_eq!(given.load(Ordering::SeqCst), 2);
    let shown: Vec<_> =
        chats(&a).iter().map(|s| s.request.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(shown, ["Bearer token-1", "Bearer token-2"]);
}

#[tokio::test]
async fn a_pair_of_keys_is_exchanged_at_its_provider_s_host_and_travels_in_the_query() {
    let reply = json!({"id": "as-1", "result": "hello", "is_truncated": false,
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}});
    let (script, _) = exchanging(2_592_000, 0, reply);
    let a = provider(script).await;
    let host = a.url().trim_end_matches("/v1").to_owned();
    let lines = format!(
        "base_url = \"{host}/rpc/2.0/ai_custom/v1/wenxinworkshop\"\n\
         api_keys = [{{ api_key = \"planted-ak\", secret_key = \"env:SK\" }}]"
    );
    let weir =
        Weir::with(&config("qianfan-v1", &lines), Tables::default(), &[("SK", "planted-sk")]).await;
    let got = weir.ask(&chat()).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    let exchange = exchanges(&a).remove(0).request;
    assert_eq!(exchange.route(), "/oauth/2.0/token");
    assert_eq!(
        exchange.body,
        "grant_type=client_credentials&client_id=planted-ak&client_secret=planted-sk".as_bytes()
    );
    let path = chats(&a)[0].request.path.clone();
    assert!(path.ends_with("/chat/up_model?access_token=token-1"), "{path}");
    assert!(!weir.stderr().contains("planted-sk"));
}

#[tokio::test]
async fn an_exchange_that_is_refused_is_our_own_failure_and_never_the_caller_s() {
    let a =
        provider(Arc::new(|_| vec![Action::json(401, &json!({"error": "invalid_client"}))])).await;
    let host = a.url().trim_end_matches("/v1").to_owned();
    let lines = format!(
        "base_url = \"{host}\"\napi_keys = [{{ api_key = \"ak\", secret_key = \"planted-sk\" }}]"
    );
    let weir = Weir::start(&config("qianfan-v1", &lines)).await;
    found("a refused exchange", || weir.stderr().contains("token_failed").then_some(())).await;
    let got = weir.ask(&chat()).await;
    assert_eq!((got.status(), got.json()["error"]["code"].as_str()), (502, Some("upstream_auth")));
    assert!(weir.stderr().contains("invalid_client") && !weir.stderr().contains("planted-sk"));
    assert_eq!(chats(&a).len(), 0, "nobody was asked without a token");
}
