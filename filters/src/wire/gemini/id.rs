//! Thought signatures inside tool call ids: the one member that every client gives back unchanged.
//!
//! Gemini 3 refuses a call in the history without the signature it came with (ai.google.dev,
//! thought signatures). Clients keep a call's id through every dialect, and drop what they do not
//! know, so the signature rides there.

/// Between the id and the signature.
const MARK: &str = "__thought__";

/// The id that the caller is given.
pub(super) fn join(id: &str, signature: &str) -> String {
    format!("{id}{MARK}{signature}")
}

/// The provider's id, and the signature if it carries one.
pub(super) fn split(id: &str) -> (&str, Option<&str>) {
    match id.split_once(MARK) {
        Some((id, signature)) if !signature.is_empty() => (id, Some(signature)),
        _ => (id, None),
    }
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
}
