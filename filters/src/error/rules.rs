//! Which class a failure is: its words where they are known to be telling, else its status.
//!
//! The order matters: providers send a context overflow as 400, 413 or 500, a spent account as 400,
//! 402, 403 or 429, and a bad key as 400, so words are asked before the status. Wordings are from
//! providers' documents and recorded replies.

use super::{Class, words::Words};

/// A prompt above the model's window.
const CONTEXT: [&str; 16] = [
    "context_length_exceeded",
    "prompt is too long",
    "prompt too long",
    "maximum context length",
    "max context length",
    "exceed_context_size",
    "available context size",
    "tokens_too_long",
    "range of input length",
    "maximum prompt length is",
    "exceeds the context window",
    "exceed context limit",
    "model_context_window_exceeded",
    "input is too long for requested model",
    "exceeds the maximum number of tokens allowed",
    // vLLM subtracts the prompt from the window and finds nothing left for max_tokens
    "at least 1, got -",
];

/// Content that the provider refused to read; beside the word `content_filter`.
const CONTENT: [&str; 6] = [
    "datainspectionfailed",
    "data_inspection_failed",
    "content management policy",
    "content_policy",
    "responsibleaipolicyviolation",
    "prompt was flagged",
];

/// An account without money; time alone does not heal it.
const QUOTA: [&str; 9] = [
    "insufficient_quota",
    "insufficient_balance",
    "insufficient balance",
    "arrearage",
    "billing_error",
    "credit balance",
    "billing_not_active",
    "billing_hard_limit_reached",
    "exceeded_current_quota_error",
];

/// A credential that is refused with a 400, or a place that it may not be used from.
const AUTH: [&str; 5] = [
    "api_key_invalid",
    "incorrect api key",
    "invalid api key",
    "api key not valid",
    "location is not supported",
];

/// The class of a failure.
pub(super) fn class(status: u16, words: &Words) -> Class {
    let has = |list: &[&str]| list.iter().any(|needle| words.holds(needle));
    let says = |list: &[&str]| list.iter().any(|needle| words.says(needle));
    // a hit in an echo of the request does no harm to these two: such a reply is a 400 anyway
    if has(&CONTEXT) {
        return Class::ContextLength;
    }
    if words.holds_word("content_filter") || has(&CONTENT) {
        return Class::ContentFilter;
    }
    if status == 402 || says(&QUOTA) {
        return Class::Quota;
    }
    if matches!(status, 413 | 429) && hopeless(words) {
        return Class::RateHopeless;
    }
    match status {
        429 if says(&["server_high_load", "modelnotready"]) => Class::Overloaded,
        429 => Class::RateLimited,
        498 => Class::Overloaded, // Groq: no room in the flex tier
        401 | 403 => Class::Auth,
        _ if says(&AUTH) || words.holds_word("api_key_invalid") => Class::Auth,
        404 if other_thing(words) => Class::BadRequest,
        404 => Class::ModelNotFound,
        _ if no_model(status, words) => Class::ModelNotFound,
        413 => Class::TooLarge,
        408 | 425 | 504 => Class::Timeout,
        _ if words.kind.contains("timeout_error") => Class::Timeout,
        503 | 529 => Class::Overloaded,
        _ if words.says("overloaded") => Class::Overloaded,
        400..=423 | 425..=499 => Class::BadRequest,
        // 424 is Bedrock's "the model failed"; a redirect or another 2xx is no answer either
        _ => Class::Server,
    }
}

/// The status that an error inside a 200 means, when it states none.
pub(super) fn meant(words: &Words) -> u16 {
    let kind = words.kind.to_ascii_lowercase();
    let code = words.code.to_ascii_lowercase();
    let either = |needle: &str| kind.contains(needle) || code.contains(needle);
    if either("rate_limit") || either("throttl") || kind == "resource_exhausted" {
        429
    } else if either("overloaded") {
        529
    } else if either("authentication") {
        401
    } else if either("permission") || either("accessdenied") {
        403
    } else if either("invalid_request")
        || either("validation")
        || either("bad_request")
        || either("inspection")
        || kind == "invalid_argument"
    {
        400
    } else if either("timeout") || kind == "deadline_exceeded" {
        504
    } else if either("serviceunavailable") || kind == "unavailable" {
        503
    } else {
        500
    }
}

/// One request asks for more than a whole minute's limit: "Request too large … on tokens per min
/// (TPM): Limit 6000, Requested 9021".
fn hopeless(words: &Words) -> bool {
    let number = |lead: &str| -> Option<u64> {
        let said = words.said();
        let rest = &said[said.find(lead)? + lead.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    let (Some(limit), Some(asked)) = (number("limit "), number("requested ")) else {
        return false;
    };
    asked > limit || words.says("request too large")
}

/// The words for an unknown model in a 4xx of any number.
fn no_model(status: u16, words: &Words) -> bool {
    if ["model_not_found", "DeploymentNotFound"].contains(&words.code.as_str()) {
        return true;
    }
    let telling = ["invalid_model", "model identifier is invalid", "model not found"];
    let known = telling.iter().any(|needle| words.says(needle)) || words.says("model not exist");
    (400..500).contains(&status) && (known || names_no_model(words.said()))
}

/// "Model some/name does not exist", and the same with quotes around the name.
fn names_no_model(said: &str) -> bool {
    said.match_indices("model ").any(|(at, lead)| {
        let mut words = said[at + lead.len()..].split(' ').skip(1);
        ["does", "not", "exist"].iter().all(|want| {
            words.next().is_some_and(|word| word.trim_end_matches(['.', ',', '"']) == *want)
        })
    })
}

/// A 404 of something that the request itself names: a file, an earlier response.
fn other_thing(words: &Words) -> bool {
    let model = words.says("model") || words.says("deployment");
    !model && words.code.len() > "_not_found".len() && words.code.ends_with("_not_found")
}
