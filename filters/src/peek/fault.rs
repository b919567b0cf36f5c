//! What can be wrong with a JSON body.

use super::scan::MEMBERS_MAX;
use super::{BadBody, DEPTH_MAX};

/// What is wrong and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::peek) struct Fault {
    pub what: What,
    pub at: usize,
    /// Where the key of the outermost member begins in which it was found.
    pub top: usize,
}

/// What is wrong. One byte, so that every step of the scan answers in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::peek) enum What {
    #[error("expected a JSON object, found nothing")]
    Nothing,
    #[error("expected a JSON object")]
    NoObject,
    #[error("expected nothing more after the object")]
    Trailing,
    #[error("unexpected end of the body")]
    Cut,
    #[error("nested deeper than {DEPTH_MAX}")]
    Deep,
    #[error("more than {MEMBERS_MAX} members in one object")]
    Many,
    #[error("expected a member's name in double quotes")]
    Name,
    #[error("lone surrogate in a member's name")]
    Surrogate,
    #[error("a name stands twice in one object")]
    Twice,
    #[error("expected `:`")]
    Colon,
    #[error("expected `,` or `}}`")]
    InObject,
    #[error("expected `,` or `]`")]
    InArray,
    #[error("expected a value")]
    Value,
    #[error("expected a digit")]
    Digit,
    #[error("bad escape in a string")]
    Escape,
    #[error("control character in a string")]
    Control,
    #[error("string without an end")]
    Endless,
}

impl Fault {
    /// A fault in the caller's words.
    pub(super) fn told(self, text: &str) -> BadBody {
        if self.what != What::Twice {
            return BadBody::Json(format!("invalid JSON at byte {}: {}", self.at, self.what));
        }
        let name = |at: usize| {
            let string = serde_json::Deserializer::from_str(text.get(at..).unwrap_or_default());
            let name = string.into_iter::<String>().next().and_then(Result::ok).unwrap_or_default();
            // The caller's own word, so no more of it than a message bears.
            name.chars().take(64).collect::<String>()
        };
        let (param, twice) = (name(self.top), name(self.at));
        if self.top == self.at {
            return BadBody::twice(&param);
        }
        let message = format!("`{twice}` stands more than once in an object of `{param}`");
        BadBody::Member { param, message }
    }
}
