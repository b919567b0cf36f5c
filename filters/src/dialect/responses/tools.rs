//! Tools of a Responses request as functions of a chat.

use super::super::messages::parse;
use super::super::names::{Names, Tool};
use crate::chat::raw::{Members, Text, note_unread, put_comma, put_member, put_name, put_raw};
use crate::chat::wrong;
use crate::error::ApiError;
use serde::Deserialize;
use serde_json::value::RawValue;

/// What a custom tool takes, as a function's parameters: one text.
const FREE_TEXT: &str = concat!(
    r#"{"type":"object","properties":{"input":{"type":"string"}},"#,
    r#""required":["input"],"additionalProperties":false}"#
);

#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    strict: Option<bool>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

/// Writes the functions, a namespace's among them; names what else there is as dropped.
pub(super) fn put_tools(
    out: &mut Vec<u8>,
    raw: Option<&RawValue>,
    names: &mut Names,
    dropped: &mut Vec<String>,
) -> Result<(), ApiError> {
    let list: Vec<&RawValue> = raw.map_or(Ok(Vec::new()), |raw| parse("tools", raw))?;
    for (at, raw) in list.into_iter().enumerate() {
        let at = format!("tools[{at}]");
        let shape: Shape<'_> = parse(&at, raw)?;
        let Some(inner) = shape.tools.filter(|_| &*shape.kind == "namespace") else {
            note_tool(dropped, raw, &shape);
            put_tool(out, &shape, None, names, dropped);
            continue;
        };
        note_unread(dropped, "tools.namespace", raw, &["type", "name", "tools"]);
        let list: Vec<&RawValue> = parse(&at, inner)?;
        for (n, raw) in list.into_iter().enumerate() {
            let inner: Shape<'_> = parse(&format!("{at}.tools[{n}]"), raw)?;
            note_tool(dropped, raw, &inner);
            put_tool(out, &inner, shape.name.as_deref(), names, dropped);
        }
    }
    Ok(())
}

/// Names what a function of a chat has no place for: a custom tool's grammar, for one. Other kinds
/// of tools are named whole.
fn note_tool(dropped: &mut Vec<String>, raw: &RawValue, shape: &Shape<'_>) {
    let known = ["type", "name", "description", "parameters", "strict"];
    if matches!(&*shape.kind, "function" | "custom") {
        note_unread(dropped, "tools", raw, &known);
    }
}

fn put_tool(
    out: &mut Vec<u8>,
    shape: &Shape<'_>,
    namespace: Option<&str>,
    names: &mut Names,
    dropped: &mut Vec<String>,
) {
    let custom = &*shape.kind == "custom";
    let Some(name) = shape.name.as_deref().filter(|_| custom || &*shape.kind == "function") else {
        // The provider's own tools: nobody else has them.
        dropped.push(format!("tools.{}", &*shape.kind));
        return;
    };
    let (name, namespace) = (name.to_owned(), namespace.map(str::to_owned));
    let name = names.give(Tool { name, namespace, custom });
    put_comma(out);
    out.extend_from_slice(br#"{"type":"function","function":{"#);
    put_member(out, "name", &name);
    if let Some(description) = shape.description.filter(|raw| raw.get() != "null") {
        put_raw(out, "description", description.get());
    }
    if custom {
        put_raw(out, "parameters", FREE_TEXT);
    } else if let Some(parameters) = shape.parameters.filter(|raw| raw.get() != "null") {
        put_raw(out, "parameters", parameters.get());
    }
    // False is a chat's default, and some hosts do not know the member.
    if shape.strict == Some(true) && !custom {
        put_raw(out, "strict", "true");
    }
    out.extend_from_slice(b"}}");
}

/// Writes `tool_choice`; `rich`: of a chat that a wire translates.
pub(super) fn put_choice(
    out: &mut Vec<u8>,
    raw: &RawValue,
    names: &mut Names,
    rich: bool,
    dropped: &mut Vec<String>,
) -> Result<(), ApiError> {
    if raw.get().starts_with('"') {
        put_raw(out, "tool_choice", raw.get());
        return Ok(());
    }
    let choice: Members<'_> = parse("tool_choice", raw)?;
    match choice.text("type").as_deref() {
        Some("function" | "custom") => {
            let Some(name) = named(&choice, names) else {
                return Err(wrong("tool_choice", "tool_choice names no function"));
            };
            put_name(out, "tool_choice");
            put_function(out, &name);
        }
        Some("allowed_tools") => {
            let list: Vec<Members<'_>> = match choice.get("tools") {
                Some(raw) => parse("tool_choice.tools", raw)?,
                None => Vec::new(),
            };
            let allowed: Vec<String> = list.iter().filter_map(|tool| named(tool, names)).collect();
            let mode = choice.text("mode");
            let mode = mode.as_deref().unwrap_or("auto");
            if !rich {
                put_mode(out, mode, &allowed);
                dropped.push("tool_choice.allowed_tools".into());
                return Ok(());
            }
            out.extend_from_slice(br#","tool_choice":{"type":"allowed_tools","allowed_tools":{"#);
            put_member(out, "mode", mode);
            put_name(out, "tools");
            out.push(b'[');
            for name in &allowed {
                put_comma(out);
                put_function(out, name);
            }
            out.extend_from_slice(b"]}}");
        }
        _ => dropped.push("tool_choice".into()),
    }
    Ok(())
}

/// The choice where nobody knows `allowed_tools`: who has OpenAI's chat without its Responses.
fn put_mode(out: &mut Vec<u8>, mode: &str, allowed: &[String]) {
    match allowed {
        [one] if mode == "required" => {
            put_name(out, "tool_choice");
            put_function(out, one);
        }
        _ => put_member(out, "tool_choice", mode),
    }
}

fn named(choice: &Members<'_>, names: &mut Names) -> Option<String> {
    let name = choice.text("name")?.0.into_owned();
    let namespace = choice.text("namespace").map(|text| text.0.into_owned());
    let custom = choice.text("type").as_deref() == Some("custom");
    Some(names.give(Tool { name, namespace, custom }))
}

fn put_function(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(br#"{"type":"function","function":{"#);
    put_member(out, "name", name);
    out.extend_from_slice(b"}}");
}
