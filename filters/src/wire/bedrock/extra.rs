//! `additionalModelRequestFields`: what one family of models takes and Converse has no member for.

use super::Family;
use super::turns::Prompt;
use crate::chat::Chat;
use crate::chat::raw::{Members, put_raw};
use crate::wire::anthropic::{budget, forced};
use crate::wire::claude::Claude;
use crate::wire::edit::note;
use serde_json::value::RawValue;

/// What Claude writes at most where the caller set no limit, for sharing it with its thoughts.
const OUTPUT_ASSUMED: u64 = 20_000;

/// The fields on their way.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// Name and raw value.
    fields: Vec<(String, String)>,
    /// The model will think, so it takes no sampling.
    pub thinks: bool,
}

impl Extra {
    /// Reads what of the request belongs here; names what no model of the family takes.
    pub fn of(
        (family, claude): (Family, Claude),
        chat: &Chat<'_>,
        prompt: &Prompt<'_>,
        dropped: &mut Vec<String>,
    ) -> Self {
        let mut extra = Self::default();
        let rest = |name: &str| chat.rest.iter().find(|(n, _)| *n == name).map(|(_, raw)| *raw);
        let native = rest("additionalModelRequestFields").and_then(|raw| Members::of(raw.get()));
        for (name, raw) in native.unwrap_or_default().0 {
            extra.put(&name, raw.get());
        }
        if let Some(thinking) = rest("thinking") {
            extra.thinking(family, thinking, dropped);
        }
        if let Some(effort) = chat.reasoning_effort.as_deref() {
            match family {
                Family::Claude if !claude.budgets => extra.adaptive(effort, chat, dropped),
                _ => extra.effort(family, effort, chat, prompt, dropped),
            }
        }
        match (rest("top_k"), family) {
            (None, _) => {}
            (Some(_), Family::Claude) if extra.thinks || !claude.samples => note(dropped, "top_k"),
            (Some(top_k), Family::Claude) => extra.put("top_k", top_k.get()),
            (Some(top_k), Family::Nova | Family::NovaTwo) if !extra.has("inferenceConfig") => {
                extra.put("inferenceConfig", &format!(r#"{{"topK":{}}}"#, top_k.get()));
            }
            _ => note(dropped, "top_k"),
        }
        extra
    }

    /// The object, where there is anything in it.
    pub fn written(self) -> Option<String> {
        let mut out = b"{".to_vec();
        for (name, raw) in &self.fields {
            put_raw(&mut out, name, raw);
        }
        out.push(b'}');
        String::from_utf8(out).ok().filter(|_| !self.fields.is_empty())
    }

    fn put(&mut self, name: &str, raw: &str) {
        self.fields.push((name.to_owned(), raw.to_owned()));
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(n, _)| n == name)
    }

    /// The caller's own, as Messages has it.
    fn thinking(&mut self, family: Family, raw: &RawValue, dropped: &mut Vec<String>) {
        if family != Family::Claude || self.has("thinking") {
            return note(dropped, "thinking");
        }
        let members = Members::of(raw.get()).unwrap_or_default();
        self.thinks = members.text("type").is_some_and(|kind| &*kind != "disabled");
        self.put("thinking", raw.get());
    }

    /// Claude without a budget; the effort holds without thinking too.
    fn adaptive(&mut self, effort: &str, chat: &Chat<'_>, dropped: &mut Vec<String>) {
        let Some(level) = Claude::effort(effort).filter(|_| !self.has("output_config")) else {
            if effort != "none" {
                note(dropped, "reasoning_effort");
            }
            return;
        };
        self.put("output_config", &format!(r#"{{"effort":"{level}"}}"#));
        if !forced(chat) && !self.has("thinking") {
            self.put("thinking", r#"{"type":"adaptive"}"#);
            self.thinks = true;
        }
    }

    fn effort(
        &mut self,
        family: Family,
        effort: &str,
        chat: &Chat<'_>,
        prompt: &Prompt<'_>,
        dropped: &mut Vec<String>,
    ) {
        let level = match effort {
            "minimal" | "low" => "low",
            "medium" => "medium",
            "high" | "xhigh" | "max" => "high",
            "none" => return,
            _ => return note(dropped, "reasoning_effort"),
        };
        match family {
            // A forced tool choice is what the caller's code relies on, so the effort gives way.
            Family::Claude if prompt.may_think() && !forced(chat) && !self.has("thinking") => {
                match budget(effort, chat.max_tokens.unwrap_or(OUTPUT_ASSUMED)) {
                    Some(budget) => {
                        let raw = format!(r#"{{"type":"enabled","budget_tokens":{budget}}}"#);
                        self.put("thinking", &raw);
                        self.thinks = true;
                    }
                    None => note(dropped, "reasoning_effort"),
                }
            }
            Family::NovaTwo if !self.has("reasoningConfig") => {
                let raw = format!(r#"{{"type":"enabled","maxReasoningEffort":"{level}"}}"#);
                self.put("reasoningConfig", &raw);
                // At its highest the model takes no sampling (Nova 2, extended thinking).
                self.thinks = level == "high";
            }
            Family::GptOss if !self.has("reasoning_effort") => {
                self.put("reasoning_effort", &format!("\"{level}\""));
            }
            _ => note(dropped, "reasoning_effort"),
        }
    }
}
