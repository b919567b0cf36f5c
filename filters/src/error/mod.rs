//! Any provider's failure: its class, and the caller's words for it.

mod api;
mod left;
mod map;
mod mask;
mod rules;
mod wait;
mod words;

pub use api::{ApiError, Code};
pub use left::{Spent, spent};
pub use map::{CLASSES, ErrorMap};
pub use mask::mask;
pub use wait::parse_wait;

use std::time::Duration;
use words::Words;

/// Bytes of an error body that are read; what says more than this is no error message.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Characters of a provider's words that are kept, for log lines and ledger rows to stay small.
pub const MESSAGE_CHARS_MAX: usize = 2_000;
/// Characters of a provider's own `code` and `param`; real ones are identifiers.
const NAME_CHARS_MAX: usize = 200;

/// What a provider's failure is, whatever its own wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The request is wrong (400, 404, 409, 422 keep their status).
    BadRequest,
    /// Too many tokens for the model.
    ContextLength,
    /// The provider refused the request's content.
    ContentFilter,
    /// Our credential was refused (401, 403).
    Auth,
    /// The provider has no such model.
    ModelNotFound,
    /// The account is out of money or quota.
    Quota,
    /// Too fast; time heals it.
    RateLimited,
    /// Above the limit in one request; no time heals it.
    RateHopeless,
    /// The body is too large for the provider.
    TooLarge,
    /// The provider says it timed out (408, 425, 504).
    Timeout,
    /// 503, 529, and 429 or 498 of a busy model.
    Overloaded,
    /// Any other 5xx, and errors inside a 200.
    Server,
    /// A 200 that is no answer.
    Invalid,
}

/// A provider's failure, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it is.
    pub class: Class,
    /// The provider's HTTP status; for an error inside a 200 the status that it states or means.
    pub status: u16,
    /// The provider's words, secrets masked, at most [`MESSAGE_CHARS_MAX`] characters.
    pub message: String,
    /// The provider's own code, or its type where it has no code.
    pub code: Option<String>,
    /// The provider's own type.
    pub kind: Option<String>,
    /// The provider's own param.
    pub param: Option<String>,
    /// How long the provider asked us to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of our own finding: a 200 that is no answer, a connection that broke. The message
    /// is masked and cut like a provider's.
    #[must_use]
    pub fn new(class: Class, status: u16, message: &str) -> Self {
        let message = cut(mask(message), MESSAGE_CHARS_MAX);
        Self { class, status, message, code: None, kind: None, param: None, retry_after: None }
    }
}

/// Reads a provider's error reply: status, headers (by a look-up of lower-case names) and its body,
/// of which [`BODY_BYTES_MAX`] bytes are looked at, in any of the shapes that providers
/// use: wrapped, flat, a bare string, an array, HTML, plain text, SSE framing, or nothing.
#[must_use]
pub fn classify(status: u16, header: &dyn Fn(&str) -> Option<String>, body: &[u8]) -> Failure {
    let mut words = Words::read(body);
    if words.kind.is_empty()
        && let Some(kind) = header("x-amzn-errortype")
    {
        // Bedrock: `ThrottlingException:http://…`; the body has the message alone
        words.kind = kind.split(':').next().unwrap_or_default().to_owned();
        words.index();
    }
    let class = rules::class(status, &words);
    let mut failure = finish(class, status, words);
    failure.retry_after =
        wait::from_headers(header, class == Class::RateLimited).or(failure.retry_after);
    failure
}

/// Reads an error object met inside a 200, as its whole body or as the data of one event. Its own
/// number gives the status, else the words of its type and code do, else it is a 500.
#[must_use]
pub fn classify_event(value: &[u8]) -> Failure {
    let words = Words::read(value);
    let status = words.status.unwrap_or_else(|| rules::meant(&words));
    finish(rules::class(status, &words), status, words)
}

fn finish(class: Class, status: u16, words: Words) -> Failure {
    let message = match words.message.trim() {
        "" => format!("status {status} without a message"),
        text => cut(mask(text), MESSAGE_CHARS_MAX),
    };
    let named = |word: &str| cut(mask(word), NAME_CHARS_MAX);
    let kind = Some(words.kind).filter(|word| !word.is_empty());
    let code = Some(words.code).filter(|word| !word.is_empty()).or_else(|| kind.clone());
    let waits = matches!(class, Class::RateLimited | Class::Overloaded);
    Failure {
        class,
        status,
        retry_after: words.wait.or_else(|| wait::from_text(&message)).filter(|_| waits),
        message,
        code: code.as_deref().map(named),
        kind: kind.as_deref().map(named),
        param: words.param.as_deref().map(named),
    }
}

/// At most `chars` characters, an ellipsis for the rest.
fn cut(mut text: String, chars: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(chars.saturating_sub(1))
        && text[at..].chars().nth(1).is_some()
    {
        text.truncate(at);
        text.push('…');
    }
    text
}
