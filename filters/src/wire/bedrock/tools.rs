//! Tools and the choice among them, as Converse wants them.

use super::Family;
use crate::chat::raw::{put_comma, put_member, put_name};
use crate::chat::{Chat, Function, Role, Tool, ToolChoice};
use crate::wire::claude::Claude;
use crate::wire::edit::put_object_schema;

/// Writes `toolConfig`; gives the names of what had to be left out.
pub(super) fn put(
    out: &mut Vec<u8>,
    chat: &Chat<'_>,
    (family, claude): (Family, Claude),
) -> Vec<String> {
    let mut dropped = Vec::new();
    let mut tools = Vec::new();
    // There is no "none", so the tools stay away; but where calls stand in the history, the
    // provider insists on their tools.
    let history = chat.messages.iter().any(|m| !m.tool_calls.is_empty() || m.role == Role::Tool);
    let none = chat.tool_choice == Some(ToolChoice::None);
    for tool in chat.tools.iter().filter(|_| !none || history) {
        match tool {
            Tool::Function(function) => put_function(&mut tools, function, family, &mut dropped),
            Tool::Other(kind, _) => dropped.push(format!("tools.{}", &**kind)),
        }
    }
    if tools.is_empty() && history {
        put_from_history(&mut tools, chat);
    }
    let forced = crate::wire::anthropic::forced(chat);
    if tools.is_empty() {
        if forced {
            dropped.push("tool_choice".into());
        }
        return dropped;
    }
    put_name(out, "toolConfig");
    out.extend_from_slice(br#"{"tools":["#);
    out.append(&mut tools);
    out.push(b']');
    if !forced || claude.forced {
        put_choice(out, chat);
    }
    out.push(b'}');
    if none || (forced && !claude.forced) {
        dropped.push("tool_choice".into());
    }
    if matches!(chat.tool_choice, Some(ToolChoice::Allowed { .. })) {
        dropped.push("tool_choice.allowed_tools".into());
    }
    if chat.parallel_tool_calls == Some(false) {
        dropped.push("parallel_tool_calls".into());
    }
    dropped
}

fn put_choice(out: &mut Vec<u8>, chat: &Chat<'_>) {
    let raw = match &chat.tool_choice {
        None | Some(ToolChoice::None) => return,
        Some(ToolChoice::Auto | ToolChoice::Allowed { required: false }) => r#"{"auto":{}}"#,
        Some(ToolChoice::Required | ToolChoice::Allowed { required: true }) => r#"{"any":{}}"#,
        Some(ToolChoice::Function(name)) => {
            put_name(out, "toolChoice");
            out.extend_from_slice(br#"{"tool":{"#);
            put_member(out, "name", name);
            return out.extend_from_slice(b"}}");
        }
    };
    put_name(out, "toolChoice");
    out.extend_from_slice(raw.as_bytes());
}

fn put_function(
    out: &mut Vec<u8>,
    function: &Function<'_>,
    family: Family,
    dropped: &mut Vec<String>,
) {
    if function.strict == Some(true) {
        dropped.push("tools.strict".into());
    }
    put_comma(out);
    out.extend_from_slice(br#"{"toolSpec":{"#);
    put_member(out, "name", &function.name);
    if let Some(description) = function.description.as_deref().filter(|text| !text.is_empty()) {
        put_member(out, "description", description);
    }
    put_name(out, "inputSchema");
    out.push(b'{');
    put_name(out, "json");
    put_object_schema(out, function.parameters);
    out.extend_from_slice(b"}}}");
    if function.cache_control.is_some() {
        if family.caches() {
            out.extend_from_slice(br#",{"cachePoint":{"type":"default"}}"#);
        } else {
            dropped.push("tools.cache_control".into());
        }
    }
}

/// The tools that the history speaks of, by their names alone.
fn put_from_history(out: &mut Vec<u8>, chat: &Chat<'_>) {
    let calls = chat.messages.iter().flat_map(|message| &message.tool_calls);
    let mut names: Vec<&str> = calls.map(|call| &*call.name).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        put_comma(out);
        out.extend_from_slice(br#"{"toolSpec":{"#);
        put_member(out, "name", name);
        put_name(out, "inputSchema");
        out.extend_from_slice(br#"{"json":{"type":"object","properties":{}}}}}"#);
    }
}
