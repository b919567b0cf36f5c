//! `/admin/v1/vault`: provider credentials, sealed at rest. No answer ever has a value.

use super::{Admin, answer::error, answer::json};
use crate::vault::{Error, Vault};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json as object};
use zeroize::Zeroizing;

pub(super) fn routes() -> Router<Admin> {
    Router::new()
        .route("/vault", get(list).post(set))
        .route("/vault/{name}", axum::routing::delete(forget))
        .route("/vault/{name}/{action}", post(act))
}

/// What is sealed. Of a rotation the path has the name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    name: Option<String>,
    #[serde(deserialize_with = "hidden")]
    value: Zeroizing<String>,
}

fn hidden<'de, D: Deserializer<'de>>(from: D) -> Result<Zeroizing<String>, D::Error> {
    String::deserialize(from).map(Zeroizing::new)
}

async fn list(State(admin): State<Admin>) -> Response {
    run(admin, (StatusCode::OK, false), |vault| {
        let rows = vault.list()?.into_iter().map(|row| {
            let created = Timestamp::from_microsecond(row.created).ok().map(|at| at.to_string());
            let state = if row.current { "current" } else { "candidate" };
            object!({"name": row.name, "version": row.version, "state": state,
                     "created": created})
        });
        Ok(object!({ "vault": rows.collect::<Vec<_>>() }))
    })
    .await
}

/// `{"name","value"}`: in use at once.
async fn set(State(admin): State<Admin>, body: Bytes) -> Response {
    run(admin, (StatusCode::CREATED, true), move |vault| {
        let sealed = read(&body)?;
        let name = sealed.name.ok_or_else(|| Error::Bad("a `name` is needed".into()))?;
        vault.put(&name, &sealed.value, true, now())?;
        Ok(object!({"name": name, "state": "current"}))
    })
    .await
}

/// `rotate` with `{"value"}` stores a candidate, `promote` puts it in use.
async fn act(
    State(admin): State<Admin>,
    Path((name, action)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    run(admin, (StatusCode::OK, true), move |vault| match action.as_str() {
        "rotate" => {
            vault.put(&name, &read(&body)?.value, false, now())?;
            Ok(object!({"name": name, "state": "candidate"}))
        }
        "promote" => {
            vault.promote(&name)?;
            Ok(object!({"name": name, "state": "current"}))
        }
        _ => Err(Error::Bad("an entry takes rotate and promote".into())),
    })
    .await
}

async fn forget(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    run(admin, (StatusCode::OK, true), move |vault| {
        vault.delete(&name)?;
        Ok(object!({"name": name, "deleted": true}))
    })
    .await
}

fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// The fault repeats nothing of the body.
fn read(body: &Bytes) -> Result<Sealed, Error> {
    let why = "a JSON object with `value` (and `name`, for a new entry) is needed";
    serde_json::from_slice(body).map_err(|_| Error::Bad(why.into()))
}

/// Works on a thread that may wait for the disk.
async fn run<F>(admin: Admin, (done, changes): (StatusCode, bool), work: F) -> Response
where
    F: FnOnce(&Vault) -> Result<Value, Error> + Send + 'static,
{
    let Some(vault) = admin.gateway.snapshot.load().vault.clone() else {
        let why = "there is no [vault] with a `key` in the config";
        return error(StatusCode::CONFLICT, "no_vault", why);
    };
    match tokio::task::spawn_blocking(move || work(&vault)).await {
        Ok(Ok(value)) => {
            if changes {
                // Whoever asked does not wait for the others.
                tokio::task::spawn_blocking(move || (admin.hands.changed)());
            }
            json(done, &value)
        }
        Ok(Err(fault)) => refused(&fault),
        Err(fault) => error(StatusCode::INTERNAL_SERVER_ERROR, "internal", &fault.to_string()),
    }
}

fn refused(fault: &Error) -> Response {
    let (status, code) = match fault {
        Error::Bad(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
        Error::Missing(_) => (StatusCode::NOT_FOUND, "not_found"),
        Error::NoCandidate(_) => (StatusCode::CONFLICT, "no_candidate"),
        Error::WrongKey(_) => (StatusCode::CONFLICT, "wrong_vault_key"),
        Error::Store(_) | Error::Sql(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
    };
    error(status, code, &fault.to_string())
}
