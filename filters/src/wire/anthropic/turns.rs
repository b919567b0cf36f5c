//! The messages of a chat as Messages wants them: system text apart, user and assistant in turns.

use super::content::Block;
use crate::chat::raw::{put_comma, put_member, put_name, put_raw};
use crate::chat::{Chat, Message, PartBody, Role, Thinking, ToolCall, thought, wrong};
use crate::error::ApiError;
use crate::wire::edit::{arguments, note};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What a missing first user turn says; an empty text is refused.
const FILLER: &str = ".";
/// `response_format: json_object`, which Messages has no member for.
const JSON_ONLY: &str = "Answer with one valid JSON object and nothing else: no prose, no fences.";

/// A prompt in Messages' order.
#[derive(Debug, Default)]
pub(super) struct Prompt<'a> {
    system: Vec<Block<'a>>,
    turns: Vec<Turn<'a>>,
    /// What of the messages was left out.
    pub dropped: Vec<String>,
}

#[derive(Debug, Default)]
struct Turn<'a> {
    assistant: bool,
    /// Tool results, which must come before anything else that the user says.
    results: Vec<Block<'a>>,
    blocks: Vec<Block<'a>>,
    /// It opens with a thinking block.
    thinks: bool,
    /// It calls a tool.
    calls: bool,
}

impl<'a> Prompt<'a> {
    /// # Errors
    /// Content that the provider cannot take, with its place.
    pub(super) fn of(chat: &'a Chat<'a>) -> Result<Self, ApiError> {
        let mut prompt = Self::default();
        for (at, message) in chat.messages.iter().enumerate() {
            prompt.add(at, message)?;
        }
        prompt.trim_prefill();
        if prompt.turns.first().is_none_or(|turn| turn.assistant) {
            let mut turn = Turn::default();
            turn.blocks.push(Block::Text { text: FILLER.into(), cache: None });
            prompt.turns.insert(0, turn);
        }
        Ok(prompt)
    }

    /// Asks for a JSON object in words.
    pub(super) fn ask_for_json(&mut self) {
        self.system.push(Block::Text { text: JSON_ONLY.into(), cache: None });
    }

    /// Thinking may be switched on: the answer is not begun, and a running tool loop has its
    /// thinking blocks with it. Otherwise the provider answers 400 (Messages, extended thinking).
    pub(super) fn may_think(&self) -> bool {
        let prefilled = self.turns.last().is_some_and(|turn| turn.assistant);
        let [.., before, last] = self.turns.as_slice() else { return !prefilled };
        let in_loop = before.calls && !last.results.is_empty();
        !prefilled && (!in_loop || before.thinks)
    }

    /// Writes `system` (if there is any) and `messages`.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        if !self.system.is_empty() {
            put_name(out, "system");
            put_blocks(out, self.system.iter());
        }
        put_name(out, "messages");
        out.push(b'[');
        for turn in &self.turns {
            put_comma(out);
            out.push(b'{');
            put_member(out, "role", if turn.assistant { "assistant" } else { "user" });
            put_name(out, "content");
            put_blocks(out, turn.results.iter().chain(&turn.blocks));
            out.push(b'}');
        }
        out.push(b']');
    }

    fn add(&mut self, at: usize, message: &'a Message<'a>) -> Result<(), ApiError> {
        let mut blocks = Vec::new();
        for (n, part) in message.content.iter().enumerate() {
            if message.role == Role::System && !matches!(part.body, PartBody::Text(_)) {
                let param = format!("messages[{at}].content[{n}]");
                return Err(wrong(&param, &format!("{param}: a system message is text alone")));
            }
            blocks.extend(Block::of(part, (at, n))?);
        }
        match message.role {
            Role::System => {
                cache_last(&mut blocks, message.cache_control);
                self.system.append(&mut blocks);
            }
            // An empty turn is refused, so a message that says nothing opens none.
            Role::User if blocks.is_empty() => {}
            Role::User => {
                cache_last(&mut blocks, message.cache_control);
                self.turn(false).blocks.append(&mut blocks);
            }
            Role::Tool => {
                let mut result = vec![result(message, &blocks)];
                cache_last(&mut result, message.cache_control);
                self.turn(false).results.append(&mut result);
            }
            Role::Assistant => self.add_assistant(message, blocks),
        }
        Ok(())
    }

    fn add_assistant(&mut self, message: &'a Message<'a>, mut text: Vec<Block<'a>>) {
        let mut blocks: Vec<_> = message.thinking_blocks.iter().filter_map(thinking).collect();
        // Outside of a tool loop the provider wants none back.
        if blocks.len() < message.thinking_blocks.len() && !message.tool_calls.is_empty() {
            note(&mut self.dropped, "messages.thinking_blocks");
        }
        let thinks = !blocks.is_empty();
        blocks.append(&mut text);
        let dropped = &mut self.dropped;
        blocks.extend(message.tool_calls.iter().map(|call| tool_use(call, dropped)));
        cache_last(&mut blocks, message.cache_control);
        if blocks.is_empty() {
            return;
        }
        let turn = self.turn(true);
        turn.thinks |= thinks && turn.blocks.is_empty();
        turn.calls |= !message.tool_calls.is_empty();
        turn.blocks.append(&mut blocks);
    }

    /// The turn that a message joins: the last one if the same side speaks again.
    fn turn(&mut self, assistant: bool) -> &mut Turn<'a> {
        if self.turns.last().is_none_or(|turn| turn.assistant != assistant) {
            self.turns.push(Turn { assistant, ..Turn::default() });
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    /// An answer begun by the caller must not end in white space (recorded 400 "final assistant
    /// content cannot end with trailing whitespace").
    fn trim_prefill(&mut self) {
        if let Some(Turn { assistant: true, blocks, .. }) = self.turns.last_mut()
            && let Some(Block::Text { text, .. }) = blocks.last_mut()
        {
            *text = Cow::Owned(text.trim_end().to_owned());
        }
    }
}

fn put_blocks<'b, 'a: 'b>(out: &mut Vec<u8>, blocks: impl Iterator<Item = &'b Block<'a>>) {
    out.push(b'[');
    for block in blocks {
        put_comma(out);
        block.put(out);
    }
    out.push(b']');
}

/// A message's own breakpoint stands on its last block.
fn cache_last<'a>(blocks: &mut [Block<'a>], control: Option<&'a RawValue>) {
    if let (Some(last), Some(control)) = (blocks.last_mut(), control) {
        last.cache(control);
    }
}

fn result<'a>(message: &Message<'a>, content: &[Block<'a>]) -> Block<'a> {
    let mut json = br#"{"type":"tool_result""#.to_vec();
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    put_member(&mut json, "tool_use_id", &tool_id(id));
    match content {
        [] => {}
        [Block::Text { text, cache: None }] => put_member(&mut json, "content", text),
        blocks => {
            put_name(&mut json, "content");
            put_blocks(&mut json, blocks.iter());
        }
    }
    json.push(b'}');
    Block::Json { json, cached: false }
}

fn tool_use<'a>(call: &ToolCall<'a>, dropped: &mut Vec<String>) -> Block<'a> {
    let mut json = br#"{"type":"tool_use""#.to_vec();
    put_member(&mut json, "id", &tool_id(&call.id));
    put_member(&mut json, "name", &call.name);
    put_raw(&mut json, "input", &arguments(call, dropped));
    json.push(b'}');
    Block::Json { json, cached: false }
}

/// Only letters, digits, `_` and `-` are allowed in an id; other providers use more in theirs.
fn tool_id(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let (id, _) = thought::split(id);
    if !id.is_empty() && id.chars().all(fits) {
        return Cow::Borrowed(id);
    }
    let id: String = id.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    Cow::Owned(if id.is_empty() { "_".to_owned() } else { id })
}

/// A thinking block given back; one without its seal would be refused.
fn thinking<'a>(block: &Thinking<'a>) -> Option<Block<'a>> {
    let mut json = b"{".to_vec();
    put_member(&mut json, "type", &block.kind);
    match &*block.kind {
        "thinking" => {
            put_member(&mut json, "thinking", block.thinking.as_deref().unwrap_or_default());
            put_member(&mut json, "signature", block.signature.as_deref()?);
        }
        "redacted_thinking" => put_member(&mut json, "data", block.data.as_deref()?),
        _ => return None,
    }
    json.push(b'}');
    // Thinking blocks take no breakpoint (Messages, prompt caching).
    Some(Block::Json { json, cached: true })
}
