//! The messages of a chat as Qianfan wants them: system text apart, the rest strictly in turns and
//! odd in number.

use crate::chat::raw::{put_comma, put_member, put_name};
use crate::chat::{Chat, Message, PartBody, Role, wrong};
use crate::error::ApiError;
use std::collections::{HashMap, VecDeque};

/// What a missing user turn says; an empty one is refused.
const FILLER: &str = ".";

/// A prompt in Qianfan's order.
#[derive(Debug, Default)]
pub(super) struct Prompt<'a> {
    system: String,
    turns: Vec<Turn<'a>>,
}

/// The results of calls by their ids, in order.
type Results<'a> = HashMap<&'a str, VecDeque<String>>;

#[derive(Debug)]
enum Turn<'a> {
    User(String),
    Assistant(String),
    /// One call; there are no parallel ones, so each stands in a turn of its own.
    Call {
        text: String,
        name: &'a str,
        arguments: &'a str,
    },
    Result {
        name: &'a str,
        content: String,
    },
}

impl Turn<'_> {
    fn is_assistant(&self) -> bool {
        matches!(self, Self::Assistant(_) | Self::Call { .. })
    }
}

impl<'a> Prompt<'a> {
    /// # Errors
    /// Content that the provider cannot take, with its place.
    pub fn of(chat: &'a Chat<'a>) -> Result<Self, ApiError> {
        // Ids that a client uses again have a result each time.
        let mut results: Results<'_> = HashMap::new();
        for (at, message) in chat.messages.iter().enumerate() {
            if message.role == Role::Tool {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                results.entry(id).or_default().push_back(text(at, message)?);
            }
        }
        let mut prompt = Self::default();
        for (at, message) in chat.messages.iter().enumerate() {
            prompt.add(at, message, &mut results)?;
        }
        results.retain(|_, left| !left.is_empty());
        if let Some(id) = results.keys().min() {
            let of =
                |m: &Message<'_>| m.role == Role::Tool && m.tool_call_id.as_deref() == Some(id);
            let at = chat.messages.iter().position(of).unwrap_or_default();
            let param = format!("messages[{at}].tool_call_id");
            return Err(wrong(&param, &format!("{param}: no earlier tool call has this id")));
        }
        if prompt.turns.last().is_none_or(Turn::is_assistant) {
            prompt.turns.push(Turn::User(FILLER.into()));
        }
        Ok(prompt)
    }

    /// Writes `system` (if there is any) and `messages`.
    pub fn put(&self, out: &mut Vec<u8>) {
        if !self.system.is_empty() {
            put_member(out, "system", &self.system);
        }
        put_name(out, "messages");
        out.push(b'[');
        for turn in &self.turns {
            put_comma(out);
            out.push(b'{');
            match turn {
                Turn::User(text) => {
                    put_member(out, "role", "user");
                    put_member(out, "content", text);
                }
                Turn::Assistant(text) => {
                    put_member(out, "role", "assistant");
                    put_member(out, "content", text);
                }
                Turn::Call { text, name, arguments } => {
                    put_member(out, "role", "assistant");
                    put_member(out, "content", text);
                    put_name(out, "function_call");
                    out.push(b'{');
                    put_member(out, "name", name);
                    put_member(out, "arguments", arguments);
                    out.push(b'}');
                }
                Turn::Result { name, content } => {
                    put_member(out, "role", "function");
                    put_member(out, "name", name);
                    put_member(out, "content", content);
                }
            }
            out.push(b'}');
        }
        out.push(b']');
    }

    fn add(
        &mut self,
        at: usize,
        message: &'a Message<'a>,
        results: &mut Results<'_>,
    ) -> Result<(), ApiError> {
        if message.role == Role::Tool {
            return Ok(());
        }
        let mut text = text(at, message)?;
        match message.role {
            Role::System => join(&mut self.system, &text),
            Role::User => self.user(&text),
            _ if message.tool_calls.is_empty() => self.assistant(text),
            _ => {
                for call in &message.tool_calls {
                    self.before_assistant();
                    let arguments = match call.arguments.trim() {
                        "" => "{}",
                        arguments => arguments,
                    };
                    let text = std::mem::take(&mut text);
                    self.turns.push(Turn::Call { text, name: &call.name, arguments });
                    let result = results.get_mut(&*call.id).and_then(VecDeque::pop_front);
                    let content = result.filter(|text| !text.is_empty());
                    let content = content.unwrap_or_else(|| FILLER.into());
                    self.turns.push(Turn::Result { name: &call.name, content });
                }
            }
        }
        Ok(())
    }

    fn user(&mut self, text: &str) {
        // An empty turn is refused, so a message that says nothing opens none.
        match self.turns.last_mut() {
            _ if text.is_empty() => {}
            Some(Turn::User(before)) => join(before, text),
            // A result takes the user's turn: what the user says beside it joins it.
            Some(Turn::Result { content, .. }) => join(content, text),
            _ => self.turns.push(Turn::User(text.to_owned())),
        }
    }

    fn assistant(&mut self, text: String) {
        match self.turns.last_mut() {
            _ if text.is_empty() => {}
            Some(Turn::Assistant(before)) => join(before, &text),
            _ => {
                self.before_assistant();
                self.turns.push(Turn::Assistant(text));
            }
        }
    }

    fn before_assistant(&mut self) {
        if self.turns.last().is_none_or(Turn::is_assistant) {
            self.turns.push(Turn::User(FILLER.into()));
        }
    }
}

fn join(before: &mut String, text: &str) {
    if !before.is_empty() && !text.is_empty() {
        before.push('\n');
    }
    before.push_str(text);
}

/// Text is all that a message holds here.
fn text(at: usize, message: &Message<'_>) -> Result<String, ApiError> {
    let mut out = String::new();
    for (n, part) in message.content.iter().enumerate() {
        let PartBody::Text(text) = &part.body else {
            let param = format!("messages[{at}].content[{n}]");
            return Err(wrong(&param, &format!("{param}: the provider takes text alone")));
        };
        out.push_str(text);
    }
    Ok(out)
}
