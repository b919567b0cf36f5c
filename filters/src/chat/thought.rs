//! Thought signatures inside tool call ids: the one member that every client gives back unchanged.
//!
//! Gemini 3 refuses a call in the history without the signature it came with (ai.google.dev,
//! thought signatures). Clients keep a call's id through every dialect, and drop what they do not
//! know, so the signature rides there. Other providers, who may be asked the next turn, take only
//! short ids: OpenAI 40 characters, Anthropic letters, digits, `_` and `-`.

use memchr::memmem;
use std::ops::Range;

/// Between the id and the signature.
const MARK: &str = "__thought__";

/// Members that hold a call's id: chat's, Messages' and Responses'.
const MEMBERS: [&[u8]; 4] = [b"\"id\"", b"\"tool_call_id\"", b"\"tool_use_id\"", b"\"call_id\""];

/// The id that the caller is given.
pub(crate) fn join(id: &str, signature: &str) -> String {
    format!("{id}{MARK}{signature}")
}

/// The provider's id, and the signature if it carries one.
pub(crate) fn split(id: &str) -> (&str, Option<&str>) {
    match id.split_once(MARK) {
        Some((id, signature)) if !signature.is_empty() => (id, Some(signature)),
        _ => (id, None),
    }
}

/// JSON whose ids carry no signatures, every other byte kept; `None` where none did.
pub(crate) fn without(json: &[u8]) -> Option<Vec<u8>> {
    let mut out: Option<Vec<u8>> = None;
    let mut done = 0;
    for at in memmem::find_iter(json, MARK) {
        let Some(cut) = signature(json, at).filter(|cut| cut.start >= done) else { continue };
        let out = out.get_or_insert_with(|| Vec::with_capacity(json.len()));
        out.extend_from_slice(&json[done..cut.start]);
        done = cut.end;
    }
    let mut out = out?;
    out.extend_from_slice(&json[done..]);
    Some(out)
}

/// The mark at `at` and the signature behind it, where they stand in an id.
fn signature(json: &[u8], at: usize) -> Option<Range<usize>> {
    let (before, rest) = json.split_at_checked(at)?;
    let length = rest.iter().position(|&byte| byte == b'"')?;
    let quote = before.iter().rposition(|&byte| byte == b'"')?;
    let name = before.get(..quote)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    // An escaped quote is text that only looks like a member.
    let named =
        |member: &&[u8]| name.strip_suffix(*member).is_some_and(|before| !before.ends_with(b"\\"));
    let whole = length > MARK.len() && !before.get(quote..)?.contains(&b'\\');
    (whole && MEMBERS.iter().any(named)).then(|| at..at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_comes_back_as_it_went() {
        let id = join("call_x_0", "a+/b=_-");
        assert_eq!(split(&id), ("call_x_0", Some("a+/b=_-")));
        assert_eq!(split("call_x_0"), ("call_x_0", None));
        assert_eq!(split("call_x_0__thought__"), ("call_x_0__thought__", None));
    }

    #[test]
    fn signatures_are_cut_out_of_ids_and_nowhere_else() {
        let cut = |json: &str| without(json.as_bytes()).and_then(|b| String::from_utf8(b).ok());
        let with = r#"[{"id" : "a__thought__x+/=","n":1.0},{"tool_call_id":"b__thought__y\/z"}]"#;
        let want = r#"[{"id" : "a","n":1.0},{"tool_call_id":"b"}]"#;
        assert_eq!(cut(with).as_deref(), Some(want));
        let twice = r#"[{"call_id":"a__thought__b__thought__c"},{"tool_use_id":"d__thought__e"}]"#;
        let want = r#"[{"call_id":"a"},{"tool_use_id":"d"}]"#;
        assert_eq!(cut(twice).as_deref(), Some(want));
        for same in [
            r#"[{"content":"a__thought__b"}]"#,
            r#"[{"content":"\"id\":\"a__thought__b\""}]"#,
            r#"[{"content":"\"id\": ","x":"__thought__b"}]"#,
            r#"[{"id":"a__thought__"}]"#,
            r#"["id","a__thought__b"]"#,
            r#"__thought__"#,
        ] {
            assert_eq!(cut(same), None, "{same}");
        }
    }
}
