//! `/admin/v1/usage` and `/admin/v1/events`: what the ledger says.

use super::{Admin, answer::error, answer::json};
use crate::config::Store;
use crate::meter::report::{self, Error, Format, Query as Asked};
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json as object;

pub(super) fn routes() -> Router<Admin> {
    Router::new().route("/usage", get(usage)).route("/events", get(events))
}

/// What `weir report` takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Usage {
    by: Option<String>,
    since: Option<String>,
    until: Option<String>,
    currency: Option<String>,
}

/// The report's JSON.
async fn usage(State(admin): State<Admin>, Query(asked): Query<Usage>) -> Response {
    let snapshot = admin.gateway.snapshot.load_full();
    let read = move |store: &Store| {
        let now = Timestamp::now();
        let query = Asked {
            by: report::columns(asked.by.as_deref().unwrap_or("team,model"))?,
            format: Format::Json,
            currency: report::currency(asked.currency.as_deref(), &snapshot.currencies)?,
            ..Asked::default()
        };
        let query = query.within(asked.since.as_deref(), asked.until.as_deref(), now)?;
        report::report(&store.path, &store.spool, &query)
    };
    match run(&admin, read).await {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(response) => response,
    }
}

/// The newest events, or those that a filter names, newest first.
async fn events(State(admin): State<Admin>, Query(asked): Query<report::Filter>) -> Response {
    match run(&admin, move |store| report::events(&store.path, &asked, Timestamp::now())).await {
        Ok(events) => json(StatusCode::OK, &object!({ "events": events })),
        Err(response) => response,
    }
}

/// Reads on a thread that may wait for the disk.
async fn run<T: Send + 'static>(
    admin: &Admin,
    read: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
) -> Result<T, Response> {
    let store = admin.gateway.snapshot.load().store.clone();
    let done = tokio::task::spawn_blocking(move || read(&store)).await;
    let fault = match done {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(fault)) => fault,
        Err(fault) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return Err(error(status, "internal", &fault.to_string()));
        }
    };
    let (status, code) = match &fault {
        Error::Usage(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
        Error::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
    };
    Err(error(status, code, &fault.to_string()))
}
