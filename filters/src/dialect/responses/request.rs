//! A Responses request as a chat: every member mapped or named as dropped.

use super::super::Chat;
use super::super::messages::{Target, parse};
use super::super::names::Names;
use super::input::put_input;
use super::kept;
use super::tools::{put_choice, put_tools};
use crate::chat::raw::{Members, Text, note_unread, put_member, put_name, put_raw, text};
use crate::error::ApiError;
use crate::peek::{OWN, Peek};
use crate::wire::{Ask, Wire};
use serde_json::value::RawValue;

/// Members that a chat of OpenAI's has under the same name, though few other hosts do.
const OPENAI_ONLY: [&str; 4] =
    ["metadata", "prompt_cache_key", "safety_identifier", "service_tier"];
/// Members that say nothing about the answer, or whose default is what happens anyway.
const NOTHING: [&str; 3] = ["store", "stream_options", "client_metadata"];

#[derive(Debug, Default)]
pub(super) struct Shape<'a> {
    instructions: Option<Text<'a>>,
    input: Option<&'a RawValue>,
    tools: Option<&'a RawValue>,
    tool_choice: Option<&'a RawValue>,
    parallel: Option<&'a RawValue>,
    effort: Option<Text<'a>>,
    text: Option<Members<'a>>,
    /// Members of the same name and meaning.
    same: Vec<(&'a str, &'a RawValue)>,
    dropped: Vec<String>,
}

/// The chat that asks the same.
///
/// # Errors
/// `invalid_request` with the member at fault.
pub(in crate::dialect) fn to_chat(wire: Wire, ask: &Ask<'_>) -> Result<Chat, ApiError> {
    let target = Target::of(wire, ask);
    let mut shape = read(ask.peek, wire, target)?;
    let mut names = Names::default();
    let mut out = b"{".to_vec();
    put_member(&mut out, "model", ask.model);
    if ask.peek.stream {
        put_raw(&mut out, "stream", "true");
    }
    let mut tools = Vec::new();
    put_tools(&mut tools, shape.tools, &mut names, &mut shape.dropped)?;
    let instructions = shape.instructions.take();
    let asked = (instructions.as_deref(), shape.input);
    put_input(&mut out, asked, target, &mut names, &mut shape.dropped)?;
    if !tools.is_empty() {
        put_name(&mut out, "tools");
        out.push(b'[');
        out.extend_from_slice(&tools);
        out.push(b']');
        if let Some(raw) = shape.tool_choice {
            // Azure's chat is OpenAI's own.
            let rich = target.rich || wire == Wire::Azure;
            put_choice(&mut out, raw, &mut names, rich, &mut shape.dropped)?;
        }
        if let Some(raw) = shape.parallel {
            put_raw(&mut out, "parallel_tool_calls", raw.get());
        }
    } else if shape.tool_choice.is_some_and(|raw| !matches!(raw.get(), "\"auto\"" | "\"none\"")) {
        shape.dropped.push("tool_choice".into());
    }
    if let Some(limit) = ask.peek.max_tokens {
        let name = if target.reasons { "max_completion_tokens" } else { "max_tokens" };
        put_raw(&mut out, name, &limit.to_string());
    }
    for (name, raw) in &shape.same {
        put_raw(&mut out, name, raw.get());
    }
    match shape.effort.take() {
        Some(effort) if target.rich || target.reasons => {
            put_member(&mut out, "reasoning_effort", &effort);
        }
        Some(_) => shape.dropped.push("reasoning.effort".into()),
        None => {}
    }
    put_text_form(&mut out, &mut shape, target);
    out.push(b'}');
    let mut dropped = shape.dropped;
    dropped.sort();
    dropped.dedup();
    Ok(Chat { body: out, dropped, names })
}

fn read(peek: &Peek, wire: Wire, target: Target) -> Result<Shape<'_>, ApiError> {
    let mut shape = Shape::default();
    for member in &peek.members {
        let name = peek.name(member);
        let Ok(raw) = serde_json::from_slice::<&RawValue>(peek.value(member)) else { continue };
        if raw.get() == "null" || OWN.contains(&name) || NOTHING.contains(&name) {
            continue;
        }
        match name {
            "model" | "stream" | "max_output_tokens" => {}
            "input" => shape.input = Some(raw),
            "instructions" => shape.instructions = Some(parse(name, raw)?),
            "tools" => shape.tools = Some(raw),
            "tool_choice" => shape.tool_choice = Some(raw),
            "parallel_tool_calls" => shape.parallel = Some(raw),
            "text" => {
                note_unread(&mut shape.dropped, name, raw, &["format", "verbosity"]);
                shape.text = Some(parse(name, raw)?);
            }
            "reasoning" => {
                // The summary is always sent where there is one.
                let known = ["effort", "summary", "generate_summary"];
                note_unread(&mut shape.dropped, name, raw, &known);
                let reasoning: Members<'_> = parse(name, raw)?;
                shape.effort = reasoning.text("effort");
            }
            "previous_response_id" | "conversation" | "prompt" => return Err(kept(name)),
            "background" if raw.get() == "true" => return Err(kept(name)),
            "background" => {}
            "truncation" if raw.get() == "\"disabled\"" => {}
            "include" => note_include(raw, &mut shape.dropped),
            "temperature" | "top_p" if !target.reasons => shape.same.push((name, raw)),
            "user" => shape.same.push((name, raw)),
            _ if OPENAI_ONLY.contains(&name) && (wire == Wire::Azure || target.rich) => {
                shape.same.push((name, raw));
            }
            _ => shape.dropped.push(name.to_owned()),
        }
    }
    Ok(shape)
}

/// Sealed reasoning is always included; nothing else can be.
fn note_include(raw: &RawValue, dropped: &mut Vec<String>) {
    let list: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let sealed = |raw: &&RawValue| text(raw).as_deref() == Some("reasoning.encrypted_content");
    if !list.iter().all(sealed) {
        dropped.push("include".into());
    }
}

fn put_text_form(out: &mut Vec<u8>, shape: &mut Shape<'_>, target: Target) {
    let Some(form) = shape.text.take() else { return };
    if let Some(raw) = form.get("verbosity") {
        if target.reasons {
            put_raw(out, "verbosity", raw.get());
        } else {
            shape.dropped.push("text.verbosity".into());
        }
    }
    let Some(format) = form.get("format").and_then(|raw| Members::of(raw.get())) else { return };
    match format.text("type").as_deref() {
        Some("json_object") => put_raw(out, "response_format", r#"{"type":"json_object"}"#),
        Some("json_schema") => {
            out.extend_from_slice(br#","response_format":{"type":"json_schema","json_schema":{"#);
            for name in ["name", "description", "strict", "schema"] {
                if let Some(raw) = format.get(name).filter(|raw| raw.get() != "null") {
                    put_raw(out, name, raw.get());
                }
            }
            out.extend_from_slice(b"}}");
        }
        _ => {}
    }
}
