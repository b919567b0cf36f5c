//! Tools and the choice among them, as generateContent wants them.

use crate::chat::raw::{put_comma, put_member, put_name, put_raw, put_text};
use crate::chat::{Chat, Function, Tool, ToolChoice};

/// Writes `tools` and `toolConfig`; gives the names of what had to be left out.
pub(super) fn put(out: &mut Vec<u8>, chat: &Chat<'_>) -> Vec<String> {
    let (mut tools, mut dropped) = (Vec::new(), Vec::new());
    for tool in &chat.tools {
        match tool {
            Tool::Function(function) => put_function(&mut tools, function, &mut dropped),
            Tool::Other(kind, _) => dropped.push(format!("tools.{}", &**kind)),
        }
    }
    if chat.parallel_tool_calls == Some(false) && !tools.is_empty() {
        dropped.push("parallel_tool_calls".into());
    }
    if tools.is_empty() {
        if !matches!(chat.tool_choice, None | Some(ToolChoice::Auto | ToolChoice::None)) {
            dropped.push("tool_choice".into());
        }
        return dropped;
    }
    put_name(out, "tools");
    out.extend_from_slice(br#"[{"functionDeclarations":["#);
    out.append(&mut tools);
    out.extend_from_slice(b"]}]");
    put_choice(out, chat);
    if matches!(chat.tool_choice, Some(ToolChoice::Allowed { .. })) {
        dropped.push("tool_choice.allowed_tools".into());
    }
    dropped
}

fn put_choice(out: &mut Vec<u8>, chat: &Chat<'_>) {
    let Some(choice) = &chat.tool_choice else { return };
    let mode = match choice {
        ToolChoice::Auto | ToolChoice::Allowed { required: false } => "AUTO",
        ToolChoice::None => "NONE",
        ToolChoice::Required | ToolChoice::Function(_) | ToolChoice::Allowed { required: true } => {
            "ANY"
        }
    };
    put_name(out, "toolConfig");
    out.extend_from_slice(br#"{"functionCallingConfig":{"#);
    put_member(out, "mode", mode);
    if let ToolChoice::Function(name) = choice {
        put_name(out, "allowedFunctionNames");
        out.push(b'[');
        put_text(out, name);
        out.push(b']');
    }
    out.extend_from_slice(b"}}");
}

/// `parametersJsonSchema` takes a JSON schema as it is; the older `parameters` a subset alone
/// (ai.google.dev, FunctionDeclaration).
fn put_function(out: &mut Vec<u8>, function: &Function<'_>, dropped: &mut Vec<String>) {
    if function.strict == Some(true) {
        dropped.push("tools.strict".into());
    }
    put_comma(out);
    out.push(b'{');
    put_member(out, "name", &function.name);
    if let Some(description) = function.description.as_deref().filter(|text| !text.is_empty()) {
        put_member(out, "description", description);
    }
    if let Some(parameters) = function.parameters.filter(|raw| raw.get().starts_with('{')) {
        put_raw(out, "parametersJsonSchema", parameters.get());
    }
    out.push(b'}');
}
