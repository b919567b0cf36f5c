//! A prompt as a chat.

use super::super::Chat;
use super::super::messages::{Target, parse};
use super::super::names::Names;
use crate::chat::raw::{put_member, put_raw};
use crate::chat::wrong;
use crate::error::ApiError;
use crate::peek::OWN;
use crate::wire::{Ask, Wire};
use serde_json::value::RawValue;

/// Members that a chat has under the same name.
const SAME: [&str; 9] = [
    "temperature",
    "top_p",
    "n",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "user",
    "seed",
];

/// The chat whose answer goes on where the prompt ends, as far as a chat can.
///
/// # Errors
/// A prompt that is not one text.
pub(in crate::dialect) fn to_chat(wire: Wire, ask: &Ask<'_>) -> Result<Chat, ApiError> {
    let target = Target::of(wire, ask);
    let (mut out, mut dropped) = (b"{".to_vec(), Vec::new());
    put_member(&mut out, "model", ask.model);
    if ask.peek.stream {
        put_raw(&mut out, "stream", "true");
    }
    for member in &ask.peek.members {
        let name = ask.peek.name(member);
        let value = ask.peek.value(member);
        let Ok(raw) = serde_json::from_slice::<&RawValue>(value) else { continue };
        if raw.get() == "null" || OWN.contains(&name) {
            continue;
        }
        match name {
            "model" | "stream" | "stream_options" | "max_tokens" => {}
            "prompt" => {
                out.extend_from_slice(br#","messages":[{"role":"user","content":"#);
                out.extend_from_slice(prompt(raw)?.as_bytes());
                out.extend_from_slice(b"}]");
            }
            "temperature" | "top_p" if target.reasons => dropped.push(name.to_owned()),
            _ if SAME.contains(&name) => put_raw(&mut out, name, raw.get()),
            // False and one are what happens anyway.
            "echo" if raw.get() == "false" => {}
            "best_of" if raw.get() == "1" => {}
            _ => dropped.push(name.to_owned()),
        }
    }
    if let Some(limit) = ask.peek.max_tokens {
        let name = if target.reasons { "max_completion_tokens" } else { "max_tokens" };
        put_raw(&mut out, name, &limit.to_string());
    }
    out.push(b'}');
    Ok(Chat { body: out, dropped, names: Names::default() })
}

/// One text, or a list of just one.
fn prompt(raw: &RawValue) -> Result<String, ApiError> {
    if raw.get().starts_with('"') {
        return Ok(raw.get().to_owned());
    }
    let list: Vec<&RawValue> = parse("prompt", raw)?;
    match list.as_slice() {
        [one] if one.get().starts_with('"') => Ok(one.get().to_owned()),
        _ => {
            let why = "the provider of this model takes one text as `prompt`: no list, no tokens";
            Err(wrong("prompt", why))
        }
    }
}
