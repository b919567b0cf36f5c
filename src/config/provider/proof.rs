//! Credentials of several parts: AWS keys, service accounts of Google's, key pairs of Baidu's.

use super::place;
use crate::base::{Aws, Base, Credential, Grant, Lease, Proof, Secret};
use crate::config::secret;
use crate::config::value::View;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::sync::Arc;

/// Where Baidu gives tokens, at the host of its first API (cloud.baidu.com, access_token).
const BAIDU_TOKENS: &str = "/oauth/2.0/token";

/// What the table of one credential says. `v` is its provider.
pub(super) fn proof(v: &View<'_>, table: &View<'_>) -> Option<Proof> {
    let has = |key: &str| table.get(key).is_some();
    let forms = [
        has("value"),
        has("access_key_id") || has("secret_access_key") || has("session_token"),
        has("service_account"),
        has("api_key") || has("secret_key"),
    ];
    if forms.iter().filter(|form| **form).count() != 1 {
        table.complain(
            "a credential is either a `value`, or access_key_id and secret_access_key, or a \
             service_account, or api_key and secret_key",
        );
        return None;
    }
    match forms {
        [true, ..] => part(table, "value").map(Proof::Bare),
        [_, true, ..] => aws(v, table),
        [_, _, true, _] => google(table),
        _ => baidu(v, table),
    }
}

/// One part, which must be there.
fn part(table: &View<'_>, key: &str) -> Option<Secret> {
    if table.get(key).is_none() {
        table.complain(format!("a credential of these parts needs its `{key}`"));
    }
    secret::secret(table.book, table.place(key), &table.key(key), table.text(key)?)
}

fn aws(v: &View<'_>, table: &View<'_>) -> Option<Proof> {
    // No secret: it stands in every request.
    let id = table.text("access_key_id").and_then(|text| {
        secret::value(table.book, table.place("access_key_id"), &table.key("access_key_id"), text)
    });
    if table.get("access_key_id").is_none() {
        table.complain("a credential of these parts needs its `access_key_id`");
    }
    let secret_access_key = part(table, "secret_access_key");
    let session_token = match table.get("session_token") {
        Some(_) => Some(part(table, "session_token")?),
        None => None,
    };
    let region = place(v, "region", "keys that sign are good for one region");
    let (id, secret_access_key, region) = (id?, secret_access_key?, region?);
    let access_key_id = id.to_string();
    Some(Proof::Aws(Arc::new(Aws { access_key_id, secret_access_key, session_token, region })))
}

/// The file that Google makes for a service account (RFC 7523 grants; cloud.google.com/iam/docs).
#[derive(Deserialize)]
struct Account {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: String,
    project_id: Option<String>,
}

/// The account in a credential's `service_account`; its faults are told where `table` is compiled.
fn account(table: &View<'_>) -> Option<Result<Account, String>> {
    let (at, key) = (table.place("service_account"), table.key("service_account"));
    let text = secret::document(table.book, at, &key, table.text("service_account")?)?;
    // serde's words could quote the key
    Some(serde_json::from_str(&text).map_err(|_| {
        "is no service account: JSON with client_email, private_key and token_uri is needed".into()
    }))
}

fn google(table: &View<'_>) -> Option<Proof> {
    let fault = |why: &str| table.fault("service_account", why);
    let account = match account(table)? {
        Ok(account) => account,
        Err(why) => {
            fault(&why);
            return None;
        }
    };
    let at = match super::parse_base(&account.token_uri) {
        Ok(at) => at,
        Err(why) => {
            fault(&format!("its token_uri {why}"));
            return None;
        }
    };
    let key: String =
        account.private_key.lines().filter(|line| !line.starts_with("-----")).collect();
    let sound = |der: &Vec<u8>| ring::rsa::KeyPair::from_pkcs8(der).is_ok();
    if !STANDARD.decode(&key).as_ref().is_ok_and(sound) {
        fault("its private_key is no RSA key of 2048 to 4096 bits in PKCS#8");
        return None;
    }
    Some(Proof::Lease(Arc::new(Lease::new(Grant::Google {
        at,
        audience: account.token_uri,
        email: account.client_email,
        key_id: account.private_key_id,
        project: account.project_id,
        key: Secret::new(&key),
    }))))
}

fn baidu(v: &View<'_>, table: &View<'_>) -> Option<Proof> {
    let (api_key, secret_key) = (part(table, "api_key"), part(table, "secret_key"));
    let at = super::base(v, None)?;
    let at = Base { path: BAIDU_TOKENS.into(), ..at };
    let (api_key, secret_key) = (api_key?, secret_key?);
    Some(Proof::Lease(Arc::new(Lease::new(Grant::Baidu { at, api_key, secret_key }))))
}

/// The project of the first account among credentials.
pub(super) fn project(credentials: &[Arc<Credential>]) -> Option<&str> {
    credentials.iter().find_map(|credential| match &credential.proof {
        Proof::Lease(lease) => match &lease.grant {
            Grant::Google { project, .. } => project.as_deref(),
            Grant::Baidu { .. } => None,
        },
        Proof::Bare(_) | Proof::Aws(_) => None,
    })
}
