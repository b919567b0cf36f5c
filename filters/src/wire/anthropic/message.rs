//! A whole message as a completion.

use super::event::{Block, Tokens};
use super::finish_reason;
use crate::chat::raw::{Text, compact, put_member};
use crate::chat::reply::{Call, Completion};
use crate::error::{Class, Failure, classify_event};
use crate::tokens::Counter;
use crate::usage::Usage;
use crate::wire::{ReplyContext, Tap, Whole};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A message, read.
#[derive(Debug)]
pub(crate) struct Message {
    pub id: Option<String>,
    pub model: Option<String>,
    pub completion: Completion,
    pub usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    model: Option<Text<'a>>,
    #[serde(borrow)]
    content: Option<Vec<Block<'a>>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The caller's body for a reply with status 200.
///
/// # Errors
/// An error object, or what is no message at all.
pub(super) fn whole(body: &[u8], context: &ReplyContext) -> Result<Whole, Failure> {
    let message = read(body, &context.id)?;
    let mut tap = Tap {
        usage: message.usage,
        finish: Some(message.completion.finish),
        model: message.model,
        counter: Counter::new(context.encoding),
    };
    message.completion.count(&mut tap.counter);
    let usage = match tap.usage {
        Some(usage) => usage,
        None => counted(&mut tap.counter, context.prompt_tokens),
    };
    let id = message.id.as_deref().unwrap_or(&context.id);
    let model = tap.model.as_deref().unwrap_or(&context.model);
    let body = message.completion.body(id, context.created, model, &usage);
    Ok(Whole { body, tap })
}

/// Usage that we must make up, since nobody reported it.
pub(super) fn counted(counter: &mut Counter, prompt_tokens: u64) -> Usage {
    Usage {
        input: prompt_tokens,
        output: counter.total(),
        reasoning: counter.reasoning(),
        ..Usage::default()
    }
}

/// Reads a whole message; `id` makes ids for tool calls that have none.
///
/// # Errors
/// As [`whole`].
pub(crate) fn read(body: &[u8], id: &str) -> Result<Message, Failure> {
    let none = |why: &str| Failure::new(Class::Invalid, 200, why);
    let shape: Shape<'_> = match serde_json::from_slice(body) {
        Ok(shape) => shape,
        Err(_) if body.trim_ascii().is_empty() => return Err(none("the reply is empty")),
        Err(_) => return Err(none("the reply is no message")),
    };
    if shape.kind.as_deref() == Some("error") || shape.error.is_some() {
        return Err(classify_event(body));
    }
    let Some(content) = shape.content else { return Err(none("the reply has no content")) };
    let mut completion = Completion::default();
    for block in content {
        add(&mut completion, &block, id);
    }
    let stop = shape.stop_reason.as_deref().unwrap_or_default();
    completion.finish = finish_reason(stop, !completion.tool_calls.is_empty());
    let usage = shape.usage.and_then(|raw| serde_json::from_str::<Tokens>(raw.get()).ok());
    let text = |text: Option<Text<'_>>| text.filter(|t| !t.is_empty()).map(|t| t.0.into_owned());
    Ok(Message {
        id: text(shape.id),
        model: text(shape.model),
        completion,
        usage: usage.and_then(|tokens| tokens.usage()),
    })
}

fn add(completion: &mut Completion, block: &Block<'_>, id: &str) {
    match &*block.kind {
        "text" => {
            let text = block.text.as_deref().unwrap_or_default();
            completion.content.get_or_insert_default().push_str(text);
        }
        "thinking" => {
            let text = block.thinking.as_deref().unwrap_or_default();
            completion.reasoning.push_str(text);
            let signature = block.signature.as_deref().unwrap_or_default();
            completion.thinking_blocks.extend(thinking(None, text, signature));
        }
        "redacted_thinking" => {
            let data = block.data.as_deref().unwrap_or_default();
            completion.thinking_blocks.push(redacted(None, data));
        }
        "tool_use" => {
            let index = completion.tool_calls.len();
            completion.tool_calls.push(Call {
                id: call_id(block.id.as_deref(), id, index),
                name: block.name.as_deref().unwrap_or_default().to_owned(),
                arguments: arguments(block.input),
            });
        }
        // The provider's own tools and what is not known yet: nothing the caller could answer.
        _ => {}
    }
}

/// A call's id, never empty: the caller's next request must name it.
pub(super) fn call_id(given: Option<&str>, reply: &str, index: usize) -> String {
    match given {
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => format!("call_{}_{index}", reply.trim_start_matches("chatcmpl-")),
    }
}

/// `input` as compact text with its digits; `{}` when there is none.
pub(super) fn arguments(input: Option<&RawValue>) -> String {
    match input.map(RawValue::get) {
        None | Some("null") => "{}".to_owned(),
        Some(input) => compact(input),
    }
}

/// One entry of `thinking_blocks`. Without its seal the provider would not take it back, so then
/// there is none. In a stream it has an index, by which clients merge lists of objects.
pub(super) fn thinking(index: Option<u32>, text: &str, signature: &str) -> Option<String> {
    let fields = [("type", "thinking"), ("thinking", text), ("signature", signature)];
    (!signature.is_empty()).then(|| entry(index, &fields))
}

/// The entry of a block whose text is sealed.
pub(super) fn redacted(index: Option<u32>, data: &str) -> String {
    entry(index, &[("type", "redacted_thinking"), ("data", data)])
}

fn entry(index: Option<u32>, fields: &[(&str, &str)]) -> String {
    let mut out = b"{".to_vec();
    if let Some(index) = index {
        out.extend_from_slice(format!("\"index\":{index}").as_bytes());
    }
    for (name, text) in fields {
        put_member(&mut out, name, text);
    }
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}
