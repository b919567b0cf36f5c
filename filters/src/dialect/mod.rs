//! What callers speak: the shape of their requests, replies and errors.

/// A client protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// OpenAI's: `/v1/chat/completions` and its family.
    #[default]
    OpenAi,
    /// Anthropic's: `/v1/messages`.
    Anthropic,
}

impl Dialect {
    /// As events and logs write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }
}
