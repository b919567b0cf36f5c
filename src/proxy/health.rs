//! Active probes of providers, in the background: no request ever waits for one.

use super::forward;
use super::peer::{self, Left};
use super::resolver::Resolver;
use crate::base::ProviderId;
use crate::flow::Gateway;
use crate::route::Provider;
use crate::route::health::Health;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

/// How often a new config is looked at for providers to probe.
const LOOK: Duration = Duration::from_secs(1);

/// A probe that has ended: whose, and why it failed.
type Ended = (Arc<Provider>, Result<(), String>);

/// Probes every provider that wants it, for as long as this is polled.
pub async fn run(resolver: Arc<Resolver>, gateway: Arc<Gateway>) {
    let connector: Arc<OnceCell<Connector>> = Arc::default();
    let mut due: HashMap<ProviderId, Instant> = HashMap::new();
    let mut running: JoinSet<Ended> = JoinSet::new();
    loop {
        let (now, snapshot) = (Instant::now(), gateway.snapshot.load_full());
        let providers = &snapshot.routes.providers;
        due.retain(|id, _| providers.get(id).is_some_and(|p| p.health.is_some()));
        for (id, provider) in providers {
            let Some(health) = &provider.health else { continue };
            let at = due.entry(id.clone()).or_insert(now);
            if *at <= now {
                // Until it has ended, and for the case that it never tells.
                *at = now + health.every + health.timeout;
                let probe = probe(connector.clone(), resolver.clone(), provider.clone());
                running.spawn(probe);
            }
        }
        let next = due.values().min().map_or(LOOK, |at| at.saturating_duration_since(now));
        tokio::select! {
            () = tokio::time::sleep(next.min(LOOK)) => {}
            Some(ended) = running.join_next() => if let Ok((provider, result)) = ended {
                let now = Instant::now();
                if let Some(wait) = note(&provider, &result, now) {
                    due.insert(provider.id.clone(), now + wait);
                }
            },
        }
    }
}

/// Books a probe and says when the next one is due.
fn note(provider: &Provider, result: &Result<(), String>, now: Instant) -> Option<Duration> {
    let pulse = &provider.live(now).pulse;
    let name = provider.id.as_str();
    match pulse.note(result.is_ok()) {
        Some(true) => log::info!(provider = name; "health_up"),
        Some(false) => {
            let reason = result.as_ref().err().map_or("", String::as_str);
            log::warn!(provider = name, reason; "health_down");
        }
        None => {}
    }
    provider.health.as_ref().map(|health| pulse.wait(health))
}

async fn probe(
    connector: Arc<OnceCell<Connector>>,
    resolver: Arc<Resolver>,
    of: Arc<Provider>,
) -> Ended {
    let result = match &of.health {
        Some(health) => {
            // Made when it is needed: it reads every certificate of the system, which takes longer
            // than others on this thread may wait.
            let made = connector.get_or_try_init(|| async {
                tokio::task::spawn_blocking(|| Connector::new(None)).await
            });
            let connector = match made.await {
                Ok(connector) => connector,
                Err(error) => return (of.clone(), Err(error.to_string())),
            };
            let answer = ask(connector, &resolver, &of, health);
            match tokio::time::timeout(health.timeout, answer).await {
                Ok(Ok(status)) if status < 500 => Ok(()),
                Ok(Ok(status)) => Err(format!("status {status}")),
                Ok(Err(why)) => Err(why),
                Err(_) => Err("no answer in time".into()),
            }
        }
        None => Ok(()),
    };
    (of, result)
}

/// The status of one GET. Its connection is its own, so that it shows what a new one meets.
async fn ask(
    connector: &Connector,
    resolver: &Resolver,
    provider: &Provider,
    health: &Health,
) -> Result<u16, String> {
    let say = |error: Box<pingora::Error>| error.to_string();
    let way = match &provider.through {
        Some(_) => None,
        None => Some(resolver.way(&provider.base).await?),
    };
    let head = forward::probe(provider, &health.path, Instant::now()).map_err(say)?;
    let mut request = RequestHeader::build("GET", b"/", None).map_err(say)?;
    request.set_uri(head.uri);
    for (name, value) in head.headers {
        request.insert_header(name, value).map_err(say)?;
    }
    let peer = peer::peer(provider, way, Left { total: Some(health.timeout), silence: None }, 0);
    let (mut session, _) = connector.get_http_session(&peer).await.map_err(say)?;
    session.write_request_header(Box::new(request)).await.map_err(say)?;
    session.finish_request_body().await.map_err(say)?;
    session.read_response_header().await.map_err(say)?;
    let status = session.response_header().map(|header| header.status.as_u16());
    status.ok_or_else(|| "an answer without a header".into())
}
