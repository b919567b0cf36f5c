//! A chat request as one of generateContent: every member mapped, passed, or named as dropped.

use super::turns::{Model, Prompt};
use super::{Door, tools};
use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw, put_text};
use crate::chat::{Chat, Format};
use crate::error::ApiError;
use crate::wire::edit::{
    edited, note, note_marks, note_thoughts, note_unread, put_within, segment,
};
use crate::wire::{Ask, Outgoing};
use serde_json::value::RawValue;

/// `stopSequences` takes so many (ai.google.dev, GenerationConfig).
const STOPS_MAX: usize = 5;

/// Members of generateContent that a caller may send beside OpenAI's.
const NATIVE: [&str; 3] = ["safetySettings", "cachedContent", "labels"];

/// Members that are the same in `generationConfig` under another name.
const SAME: [(&str, &str); 4] = [
    ("seed", "seed"),
    ("presence_penalty", "presencePenalty"),
    ("frequency_penalty", "frequencyPenalty"),
    ("top_k", "topK"),
];

pub(super) fn build(door: Door, ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let chat = Chat::read(ask.peek)?;
    let generation = Generation::of(ask.model);
    let model = Model {
        signed: generation == Generation::Levels,
        // AI Studio does since January 2026, though not for models before 2.5 (ai.google.dev, file
        // input methods).
        fetches: door == Door::Vertex || generation != Generation::Plain,
    };
    let prompt = Prompt::of(door, model, &chat)?;
    let mut out = Vec::with_capacity(ask.peek.body.len() + 512);
    out.push(b'{');
    prompt.put(&mut out);
    let mut dropped = Vec::new();
    for name in tools::put(&mut out, &chat) {
        note(&mut dropped, &name);
    }
    let mut config = Config { chat: &chat, generation, out: b"{".to_vec(), dropped };
    config.put_all(ask.max_output);
    let Config { out: written, mut dropped, .. } = config;
    if written.len() > 1 {
        put_name(&mut out, "generationConfig");
        out.extend_from_slice(&written);
        out.push(b'}');
    }
    for (name, raw) in chat.rest.iter().filter(|(name, _)| NATIVE.contains(name)) {
        put_raw(&mut out, name, raw.get());
    }
    out.push(b'}');
    note_unread(&mut dropped, &chat, false);
    note_marks(&mut dropped, &chat);
    note_thoughts(&mut dropped, &chat);
    prompt.dropped.iter().for_each(|name| note(&mut dropped, name));
    let body = edited(out.into(), ask.params, &mut dropped)?;
    let path = whole_path(door, ask);
    Ok(Outgoing { path, headers: Vec::new(), body, dropped, strip_usage: false })
}

/// `alt=sse` gives events; without it a stream is one JSON array.
fn whole_path(door: Door, ask: &Ask<'_>) -> String {
    let method = if ask.peek.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    match door {
        Door::Studio => path(ask.model, method),
        Door::Vertex => vertex_path(ask, method),
    }
}

/// Vertex has the models of several publishers, one of which the base URL may name already.
pub(crate) fn vertex_path(ask: &Ask<'_>, method: &str) -> String {
    let named = ask.base_url.contains("/publishers/");
    let publisher = if named { "" } else { "/publishers/google" };
    format!("{publisher}{}", path(ask.model, method))
}

/// The path of a model's method. `alt=sse` gives events; without it a stream is one JSON array.
pub(crate) fn path(model: &str, method: &str) -> String {
    let (kind, name) = match model.split_once('/') {
        Some(("tunedModels", name)) => ("tunedModels", name),
        Some(("models", name)) => ("models", name),
        _ => ("models", model),
    };
    format!("/{kind}/{}:{method}", segment(name))
}

/// How a model's thinking is set (ai.google.dev, thinking).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// Before 2.5: not at all.
    Plain,
    /// 2.5, and names that say nothing: a budget in tokens.
    Budget,
    /// 2.5 Pro, which cannot be told not to think.
    AlwaysBudget,
    /// From 3 on: a level; and calls must keep their signatures.
    Levels,
}

impl Generation {
    fn of(model: &str) -> Self {
        let Some((_, rest)) = model.rsplit_once("gemini-") else { return Self::Budget };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        match version.parse::<f64>() {
            Ok(version) if version >= 3.0 => Self::Levels,
            Ok(version) if version < 2.5 => Self::Plain,
            Ok(_) if rest[end..].starts_with("-pro") => Self::AlwaysBudget,
            _ => Self::Budget,
        }
    }
}

/// `generationConfig` on its way.
struct Config<'a> {
    chat: &'a Chat<'a>,
    generation: Generation,
    out: Vec<u8>,
    dropped: Vec<String>,
}

impl<'a> Config<'a> {
    fn put_all(&mut self, max_output: u64) {
        for (name, ours, number, most) in [
            ("temperature", "temperature", self.chat.temperature, "2"),
            ("topP", "top_p", self.chat.top_p, "1"),
        ] {
            if put_within(&mut self.out, name, number, ("0", most)) {
                note(&mut self.dropped, ours);
            }
        }
        let limit = self.chat.max_tokens.or((max_output > 0).then_some(max_output));
        if let Some(limit) = limit {
            put_raw(&mut self.out, "maxOutputTokens", &limit.to_string());
        }
        self.put_stop();
        if let Some(n) = self.chat.n.filter(|n| *n > 1) {
            put_raw(&mut self.out, "candidateCount", &n.to_string());
        }
        self.put_format();
        self.put_thinking();
        for (name, raw) in &self.chat.rest {
            match SAME.iter().find(|(ours, _)| ours == name) {
                Some((_, theirs)) => put_raw(&mut self.out, theirs, raw.get()),
                None if *name == "thinking" || NATIVE.contains(name) => {}
                None => note(&mut self.dropped, name),
            }
        }
        if self.chat.user.is_some() {
            note(&mut self.dropped, "user");
        }
    }

    fn put_stop(&mut self) {
        let stops: Vec<_> = self.chat.stop.iter().filter(|stop| !stop.is_empty()).collect();
        if stops.len() > STOPS_MAX {
            note(&mut self.dropped, "stop");
        }
        if stops.is_empty() {
            return;
        }
        put_name(&mut self.out, "stopSequences");
        self.out.push(b'[');
        for stop in stops.into_iter().take(STOPS_MAX) {
            put_comma(&mut self.out);
            put_text(&mut self.out, stop);
        }
        self.out.push(b']');
    }

    fn put_format(&mut self) {
        let schema = match self.chat.response_format {
            Some(Format::JsonSchema(schema)) => schema,
            Some(Format::JsonObject) => None,
            _ => return,
        };
        put_member(&mut self.out, "responseMimeType", "application/json");
        if let Some(schema) = schema {
            put_raw(&mut self.out, "responseJsonSchema", schema.get());
        }
    }

    fn rest(&self, name: &str) -> Option<&'a RawValue> {
        self.chat.rest.iter().find(|(n, _)| *n == name).map(|(_, raw)| *raw)
    }

    /// The caller's own `thinking` (as Messages has it), else what `reasoning_effort` comes to.
    fn put_thinking(&mut self) {
        let native = self.rest("thinking").and_then(|raw| Members::of(raw.get()));
        let effort = self.chat.reasoning_effort.as_deref();
        if self.generation == Generation::Plain {
            let asked = effort.is_some_and(|effort| effort != "none");
            if asked {
                note(&mut self.dropped, "reasoning_effort");
            }
            if self.rest("thinking").is_some() {
                note(&mut self.dropped, "thinking");
            }
            return;
        }
        let config = match &native {
            Some(native) => self.by_budget(native),
            None => effort.and_then(|effort| self.by_effort(effort)),
        };
        if config.is_none() && effort.is_some() && native.is_none() {
            note(&mut self.dropped, "reasoning_effort");
        }
        if native.is_some() && effort.is_some() {
            note(&mut self.dropped, "reasoning_effort");
        }
        if let Some(config) = config {
            put_raw(&mut self.out, "thinkingConfig", &config);
        } else if self.rest("thinking").is_some() {
            note(&mut self.dropped, "thinking");
        }
    }

    fn by_budget(&self, native: &Members<'_>) -> Option<String> {
        let budget = native.get("budget_tokens").map(RawValue::get);
        match native.text("type").as_deref() {
            Some("disabled") => self.by_effort("none"),
            // -1: as much as the model thinks fit.
            Some("enabled" | "adaptive") => {
                let budget = budget.and_then(|n| n.parse::<u64>().ok());
                let budget = budget.map_or_else(|| "-1".to_owned(), |n| n.to_string());
                Some(format!(r#"{{"thinkingBudget":{budget},"includeThoughts":true}}"#))
            }
            _ => None,
        }
    }

    /// The steps are those of the provider's own OpenAI door (ai.google.dev, OpenAI compatibility).
    fn by_effort(&self, effort: &str) -> Option<String> {
        if self.generation == Generation::Levels {
            let level = match effort {
                "none" | "minimal" | "low" => "low",
                "medium" | "high" | "xhigh" | "max" => "high",
                _ => return None,
            };
            let shown = effort != "none";
            return Some(format!(r#"{{"thinkingLevel":"{level}","includeThoughts":{shown}}}"#));
        }
        let budget = match effort {
            // The least that Pro takes.
            "none" if self.generation == Generation::AlwaysBudget => 128,
            "none" => 0,
            "minimal" | "low" => 1024,
            "medium" => 8192,
            "high" | "xhigh" | "max" => 24_576,
            _ => return None,
        };
        let shown = effort != "none";
        Some(format!(r#"{{"thinkingBudget":{budget},"includeThoughts":{shown}}}"#))
    }
}
