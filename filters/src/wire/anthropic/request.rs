//! A chat request as one of Messages: every member mapped, passed, or named as dropped.

use super::turns::Prompt;
use super::{Ask, Outgoing, tools};
use crate::chat::raw::{Members, put_member, put_name, put_raw, put_text, text};
use crate::chat::{Chat, Format, Number};
use crate::error::ApiError;
use crate::wire::claude::Claude;
use crate::wire::edit;
use serde_json::value::RawValue;

/// The version of Messages that this wire is written to.
pub(crate) const VERSION: &str = "2023-06-01";
/// `max_tokens` is required; this is for callers and models that say nothing. Small enough for
/// every model of the family, long enough for most answers.
const MAX_TOKENS_DEFAULT: u64 = 4096;
/// The provider's smallest thinking budget.
const BUDGET_MIN: u64 = 1024;
/// Above this the provider asks for batches, since connections time out before the answer.
const BUDGET_MAX: u64 = 32_000;
/// With thinking, `top_p` is taken from here to 1 (Messages, extended thinking).
const TOP_P_THINKING_MIN: f64 = 0.95;

/// Members of Messages that a caller may send beside OpenAI's. `metadata`, `service_tier` and
/// `output_config` need a look and are not in the list.
const NATIVE: &[&str] =
    &["thinking", "top_k", "cache_control", "container", "context_management", "mcp_servers"];

pub(super) fn build(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let chat = Chat::read(ask.peek)?;
    let mut body = Body::new(&chat, ask)?;
    body.put_all();
    body.out.push(b'}');
    let Body { out, mut dropped, .. } = body;
    let body = edit::edited(out.into(), ask.params, &mut dropped)?;
    let headers = vec![("anthropic-version", VERSION.into())];
    Ok(Outgoing { path: "/messages".into(), headers, body, dropped, strip_usage: false })
}

/// A body on its way.
struct Body<'a> {
    chat: &'a Chat<'a>,
    ask: &'a Ask<'a>,
    prompt: Prompt<'a>,
    max_tokens: u64,
    /// What the model takes.
    model: Claude,
    /// `thinking` as we send it.
    thinking: Option<String>,
    /// `output_config.effort`, where `reasoning_effort` asks for one.
    effort: Option<&'static str>,
    out: Vec<u8>,
    dropped: Vec<String>,
}

impl<'a> Body<'a> {
    fn new(chat: &'a Chat<'a>, ask: &'a Ask<'a>) -> Result<Self, ApiError> {
        let default = if ask.max_output == 0 { MAX_TOKENS_DEFAULT } else { ask.max_output };
        let mut body = Body {
            chat,
            ask,
            prompt: Prompt::of(chat)?,
            max_tokens: chat.max_tokens.unwrap_or(default),
            model: Claude::of(ask.model),
            thinking: None,
            effort: None,
            out: Vec::with_capacity(ask.peek.body.len() + 1024),
            dropped: Vec::new(),
        };
        body.thinking = body.thinking();
        Ok(body)
    }

    fn put_all(&mut self) {
        self.out.push(b'{');
        put_member(&mut self.out, "model", self.ask.model);
        put_raw(&mut self.out, "max_tokens", &self.max_tokens.to_string());
        if self.ask.peek.stream {
            put_raw(&mut self.out, "stream", "true");
        }
        if let Some(thinking) = self.thinking.take() {
            put_raw(&mut self.out, "thinking", &thinking);
            self.put_sampling(true);
        } else {
            self.put_sampling(false);
        }
        self.put_stop();
        self.put_output_config();
        self.put_metadata();
        self.put_rest();
        for name in tools::put(&mut self.out, self.chat, self.model.forced) {
            self.drop(&name);
        }
        self.prompt.put(&mut self.out);
        if self.chat.n.is_some_and(|n| n > 1) {
            self.drop("n");
        }
        edit::note_unread(&mut self.dropped, self.chat, false);
        for name in std::mem::take(&mut self.prompt.dropped) {
            self.drop(&name);
        }
    }

    fn drop(&mut self, name: &str) {
        edit::note(&mut self.dropped, name);
    }

    fn rest(&self, name: &str) -> Option<&'a RawValue> {
        self.chat.rest.iter().find(|(n, _)| *n == name).map(|(_, raw)| *raw)
    }

    /// The caller's own `thinking`, else what `reasoning_effort` comes to. A forced tool choice is
    /// what the caller's code relies on, so there the effort gives way.
    fn thinking(&mut self) -> Option<String> {
        let native = self.rest("thinking");
        let effort = self.chat.reasoning_effort.as_deref();
        if !self.model.budgets && native.is_none() {
            return self.adaptive(effort?);
        }
        let budget = effort.and_then(|effort| budget(effort, self.max_tokens));
        let fits = !tools::forced(self.chat) && self.prompt.may_think();
        let budget = budget.filter(|_| fits && native.is_none());
        if budget.is_none() && effort.is_some_and(|effort| effort != "none") {
            self.drop("reasoning_effort");
        }
        let written = |budget| format!(r#"{{"type":"enabled","budget_tokens":{budget}}}"#);
        native.map(|raw| raw.get().to_owned()).or(budget.map(written))
    }

    /// Thinking of models that take no budget. The effort holds without it too.
    fn adaptive(&mut self, effort: &str) -> Option<String> {
        self.effort = Claude::effort(effort);
        if self.effort.is_none() && effort != "none" {
            self.drop("reasoning_effort");
        }
        self.effort?;
        (!tools::forced(self.chat)).then(|| r#"{"type":"adaptive"}"#.to_owned())
    }

    /// What models without sampling cannot be told; 1 is what they do anyway.
    fn drop_sampling(&mut self) {
        let said = |number: Option<Number<'_>>| number.is_some_and(|n| (n.value - 1.0).abs() > 0.0);
        for (name, lost) in [
            ("temperature", said(self.chat.temperature)),
            ("top_p", said(self.chat.top_p)),
            ("top_k", self.rest("top_k").is_some()),
        ] {
            if lost {
                self.drop(name);
            }
        }
    }

    fn put_sampling(&mut self, thinking_given: bool) {
        if !self.model.samples {
            return self.drop_sampling();
        }
        let native = self.rest("thinking").and_then(|raw| Members::of(raw.get()));
        let off = native.is_some_and(|raw| raw.text("type").as_deref() == Some("disabled"));
        let thinks = thinking_given && !off;
        let mut temperature = self.chat.temperature;
        let mut top_p = self.chat.top_p;
        if thinks {
            temperature = self.drop_number("temperature", temperature, |_| false);
            top_p = self.drop_number("top_p", top_p, |p| p >= TOP_P_THINKING_MIN);
        } else if temperature.is_some_and(|t| t.value >= 1.0) && top_p.is_some() {
            // Newer models take one of the two; 1 is what they do without being told.
            temperature = self.drop_number("temperature", temperature, |_| false);
        } else if temperature.is_some() {
            top_p = self.drop_number("top_p", top_p, |_| false);
        }
        for (name, number) in [("temperature", temperature), ("top_p", top_p)] {
            if edit::put_within(&mut self.out, name, number, ("0", "1")) {
                self.drop(name);
            }
        }
        match self.rest("top_k") {
            Some(_) if thinks => self.drop("top_k"),
            Some(top_k) => put_raw(&mut self.out, "top_k", top_k.get()),
            None => {}
        }
    }

    fn drop_number(
        &mut self,
        name: &str,
        number: Option<Number<'a>>,
        keep: impl Fn(f64) -> bool,
    ) -> Option<Number<'a>> {
        let kept = number.filter(|number| keep(number.value));
        if kept.is_none() && number.is_some() {
            self.drop(name);
        }
        kept
    }

    /// Sequences of white space alone are refused.
    fn put_stop(&mut self) {
        let mut sequences = Vec::new();
        for stop in self.chat.stop.iter().filter(|stop| !stop.trim().is_empty()) {
            if !sequences.is_empty() {
                sequences.push(b',');
            }
            put_text(&mut sequences, stop);
        }
        if !sequences.is_empty() {
            put_name(&mut self.out, "stop_sequences");
            self.out.push(b'[');
            self.out.append(&mut sequences);
            self.out.push(b']');
        }
        if self.chat.stop.iter().any(|stop| !stop.is_empty() && stop.trim().is_empty()) {
            self.drop("stop");
        }
    }

    /// `response_format` joins whatever the caller put into `output_config` itself.
    fn put_output_config(&mut self) {
        let native = self.rest("output_config").and_then(|raw| Members::of(raw.get()));
        let native = native.unwrap_or_default();
        let schema = match self.chat.response_format {
            Some(Format::JsonSchema(Some(schema))) => Some(schema),
            Some(Format::JsonObject | Format::JsonSchema(None)) => {
                self.prompt.ask_for_json();
                None
            }
            _ => None,
        };
        if schema.is_some() && native.get("format").is_some() {
            self.drop("response_format");
        }
        let schema = schema.filter(|_| native.get("format").is_none());
        let effort = self.effort.filter(|_| native.get("effort").is_none());
        if schema.is_none() && native.0.is_empty() && effort.is_none() {
            return;
        }
        put_name(&mut self.out, "output_config");
        self.out.push(b'{');
        for (name, value) in &native.0 {
            put_raw(&mut self.out, name, value.get());
        }
        if let Some(effort) = effort {
            put_member(&mut self.out, "effort", effort);
        }
        if let Some(schema) = schema {
            put_name(&mut self.out, "format");
            self.out.extend_from_slice(br#"{"type":"json_schema""#);
            put_raw(&mut self.out, "schema", schema.get());
            self.out.push(b'}');
        }
        self.out.push(b'}');
    }

    /// Messages knows `user_id` alone in there; OpenAI's free tags would be refused.
    fn put_metadata(&mut self) {
        let metadata = self.rest("metadata");
        let members = metadata.and_then(|raw| Members::of(raw.get())).unwrap_or_default();
        if metadata.is_some() && members.0.iter().any(|(name, _)| &**name != "user_id") {
            self.drop("metadata");
        }
        let Some(user) = members.text("user_id").or(self.chat.user.clone()) else { return };
        put_name(&mut self.out, "metadata");
        self.out.push(b'{');
        put_member(&mut self.out, "user_id", &user);
        self.out.push(b'}');
    }

    fn put_rest(&mut self) {
        for (name, raw) in &self.chat.rest {
            match *name {
                "thinking" | "top_k" | "output_config" | "metadata" => {}
                "service_tier" if is_tier(raw) => put_raw(&mut self.out, name, raw.get()),
                name if NATIVE.contains(&name) => put_raw(&mut self.out, name, raw.get()),
                name => self.drop(name),
            }
        }
    }
}

/// OpenAI's other tiers (`default`, `flex`, `priority`) are none here.
fn is_tier(raw: &RawValue) -> bool {
    text(raw).is_some_and(|tier| matches!(&*tier, "auto" | "standard_only"))
}

/// A share of the output for thinking. `None`: no thinking asked for, an effort that is unknown, or
/// an output too small for the provider's least budget.
pub(in crate::wire) fn budget(effort: &str, max_tokens: u64) -> Option<u64> {
    let tenths = match effort {
        "minimal" => 1,
        "low" => 2,
        "medium" => 5,
        "high" => 8,
        "xhigh" | "max" => 9,
        _ => return None,
    };
    let share = max_tokens.saturating_mul(tenths) / 10;
    let budget = share.clamp(BUDGET_MIN, BUDGET_MAX);
    (budget < max_tokens).then_some(budget)
}
