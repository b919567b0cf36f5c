//! The members of a chat request one by one, each fault with the path of its member.

use super::{
    File, Format, Function, Members, Message, Number, Part, PartBody, Role, Text, Thinking, Tool,
    ToolCall, ToolChoice, parse, wrong,
};
use crate::chat::raw::note_unread;
use crate::error::ApiError;
use serde::Deserialize;
use serde_json::value::RawValue;

type Raw<'a> = &'a RawValue;
type Unread<'u> = &'u mut Vec<String>;

/// Members of a message that are read, or that an answer has and nobody asks back.
const OF_MESSAGE: [&str; 12] = [
    "role",
    "content",
    "refusal",
    "name",
    "tool_calls",
    "tool_call_id",
    "thinking_blocks",
    "cache_control",
    "reasoning_content",
    "reasoning",
    "annotations",
    "logprobs",
];
const OF_PART: [&str; 8] =
    ["type", "text", "refusal", "image_url", "file", "cache_control", "annotations", "logprobs"];
const OF_CALL: [&str; 4] = ["id", "type", "index", "function"];
const OF_FUNCTION: [&str; 5] = ["name", "description", "parameters", "strict", "cache_control"];

#[derive(Deserialize)]
struct MessageShape<'a> {
    #[serde(borrow)]
    role: Text<'a>,
    #[serde(borrow)]
    content: Option<Raw<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Raw<'a>>>,
    #[serde(borrow)]
    tool_call_id: Option<Text<'a>>,
    #[serde(borrow)]
    thinking_blocks: Option<Vec<Thinking<'a>>>,
    #[serde(borrow)]
    reasoning_content: Option<Raw<'a>>,
    #[serde(borrow)]
    reasoning: Option<Raw<'a>>,
    #[serde(borrow)]
    cache_control: Option<Raw<'a>>,
}

#[derive(Deserialize)]
struct PartShape<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    text: Option<Raw<'a>>,
    #[serde(borrow)]
    refusal: Option<Raw<'a>>,
    #[serde(borrow)]
    image_url: Option<Raw<'a>>,
    #[serde(borrow)]
    file: Option<Raw<'a>>,
    #[serde(borrow)]
    cache_control: Option<Raw<'a>>,
}

#[derive(Deserialize)]
struct CallShape<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<CalledShape<'a>>,
}

#[derive(Deserialize)]
struct CalledShape<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<Raw<'a>>,
}

pub(super) fn messages<'a>(raw: Raw<'a>, unread: Unread<'_>) -> Result<Vec<Message<'a>>, ApiError> {
    let list: Vec<Raw<'a>> = parse("messages", raw)?;
    let each = list.into_iter().enumerate();
    each.map(|(at, one)| message(&format!("messages[{at}]"), one, unread)).collect()
}

fn message<'a>(at: &str, raw: Raw<'a>, unread: Unread<'_>) -> Result<Message<'a>, ApiError> {
    let shape: MessageShape<'a> = parse(at, raw)?;
    note_unread(unread, "messages", raw, &OF_MESSAGE);
    let role = match &*shape.role {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => {
            let said = format!("{at}.role: {other:?} is none of system, user, assistant, tool");
            return Err(wrong(&format!("{at}.role"), &said));
        }
    };
    if role == Role::Tool && shape.tool_call_id.is_none() {
        let param = format!("{at}.tool_call_id");
        return Err(wrong(&param, &format!("{param}: a tool message needs one")));
    }
    let mut content = match shape.content {
        Some(content) => parts(&format!("{at}.content"), content, unread)?,
        None => Vec::new(),
    };
    if let Some(refusal) = shape.refusal {
        content.push(Part { body: PartBody::Text(refusal), cache_control: None });
    }
    let mut thinking_blocks = shape.thinking_blocks.unwrap_or_default();
    if role == Role::Assistant {
        content.retain(|part| !is_thought(part, &mut thinking_blocks));
    }
    let calls = shape.tool_calls.unwrap_or_default().into_iter().enumerate();
    let tool_calls = calls
        .map(|(n, one)| tool_call(&format!("{at}.tool_calls[{n}]"), one, unread))
        .collect::<Result<Vec<_>, _>>()?;
    let reasons = !tool_calls.is_empty() && thinking_blocks.is_empty();
    let reasoning = shape.reasoning_content.or(shape.reasoning).filter(|_| reasons);
    let reasoning = reasoning.and_then(super::raw::text);
    Ok(Message {
        role,
        content,
        name: shape.name,
        tool_calls,
        tool_call_id: shape.tool_call_id,
        thinking_blocks,
        reasoning_content: reasoning.filter(|text| !text.is_empty()),
        cache_control: shape.cache_control,
    })
}

/// Reasoning among the parts, as Mistral writes its own and some clients Anthropic's: it is kept
/// only where it can be given back.
fn is_thought<'a>(part: &Part<'a>, blocks: &mut Vec<Thinking<'a>>) -> bool {
    let PartBody::Other(kind, raw) = &part.body else { return false };
    if !matches!(&**kind, "thinking" | "redacted_thinking") {
        return false;
    }
    blocks.extend(serde_json::from_str::<Thinking<'a>>(raw.get()));
    true
}

fn parts<'a>(at: &str, raw: Raw<'a>, unread: Unread<'_>) -> Result<Vec<Part<'a>>, ApiError> {
    if raw.get().starts_with('"') {
        return Ok(vec![Part { body: PartBody::Text(parse(at, raw)?), cache_control: None }]);
    }
    let list: Vec<Raw<'a>> = parse(at, raw)?;
    let each = list.into_iter().enumerate();
    each.map(|(n, one)| part(&format!("{at}[{n}]"), one, unread)).collect()
}

fn part<'a>(at: &str, raw: Raw<'a>, unread: Unread<'_>) -> Result<Part<'a>, ApiError> {
    if raw.get().starts_with('"') {
        return Ok(Part { body: PartBody::Text(parse(at, raw)?), cache_control: None });
    }
    let shape: PartShape<'a> = parse(at, raw)?;
    let need = |value: Option<Raw<'a>>, name: &str| {
        let param = format!("{at}.{name}");
        value.ok_or_else(|| wrong(&param, &format!("{param} is missing")))
    };
    let kind = shape.kind.unwrap_or_default();
    let body = match &*kind {
        "text" | "input_text" | "output_text" => {
            PartBody::Text(parse(&format!("{at}.text"), need(shape.text, "text")?)?)
        }
        "refusal" => {
            PartBody::Text(parse(&format!("{at}.refusal"), need(shape.refusal, "refusal")?)?)
        }
        "image_url" => PartBody::Image(image(at, need(shape.image_url, "image_url")?, unread)?),
        "file" => PartBody::File(file(at, need(shape.file, "file")?, unread)?),
        "" => return Err(wrong(&format!("{at}.type"), &format!("{at}.type is missing"))),
        _ => PartBody::Other(kind, raw),
    };
    // What a part of another type holds is for the wire that knows the type.
    if !matches!(body, PartBody::Other(..)) {
        note_unread(unread, "messages.content", raw, &OF_PART);
    }
    Ok(Part { body, cache_control: shape.cache_control })
}

/// `{"url"}` as documented, or the URL itself as some clients send it.
fn image<'a>(at: &str, raw: Raw<'a>, unread: Unread<'_>) -> Result<Text<'a>, ApiError> {
    let param = format!("{at}.image_url");
    if raw.get().starts_with('"') {
        return parse(&param, raw);
    }
    let members: Members<'a> = parse(&param, raw)?;
    // How closely to look; what `auto` means is the model's own affair.
    let auto = members.text("detail").as_deref() == Some("auto");
    let known = if auto { ["url", "detail"] } else { ["url", "url"] };
    note_unread(unread, "messages.content.image_url", raw, &known);
    let url = members.text("url");
    url.ok_or_else(|| wrong(&param, &format!("{param}.url must be a string")))
}

fn file<'a>(at: &str, raw: Raw<'a>, unread: Unread<'_>) -> Result<File<'a>, ApiError> {
    let param = format!("{at}.file");
    let file: File<'a> = parse(&param, raw)?;
    let known = ["file_data", "file_id", "filename"];
    note_unread(unread, "messages.content.file", raw, &known);
    if file.data.is_none() && file.id.is_none() {
        return Err(wrong(&param, &format!("{param} needs file_data or file_id")));
    }
    Ok(file)
}

fn tool_call<'a>(at: &str, raw: Raw<'a>, unread: Unread<'_>) -> Result<ToolCall<'a>, ApiError> {
    let shape: CallShape<'a> = parse(at, raw)?;
    note_unread(unread, "messages.tool_calls", raw, &OF_CALL);
    let (Some(id), Some(called)) = (shape.id, shape.function) else {
        return Err(wrong(at, &format!("{at} needs an id and a function")));
    };
    let arguments = match called.arguments {
        // Some clients send the object itself.
        Some(object) if object.get().starts_with('{') => Text(object.get().into()),
        Some(string) => parse(&format!("{at}.function.arguments"), string)?,
        None => Text::default(),
    };
    Ok(ToolCall { id, name: called.name, arguments })
}

pub(super) fn tools<'a>(raw: Raw<'a>, unread: Unread<'_>) -> Result<Vec<Tool<'a>>, ApiError> {
    let list: Vec<Raw<'a>> = parse("tools", raw)?;
    let each = list.into_iter().enumerate();
    each.map(|(at, one)| tool(&format!("tools[{at}]"), one, unread)).collect()
}

fn tool<'a>(at: &str, raw: Raw<'a>, unread: Unread<'_>) -> Result<Tool<'a>, ApiError> {
    let members: Members<'a> = parse(at, raw)?;
    let kind = members.text("type").unwrap_or_default();
    if !matches!(&*kind, "function" | "") {
        return Ok(Tool::Other(kind, raw));
    }
    let param = format!("{at}.function");
    let Some(function) = members.get("function") else {
        return Err(wrong(&param, &format!("{param} is missing")));
    };
    note_unread(unread, "tools", raw, &["type", "function", "cache_control"]);
    note_unread(unread, "tools.function", function, &OF_FUNCTION);
    let mut function: Function<'a> = parse(&param, function)?;
    function.cache_control = function.cache_control.or(members.get("cache_control"));
    Ok(Tool::Function(function))
}

pub(super) fn tool_choice<'a>(raw: Raw<'a>) -> Result<ToolChoice<'a>, ApiError> {
    let param = "tool_choice";
    if raw.get().starts_with('"') {
        return match &*parse::<Text<'a>>(param, raw)? {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" | "any" => Ok(ToolChoice::Required),
            other => Err(wrong(param, &format!("{param}: {other:?} is no choice"))),
        };
    }
    let members: Members<'a> = parse(param, raw)?;
    if members.text("type").as_deref() == Some("allowed_tools") {
        let inner = members.get("allowed_tools").and_then(|inner| Members::of(inner.get()));
        let mode = inner.and_then(|inner| inner.text("mode"));
        return Ok(ToolChoice::Allowed { required: mode.as_deref() == Some("required") });
    }
    let function = members.get("function").and_then(|function| Members::of(function.get()));
    match function.and_then(|function| function.text("name")) {
        Some(name) => Ok(ToolChoice::Function(name)),
        None => Err(wrong(param, "tool_choice names no function")),
    }
}

pub(super) fn format<'a>(raw: Raw<'a>, unread: Unread<'_>) -> Result<Format<'a>, ApiError> {
    let param = "response_format";
    let members: Members<'a> = parse(param, raw)?;
    match members.text("type").as_deref() {
        Some("text") => Ok(Format::Text),
        Some("json_object") => Ok(Format::JsonObject),
        Some("json_schema") => {
            let inner = members.get("json_schema");
            // Whoever takes a schema holds to it, so `strict` is kept either way.
            let known = ["name", "schema", "strict"];
            if let Some(inner) = inner {
                note_unread(unread, "response_format.json_schema", inner, &known);
            }
            let inner = inner.and_then(|inner| Members::of(inner.get()));
            let schema = inner.and_then(|inner| inner.get("schema"));
            Ok(Format::JsonSchema(schema.filter(|schema| schema.get().starts_with('{'))))
        }
        _ => Err(wrong(param, "response_format.type is none of text, json_object, json_schema")),
    }
}

pub(super) fn number<'a>(param: &str, raw: Raw<'a>) -> Result<Number<'a>, ApiError> {
    Ok(Number { raw: raw.get(), value: parse(param, raw)? })
}
