//! What a gateway must know of a request body, with the spans it may have to edit; nothing else is parsed.

use bytes::Bytes;
use std::ops::Range;

/// Deeper nesting than this is refused before anything recurses.
pub const DEPTH_MAX: usize = 64;

/// A body as the pieces it is sent in: slices of the original and small inserts, never a copy of the whole.
#[derive(Debug, Clone, Default)]
pub struct Segments(pub Vec<Bytes>);

impl Segments {
    /// The sum of the pieces, for content-length.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }
    /// No byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// One contiguous copy (tests, translation).
    #[must_use]
    pub fn concat(&self) -> Bytes {
        match self.0.as_slice() {
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

impl From<Bytes> for Segments {
    fn from(b: Bytes) -> Self {
        Self(vec![b])
    }
}

/// Why a body is not taken. Each is a 400 that costs nothing upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    /// `invalid_json`: no JSON at all, invalid UTF-8, too deep. The message says which and where.
    #[error("{0}")]
    Json(String),
    /// `invalid_request`: JSON, but a member we read has a wrong type or value, or stands twice.
    #[error("{message}")]
    Member {
        /// The member's name, for the error's `param`.
        param: String,
        /// What is wrong with it.
        message: String,
    },
}

/// One top-level member of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name, unescaped.
    pub name: String,
    /// The key's span, quotes included.
    pub key: Range<usize>,
    /// The value's span.
    pub value: Range<usize>,
}

/// What a chat body says that a gateway must know. `extra_body` is already merged into `body`
/// (its members replace or join the top level) and our own members are marked for removal.
#[derive(Debug, Clone, Default)]
pub struct Peek {
    /// The body the spans point into.
    pub body: Bytes,
    /// Every top-level member in order.
    pub members: Vec<Member>,
    /// `model`, absent when the body has none.
    pub model: Option<String>,
    /// `stream`; null and absent are false.
    pub stream: bool,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// The smaller of `max_tokens` and `max_completion_tokens`, where given.
    pub max_tokens: Option<u64>,
    /// `n`, 1 when absent.
    pub n: u64,
    /// `task_type`, removed before the upstream sees it.
    pub task_type: Option<String>,
    /// `budget_tier`, removed before the upstream sees it.
    pub budget_tier: Option<String>,
    /// Bytes and characters of the prompt, for the estimate of [`crate::tokens::estimate`].
    pub prompt_tokens_estimate: u64,
}

/// Reads a chat completion body.
///
/// # Errors
/// [`BadBody`], in the words the caller sees.
pub fn chat(_body: Bytes) -> Result<Peek, BadBody> {
    unimplemented!()
}

/// Edits of top-level members, applied in one pass over the original bytes.
#[derive(Debug, Default)]
pub struct Edits {}

impl Edits {
    /// Replaces the value of `name`, or inserts the member at the end. `value` is raw JSON.
    pub fn set(&mut self, _name: &str, _value: impl Into<Bytes>) {
        unimplemented!()
    }
    /// Removes `name`, comma included.
    pub fn remove(&mut self, _name: &str) {
        unimplemented!()
    }
    /// Renames the key, value untouched.
    pub fn rename(&mut self, _name: &str, _to: &str) {
        unimplemented!()
    }
    /// The edited body.
    #[must_use]
    pub fn apply(self, _peek: &Peek) -> Segments {
        unimplemented!()
    }
}
