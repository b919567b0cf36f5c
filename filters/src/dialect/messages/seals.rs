//! Thinking without its provider's seal: written by us for another provider's reasoning, and
//! refused by Anthropic when the caller gives it back.

use crate::chat::raw::{Members, put_comma, put_name};
use crate::peek::Peek;
use memchr::memmem;
use serde_json::value::RawValue;

/// `messages` without such blocks, where there are any.
pub(super) fn sealed_only(peek: &Peek) -> Option<Vec<u8>> {
    let raw = peek.value(peek.find("messages")?);
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
