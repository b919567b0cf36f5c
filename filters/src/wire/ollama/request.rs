//! A chat request as one of `/api/chat`: every member mapped, passed, or named as dropped.

use crate::chat::media::{DataUrl, text_of};
use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw, put_text};
use crate::chat::{Chat, Format, Message, PartBody, Role, Tool, ToolCall, ToolChoice, bad_part};
use crate::error::ApiError;
use crate::wire::edit::{arguments, edited, note, note_marks, note_thoughts, note_unread};
use crate::wire::{Ask, Outgoing};
use serde_json::value::RawValue;

/// Members of `/api/chat` that a caller may send beside OpenAI's.
const NATIVE: [&str; 2] = ["think", "keep_alive"];

/// Members that belong into `options`, under their own names.
const OPTIONS: [&str; 13] = [
    "seed",
    "top_k",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "num_ctx",
    "num_keep",
    "num_batch",
    "num_gpu",
    "num_thread",
];

pub(super) fn build(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let chat = Chat::read(ask.peek)?;
    let mut body = Body { chat: &chat, out: b"{".to_vec(), dropped: Vec::new() };
    put_member(&mut body.out, "model", ask.model);
    // It streams unless told not to.
    put_raw(&mut body.out, "stream", if ask.peek.stream { "true" } else { "false" });
    body.put_messages()?;
    body.put_tools();
    body.put_format();
    body.put_think();
    body.put_options(ask.max_output);
    body.put_rest();
    let Body { mut out, mut dropped, .. } = body;
    out.push(b'}');
    let body = edited(out.into(), ask.params, &mut dropped)?;
    let path = "/api/chat".to_owned();
    Ok(Outgoing { path, headers: Vec::new(), body, dropped, strip_usage: false })
}

/// A body on its way.
struct Body<'a> {
    chat: &'a Chat<'a>,
    out: Vec<u8>,
    dropped: Vec<String>,
}

impl Body<'_> {
    fn put_messages(&mut self) -> Result<(), ApiError> {
        put_name(&mut self.out, "messages");
        self.out.push(b'[');
        for (at, message) in self.chat.messages.iter().enumerate() {
            self.put_message(at, message)?;
        }
        self.out.push(b']');
        Ok(())
    }

    /// Text is one string, images stand in a list beside it.
    fn put_message(&mut self, at: usize, message: &Message<'_>) -> Result<(), ApiError> {
        let (mut text, mut images) = (String::new(), Vec::new());
        for (n, part) in message.content.iter().enumerate() {
            match &part.body {
                PartBody::Text(more) => text.push_str(more),
                PartBody::Image(url) => images.push(image(url, (at, n))?),
                PartBody::File(file) => match text_of(file) {
                    Some(more) => text.push_str(&more),
                    None => return Err(bad_part((at, n), "the provider takes no files")),
                },
                PartBody::Other(kind, _) => {
                    let kind = &**kind;
                    let why = format!("the provider takes no part of type {kind:?}");
                    return Err(bad_part((at, n), &why));
                }
            }
        }
        put_comma(&mut self.out);
        self.out.push(b'{');
        put_member(&mut self.out, "role", message.role.as_str());
        put_member(&mut self.out, "content", &text);
        if !images.is_empty() {
            put_name(&mut self.out, "images");
            self.out.push(b'[');
            for image in images {
                put_comma(&mut self.out);
                put_text(&mut self.out, image);
            }
            self.out.push(b']');
        }
        self.put_calls(&message.tool_calls);
        if message.role == Role::Tool {
            self.put_result(at, message);
        }
        if let Some(reasoning) = &message.reasoning_content {
            put_member(&mut self.out, "thinking", reasoning);
        }
        self.out.push(b'}');
        Ok(())
    }

    fn put_calls(&mut self, calls: &[ToolCall<'_>]) {
        if calls.is_empty() {
            return;
        }
        put_name(&mut self.out, "tool_calls");
        self.out.push(b'[');
        for call in calls {
            put_comma(&mut self.out);
            self.out.push(b'{');
            put_member(&mut self.out, "id", &call.id);
            put_name(&mut self.out, "function");
            self.out.push(b'{');
            put_member(&mut self.out, "name", &call.name);
            put_raw(&mut self.out, "arguments", &arguments(call, &mut self.dropped));
            self.out.extend_from_slice(b"}}");
        }
        self.out.push(b']');
    }

    /// A result names its tool; older versions know no ids.
    fn put_result(&mut self, at: usize, message: &Message<'_>) {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        let before = self.chat.messages.iter().take(at).rev();
        let mut calls = before.flat_map(|message| message.tool_calls.iter().rev());
        let named = calls.find(|call| &*call.id == id).map(|call| &*call.name);
        if let Some(name) = named.or(message.name.as_deref()) {
            put_member(&mut self.out, "tool_name", name);
        }
        put_member(&mut self.out, "tool_call_id", id);
    }

    /// There is no choice among tools: only `none` can be kept, by sending none.
    fn put_tools(&mut self) {
        match self.chat.tool_choice {
            None | Some(ToolChoice::Auto) => {}
            Some(ToolChoice::None) => return,
            _ => note(&mut self.dropped, "tool_choice"),
        }
        let mut tools = Vec::new();
        for tool in &self.chat.tools {
            match tool {
                Tool::Function(function) => {
                    put_comma(&mut tools);
                    tools.extend_from_slice(br#"{"type":"function","function":{"#);
                    put_member(&mut tools, "name", &function.name);
                    let description = function.description.as_deref().unwrap_or_default();
                    put_member(&mut tools, "description", description);
                    let schema = function.parameters.filter(|raw| raw.get().starts_with('{'));
                    let none = r#"{"type":"object","properties":{}}"#;
                    put_raw(&mut tools, "parameters", schema.map_or(none, RawValue::get));
                    tools.extend_from_slice(b"}}");
                    if function.strict == Some(true) {
                        note(&mut self.dropped, "tools.strict");
                    }
                }
                Tool::Other(kind, _) => note(&mut self.dropped, &format!("tools.{}", &**kind)),
            }
        }
        if tools.is_empty() {
            return;
        }
        put_name(&mut self.out, "tools");
        self.out.push(b'[');
        self.out.append(&mut tools);
        self.out.push(b']');
        if self.chat.parallel_tool_calls == Some(false) {
            note(&mut self.dropped, "parallel_tool_calls");
        }
    }

    fn put_format(&mut self) {
        match self.chat.response_format {
            Some(Format::JsonSchema(Some(schema))) => {
                put_raw(&mut self.out, "format", schema.get());
            }
            Some(Format::JsonObject | Format::JsonSchema(None)) => {
                put_member(&mut self.out, "format", "json");
            }
            Some(Format::Text) | None => {}
        }
    }

    /// A level, which models without levels take for yes.
    fn put_think(&mut self) {
        let Some(effort) = self.chat.reasoning_effort.as_deref() else { return };
        if self.chat.rest.iter().any(|(name, _)| *name == "think") {
            return note(&mut self.dropped, "reasoning_effort");
        }
        let think = match effort {
            "none" => "false",
            "minimal" | "low" => "\"low\"",
            "medium" => "\"medium\"",
            "high" | "xhigh" | "max" => "\"high\"",
            _ => return note(&mut self.dropped, "reasoning_effort"),
        };
        put_raw(&mut self.out, "think", think);
    }

    fn put_options(&mut self, max_output: u64) {
        let chat = self.chat;
        let mut options = Vec::new();
        let given = chat.rest.iter().find(|(name, _)| *name == "options");
        // What the caller wrote into `options` itself goes in front and wins.
        let given = given.and_then(|(_, raw)| Members::of(raw.get()));
        let given = given.unwrap_or_default();
        options.push(b'{');
        for (name, raw) in &given.0 {
            put_raw(&mut options, name, raw.get());
        }
        let mut add = |name: &str, raw: &str| {
            if given.get(name).is_none() {
                put_raw(&mut options, name, raw);
            }
        };
        if let Some(limit) = chat.max_tokens.or((max_output > 0).then_some(max_output)) {
            add("num_predict", &limit.to_string());
        }
        for (name, number) in [("temperature", chat.temperature), ("top_p", chat.top_p)] {
            if let Some(number) = number {
                add(name, number.raw);
            }
        }
        if !chat.stop.is_empty() {
            let mut stops = b"[".to_vec();
            for stop in &chat.stop {
                put_comma(&mut stops);
                put_text(&mut stops, stop);
            }
            stops.push(b']');
            add("stop", &String::from_utf8_lossy(&stops));
        }
        for (name, raw) in chat.rest.iter().filter(|(name, _)| OPTIONS.contains(name)) {
            add(name, raw.get());
        }
        if options.len() > 1 {
            put_name(&mut self.out, "options");
            self.out.append(&mut options);
            self.out.push(b'}');
        }
    }

    fn put_rest(&mut self) {
        note_unread(&mut self.dropped, self.chat, true);
        note_marks(&mut self.dropped, self.chat);
        note_thoughts(&mut self.dropped, self.chat);
        for (name, raw) in &self.chat.rest {
            match *name {
                name if NATIVE.contains(&name) => put_raw(&mut self.out, name, raw.get()),
                name if name == "options" || OPTIONS.contains(&name) => {}
                name => note(&mut self.dropped, name),
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

/// Bare base64; the provider fetches nothing.
fn image(url: &str, at: (usize, usize)) -> Result<&str, ApiError> {
    match DataUrl::of(url) {
        Some(DataUrl { data, .. }) if !data.is_empty() => Ok(data),
        _ => Err(bad_part(at, "an image must be a data: URL of base64")),
    }
}
