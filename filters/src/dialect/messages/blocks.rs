//! Content blocks of a Messages request, and the parts of a chat that they become.

use super::request::parse;
use crate::chat::media::is_web;
use crate::chat::raw::{Members, Text, note_unread, put_member, put_name, put_raw};
use crate::chat::wrong;
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Members of a block that are read, by its type.
const OF_BLOCK: [(&str, &[&str]); 6] = [
    // An answer's citations are the provider's, and nobody asks them back.
    ("text", &["type", "text", "cache_control", "citations"]),
    ("image", &["type", "source", "cache_control"]),
    ("document", &["type", "source", "title", "cache_control"]),
    ("search_result", &["type", "source", "title", "content", "cache_control"]),
    ("tool_use", &["type", "id", "name", "input", "cache_control", "caller"]),
    ("tool_result", &["type", "tool_use_id", "content", "is_error", "cache_control"]),
];

/// One block.
#[derive(Debug)]
pub(super) enum Block<'a> {
    Text {
        text: Text<'a>,
        cache: Option<&'a RawValue>,
    },
    /// A picture's URL, `data:` ones included.
    Image {
        url: String,
        cache: Option<&'a RawValue>,
    },
    /// A document's URL, `data:` ones included.
    File {
        data: String,
        name: Option<Text<'a>>,
        cache: Option<&'a RawValue>,
    },
    Use {
        id: Text<'a>,
        name: Text<'a>,
        input: &'a RawValue,
        cache: Option<&'a RawValue>,
    },
    Result {
        id: Text<'a>,
        content: Vec<Block<'a>>,
        error: bool,
        cache: Option<&'a RawValue>,
    },
    /// With its provider's seal or without.
    Thinking {
        text: Text<'a>,
        raw: &'a RawValue,
        sealed: bool,
    },
    /// What a chat has no word for.
    Other {
        kind: String,
    },
}

/// A part of a chat message.
#[derive(Debug)]
pub(super) enum Part<'b> {
    Text { text: &'b str, cache: Option<&'b RawValue> },
    Image { url: &'b str, cache: Option<&'b RawValue> },
    File { data: &'b str, name: Option<&'b str>, cache: Option<&'b RawValue> },
}

#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    title: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_id: Option<Text<'a>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    is_error: Option<bool>,
    #[serde(borrow)]
    cache_control: Option<&'a RawValue>,
}

impl<'a> Block<'a> {
    /// # Errors
    /// A block without what its type needs.
    pub(super) fn read(
        at: &str,
        raw: &'a RawValue,
        unread: &mut Vec<String>,
    ) -> Result<Self, ApiError> {
        if raw.get().starts_with('"') {
            return Ok(Self::Text { text: parse(at, raw)?, cache: None });
        }
        let shape: Shape<'a> = parse(at, raw)?;
        let missing = |name: &str| {
            let param = format!("{at}.{name}");
            wrong(&param, &format!("{param} is missing"))
        };
        if let Some((kind, known)) = OF_BLOCK.iter().find(|(kind, _)| *kind == &*shape.kind) {
            note_unread(unread, &format!("messages.content.{kind}"), raw, known);
        }
        let cache = shape.cache_control;
        Ok(match &*shape.kind {
            "text" => Self::Text { text: shape.text.ok_or_else(|| missing("text"))?, cache },
            "image" => {
                let url = shape.source.and_then(|source| source_url(source, "image/png"));
                match url.ok_or_else(|| missing("source"))? {
                    file if file.starts_with("file:") => Self::Other { kind: "image".into() },
                    url => Self::Image { url, cache },
                }
            }
            "document" => document(shape, at, unread)?,
            "search_result" => search_result(&shape, raw, at, unread)?,
            "tool_use" => Self::Use {
                id: shape.id.ok_or_else(|| missing("id"))?,
                name: shape.name.ok_or_else(|| missing("name"))?,
                input: shape.input.ok_or_else(|| missing("input"))?,
                cache,
            },
            "tool_result" => Self::Result {
                id: shape.tool_use_id.ok_or_else(|| missing("tool_use_id"))?,
                content: match shape.content {
                    Some(raw) => list(&format!("{at}.content"), raw, unread)?,
                    None => Vec::new(),
                },
                error: shape.is_error == Some(true),
                cache,
            },
            "thinking" => Self::Thinking {
                text: shape.thinking.unwrap_or_default(),
                raw,
                sealed: shape.signature.is_some_and(|seal| !seal.is_empty()),
            },
            "redacted_thinking" => Self::Thinking { text: Text::default(), raw, sealed: true },
            other => Self::Other { kind: other.chars().take(64).collect() },
        })
    }

    /// What a chat message holds of it; `rich`: of one that a wire translates, where a file may be
    /// an address too.
    pub(super) fn part(&self, rich: bool) -> Option<Part<'_>> {
        match self {
            Self::File { data, .. } if !rich && is_web(data) => None,
            Self::Text { text, cache } => Some(Part::Text { text, cache: *cache }),
            Self::Image { url, cache } => Some(Part::Image { url, cache: *cache }),
            Self::File { data, name, cache } => {
                Some(Part::File { data, name: name.as_deref(), cache: *cache })
            }
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// It is a text that begins so.
    pub(super) fn starts_with(&self, start: &str) -> bool {
        matches!(self, Self::Text { text, .. } if text.starts_with(start))
    }

    pub(super) fn cache(&self) -> Option<&RawValue> {
        match self {
            Self::Text { cache, .. }
            | Self::Image { cache, .. }
            | Self::File { cache, .. }
            | Self::Use { cache, .. } => *cache,
            // Within a result a chat has no place for one.
            Self::Result { cache, content, .. } => {
                cache.or_else(|| content.iter().rev().find_map(Self::cache))
            }
            Self::Thinking { .. } | Self::Other { .. } => None,
        }
    }

    pub(super) fn has_cache(&self) -> bool {
        self.cache().is_some()
    }
}

/// The blocks of a content: one text, or a list.
///
/// # Errors
/// The block at fault.
pub(super) fn list<'a>(
    at: &str,
    raw: &'a RawValue,
    unread: &mut Vec<String>,
) -> Result<Vec<Block<'a>>, ApiError> {
    if raw.get().starts_with('"') {
        return Ok(vec![Block::Text { text: parse(at, raw)?, cache: None }]);
    }
    let list: Vec<&'a RawValue> = parse(at, raw)?;
    let each = list.into_iter().enumerate();
    each.map(|(n, raw)| Block::read(&format!("{at}[{n}]"), raw, unread)).collect()
}

/// What was found, as text to every model: title, where it is from, what it says.
fn search_result<'a>(
    shape: &Shape<'a>,
    raw: &'a RawValue,
    at: &str,
    unread: &mut Vec<String>,
) -> Result<Block<'a>, ApiError> {
    let members = Members::of(raw.get()).unwrap_or_default();
    let said = match shape.content {
        Some(raw) => list(&format!("{at}.content"), raw, unread)?,
        None => Vec::new(),
    };
    let mut lines: Vec<&str> = Vec::new();
    let source = members.text("source");
    lines.extend(shape.title.as_deref());
    lines.extend(source.as_deref());
    lines.extend(said.iter().filter_map(Block::text));
    if lines.is_empty() {
        return Ok(Block::Other { kind: "search_result".into() });
    }
    let text = Text(lines.join("\n").into());
    Ok(Block::Text { text, cache: shape.cache_control })
}

fn document<'a>(
    shape: Shape<'a>,
    at: &str,
    unread: &mut Vec<String>,
) -> Result<Block<'a>, ApiError> {
    let cache = shape.cache_control;
    let source = shape.source.and_then(|source| Members::of(source.get())).unwrap_or_default();
    // A document of plain text is text to every model.
    let text = match source.text("type").as_deref() {
        Some("text") => source.text("data"),
        Some("content") => match source.get("content") {
            Some(raw) => whole_text(&list(&format!("{at}.source.content"), raw, unread)?),
            None => None,
        },
        _ => None,
    };
    if let Some(text) = text {
        return Ok(Block::Text { text, cache });
    }
    match shape.source.and_then(|source| source_url(source, "application/pdf")) {
        Some(data) if data.starts_with("data:") || is_web(&data) => {
            Ok(Block::File { data, name: shape.title, cache })
        }
        Some(_) => Ok(Block::Other { kind: "document".into() }),
        None if source.text("type").as_deref() == Some("content") => {
            Ok(Block::Other { kind: "document".into() })
        }
        None => {
            let param = format!("{at}.source");
            Err(wrong(&param, &format!("{param}: a document needs data or a URL")))
        }
    }
}

/// The texts of blocks that are all texts.
fn whole_text<'a>(blocks: &[Block<'_>]) -> Option<Text<'a>> {
    let texts: Option<Vec<&str>> = blocks.iter().map(Block::text).collect();
    Some(Text(texts?.join("\n").into()))
}

/// `data:` URL or web URL of a source; `None` where it has neither.
fn source_url(source: &RawValue, kind: &str) -> Option<String> {
    let source = Members::of(source.get())?;
    match source.text("type").as_deref() {
        Some("url") => source.text("url").map(|url| url.0.into_owned()),
        Some("base64") => {
            let media = source.text("media_type");
            let media = media.as_deref().unwrap_or(kind);
            let data = source.text("data").filter(|data| !data.is_empty())?;
            Some(format!("data:{media};base64,{}", &*data))
        }
        Some("text") => {
            let data = source.text("data")?;
            Some(format!("data:text/plain;base64,{}", STANDARD.encode(data.as_bytes())))
        }
        Some("file") => source.text("file_id").map(|id| format!("file:{}", &*id)),
        _ => None,
    }
}

impl Part<'_> {
    /// Writes the part; `rich`: with its cache breakpoint.
    pub(super) fn put(&self, out: &mut Vec<u8>, rich: bool) {
        out.push(b'{');
        let cache = match self {
            Self::Text { text, cache } => {
                put_member(out, "type", "text");
                put_member(out, "text", text);
                cache
            }
            Self::Image { url, cache } => {
                put_member(out, "type", "image_url");
                put_name(out, "image_url");
                out.push(b'{');
                put_member(out, "url", url);
                out.push(b'}');
                cache
            }
            Self::File { data, name, cache } => {
                put_member(out, "type", "file");
                put_name(out, "file");
                out.push(b'{');
                // OpenAI wants a name beside data.
                put_member(out, "filename", name.unwrap_or("document.pdf"));
                put_member(out, "file_data", data);
                out.push(b'}');
                cache
            }
        };
        if let Some(cache) = cache.filter(|_| rich) {
            put_raw(out, "cache_control", cache.get());
        }
        out.push(b'}');
    }
}
