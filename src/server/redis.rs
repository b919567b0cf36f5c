//! Redis: a thread of its own keeps the connection and tells it what is settled.

use crate::flow::Gateway;
use crate::limit::{Hooks, Settings, client};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a start waits for Redis before it counts by itself.
const START_MAX: Duration = Duration::from_secs(1);
/// How long a way out waits until Redis has heard of everything.
const LEAVE_MAX: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);
/// Holds outlive the longest request by so much.
const SPARE: Duration = Duration::from_secs(60);
/// A request without a time limit is thought to be over after a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Connects where config says so. Redis away is no reason not to start.
pub(super) fn start(gateway: &Arc<Gateway>) -> Result<(), String> {
    let snapshot = gateway.snapshot.load();
    let Some(redis) = &snapshot.redis else { return Ok(()) };
    let password = redis.password.as_ref().map(|p| p.expose());
    let client = client(redis.url.expose(), redis.username.as_deref(), password)?;
    let totals = snapshot.routes.providers.values().map(|p| p.timeouts.total.unwrap_or(LONGEST));
    let settings = Settings {
        prefix: redis.prefix.clone(),
        timeout: redis.timeout,
        hold: totals.max().unwrap_or(LONGEST) + SPARE,
    };
    let (alerts, calls) = (gateway.clone(), gateway.clone());
    let hooks = Hooks {
        alert: Box::new(move |alert| alerts.alert(alert)),
        called: Box::new(move |time| match time {
            Some(time) => calls.metrics.limits.redis_answered(time),
            None => calls.metrics.limits.redis_failed(),
        }),
    };
    let keep = gateway.limits.share(client, settings, hooks);
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(keep),
            Err(error) => log::error!("cannot start the redis thread: {error}"),
        }
    };
    let made = thread::Builder::new().name("weir-redis".into()).spawn(work);
    made.map_err(|error| error.to_string())?;
    let begun = Instant::now();
    while gateway.limits.redis_up() != Some(true) {
        if begun.elapsed() > START_MAX {
            log::warn!("redis does not answer: this node counts by itself until it does");
            break;
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until Redis has heard of everything that was settled, but not for ever.
pub(super) fn finish(gateway: &Gateway) {
    let begun = Instant::now();
    while gateway.limits.unsettled() > 0 && gateway.limits.redis_up() == Some(true) {
        if begun.elapsed() > LEAVE_MAX {
            log::warn!("redis has not heard of every request that was settled");
            return;
        }
        thread::sleep(LOOK);
    }
}
