//! A chat request as one of Converse: every member mapped, passed, or named as dropped.

use super::extra::Extra;
use super::turns::Prompt;
use super::{Family, tools};
use crate::chat::raw::{put_comma, put_name, put_raw, put_text};
use crate::chat::{Chat, Format};
use crate::error::ApiError;
use crate::wire::claude::Claude;
use crate::wire::edit::{edited, note, note_unread, put_within, segment};
use crate::wire::{Ask, Outgoing};

/// Members of Converse that a caller may send beside OpenAI's.
const NATIVE: [&str; 7] = [
    "guardrailConfig",
    "performanceConfig",
    "promptVariables",
    "requestMetadata",
    "additionalModelResponseFieldPaths",
    "serviceTier",
    "outputConfig",
];

/// Members that other parts of this wire read.
const READ: [&str; 3] = ["thinking", "top_k", "additionalModelRequestFields"];

/// `response_format: json_object`, which Converse has no member for.
const JSON_ONLY: &str = "Answer with one valid JSON object and nothing else: no prose, no fences.";

pub(super) fn build(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let chat = Chat::read(ask.peek)?;
    let (family, claude) = (Family::of(ask.model), Claude::of(ask.model));
    let mut dropped = Vec::new();
    let mut prompt = Prompt::of(family, &chat)?;
    ask_for_format(&chat, &mut prompt, &mut dropped);
    let mut out = Vec::with_capacity(ask.peek.body.len() + 512);
    out.push(b'{');
    prompt.put(&mut out);
    let extra = Extra::of((family, claude), &chat, &prompt, &mut dropped);
    let samples = claude.samples && !extra.thinks;
    let sampling = Sampling { family, samples, max_output: ask.max_output };
    sampling.put(&mut out, &chat, &mut dropped);
    for name in tools::put(&mut out, &chat, (family, claude)) {
        note(&mut dropped, &name);
    }
    if let Some(fields) = extra.written() {
        put_raw(&mut out, "additionalModelRequestFields", &fields);
    }
    for (name, raw) in &chat.rest {
        match *name {
            name if NATIVE.contains(&name) => put_raw(&mut out, name, raw.get()),
            name if READ.contains(&name) => {}
            name => note(&mut dropped, name),
        }
    }
    out.push(b'}');
    note_more(&chat, &prompt, &mut dropped);
    let body = edited(out.into(), ask.params, &mut dropped)?;
    let method = if ask.peek.stream { "converse-stream" } else { "converse" };
    let path = format!("/model/{}/{method}", segment(ask.model));
    Ok(Outgoing { path, headers: Vec::new(), body, dropped, strip_usage: false })
}

/// Asked for in words; only some models can be held to a schema, and not by this wire.
fn ask_for_format(chat: &Chat<'_>, prompt: &mut Prompt<'_>, dropped: &mut Vec<String>) {
    match chat.response_format {
        Some(Format::JsonSchema(Some(schema))) => {
            note(dropped, "response_format.json_schema");
            prompt.instruct(format!("{JSON_ONLY} It must fit this JSON schema: {}", schema.get()));
        }
        Some(Format::JsonObject | Format::JsonSchema(None)) => prompt.instruct(JSON_ONLY.into()),
        Some(Format::Text) | None => {}
    }
}

fn note_more(chat: &Chat<'_>, prompt: &Prompt<'_>, dropped: &mut Vec<String>) {
    note_unread(dropped, chat, false);
    for name in &prompt.dropped {
        note(dropped, name);
    }
    for (lost, name) in [(chat.user.is_some(), "user"), (chat.n.is_some_and(|n| n > 1), "n")] {
        if lost {
            note(dropped, name);
        }
    }
}

/// `inferenceConfig`
struct Sampling {
    family: Family,
    /// The model takes `temperature` and `topP`.
    samples: bool,
    max_output: u64,
}

impl Sampling {
    fn put(&self, out: &mut Vec<u8>, chat: &Chat<'_>, dropped: &mut Vec<String>) {
        let mut config = b"{".to_vec();
        let limit = chat.max_tokens.or((self.max_output > 0).then_some(self.max_output));
        if let Some(limit) = limit {
            put_raw(&mut config, "maxTokens", &limit.to_string());
        }
        let mut top_p = chat.top_p;
        if self.family == Family::Claude && chat.temperature.is_some() && top_p.is_some() {
            // Its newer models take one of the two.
            top_p = None;
            note(dropped, "top_p");
        }
        for (name, ours, number) in
            [("temperature", "temperature", chat.temperature), ("topP", "top_p", top_p)]
        {
            match number {
                Some(_) if !self.samples => note(dropped, ours),
                number => {
                    if put_within(&mut config, name, number, ("0", "1")) {
                        note(dropped, ours);
                    }
                }
            }
        }
        put_stop(&mut config, chat, dropped);
        if config.len() > 1 {
            put_name(out, "inferenceConfig");
            out.append(&mut config);
            out.push(b'}');
        }
    }
}

/// Sequences of white space alone are refused.
fn put_stop(out: &mut Vec<u8>, chat: &Chat<'_>, dropped: &mut Vec<String>) {
    let mut stops = b"[".to_vec();
    for stop in chat.stop.iter().filter(|stop| !stop.trim().is_empty()) {
        put_comma(&mut stops);
        put_text(&mut stops, stop);
    }
    if stops.len() > 1 {
        stops.push(b']');
        put_name(out, "stopSequences");
        out.append(&mut stops);
    }
    if chat.stop.iter().any(|stop| !stop.is_empty() && stop.trim().is_empty()) {
        note(dropped, "stop");
    }
}
