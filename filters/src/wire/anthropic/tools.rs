//! Tools and the choice among them, as Messages wants them.

use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw};
use crate::chat::{Chat, Function, Tool, ToolChoice};
use crate::wire::edit::put_object_schema;
use serde_json::value::RawValue;

/// Writes `tools` and `tool_choice`; gives the names of what had to be left out. `may_force`: the
/// model takes a choice that forces a call.
pub(super) fn put(out: &mut Vec<u8>, chat: &Chat<'_>, may_force: bool) -> Vec<String> {
    let (mut tools, mut dropped) = (Vec::new(), Vec::new());
    for tool in &chat.tools {
        put_tool(&mut tools, tool, &mut dropped);
    }
    let forced = forced(chat);
    if tools.is_empty() {
        // A choice without tools is refused; `auto` and `none` mean the same without one.
        if forced {
            dropped.push("tool_choice".into());
        }
        return dropped;
    }
    put_name(out, "tools");
    out.push(b'[');
    out.append(&mut tools);
    out.push(b']');
    put_choice(out, chat, may_force);
    if forced && !may_force {
        dropped.push("tool_choice".into());
    }
    if matches!(chat.tool_choice, Some(ToolChoice::Allowed { .. })) {
        dropped.push("tool_choice.allowed_tools".into());
    }
    dropped
}

/// The caller insists on a tool call.
pub(in crate::wire) fn forced(chat: &Chat<'_>) -> bool {
    let choice = chat.tool_choice.as_ref();
    choice.is_some_and(|choice| match choice {
        ToolChoice::Required | ToolChoice::Function(_) => true,
        ToolChoice::Allowed { required } => *required,
        ToolChoice::Auto | ToolChoice::None => false,
    })
}

fn put_choice(out: &mut Vec<u8>, chat: &Chat<'_>, may_force: bool) {
    let alone = chat.parallel_tool_calls == Some(false);
    let choice = chat.tool_choice.as_ref();
    let kind = match choice.filter(|_| may_force || !forced(chat)) {
        None | Some(ToolChoice::Auto | ToolChoice::Allowed { required: false }) => "auto",
        Some(ToolChoice::None) => "none",
        Some(ToolChoice::Required | ToolChoice::Allowed { required: true }) => "any",
        Some(ToolChoice::Function(_)) => "tool",
    };
    if chat.tool_choice.is_none() && !alone {
        return;
    }
    put_name(out, "tool_choice");
    out.push(b'{');
    put_member(out, "type", kind);
    if let Some(ToolChoice::Function(name)) = choice.filter(|_| kind == "tool") {
        put_member(out, "name", name);
    }
    if alone && kind != "none" {
        put_raw(out, "disable_parallel_tool_use", "true");
    }
    out.push(b'}');
}

fn put_tool(out: &mut Vec<u8>, tool: &Tool<'_>, dropped: &mut Vec<String>) {
    match tool {
        Tool::Function(function) => {
            if function.strict == Some(true) {
                // Only some models take it, and with limits of their own (recorded: 20 tools,
                // 24 optional parameters).
                dropped.push("tools.strict".into());
            }
            put_comma(out);
            put_function(out, function);
        }
        // The provider's own tools (`web_search_…`) have a name beside their type, OpenAI's not.
        Tool::Other(_, raw) if is_native(raw) => {
            put_comma(out);
            out.extend_from_slice(raw.get().as_bytes());
        }
        Tool::Other(kind, _) => dropped.push(format!("tools.{}", &**kind)),
    }
}

fn is_native(raw: &RawValue) -> bool {
    let members = Members::of(raw.get()).unwrap_or_default();
    members.text("name").is_some() && members.get("format").is_none()
}

fn put_function(out: &mut Vec<u8>, function: &Function<'_>) {
    out.push(b'{');
    put_member(out, "name", &function.name);
    if let Some(description) = function.description.as_deref().filter(|text| !text.is_empty()) {
        put_member(out, "description", description);
    }
    put_name(out, "input_schema");
    put_object_schema(out, function.parameters);
    if let Some(control) = function.cache_control {
        put_raw(out, "cache_control", control.get());
    }
    out.push(b'}');
}
