//! A chat request as one of wenxinworkshop: every member mapped, passed, or named as dropped.

use super::turns::Prompt;
use crate::chat::raw::{put_comma, put_member, put_name, put_raw, put_text};
use crate::chat::{Chat, Format, Tool, ToolChoice};
use crate::error::ApiError;
use crate::wire::edit::{
    edited, note, note_marks, note_thoughts, note_unread, put_object_schema, put_within, segment,
};
use crate::wire::{Ask, Outgoing};

/// Models whose address is not their name in small letters (cloud.baidu.com, ERNIE chat APIs).
const ENDPOINTS: [(&str, &str); 9] = [
    ("ernie-4.0-8k", "completions_pro"),
    ("ernie-bot-4", "completions_pro"),
    ("ernie-3.5-8k", "completions"),
    ("ernie-bot", "completions"),
    ("ernie-bot-turbo", "eb-instant"),
    ("ernie-speed-8k", "ernie_speed"),
    ("ernie-speed", "ernie_speed"),
    ("ernie-character-8k", "ernie-char-8k"),
    ("eb-instant", "eb-instant"),
];

/// Members that a caller may send beside OpenAI's.
const NATIVE: [&str; 5] =
    ["penalty_score", "disable_search", "enable_citation", "enable_trace", "enable_system_memory"];

/// `stop` takes so many.
const STOPS_MAX: usize = 4;

pub(super) fn build(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let chat = Chat::read(ask.peek)?;
    let prompt = Prompt::of(&chat)?;
    let mut out = b"{".to_vec();
    let mut dropped = Vec::new();
    prompt.put(&mut out);
    if ask.peek.stream {
        put_raw(&mut out, "stream", "true");
    }
    // A temperature is above 0 and up to 1; top_p may be 0.
    for (name, number, least) in
        [("temperature", chat.temperature, "0.01"), ("top_p", chat.top_p, "0")]
    {
        if put_within(&mut out, name, number, (least, "1")) {
            note(&mut dropped, name);
        }
    }
    if let Some(limit) = chat.max_tokens.or((ask.max_output > 0).then_some(ask.max_output)) {
        put_raw(&mut out, "max_output_tokens", &limit.to_string());
    }
    put_stop(&mut out, &chat, &mut dropped);
    put_functions(&mut out, &chat, &mut dropped);
    match chat.response_format {
        Some(Format::JsonObject) => put_member(&mut out, "response_format", "json_object"),
        Some(Format::JsonSchema(_)) => {
            note(&mut dropped, "response_format.json_schema");
            put_member(&mut out, "response_format", "json_object");
        }
        Some(Format::Text) | None => {}
    }
    if let Some(user) = &chat.user {
        put_member(&mut out, "user_id", user);
    }
    for (name, raw) in &chat.rest {
        match NATIVE.contains(name) {
            true => put_raw(&mut out, name, raw.get()),
            false => note(&mut dropped, name),
        }
    }
    out.push(b'}');
    note_more(&chat, &mut dropped);
    let body = edited(out.into(), ask.params, &mut dropped)?;
    let path = format!("/chat/{}", segment(&endpoint(ask.model)));
    Ok(Outgoing { path, headers: Vec::new(), body, dropped, strip_usage: false })
}

/// The last word of a model's address. A caller's own service has one of letters, digits and
/// underscores.
fn endpoint(model: &str) -> String {
    let small = model.to_ascii_lowercase();
    if let Some((_, endpoint)) = ENDPOINTS.iter().find(|(name, _)| *name == small) {
        return (*endpoint).to_owned();
    }
    match small.starts_with("ernie-") {
        true => small,
        false => small.replace('-', "_"),
    }
}

fn put_stop(out: &mut Vec<u8>, chat: &Chat<'_>, dropped: &mut Vec<String>) {
    let stops: Vec<_> = chat.stop.iter().filter(|stop| !stop.is_empty()).collect();
    if stops.len() > STOPS_MAX {
        note(dropped, "stop");
    }
    if stops.is_empty() {
        return;
    }
    put_name(out, "stop");
    out.push(b'[');
    for stop in stops.into_iter().take(STOPS_MAX) {
        put_comma(out);
        put_text(out, stop);
    }
    out.push(b']');
}

fn put_functions(out: &mut Vec<u8>, chat: &Chat<'_>, dropped: &mut Vec<String>) {
    let mut functions = Vec::new();
    let none = chat.tool_choice == Some(ToolChoice::None);
    for tool in chat.tools.iter().filter(|_| !none) {
        let Tool::Function(function) = tool else {
            let Tool::Other(kind, _) = tool else { continue };
            note(dropped, &format!("tools.{}", &**kind));
            continue;
        };
        if function.strict == Some(true) {
            note(dropped, "tools.strict");
        }
        put_comma(&mut functions);
        functions.push(b'{');
        put_member(&mut functions, "name", &function.name);
        // It is required.
        let said = function.description.as_deref().filter(|text| !text.is_empty());
        put_member(&mut functions, "description", said.unwrap_or(&function.name));
        put_name(&mut functions, "parameters");
        put_object_schema(&mut functions, function.parameters);
        functions.push(b'}');
    }
    let any = !functions.is_empty();
    if any {
        put_name(out, "functions");
        out.push(b'[');
        out.append(&mut functions);
        out.push(b']');
        if chat.parallel_tool_calls == Some(true) {
            note(dropped, "parallel_tool_calls");
        }
    }
    match &chat.tool_choice {
        None | Some(ToolChoice::Auto | ToolChoice::None) => {}
        Some(ToolChoice::Function(name)) if any => {
            put_name(out, "tool_choice");
            out.extend_from_slice(br#"{"type":"function","function":{"#);
            put_member(out, "name", name);
            out.extend_from_slice(b"}}");
        }
        Some(_) => note(dropped, "tool_choice"),
    }
}

fn note_more(chat: &Chat<'_>, dropped: &mut Vec<String>) {
    note_unread(dropped, chat, false);
    note_marks(dropped, chat);
    note_thoughts(dropped, chat);
    for (lost, name) in [
        (chat.reasoning_effort.is_some(), "reasoning_effort"),
        (chat.n.is_some_and(|n| n > 1), "n"),
    ] {
        if lost {
            note(dropped, name);
        }
    }
}
