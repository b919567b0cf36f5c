//! Embeddings of providers with a protocol of their own.

use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw};
use crate::error::{ApiError, Code};
use crate::peek::{OWN, Peek};
use crate::wire::{Ask, Outgoing, Wire, gemini};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Gemini's `batchEmbedContents` takes no more in one call (Gemini API, embeddings).
const GEMINI_INPUTS_MAX: usize = 100;

/// Vectors, and the prompt's tokens where the provider told them.
pub(super) struct Vectors<'a> {
    pub vectors: Vec<&'a RawValue>,
    pub prompt: Option<u64>,
}

/// The request for one try; `None` where the wire has no embeddings.
pub(super) fn request(wire: Wire, ask: &Ask<'_>) -> Result<Option<Outgoing>, ApiError> {
    let mut dropped = Vec::new();
    let inputs = inputs(ask.peek)?;
    let dimensions = ask.peek.find("dimensions").map(|member| ask.peek.value(member));
    let dimensions = dimensions.and_then(|raw| std::str::from_utf8(raw).ok());
    for member in &ask.peek.members {
        let name = ask.peek.name(member);
        let known = ["model", "input", "encoding_format", "dimensions"].contains(&name);
        if !known && !OWN.contains(&name) && ask.peek.value(member) != b"null" {
            dropped.push(name.to_owned());
        }
    }
    let mut body = b"{".to_vec();
    let path = match wire {
        Wire::Gemini => {
            if inputs.len() > GEMINI_INPUTS_MAX {
                let why = format!("`input`: this provider takes {GEMINI_INPUTS_MAX} texts at most");
                return Err(ApiError::new(Code::InvalidRequest, why).param("input"));
            }
            put_name(&mut body, "requests");
            body.push(b'[');
            for input in &inputs {
                put_gemini(&mut body, ask.model, input, dimensions);
            }
            body.push(b']');
            gemini::path(ask.model, "batchEmbedContents")
        }
        Wire::Ollama => {
            put_member(&mut body, "model", ask.model);
            put_name(&mut body, "input");
            body.push(b'[');
            for input in &inputs {
                put_comma(&mut body);
                body.extend_from_slice(input.get().as_bytes());
            }
            body.push(b']');
            if let Some(dimensions) = dimensions {
                put_raw(&mut body, "dimensions", dimensions);
            }
            "/api/embed".to_owned()
        }
        _ => return Ok(None),
    };
    body.push(b'}');
    let body = bytes::Bytes::from(body).into();
    Ok(Some(Outgoing { path, body, dropped, ..Outgoing::default() }))
}

fn put_gemini(out: &mut Vec<u8>, model: &str, input: &RawValue, dimensions: Option<&str>) {
    put_comma(out);
    out.push(b'{');
    let full = if model.contains('/') { model.to_owned() } else { format!("models/{model}") };
    put_member(out, "model", &full);
    out.extend_from_slice(br#","content":{"parts":[{"text":"#);
    out.extend_from_slice(input.get().as_bytes());
    out.extend_from_slice(b"}]}");
    if let Some(dimensions) = dimensions {
        put_raw(out, "outputDimensionality", dimensions);
    }
    out.push(b'}');
}

/// The texts of `input`, as JSON strings.
fn inputs(peek: &Peek) -> Result<Vec<&RawValue>, ApiError> {
    let wrong = || {
        let why = "`input`: the provider of this model takes one text or a list of texts";
        ApiError::new(Code::InvalidRequest, why).param("input")
    };
    let raw = peek.find("input").map(|member| peek.value(member)).unwrap_or_default();
    let raw: &RawValue = serde_json::from_slice(raw).map_err(|_| wrong())?;
    let list = if raw.get().starts_with('[') {
        serde_json::from_str(raw.get()).map_err(|_| wrong())?
    } else {
        vec![raw]
    };
    let texts = !list.is_empty() && list.iter().all(|raw: &&RawValue| raw.get().starts_with('"'));
    if texts { Ok(list) } else { Err(wrong()) }
}

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    embeddings: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    embedding: Option<&'a RawValue>,
    prompt_eval_count: Option<u64>,
    #[serde(rename = "usageMetadata")]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(rename = "promptTokenCount")]
    prompt: Option<u64>,
}

/// Reads a reply in Gemini's form (`{"values": […]}` each) or Ollama's (bare arrays).
pub(super) fn read(body: &[u8]) -> Option<Vectors<'_>> {
    let reply: Reply<'_> = serde_json::from_slice(body).ok()?;
    let list = reply.embeddings.or_else(|| reply.embedding.map(|one| vec![one]))?;
    let values = |raw: &'_ RawValue| raw.get().starts_with('[');
    let vectors = list
        .into_iter()
        .map(|raw| match values(raw) {
            true => Some(raw),
            false => Members::of(raw.get())?.get("values"),
        })
        .collect::<Option<Vec<_>>>()?;
    let prompt = reply.prompt_eval_count.or_else(|| reply.usage.and_then(|usage| usage.prompt));
    (!vectors.is_empty()).then_some(Vectors { vectors, prompt })
}
