//! A whole completion as a message.

use super::super::canon::Message;
use super::super::names::Names;
use super::stream::{plain, put_usage};
use super::{message_id, stop_reason};
use crate::chat::Thinking;
use crate::chat::raw::{put_comma, put_member, put_raw};
use crate::usage::Usage;
use crate::wire::ReplyContext;
use bytes::Bytes;
use serde_json::value::RawValue;

/// The message's body.
pub(in crate::dialect) fn whole(
    message: &Message<'_>,
    names: &Names,
    context: &ReplyContext,
    usage: &Usage,
) -> Bytes {
    let said = &message.said;
    let mut out = b"{".to_vec();
    put_member(&mut out, "id", &message_id(&context.id));
    out.extend_from_slice(br#","type":"message","role":"assistant""#);
    put_member(&mut out, "model", message.model.as_deref().unwrap_or(&context.model));
    out.extend_from_slice(br#","content":["#);
    put_thoughts(&mut out, &plain(said.reasoning_content), said.thinking_blocks.as_deref());
    put_said(&mut out, &plain(said.content));
    let refusal = plain(said.refusal);
    put_said(&mut out, &refusal);
    let mut called = false;
    for call in said.tool_calls.iter().flatten() {
        let (Some(id), Some(function)) = (&call.id, &call.function) else { continue };
        let Some(name) = &function.name else { continue };
        called = true;
        put_call(&mut out, id, names.name(name), &plain(function.arguments));
    }
    if let Some(function) = &said.function_call
        && let Some(name) = &function.name
    {
        called = true;
        let id = format!("call_{}", context.id.trim_start_matches("chatcmpl-"));
        put_call(&mut out, &id, names.name(name), &plain(function.arguments));
    }
    out.push(b']');
    put_member(&mut out, "stop_reason", stop_reason(&message.finish, called, !refusal.is_empty()));
    out.extend_from_slice(br#","stop_sequence":null,"usage":"#);
    put_usage(&mut out, usage);
    out.push(b'}');
    out.into()
}

fn put_said(out: &mut Vec<u8>, text: &str) {
    if text.is_empty() {
        return;
    }
    put_comma(out);
    out.extend_from_slice(br#"{"type":"text""#);
    put_member(out, "text", text);
    out.push(b'}');
}

/// Sealed blocks as they are; reasoning without any as one block without a seal.
fn put_thoughts(out: &mut Vec<u8>, text: &str, sealed: Option<&[Thinking<'_>]>) {
    let sealed = sealed.unwrap_or_default();
    if sealed.is_empty() && !text.is_empty() {
        out.extend_from_slice(br#"{"type":"thinking""#);
        put_member(out, "thinking", text);
        put_member(out, "signature", "");
        out.push(b'}');
    }
    for block in sealed {
        put_comma(out);
        out.push(b'{');
        put_member(out, "type", &block.kind);
        if let Some(text) = &block.thinking {
            put_member(out, "thinking", text);
            put_member(out, "signature", block.signature.as_deref().unwrap_or_default());
        }
        if let Some(data) = &block.data {
            put_member(out, "data", data);
        }
        out.push(b'}');
    }
}

/// A call whose arguments are no object (cut by the length limit, or `null`) has none.
fn put_call(out: &mut Vec<u8>, id: &str, name: &str, arguments: &str) {
    put_comma(out);
    out.extend_from_slice(br#"{"type":"tool_use""#);
    put_member(out, "id", id);
    put_member(out, "name", name);
    let input = serde_json::from_str::<&RawValue>(arguments).map(RawValue::get);
    let input = input.ok().filter(|raw| raw.starts_with('{')).unwrap_or("{}");
    put_raw(out, "input", input);
    out.push(b'}');
}
