//! Embeddings: the body passes, vectors come back in the form that was asked for.

use crate::chat::raw::{Text, put_comma, put_member, put_name, put_raw, put_text, text};
use crate::error::{ApiError, Class, Code, Failure, classify_event};
use crate::peek::{Edits, Peek, apply_params};
use crate::tokens::Counter;
use crate::usage::Usage;
use crate::wire::{Ask, Outgoing, ReplyContext, Tap, Whole, Wire, openai};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

mod other;

/// How vectors are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Arrays of numbers.
    #[default]
    Float,
    /// Little-endian 32-bit floats in base64, as OpenAI's Python client asks for by default.
    Base64,
}

impl Encoding {
    /// What the caller asked for.
    ///
    /// # Errors
    /// Another word.
    pub(super) fn asked(peek: &Peek) -> Result<Self, ApiError> {
        match peek.find("encoding_format").map(|member| peek.value(member)) {
            None | Some(b"null" | b"\"float\"") => Ok(Self::Float),
            Some(b"\"base64\"") => Ok(Self::Base64),
            Some(_) => {
                let why = "`encoding_format` is none of float, base64";
                let error = ApiError::new(Code::InvalidRequest, why);
                Err(error.param("encoding_format"))
            }
        }
    }
}

/// The request for one try.
///
/// # Errors
/// A provider without embeddings.
pub(super) fn request(wire: Wire, ask: &Ask<'_>) -> Result<(Outgoing, Vec<Bytes>), ApiError> {
    if !matches!(wire, Wire::OpenAi | Wire::Azure) {
        return other::request(wire, ask)?.ok_or_else(|| {
            let why = "the provider of this model has no embeddings";
            ApiError::new(Code::InvalidRequest, why).param("model")
        });
    }
    let path = openai::path(wire, ask, "embeddings");
    let mut edits = Edits::default();
    let mut model = Vec::with_capacity(ask.model.len() + 2);
    put_text(&mut model, ask.model);
    edits.set("model", model);
    let mut dropped = apply_params(ask.params, ask.peek, &mut edits).map_err(ApiError::from)?;
    // Vectors are put into the asked form here, so its being left out loses nothing.
    dropped.retain(|name| name != "encoding_format");
    let body = edits.apply(ask.peek);
    Ok((Outgoing { path, body, dropped, ..Outgoing::default() }, Vec::new()))
}

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    object: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Vec<Row<'a>>>,
    #[serde(borrow)]
    model: Option<Text<'a>>,
    usage: Option<Tokens>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    object: Option<Text<'a>>,
    index: Option<u64>,
    #[serde(borrow)]
    embedding: &'a RawValue,
}

#[derive(Deserialize)]
struct Tokens {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

/// The caller's body for a reply with status 200: the provider's own where nothing deviates.
///
/// # Errors
/// An error object, or what holds no vectors.
pub(super) fn whole(
    wire: Wire,
    body: Bytes,
    asked: Encoding,
    context: &ReplyContext,
) -> Result<Whole, Failure> {
    if !matches!(wire, Wire::OpenAi | Wire::Azure) {
        return answer(other::read(&body).ok_or_else(none)?, asked, context);
    }
    let Ok(reply) = serde_json::from_slice::<Reply<'_>>(&body) else { return Err(none()) };
    if reply.error.is_some() {
        return Err(classify_event(&body));
    }
    let Some(rows) = reply.data.as_deref().filter(|rows| !rows.is_empty()) else {
        return Err(none());
    };
    let prompt = reply.usage.as_ref().and_then(|usage| usage.prompt_tokens.or(usage.total_tokens));
    let full = |usage: &Tokens| usage.prompt_tokens.is_some() && usage.total_tokens.is_some();
    let plain = reply.object.as_deref() == Some("list")
        && reply.model.is_some()
        && reply.usage.as_ref().is_some_and(full)
        && rows.iter().zip(0..).all(|(row, n)| {
            row.index == Some(n)
                && row.object.as_deref() == Some("embedding")
                && encoding(row.embedding) == Some(asked)
        });
    let tap = tap(prompt, reply.model.as_deref(), context);
    if plain {
        return Ok(Whole { body: body.clone(), tap });
    }
    let rows = rows.iter().zip(0..).map(|(row, n)| (row.embedding, row.index.unwrap_or(n)));
    let rows: Vec<_> = rows.collect();
    Ok(Whole { body: list(&rows, asked, &tap, context)?, tap })
}

/// The same for the replies to many bodies, as an array of them.
///
/// # Errors
/// One of them holds no vectors.
pub(super) fn whole_of_many(
    body: &[u8],
    asked: Encoding,
    context: &ReplyContext,
) -> Result<Whole, Failure> {
    let replies: Vec<&RawValue> = serde_json::from_slice(body).map_err(|_| none())?;
    let mut all = other::Vectors { vectors: Vec::new(), prompt: Some(0) };
    for reply in replies {
        let one = other::read(reply.get().as_bytes()).ok_or_else(none)?;
        all.vectors.extend(one.vectors);
        all.prompt = all.prompt.zip(one.prompt).map(|(sum, more)| sum.saturating_add(more));
    }
    answer(all, asked, context)
}

/// One of many replies, by itself: the prompt tokens that it tells.
///
/// # Errors
/// It holds no vectors.
pub(super) fn part(body: &[u8]) -> Result<Option<u64>, Failure> {
    other::read(body).map(|read| read.prompt).ok_or_else(none)
}

fn answer(
    read: other::Vectors<'_>,
    asked: Encoding,
    context: &ReplyContext,
) -> Result<Whole, Failure> {
    let rows = read.vectors.into_iter().zip(0..).collect::<Vec<_>>();
    let tap = tap(read.prompt, None, context);
    Ok(Whole { body: list(&rows, asked, &tap, context)?, tap })
}

fn none() -> Failure {
    Failure::new(Class::Invalid, 200, "the reply holds no embeddings")
}

fn tap(prompt: Option<u64>, model: Option<&str>, context: &ReplyContext) -> Tap {
    Tap {
        usage: prompt.map(|input| Usage { input, ..Usage::default() }),
        finish: None,
        model: model.map(str::to_owned),
        counter: Counter::new(context.encoding),
    }
}

/// OpenAI's list of vectors and their places.
fn list(
    rows: &[(&RawValue, u64)],
    asked: Encoding,
    tap: &Tap,
    context: &ReplyContext,
) -> Result<Bytes, Failure> {
    let mut out = br#"{"object":"list","data":["#.to_vec();
    for (vector, index) in rows {
        put_comma(&mut out);
        out.extend_from_slice(br#"{"object":"embedding""#);
        put_raw(&mut out, "index", &index.to_string());
        put_name(&mut out, "embedding");
        put_vector(&mut out, vector, asked).ok_or_else(none)?;
        out.push(b'}');
    }
    out.push(b']');
    put_member(&mut out, "model", tap.model.as_deref().unwrap_or(&context.model));
    let tokens = tap.usage.map_or(context.prompt_tokens, |usage| usage.input);
    let usage = format!("{{\"prompt_tokens\":{tokens},\"total_tokens\":{tokens}}}");
    put_raw(&mut out, "usage", &usage);
    out.push(b'}');
    Ok(out.into())
}

fn encoding(vector: &RawValue) -> Option<Encoding> {
    match vector.get().bytes().next()? {
        b'[' => Some(Encoding::Float),
        b'"' => Some(Encoding::Base64),
        _ => None,
    }
}

/// Writes a vector in the asked form; `None` where it is none.
fn put_vector(out: &mut Vec<u8>, vector: &RawValue, asked: Encoding) -> Option<()> {
    if encoding(vector)? == asked {
        out.extend_from_slice(vector.get().as_bytes());
        return Some(());
    }
    match asked {
        Encoding::Base64 => {
            let floats: Vec<f32> = serde_json::from_str(vector.get()).ok()?;
            let bytes: Vec<u8> = floats.iter().flat_map(|f| f.to_le_bytes()).collect();
            put_text(out, &STANDARD.encode(bytes));
        }
        Encoding::Float => {
            let bytes = STANDARD.decode(text(vector)?.as_bytes()).ok()?;
            let floats: Vec<f32> =
                bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
            // Writing to memory cannot fail.
            serde_json::to_writer(out, &floats).ok()?;
        }
    }
    Some(())
}
