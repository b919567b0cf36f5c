//! The caller's body as this wire's providers take it: a few members edited, every other byte kept.

use super::history;
use super::members::put_text;
use crate::chat::thought;
use crate::error::{ApiError, Code};
use crate::peek::{BadBody, Edits, Peek, apply_params, with_include_usage};
use crate::wire::{Ask, Outgoing, Wire};

/// Azure's `api-version` where config names none: the last dated version of the data plane that is
/// generally available (Microsoft Learn, "Azure OpenAI in Microsoft Foundry Models API version
/// lifecycle"); later ones are previews or the v1 surface, which needs none.
const AZURE_API_VERSION: &str = "2024-10-21";

/// The request for one try.
pub(in crate::wire) fn request(wire: Wire, ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let peek = ask.peek;
    let mut edits = Edits::default();
    let mut model = Vec::with_capacity(ask.model.len() + 2);
    put_text(ask.model, &mut model);
    edits.set("model", model);
    let mut strip_usage = false;
    if !peek.stream || !ask.quirks.stream_options {
        // Providers refuse it without `stream`, some always.
        edits.remove("stream_options");
    } else if !ask.quirks.usage_unasked
        && let Some(options) = with_include_usage(peek)
    {
        edits.set("stream_options", options);
        strip_usage = true;
    }
    let mut messages = short_ids(peek, "messages");
    let mut gone = Vec::new();
    if let Some(member) = peek.find("messages").filter(|_| !ask.quirks.refused.is_empty()) {
        let raw = messages.as_deref().unwrap_or_else(|| peek.value(member));
        if let Some((kept, names)) = history::without(raw, &ask.quirks.refused) {
            (messages, gone) = (Some(kept), names);
        }
    }
    if let Some(member) = peek.find("messages").filter(|_| ask.quirks.reasoning_back) {
        let raw = messages.as_deref().unwrap_or_else(|| peek.value(member));
        messages = history::recalled(raw).or(messages);
    }
    if let Some(messages) = messages {
        edits.set("messages", messages);
    }
    let mut dropped = apply_params(ask.params, peek, &mut edits).map_err(bad_body)?;
    dropped.append(&mut gone);
    let path = path(wire, ask, "chat/completions");
    let body = edits.apply(peek);
    Ok(Outgoing { path, headers: Vec::new(), body, dropped, strip_usage })
}

/// The conversation in `name` without what Gemini put into its calls' ids. Only where there are
/// tools: without them nothing was called.
pub(crate) fn short_ids(peek: &Peek, name: &str) -> Option<Vec<u8>> {
    peek.find("tools")?;
    thought::without(peek.value(peek.find(name)?))
}

fn bad_body(bad: BadBody) -> ApiError {
    match bad {
        BadBody::Json(message) => ApiError::new(Code::InvalidJson, message),
        BadBody::Member { param, message } => {
            ApiError::new(Code::InvalidRequest, message).param(param)
        }
    }
}

/// The path of an endpoint, such as `chat/completions`, behind the provider's base URL.
pub(crate) fn path(wire: Wire, ask: &Ask<'_>, endpoint: &str) -> String {
    if wire == Wire::Azure { azure_path(ask, endpoint) } else { ["/", endpoint].concat() }
}

/// Azure has the deployment in the path, except on its v1 surface, which is OpenAI's own.
fn azure_path(ask: &Ask<'_>, endpoint: &str) -> String {
    let base = ask.base_url.trim_end_matches('/');
    if base.contains("/openai/v1") {
        let version = ask.api_version.map(|version| format!("?api-version={}", encode(version)));
        return format!("/{endpoint}{}", version.unwrap_or_default());
    }
    let root = if base.ends_with("/openai") { "" } else { "/openai" };
    let version = ask.api_version.unwrap_or(AZURE_API_VERSION);
    let (model, version) = (encode(ask.model), encode(version));
    format!("{root}/deployments/{model}/{endpoint}?api-version={version}")
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn encode(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to memory cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
