//! Whether a reply with status 200 is an answer of the endpoint that was asked.

use super::Passed;
use crate::chat::raw::Members;
use crate::error::{Class, Failure, classify_event};
use serde_json::value::RawValue;

/// # Errors
/// An error in the provider's words, a page, half of a JSON document, or one of another shape.
pub(super) fn check(passed: Passed, body: &[u8]) -> Result<(), Failure> {
    let text = body.trim_ascii_start();
    let none = |why: &str| Err(Failure::new(Class::Invalid, 200, why));
    match text.first() {
        Some(b'<') => none("the reply is a page"),
        Some(b'{' | b'[') => match serde_json::from_slice::<&RawValue>(text) {
            Ok(raw) => document(passed, raw, body),
            // Audio may begin with any byte.
            Err(_) if passed == Passed::Speech && std::str::from_utf8(body).is_err() => Ok(()),
            Err(_) => none("the reply is no whole JSON document"),
        },
        _ => match passed {
            // Audio, plain transcripts, and events where the caller asked for a stream.
            Passed::Speech | Passed::Transcription | Passed::Translation => Ok(()),
            _ if text.starts_with(b"event:") || text.starts_with(b"data:") => Ok(()),
            _ => none("the reply is no JSON"),
        },
    }
}

fn document(passed: Passed, raw: &RawValue, body: &[u8]) -> Result<(), Failure> {
    let members = Members::of(raw.get()).unwrap_or_default();
    let has = |name: &str, first: char| {
        members.get(name).is_some_and(|value| value.get().starts_with(first))
    };
    let answers = match passed {
        Passed::ImageGeneration | Passed::ImageEdit | Passed::ImageVariation => has("data", '['),
        // Some hosts wrap their audio.
        Passed::Speech => has("audio", '"') || has("audio", '{') || has("data", '{'),
        Passed::Transcription | Passed::Translation => has("text", '"'),
        // Cohere, Jina and their like; Voyage; text-embeddings-inference.
        Passed::Rerank => has("results", '[') || has("data", '[') || raw.get().starts_with('['),
        Passed::Moderation => has("results", '['),
    };
    if answers {
        return Ok(());
    }
    let says = |name: &str| members.get(name).is_some_and(|value| value.get() != "null");
    if ["error", "errors", "error_code", "error_msg"].into_iter().any(says) {
        return Err(classify_event(body));
    }
    let why = format!("the reply is no answer of /{}", passed.path());
    Err(Failure::new(Class::Invalid, 200, &why))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_an_answer_of_the_endpoint_is_one() {
        use Passed::*;
        for (passed, body) in [
            (ImageGeneration, r#"{"created":1,"data":[{"url":"x"}]}"#),
            (ImageEdit, "event: image_edit.completed\ndata: {}\n\n"),
            (Speech, "ID3\u{3}..."),
            (Speech, r#"{"audio":"aGk="}"#),
            (Transcription, r#" {"text":"hello","error":null}"#),
            (Transcription, "hello"),
            (Translation, "1\n00:00:00,000 --> 00:00:01,000\nhello"),
            (Rerank, r#"{"results":[]}"#),
            (Rerank, r#"[{"index":0,"score":0.5}]"#),
            (Moderation, r#"{"id":"m","results":[{"flagged":false}]}"#),
        ] {
            assert_eq!(check(passed, body.as_bytes()), Ok(()), "{passed:?} {body}");
        }
        for passed in [ImageGeneration, ImageEdit, Speech, Transcription, Rerank, Moderation] {
            for body in [
                r#"{"error":{"message":"no","type":"server_error"}}"#,
                r#"{"error":"no"}"#,
                r#"{"error_code":17,"error_msg":"no"}"#,
                r#"{"error":{"message":"no"},"usage":{"total_tokens":1}}"#,
                r#"{"ok":true}"#,
                r#"{"data":null,"results":null,"text":null}"#,
                r#"{"data":[{"url":"#,
                "<html>oops</html>",
            ] {
                assert!(check(passed, body.as_bytes()).is_err(), "{passed:?} {body}");
            }
        }
        let limited = br#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#;
        assert_eq!(check(Moderation, limited).unwrap_err().class, Class::RateLimited);
    }
}
