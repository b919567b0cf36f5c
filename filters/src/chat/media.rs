//! Images, files and sound inside a chat: `data:` URLs, bare base64 and what an address may be.

use super::File;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// A `data:` URL: what it says it holds, and the base64 in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataUrl<'a> {
    /// The media type as written; may be empty.
    pub kind: &'a str,
    /// Base64, unchecked. Empty where the URL is not base64, the only form that is handed on.
    pub data: &'a str,
}

impl<'a> DataUrl<'a> {
    /// `None` for every other URL.
    #[must_use]
    pub fn of(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_at_checked("data:".len())?;
        if !scheme.eq_ignore_ascii_case("data:") {
            return None;
        }
        let (head, data) = rest.split_once(',').unwrap_or((rest, ""));
        let encoded = head.split(';').skip(1).any(|word| word.trim() == "base64");
        Some(Self { kind: head.split(';').next()?.trim(), data: if encoded { data } else { "" } })
    }

    /// The media type in lower case, `image/jpg` by its right name.
    #[must_use]
    pub fn media_type(&self) -> Cow<'a, str> {
        match self.kind {
            kind if kind.eq_ignore_ascii_case("image/jpg") => "image/jpeg".into(),
            kind if kind.bytes().any(|b| b.is_ascii_uppercase()) => {
                kind.to_ascii_lowercase().into()
            }
            kind => kind.into(),
        }
    }
}

/// The text of a file that is text, which every model can read.
#[must_use]
pub fn text_of(file: &File<'_>) -> Option<String> {
    let url = DataUrl::of(file.data.as_deref()?)?;
    if !url.media_type().starts_with("text/") || url.data.is_empty() {
        return None;
    }
    String::from_utf8(STANDARD.decode(url.data).ok()?).ok()
}

/// An `http:` or `https:` URL.
#[must_use]
pub fn is_web(url: &str) -> bool {
    let starts = |scheme: &str| {
        url.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme))
    };
    starts("https://") || starts("http://")
}

/// The media type that an address's ending stands for.
#[must_use]
pub fn type_by_name(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next()?;
    let (_, ending) = path.rsplit('/').next()?.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "heic" => "image/heic",
        "heif" => "image/heif",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "flac" => "audio/flac",
        "ogg" => "audio/ogg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mov" => "video/quicktime",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_url_is_read_and_only_base64_handed_on() {
        let url = DataUrl::of("DATA:image/JPG;charset=x;base64,AA==").unwrap();
        assert_eq!((url.data, &*url.media_type()), ("AA==", "image/jpeg"));
        assert_eq!(DataUrl::of("data:text/plain,hi").unwrap().data, "");
        assert_eq!(DataUrl::of("data:").unwrap(), DataUrl { kind: "", data: "" });
        assert_eq!(DataUrl::of("https://x"), None);
    }

    #[test]
    fn only_a_file_of_text_is_text() {
        let text = |data: &str| {
            let file = format!(r#"{{"file_data":"{data}"}}"#);
            text_of(&serde_json::from_str(&file).unwrap())
        };
        assert_eq!(text("data:text/csv;base64,w6ks").as_deref(), Some("é,"));
        let others = ["data:text/plain;base64,/w==", "data:application/pdf;base64,YQ==", "YQ=="];
        assert!(others.iter().all(|data| text(data).is_none()));
    }

    #[test]
    fn a_name_tells_its_type() {
        assert_eq!(type_by_name("gs://b/a.PNG?x=1.pdf"), Some("image/png"));
        assert_eq!(type_by_name("https://example.com"), None);
        assert!(is_web("HTTP://x") && !is_web("ftp://x"));
    }
}
