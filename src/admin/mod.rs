//! The control plane: health, metrics and the JSON API on a listener of their own.
//!
//! Health and metrics answer from atomics and need no token; everything under `/admin/v1/` needs
//! `admin.token`, and without one in config there is no such path.

mod answer;
mod door;
mod keys;
mod ledger;
mod teams;
mod vault;
mod views;

use crate::base::Secret;
use crate::config::Fault;
use crate::flow::Gateway;
use crate::observe::Health;
use answer::{error, json, text};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use door::Door;
use ring::{hmac, rand};
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A reload's result.
#[derive(Debug)]
pub enum Reloaded {
    /// The new config is in force.
    Ok {
        /// Its version.
        version: String,
        /// What it changes that only a restart takes over.
        needs_restart: Vec<&'static str>,
    },
    /// The old one stays in force.
    Faults(Vec<Fault>),
    /// There is no file to read, or no time left to.
    Nothing,
}

/// What the API can make the process do.
pub struct Hands {
    /// Reads config again.
    pub reload: Box<dyn Fn() -> oneshot::Receiver<Reloaded> + Send + Sync>,
    /// Tells other nodes that the store has changed; may wait a second.
    pub changed: Box<dyn Fn() + Send + Sync>,
    /// Begins the drain.
    pub drain: Box<dyn Fn() + Send + Sync>,
}

#[derive(Clone)]
struct Admin {
    gateway: Arc<Gateway>,
    hands: Arc<Hands>,
}

/// Serves the admin listener, and the metrics listener where there is one, on a thread of their
/// own until the process ends: they are the last to go.
pub fn spawn(
    gateway: Arc<Gateway>,
    hands: Hands,
    admin: TcpListener,
    metrics: Option<TcpListener>,
) {
    let state = Admin { gateway, hands: Arc::new(hands) };
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async {
                let open = async {
                    match metrics {
                        Some(listener) => serve(listener, None, open_routes(&state)).await,
                        None => std::future::pending().await,
                    }
                };
                // Whether there is TLS is settled at the start; whose it is, at each handshake.
                let secure = state.gateway.snapshot.load().admin.tls.is_some();
                let tls = secure.then(|| state.gateway.clone());
                tokio::join!(serve(admin, tls, routes(&state)), open);
            }),
            Err(error) => log::error!("cannot start the admin thread: {error}"),
        }
    };
    if let Err(error) = std::thread::Builder::new().name("weir-admin".into()).spawn(work) {
        log::error!("cannot start the admin thread: {error}");
    }
}

async fn serve(listener: TcpListener, tls: Option<Arc<Gateway>>, router: Router) {
    let served = match Door::new(listener, tls) {
        Ok(door) => axum::serve(door, router).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        log::error!("the admin listener ended: {error}");
    }
}

/// Health and metrics alone, for scrapers.
fn open_routes(state: &Admin) -> Router {
    Router::new()
        .route("/health/live", get(live))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async { error(StatusCode::NOT_FOUND, "not_found", "no such path") })
        .with_state(state.clone())
}

fn routes(state: &Admin) -> Router {
    let api = Router::new()
        .route("/reload", post(reload))
        .route("/drain", post(drain))
        // Methods that would change them are of a later version.
        .route("/providers", get(providers).fallback(|| async { answer::not_implemented() }))
        .route("/models", get(models).fallback(|| async { answer::not_implemented() }));
    let api = api
        .merge(keys::routes())
        .merge(vault::routes())
        .merge(ledger::routes())
        .merge(teams::routes())
        .method_not_allowed_fallback(|| async {
            let why = "this path takes the methods in `allow` only";
            error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why)
        })
        .fallback(|| async { error(StatusCode::NOT_FOUND, "not_found", "no such path") })
        .layer(from_fn_with_state(state.clone(), authorized))
        .with_state(state.clone());
    open_routes(state).nest("/admin/v1", api).route("/", get(page))
}

async fn live() -> Response {
    json(StatusCode::OK, &serde_json::json!({"status": "live"}))
}

async fn ready(State(admin): State<Admin>) -> Response {
    let health = Health::of(&admin.gateway.metrics.facts());
    let status = if health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &health)
}

async fn metrics(State(admin): State<Admin>) -> Response {
    ([(header::CONTENT_TYPE, METRICS_TYPE)], admin.gateway.metrics.render()).into_response()
}

async fn page() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    text(format!(
        "weir {version}\n\nThe dashboard is not in this version.\n\n\
         /health/live  /health/ready  /metrics\n\
         /admin/v1/keys  /admin/v1/teams  /admin/v1/providers  /admin/v1/models  \
         /admin/v1/vault  /admin/v1/usage  /admin/v1/events  (bearer token)\n\
         POST /admin/v1/reload  POST /admin/v1/drain  (bearer token)\n"
    ))
}

async fn reload(State(admin): State<Admin>) -> Response {
    match (admin.hands.reload)().await {
        Ok(Reloaded::Ok { version, needs_restart }) => json(
            StatusCode::OK,
            &serde_json::json!({"config_version": version, "needs_restart": needs_restart}),
        ),
        Ok(Reloaded::Faults(faults)) => answer::faults(&faults),
        Ok(Reloaded::Nothing) | Err(_) => {
            error(StatusCode::CONFLICT, "nothing_to_reload", "no config file can be read now")
        }
    }
}

async fn drain(State(admin): State<Admin>) -> Response {
    (admin.hands.drain)();
    json(StatusCode::ACCEPTED, &serde_json::json!({"status": "draining"}))
}

async fn providers(State(admin): State<Admin>) -> Response {
    json(StatusCode::OK, &views::providers(&admin.gateway.snapshot.load().routes))
}

async fn models(State(admin): State<Admin>) -> Response {
    json(StatusCode::OK, &views::models(&admin.gateway.snapshot.load().routes))
}

async fn authorized(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let token = admin.gateway.snapshot.load().admin.token.clone();
    let Some(token) = token else {
        let why = "the admin API is off: admin.token is not set";
        return error(StatusCode::NOT_FOUND, "not_found", why);
    };
    let given = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let given = given.and_then(|v| v.split_once(' '));
    let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if given.is_some_and(|(_, secret)| same(&token, secret.trim())) {
        return next.run(request).await;
    }
    let why = "the admin token is missing or wrong";
    let mut refusal = error(StatusCode::UNAUTHORIZED, "invalid_admin_token", why);
    let scheme = header::HeaderValue::from_static("Bearer");
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    refusal
}

/// Compares in a time that tells nothing: tags under a key made for this one comparison.
fn same(token: &Secret, given: &str) -> bool {
    let Ok(key) = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new()) else {
        return false;
    };
    let tag = hmac::sign(&key, token.expose().as_bytes());
    hmac::verify(&key, given.as_bytes(), tag.as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens() {
        let token = Secret::new("admin-secret");
        assert!(same(&token, "admin-secret"));
        for wrong in ["", "admin-secre", "admin-secret ", "Admin-secret"] {
            assert!(!same(&token, wrong), "{wrong:?}");
        }
    }
}
