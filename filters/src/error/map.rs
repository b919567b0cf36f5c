//! A provider's own words for its failures, as data: the `[errors]` table of its preset.

use super::{Class, Failure, wait};

/// Every class by the name that config uses, and the status of one that came inside a 200.
pub const CLASSES: &[(&str, Class, u16)] = &[
    ("invalid_request", Class::BadRequest, 400),
    ("context_length", Class::ContextLength, 400),
    ("content_filter", Class::ContentFilter, 400),
    ("auth", Class::Auth, 401),
    ("model_not_found", Class::ModelNotFound, 404),
    ("quota", Class::Quota, 402),
    ("rate_limit", Class::RateLimited, 429),
    ("rate_hopeless", Class::RateHopeless, 429),
    ("too_large", Class::TooLarge, 413),
    ("timeout", Class::Timeout, 504),
    ("overloaded", Class::Overloaded, 503),
    ("server", Class::Server, 500),
];

/// What some words of a provider mean. A name without a blank is a code or type of an error, whole
/// or its beginning before a `*`; one with a blank is a part of its message. Case is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorMap {
    rows: Vec<(Name, Class)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Whole(String),
    Start(String),
    Phrase(String),
}

impl Name {
    /// Which of two names that fit counts: whole ones, then the longest beginning, then phrases.
    fn rank(&self) -> (u8, usize) {
        match self {
            Self::Whole(text) => (2, text.len()),
            Self::Start(text) => (1, text.len()),
            Self::Phrase(text) => (0, text.len()),
        }
    }
}

impl ErrorMap {
    /// Out of names and what they mean.
    #[must_use]
    pub fn new<'n>(rows: impl IntoIterator<Item = (&'n str, Class)>) -> Self {
        let name = |text: &str| {
            let text = text.trim().to_lowercase();
            match text.strip_suffix('*') {
                _ if text.contains(' ') => Name::Phrase(text),
                Some(start) => Name::Start(start.to_owned()),
                None => Name::Whole(text),
            }
        };
        let mut rows: Vec<_> = rows.into_iter().map(|(text, class)| (name(text), class)).collect();
        rows.sort_by_key(|(name, _)| std::cmp::Reverse(name.rank()));
        Self { rows }
    }

    /// The failure in its provider's own sense. `within`: it came inside a 200, so its status is
    /// what its class means. A request that no wait can help stays one.
    #[must_use]
    pub fn refine(&self, mut failure: Failure, within: bool) -> Failure {
        let Some(class) = self.class(&failure) else { return failure };
        let limited = class == Class::RateLimited;
        if class == failure.class || (limited && failure.class == Class::RateHopeless) {
            return failure;
        }
        failure.class = class;
        if within && let Some((.., status)) = CLASSES.iter().find(|(_, other, _)| *other == class) {
            failure.status = *status;
        }
        if limited || class == Class::Overloaded {
            failure.retry_after = failure.retry_after.or_else(|| wait::from_text(&failure.message));
        }
        failure
    }

    fn class(&self, failure: &Failure) -> Option<Class> {
        if self.rows.is_empty() {
            return None;
        }
        let low = |text: &Option<String>| text.as_deref().unwrap_or_default().to_lowercase();
        let (code, kind) = (low(&failure.code), low(&failure.kind));
        let message = failure.message.to_lowercase();
        let fits = |name: &Name| match name {
            Name::Whole(text) => *text == code || *text == kind,
            Name::Start(text) => code.starts_with(text) || kind.starts_with(text),
            Name::Phrase(text) => message.contains(text),
        };
        self.rows.iter().find(|(name, _)| fits(name)).map(|(_, class)| *class)
    }
}
