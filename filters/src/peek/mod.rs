//! What a gateway must know of a request body, with the spans it may have to edit.
//!
//! [`chat`] checks the whole body once (UTF-8, grammar, depth) and reads the few members that weir
//! acts on. [`Edits`] then changes top-level members without copying or touching any other byte, so
//! that number digits, key order and unknown members reach the provider as the caller wrote them.

use bytes::Bytes;
use std::ops::Range;

mod edit;
mod fault;
mod names;
mod params;
mod read;
mod scan;

pub use edit::Edits;
pub use params::{apply_params, with_include_usage};
pub use read::RESPONSES;
pub use read::{CHAT, COMPLETIONS, Form, INPUT, LIMIT_MAX, MESSAGES, N_MAX, NAME_BYTES_MAX, OTHER};
pub use scan::MEMBERS_MAX;

/// Deeper nesting than this is refused; the outermost object is level 1.
pub const DEPTH_MAX: usize = 64;

/// Members that are ours: no provider ever sees them. [`Edits::apply`] removes them.
pub const OWN: [&str; 3] = ["task_type", "budget_tier", "extra_body"];

/// A body as the pieces it is sent in: slices of the original and small inserts, never a copy of
/// the whole.
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
        self.0.iter().all(Bytes::is_empty)
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

impl BadBody {
    fn member(param: &str, message: impl Into<String>) -> Self {
        Self::Member { param: param.into(), message: message.into() }
    }
    fn twice(param: &str) -> Self {
        Self::member(param, format!("`{param}` stands more than once"))
    }
}

/// One top-level member of the body; [`Peek::name`] gives its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name where it is written with escapes (`mod\u0065l`); else the key's bytes are it.
    unescaped: Option<Box<str>>,
    /// The key's span, quotes included.
    pub key: Range<usize>,
    /// The value's span.
    pub value: Range<usize>,
}

impl Member {
    /// Its name in the body its spans point into.
    fn name<'a>(&'a self, body: &'a [u8]) -> &'a str {
        match &self.unescaped {
            Some(name) => name,
            // A body that was scanned is UTF-8, so the default is never taken.
            None => std::str::from_utf8(self.key_bytes(body)).unwrap_or_default(),
        }
    }

    fn is_named(&self, name: &str, body: &[u8]) -> bool {
        match &self.unescaped {
            Some(unescaped) => **unescaped == *name,
            None => self.key_bytes(body) == name.as_bytes(),
        }
    }

    fn key_bytes<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        body.get(self.key.start + 1..self.key.end.saturating_sub(1)).unwrap_or_default()
    }
}

/// What a chat body says that a gateway must know. `extra_body` is already merged into `body`
/// (its members replace or join the top level); our own members ([`OWN`]) still stand there.
#[derive(Debug, Clone)]
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
}

impl Default for Peek {
    fn default() -> Self {
        Self {
            body: Bytes::from_static(b"{}"),
            members: Vec::new(),
            model: None,
            stream: false,
            include_usage: false,
            max_tokens: None,
            n: 1,
            task_type: None,
            budget_tier: None,
        }
    }
}

impl Peek {
    /// The first top-level member of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.is_named(name, &self.body))
    }
    /// A member of a body that is no JSON: its value lies there.
    pub(crate) fn span(name: &str, value: Range<usize>) -> Member {
        Member { unescaped: Some(name.into()), key: value.start..value.start, value }
    }
    /// A member's name, unescaped.
    #[must_use]
    pub fn name<'a>(&'a self, member: &'a Member) -> &'a str {
        member.name(&self.body)
    }
    /// A member's value as it stands in the body.
    #[must_use]
    pub fn value(&self, member: &Member) -> &[u8] {
        self.body.get(member.value.clone()).unwrap_or_default()
    }
    /// Estimate of the prompt's tokens; reads the whole body, so ask once.
    #[must_use]
    pub fn estimate(&self) -> u64 {
        crate::tokens::estimate_body(&self.body)
    }
}

/// Reads a chat completion body.
///
/// # Errors
/// [`BadBody`], in the words the caller sees.
pub fn chat(body: Bytes) -> Result<Peek, BadBody> {
    form(body, &CHAT)
}

/// Reads a body of any dialect.
///
/// # Errors
/// [`BadBody`], in the words the caller sees.
pub fn form(body: Bytes, form: &Form) -> Result<Peek, BadBody> {
    let members = check(&body)?;
    let peek = Peek { body, members, ..Peek::default() };
    read::form(read::merge_extra(peek)?, form)
}

/// Reads a body that no caller wrote, such as a translated one, for [`apply_params`] alone: its
/// members and nothing of what they say.
///
/// # Errors
/// [`BadBody::Json`] where it is no JSON object.
pub fn members(body: Bytes) -> Result<Peek, BadBody> {
    let members = check(&body)?;
    Ok(Peek { body, members, ..Peek::default() })
}

/// The members of a body that may hold anything.
fn check(body: &[u8]) -> Result<Vec<Member>, BadBody> {
    if body.is_empty() {
        return Err(BadBody::Json("the body is empty; expected a JSON object".into()));
    }
    let text = std::str::from_utf8(body)
        .map_err(|e| BadBody::Json(format!("invalid UTF-8 at byte {}", e.valid_up_to())))?;
    if text.starts_with('\u{feff}') {
        return Err(BadBody::Json("byte order mark at byte 0; send plain UTF-8".into()));
    }
    scan::members(text).map_err(|fault| fault.told(text))
}
