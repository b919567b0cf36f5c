//! A whole completion as a response.

use super::super::canon::Message;
use super::super::names::{Names, Tool};
use super::items::{Body, Call, Head, Item, Part, Status, inside, put_response, sealed};
use super::response_id;
use crate::usage::Usage;
use crate::wire::ReplyContext;
use bytes::Bytes;
use serde_json::value::RawValue;

/// The response's body.
pub(in crate::dialect) fn whole(
    message: &Message<'_>,
    names: &Names,
    context: &ReplyContext,
    usage: &Usage,
) -> Bytes {
    let id = response_id(&context.id);
    let status = Status::of(&message.finish);
    let items = items(message, names, id.trim_start_matches("resp_"), status.of_items());
    let model = message.model.as_deref().unwrap_or(&context.model);
    let head = Head { id: &id, created: context.created, model };
    let mut out = Vec::new();
    put_response(&mut out, head, status, &items, Some(usage));
    out.into()
}

fn items(message: &Message<'_>, names: &Names, id: &str, status: &'static str) -> Vec<Item> {
    let said = &message.said;
    let mut items = Vec::new();
    let mut add = |prefix: &str, body: Body| {
        let id = format!("{prefix}_{id}_{}", items.len());
        items.push(Item { id, body, done: Some(status) });
    };
    let text = |raw: Option<&RawValue>| {
        let raw = raw.map(RawValue::get).unwrap_or_default();
        inside(raw).to_owned()
    };
    let sealed: Vec<String> = said.thinking_blocks.iter().flatten().map(sealed).collect();
    let reasoning = text(said.reasoning_content);
    if !reasoning.is_empty() || !sealed.is_empty() {
        add("rs", Body::Reasoning { text: reasoning, sealed });
    }
    let parts = [(false, text(said.content)), (true, text(said.refusal))];
    let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
    let parts: Vec<Part> = parts.map(|(refusal, text)| Part { refusal, text }).collect();
    if !parts.is_empty() {
        add("msg", Body::Message { parts });
    }
    for picture in said.pictures() {
        add("ig", Body::Picture(picture));
    }
    let tool = |name: &str| {
        let named = || Tool { name: name.to_owned(), ..Tool::default() };
        names.find(name).cloned().unwrap_or_else(named)
    };
    for call in said.tool_calls.iter().flatten() {
        let (Some(id), Some(function)) = (&call.id, &call.function) else { continue };
        let Some(name) = &function.name else { continue };
        let arguments = text(function.arguments);
        let (index, call_id) = (call.index, id.to_string());
        add("fc", Body::Call(Call { index, call_id, tool: tool(name), arguments }));
    }
    if let Some(function) = &said.function_call
        && let Some(name) = &function.name
    {
        let (arguments, call_id) = (text(function.arguments), format!("call_{id}"));
        add("fc", Body::Call(Call { index: 0, call_id, tool: tool(name), arguments }));
    }
    items
}
