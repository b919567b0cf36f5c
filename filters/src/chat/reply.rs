//! The canonical reply: strict chunks of a stream, or one completion.

use super::raw::{put_comma, put_member, put_name, put_raw, put_text};
use crate::tokens::{Channel, Counter};
use crate::usage::Usage;
use bytes::Bytes;

/// Ends a stream that was answered in full.
pub const DONE: &str = "data: [DONE]\n\n";

/// Writes the chunks of one stream: one id, time and model for all.
#[derive(Debug)]
pub struct Chunks {
    head: Vec<u8>,
    /// The index of the choice that chunks are written for.
    choice: u32,
    usage_asked: bool,
}

/// The start of a tool call.
#[derive(Debug, Clone, Copy)]
pub struct ToolStart<'a> {
    /// Dense from 0.
    pub index: u32,
    /// Never empty.
    pub id: &'a str,
    /// Never empty.
    pub name: &'a str,
}

impl Chunks {
    /// `created` in Unix seconds; `usage_asked` puts `usage: null` into every chunk as OpenAI does.
    #[must_use]
    pub fn new(id: &str, created: u64, model: &str, usage_asked: bool) -> Self {
        let mut head = b"data: {".to_vec();
        put_member(&mut head, "id", id);
        put_member(&mut head, "object", "chat.completion.chunk");
        put_raw(&mut head, "created", &created.to_string());
        put_member(&mut head, "model", model);
        put_name(&mut head, "choices");
        head.push(b'[');
        Self { head, choice: 0, usage_asked }
    }

    /// Chunks are for this choice from now on; 0 until told.
    pub fn turn_to(&mut self, choice: u32) {
        self.choice = choice;
    }

    /// The first chunk.
    #[must_use]
    pub fn role(&self) -> Bytes {
        self.delta(64, None, |out| out.extend_from_slice(br#""role":"assistant","content":"""#))
    }

    /// One member of the delta, its value as raw JSON.
    #[must_use]
    pub fn raw(&self, name: &str, raw: &str) -> Bytes {
        self.delta(name.len() + raw.len(), None, |out| put_raw(out, name, raw))
    }

    /// One member of the delta, its value as text.
    #[must_use]
    pub fn text(&self, name: &str, text: &str) -> Bytes {
        self.delta(name.len() + text.len(), None, |out| put_member(out, name, text))
    }

    /// The first fragment of a tool call.
    #[must_use]
    pub fn tool(&self, tool: ToolStart<'_>) -> Bytes {
        self.delta(tool.id.len() + tool.name.len() + 96, None, |out| {
            out.extend_from_slice(br#""tool_calls":[{"index":"#);
            out.extend_from_slice(tool.index.to_string().as_bytes());
            put_member(out, "id", tool.id);
            out.extend_from_slice(br#","type":"function","function":{"#);
            put_member(out, "name", tool.name);
            out.extend_from_slice(br#","arguments":""}}]"#);
        })
    }

    /// A further fragment of a tool call's arguments, a JSON string as raw JSON.
    #[must_use]
    pub fn arguments(&self, index: u32, raw: &str) -> Bytes {
        self.delta(raw.len() + 64, None, |out| {
            out.extend_from_slice(br#""tool_calls":[{"index":"#);
            out.extend_from_slice(index.to_string().as_bytes());
            out.extend_from_slice(br#","function":{"#);
            put_raw(out, "arguments", raw);
            out.extend_from_slice(b"}}]");
        })
    }

    /// The one chunk with a finish reason.
    #[must_use]
    pub fn finish(&self, reason: &str) -> Bytes {
        self.delta(0, Some(reason), |_| {})
    }

    /// A whole answer as chunks, the role left out.
    #[must_use]
    pub fn whole(&self, completion: &Completion) -> Vec<Bytes> {
        let mut out = Vec::new();
        if !completion.reasoning.is_empty() {
            out.push(self.text("reasoning_content", &completion.reasoning));
        }
        if !completion.thinking_blocks.is_empty() {
            out.push(self.raw("thinking_blocks", &numbered(&completion.thinking_blocks)));
        }
        if !completion.images.is_empty() {
            out.push(self.raw("images", &numbered(&completion.images)));
        }
        if let Some(content) = completion.content.as_deref().filter(|text| !text.is_empty()) {
            out.push(self.text("content", content));
        }
        for (call, index) in completion.tool_calls.iter().zip(0..) {
            out.push(self.tool(ToolStart { index, id: &call.id, name: &call.name }));
            let mut raw = Vec::new();
            put_text(&mut raw, &call.arguments);
            out.push(self.arguments(index, &String::from_utf8_lossy(&raw)));
        }
        out.push(self.finish(completion.finish));
        out
    }

    /// The chunk after the finish that only has usage.
    #[must_use]
    pub fn usage(&self, usage: &Usage) -> Bytes {
        let mut out = Vec::with_capacity(self.head.len() + 256);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(br#"],"usage":"#);
        put_usage(&mut out, usage);
        out.extend_from_slice(b"}\n\n");
        out.into()
    }

    fn delta(&self, more: usize, finish: Option<&str>, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let mut out = Vec::with_capacity(self.head.len() + more + 96);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(br#"{"index":"#);
        out.extend_from_slice(self.choice.to_string().as_bytes());
        out.extend_from_slice(br#","delta":{"#);
        write(&mut out);
        out.extend_from_slice(br#"},"finish_reason":"#);
        match finish {
            Some(reason) => put_text(&mut out, reason),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(if self.usage_asked { br#"}],"usage":null"# } else { b"}]" });
        out.extend_from_slice(b"}\n\n");
        out.into()
    }
}

/// A whole answer with one choice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The answer's text; `None` is null.
    pub content: Option<String>,
    /// `reasoning_content`
    pub reasoning: String,
    /// Raw JSON objects for `thinking_blocks`, for the caller to give back unchanged.
    pub thinking_blocks: Vec<String>,
    /// Raw JSON objects for `images`: pictures as data URLs, in the form of OpenRouter's replies.
    pub images: Vec<String>,
    /// Tool calls in order.
    pub tool_calls: Vec<Call>,
    /// The finish reason, one of OpenAI's.
    pub finish: &'static str,
}

/// A tool call of a whole answer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Call {
    /// Never empty.
    pub id: String,
    /// Never empty.
    pub name: String,
    /// JSON as text.
    pub arguments: String,
}

impl Completion {
    /// Gives all generated text to the counter.
    pub fn count(&self, counter: &mut Counter) {
        counter.push(0, Channel::Content, self.content.as_deref().unwrap_or_default());
        counter.push(0, Channel::Reasoning, &self.reasoning);
        for (call, n) in self.tool_calls.iter().zip(0..) {
            counter.push(0, Channel::Tool(n), &call.name);
            counter.push(0, Channel::Tool(n), &call.arguments);
        }
    }

    /// The `chat.completion` body.
    #[must_use]
    pub fn body(&self, id: &str, created: u64, model: &str, usage: &Usage) -> Bytes {
        body(id, created, model, std::slice::from_ref(self), usage)
    }

    fn put(&self, index: usize, out: &mut Vec<u8>) {
        put_comma(out);
        out.push(b'{');
        put_raw(out, "index", &index.to_string());
        out.extend_from_slice(br#","message":{"role":"assistant""#);
        match &self.content {
            Some(content) => put_member(out, "content", content),
            None => put_raw(out, "content", "null"),
        }
        put_raw(out, "refusal", "null");
        if !self.reasoning.is_empty() {
            put_member(out, "reasoning_content", &self.reasoning);
        }
        if !self.thinking_blocks.is_empty() {
            put_raw(out, "thinking_blocks", &format!("[{}]", self.thinking_blocks.join(",")));
        }
        if !self.images.is_empty() {
            put_raw(out, "images", &numbered(&self.images));
        }
        self.put_tool_calls(out);
        out.extend_from_slice(br#"},"logprobs":null"#);
        put_member(out, "finish_reason", self.finish);
        out.push(b'}');
    }

    fn put_tool_calls(&self, out: &mut Vec<u8>) {
        if self.tool_calls.is_empty() {
            return;
        }
        put_name(out, "tool_calls");
        out.push(b'[');
        for call in &self.tool_calls {
            put_comma(out);
            out.push(b'{');
            put_member(out, "id", &call.id);
            put_member(out, "type", "function");
            put_name(out, "function");
            out.push(b'{');
            put_member(out, "name", &call.name);
            put_member(out, "arguments", &call.arguments);
            out.extend_from_slice(b"}}");
        }
        out.push(b']');
    }
}

/// A list of objects, each with its `index`: clients merge pieces of lists by it.
fn numbered(objects: &[String]) -> String {
    let numbered = objects.iter().enumerate();
    let numbered: Vec<String> = numbered
        .map(|(n, object)| format!("{{\"index\":{n},{}", object.trim_start_matches('{')))
        .collect();
    format!("[{}]", numbered.join(","))
}

/// The `chat.completion` body of these choices in order.
#[must_use]
pub fn body(id: &str, created: u64, model: &str, choices: &[Completion], usage: &Usage) -> Bytes {
    let mut out = b"{".to_vec();
    put_member(&mut out, "id", id);
    put_member(&mut out, "object", "chat.completion");
    put_raw(&mut out, "created", &created.to_string());
    put_member(&mut out, "model", model);
    put_name(&mut out, "choices");
    out.push(b'[');
    for (index, choice) in choices.iter().enumerate() {
        choice.put(index, &mut out);
    }
    out.extend_from_slice(br#"],"usage":"#);
    put_usage(&mut out, usage);
    out.push(b'}');
    out.into()
}

/// Appends usage in OpenAI's words: the prompt includes what was cached, the completion what was
/// reasoned.
pub fn put_usage(out: &mut Vec<u8>, usage: &Usage) {
    let (prompt, total) = (usage.prompt(), usage.total());
    let text = format!(
        "{{\"prompt_tokens\":{prompt},\"completion_tokens\":{},\"total_tokens\":{total},\
         \"prompt_tokens_details\":{{\"cached_tokens\":{},\"cache_write_tokens\":{}}},\
         \"completion_tokens_details\":{{\"reasoning_tokens\":{}}}}}",
        usage.output, usage.cached, usage.cache_write, usage.reasoning
    );
    out.extend_from_slice(text.as_bytes());
}
