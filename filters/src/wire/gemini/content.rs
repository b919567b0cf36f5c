//! One content part of a chat as one part of generateContent.

use crate::chat::media::{DataUrl, is_web, type_by_name};
use crate::chat::raw::{Members, put_member, put_name};
use crate::chat::{File, Part, PartBody, bad_part};
use crate::error::ApiError;
use serde_json::value::RawValue;

/// Addresses that every model fetches: the provider's own files and public videos.
const STUDIO_HOSTS: [&str; 4] = [
    "https://generativelanguage.googleapis.com/",
    "https://www.youtube.com/",
    "https://youtube.com/",
    "https://youtu.be/",
];

/// The part, or `None` for empty text. `fetches`: the provider fetches any address of the web for
/// this model. `at`: message and part number.
///
/// # Errors
/// A part that the provider cannot take: leaving it out would change what is asked.
pub(super) fn part(
    fetches: bool,
    part: &Part<'_>,
    at: (usize, usize),
) -> Result<Option<Vec<u8>>, ApiError> {
    Ok(match &part.body {
        PartBody::Text(text) if text.is_empty() => None,
        PartBody::Text(text) => Some(self::text(text)),
        PartBody::Image(url) => Some(image(fetches, url, at)?),
        PartBody::File(file) => Some(document(fetches, file, at)?),
        PartBody::Other(kind, raw) if &**kind == "input_audio" => Some(audio(raw, at)?),
        PartBody::Other(kind, _) => {
            return Err(bad_part(at, &format!("the provider takes no part of type {:?}", &**kind)));
        }
    })
}

pub(super) fn text(text: &str) -> Vec<u8> {
    let mut out = b"{".to_vec();
    put_member(&mut out, "text", text);
    out.push(b'}');
    out
}

fn image(fetches: bool, url: &str, at: (usize, usize)) -> Result<Vec<u8>, ApiError> {
    if let Some(data) = DataUrl::of(url) {
        return inline(data, "image/png")
            .ok_or_else(|| bad_part(at, "its data URL cannot be read"));
    }
    address(fetches, url, "image/jpeg").ok_or_else(|| {
        bad_part(at, "the model fetches no image from the web; send a data: URL of base64")
    })
}

fn document(fetches: bool, file: &File<'_>, at: (usize, usize)) -> Result<Vec<u8>, ApiError> {
    let named = file.name.as_deref().and_then(type_by_name).unwrap_or("application/pdf");
    let Some(data) = file.data.as_deref() else {
        let id = file.id.as_deref().unwrap_or_default();
        return address(fetches, id, named)
            .ok_or_else(|| bad_part(at, "file_id must be the address of a file at the provider"));
    };
    if let Some(out) = address(fetches, data, named) {
        return Ok(out);
    }
    // Bare base64 does not say what it is.
    let bare = DataUrl { kind: named, data: if is_web(data) { "" } else { data } };
    inline(DataUrl::of(data).unwrap_or(bare), named)
        .ok_or_else(|| bad_part(at, "file_data must be a data: URL of base64"))
}

fn audio(raw: &RawValue, at: (usize, usize)) -> Result<Vec<u8>, ApiError> {
    let members = Members::of(raw.get()).unwrap_or_default();
    let sound = members.get("input_audio").and_then(|raw| Members::of(raw.get()));
    let sound = sound.unwrap_or_default();
    let (data, format) = (sound.text("data"), sound.text("format"));
    let kind = match format.as_deref() {
        Some("mp3") => "audio/mpeg".to_owned(),
        Some(format) => format!("audio/{format}"),
        None => "audio/wav".to_owned(),
    };
    let data = DataUrl { kind: &kind, data: data.as_deref().unwrap_or_default() };
    inline(data, "audio/wav").ok_or_else(|| bad_part(at, "input_audio needs data in base64"))
}

/// `inlineData`, which must say its type.
fn inline(url: DataUrl<'_>, default: &str) -> Option<Vec<u8>> {
    if url.data.is_empty() {
        return None;
    }
    let kind = url.media_type();
    let mut out = Vec::with_capacity(url.data.len() + 80);
    out.extend_from_slice(br#"{"inlineData":{"#);
    put_member(&mut out, "mimeType", if kind.is_empty() { default } else { &kind });
    put_member(&mut out, "data", url.data);
    out.extend_from_slice(b"}}");
    Some(out)
}

/// `fileData`, where the provider fetches from this address.
fn address(fetches: bool, url: &str, default: &str) -> Option<Vec<u8>> {
    let bucket = url.starts_with("gs://");
    let known = STUDIO_HOSTS.iter().any(|host| url.starts_with(host));
    let fetched = bucket || known || fetches && is_web(url);
    if !fetched {
        return None;
    }
    let mut out = b"{".to_vec();
    put_name(&mut out, "fileData");
    out.push(b'{');
    // The provider knows the type of its own files and of videos; of the rest it must be told.
    if !known {
        put_member(&mut out, "mimeType", type_by_name(url).unwrap_or(default));
    }
    put_member(&mut out, "fileUri", url);
    out.extend_from_slice(b"}}");
    Some(out)
}
