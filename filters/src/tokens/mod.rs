//! Counting tokens: exactly where we have the model's vocabulary, honestly estimated where not.

/// A vocabulary that can be counted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// GPT-4o and later.
    O200k,
    /// GPT-4, GPT-3.5.
    Cl100k,
}

impl Encoding {
    /// By its published name (`o200k_base`, `cl100k_base`).
    #[must_use]
    pub fn by_name(_name: &str) -> Option<Self> {
        unimplemented!()
    }
    /// The vocabulary a model is known to use (`gpt-4o`, `o3-mini`, `gpt-4`); `None` when nobody says.
    #[must_use]
    pub fn of_model(_model: &str) -> Option<Self> {
        unimplemented!()
    }
    /// Loads the vocabulary now (about 100 ms), so that no request waits for it.
    pub fn preload(self) {
        unimplemented!()
    }
}

/// Tokens of a whole text; linear in its length whatever it holds.
#[must_use]
pub fn count(_text: &str, _encoding: Encoding) -> u64 {
    unimplemented!()
}

/// Estimate of a text's tokens from its bytes: ASCII bytes / 4 + 0.75 per other character, rounded up.
#[must_use]
pub fn estimate(_text: &[u8]) -> u64 {
    unimplemented!()
}

/// Estimate of a chat body's prompt tokens: messages, tools and system text by [`estimate`],
/// images by a flat rule, base64 never as text.
#[must_use]
pub fn estimate_body(_body: &[u8]) -> u64 {
    unimplemented!()
}

/// Which text a delta belongs to; each has a tail of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// `content`
    Content,
    /// `reasoning_content`
    Reasoning,
    /// `refusal`
    Refusal,
    /// Arguments (and name) of tool call number n.
    Tool(u32),
}

/// Counts a stream's text as it passes: deltas gather in a tail and are counted in batches of 1 KiB
/// or more at safe cuts, so that no byte is tokenised twice and the sum equals the whole text's count.
#[derive(Debug)]
pub struct Counter {}

impl Counter {
    /// `None` estimates instead of counting.
    #[must_use]
    pub fn new(_encoding: Option<Encoding>) -> Self {
        unimplemented!()
    }
    /// Takes a delta of one choice's channel.
    pub fn push(&mut self, _choice: u32, _channel: Channel, _delta: &str) {
        unimplemented!()
    }
    /// Some text has passed.
    #[must_use]
    pub fn any(&self) -> bool {
        unimplemented!()
    }
    /// Tokens so far, tails included. May be called more than once; later pushes go on.
    pub fn total(&mut self) -> u64 {
        unimplemented!()
    }
    /// Of these, reasoning.
    pub fn reasoning(&mut self) -> u64 {
        unimplemented!()
    }
    /// How the numbers were made: `Counted` or `Estimated`.
    #[must_use]
    pub fn source(&self) -> crate::usage::Source {
        unimplemented!()
    }
}
