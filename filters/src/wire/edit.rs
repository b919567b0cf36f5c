//! What translating wires share in their requests: the provider's `params`, the list of what was
//! left out, paths and schemas.

use super::Params;
use crate::chat::raw::{Members, put_member, put_raw};
use crate::error::{ApiError, Code};
use crate::peek::{self, BadBody, Edits, Segments};
use bytes::Bytes;
use serde_json::value::RawValue;

/// Adds a name to the list of members left out, once.
pub(super) fn note(dropped: &mut Vec<String>, name: &str) {
    if !dropped.iter().any(|one| one == name) {
        dropped.push(name.into());
    }
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
