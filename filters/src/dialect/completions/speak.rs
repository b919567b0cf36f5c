//! A chat's answer as a completion of its prompt.

use super::super::canon::{Chunk, Message, Speaker};
use super::{completion_id, finish_reason};
use crate::chat::raw::{put_comma, put_member, put_name, put_raw};
use crate::chat::reply::{DONE, put_usage};
use crate::dialect::Dialect;
use crate::error::ApiError;
use crate::usage::Usage;
use crate::wire::ReplyContext;
use bytes::Bytes;
use serde_json::value::RawValue;

/// The chunks of one completion.
pub(in crate::dialect) struct Stream {
    id: String,
    created: u64,
    model: String,
    begun: bool,
    usage_asked: bool,
}

impl Stream {
    pub(in crate::dialect) fn new(context: &ReplyContext) -> Self {
        Self {
            id: completion_id(&context.id),
            created: context.created,
            model: context.model.to_string(),
            begun: false,
            usage_asked: context.usage_asked,
        }
    }

    fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: {");
        put_head(out, &self.id, self.created, &self.model);
        put_name(out, "choices");
        out.push(b'[');
    }
}

fn put_head(out: &mut Vec<u8>, id: &str, created: u64, model: &str) {
    put_member(out, "id", id);
    put_member(out, "object", "text_completion");
    put_raw(out, "created", &created.to_string());
    put_member(out, "model", model);
}

fn put_choice(out: &mut Vec<u8>, index: u32, text: Option<&RawValue>, finish: Option<&str>) {
    put_comma(out);
    out.push(b'{');
    put_raw(out, "text", text.map(RawValue::get).filter(|raw| *raw != "null").unwrap_or("\"\""));
    put_raw(out, "index", &index.to_string());
    put_raw(out, "logprobs", "null");
    match finish {
        Some(finish) => put_member(out, "finish_reason", finish_reason(finish)),
        None => put_raw(out, "finish_reason", "null"),
    }
    out.push(b'}');
}

impl Speaker for Stream {
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
        if !self.begun
            && let Some(model) = chunk.model.as_deref().filter(|model| !model.is_empty())
        {
            model.clone_into(&mut self.model);
        }
        self.begun = true;
        for choice in &chunk.choices {
            let text = choice.delta.content.or(choice.delta.refusal);
            let text = text.filter(|raw| raw.get().len() > 2);
            let finish = choice.finish_reason.as_deref();
            if text.is_none() && finish.is_none() {
                continue;
            }
            self.head(out);
            put_choice(out, choice.index, text, finish);
            out.extend_from_slice(if self.usage_asked { b"],\"usage\":null" } else { b"]" });
            out.extend_from_slice(b"}\n\n");
        }
    }

    fn end(&mut self, usage: &Usage, _out: &mut Vec<u8>) -> Vec<u8> {
        let mut tail = Vec::new();
        if self.usage_asked {
            self.head(&mut tail);
            tail.extend_from_slice(br#"],"usage":"#);
            put_usage(&mut tail, usage);
            tail.extend_from_slice(b"}\n\n");
        }
        tail.extend_from_slice(DONE.as_bytes());
        tail
    }

    fn error(&mut self, error: &ApiError, request_id: &str) -> Bytes {
        error.event(Dialect::OpenAi, request_id)
    }
}

/// The chunk that ends the first choice.
pub(super) fn ending(id: &str, created: u64, model: &str, finish: &str) -> Bytes {
    let mut out = b"data: {".to_vec();
    put_head(&mut out, id, created, model);
    put_name(&mut out, "choices");
    out.push(b'[');
    put_choice(&mut out, 0, None, Some(finish));
    out.extend_from_slice(b"]}\n\n");
    out.into()
}

/// The completion's body.
pub(in crate::dialect) fn whole(
    message: &Message<'_>,
    context: &ReplyContext,
    usage: &Usage,
) -> Bytes {
    let mut out = b"{".to_vec();
    let model = message.model.as_deref().unwrap_or(&context.model);
    put_head(&mut out, &completion_id(&context.id), context.created, model);
    put_name(&mut out, "choices");
    out.push(b'[');
    put_choice(&mut out, 0, message.said.content, Some(&message.finish));
    for choice in &message.others {
        let finish = choice.finish_reason.as_deref().unwrap_or("stop");
        put_choice(&mut out, choice.index, choice.delta.content, Some(finish));
    }
    out.extend_from_slice(br#"],"usage":"#);
    put_usage(&mut out, usage);
    out.push(b'}');
    out.into()
}
