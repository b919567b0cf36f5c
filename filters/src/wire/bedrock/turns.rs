//! The messages of a chat as Converse wants them: system text apart, user and assistant in turns.

use super::Family;
use super::content::{Block, redacted};
use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw};
use crate::chat::{Chat, Message, PartBody, Role, Thinking, ToolCall, wrong};
use crate::error::ApiError;
use crate::wire::edit::{arguments, note};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What a missing first user turn says; an empty text is refused.
const FILLER: &str = ".";
/// The longest id of a tool use (Converse, ToolUseBlock).
const ID_CHARS_MAX: usize = 64;

/// A prompt in Converse's order.
#[derive(Debug)]
pub(super) struct Prompt<'a> {
    family: Family,
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
    /// It opens with a thought.
    thinks: bool,
    /// It calls a tool.
    calls: bool,
}

impl<'a> Prompt<'a> {
    /// # Errors
    /// Content that the provider cannot take, with its place.
    pub fn of(family: Family, chat: &'a Chat<'a>) -> Result<Self, ApiError> {
        let (system, turns) = (Vec::new(), Vec::new());
        let mut prompt = Self { family, system, turns, dropped: Vec::new() };
        for (at, message) in chat.messages.iter().enumerate() {
            prompt.add(at, message)?;
        }
        prompt.trim_prefill();
        if prompt.turns.first().is_none_or(|turn| turn.assistant) {
            let blocks = vec![Block::Text(FILLER.into())];
            prompt.turns.insert(0, Turn { blocks, ..Turn::default() });
        }
        Ok(prompt)
    }

    /// Says something to the model beside the caller's own system text.
    pub fn instruct(&mut self, text: String) {
        self.system.push(Block::Text(text.into()));
    }

    /// Thinking may be switched on: the answer is not begun, and a running tool loop has its
    /// thoughts with it. Otherwise the provider refuses (Messages, extended thinking).
    pub fn may_think(&self) -> bool {
        let prefilled = self.turns.last().is_some_and(|turn| turn.assistant);
        let [.., before, last] = self.turns.as_slice() else { return !prefilled };
        let in_loop = before.calls && !last.results.is_empty();
        !prefilled && (!in_loop || before.thinks)
    }

    /// Writes `system` (if there is any) and `messages`.
    pub fn put(&self, out: &mut Vec<u8>) {
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
        let (mut blocks, mut inner) = (Vec::new(), None);
        for (n, part) in message.content.iter().enumerate() {
            if message.role == Role::System && !matches!(part.body, PartBody::Text(_)) {
                let param = format!("messages[{at}].content[{n}]");
                return Err(wrong(&param, &format!("{param}: a system message is text alone")));
            }
            let block = Block::of(part, (at, n))?;
            let mark = part.cache_control.filter(|_| block.is_some());
            blocks.extend(block);
            match message.role {
                // Inside a result there is no place for a mark, so it stands behind the result.
                Role::Tool => inner = mark.or(inner),
                _ => blocks.extend(mark.and_then(|mark| self.cache_point(mark))),
            }
        }
        let mark = message.cache_control.or(inner);
        let mark = mark.and_then(|mark| self.cache_point(mark));
        match message.role {
            Role::System => {
                blocks.extend(mark.filter(|_| !blocks.is_empty()));
                self.system.append(&mut blocks);
            }
            // An empty turn is refused, so a message that says nothing opens none.
            Role::User if blocks.is_empty() => {}
            Role::User => {
                blocks.extend(mark);
                self.turn(false).blocks.append(&mut blocks);
            }
            Role::Tool => {
                let mut results = vec![result(message, &blocks)];
                results.extend(mark);
                self.turn(false).results.append(&mut results);
            }
            Role::Assistant => self.add_assistant(message, blocks, mark),
        }
        Ok(())
    }

    fn add_assistant(
        &mut self,
        message: &'a Message<'a>,
        mut text: Vec<Block<'a>>,
        mark: Option<Block<'a>>,
    ) {
        let mut blocks: Vec<Block<'a>> = Vec::new();
        if self.family == Family::Claude {
            blocks.extend(message.thinking_blocks.iter().filter_map(thought));
        }
        // Outside of a tool loop no model wants them back.
        if blocks.len() < message.thinking_blocks.len() && !message.tool_calls.is_empty() {
            note(&mut self.dropped, "messages.thinking_blocks");
        }
        let thinks = !blocks.is_empty();
        blocks.append(&mut text);
        let dropped = &mut self.dropped;
        blocks.extend(message.tool_calls.iter().map(|call| tool_use(call, dropped)));
        if blocks.is_empty() {
            return;
        }
        blocks.extend(mark);
        let turn = self.turn(true);
        turn.thinks |= thinks && turn.blocks.is_empty();
        turn.calls |= !message.tool_calls.is_empty();
        turn.blocks.append(&mut blocks);
    }

    /// A mark up to which the prompt is cached, as a block of its own.
    fn cache_point(&mut self, control: &RawValue) -> Option<Block<'a>> {
        if !self.family.caches() {
            note(&mut self.dropped, "messages.cache_control");
            return None;
        }
        let mut out = br#"{"cachePoint":{"type":"default""#.to_vec();
        let control = Members::of(control.get()).unwrap_or_default();
        if let Some(ttl) = control.text("ttl").filter(|ttl| &**ttl == "1h") {
            put_member(&mut out, "ttl", &ttl);
        }
        out.extend_from_slice(b"}}");
        Some(Block::Json(out))
    }

    /// The turn that a message joins: the last one if the same side speaks again.
    fn turn(&mut self, assistant: bool) -> &mut Turn<'a> {
        if self.turns.last().is_none_or(|turn| turn.assistant != assistant) {
            self.turns.push(Turn { assistant, ..Turn::default() });
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    /// An answer begun by the caller must not end in white space.
    fn trim_prefill(&mut self) {
        if let Some(Turn { assistant: true, blocks, .. }) = self.turns.last_mut()
            && let Some(Block::Text(text)) = blocks.last_mut()
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

fn result<'a>(message: &Message<'a>, content: &[Block<'a>]) -> Block<'a> {
    let mut json = br#"{"toolResult":{"#.to_vec();
    put_member(&mut json, "toolUseId", &use_id(message.tool_call_id.as_deref().unwrap_or("")));
    put_name(&mut json, "content");
    if content.is_empty() {
        json.extend_from_slice(br#"[{"text":"."}]"#);
    } else {
        put_blocks(&mut json, content.iter());
    }
    json.extend_from_slice(b"}}");
    Block::Json(json)
}

fn tool_use<'a>(call: &ToolCall<'a>, dropped: &mut Vec<String>) -> Block<'a> {
    let mut json = br#"{"toolUse":{"#.to_vec();
    put_member(&mut json, "toolUseId", &use_id(&call.id));
    put_member(&mut json, "name", &call.name);
    put_raw(&mut json, "input", &arguments(call, dropped));
    json.extend_from_slice(b"}}");
    Block::Json(json)
}

/// An id that fits: other providers' are longer or use other characters. The same text gives the
/// same id, so that a result still finds its call.
fn use_id(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    if !id.is_empty() && id.len() <= ID_CHARS_MAX && id.chars().all(fits) {
        return Cow::Borrowed(id);
    }
    // FNV-1a: two long ids that begin alike must stay two.
    let sum = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let head: String = id.chars().take(40).map(|c| if fits(c) { c } else { '_' }).collect();
    Cow::Owned(format!("{head}_{sum:016x}"))
}

/// A thought given back; one without its seal would be refused.
fn thought<'a>(block: &Thinking<'a>) -> Option<Block<'a>> {
    let mut json = br#"{"reasoningContent":{"#.to_vec();
    match &*block.kind {
        "thinking" => {
            put_name(&mut json, "reasoningText");
            json.push(b'{');
            put_member(&mut json, "text", block.thinking.as_deref().unwrap_or_default());
            put_member(&mut json, "signature", block.signature.as_deref()?);
            json.push(b'}');
        }
        "redacted_thinking" => {
            put_member(&mut json, "redactedContent", &redacted(block.data.as_deref()?));
        }
        _ => return None,
    }
    json.extend_from_slice(b"}}");
    Some(Block::Json(json))
}
