//! The messages of a chat as generateContent wants them: system text apart, user and model in
//! turns.

use super::{Door, content};
use crate::chat::raw::{compact, put_comma, put_member, put_name, put_raw};
use crate::chat::{Chat, Message, PartBody, Role, ToolCall, thought, wrong};
use crate::error::ApiError;
use crate::wire::edit::arguments;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// What a missing first user turn says; an empty one is refused.
const FILLER: &str = ".";
/// Stands for a signature that the history does not have, because another model made the call or
/// the client lost it: the provider then does not check (ai.google.dev, thought signatures, FAQ).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// A prompt in the provider's order, parts written already.
#[derive(Debug)]
pub(super) struct Prompt<'a> {
    door: Door,
    model: Model,
    system: Vec<Vec<u8>>,
    turns: Vec<Turn>,
    /// Earlier calls by their id: their number in the chat, and their name.
    calls: HashMap<&'a str, (usize, &'a str)>,
    called: usize,
    /// What of the messages was left out.
    pub dropped: Vec<String>,
}

/// What a prompt must know of its model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    /// Its calls need a signature.
    pub signed: bool,
    /// The provider fetches pictures and files from the web for it.
    pub fetches: bool,
}

#[derive(Debug, Default)]
struct Turn {
    model: bool,
    /// Tool results with the number of their call: parallel ones are told apart by their order.
    results: Vec<(usize, Vec<u8>)>,
    parts: Vec<Vec<u8>>,
}

impl<'a> Prompt<'a> {
    /// # Errors
    /// Content that the provider cannot take, with its place.
    pub fn of(door: Door, model: Model, chat: &'a Chat<'a>) -> Result<Self, ApiError> {
        let (system, turns, calls) = (Vec::new(), Vec::new(), HashMap::new());
        let mut prompt = Self { door, model, system, turns, calls, called: 0, dropped: Vec::new() };
        for (at, message) in chat.messages.iter().enumerate() {
            prompt.add(at, message)?;
        }
        if prompt.turns.first().is_none_or(|turn| turn.model) {
            let parts = vec![content::text(FILLER)];
            prompt.turns.insert(0, Turn { parts, ..Turn::default() });
        }
        Ok(prompt)
    }

    /// Writes `systemInstruction` (if there is any) and `contents`.
    pub fn put(&self, out: &mut Vec<u8>) {
        if !self.system.is_empty() {
            put_name(out, "systemInstruction");
            out.push(b'{');
            put_parts(out, self.system.iter());
            out.push(b'}');
        }
        put_name(out, "contents");
        out.push(b'[');
        for turn in &self.turns {
            put_comma(out);
            out.push(b'{');
            put_member(out, "role", if turn.model { "model" } else { "user" });
            let mut results: Vec<&(usize, Vec<u8>)> = turn.results.iter().collect();
            results.sort_by_key(|(number, _)| *number);
            put_parts(out, results.into_iter().map(|(_, part)| part).chain(&turn.parts));
            out.push(b'}');
        }
        out.push(b']');
    }

    fn add(&mut self, at: usize, message: &'a Message<'a>) -> Result<(), ApiError> {
        if message.role == Role::Tool {
            return self.add_result(at, message);
        }
        let mut parts = Vec::new();
        for (n, part) in message.content.iter().enumerate() {
            if message.role == Role::System && !matches!(part.body, PartBody::Text(_)) {
                let param = format!("messages[{at}].content[{n}]");
                return Err(wrong(&param, &format!("{param}: a system message is text alone")));
            }
            parts.extend(content::part(self.model.fetches, part, (at, n))?);
        }
        if message.role == Role::System {
            self.system.append(&mut parts);
            return Ok(());
        }
        for (n, call) in message.tool_calls.iter().enumerate() {
            parts.push(self.call(call, n == 0));
            let (known, _) = thought::split(&call.id);
            let number = (self.called, &*call.name);
            self.calls.insert(&call.id, number);
            self.calls.insert(known, number);
            self.called += 1;
        }
        // An empty turn is refused, so a message that says nothing opens none.
        if !parts.is_empty() {
            self.turn(message.role == Role::Assistant).parts.append(&mut parts);
        }
        Ok(())
    }

    fn call(&mut self, call: &ToolCall<'_>, first: bool) -> Vec<u8> {
        let (id, signature) = thought::split(&call.id);
        let mut out = br#"{"functionCall":{"#.to_vec();
        self.put_id(&mut out, id);
        put_member(&mut out, "name", &call.name);
        put_raw(&mut out, "args", &arguments(call, &mut self.dropped));
        out.push(b'}');
        // Of parallel calls the first one alone is signed.
        let missing = (self.model.signed && first).then_some(NO_SIGNATURE);
        if let Some(signature) = signature.or(missing) {
            put_member(&mut out, "thoughtSignature", signature);
        }
        out.push(b'}');
        out
    }

    /// Ids that the provider gave. Those that a gateway or another provider made mean nothing to
    /// it, and Vertex pairs by order alone.
    fn put_id(&self, out: &mut Vec<u8>, id: &str) {
        let foreign = ["call_", "toolu_", "tooluse_", "functions."];
        if self.door == Door::Studio && !foreign.iter().any(|lead| id.starts_with(lead)) {
            put_member(out, "id", id);
        }
    }

    fn add_result(&mut self, at: usize, message: &'a Message<'a>) -> Result<(), ApiError> {
        let given = message.tool_call_id.as_deref().unwrap_or_default();
        let known =
            self.calls.get(given).or_else(|| self.calls.get(thought::split(given).0)).copied();
        let named = message.name.as_deref().map(|name| (usize::MAX, name));
        let Some((number, name)) = known.or(named) else {
            let param = format!("messages[{at}].tool_call_id");
            return Err(wrong(&param, &format!("{param}: no earlier tool call has this id")));
        };
        let (mut said, mut media) = (String::new(), Vec::new());
        for (n, part) in message.content.iter().enumerate() {
            match &part.body {
                PartBody::Text(text) => said.push_str(text),
                _ => media.extend(content::part(self.model.fetches, part, (at, n))?),
            }
        }
        let mut out = br#"{"functionResponse":{"#.to_vec();
        self.put_id(&mut out, thought::split(given).0);
        put_member(&mut out, "name", name);
        // It must be an object; anything else is wrapped in one.
        match object(&said) {
            Some(object) => put_raw(&mut out, "response", &object),
            None => {
                put_name(&mut out, "response");
                out.push(b'{');
                put_member(&mut out, "result", &said);
                out.push(b'}');
            }
        }
        out.extend_from_slice(b"}}");
        let turn = self.turn(false);
        turn.results.push((number, out));
        turn.parts.append(&mut media);
        Ok(())
    }

    /// The turn that a message joins: the last one if the same side speaks again.
    fn turn(&mut self, model: bool) -> &mut Turn {
        if self.turns.last().is_none_or(|turn| turn.model != model) {
            self.turns.push(Turn { model, ..Turn::default() });
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }
}

/// The object that a text is, digits kept.
fn object(text: &str) -> Option<String> {
    let raw = serde_json::from_str::<&RawValue>(text).ok()?;
    raw.get().starts_with('{').then(|| compact(raw.get()))
}

fn put_parts<'p>(out: &mut Vec<u8>, parts: impl Iterator<Item = &'p Vec<u8>>) {
    put_name(out, "parts");
    out.push(b'[');
    for part in parts {
        put_comma(out);
        out.extend_from_slice(part);
    }
    out.push(b']');
}
