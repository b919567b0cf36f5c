//! The turns of a Messages request as messages of a chat.

use super::super::names::{Names, Tool};
use super::blocks::{Block, Part, list as blocks};
use super::request::{Target, parse};
use crate::chat::raw::{Text, compact, note_unread, put_comma, put_member, put_name};
use crate::chat::raw::{put_raw, put_text};
use crate::chat::wrong;
use crate::error::ApiError;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Claude Code puts its version and a number that changes with each request before its system
/// prompt: no model needs it, and it would spoil every provider's prompt cache.
const BILLING: &str = "x-anthropic-billing-header:";

/// System prompt and turns, read.
#[derive(Debug)]
pub(super) struct Turns<'a> {
    system: Vec<Block<'a>>,
    turns: Vec<Turn<'a>>,
}

#[derive(Debug)]
struct Turn<'a> {
    role: Role,
    blocks: Vec<Block<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    System,
    User,
    Assistant,
}

#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow)]
    role: Text<'a>,
    #[serde(borrow)]
    content: &'a RawValue,
}

impl<'a> Turns<'a> {
    pub(super) fn read(
        system: Option<&'a RawValue>,
        messages: Option<&'a RawValue>,
        unread: &mut Vec<String>,
    ) -> Result<Self, ApiError> {
        let mut system = match system {
            Some(raw) => blocks("system", raw, unread)?,
            None => Vec::new(),
        };
        if system.first().is_some_and(|block| block.starts_with(BILLING)) {
            system.remove(0);
        }
        let list: Vec<&'a RawValue> = match messages {
            Some(raw) => parse("messages", raw)?,
            None => Vec::new(),
        };
        let turns = list.into_iter().enumerate().map(|(at, raw)| {
            let at = format!("messages[{at}]");
            let shape: Shape<'a> = parse(&at, raw)?;
            note_unread(unread, "messages", raw, &["role", "content", "id"]);
            let role = match &*shape.role {
                "user" => Role::User,
                "assistant" => Role::Assistant,
                "system" => Role::System,
                other => {
                    let said = format!("{at}.role: {other:?} is none of user, assistant");
                    return Err(wrong(&format!("{at}.role"), &said));
                }
            };
            Ok(Turn { role, blocks: blocks(&format!("{at}.content"), shape.content, unread)? })
        });
        Ok(Self { system, turns: turns.collect::<Result<_, _>>()? })
    }
}

/// Writes `messages`.
pub(super) fn put_turns(
    out: &mut Vec<u8>,
    turns: &Turns<'_>,
    target: Target,
    names: &mut Names,
    dropped: &mut Vec<String>,
) {
    let mut writer = Writer { out, target, names, dropped };
    put_name(writer.out, "messages");
    writer.out.push(b'[');
    if !turns.system.is_empty() {
        writer.parts("system", &parts(&turns.system, target));
    }
    for turn in &turns.turns {
        match turn.role {
            Role::System => writer.parts("system", &parts(&turn.blocks, target)),
            Role::User => writer.user(&turn.blocks),
            Role::Assistant => writer.assistant(&turn.blocks),
        }
        for block in &turn.blocks {
            writer.note(block);
        }
    }
    for block in &turns.system {
        writer.note(block);
    }
    writer.out.push(b']');
}

fn parts<'b>(blocks: &'b [Block<'_>], target: Target) -> Vec<Part<'b>> {
    blocks.iter().filter_map(|block| block.part(target.rich)).collect()
}

struct Writer<'w> {
    out: &'w mut Vec<u8>,
    target: Target,
    names: &'w mut Names,
    dropped: &'w mut Vec<String>,
}

impl Writer<'_> {
    /// Names what a chat cannot say.
    fn note(&mut self, block: &Block<'_>) {
        match block {
            Block::Other { kind } => self.dropped.push(format!("messages.content.{kind}")),
            Block::File { .. } if block.part(self.target.rich).is_none() => {
                self.dropped.push("messages.content.document".into());
            }
            Block::Result { content, .. } => content.iter().for_each(|block| self.note(block)),
            _ => {}
        }
        if block.has_cache() && !self.target.rich {
            self.dropped.push("cache_control".into());
        }
    }

    /// A message of a role with its parts: one text is a string, as every provider takes it.
    fn parts(&mut self, role: &str, parts: &[Part<'_>]) {
        let out = &mut *self.out;
        put_comma(out);
        out.push(b'{');
        put_member(out, "role", role);
        put_name(out, "content");
        match parts {
            [Part::Text { text, cache }] if cache.is_none() || !self.target.rich => {
                put_text(out, text);
            }
            [] => put_text(out, ""),
            parts => {
                out.push(b'[');
                for part in parts {
                    put_comma(out);
                    part.put(out, self.target.rich);
                }
                out.push(b']');
            }
        }
        out.push(b'}');
    }

    /// Results of tools first, each a message of its own, then what the user says.
    fn user(&mut self, blocks: &[Block<'_>]) {
        let mut said = Vec::new();
        for block in blocks {
            let Block::Result { id, content, error, .. } = block else {
                said.extend(block.part(self.target.rich));
                continue;
            };
            let mut text = String::new();
            if *error {
                text.push_str("Error: ");
            }
            let mut texts = 0;
            for part in parts(content, self.target) {
                match part {
                    Part::Text { text: more, .. } => {
                        if texts > 0 {
                            text.push('\n');
                        }
                        texts += 1;
                        text.push_str(more);
                    }
                    // A chat's tool messages are text alone.
                    other => said.push(other),
                }
            }
            put_comma(self.out);
            self.out.push(b'{');
            put_member(self.out, "role", "tool");
            put_member(self.out, "tool_call_id", id);
            put_member(self.out, "content", &text);
            if let Some(control) = block.cache().filter(|_| self.target.rich) {
                put_raw(self.out, "cache_control", control.get());
            }
            self.out.push(b'}');
        }
        if !said.is_empty() {
            self.parts("user", &said);
        }
    }

    fn assistant(&mut self, blocks: &[Block<'_>]) {
        let (mut text, mut calls, mut thoughts) = (String::new(), Vec::new(), String::new());
        let (mut sealed, mut mark) = (Vec::new(), None);
        for block in blocks {
            // The last one covers those before it.
            mark = block.cache().filter(|_| self.target.rich).or(mark);
            match block {
                Block::Text { text: more, .. } => text.push_str(more),
                Block::Use { id, name, input, .. } => self.call(&mut calls, id, name, input),
                Block::Thinking { text, raw, sealed: seal } => {
                    thoughts.push_str(text);
                    if *seal {
                        put_comma(&mut sealed);
                        sealed.extend_from_slice(raw.get().as_bytes());
                    }
                }
                _ => {}
            }
        }
        let out = &mut *self.out;
        put_comma(out);
        out.push(b'{');
        put_member(out, "role", "assistant");
        if text.is_empty() && !calls.is_empty() {
            put_raw(out, "content", "null");
        } else {
            put_member(out, "content", &text);
        }
        let seals = !self.target.rich && !sealed.is_empty();
        if !calls.is_empty() && (self.target.recall(&thoughts, out) || seals) {
            self.dropped.push("messages.content.thinking".into());
        }
        if let Some(mark) = mark {
            put_raw(out, "cache_control", mark.get());
        }
        if self.target.rich && !sealed.is_empty() {
            put_name(out, "thinking_blocks");
            out.push(b'[');
            out.extend_from_slice(&sealed);
            out.push(b']');
        }
        if !calls.is_empty() {
            put_name(out, "tool_calls");
            out.push(b'[');
            out.extend_from_slice(&calls);
            out.push(b']');
        }
        out.push(b'}');
    }

    fn call(&mut self, calls: &mut Vec<u8>, id: &str, name: &str, input: &RawValue) {
        let name = self.names.give(Tool { name: name.to_owned(), ..Tool::default() });
        put_comma(calls);
        calls.push(b'{');
        put_member(calls, "id", id);
        put_member(calls, "type", "function");
        put_name(calls, "function");
        calls.push(b'{');
        put_member(calls, "name", &name);
        put_member(calls, "arguments", &compact(input.get()));
        calls.extend_from_slice(b"}}");
    }
}
