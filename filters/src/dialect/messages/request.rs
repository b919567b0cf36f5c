//! A Messages request as a chat: every member mapped or named as dropped.

use super::super::Chat;
use super::super::names::{Names, Tool};
use super::turns::{Turns, put_turns};
use crate::chat::raw::{Members, Text, note_unread, put_comma, put_member, put_name};
use crate::chat::raw::{put_raw, put_text};
use crate::chat::wrong;
use crate::error::ApiError;
use crate::peek::{OWN, Peek};
use crate::wire::{Ask, Wire};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A chat takes no more stop sequences (openai-openapi, `StopConfiguration`).
const STOPS_MAX: usize = 4;
/// A longer `user` is refused by OpenAI ("string too long. Expected a string with maximum length
/// 64"), and Claude Code's is.
const USER_BYTES_MAX: usize = 64;
/// Thinking budgets up to these are a low and a medium effort; clients of the field step so.
const EFFORT_LOW_MAX: u64 = 4096;
const EFFORT_MEDIUM_MAX: u64 = 16384;

/// What the target can bear beyond the plainest chat.
#[derive(Debug, Clone, Copy)]
pub(in crate::dialect) struct Target {
    /// The wire translates the chat, so its superset may hold more than OpenAI's members.
    pub rich: bool,
    /// `reasoning_content` may stand in the history.
    pub reasoning_back: bool,
    /// The model reasons by OpenAI's parameters: `reasoning_effort`, no sampling.
    pub reasons: bool,
}

impl Target {
    pub(in crate::dialect) fn of(wire: Wire, ask: &Ask<'_>) -> Self {
        let rich = !matches!(wire, Wire::OpenAi | Wire::Azure);
        Self {
            rich,
            reasoning_back: rich || ask.quirks.reasoning_back,
            reasons: reasons(ask.model),
        }
    }

    /// Writes the thoughts of a turn with calls where they go back: who wants them wants them in
    /// tool loops (api-docs.deepseek.com/guides/thinking_mode). True where they are lost.
    pub(in crate::dialect) fn recall(&self, thoughts: &str, out: &mut Vec<u8>) -> bool {
        if self.reasoning_back && !thoughts.is_empty() {
            put_member(out, "reasoning_content", thoughts);
        }
        !self.reasoning_back && !thoughts.is_empty()
    }
}

/// OpenAI's reasoning models by their names, a host's prefix aside.
pub(in crate::dialect) fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    ["o1", "o3", "o4", "gpt-5", "gpt-6", "codex"].iter().any(|family| name.starts_with(family))
}

/// The members of a request, unread.
#[derive(Debug, Default)]
struct Shape<'a> {
    messages: Option<&'a RawValue>,
    system: Option<&'a RawValue>,
    tools: Option<&'a RawValue>,
    tool_choice: Option<Choice<'a>>,
    thinking: Option<Thinking<'a>>,
    output: Option<Output<'a>>,
    metadata: Option<Members<'a>>,
    stops: Vec<Text<'a>>,
    sampling: Vec<(&'a str, &'a RawValue)>,
    dropped: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Choice<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Thinking<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    budget_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    effort: Option<Text<'a>>,
    #[serde(borrow)]
    format: Option<Members<'a>>,
}

/// The chat that asks the same.
///
/// # Errors
/// `invalid_request` with the member at fault.
pub(in crate::dialect) fn to_chat(wire: Wire, ask: &Ask<'_>) -> Result<Chat, ApiError> {
    let target = Target::of(wire, ask);
    let mut shape = read(ask.peek)?;
    let mut names = Names::default();
    let mut out = b"{".to_vec();
    put_member(&mut out, "model", ask.model);
    if ask.peek.stream {
        put_raw(&mut out, "stream", "true");
    }
    let turns = Turns::read(shape.system, shape.messages, &mut shape.dropped)?;
    put_turns(&mut out, &turns, target, &mut names, &mut shape.dropped);
    put_tools(&mut out, &mut shape, target, &mut names)?;
    put_limits(&mut out, &mut shape, target, ask);
    put_reasoning(&mut out, &mut shape, target);
    out.push(b'}');
    let mut dropped = shape.dropped;
    dropped.sort();
    dropped.dedup();
    Ok(Chat { body: out, dropped, names })
}

fn read(peek: &Peek) -> Result<Shape<'_>, ApiError> {
    let mut shape = Shape::default();
    for member in &peek.members {
        let name = peek.name(member);
        let Ok(raw) = serde_json::from_slice::<&RawValue>(peek.value(member)) else { continue };
        if raw.get() == "null" || OWN.contains(&name) {
            continue;
        }
        let dropped = &mut shape.dropped;
        match name {
            "model" | "stream" | "max_tokens" => {}
            "messages" => shape.messages = Some(raw),
            "system" => shape.system = Some(raw),
            "tools" => shape.tools = Some(raw),
            "tool_choice" => {
                note_unread(dropped, name, raw, &["type", "name", "disable_parallel_tool_use"]);
                shape.tool_choice = Some(parse(name, raw)?);
            }
            "thinking" => {
                note_unread(dropped, name, raw, &["type", "budget_tokens"]);
                shape.thinking = Some(parse(name, raw)?);
            }
            "output_config" => {
                note_unread(dropped, name, raw, &["effort", "format"]);
                shape.output = Some(parse(name, raw)?);
            }
            "metadata" => shape.metadata = Some(parse(name, raw)?),
            "stop_sequences" => shape.stops = parse(name, raw)?,
            "temperature" | "top_p" | "top_k" => shape.sampling.push((name, raw)),
            _ => dropped.push(name.to_owned()),
        }
    }
    Ok(shape)
}

pub(in crate::dialect) fn parse<'a, T: Deserialize<'a>>(
    param: &str,
    raw: &'a RawValue,
) -> Result<T, ApiError> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let said = error.to_string();
        // The position is one inside the member: no help to the caller.
        let said = said.split(" at line ").next().unwrap_or_default();
        wrong(param, &format!("{param}: {said}"))
    })
}

const OF_TOOL: [&str; 6] =
    ["type", "name", "description", "input_schema", "strict", "cache_control"];

#[derive(Debug, Deserialize)]
struct ToolShape<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    /// Missing from a toolset of an MCP server.
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    input_schema: Option<&'a RawValue>,
    strict: Option<bool>,
    #[serde(borrow)]
    cache_control: Option<&'a RawValue>,
}

fn put_tools(
    out: &mut Vec<u8>,
    shape: &mut Shape<'_>,
    target: Target,
    names: &mut Names,
) -> Result<(), ApiError> {
    let list: Vec<&RawValue> = match shape.tools {
        Some(raw) => parse("tools", raw)?,
        None => Vec::new(),
    };
    let mut tools = Vec::new();
    for (at, raw) in list.into_iter().enumerate() {
        let tool: ToolShape<'_> = parse(&format!("tools[{at}]"), raw)?;
        if let Some(kind) = tool.kind.as_deref().filter(|kind| *kind != "custom") {
            // The provider's own tools: nobody else has them.
            let name = tool.name.as_deref().unwrap_or(kind);
            shape.dropped.push(format!("tools.{name}"));
            continue;
        }
        let Some(name) = tool.name.as_deref() else {
            let param = format!("tools[{at}].name");
            return Err(wrong(&param, &format!("{param} is missing")));
        };
        note_unread(&mut shape.dropped, "tools", raw, &OF_TOOL);
        put_comma(&mut tools);
        put_tool(&mut tools, (name, &tool), target, names);
        if tool.cache_control.is_some() && !target.rich {
            shape.dropped.push("cache_control".into());
        }
    }
    if tools.is_empty() {
        if shape.tool_choice.as_ref().is_some_and(|c| matches!(&*c.kind, "any" | "tool")) {
            shape.dropped.push("tool_choice".into());
        }
        return Ok(());
    }
    put_name(out, "tools");
    out.push(b'[');
    out.extend_from_slice(&tools);
    out.push(b']');
    let Some(choice) = &shape.tool_choice else { return Ok(()) };
    match (&*choice.kind, &choice.name) {
        ("any", _) => put_member(out, "tool_choice", "required"),
        ("none", _) => put_member(out, "tool_choice", "none"),
        ("tool", Some(name)) => {
            let name = names.give(Tool { name: name.to_string(), ..Tool::default() });
            out.extend_from_slice(br#","tool_choice":{"type":"function","function":{"#);
            put_member(out, "name", &name);
            out.extend_from_slice(b"}}");
        }
        ("auto", _) => put_member(out, "tool_choice", "auto"),
        _ => return Err(wrong("tool_choice", "tool_choice.type is none of auto, any, tool, none")),
    }
    if choice.disable_parallel_tool_use == Some(true) {
        put_raw(out, "parallel_tool_calls", "false");
    }
    Ok(())
}

fn put_tool(
    out: &mut Vec<u8>,
    (name, tool): (&str, &ToolShape<'_>),
    target: Target,
    names: &mut Names,
) {
    let name = names.give(Tool { name: name.to_owned(), ..Tool::default() });
    out.extend_from_slice(br#"{"type":"function","function":{"#);
    put_member(out, "name", &name);
    if let Some(description) = tool.description {
        put_raw(out, "description", description.get());
    }
    if let Some(schema) = tool.input_schema {
        put_raw(out, "parameters", schema.get());
    }
    if let Some(strict) = tool.strict {
        put_raw(out, "strict", if strict { "true" } else { "false" });
    }
    out.push(b'}');
    if let Some(control) = tool.cache_control.filter(|_| target.rich) {
        put_raw(out, "cache_control", control.get());
    }
    out.push(b'}');
}

fn put_limits(out: &mut Vec<u8>, shape: &mut Shape<'_>, target: Target, ask: &Ask<'_>) {
    if let Some(limit) = ask.peek.max_tokens {
        // Callers of Messages must name a limit, and name that of another model.
        let limit = if ask.max_output > 0 { limit.min(ask.max_output) } else { limit };
        // OpenAI's reasoning models refuse the old name (recorded 400 "Unsupported parameter").
        let name = if target.reasons { "max_completion_tokens" } else { "max_tokens" };
        put_raw(out, name, &limit.to_string());
    }
    let stops = shape.stops.iter().filter(|stop| !stop.is_empty());
    let most = if target.rich { usize::MAX } else { STOPS_MAX };
    if stops.clone().count() > most {
        shape.dropped.push("stop_sequences".into());
    }
    let mut list = Vec::new();
    for stop in stops.take(most) {
        put_comma(&mut list);
        put_text(&mut list, stop);
    }
    if !list.is_empty() {
        put_name(out, "stop");
        out.push(b'[');
        out.extend_from_slice(&list);
        out.push(b']');
    }
    for (name, raw) in &shape.sampling {
        // Recorded 400s of reasoning models; and a chat has no `top_k`.
        if target.rich || (*name != "top_k" && !target.reasons) {
            put_raw(out, name, raw.get());
        } else {
            shape.dropped.push((*name).to_owned());
        }
    }
    if let Some(metadata) = &shape.metadata {
        if metadata.0.iter().any(|(name, _)| &**name != "user_id") {
            shape.dropped.push("metadata".into());
        }
        match metadata.text("user_id") {
            Some(user) if target.rich || user.len() <= USER_BYTES_MAX => {
                put_member(out, "user", &user);
            }
            Some(_) => shape.dropped.push("metadata.user_id".into()),
            None => {}
        }
    }
}

fn put_reasoning(out: &mut Vec<u8>, shape: &mut Shape<'_>, target: Target) {
    let said = shape.output.as_ref().and_then(|output| output.effort.as_deref());
    let effort = match (said, &shape.thinking) {
        (Some("max" | "xhigh"), _) => Some("high"),
        (Some(effort), _) => Some(effort),
        (None, Some(Thinking { kind, budget_tokens: Some(budget) })) if &**kind == "enabled" => {
            Some(match *budget {
                low if low <= EFFORT_LOW_MAX => "low",
                medium if medium <= EFFORT_MEDIUM_MAX => "medium",
                _ => "high",
            })
        }
        // Which is its default with thinking that the model adapts by itself.
        (None, Some(Thinking { kind, .. })) if &**kind == "adaptive" => Some("high"),
        _ => None,
    };
    match effort {
        // Others refuse the member (400 "Unrecognized request argument").
        Some(effort) if target.rich || target.reasons => {
            put_member(out, "reasoning_effort", effort);
        }
        Some(_) if said.is_some() => shape.dropped.push("output_config.effort".into()),
        Some(_) => shape.dropped.push("thinking".into()),
        None => {}
    }
    let Some(format) = shape.output.as_ref().and_then(|output| output.format.as_ref()) else {
        return;
    };
    match (format.text("type").as_deref(), format.get("schema")) {
        (Some("json_schema"), Some(schema)) => {
            out.extend_from_slice(
                br#","response_format":{"type":"json_schema","json_schema":{"name":"output","#,
            );
            out.extend_from_slice(br#""strict":true,"schema":"#);
            out.extend_from_slice(schema.get().as_bytes());
            out.extend_from_slice(b"}}");
        }
        _ => shape.dropped.push("output_config.format".into()),
    }
}
