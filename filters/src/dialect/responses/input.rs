//! The input items of a Responses request as messages of a chat.

use super::super::messages::{Target, parse};
use super::super::names::{Names, Tool};
use super::items::SEAL;
use super::kept;
use crate::chat::raw::{Text, put_comma, put_member, put_name, put_raw, put_text, text};
use crate::chat::wrong;
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    role: Option<Text<'a>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    /// A text in calls of functions; an object in some of the provider's own tools.
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    encrypted_content: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct PartShape<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    image_url: Option<Text<'a>>,
    #[serde(borrow)]
    detail: Option<Text<'a>>,
    #[serde(borrow)]
    file_data: Option<Text<'a>>,
    #[serde(borrow)]
    file_url: Option<Text<'a>>,
    #[serde(borrow)]
    file_id: Option<Text<'a>>,
    #[serde(borrow)]
    filename: Option<Text<'a>>,
    #[serde(borrow)]
    input_audio: Option<&'a RawValue>,
}

/// What the assistant said and called since the last other item.
#[derive(Debug, Default)]
struct Assistant {
    said: bool,
    text: String,
    calls: Vec<u8>,
    thoughts: String,
    sealed: String,
}

/// Writes `messages` out of `(instructions, input)`.
pub(super) fn put_input(
    out: &mut Vec<u8>,
    (instructions, input): (Option<&str>, Option<&RawValue>),
    target: Target,
    names: &mut Names,
    dropped: &mut Vec<String>,
) -> Result<(), ApiError> {
    let assistant = Assistant::default();
    let mut writer = Writer { out, target, names, dropped, assistant, pictures: Vec::new() };
    put_name(writer.out, "messages");
    writer.out.push(b'[');
    if let Some(instructions) = instructions.filter(|text| !text.is_empty()) {
        writer.message("system", |out| put_text(out, instructions));
    }
    match input {
        Some(raw) if raw.get().starts_with('"') => {
            writer.message("user", |out| out.extend_from_slice(raw.get().as_bytes()));
        }
        Some(raw) => {
            let list: Vec<&RawValue> = parse("input", raw)?;
            for (at, raw) in list.into_iter().enumerate() {
                writer.item(&format!("input[{at}]"), raw)?;
            }
        }
        None => {}
    }
    writer.flush();
    writer.show();
    writer.out.push(b']');
    Ok(())
}

struct Writer<'w> {
    out: &'w mut Vec<u8>,
    target: Target,
    names: &'w mut Names,
    dropped: &'w mut Vec<String>,
    assistant: Assistant,
    /// Parts of tools' outputs that only a user's message can hold.
    pictures: Vec<u8>,
}

impl Writer<'_> {
    fn message(&mut self, role: &str, content: impl FnOnce(&mut Vec<u8>)) {
        put_comma(self.out);
        self.out.push(b'{');
        put_member(self.out, "role", role);
        put_name(self.out, "content");
        content(self.out);
        self.out.push(b'}');
    }

    fn item(&mut self, at: &str, raw: &RawValue) -> Result<(), ApiError> {
        let shape: Shape<'_> = parse(at, raw)?;
        let need = |value: Option<Text<'_>>, name: &str| {
            let param = format!("{at}.{name}");
            let value = value.map(|text| text.0.into_owned());
            value.ok_or_else(|| wrong(&param, &format!("{param} is missing")))
        };
        match shape.kind.as_deref().unwrap_or("message") {
            "message" => self.said(at, &shape)?,
            "function_call" => {
                let (id, name) = (need(shape.call_id, "call_id")?, need(shape.name, "name")?);
                let namespace = shape.namespace.map(|text| text.0.into_owned());
                let arguments = shape.arguments.map(said).unwrap_or_default();
                self.call(&id, Tool { name, namespace, custom: false }, &arguments);
            }
            "custom_tool_call" => {
                let (id, name) = (need(shape.call_id, "call_id")?, need(shape.name, "name")?);
                let mut arguments = b"{".to_vec();
                put_member(&mut arguments, "input", &need(shape.input.map(said), "input")?);
                arguments.push(b'}');
                let tool = Tool { name, namespace: None, custom: true };
                self.call(&id, tool, &String::from_utf8_lossy(&arguments));
            }
            "function_call_output" | "custom_tool_call_output" => {
                let id = need(shape.call_id, "call_id")?;
                self.output(at, &id, shape.output)?;
            }
            "reasoning" => self.reasoning(&shape),
            // Vercel's SDK names the reasoning it was given instead of sending it back. It is no
            // part of the conversation; what the model called and said is.
            "item_reference" if shape.id.as_deref().is_some_and(|id| id.starts_with("rs_")) => {
                self.dropped.push("input.item_reference".into());
            }
            "item_reference" => return Err(kept(at)),
            other => {
                let kind: String = other.chars().take(64).collect();
                self.dropped.push(format!("input.{kind}"));
            }
        }
        Ok(())
    }

    fn said(&mut self, at: &str, shape: &Shape<'_>) -> Result<(), ApiError> {
        let role = match shape.role.as_deref() {
            Some("system" | "developer") => "system",
            Some("user") => "user",
            Some("assistant") => "assistant",
            _ => {
                let param = format!("{at}.role");
                let why = format!("{param} is none of user, assistant, system, developer");
                return Err(wrong(&param, &why));
            }
        };
        let Some(content) = shape.content else {
            let param = format!("{at}.content");
            return Err(wrong(&param, &format!("{param} is missing")));
        };
        let (texts, parts) = self.parts(&format!("{at}.content"), content)?;
        if role == "assistant" {
            self.assistant.said = true;
            self.assistant.text.push_str(&texts.concat());
            return Ok(());
        }
        self.flush();
        self.show();
        match texts.as_slice() {
            [] if parts.is_empty() => self.message(role, |out| put_text(out, "")),
            [one] if !has_media(&parts) => self.message(role, |out| put_text(out, one)),
            _ => self.message(role, |out| {
                out.push(b'[');
                out.extend_from_slice(&parts);
                out.push(b']');
            }),
        }
        Ok(())
    }

    /// The texts of a content, and its parts as a chat has them.
    fn parts(&mut self, at: &str, raw: &RawValue) -> Result<(Vec<String>, Vec<u8>), ApiError> {
        let (mut texts, mut out) = (Vec::new(), Vec::new());
        if raw.get().starts_with('"') {
            let text: Text<'_> = parse(at, raw)?;
            put_text_part(&mut out, &text);
            texts.push(text.0.into_owned());
            return Ok((texts, out));
        }
        let list: Vec<&RawValue> = parse(at, raw)?;
        for (n, raw) in list.into_iter().enumerate() {
            let part: PartShape<'_> = parse(&format!("{at}[{n}]"), raw)?;
            if let Some(text) = part.text.as_ref().or(part.refusal.as_ref()) {
                put_text_part(&mut out, text);
                texts.push(text.to_string());
            } else if !put_media(&mut out, &part, self.target.rich) {
                let kind: String = part.kind.chars().take(64).collect();
                self.dropped.push(format!("input.content.{kind}"));
            }
        }
        Ok((texts, out))
    }

    fn call(&mut self, id: &str, tool: Tool, arguments: &str) {
        let name = self.names.called(tool);
        let calls = &mut self.assistant.calls;
        put_comma(calls);
        calls.push(b'{');
        put_member(calls, "id", id);
        put_member(calls, "type", "function");
        put_name(calls, "function");
        calls.push(b'{');
        put_member(calls, "name", &name);
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        put_member(calls, "arguments", arguments);
        calls.extend_from_slice(b"}}");
    }

    fn output(&mut self, at: &str, id: &str, raw: Option<&RawValue>) -> Result<(), ApiError> {
        self.flush();
        let mut text = String::new();
        match raw {
            Some(raw) if raw.get().starts_with(['"', '[']) => {
                let (texts, parts) = self.parts(&format!("{at}.output"), raw)?;
                text = texts.join("\n");
                if has_media(&parts) {
                    put_comma(&mut self.pictures);
                    self.pictures.extend_from_slice(&parts);
                }
            }
            Some(raw) => raw.get().clone_into(&mut text),
            None => {}
        }
        put_comma(self.out);
        self.out.push(b'{');
        put_member(self.out, "role", "tool");
        put_member(self.out, "tool_call_id", id);
        put_member(self.out, "content", &text);
        self.out.push(b'}');
        Ok(())
    }

    /// Reasoning that we wrapped is unwrapped; any other provider's seal is of no use here.
    fn reasoning(&mut self, shape: &Shape<'_>) {
        let parts: Vec<PartShape<'_>> =
            shape.summary.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        for text in parts.iter().filter_map(|part| part.text.as_ref()) {
            self.assistant.thoughts.push_str(text);
        }
        let sealed = shape.encrypted_content.as_deref().and_then(|text| text.strip_prefix(SEAL));
        let blocks = sealed.and_then(|text| STANDARD.decode(text).ok());
        let blocks = blocks.and_then(|bytes| String::from_utf8(bytes).ok());
        let list = blocks.as_deref().and_then(|text| {
            serde_json::from_str::<Vec<&RawValue>>(text).ok().filter(|list| !list.is_empty())
        });
        // One that another provider sealed, or that the target cannot take.
        if shape.encrypted_content.is_some() && (list.is_none() || !self.target.rich) {
            self.dropped.push("input.reasoning.encrypted_content".into());
        }
        for raw in list.into_iter().flatten() {
            let sealed = &mut self.assistant.sealed;
            if !sealed.is_empty() {
                sealed.push(',');
            }
            sealed.push_str(raw.get());
        }
    }

    /// The assistant's turn is over.
    fn flush(&mut self) {
        let turn = std::mem::take(&mut self.assistant);
        if !turn.said && turn.calls.is_empty() {
            return;
        }
        self.show();
        let out = &mut *self.out;
        put_comma(out);
        out.push(b'{');
        put_member(out, "role", "assistant");
        if turn.text.is_empty() && !turn.calls.is_empty() {
            put_raw(out, "content", "null");
        } else {
            put_member(out, "content", &turn.text);
        }
        if !turn.calls.is_empty() && self.target.recall(&turn.thoughts, out) {
            self.dropped.push("input.reasoning".into());
        }
        if self.target.rich && !turn.sealed.is_empty() {
            put_raw(out, "thinking_blocks", &format!("[{}]", turn.sealed));
        }
        if !turn.calls.is_empty() {
            put_name(out, "tool_calls");
            out.push(b'[');
            out.extend_from_slice(&turn.calls);
            out.push(b']');
        }
        out.push(b'}');
    }

    /// What tools showed, as a message of the user's.
    fn show(&mut self) {
        if self.pictures.is_empty() {
            return;
        }
        let parts = std::mem::take(&mut self.pictures);
        self.message("user", |out| {
            out.push(b'[');
            out.extend_from_slice(&parts);
            out.push(b']');
        });
    }
}

/// A text, or what else there is as it is written.
fn said(raw: &RawValue) -> Text<'_> {
    text(raw).unwrap_or_else(|| Text(raw.get().into()))
}

fn has_media(parts: &[u8]) -> bool {
    let starts = |kind: &[u8]| memchr::memmem::find(parts, kind).is_some();
    // Our own writing: a text's quotes are escaped, so these stand between parts alone.
    starts(br#"{"type":"image_url""#)
        || starts(br#"{"type":"file""#)
        || starts(br#"{"type":"input_audio""#)
}

fn put_text_part(out: &mut Vec<u8>, text: &str) {
    put_comma(out);
    out.extend_from_slice(br#"{"type":"text""#);
    put_member(out, "text", text);
    out.push(b'}');
}

/// A part that is no text; false where a chat has no such part. `rich`: of a chat that a wire
/// translates, where a file may be an address too.
fn put_media(out: &mut Vec<u8>, part: &PartShape<'_>, rich: bool) -> bool {
    if let Some(url) = &part.image_url {
        put_comma(out);
        out.extend_from_slice(br#"{"type":"image_url","image_url":{"#);
        put_member(out, "url", url);
        if let Some(detail) = part.detail.as_deref().filter(|detail| *detail != "original") {
            put_member(out, "detail", detail);
        }
        out.extend_from_slice(b"}}");
        return true;
    }
    let data = part.file_data.as_ref().or(part.file_url.as_ref().filter(|_| rich));
    if &*part.kind == "input_file" && (data.is_some() || part.file_id.is_some()) {
        put_comma(out);
        out.extend_from_slice(br#"{"type":"file","file":{"#);
        for (name, text) in [
            ("file_data", data),
            ("file_id", part.file_id.as_ref()),
            ("filename", part.filename.as_ref()),
        ] {
            if let Some(text) = text {
                put_member(out, name, text);
            }
        }
        out.extend_from_slice(b"}}");
        return true;
    }
    if let Some(audio) = part.input_audio {
        put_comma(out);
        out.extend_from_slice(br#"{"type":"input_audio""#);
        put_raw(out, "input_audio", audio.get());
        out.push(b'}');
        return true;
    }
    false
}
