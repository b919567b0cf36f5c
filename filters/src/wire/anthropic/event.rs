//! The events of a Messages stream, borrowed from their bytes and read only as deep as needed.

use crate::chat::raw::Text;
use crate::usage::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One event's data. Members are read when the type says that they matter, so an event that is not
/// known yet may hold anything.
#[derive(Debug, Deserialize)]
pub(crate) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Option<Text<'a>>,
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

impl<'a> Event<'a> {
    pub(crate) fn index(&self) -> u64 {
        self.index.and_then(|raw| raw.get().parse().ok()).unwrap_or_default()
    }
    pub(crate) fn delta(&self) -> Option<Delta<'a>> {
        read(self.delta)
    }
    pub(crate) fn block(&self) -> Option<Block<'a>> {
        read(self.content_block)
    }
    pub(crate) fn raw_block(&self) -> Option<&'a str> {
        self.content_block.map(RawValue::get)
    }
    pub(crate) fn message(&self) -> Option<Start<'a>> {
        read(self.message)
    }
    pub(crate) fn usage(&self) -> Option<Tokens> {
        read(self.usage)
    }
}

fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// `delta` of `content_block_delta` and `message_delta`. Strings that are only handed on stay raw.
#[derive(Debug, Deserialize)]
pub(crate) struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    pub partial_json: Option<&'a RawValue>,
    #[serde(borrow)]
    pub signature: Option<Text<'a>>,
    #[serde(borrow)]
    pub stop_reason: Option<Text<'a>>,
    /// Null is a value here: clients miss the key.
    #[serde(borrow, default, deserialize_with = "present")]
    pub stop_sequence: Option<&'a RawValue>,
}

pub(crate) fn present<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// A content block, as a stream begins it or as a whole message holds it.
#[derive(Debug, Deserialize)]
pub(crate) struct Block<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    #[serde(borrow)]
    pub text: Option<Text<'a>>,
    #[serde(borrow)]
    pub thinking: Option<Text<'a>>,
    #[serde(borrow)]
    pub signature: Option<Text<'a>>,
    #[serde(borrow)]
    pub data: Option<Text<'a>>,
    #[serde(borrow)]
    pub id: Option<Text<'a>>,
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
}

/// `message` of `message_start`.
#[derive(Debug, Deserialize)]
pub(crate) struct Start<'a> {
    #[serde(borrow)]
    pub id: Option<Text<'a>>,
    #[serde(borrow)]
    pub model: Option<Text<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl Start<'_> {
    pub(crate) fn usage(&self) -> Option<Tokens> {
        read(self.usage)
    }
}

/// Usage as Messages reports it, every number optional.
#[derive(Debug, Default, Clone, Deserialize)]
pub(crate) struct Tokens {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<Details>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct Details {
    thinking_tokens: Option<u64>,
}

impl Tokens {
    /// Later numbers replace earlier ones, each on its own: they are totals, never increments, and
    /// a number that is left out still stands.
    pub(crate) fn overwrite(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_read_input_tokens =
            later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.output_tokens_details = later.output_tokens_details.or(self.output_tokens_details);
    }

    /// `None` when nothing was reported. `input_tokens` does not include what the cache had.
    pub(crate) fn usage(&self) -> Option<Usage> {
        if self.input_tokens.is_none() && self.output_tokens.is_none() {
            return None;
        }
        let details = self.output_tokens_details.unwrap_or_default();
        Some(Usage::from_anthropic(
            self.input_tokens.unwrap_or_default(),
            self.cache_creation_input_tokens.unwrap_or_default(),
            self.cache_read_input_tokens.unwrap_or_default(),
            self.output_tokens.unwrap_or_default(),
            details.thinking_tokens.unwrap_or_default(),
        ))
    }

    /// Both numbers that clients need are there.
    pub(crate) fn is_full(&self) -> bool {
        self.input_tokens.is_some() && self.output_tokens.is_some()
    }

    /// The provider has said how much it wrote.
    pub(crate) fn has_output(&self) -> bool {
        self.output_tokens.is_some()
    }
}
