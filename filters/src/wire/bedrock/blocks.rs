//! The content blocks of Converse: in pieces as a stream has them, or whole.

use crate::chat::raw::{Text, put_member};
use crate::tokens::Channel;
use crate::usage::Usage;
use crate::wire::scribe::{Scribe, object_text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A thought that is kept to be given back with its seal. A longer one is still told as text, but
/// cannot be returned in a tool loop; 128,000 tokens come to about half of this.
const THOUGHT_BYTES_MAX: usize = 1 << 20;

/// A block of a whole message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Block<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use: Option<ToolUse<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Reasoning<'a>>,
}

/// A call; in a stream without its input.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    #[serde(borrow)]
    tool_use_id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reasoning<'a> {
    #[serde(borrow)]
    reasoning_text: Option<ReasoningText<'a>>,
    #[serde(borrow)]
    redacted_content: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct ReasoningText<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
}

/// `delta` of a `contentBlockDelta`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use: Option<InputDelta<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<ReasoningDelta<'a>>,
}

#[derive(Deserialize)]
struct InputDelta<'a> {
    #[serde(borrow)]
    input: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningDelta<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    redacted_content: Option<Text<'a>>,
}

/// Usage; `inputTokens` does not include what the cache had.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_write_input_tokens: Option<u64>,
}

impl Tokens {
    /// `None` when nothing was said.
    pub fn usage(self) -> Option<Usage> {
        if self.input_tokens.is_none() && self.output_tokens.is_none() {
            return None;
        }
        Some(Usage::from_anthropic(
            self.input_tokens.unwrap_or_default(),
            self.cache_write_input_tokens.unwrap_or_default(),
            self.cache_read_input_tokens.unwrap_or_default(),
            self.output_tokens.unwrap_or_default(),
            0,
        ))
    }
}

impl ToolUse<'_> {
    /// Not for the caller: the provider's own tool.
    fn is_hidden(&self) -> bool {
        self.kind.as_deref() == Some("server_tool_use")
    }

    fn begin(&self, scribe: &mut Scribe) -> Option<u32> {
        let name = self.name.as_deref().filter(|name| !name.is_empty() && !self.is_hidden())?;
        Some(scribe.call(0, self.tool_use_id.as_deref(), name))
    }
}

/// Tells a block of a whole message.
pub(super) fn tell(block: &Block<'_>, scribe: &mut Scribe) {
    if let Some(text) = block.text {
        scribe.say(0, Channel::Content, text);
    }
    if let Some(reasoning) = &block.reasoning_content {
        let mut thought = Thought::default();
        if let Some(told) = &reasoning.reasoning_text {
            if let Some(text) = told.text {
                scribe.say(0, Channel::Reasoning, text);
                thought.keep(text);
            }
            thought.signature = told.signature.as_ref().map(|s| s.0.clone().into_owned());
        }
        if let Some(data) = &reasoning.redacted_content {
            thought.seal(data);
        }
        thought.close(scribe);
    }
    if let Some(call) = &block.tool_use
        && let Some(number) = call.begin(scribe)
    {
        scribe.arguments(0, number, &object_text(call.input));
    }
}

/// A block that is being written.
#[derive(Debug)]
pub(super) enum Open {
    Tool {
        number: u32,
        fragments: bool,
    },
    Thought(Thought),
    /// Not for the caller.
    Hidden,
}

/// What must come back in a tool loop.
#[derive(Debug, Default)]
pub(super) struct Thought {
    text: String,
    signature: Option<String>,
    /// The bytes of a redacted one.
    data: Vec<u8>,
    /// It grew too long to be kept.
    lost: bool,
}

impl Open {
    /// A block begins; text and thoughts have no beginning.
    pub fn tool(call: &ToolUse<'_>, scribe: &mut Scribe) -> Self {
        match call.begin(scribe) {
            Some(number) => Self::Tool { number, fragments: false },
            None => Self::Hidden,
        }
    }

    /// A block whose first sign is this delta. What it holds beside is told by [`Self::add`].
    pub fn by(delta: &Delta<'_>) -> Self {
        match delta.reasoning_content {
            Some(_) => Self::Thought(Thought::default()),
            None => Self::Hidden,
        }
    }

    pub fn add(&mut self, delta: &Delta<'_>, scribe: &mut Scribe) {
        if let Some(text) = delta.text {
            scribe.say(0, Channel::Content, text);
        }
        match self {
            Self::Tool { number, fragments } => {
                let input = delta.tool_use.as_ref().and_then(|call| call.input.as_deref());
                if let Some(input) = input.filter(|input| !input.is_empty()) {
                    scribe.arguments(0, *number, input);
                    *fragments = true;
                }
            }
            Self::Thought(thought) => {
                let Some(reasoning) = &delta.reasoning_content else { return };
                if let Some(text) = reasoning.text {
                    scribe.say(0, Channel::Reasoning, text);
                    thought.keep(text);
                }
                if let Some(more) = &reasoning.signature {
                    thought.signature.get_or_insert_default().push_str(more);
                }
                if let Some(data) = &reasoning.redacted_content {
                    thought.seal(data);
                }
            }
            Self::Hidden => {}
        }
    }

    pub fn close(self, scribe: &mut Scribe) {
        match self {
            Self::Tool { number, fragments: false } => scribe.arguments(0, number, "{}"),
            Self::Thought(thought) => thought.close(scribe),
            Self::Tool { .. } | Self::Hidden => {}
        }
    }
}

impl Thought {
    fn keep(&mut self, text: &RawValue) {
        match crate::chat::raw::text(text) {
            Some(text) => self.text.push_str(&text),
            None => self.lost = true,
        }
        self.bound();
    }

    fn seal(&mut self, base64: &str) {
        match STANDARD.decode(base64) {
            Ok(mut bytes) => self.data.append(&mut bytes),
            Err(_) => self.lost = true,
        }
        self.bound();
    }

    fn bound(&mut self) {
        let signature = self.signature.as_ref().map_or(0, String::len);
        self.lost |= self.text.len() + self.data.len() + signature > THOUGHT_BYTES_MAX;
        if self.lost {
            (self.text, self.data) = (String::new(), Vec::new());
        }
    }

    /// Half a thought does not fit its seal, and one without a seal is not taken back.
    fn close(self, scribe: &mut Scribe) {
        if self.lost {
            return;
        }
        let mut entry = |fields: &[(&str, &str)]| {
            let mut out = b"{".to_vec();
            for (name, text) in fields {
                put_member(&mut out, name, text);
            }
            out.push(b'}');
            scribe.thought(0, &String::from_utf8(out).unwrap_or_default());
        };
        if let Some(signature) = self.signature.as_deref().filter(|text| !text.is_empty()) {
            let text = ("thinking", self.text.as_str());
            entry(&[("type", "thinking"), text, ("signature", signature)]);
        }
        // The bytes are Anthropic's own sealed text, which its other doors take too.
        if let Some(data) = String::from_utf8(self.data).ok().filter(|data| !data.is_empty()) {
            entry(&[("type", "redacted_thinking"), ("data", &data)]);
        }
    }
}
