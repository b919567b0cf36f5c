//! Embeddings of providers with a protocol of their own.

use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw};
use crate::error::{ApiError, Code};
use crate::peek::{OWN, Peek};
use crate::wire::{Ask, Outgoing, Wire, gemini, segment};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Texts in one call: Gemini's `batchEmbedContents` (Gemini API, embeddings).
const GEMINI_INPUTS_MAX: usize = 100;
/// The same of Cohere (docs.cohere.com, v2/embed), at Bedrock too.
const COHERE_INPUTS_MAX: usize = 96;
/// The same of Vertex (cloud.google.com, text embeddings API), whose Gemini models take one alone.
const VERTEX_INPUTS_MAX: usize = 250;
/// The same of DashScope (help.aliyun.com, text embedding synchronous API): 10 from the third
/// generation on.
const DASHSCOPE_INPUTS_MAX: usize = 10;
/// Its first two generations take more.
const DASHSCOPE_OLD: [(&str, usize); 2] = [("text-embedding-v1", 25), ("text-embedding-v2", 25)];
/// The same of OpenAI (API reference, embeddings), for wires without a bound of their own.
const OPENAI_INPUTS_MAX: usize = 2_048;
/// Calls that one request may become: each waits for the one before.
const PARTS_MAX: usize = 256;

/// Vectors, and the prompt's tokens where the provider told them.
pub(super) struct Vectors<'a> {
    pub vectors: Vec<&'a RawValue>,
    pub prompt: Option<u64>,
}

/// The request for one try, and the bodies that follow its own where a model takes fewer texts at
/// once; `None` where the wire has no embeddings.
pub(super) fn request(
    wire: Wire,
    ask: &Ask<'_>,
) -> Result<Option<(Outgoing, Vec<Bytes>)>, ApiError> {
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
    // Cohere's models must be told what a text is for; documents are what callers that do not say
    // have mostly.
    let kind = ask.peek.find("input_type").map(|member| ask.peek.value(member));
    let kind = kind.and_then(|raw| std::str::from_utf8(raw).ok());
    let known = wire == Wire::DashScope && kind.and_then(dashscope_type).is_some();
    if cohere_at(wire, ask.model) || known {
        dropped.retain(|name| name != "input_type");
    }
    let most = inputs_max(wire, ask.model);
    if inputs.len().div_ceil(most) > PARTS_MAX {
        let why = format!("`input`: this model takes {} texts at most", most * PARTS_MAX);
        return Err(ApiError::new(Code::InvalidRequest, why).param("input"));
    }
    let mut bodies = Vec::new();
    let mut way = String::new();
    for inputs in inputs.chunks(most) {
        let Some((path, body)) = one(wire, ask, inputs, (kind, dimensions)) else {
            return Ok(None);
        };
        bodies.push(Bytes::from(body));
        way = path;
    }
    let body = bodies.remove(0).into();
    Ok(Some((Outgoing { path: way, body, dropped, ..Outgoing::default() }, bodies)))
}

/// Path and body of one call. `kind` and `dimensions` as the caller wrote them.
fn one(
    wire: Wire,
    ask: &Ask<'_>,
    inputs: &[&RawValue],
    (kind, dimensions): (Option<&str>, Option<&str>),
) -> Option<(String, Vec<u8>)> {
    let mut body = b"{".to_vec();
    let path = match wire {
        Wire::Gemini => {
            put_name(&mut body, "requests");
            body.push(b'[');
            for input in inputs {
                put_gemini(&mut body, ask.model, input, dimensions);
            }
            body.push(b']');
            gemini::path(ask.model, "batchEmbedContents")
        }
        Wire::Vertex => {
            put_name(&mut body, "instances");
            body.push(b'[');
            for input in inputs {
                put_comma(&mut body);
                body.extend_from_slice(br#"{"content":"#);
                body.extend_from_slice(input.get().as_bytes());
                body.push(b'}');
            }
            body.push(b']');
            if let Some(dimensions) = dimensions {
                put_raw(
                    &mut body,
                    "parameters",
                    &format!("{{\"outputDimensionality\":{dimensions}}}"),
                );
            }
            gemini::vertex_path(ask, "predict")
        }
        Wire::Ollama => {
            put_member(&mut body, "model", ask.model);
            put_texts(&mut body, "input", inputs);
            if let Some(dimensions) = dimensions {
                put_raw(&mut body, "dimensions", dimensions);
            }
            "/api/embed".to_owned()
        }
        Wire::Cohere => {
            put_member(&mut body, "model", ask.model);
            put_cohere(&mut body, inputs, kind, dimensions);
            "/embed".to_owned()
        }
        Wire::DashScope => {
            put_member(&mut body, "model", ask.model);
            put_name(&mut body, "input");
            body.push(b'{');
            put_texts(&mut body, "texts", inputs);
            body.push(b'}');
            put_dashscope(&mut body, kind, dimensions);
            "/services/embeddings/text-embedding/text-embedding".to_owned()
        }
        Wire::Bedrock if cohere_at(wire, ask.model) => {
            put_cohere(&mut body, inputs, kind, dimensions);
            format!("/model/{}/invoke", segment(ask.model))
        }
        Wire::Bedrock => {
            put_raw(&mut body, "inputText", inputs.first().map_or("\"\"", |input| input.get()));
            if let Some(dimensions) = dimensions {
                put_raw(&mut body, "dimensions", dimensions);
            }
            format!("/model/{}/invoke", segment(ask.model))
        }
        _ => return None,
    };
    body.push(b'}');
    Some((path, body))
}

/// Texts that a model takes in one call.
fn inputs_max(wire: Wire, model: &str) -> usize {
    match wire {
        Wire::Gemini => GEMINI_INPUTS_MAX,
        Wire::Vertex if model.contains("gemini") => 1,
        Wire::Vertex => VERTEX_INPUTS_MAX,
        Wire::DashScope => {
            let old = DASHSCOPE_OLD.iter().find(|(name, _)| *name == model);
            old.map_or(DASHSCOPE_INPUTS_MAX, |(_, most)| *most)
        }
        _ if cohere_at(wire, model) => COHERE_INPUTS_MAX,
        // Titan's, and others' that answer as it does.
        Wire::Bedrock => 1,
        _ => OPENAI_INPUTS_MAX,
    }
}

/// A model of Cohere's, which takes its body at Bedrock too.
fn cohere_at(wire: Wire, model: &str) -> bool {
    wire == Wire::Cohere || (wire == Wire::Bedrock && model.contains("cohere."))
}

fn put_texts(out: &mut Vec<u8>, name: &str, texts: &[&RawValue]) {
    put_name(out, name);
    out.push(b'[');
    for text in texts {
        put_comma(out);
        out.extend_from_slice(text.get().as_bytes());
    }
    out.push(b']');
}

fn put_cohere(out: &mut Vec<u8>, texts: &[&RawValue], kind: Option<&str>, size: Option<&str>) {
    put_texts(out, "texts", texts);
    put_raw(out, "input_type", kind.unwrap_or("\"search_document\""));
    put_raw(out, "embedding_types", "[\"float\"]");
    if let Some(size) = size {
        put_raw(out, "output_dimension", size);
    }
}

/// DashScope's two words for what a text is for.
fn dashscope_type(kind: &str) -> Option<&'static str> {
    match kind {
        "\"query\"" | "\"search_query\"" => Some("query"),
        "\"document\"" | "\"search_document\"" => Some("document"),
        _ => None,
    }
}

fn put_dashscope(out: &mut Vec<u8>, kind: Option<&str>, size: Option<&str>) {
    let mut parameters = b"{".to_vec();
    if let Some(size) = size {
        put_raw(&mut parameters, "dimension", size);
    }
    if let Some(kind) = kind.and_then(dashscope_type) {
        put_member(&mut parameters, "text_type", kind);
    }
    if parameters.len() > 1 {
        put_name(out, "parameters");
        out.append(&mut parameters);
        out.push(b'}');
    }
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
    embeddings: Option<&'a RawValue>,
    #[serde(borrow)]
    embedding: Option<&'a RawValue>,
    #[serde(borrow)]
    predictions: Option<Vec<Prediction<'a>>>,
    prompt_eval_count: Option<u64>,
    #[serde(rename = "inputTextTokenCount")]
    titan: Option<u64>,
    #[serde(rename = "usageMetadata")]
    usage: Option<Usage>,
    meta: Option<Meta>,
    #[serde(borrow)]
    output: Option<Output<'a>>,
    #[serde(rename = "usage")]
    total: Option<Total>,
}

/// DashScope's.
#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    embeddings: Vec<Placed<'a>>,
}

#[derive(Deserialize)]
struct Placed<'a> {
    #[serde(borrow)]
    embedding: &'a RawValue,
    text_index: Option<u64>,
}

#[derive(Deserialize)]
struct Total {
    total_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(rename = "promptTokenCount")]
    prompt: Option<u64>,
}

/// Cohere's.
#[derive(Deserialize)]
struct Meta {
    billed_units: Option<Units>,
}

#[derive(Deserialize)]
struct Units {
    input_tokens: Option<f64>,
}

/// Vertex's.
#[derive(Deserialize)]
struct Prediction<'a> {
    #[serde(borrow)]
    embeddings: Values<'a>,
}

#[derive(Deserialize)]
struct Values<'a> {
    #[serde(borrow)]
    values: &'a RawValue,
    statistics: Option<Statistics>,
}

#[derive(Deserialize)]
struct Statistics {
    token_count: Option<f64>,
}

/// Reads a reply in Gemini's form (`{"values": […]}` each), Ollama's (bare arrays), Cohere's (those
/// under `float`), Titan's (one array), Vertex's (`predictions`) or DashScope's (`output`, each
/// with its place).
pub(super) fn read(body: &[u8]) -> Option<Vectors<'_>> {
    let reply: Reply<'_> = serde_json::from_slice(body).ok()?;
    let counts = reply.predictions.iter().flatten().map(|one| {
        let tokens = one.embeddings.statistics.as_ref().and_then(|s| s.token_count);
        tokens.unwrap_or_default() as u64
    });
    let predicted: u64 = counts.sum();
    let placed = reply.output.map(|output| {
        let mut placed = output.embeddings;
        placed.sort_by_key(|one| one.text_index);
        placed.into_iter().map(|one| one.embedding).collect()
    });
    let list: Vec<&RawValue> = match (reply.embeddings, reply.embedding, &reply.predictions) {
        (Some(raw), ..) if raw.get().starts_with('{') => {
            serde_json::from_str(Members::of(raw.get())?.get("float")?.get()).ok()?
        }
        (Some(raw), ..) => serde_json::from_str(raw.get()).ok()?,
        (None, Some(one), _) => vec![one],
        (None, None, Some(all)) => all.iter().map(|one| one.embeddings.values).collect(),
        (None, None, None) => placed?,
    };
    let vector = |raw: &RawValue| raw.get().starts_with('[');
    let vectors = list
        .into_iter()
        .map(|raw| match vector(raw) {
            true => Some(raw),
            false => Members::of(raw.get())?.get("values"),
        })
        .collect::<Option<Vec<_>>>()?;
    let billed = reply.meta.and_then(|meta| meta.billed_units?.input_tokens);
    let prompt = reply
        .prompt_eval_count
        .or(reply.titan)
        .or_else(|| reply.usage.and_then(|usage| usage.prompt))
        .or_else(|| reply.total.and_then(|total| total.total_tokens))
        .or_else(|| billed.map(|tokens| tokens as u64))
        .or_else(|| (predicted > 0).then_some(predicted));
    (!vectors.is_empty()).then_some(Vectors { vectors, prompt })
}
