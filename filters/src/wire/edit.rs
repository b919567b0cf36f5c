//! What translating wires share in their requests: the provider's `params`, the list of what was
//! left out, paths and schemas.

use super::Params;
use crate::chat::raw::{Members, compact, put_member, put_raw};
use crate::chat::{Chat, Number, Role, Tool, ToolCall};
use crate::error::{ApiError, Code};
use crate::peek::{self, BadBody, Edits, Segments};
use bytes::Bytes;
use serde_json::value::RawValue;

/// Adds a name to the list of members left out, once.
pub(crate) fn note(dropped: &mut Vec<String>, name: &str) {
    if !dropped.iter().any(|one| one == name) {
        dropped.push(name.into());
    }
}

/// Notes what of the messages and tools no wire but OpenAI's has a place for. `reasons`: the
/// provider takes the text of earlier reasoning.
pub(super) fn note_unread(dropped: &mut Vec<String>, chat: &Chat<'_>, reasons: bool) {
    for name in &chat.unread {
        note(dropped, name);
    }
    for message in &chat.messages {
        // A result is named by its call.
        if message.name.is_some() && message.role != Role::Tool {
            note(dropped, "messages.name");
        }
        if message.reasoning_content.is_some() && !reasons {
            note(dropped, "messages.reasoning_content");
        }
    }
}

/// Notes the cache marks of a chat, for providers that have none.
pub(super) fn note_marks(dropped: &mut Vec<String>, chat: &Chat<'_>) {
    for message in &chat.messages {
        let marked = message.content.iter().any(|part| part.cache_control.is_some());
        if marked || message.cache_control.is_some() {
            note(dropped, "messages.cache_control");
        }
    }
    note_tool_marks(dropped, chat);
}

/// Notes the cache marks of tools.
pub(super) fn note_tool_marks(dropped: &mut Vec<String>, chat: &Chat<'_>) {
    let marked = |tool: &Tool<'_>| matches!(tool, Tool::Function(f) if f.cache_control.is_some());
    if chat.tools.iter().any(marked) {
        note(dropped, "tools.cache_control");
    }
}

/// Notes sealed thoughts, for providers that take none back.
pub(super) fn note_thoughts(dropped: &mut Vec<String>, chat: &Chat<'_>) {
    if chat.messages.iter().any(|message| !message.thinking_blocks.is_empty()) {
        note(dropped, "messages.thinking_blocks");
    }
}

/// How far outside of its range a number is taken for the bound itself: a provider's range may
/// leave 0 or 1 out by 0.01, and the rest is for how floats are written.
const HAIR: f64 = 0.011;

/// Writes a number into the range that the provider takes, bounds as they are written; true where
/// that is no longer what the caller asked for.
pub(super) fn put_within(
    out: &mut Vec<u8>,
    name: &str,
    number: Option<Number<'_>>,
    (least, most): (&str, &str),
) -> bool {
    let Some(number) = number else { return false };
    let bound = |text: &str| text.parse::<f64>().unwrap_or_default();
    let (raw, off) = match number.value {
        value if value < bound(least) => (least, bound(least) - value),
        value if value > bound(most) => (most, value - bound(most)),
        _ => (number.raw, 0.0),
    };
    put_raw(out, name, raw);
    off > HAIR
}

/// Arguments of an earlier call as the object that the provider wants, digits kept. What is no
/// object becomes an empty one, which is noted unless it is empty itself.
pub(super) fn arguments(call: &ToolCall<'_>, dropped: &mut Vec<String>) -> String {
    match serde_json::from_str::<&RawValue>(&call.arguments) {
        Ok(raw) if raw.get().starts_with('{') => return compact(raw.get()),
        _ if matches!(call.arguments.trim(), "" | "null") => {}
        _ => note(dropped, "messages.tool_calls.function.arguments"),
    }
    "{}".to_owned()
}

/// The provider's `params` work on the members of the provider's own body, whoever wrote them.
///
/// # Errors
/// `params` name a member that stands twice.
pub(super) fn edited(
    body: Bytes,
    params: &Params,
    dropped: &mut Vec<String>,
) -> Result<Segments, ApiError> {
    if *params == Params::default() {
        return Ok(body.into());
    }
    let fault = |bad: BadBody| match bad {
        BadBody::Json(message) => ApiError::new(Code::InvalidJson, message),
        BadBody::Member { param, message } => {
            ApiError::new(Code::InvalidRequest, message).param(param)
        }
    };
    let peek = peek::members(body).map_err(fault)?;
    let mut edits = Edits::default();
    for name in peek::apply_params(params, &peek, &mut edits).map_err(fault)? {
        note(dropped, &name);
    }
    Ok(edits.apply(&peek))
}

/// A path segment, or a value in a query or a form: everything but unreserved characters (RFC 3986,
/// section 2.3) percent-encoded.
#[must_use]
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A schema whose `type` is `object` (recorded 400 "input_schema.type: Field required"), else as
/// it came.
pub(super) fn put_object_schema(out: &mut Vec<u8>, parameters: Option<&RawValue>) {
    let members = parameters.and_then(|raw| Members::of(raw.get())).unwrap_or_default();
    if let Some(raw) = parameters
        && members.text("type").as_deref() == Some("object")
    {
        out.extend_from_slice(raw.get().as_bytes());
        return;
    }
    out.push(b'{');
    put_member(out, "type", "object");
    for (name, value) in members.0.iter().filter(|(name, _)| &**name != "type") {
        put_raw(out, name, value.get());
    }
    if members.get("properties").is_none() {
        put_raw(out, "properties", "{}");
    }
    out.push(b'}');
}
