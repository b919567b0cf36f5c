//! The conversation without members that a provider refuses in its messages: what a reply of
//! another one, or of ours, had, and its caller gives back.

use crate::chat::raw::{Members, put_comma, put_name};
use memchr::memmem;
use serde_json::value::RawValue;

/// `messages` without these members, and the names of those that were there; `None` where it has
/// none of them.
pub(super) fn without(messages: &[u8], refused: &[String]) -> Option<(Vec<u8>, Vec<String>)> {
    // One pass over what may be megabytes decides; only what may have them is read.
    let quoted = |name: &String| format!("\"{name}\"");
    if !refused.iter().any(|name| memmem::find(messages, quoted(name).as_bytes()).is_some()) {
        return None;
    }
    let list: Vec<&RawValue> = serde_json::from_slice(messages).ok()?;
    let mut out = Vec::with_capacity(messages.len());
    let mut dropped: Vec<String> = Vec::new();
    out.push(b'[');
    for message in list {
        put_comma(&mut out);
        let members = Members::of(message.get()).unwrap_or_default();
        let (gone, kept): (Vec<_>, Vec<_>) =
            members.0.iter().partition(|(name, _)| refused.iter().any(|other| **other == **name));
        if gone.is_empty() {
            out.extend_from_slice(message.get().as_bytes());
            continue;
        }
        dropped.extend(gone.iter().map(|(name, _)| format!("messages.{}", &**name)));
        out.push(b'{');
        for (name, value) in kept {
            put_name(&mut out, name);
            out.extend_from_slice(value.get().as_bytes());
        }
        out.push(b'}');
    }
    out.push(b']');
    dropped.sort_unstable();
    dropped.dedup();
    (!dropped.is_empty()).then_some((out, dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_of_messages_go_and_every_other_byte_stays() {
        let refused = ["reasoning_content".to_owned(), "x".to_owned()];
        let cut = |json: &str| {
            let (out, dropped) = without(json.as_bytes(), &refused)?;
            Some((String::from_utf8(out).ok()?, dropped))
        };
        let said = r#"[{"role": "user","content":"\"x\"","n":1.50},
            {"x":null,"role":"assistant","reasoning_content":"hm", "content":{"x":1}} ]"#;
        let first = r#"{"role": "user","content":"\"x\"","n":1.50}"#;
        let want = format!(r#"[{first},{{"role":"assistant","content":{{"x":1}}}}]"#);
        let dropped = vec!["messages.reasoning_content".to_owned(), "messages.x".to_owned()];
        assert_eq!(cut(said), Some((want, dropped)));
        for same in [r#"[{"role":"x"}]"#, r#"[{"content":{"x":1}},"x"]"#, r#"{"x":1}"#, "[1"] {
            assert_eq!(cut(same), None, "{same}");
        }
    }
}
