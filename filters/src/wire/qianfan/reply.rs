//! What Qianfan answers: frames with `result` and `is_end`, or one without `is_end`; errors are
//! 200s with `error_code`.

use crate::chat::raw::{Text, lenient};
use crate::error::{Class, ErrorMap, classify_event};
use crate::tokens::Channel;
use crate::usage::Usage;
use crate::wire::listen::Reader;
use crate::wire::scribe::Scribe;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Its `error_code`s, which always come with status 200 (cloud.baidu.com, error codes of the
/// wenxinworkshop API).
const ERRORS: [(&str, Class); 16] = [
    ("4", Class::RateLimited),
    ("18", Class::RateLimited),
    ("336501", Class::RateLimited),
    ("336502", Class::RateLimited),
    ("17", Class::Quota),
    ("19", Class::Quota),
    ("110", Class::Auth),
    ("111", Class::Auth),
    ("336100", Class::Overloaded),
    ("336001", Class::BadRequest),
    ("336002", Class::BadRequest),
    ("336003", Class::BadRequest),
    ("336004", Class::BadRequest),
    ("336005", Class::BadRequest),
    ("336006", Class::BadRequest),
    ("336007", Class::BadRequest),
];

/// Every frame says all there is to know.
#[derive(Debug)]
pub(super) struct Speech;

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    is_end: Option<bool>,
    is_truncated: Option<bool>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<Tokens>,
    #[serde(borrow)]
    function_call: Option<Call<'a>>,
    #[serde(borrow)]
    error_code: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Cumulative: every frame repeats it, the last one wins.
#[derive(Clone, Copy, Deserialize)]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
}

impl Reader for Speech {
    fn object(&mut self, _: Option<&str>, data: &[u8], scribe: &mut Scribe) {
        let Ok(frame) = serde_json::from_slice::<Frame<'_>>(data) else {
            return scribe.fail(Class::Invalid, "a frame of the reply cannot be read");
        };
        if frame.error_code.is_some() || frame.error.is_some() {
            return scribe.failed(ErrorMap::new(ERRORS).refine(classify_event(data), true));
        }
        let id = frame.id.as_ref().filter(|id| !id.is_empty());
        scribe.id = scribe.id.take().or(id.map(|id| id.0.clone().into_owned()));
        if let Some(Tokens { prompt_tokens: Some(prompt), completion_tokens }) = frame.usage {
            let output = completion_tokens.unwrap_or_default();
            scribe.usage = Some(Usage::from_openai(prompt, 0, 0, output, 0));
        }
        if let Some(result) = frame.result {
            scribe.say(0, Channel::Content, result);
        }
        if let Some(call) = &frame.function_call
            && let Some(name) = call.name.as_deref().filter(|name| !name.is_empty())
        {
            let number = scribe.call(0, None, name);
            let arguments = call.arguments.as_deref().filter(|text| !text.trim().is_empty());
            scribe.arguments(0, number, arguments.unwrap_or("{}"));
        }
        // A whole reply has no `is_end`; a frame that says nothing at all is none.
        let says = frame.result.is_some() || frame.function_call.is_some();
        if frame.is_end.unwrap_or(says) {
            scribe.open(0);
            scribe.finish(0, finish_reason(&frame, scribe.tools(0) > 0));
            scribe.complete();
        }
    }
}

/// `normal`, `stop`, `function_call` and words that are not known yet: a call or a stop.
fn finish_reason(frame: &Frame<'_>, tools: bool) -> &'static str {
    match frame.finish_reason.as_deref() {
        Some("length") => "length",
        Some("content_filter") => "content_filter",
        None if frame.is_truncated == Some(true) => "length",
        _ if tools => "tool_calls",
        _ => "stop",
    }
}
