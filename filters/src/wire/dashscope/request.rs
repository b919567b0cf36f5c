//! A chat request as one of DashScope's: every member mapped, passed, or named as dropped.

use crate::chat::raw::{put_comma, put_member, put_name, put_raw, put_text};
use crate::chat::{Chat, Format, Message, PartBody, Tool, ToolCall, ToolChoice, bad_part};
use crate::error::ApiError;
use crate::wire::anthropic::forced;
use crate::wire::edit::{edited, note, note_marks, note_thoughts};
use crate::wire::{Ask, Outgoing};
use serde_json::value::RawValue;

/// Models that read text alone, and models that see, have endpoints of their own.
const TEXT: &str = "/services/aigc/text-generation/generation";
const SIGHT: &str = "/services/aigc/multimodal-generation/generation";

/// Members of `parameters` that a caller may send beside OpenAI's.
const NATIVE: [&str; 11] = [
    "seed",
    "top_k",
    "presence_penalty",
    "repetition_penalty",
    "logprobs",
    "top_logprobs",
    "enable_search",
    "search_options",
    "enable_thinking",
    "thinking_budget",
    "vl_high_resolution_images",
];

pub(super) fn build(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let chat = Chat::read(ask.peek)?;
    let sees = chat.messages.iter().flat_map(|message| &message.content);
    let sees = sees.into_iter().any(|part| matches!(part.body, PartBody::Image(_)));
    let mut body = Body { chat: &chat, sees, out: b"{".to_vec(), dropped: Vec::new() };
    put_member(&mut body.out, "model", ask.model);
    put_name(&mut body.out, "input");
    body.out.push(b'{');
    body.put_messages()?;
    body.out.push(b'}');
    put_name(&mut body.out, "parameters");
    body.out.extend_from_slice(br#"{"result_format":"message""#);
    if ask.peek.stream {
        // Else each frame would repeat the whole text, which models that think refuse to do.
        put_raw(&mut body.out, "incremental_output", "true");
    }
    body.put_sampling(ask.max_output);
    body.put_tools();
    body.put_format();
    body.put_rest();
    let Body { mut out, mut dropped, .. } = body;
    out.extend_from_slice(b"}}");
    let body = edited(out.into(), ask.params, &mut dropped)?;
    let path = if sees { SIGHT } else { TEXT }.to_owned();
    let headers =
        if ask.peek.stream { vec![("x-dashscope-sse", "enable".to_owned())] } else { Vec::new() };
    Ok(Outgoing { path, headers, body, dropped, strip_usage: false })
}

/// A body on its way.
struct Body<'a> {
    chat: &'a Chat<'a>,
    sees: bool,
    out: Vec<u8>,
    dropped: Vec<String>,
}

impl Body<'_> {
    fn put_messages(&mut self) -> Result<(), ApiError> {
        put_name(&mut self.out, "messages");
        self.out.push(b'[');
        for (at, message) in self.chat.messages.iter().enumerate() {
            put_comma(&mut self.out);
            self.out.push(b'{');
            put_member(&mut self.out, "role", message.role.as_str());
            self.put_content(at, message)?;
            self.put_calls(&message.tool_calls);
            if let Some(id) = message.tool_call_id.as_deref() {
                put_member(&mut self.out, "tool_call_id", id);
            }
            if let Some(name) = message.name.as_deref() {
                put_member(&mut self.out, "name", name);
            }
            if let Some(reasoning) = message.reasoning_content.as_deref() {
                put_member(&mut self.out, "reasoning_content", reasoning);
            }
            self.out.push(b'}');
        }
        self.out.push(b']');
        Ok(())
    }

    /// One string, or for models that see a list of `{"text": …}` and `{"image": …}`.
    fn put_content(&mut self, at: usize, message: &Message<'_>) -> Result<(), ApiError> {
        let (mut text, mut parts) = (String::new(), b"[".to_vec());
        for (n, part) in message.content.iter().enumerate() {
            let (name, said) = match &part.body {
                PartBody::Text(more) => ("text", &**more),
                PartBody::Image(url) => ("image", &**url),
                PartBody::File(_) => return Err(bad_part((at, n), "the provider takes no files")),
                PartBody::Other(kind, _) => {
                    let why = format!("the provider takes no part of type {:?}", &**kind);
                    return Err(bad_part((at, n), &why));
                }
            };
            text.push_str(if name == "text" { said } else { "" });
            put_comma(&mut parts);
            parts.push(b'{');
            put_member(&mut parts, name, said);
            parts.push(b'}');
        }
        parts.push(b']');
        match self.sees {
            true => put_raw(&mut self.out, "content", &String::from_utf8_lossy(&parts)),
            false => put_member(&mut self.out, "content", &text),
        }
        Ok(())
    }

    fn put_calls(&mut self, calls: &[ToolCall<'_>]) {
        if calls.is_empty() {
            return;
        }
        put_name(&mut self.out, "tool_calls");
        self.out.push(b'[');
        for (index, call) in calls.iter().enumerate() {
            put_comma(&mut self.out);
            self.out.push(b'{');
            put_member(&mut self.out, "id", &call.id);
            put_member(&mut self.out, "type", "function");
            put_raw(&mut self.out, "index", &index.to_string());
            put_name(&mut self.out, "function");
            self.out.push(b'{');
            put_member(&mut self.out, "name", &call.name);
            put_member(&mut self.out, "arguments", &call.arguments);
            self.out.extend_from_slice(b"}}");
        }
        self.out.push(b']');
    }

    fn put_sampling(&mut self, max_output: u64) {
        let chat = self.chat;
        if let Some(limit) = chat.max_tokens.or((max_output > 0).then_some(max_output)) {
            put_raw(&mut self.out, "max_tokens", &limit.to_string());
        }
        for (name, number) in [("temperature", chat.temperature), ("top_p", chat.top_p)] {
            if let Some(number) = number {
                put_raw(&mut self.out, name, number.raw);
            }
        }
        if !chat.stop.is_empty() {
            put_name(&mut self.out, "stop");
            self.out.push(b'[');
            for stop in &chat.stop {
                put_comma(&mut self.out);
                put_text(&mut self.out, stop);
            }
            self.out.push(b']');
        }
        let asked = |name: &str| chat.rest.iter().any(|(other, _)| *other == name);
        match chat.reasoning_effort.as_deref() {
            None => {}
            Some(_) if asked("enable_thinking") => note(&mut self.dropped, "reasoning_effort"),
            Some(effort) => {
                let thinks = if effort == "none" { "false" } else { "true" };
                put_raw(&mut self.out, "enable_thinking", thinks);
            }
        }
    }

    fn put_tools(&mut self) {
        let mut tools = Vec::new();
        for tool in &self.chat.tools {
            let Tool::Function(function) = tool else {
                let Tool::Other(kind, _) = tool else { continue };
                note(&mut self.dropped, &format!("tools.{}", &**kind));
                continue;
            };
            put_comma(&mut tools);
            tools.extend_from_slice(br#"{"type":"function","function":{"#);
            put_member(&mut tools, "name", &function.name);
            put_member(&mut tools, "description", function.description.as_deref().unwrap_or(""));
            let schema = function.parameters.filter(|raw| raw.get().starts_with('{'));
            let none = r#"{"type":"object","properties":{}}"#;
            put_raw(&mut tools, "parameters", schema.map_or(none, RawValue::get));
            tools.extend_from_slice(b"}}");
            if function.strict == Some(true) {
                note(&mut self.dropped, "tools.strict");
            }
        }
        if tools.is_empty() {
            if forced(self.chat) {
                note(&mut self.dropped, "tool_choice");
            }
            return;
        }
        put_name(&mut self.out, "tools");
        self.out.push(b'[');
        self.out.append(&mut tools);
        self.out.push(b']');
        match &self.chat.tool_choice {
            None => {}
            Some(ToolChoice::Auto) => put_member(&mut self.out, "tool_choice", "auto"),
            Some(ToolChoice::None) => put_member(&mut self.out, "tool_choice", "none"),
            Some(ToolChoice::Function(name)) => {
                put_name(&mut self.out, "tool_choice");
                self.out.extend_from_slice(br#"{"type":"function","function":{"#);
                put_member(&mut self.out, "name", name);
                self.out.extend_from_slice(b"}}");
            }
            // There is no word for "any of them".
            Some(_) => note(&mut self.dropped, "tool_choice"),
        }
        if let Some(parallel) = self.chat.parallel_tool_calls {
            put_raw(&mut self.out, "parallel_tool_calls", if parallel { "true" } else { "false" });
        }
    }

    fn put_format(&mut self) {
        let object = r#"{"type":"json_object"}"#;
        match self.chat.response_format {
            Some(Format::JsonSchema(Some(_))) => {
                note(&mut self.dropped, "response_format.json_schema");
                put_raw(&mut self.out, "response_format", object);
            }
            Some(Format::JsonObject | Format::JsonSchema(None)) => {
                put_raw(&mut self.out, "response_format", object);
            }
            Some(Format::Text) | None => {}
        }
    }

    fn put_rest(&mut self) {
        note_marks(&mut self.dropped, self.chat);
        note_thoughts(&mut self.dropped, self.chat);
        for name in &self.chat.unread {
            note(&mut self.dropped, name);
        }
        for (name, raw) in &self.chat.rest {
            match NATIVE.contains(name) {
                true => put_raw(&mut self.out, name, raw.get()),
                false => note(&mut self.dropped, name),
            }
        }
        if self.chat.user.is_some() {
            note(&mut self.dropped, "user");
        }
        if self.chat.n.is_some_and(|n| n > 1) {
            note(&mut self.dropped, "n");
        }
    }
}
