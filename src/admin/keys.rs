//! `/admin/v1/keys`: virtual keys of the store; those of config are read-only here.

use super::{Admin, answer::error, answer::json};
use crate::base::Secret;
use crate::config::duration;
use crate::flow::keyring::{Error, Keyring};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::time::Duration;

/// Nothing has changed.
const LOOKED: (StatusCode, bool) = (StatusCode::OK, false);
/// Something has, which other nodes are to hear of.
const DONE: (StatusCode, bool) = (StatusCode::OK, true);

pub(super) fn routes() -> Router<Admin> {
    Router::new()
        .route("/keys", get(list).post(create))
        .route("/keys/{name}", get(show).delete(delete))
        .route("/keys/{name}/{action}", post(act))
}

async fn list(State(admin): State<Admin>) -> Response {
    let all = move |ring: &Keyring<'_>| Ok(serde_json::json!({ "keys": ring.list()? }));
    run(admin, LOOKED, all).await
}

async fn show(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    run(admin, LOOKED, move |ring| ring.show(&name)).await
}

/// `{"name", …}` with what a table of `[keys]` would say; the answer has the secret, this once.
async fn create(State(admin): State<Admin>, body: Bytes) -> Response {
    let make = move |ring: &Keyring<'_>| {
        let mut said = object(&body)?;
        let Some(Value::String(name)) = said.remove("name") else {
            return Err(Error::Bad("a `name` is needed".into()));
        };
        ring.create(&name, said).map(with_secret)
    };
    run(admin, (StatusCode::CREATED, true), make).await
}

async fn delete(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    let forget = move |ring: &Keyring<'_>| {
        ring.delete(&name)?;
        Ok(serde_json::json!({"name": name, "deleted": true}))
    };
    run(admin, DONE, forget).await
}

async fn act(
    State(admin): State<Admin>,
    Path((name, action)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    let act = move |ring: &Keyring<'_>| match action.as_str() {
        "enable" => ring.enable(&name, true),
        "disable" => ring.enable(&name, false),
        "rotate" => ring.rotate(&name, grace(&body)?).map(with_secret),
        _ => Err(Error::Bad("a key takes enable, disable and rotate".into())),
    };
    run(admin, DONE, act).await
}

/// `{"grace":"24h"}`, or nothing.
fn grace(body: &Bytes) -> Result<Duration, Error> {
    if body.is_empty() {
        return Ok(Duration::ZERO);
    }
    match object(body)?.get("grace") {
        None => Ok(Duration::ZERO),
        Some(Value::String(text)) => duration(text).map_err(Error::Bad),
        Some(_) => Err(Error::Bad("`grace` is a duration such as \"24h\"".into())),
    }
}

fn object(body: &Bytes) -> Result<Map<String, Value>, Error> {
    serde_json::from_slice(body).map_err(|e| Error::Bad(format!("a JSON object is needed: {e}")))
}

fn with_secret((mut key, secret): (Value, Secret)) -> Value {
    key["secret"] = Value::from(secret.expose());
    key
}

/// Works on a thread that may wait for the disk. What has changed is in force here before it is
/// answered.
async fn run<F>(admin: Admin, (done, changes): (StatusCode, bool), work: F) -> Response
where
    F: FnOnce(&Keyring<'_>) -> Result<Value, Error> + Send + 'static,
{
    let (gateway, hands) = (admin.gateway.clone(), admin.hands.clone());
    let worked = tokio::task::spawn_blocking(move || {
        let snapshot = gateway.snapshot.load_full();
        let made = work(&Keyring { snapshot: &snapshot, now: Timestamp::now() });
        gateway.refresh_keys();
        if changes && made.is_ok() {
            // Whoever asked does not wait for the others.
            tokio::task::spawn_blocking(move || (hands.changed)());
        }
        made
    });
    match worked.await {
        Ok(Ok(value)) => (done, [("cache-control", "no-store")], axum::Json(value)).into_response(),
        Ok(Err(fault)) => refused(&fault),
        Err(fault) => json(StatusCode::INTERNAL_SERVER_ERROR, &fault.to_string()),
    }
}

fn refused(fault: &Error) -> Response {
    let (status, code) = match fault {
        Error::Bad(_) | Error::Faults(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
        Error::Missing(_) => (StatusCode::NOT_FOUND, "not_found"),
        Error::Taken(_) => (StatusCode::CONFLICT, "already_exists"),
        Error::InFile(_) => (StatusCode::CONFLICT, "defined_in_file"),
        Error::Store(_) | Error::Sql(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
    };
    error(status, code, &fault.to_string())
}
