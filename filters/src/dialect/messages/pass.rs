//! Messages to a provider that speaks them too: the body passes, a few members edited.

use super::super::canon::used;
use crate::chat::raw::{Text, put_comma, put_member, put_raw, put_text};
use crate::error::{ApiError, Class, Failure, classify_event};
use crate::peek::{Edits, apply_params};
use crate::tokens::{Channel, Counter};
use crate::wire::anthropic::event::{Block, Tokens, present};
use crate::wire::anthropic::{VERSION, finish_reason};
use crate::wire::{Ask, Outgoing, ReplyContext, Tap, Whole};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The request for one try.
pub(in crate::dialect) fn pass(ask: &Ask<'_>) -> Result<Outgoing, ApiError> {
    let mut edits = Edits::default();
    let mut model = Vec::with_capacity(ask.model.len() + 2);
    put_text(&mut model, ask.model);
    edits.set("model", model);
    let given_back = super::seals::mend(ask.peek, &mut edits);
    let mut dropped = apply_params(ask.params, ask.peek, &mut edits).map_err(ApiError::from)?;
    dropped.extend(given_back.iter().map(|name| (*name).to_owned()));
    Ok(Outgoing {
        path: "/messages".into(),
        headers: vec![("anthropic-version", VERSION.into())],
        body: edits.apply(ask.peek),
        dropped,
        strip_usage: false,
    })
}

#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    role: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    model: Option<Text<'a>>,
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    stop_sequence: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A whole message: the provider's bytes where it is one in full, else the same with what is
/// missing put in.
///
/// # Errors
/// An error object, or what is no message at all.
pub(in crate::dialect) fn pass_whole(
    body: Bytes,
    context: &ReplyContext,
) -> Result<Whole, Failure> {
    let none = |why: &str| Failure::new(Class::Invalid, 200, why);
    let shape: Shape<'_> = match serde_json::from_slice(&body) {
        Ok(shape) => shape,
        Err(_) if body.trim_ascii().is_empty() => return Err(none("the reply is empty")),
        Err(_) => return Err(none("the reply is no message")),
    };
    if shape.kind.as_deref() == Some("error") || shape.error.is_some() {
        return Err(classify_event(&body));
    }
    let Some(content) = &shape.content else { return Err(none("the reply has no content")) };
    let mut counter = Counter::new(context.encoding);
    let called = count(content, &mut counter);
    let stop = shape.stop_reason.as_deref().unwrap_or("end_turn");
    let tokens = shape.usage.and_then(|raw| serde_json::from_str::<Tokens>(raw.get()).ok());
    let tokens = tokens.unwrap_or_default();
    let mut tap = Tap {
        usage: tokens.usage(),
        finish: Some(finish_reason(stop, called)),
        model: shape.model.as_deref().map(str::to_owned),
        counter,
    };
    let sound = shape.kind.as_deref() == Some("message")
        && shape.role.as_deref() == Some("assistant")
        && shape.id.as_deref().is_some_and(|id| !id.is_empty())
        && shape.model.as_deref().is_some_and(|model| !model.is_empty())
        && shape.stop_reason.is_some()
        && shape.stop_sequence.is_some()
        && tokens.is_full();
    let body = if sound { body.clone() } else { mended(&shape, context, &mut tap) };
    Ok(Whole { body, tap })
}

/// Counts what was generated; says whether a tool was called.
fn count(content: &[&RawValue], counter: &mut Counter) -> bool {
    let mut calls = 0;
    for raw in content {
        let Ok(block) = serde_json::from_str::<Block<'_>>(raw.get()) else { continue };
        counter.push(0, Channel::Content, block.text.as_deref().unwrap_or_default());
        counter.push(0, Channel::Reasoning, block.thinking.as_deref().unwrap_or_default());
        if &*block.kind == "tool_use" {
            counter.push(0, Channel::Tool(calls), block.name.as_deref().unwrap_or_default());
            counter.push(0, Channel::Tool(calls), block.input.map_or("", RawValue::get));
            calls += 1;
        }
    }
    calls > 0
}

fn mended(shape: &Shape<'_>, context: &ReplyContext, tap: &mut Tap) -> Bytes {
    let mut out = b"{".to_vec();
    let id = shape.id.as_deref().filter(|id| !id.is_empty());
    put_member(&mut out, "id", id.unwrap_or(&super::message_id(&context.id)));
    out.extend_from_slice(br#","type":"message","role":"assistant""#);
    let model = shape.model.as_deref().filter(|model| !model.is_empty());
    put_member(&mut out, "model", model.unwrap_or(&context.model));
    out.extend_from_slice(br#","content":["#);
    for block in shape.content.iter().flatten() {
        put_comma(&mut out);
        out.extend_from_slice(block.get().as_bytes());
    }
    out.push(b']');
    put_member(&mut out, "stop_reason", shape.stop_reason.as_deref().unwrap_or("end_turn"));
    put_raw(&mut out, "stop_sequence", shape.stop_sequence.map_or("null", RawValue::get));
    out.extend_from_slice(br#","usage":"#);
    super::stream::put_usage(&mut out, &used(tap, context.prompt_tokens));
    out.push(b'}');
    out.into()
}
