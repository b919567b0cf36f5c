//! `/v1/models`: what this key may ask for, in the caller's dialect.

use super::intake::{Taken, local};
use crate::flow::Ticket;
use pingora::Result;
use serde_json::{Value, json};
use weir_filters::dialect::Dialect;
use weir_filters::error::{ApiError, Code};

/// No model of ours has a birthday; a fixed one keeps the answer the same every time.
const CREATED: &str = "2026-01-01T00:00:00Z";
const CREATED_UNIX: u64 = 1_767_225_600;

/// `GET /v1/models`
///
/// # Errors
/// A header that cannot be built.
pub fn list(ticket: &Ticket) -> Result<Taken> {
    let names = ticket.key.as_deref().map(|key| ticket.models(key)).unwrap_or_default();
    let dialect = ticket.arrival.dialect;
    let data: Vec<Value> = names.iter().map(|name| model(dialect, name)).collect();
    let body = match dialect {
        Dialect::OpenAi => json!({ "object": "list", "data": data }),
        Dialect::Anthropic => json!({
            "data": data,
            "first_id": names.first(),
            "last_id": names.last(),
            "has_more": false,
        }),
    };
    local(ticket, body.to_string().into())
}

/// `GET /v1/models/{id}`
///
/// # Errors
/// A header that cannot be built.
pub fn one(ticket: &Ticket) -> Result<Taken> {
    let name = ticket.arrival.path.strip_prefix("/v1/models/").unwrap_or("");
    let name = percent_decoded(name);
    let Some(key) = ticket.key.as_deref() else {
        return Ok(Taken::Refused(ApiError::new(Code::InvalidApiKey, "no API key")));
    };
    match ticket.model(key, &name) {
        Ok(_) => local(ticket, model(ticket.arrival.dialect, &name).to_string().into()),
        Err(refused) => Ok(Taken::Refused(refused)),
    }
}

fn model(dialect: Dialect, name: &str) -> Value {
    match dialect {
        Dialect::OpenAi => {
            json!({ "id": name, "object": "model", "created": CREATED_UNIX, "owned_by": "weir" })
        }
        Dialect::Anthropic => {
            json!({ "type": "model", "id": name, "display_name": name, "created_at": CREATED })
        }
    }
}

/// `%2F` and its like; what is no escape stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()).filter(|_| byte == b'%') {
            Some(decoded) => {
                out.push(decoded);
                rest = tail.get(2..).unwrap_or(&[]);
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_stray_percents_stay() {
        assert_eq!(percent_decoded("openai%2Fgpt-4o"), "openai/gpt-4o");
        assert_eq!(percent_decoded("100%"), "100%");
        assert_eq!(percent_decoded("%zz%2"), "%zz%2");
    }
}
