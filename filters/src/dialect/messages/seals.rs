//! What Anthropic refuses when the caller gives it back, since another provider answered before:
//! thinking without its seal, ids with Gemini's signatures, a tool loop that began without any.

use crate::chat::raw::{Members, put_comma, put_name};
use crate::chat::thought;
use crate::peek::{Edits, Peek};
use memchr::memmem;
use serde_json::value::RawValue;

/// Edits that let Anthropic take the conversation; names the members that they leave out.
pub(super) fn mend(peek: &Peek, edits: &mut Edits) -> &'static [&'static str] {
    let Some(member) = peek.find("messages") else { return &[] };
    let raw = peek.value(member);
    let short = peek.find("tools").and_then(|_| thought::without(raw));
    let sealed = sealed_only(short.as_deref().unwrap_or(raw));
    let mended = sealed.or(short);
    let stops = asks_to_think(peek) && !may_think(mended.as_deref().unwrap_or(raw));
    if let Some(messages) = mended {
        edits.set("messages", messages);
    }
    if !stops {
        return &[];
    }
    edits.remove("thinking");
    // The clearing of thinking is refused without it.
    let manages = peek.find("context_management").map(|member| peek.value(member));
    if manages.is_some_and(|raw| memmem::find(raw, b"clear_thinking").is_some()) {
        edits.remove("context_management");
        return &["thinking", "context_management"];
    }
    &["thinking"]
}

/// Only with a budget must a tool loop begin with thinking; `adaptive` asks for none (Messages,
/// extended and adaptive thinking).
fn asks_to_think(peek: &Peek) -> bool {
    let thinking = peek.find("thinking").map(|member| peek.value(member));
    thinking.is_some_and(|raw| memmem::find(raw, b"\"enabled\"").is_some())
}

/// The last tool loop, if one is running, has its thinking with it. Reads only what stands behind
/// the role before the last call: the conversation itself may be megabytes.
fn may_think(messages: &[u8]) -> bool {
    let Some(call) = memmem::rfind(messages, b"\"tool_use\"") else { return true };
    let (before, rest) = messages.split_at(call);
    if memmem::find(rest, b"\"tool_result\"").is_none() {
        return true;
    }
    let start = memmem::rfind(before, b"\"assistant\"").unwrap_or_default();
    let marks: [&[u8]; 2] = [b"\"thinking\"", b"\"redacted_thinking\""];
    if marks.iter().any(|mark| memmem::find(&before[start..], mark).is_some()) {
        return true;
    }
    began_with_thinking(messages).unwrap_or(true)
}

/// The same, read in full; `None` where it is not Messages'.
fn began_with_thinking(messages: &[u8]) -> Option<bool> {
    let messages: Vec<&RawValue> = serde_json::from_slice(messages).ok()?;
    let read = |raw: &&RawValue| {
        let members = Members::of(raw.get())?;
        let blocks: Vec<&RawValue> = serde_json::from_str(members.get("content")?.get()).ok()?;
        let kind = |block: &RawValue| Some(Members::of(block.get())?.text("type")?.to_string());
        Some(blocks.into_iter().filter_map(kind).collect::<Vec<_>>())
    };
    let [.., called, answered] = messages.as_slice() else { return None };
    let (called, answered) = (read(called)?, read(answered)?);
    let runs = answered.iter().any(|kind| kind == "tool_result");
    Some(!runs || called.first()?.ends_with("thinking"))
}

/// `messages` without unsealed blocks, where there are any.
fn sealed_only(raw: &[u8]) -> Option<Vec<u8>> {
    let marks: [&[u8]; 2] = [br#""signature":"""#, br#""signature": """#];
    if marks.iter().all(|mark| memmem::find(raw, mark).is_none()) {
        return None;
    }
    let messages: Vec<&RawValue> = serde_json::from_slice(raw).ok()?;
    let mut out = b"[".to_vec();
    for message in messages {
        put_comma(&mut out);
        match kept(message) {
            Some(message) => out.extend_from_slice(&message),
            None => out.extend_from_slice(message.get().as_bytes()),
        }
    }
    out.push(b']');
    Some(out)
}

/// The message without its unsealed blocks; `None` where it stays as it is.
fn kept(message: &RawValue) -> Option<Vec<u8>> {
    let members = Members::of(message.get())?;
    let blocks: Vec<&RawValue> = serde_json::from_str(members.get("content")?.get()).ok()?;
    let left: Vec<&RawValue> = blocks.iter().copied().filter(|block| !is_unsealed(block)).collect();
    // A message must say something: one of thinking alone is the provider's to judge.
    if left.len() == blocks.len() || left.is_empty() {
        return None;
    }
    let mut out = b"{".to_vec();
    for (name, value) in &members.0 {
        put_name(&mut out, name);
        if &**name != "content" {
            out.extend_from_slice(value.get().as_bytes());
            continue;
        }
        out.push(b'[');
        for block in &left {
            put_comma(&mut out);
            out.extend_from_slice(block.get().as_bytes());
        }
        out.push(b']');
    }
    out.push(b'}');
    Some(out)
}

fn is_unsealed(block: &RawValue) -> bool {
    let Some(members) = Members::of(block.get()) else { return false };
    members.text("type").as_deref() == Some("thinking")
        && members.text("signature").as_deref() == Some("")
}
