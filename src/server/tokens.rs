//! The thread that exchanges credentials for tokens, before their end and after a refusal.

use crate::base::{Lease, Proof, Secret};
use crate::flow::Gateway;
use crate::proxy::outbound::Outbound;
use crate::vault::exchange::{self, Answer};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often it is looked for tokens that are due: a refused one is back within this and an
/// exchange.
const LOOK: Duration = Duration::from_millis(100);
/// The same where no credential is exchanged at all.
const LOOK_SELDOM: Duration = Duration::from_secs(1);

/// Starts it.
pub fn spawn(gateway: &Arc<Gateway>) {
    let gateway = Arc::downgrade(gateway);
    let _thread = super::spawn("weir-tokens", move || {
        let made = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match made {
            Ok(runtime) => runtime,
            Err(error) => return log::error!("no tokens can be fetched: {error}"),
        };
        let outbound = Rc::new(Outbound::default());
        tokio::task::LocalSet::new().block_on(&runtime, async move {
            while let Some(gateway) = gateway.upgrade() {
                let wait = look(&gateway, &outbound);
                drop(gateway);
                tokio::time::sleep(wait).await;
            }
        });
    });
}

/// Begins every exchange that is due.
fn look(gateway: &Gateway, outbound: &Rc<Outbound>) -> Duration {
    let now = Instant::now();
    let mut wait = LOOK_SELDOM;
    gateway.registry.each(|provider, live| {
        for live in &live.credentials {
            let Proof::Lease(lease) = &live.credential.proof else { continue };
            wait = LOOK;
            if lease.begin(now) {
                let (lease, outbound) = (lease.clone(), outbound.clone());
                let names = (provider.to_owned(), live.credential.name.clone());
                tokio::task::spawn_local(async move { fetch(&lease, &outbound, names).await });
            }
        }
    });
    wait
}

async fn fetch(lease: &Lease, outbound: &Outbound, (provider, credential): (String, String)) {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let answer = match exchange::request(&lease.grant, time) {
        Err(why) => Answer::Broken(why),
        Ok(post) => match outbound.post_form(post.at, Secret::expose(&post.body)).await {
            Ok((status, body)) => exchange::answer(status, &body),
            Err(why) => Answer::Broken(why),
        },
    };
    let now = Instant::now();
    let (denied, reason) = match answer {
        Answer::Token(token, life) => {
            let seconds = life.map_or(0, |life| life.as_secs());
            log::debug!(provider, credential, seconds; "token");
            return lease.granted(token, life, now);
        }
        Answer::Denied(why) => (true, why),
        Answer::Broken(why) => (false, why),
    };
    let seconds = lease.failed(denied, now).as_secs();
    log::warn!(provider, credential, reason, seconds; "token_failed");
}
