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

/// A page of Anthropic's list where the caller does not say, and its largest (Anthropic API,
/// "List Models"). OpenAI's list has no pages.
const PAGE: usize = 20;
const PAGE_MAX: usize = 1000;

/// `GET /v1/models`
///
/// # Errors
/// A header that cannot be built.
pub fn list(ticket: &Ticket, query: &str) -> Result<Taken> {
    let names = ticket.key.as_deref().map(|key| ticket.models(key)).unwrap_or_default();
    let dialect = ticket.arrival.dialect;
    let all = |names: &[String]| names.iter().map(|name| model(dialect, name)).collect::<Vec<_>>();
    let body = match dialect {
        Dialect::OpenAi => json!({ "object": "list", "data": all(&names) }),
        Dialect::Anthropic => match Page::asked(query).and_then(|page| page.of(&names)) {
            Err(refused) => return Ok(Taken::Refused(refused)),
            Ok((page, has_more)) => json!({
                "data": all(page),
                "first_id": page.first(),
                "last_id": page.last(),
                "has_more": has_more,
            }),
        },
    };
    local(ticket, body.to_string().into())
}

/// Which part of a list is asked for.
#[derive(Debug, Default)]
struct Page {
    limit: Option<usize>,
    after: Option<String>,
    before: Option<String>,
}

impl Page {
    fn asked(query: &str) -> Result<Self, ApiError> {
        let mut page = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decoded(value);
            match name {
                "limit" => {
                    let limit = value.parse().ok().filter(|n| (1..=PAGE_MAX).contains(n));
                    let why = format!("limit is a number from 1 to {PAGE_MAX}");
                    page.limit = Some(limit.ok_or_else(|| wrong("limit", &why))?);
                }
                "after_id" => page.after = Some(value),
                "before_id" => page.before = Some(value),
                _ => {}
            }
        }
        if page.after.is_some() && page.before.is_some() {
            return Err(wrong("before_id", "a page is after_id or before_id, not both"));
        }
        Ok(page)
    }

    /// The names of the page, and whether more follow in its direction.
    fn of<'a>(&self, names: &'a [String]) -> Result<(&'a [String], bool), ApiError> {
        let limit = self.limit.unwrap_or(PAGE);
        let find = |param: &str, id: &str| {
            let at = names.iter().position(|name| name == id);
            at.ok_or_else(|| wrong(param, &format!("{param}: no model of this list has this id")))
        };
        if let Some(before) = &self.before {
            let end = find("before_id", before)?;
            let start = end.saturating_sub(limit);
            return Ok((names.get(start..end).unwrap_or_default(), start > 0));
        }
        let start = match &self.after {
            Some(after) => find("after_id", after)? + 1,
            None => 0,
        };
        let end = names.len().min(start.saturating_add(limit));
        Ok((names.get(start..end).unwrap_or_default(), end < names.len()))
    }
}

fn wrong(param: &str, why: &str) -> ApiError {
    ApiError::new(Code::InvalidRequest, why).param(param)
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
