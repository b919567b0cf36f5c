//! One content part of a chat as one content block of Converse.

use crate::chat::media::{DataUrl, type_by_name};
use crate::chat::raw::{put_member, put_name};
use crate::chat::{File, Part, PartBody, bad_part};
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// A content block.
#[derive(Debug)]
pub(super) enum Block<'a> {
    /// Its text can still be trimmed.
    Text(Cow<'a, str>),
    /// Any other block, written already.
    Json(Vec<u8>),
}

impl<'a> Block<'a> {
    /// The block of a part; `None` for text without a letter, which is refused. `at`: message and
    /// part number.
    ///
    /// # Errors
    /// A part that the provider cannot take: leaving it out would change what is asked.
    pub fn of(part: &Part<'a>, at: (usize, usize)) -> Result<Option<Self>, ApiError> {
        Ok(Some(match &part.body {
            PartBody::Text(text) if text.trim().is_empty() => return Ok(None),
            PartBody::Text(text) => Self::Text(text.0.clone()),
            PartBody::Image(url) => Self::Json(image(url, at)?),
            PartBody::File(file) => Self::Json(document(file, at)?),
            PartBody::Other(kind, _) => {
                let why = format!("the provider takes no part of type {:?}", &**kind);
                return Err(bad_part(at, &why));
            }
        }))
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                out.push(b'{');
                put_member(out, "text", text);
                out.push(b'}');
            }
            Self::Json(json) => out.extend_from_slice(json),
        }
    }
}

fn image(url: &str, at: (usize, usize)) -> Result<Vec<u8>, ApiError> {
    let Some(data) = DataUrl::of(url) else {
        if !url.starts_with("s3://") {
            return Err(bad_part(at, "an image must be a data: URL of base64 or an s3: URI"));
        }
        let format = type_by_name(url).and_then(image_format).unwrap_or("png");
        return Ok(block(("image", format, None), "uri", url));
    };
    let format = image_format(&data.media_type());
    match format {
        Some(format) if !data.data.is_empty() => {
            Ok(block(("image", format, None), "bytes", data.data))
        }
        Some(_) => Err(bad_part(at, "its data URL cannot be read")),
        None => Err(bad_part(at, "an image must be png, jpeg, gif or webp")),
    }
}

fn image_format(kind: &str) -> Option<&'static str> {
    ["png", "jpeg", "gif", "webp"].into_iter().find(|f| kind.strip_prefix("image/") == Some(f))
}

fn document(file: &File<'_>, at: (usize, usize)) -> Result<Vec<u8>, ApiError> {
    let named = file.name.as_deref().and_then(type_by_name).unwrap_or("application/pdf");
    let Some(data) = file.data.as_deref() else {
        return Err(bad_part(at, "the provider keeps no files; send file_data"));
    };
    let name = document_name(file.name.as_deref().unwrap_or_default(), at);
    if data.starts_with("s3://") {
        let format = type_by_name(data).and_then(document_format).unwrap_or("pdf");
        return Ok(block(("document", format, Some(&name)), "uri", data));
    }
    // Bare base64 does not say what it is.
    let data = DataUrl::of(data).unwrap_or(DataUrl { kind: named, data });
    if data.data.is_empty() || data.data.contains("://") {
        return Err(bad_part(at, "file_data must be a data: URL of base64"));
    }
    let kind = data.media_type();
    if image_format(&kind).is_some() {
        return image(&format!("data:{kind};base64,{}", data.data), at);
    }
    match document_format(&kind) {
        Some(format) => Ok(block(("document", format, Some(&name)), "bytes", data.data)),
        None => Err(bad_part(at, &format!("the provider takes no file of type {kind:?}"))),
    }
}

fn document_format(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "application/pdf" => "pdf",
        "text/csv" => "csv",
        "text/html" => "html",
        "text/markdown" => "md",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        kind if kind.starts_with("text/") => "txt",
        _ => return None,
    })
}

/// A name is required: letters, digits, hyphens, brackets and single spaces (Converse,
/// DocumentBlock), each once in a request.
fn document_name(name: &str, (message, part): (usize, usize)) -> String {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-()[]".contains(c);
    let stem: String = stem.chars().map(|c| if fits(c) { c } else { ' ' }).collect();
    let words: Vec<&str> = stem.split_ascii_whitespace().collect();
    let stem: String = words.join(" ").chars().take(150).collect();
    match stem.trim() {
        "" => format!("document {message}-{part}"),
        stem => format!("{stem} {message}-{part}"),
    }
}

/// `{"kind":{"format":…,"name":…,"source":{"bytes":…}}}`
fn block((kind, format, name): (&str, &str, Option<&str>), place: &str, data: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + 96);
    out.push(b'{');
    put_name(&mut out, kind);
    out.push(b'{');
    put_member(&mut out, "format", format);
    if let Some(name) = name {
        put_member(&mut out, "name", name);
    }
    put_name(&mut out, "source");
    out.push(b'{');
    if place == "uri" {
        put_name(&mut out, "s3Location");
        out.push(b'{');
        put_member(&mut out, "uri", data);
        out.push(b'}');
    } else {
        put_member(&mut out, place, data);
    }
    out.extend_from_slice(b"}}}");
    out
}

/// A redacted thought: Anthropic's sealed text, which Converse wraps in base64 once more.
pub(super) fn redacted(data: &str) -> String {
    STANDARD.encode(data)
}
