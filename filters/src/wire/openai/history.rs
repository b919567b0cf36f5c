//! The conversation without members that a provider refuses in its messages (what a reply of
//! another one, or of ours, had, and its caller gives back), or with one that it must find there.

use crate::chat::raw::{Members, put_comma, put_member, put_name};
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

/// What stands for thoughts that nobody kept. Kimi takes an empty text for none at all
/// (theopenco/llmgateway pull request 2093, measured there); DeepSeek takes either.
const FORGOTTEN: &str = " ";

/// `messages` with `reasoning_content` in every turn that calls a tool: a call without it is a
/// 400 of those who always think, and most clients of OpenAI's chat do not give it back. `None`
/// where none lacks it.
pub(super) fn recalled(messages: &[u8]) -> Option<Vec<u8>> {
    memmem::find(messages, b"\"tool_calls\"")?;
    let list: Vec<&RawValue> = serde_json::from_slice(messages).ok()?;
    let mut out = Vec::with_capacity(messages.len() + 64);
    let mut lacked = false;
    out.push(b'[');
    for message in list {
        put_comma(&mut out);
        let members = Members::of(message.get()).unwrap_or_default();
        let says = |name: &str| {
            members.get(name).is_some_and(|raw| !matches!(raw.get(), "null" | "[]" | "\"\""))
        };
        if !says("tool_calls") || says("reasoning_content") {
            out.extend_from_slice(message.get().as_bytes());
            continue;
        }
        lacked = true;
        out.push(b'{');
        for (name, value) in members.0.iter().filter(|(name, _)| &**name != "reasoning_content") {
            put_name(&mut out, name);
            out.extend_from_slice(value.get().as_bytes());
        }
        put_member(&mut out, "reasoning_content", FORGOTTEN);
        out.push(b'}');
    }
    out.push(b']');
    lacked.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_without_its_thoughts_is_given_some() {
        let told =
            |json: &str| recalled(json.as_bytes()).and_then(|out| String::from_utf8(out).ok());
        let kept = r#"{"role": "user","content":"x"}"#;
        let calls = r#""tool_calls":[{"id":"a","n":1.50}]"#;
        let with = |more: &str| format!(r#"[{kept}, {{"role":"assistant",{calls}{more}}}]"#);
        let want = format!(r#"[{kept},{{"role":"assistant",{calls},"reasoning_content":" "}}]"#);
        for more in ["", r#","reasoning_content":"""#, r#","reasoning_content":null"#] {
            assert_eq!(told(&with(more)).as_deref(), Some(want.as_str()), "{more}");
        }
        assert_eq!(told(&with(r#","reasoning_content":"hm""#)), None);
        for same in [format!("[{kept}]"), r#"[{"tool_calls":[]},{"tool_calls":null}]"#.into()] {
            assert_eq!(told(&same), None, "{same}");
        }
    }

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
