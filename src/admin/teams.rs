//! `/admin/v1/teams`: what config says of each, and how its limits and budgets stand.

use super::{Admin, answer::error, answer::json};
use crate::flow::standings;
use crate::limit::Scope;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json as object};

pub(super) fn routes() -> Router<Admin> {
    let fixed = || get(list).post(in_file);
    let one = || get(show).put(in_file).patch(in_file).delete(in_file);
    Router::new().route("/teams", fixed()).route("/teams/{name}", one())
}

async fn list(State(admin): State<Admin>) -> Response {
    let snapshot = admin.gateway.snapshot.load_full();
    let teams: Vec<Value> = snapshot.owners.teams().map(|name| team(&admin, name)).collect();
    json(StatusCode::OK, &object!({ "teams": teams }))
}

async fn show(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    if !admin.gateway.snapshot.load().owners.has_team(&name) {
        let why = format!("there is no team {name:?}");
        return error(StatusCode::NOT_FOUND, "not_found", &why);
    }
    json(StatusCode::OK, &team(&admin, &name))
}

async fn in_file() -> Response {
    let why = "teams are defined in a file, and changed there";
    error(StatusCode::CONFLICT, "defined_in_file", why)
}

fn team(admin: &Admin, name: &str) -> Value {
    let snapshot = admin.gateway.snapshot.load_full();
    let minted = admin.gateway.keys.load();
    let all = snapshot.keys.0.values().chain(minted.keys.0.values());
    let mut keys: Vec<&str> = all
        .filter(|key| key.team.as_ref().is_some_and(|team| team.as_str() == name))
        .map(|key| key.name.as_str())
        .collect();
    keys.sort_unstable();
    keys.dedup(); // a key in its days of grace has two secrets
    let (limits, budgets) = standings(&admin.gateway, Scope::Team, name);
    object!({
        "name": name,
        "department": snapshot.owners.department(name),
        "keys": keys,
        "limits": limits,
        "budgets": budgets,
        "source": "file",
    })
}
