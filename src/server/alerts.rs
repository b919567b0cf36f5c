//! The thread that tells the webhook: budgets, credentials and breakers, each until it is heard.
//!
//! What happened is posted from here alone, so no request ever waits for a webhook. An alert of a
//! budget is first remembered in the store: it is given once, and what was not heard before a
//! restart is posted after it.

use crate::config::Webhook;
use crate::flow::Gateway;
use crate::flow::alerts::Notice;
use crate::proxy::outbound::Outbound;
use crate::route::breaker::State;
use crate::route::rest::Why;
use crate::store::{self, alerts as rows};
use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked for something to tell.
const LOOK: Duration = Duration::from_millis(200);
/// From one failed post to the next; doubled each time.
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Posts that wait in memory; those of budgets are in the store as well.
const WAITING_MAX: usize = 1_000;
/// Budgets' alerts are remembered for longer than the longest period that begins anew.
const REMEMBER: Duration = Duration::from_secs(400 * 24 * 3600);
/// How often old ones are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(3600);

/// Starts it.
pub fn spawn(gateway: &Arc<Gateway>) {
    let gateway = Arc::downgrade(gateway);
    let _thread = super::spawn("weir-alerts", move || {
        let made = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match made {
            Ok(runtime) => runtime,
            Err(error) => return log::error!("no alerts can be posted: {error}"),
        };
        let mut teller = Teller::default();
        runtime.block_on(async move {
            while let Some(gateway) = gateway.upgrade() {
                teller.look(&gateway).await;
                drop(gateway);
                tokio::time::sleep(LOOK).await;
            }
        });
    });
}

#[derive(Default)]
struct Teller {
    db: Option<Connection>,
    waiting: VecDeque<Notice>,
    /// What an earlier process did not get heard has been read.
    recalled: bool,
    failures: u32,
    next: Option<Instant>,
    forgot: Option<Instant>,
    /// How targets and credentials were at the last look.
    seen: HashMap<(String, String), u8>,
}

impl Teller {
    async fn look(&mut self, gateway: &Gateway) {
        let Some(webhook) = gateway.snapshot.load().webhook.clone() else {
            // Nobody listens; from here on everything counts as new.
            *self = Self::default();
            return;
        };
        self.watch(gateway);
        self.recall(gateway);
        while self.waiting.len() < WAITING_MAX
            && let Some(notice) = gateway.alerts.take()
        {
            match self.is_new(gateway, &notice) {
                Ok(true) => self.waiting.push_back(notice),
                Ok(false) => {}
                // The store is away: it is asked again, in the order of things.
                Err(error) => {
                    log::debug!("alerts wait for the store: {error}");
                    self.db = None;
                    gateway.alerts.push(notice);
                    break;
                }
            }
        }
        self.post(&webhook).await;
    }

    fn store(&mut self, gateway: &Gateway) -> Result<&Connection, store::Error> {
        if self.db.is_none() {
            self.db = Some(store::open(&gateway.snapshot.load().store.path)?);
        }
        let path = || gateway.snapshot.load().store.path.clone();
        self.db.as_ref().ok_or_else(|| store::Error::Busy(path()))
    }

    /// What an earlier process has not got heard, and once an hour what may be forgotten.
    fn recall(&mut self, gateway: &Gateway) {
        let now = Instant::now();
        if self.forgot.is_none_or(|at| now.duration_since(at) >= FORGET_EVERY)
            && let Ok(db) = self.store(gateway)
        {
            let before = Timestamp::now().checked_sub(REMEMBER).unwrap_or_default();
            let _ = rows::forget(db, before.as_microsecond()); // tried again in an hour
            self.forgot = Some(now);
        }
        if self.recalled {
            return;
        }
        let Ok(db) = self.store(gateway) else { return };
        if let Ok(left) = rows::waiting(db, WAITING_MAX) {
            let notice = |row: rows::AlertRow| Notice { id: row.id, body: row.body, once: true };
            self.waiting.extend(left.into_iter().map(notice));
            self.recalled = true;
        }
    }

    fn is_new(&mut self, gateway: &Gateway, notice: &Notice) -> Result<bool, store::Error> {
        if !notice.once {
            return Ok(true);
        }
        let row = rows::AlertRow { id: notice.id.clone(), body: notice.body.clone() };
        let db = self.store(gateway)?;
        let path = &gateway.snapshot.load().store.path;
        let now = Timestamp::now().as_microsecond();
        rows::insert(db, &row, now).map_err(|e| store::Error::of(path, &e))
    }

    /// Posts what waits, in order, until one is not heard.
    async fn post(&mut self, webhook: &Webhook) {
        if self.next.is_some_and(|at| Instant::now() < at) {
            return;
        }
        while let Some(notice) = self.waiting.front() {
            // A new one each time: an address that moved is looked up again.
            let posted = Outbound::default().post_json(&webhook.0, &notice.body).await;
            match posted {
                Ok((200..=299, _)) => {
                    self.failures = 0;
                    self.next = None;
                    if let (true, Some(db)) = (notice.once, &self.db)
                        && let Err(error) =
                            rows::heard(db, &notice.id, Timestamp::now().as_microsecond())
                    {
                        log::warn!("an alert may be posted twice: {error}");
                    }
                    self.waiting.pop_front();
                }
                failed => {
                    let why = match failed {
                        Ok((status, _)) => format!("it answered {status}"),
                        Err(why) => why,
                    };
                    self.failures = self.failures.saturating_add(1);
                    let doubled = BACKOFF * 2u32.saturating_pow(self.failures.min(16) - 1);
                    let wait = doubled.min(BACKOFF_MAX);
                    self.next = Some(Instant::now() + wait);
                    let (host, waiting) = (webhook.0.authority(), self.waiting.len());
                    let seconds = wait.as_secs();
                    log::warn!(host, why, waiting, seconds; "webhook_failed");
                    return;
                }
            }
        }
    }

    /// Tells of breakers that opened or closed, and of credentials that went out or came back.
    fn watch(&mut self, gateway: &Gateway) {
        let (now, wall) = (Instant::now(), Timestamp::now());
        let mut news = Vec::new();
        let seen = &mut self.seen;
        let mut note = |provider: &str, part: String, state: u8| {
            let old = seen.insert((provider.to_owned(), part), state).unwrap_or(0);
            (old != state).then_some(old)
        };
        gateway.registry.each(|provider, live| {
            live.each_target(|model, state| {
                // A probe under way changes nothing yet.
                let Some(open) = settled(state) else { return };
                if note(provider, format!("model {model}"), u8::from(open)).is_some() {
                    let word = if open { "open" } else { "closed" };
                    let text = format!("the breaker of {provider}/{model} is {word}");
                    let what = json!({"provider": provider, "model": model, "state": word});
                    news.push(("breaker", text, what));
                }
            });
            live.each_credential(now, |credential, why| {
                let word = out(why);
                let state = u8::from(word.is_some());
                if note(provider, format!("credential {credential}"), state).is_some() {
                    let word = word.unwrap_or("in use");
                    let text = format!("the credential {credential} of {provider} is {word}");
                    let what =
                        json!({"provider": provider, "credential": credential, "state": word});
                    news.push(("credential", text, what));
                }
            });
        });
        for (kind, text, what) in news {
            gateway.notice(kind, &text, what, wall);
        }
    }
}

/// Whether a breaker is open; `None` while it is being tried.
fn settled(state: State) -> Option<bool> {
    match state {
        State::Closed => Some(false),
        State::HalfOpen => None,
        State::Open => Some(true),
    }
}

/// Why a credential is out, in the words of the alert; one that is merely too fast is not.
fn out(why: Option<Why>) -> Option<&'static str> {
    match why {
        Some(Why::Auth) => Some("refused"),
        Some(Why::Quota) => Some("out of money or quota"),
        Some(Why::Rate | Why::Token) | None => None,
    }
}
