//! A chat request as one of Cohere's v2: every member mapped, passed, or named as dropped.

use crate::chat::media::{DataUrl, is_web, text_of};
use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw, put_text};
use crate::chat::{Chat, Format, Message, PartBody, Role, Tool, ToolChoice};
use crate::chat::{thought, wrong};
use crate::error::ApiError;
use crate::wire::edit::{
    arguments, edited, note, note_marks, note_thoughts, note_unread, put_object_schema, put_within,
};
use crate::wire::{Ask, Outgoing};

/// Members that pass under their own or another name.
const PASSED: [(&str, &str); 9] = [
    ("seed", "seed"),
    ("frequency_penalty", "frequency_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("top_k", "k"),
    ("k", "k"),
    ("documents", "documents"),
    ("citation_options", "citation_options"),
    ("safety_mode", "safety_mode"),
    ("priority", "priority"),
];

/// `stop_sequences` takes so many.
const STOPS_MAX: usize = 5;

pub(super) fn build(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let chat = Chat::read(ask.peek)?;
    let mut body = Body { chat: &chat, out: b"{".to_vec(), dropped: Vec::new() };
    put_member(&mut body.out, "model", ask.model);
    put_raw(&mut body.out, "stream", if ask.peek.stream { "true" } else { "false" });
    body.put_messages()?;
    body.put_tools();
    body.put_sampling(ask.max_output);
    body.put_format();
    body.put_thinking();
    body.put_rest();
    let Body { mut out, mut dropped, .. } = body;
    out.push(b'}');
    let body = edited(out.into(), ask.params, &mut dropped)?;
    let path = "/chat".to_owned();
    Ok(Outgoing { path, headers: Vec::new(), body, dropped, strip_usage: false })
}

/// A body on its way.
struct Body<'a> {
    chat: &'a Chat<'a>,
    out: Vec<u8>,
    dropped: Vec<String>,
}

impl<'a> Body<'a> {
    fn put_messages(&mut self) -> Result<(), ApiError> {
        put_name(&mut self.out, "messages");
        self.out.push(b'[');
        for (at, message) in self.chat.messages.iter().enumerate() {
            self.put_message(at, message)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn put_message(&mut self, at: usize, message: &Message<'_>) -> Result<(), ApiError> {
        let mut content = Vec::new();
        for (n, part) in message.content.iter().enumerate() {
            put_part(&mut content, &part.body, (at, n))?;
        }
        let out = &mut self.out;
        put_comma(out);
        out.push(b'{');
        put_member(out, "role", message.role.as_str());
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            put_member(out, "tool_call_id", thought::split(id).0);
        }
        if !content.is_empty() {
            put_name(out, "content");
            out.push(b'[');
            out.append(&mut content);
            out.push(b']');
        } else if message.tool_calls.is_empty() {
            put_member(out, "content", "");
        }
        if !message.tool_calls.is_empty() {
            put_name(out, "tool_calls");
            out.push(b'[');
            for call in &message.tool_calls {
                put_comma(out);
                out.push(b'{');
                put_member(out, "id", thought::split(&call.id).0);
                put_member(out, "type", "function");
                put_name(out, "function");
                out.push(b'{');
                put_member(out, "name", &call.name);
                put_member(out, "arguments", &arguments(call, &mut self.dropped));
                out.extend_from_slice(b"}}");
            }
            out.push(b']');
        }
        out.push(b'}');
        Ok(())
    }

    fn put_tools(&mut self) {
        let mut tools = Vec::new();
        let mut strict = false;
        for tool in &self.chat.tools {
            match tool {
                Tool::Function(function) => {
                    put_comma(&mut tools);
                    tools.extend_from_slice(br#"{"type":"function","function":{"#);
                    put_member(&mut tools, "name", &function.name);
                    if let Some(description) = function.description.as_deref() {
                        put_member(&mut tools, "description", description);
                    }
                    put_name(&mut tools, "parameters");
                    put_object_schema(&mut tools, function.parameters);
                    tools.extend_from_slice(b"}}");
                    strict |= function.strict == Some(true);
                }
                Tool::Other(kind, _) => note(&mut self.dropped, &format!("tools.{}", &**kind)),
            }
        }
        let any = !tools.is_empty();
        if any {
            put_name(&mut self.out, "tools");
            self.out.push(b'[');
            self.out.append(&mut tools);
            self.out.push(b']');
            if strict {
                // For all or none of them.
                put_raw(&mut self.out, "strict_tools", "true");
            }
            if self.chat.parallel_tool_calls == Some(false) {
                note(&mut self.dropped, "parallel_tool_calls");
            }
        }
        match &self.chat.tool_choice {
            None | Some(ToolChoice::Auto) => {}
            Some(ToolChoice::None) if !any => {}
            Some(ToolChoice::None) => put_member(&mut self.out, "tool_choice", "NONE"),
            Some(ToolChoice::Required) if any => {
                put_member(&mut self.out, "tool_choice", "REQUIRED");
            }
            Some(ToolChoice::Function(_) | ToolChoice::Allowed { required: true }) if any => {
                // One of them, though not which.
                put_member(&mut self.out, "tool_choice", "REQUIRED");
                note(&mut self.dropped, "tool_choice.function");
            }
            Some(_) => note(&mut self.dropped, "tool_choice"),
        }
    }

    fn put_sampling(&mut self, max_output: u64) {
        let chat = self.chat;
        if let Some(limit) = chat.max_tokens.or((max_output > 0).then_some(max_output)) {
            put_raw(&mut self.out, "max_tokens", &limit.to_string());
        }
        for (name, ours, number, range) in [
            ("temperature", "temperature", chat.temperature, ("0", "1")),
            ("p", "top_p", chat.top_p, ("0.01", "0.99")),
        ] {
            if put_within(&mut self.out, name, number, range) {
                note(&mut self.dropped, ours);
            }
        }
        let stops: Vec<_> = chat.stop.iter().filter(|stop| !stop.is_empty()).collect();
        if stops.len() > STOPS_MAX {
            note(&mut self.dropped, "stop");
        }
        if !stops.is_empty() {
            put_name(&mut self.out, "stop_sequences");
            self.out.push(b'[');
            for stop in stops.into_iter().take(STOPS_MAX) {
                put_comma(&mut self.out);
                put_text(&mut self.out, stop);
            }
            self.out.push(b']');
        }
    }

    fn put_format(&mut self) {
        let schema = match self.chat.response_format {
            Some(Format::JsonSchema(schema)) => schema,
            Some(Format::JsonObject) => None,
            Some(Format::Text) | None => return,
        };
        put_name(&mut self.out, "response_format");
        self.out.push(b'{');
        put_member(&mut self.out, "type", "json_object");
        if let Some(schema) = schema {
            put_raw(&mut self.out, "json_schema", schema.get());
        }
        self.out.push(b'}');
    }

    /// The model thinks or not; how much is a budget that an effort does not give.
    fn put_thinking(&mut self) {
        let native = self.chat.rest.iter().find(|(name, _)| *name == "thinking");
        let members = native.and_then(|(_, raw)| Members::of(raw.get()));
        if native.is_some() && members.is_none() {
            note(&mut self.dropped, "thinking");
        }
        if let Some(members) = members {
            put_name(&mut self.out, "thinking");
            let off = members.text("type").as_deref() == Some("disabled");
            self.out.push(b'{');
            put_member(&mut self.out, "type", if off { "disabled" } else { "enabled" });
            let budget = members.get("token_budget").or(members.get("budget_tokens"));
            if let Some(budget) = budget.filter(|_| !off) {
                put_raw(&mut self.out, "token_budget", budget.get());
            }
            return self.out.push(b'}');
        }
        match self.chat.reasoning_effort.as_deref() {
            None => {}
            Some("none") => put_raw(&mut self.out, "thinking", r#"{"type":"disabled"}"#),
            Some("minimal" | "low" | "medium" | "high" | "xhigh" | "max") => {
                put_raw(&mut self.out, "thinking", r#"{"type":"enabled"}"#);
            }
            Some(_) => note(&mut self.dropped, "reasoning_effort"),
        }
    }

    fn put_rest(&mut self) {
        note_unread(&mut self.dropped, self.chat, false);
        note_marks(&mut self.dropped, self.chat);
        note_thoughts(&mut self.dropped, self.chat);
        for (name, raw) in &self.chat.rest {
            match PASSED.iter().find(|(ours, _)| ours == name) {
                Some((_, theirs)) => put_raw(&mut self.out, theirs, raw.get()),
                None if *name == "thinking" => {}
                None => note(&mut self.dropped, name),
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

fn put_text_part(out: &mut Vec<u8>, text: &str) {
    put_comma(out);
    out.push(b'{');
    put_member(out, "type", "text");
    put_member(out, "text", text);
    out.push(b'}');
}

fn put_part(
    out: &mut Vec<u8>,
    part: &PartBody<'_>,
    (message, n): (usize, usize),
) -> Result<(), ApiError> {
    let refuse = |what: &str| {
        let param = format!("messages[{message}].content[{n}]");
        Err(wrong(&param, &format!("{param}: {what}")))
    };
    match part {
        PartBody::Text(text) if text.is_empty() => {}
        PartBody::Text(text) => put_text_part(out, text),
        PartBody::Image(url) => {
            if !is_web(url) && DataUrl::of(url).is_none_or(|data| data.data.is_empty()) {
                return refuse("an image is a data: URL of base64 or an http(s) URL");
            }
            put_comma(out);
            out.extend_from_slice(br#"{"type":"image_url","image_url":{"#);
            put_member(out, "url", url);
            out.extend_from_slice(b"}}");
        }
        PartBody::File(file) => match text_of(file) {
            Some(text) => put_text_part(out, &text),
            None => return refuse("the provider takes no files"),
        },
        PartBody::Other(kind, _) => {
            return refuse(&format!("the provider takes no part of type {:?}", &**kind));
        }
    }
    Ok(())
}
