//! What an error body says: message, code, type, param, whatever its shape.

use super::{BODY_BYTES_MAX, wait};
use serde_json::{Map, Value};
use std::time::Duration;

/// Characters taken of a page's title or of a text that is no JSON.
const TEXT_CHARS_MAX: usize = 400;
/// Faults of a validation list (`detail: [{msg}, …]`) that are told.
const FAULTS_MAX: usize = 8;

/// An error body, read.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub message: String,
    /// As text, whatever its JSON type.
    pub code: String,
    /// `type`, Google's `status`.
    pub kind: String,
    pub param: Option<String>,
    /// A number from 400 to 599 that the object itself carries.
    pub status: Option<u16>,
    /// google.rpc.RetryInfo, or `retry_after` beside the message.
    pub wait: Option<Duration>,
    /// Message, code and type in lower case.
    said: String,
    /// The whole body in lower case.
    body: String,
}

impl Words {
    /// Reads any shape; never fails.
    pub(super) fn read(body: &[u8]) -> Self {
        let body = &body[..body.len().min(BODY_BYTES_MAX)];
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}').trim();
        let mut words = match object(text) {
            Some(object) => Self::of(&object),
            None => Self { message: plain_text(text), ..Self::default() },
        };
        words.body = text.to_ascii_lowercase();
        words.index();
        words
    }

    /// Brings [`Self::says`] up to date.
    pub(super) fn index(&mut self) {
        self.said = format!("{} {} {}", self.message, self.code, self.kind).to_ascii_lowercase();
    }

    /// Message, code or type hold this lower-case text.
    pub(super) fn says(&self, needle: &str) -> bool {
        self.said.contains(needle)
    }

    /// The body holds this lower-case text anywhere. Only where a false hit is harmless: providers
    /// echo parts of the request.
    pub(super) fn holds(&self, needle: &str) -> bool {
        self.says(needle) || self.body.contains(needle)
    }

    /// As [`Self::holds`], with no letter, digit or `_` beside it.
    pub(super) fn holds_word(&self, needle: &str) -> bool {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        [&self.said, &self.body].into_iter().any(|text| {
            text.match_indices(needle).any(|(at, _)| {
                !text[..at].ends_with(part) && !text[at + needle.len()..].starts_with(part)
            })
        })
    }

    /// Message, code and type in lower case.
    pub(super) fn said(&self) -> &str {
        &self.said
    }

    fn of(whole: &Map<String, Value>) -> Self {
        // Responses: {"type":"response.failed","response":{"error":{…}}}
        let whole = match whole.get("response") {
            Some(Value::Object(inner)) if inner.contains_key("error") => inner,
            _ => whole,
        };
        let inner = match (whole.get("error"), whole.get("base_resp")) {
            (Some(Value::Object(inner)), _) => inner,
            // MiniMax: {"choices":null,"base_resp":{"status_code":1008,"status_msg":"…"}}
            (None, Some(Value::Object(inner))) => inner,
            _ => whole,
        };
        let text = |key: &str| inner.get(key).and_then(Value::as_str);
        Self {
            message: message(inner, whole),
            code: ["code", "error_code", "status_code"]
                .into_iter()
                .find_map(|key| inner.get(key).and_then(scalar))
                .unwrap_or_default(),
            kind: text("type")
                .filter(|kind| *kind != "error")
                .or_else(|| text("status"))
                .unwrap_or_default()
                .to_owned(),
            param: text("param").map(str::to_owned),
            status: own_status(inner),
            wait: retry_info(inner),
            ..Self::default()
        }
    }
}

/// The object of a body: itself, the first of an array (Gemini without `alt=sse`), or the data of
/// the first event where a provider frames even its 4xx as SSE.
fn object(text: &str) -> Option<Map<String, Value>> {
    let value = serde_json::from_str(text).ok().or_else(|| {
        let data = text.lines().find_map(|line| line.strip_prefix("data:"))?;
        serde_json::from_str(data).ok()
    })?;
    match value {
        Value::Object(object) => Some(object),
        Value::Array(list) => list.into_iter().find_map(|item| match item {
            Value::Object(object) => Some(object),
            _ => None,
        }),
        _ => None,
    }
}

/// The words for people, wherever they stand.
fn message(inner: &Map<String, Value>, whole: &Map<String, Value>) -> String {
    let keys = ["message", "error", "error_msg", "status_msg", "msg", "detail", "errorMessage"];
    keys.into_iter()
        .find_map(|key| inner.get(key).and_then(told))
        .or_else(|| keys.into_iter().find_map(|key| whole.get(key).and_then(told)))
        .unwrap_or_default()
}

/// A message that may be a string, a list of validation faults, or an object around either.
fn told(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.trim().is_empty() => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let faults: Vec<String> = list.iter().take(FAULTS_MAX).filter_map(told).collect();
            (!faults.is_empty()).then(|| faults.join("; "))
        }
        Value::Object(object) => {
            let text = ["msg", "message", "detail"]
                .into_iter()
                .find_map(|key| object.get(key).and_then(told))?;
            match object.get("loc").and_then(Value::as_array) {
                Some(path) => {
                    let path: Vec<String> = path.iter().filter_map(scalar).collect();
                    Some(format!("{}: {text}", path.join(".")))
                }
                None => Some(text),
            }
        }
        _ => None,
    }
}

/// A code as text: providers send strings and numbers alike.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// An HTTP status that the object states as a number or digits.
fn own_status(inner: &Map<String, Value>) -> Option<u16> {
    ["status_code", "statusCode", "code", "http_code", "raw_status_code", "status"]
        .into_iter()
        .filter_map(|key| inner.get(key).and_then(integer))
        .find_map(|code| u16::try_from(code).ok().filter(|code| (400..600).contains(code)))
}

/// google.rpc.RetryInfo: `details: [{"@type": "…RetryInfo", "retryDelay": "18.5s"}]`.
fn retry_info(inner: &Map<String, Value>) -> Option<Duration> {
    let details = inner.get("details")?.as_array()?;
    let delay = details.iter().find_map(|item| item.get("retryDelay")?.as_str())?;
    wait::parse_wait(delay)
}

/// What to say of a body that is no JSON: a page's title, never its markup; else its text.
fn plain_text(text: &str) -> String {
    if !text.starts_with('<') {
        return squeeze(text);
    }
    // lowered ASCII only, so that offsets hold in the original too
    let low = text.to_ascii_lowercase();
    ["title", "h1", "message"]
        .into_iter()
        .find_map(|tag| {
            let from = low.find(&format!("<{tag}"))?;
            let from = from + low[from..].find('>')? + 1;
            let to = from + low[from..].find('<')?;
            Some(squeeze(&text[from..to])).filter(|title| !title.is_empty())
        })
        .unwrap_or_else(|| "a page of markup".to_owned())
}

/// White space runs become one blank; at most [`TEXT_CHARS_MAX`] characters.
fn squeeze(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(TEXT_CHARS_MAX).collect();
    words.join(" ").chars().take(TEXT_CHARS_MAX).collect()
}
