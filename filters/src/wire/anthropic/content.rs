//! One content part of a chat as one content block of Messages.

use crate::chat::media::{DataUrl, is_web};
use crate::chat::raw::{put_member, put_raw};
use crate::chat::{File, Part, PartBody, bad_part};
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Block types of Messages that a caller may put into its parts as they are.
const NATIVE: &[&str] = &["image", "document", "search_result", "container_upload"];

/// A content block.
#[derive(Debug)]
pub(super) enum Block<'a> {
    /// A text block; its text can still be trimmed.
    Text { text: Cow<'a, str>, cache: Option<&'a RawValue> },
    /// Any other block, written already.
    Json { json: Vec<u8>, cached: bool },
}

impl<'a> Block<'a> {
    /// The block of a part; `None` for text without a letter, which the provider refuses
    /// ("text content blocks must contain non-whitespace text"). `at`: message and part number.
    ///
    /// # Errors
    /// A part that the provider cannot take: leaving it out would change what is asked.
    pub(super) fn of(part: &Part<'a>, at: (usize, usize)) -> Result<Option<Self>, ApiError> {
        let json = match &part.body {
            PartBody::Text(text) if text.trim().is_empty() => return Ok(None),
            PartBody::Text(text) => {
                return Ok(Some(Self::Text { text: text.0.clone(), cache: part.cache_control }));
            }
            PartBody::Image(url) => image(url, at)?,
            PartBody::File(file) => document(file, at)?,
            PartBody::Other(kind, raw) if NATIVE.contains(&&**kind) => {
                return Ok(Some(Self::Json { json: raw.get().into(), cached: true }));
            }
            PartBody::Other(kind, _) => {
                return Err(bad_part(
                    at,
                    &format!("the provider takes no part of type {:?}", &**kind),
                ));
            }
        };
        let mut block = Self::Json { json, cached: false };
        if let Some(cache) = part.cache_control {
            block.cache(cache);
        }
        Ok(Some(block))
    }

    /// A cache breakpoint after this block, unless it has its own.
    pub(super) fn cache(&mut self, control: &'a RawValue) {
        match self {
            Self::Text { cache, .. } => *cache = Some(cache.unwrap_or(control)),
            Self::Json { json, cached } if !*cached => {
                json.pop();
                put_raw(json, "cache_control", control.get());
                json.push(b'}');
                *cached = true;
            }
            Self::Json { .. } => {}
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text { text, cache } => {
                out.push(b'{');
                put_member(out, "type", "text");
                put_member(out, "text", text);
                if let Some(cache) = cache {
                    put_raw(out, "cache_control", cache.get());
                }
                out.push(b'}');
            }
            Self::Json { json, .. } => out.extend_from_slice(json),
        }
    }
}

fn image(url: &str, at: (usize, usize)) -> Result<Vec<u8>, ApiError> {
    if let Some(data) = DataUrl::of(url) {
        return block_of(data, None).ok_or_else(|| bad_part(at, "its data URL cannot be read"));
    }
    if !is_web(url) {
        return Err(bad_part(at, "an image is a data: URL of base64 or an http(s) URL"));
    }
    Ok(block("image", br#"{"type":"url""#, &[("url", url)], None))
}

fn document(file: &File<'_>, at: (usize, usize)) -> Result<Vec<u8>, ApiError> {
    let name = file.name.as_deref().filter(|name| !name.is_empty());
    let Some(data) = file.data.as_deref() else {
        let id = file.id.as_deref().unwrap_or_default();
        return Ok(block("document", br#"{"type":"file""#, &[("file_id", id)], name));
    };
    if is_web(data) {
        return Ok(block("document", br#"{"type":"url""#, &[("url", data)], name));
    }
    // Bare base64 does not say what it is; PDF is what OpenAI documents for this member.
    let bare = DataUrl { kind: "application/pdf", data };
    let data = DataUrl::of(data).unwrap_or(bare);
    block_of(data, name).ok_or_else(|| bad_part(at, "its data URL cannot be read"))
}

/// An image or a document block; `None` for what cannot be read.
fn block_of(url: DataUrl<'_>, name: Option<&str>) -> Option<Vec<u8>> {
    if url.data.is_empty() {
        return None;
    }
    let kind = url.media_type();
    if kind.starts_with("text/") {
        // Base64 is for PDFs alone; text stands as it is (Messages, document source "text").
        let text = String::from_utf8(STANDARD.decode(url.data).ok()?).ok()?;
        let source = [("media_type", "text/plain"), ("data", &text)];
        return Some(block("document", br#"{"type":"text""#, &source, name));
    }
    let image = kind.starts_with("image/");
    let source = [("media_type", &*kind), ("data", url.data)];
    let outer = if image { "image" } else { "document" };
    let name = name.filter(|_| !image);
    Some(block(outer, br#"{"type":"base64""#, &source, name))
}

/// `{"type":kind,"source":{open…,source…},"title":name}`
fn block(kind: &str, open: &[u8], source: &[(&str, &str)], name: Option<&str>) -> Vec<u8> {
    let size: usize = source.iter().map(|(_, text)| text.len()).sum();
    let mut out = Vec::with_capacity(size + 160);
    out.push(b'{');
    put_member(&mut out, "type", kind);
    out.extend_from_slice(br#","source":"#);
    out.extend_from_slice(open);
    for (name, text) in source {
        put_member(&mut out, name, text);
    }
    out.push(b'}');
    if let Some(name) = name {
        put_member(&mut out, "title", name);
    }
    out.push(b'}');
    out
}
