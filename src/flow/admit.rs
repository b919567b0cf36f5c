//! May it, and where to: the checks between a request's head and its first try.

use super::ticket::{Admission, Ticket};
use crate::access::{self, Denied, Key};
use crate::meter::{Admitted, Outcome};
use crate::route::Model;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use weir_filters::error::{ApiError, Code};
use weir_filters::peek::Peek;

/// Models named in an error message; more would be a page, not a hint.
const NAMES_MAX: usize = 20;
/// When a caller may ask again whose key only the store knows.
const AWAY: Duration = Duration::from_secs(1);

impl Ticket {
    /// Finds the caller behind a secret.
    ///
    /// # Errors
    /// 401 in the caller's words. No body has been read by then, and nothing was sent upstream.
    pub fn authenticate(&mut self, secret: Option<&str>) -> Result<(), ApiError> {
        let Some(secret) = secret else {
            let how = "no API key: send it as `Authorization: Bearer …` or `x-api-key`";
            return Err(ApiError::new(Code::InvalidApiKey, how));
        };
        let (hash, now) = (access::hash(secret), self.arrival.ts);
        let found = match self.snapshot.keys.open(&hash, now) {
            Err((Denied::Unknown, _)) => match self.gateway.keys.open(&hash, now) {
                Ok((key, minted)) => {
                    self.minted = Some(minted);
                    Ok(key)
                }
                Err(Some(denied)) => Err(denied),
                Err(None) => {
                    let why = "the store of keys is away, and this API key is none of those known";
                    return Err(ApiError::new(Code::StoreUnavailable, why).after(AWAY));
                }
            },
            found => found,
        };
        match found {
            Ok(key) => {
                self.key = Some(key);
                Ok(())
            }
            Err((denied, key)) => {
                self.key = key;
                Err(match denied {
                    Denied::Unknown => {
                        ApiError::new(Code::InvalidApiKey, "this API key is not known")
                    }
                    Denied::Expired => ApiError::new(Code::KeyExpired, "this API key has expired"),
                    Denied::Disabled => {
                        ApiError::new(Code::KeyDisabled, "this API key is disabled")
                    }
                })
            }
        }
    }

    /// Reads the body, and decides where the request goes.
    ///
    /// # Errors
    /// What the caller is told; nothing was sent upstream.
    pub fn admit(&mut self, body: Bytes, seed: u64) -> Result<(), ApiError> {
        let peek = self.arrival.api.read(body)?;
        self.admit_read(peek, seed)
    }

    /// The same with a body that has been read.
    ///
    /// # Errors
    /// As above.
    pub(super) fn admit_read(&mut self, peek: Peek, seed: u64) -> Result<(), ApiError> {
        self.record.streamed = peek.stream;
        self.record.requested_model = peek.model.clone();
        if let Some(task) = &peek.task_type {
            self.arrival.task_type = Some(task.clone());
        }
        if let Some(tier) = &peek.budget_tier {
            self.arrival.budget_tier = Some(tier.clone());
        }
        let Some(named) = peek.model.as_ref().or(self.snapshot.server.default_model.as_ref())
        else {
            return Err(ApiError::new(Code::InvalidRequest, "no `model`").param("model"));
        };
        let Some(key) = self.key.clone() else {
            return Err(ApiError::new(Code::InvalidApiKey, "no API key"));
        };
        self.check_tier(&key)?;
        if key.end_users {
            self.record.end_user = super::user::end_user(self.arrival.user.as_deref(), &peek);
        }
        let asked = key.aliases.get(named).unwrap_or(named);
        let prompt_tokens = peek.estimate();
        let asked = self.routed(&key, asked, prompt_tokens).unwrap_or_else(|| asked.clone());
        let model = self.model(&key, &asked)?;
        self.govern(&key, &asked);
        let (asked, model, degraded) = self.affordable(&key, asked, model);
        let need = Arc::new(self.need(&peek, &model, prompt_tokens));
        let plan = self.plan(&model, &asked, &need, seed);
        if !plan.has_more() {
            let money = self.taken.priced;
            let why = if money { "its budget is in money" } else { "such are refused here" };
            let why = format!("the model `{asked}` has no price, and {why}");
            return Err(ApiError::new(Code::ModelNotAllowed, why).param("model"));
        }
        self.admission = Some(Admission {
            peek,
            origin: model,
            asked,
            need,
            seed,
            plan,
            fallbacks: 0,
            degraded,
            prompt_tokens,
        });
        self.measure_ask()
    }

    /// The model behind a name, if this key may use it.
    ///
    /// # Errors
    /// 404 when nobody serves it, 403 when it is not for this key.
    pub fn model(&self, key: &Key, asked: &str) -> Result<Arc<Model>, ApiError> {
        let Some(model) = self.snapshot.routes.resolve(asked) else {
            let why = format!("the model `{asked}` does not exist; {}", self.usable(key));
            return Err(ApiError::new(Code::ModelNotFound, why).param("model"));
        };
        if !key.allows(asked) {
            let why = format!("this key may not use the model `{asked}`; {}", self.usable(key));
            return Err(ApiError::new(Code::ModelNotAllowed, why).param("model"));
        }
        Ok(model)
    }

    /// The answer to what needs no provider.
    #[must_use]
    pub fn answered_here(&self) -> Option<Bytes> {
        self.admission.as_ref().and_then(|a| self.arrival.api.local(a.prompt_tokens))
    }

    /// Every model name this key may ask for.
    #[must_use]
    pub fn models(&self, key: &Key) -> Vec<String> {
        let mut names = self.snapshot.routes.names();
        names.retain(|n| key.allows(n));
        names
    }

    fn usable(&self, key: &Key) -> String {
        let names = self.models(key);
        if names.is_empty() {
            return "this key may use no model by name".into();
        }
        let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
        let more = if names.len() > NAMES_MAX { ", …" } else { "" };
        format!("this key may use: {}{more}", shown.join(", "))
    }

    /// A stream is about to go out: its line is written, so that a killed process leaves a trace
    /// of it.
    pub fn announce(&mut self) {
        if !self.record.streamed {
            return;
        }
        let mut event = self.event(Outcome::Interrupted, 499);
        let prompt = self.admission.as_ref().map_or(0, |a| a.prompt_tokens);
        let usage = weir_filters::usage::Usage { input: prompt, ..Default::default() };
        event.set_usage(usage);
        event.cost_nano_usd = self.price().map(|p| p.cost(&usage));
        self.gateway.spool.admit(&Admitted { admitted: Box::new(event) });
    }
}
