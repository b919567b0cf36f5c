//! Keys and credentials that were changed at one node, said to all by Redis: each then looks at the
//! store at once. Who hears nothing looks at it several times a second all the same.

use super::reload::Reloads;
use crate::config::{Redis, Snapshot};
use crate::flow::Gateway;
use crate::limit::client;
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// For a connection to be made, and for a word to be said.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// From one connection to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// After so long a silence the connection is made anew: its other end may have vanished without a
/// word.
const SILENCE_MAX: Duration = Duration::from_secs(60);

fn channel(redis: &Redis) -> String {
    format!("{}changed", redis.prefix)
}

fn open(redis: &Redis) -> Result<redis::Client, String> {
    let password = redis.password.as_ref().map(|p| p.expose());
    client(redis.url.expose(), redis.username.as_deref(), password)
}

/// Says to all nodes that the store has changed. Redis away costs a second and is no fault.
pub fn tell(snapshot: &Snapshot) {
    let Some(redis) = &snapshot.redis else { return };
    let say = || {
        let mut connection =
            open(redis)?.get_connection_with_timeout(CONNECT_MAX).map_err(|e| e.to_string())?;
        connection.set_write_timeout(Some(CONNECT_MAX)).map_err(|e| e.to_string())?;
        connection.set_read_timeout(Some(CONNECT_MAX)).map_err(|e| e.to_string())?;
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel(redis)).arg("store");
        publish.query::<u64>(&mut connection).map_err(|e| e.to_string())
    };
    if let Err(error) = say() {
        log::debug!("other nodes are not told of a change: {error}");
    }
}

/// Listens for as long as the process lives.
pub(super) fn spawn(gateway: Arc<Gateway>, reloads: Reloads) {
    let Some(redis) = gateway.snapshot.load().redis.clone() else { return };
    let _thread = super::spawn("weir-changes", move || {
        let made = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match made {
            Ok(runtime) => runtime,
            Err(error) => return log::error!("changes of other nodes are not heard: {error}"),
        };
        runtime.block_on(async {
            loop {
                if let Err(error) = listen(&redis, &gateway, &reloads).await {
                    log::debug!("changes of other nodes are not heard: {error}");
                }
                sleep(PAUSE).await;
            }
        });
    });
}

async fn listen(redis: &Redis, gateway: &Gateway, reloads: &Reloads) -> Result<(), String> {
    let client = open(redis)?;
    let connected = timeout(CONNECT_MAX, client.get_async_pubsub()).await;
    let mut connection = connected.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    connection.subscribe(channel(redis)).await.map_err(|e| e.to_string())?;
    let mut words = connection.into_on_message();
    loop {
        // First for what was said while nobody listened.
        if gateway.look_at_store() {
            log::info!("the vault has changed");
            drop(reloads.ask()); // the reload tells by itself how it went
        }
        let next = poll_fn(|context| Pin::new(&mut words).poll_next(context));
        match timeout(SILENCE_MAX, next).await {
            Ok(Some(_)) => {}
            Ok(None) => return Err("the connection has ended".into()),
            Err(_) => return Ok(()),
        }
    }
}
