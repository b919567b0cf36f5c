//! A reply that is no stream: the provider's own bytes where they hold to the specification.

use super::assemble;
use super::plain;
use super::state::State;
use crate::error::{Class, Failure, classify_event};
use crate::wire::{ReplyContext, Whole};
use bytes::Bytes;

/// Characters of a body that is no answer, for the message.
const SHOWN_CHARS: usize = 200;

/// Reads a JSON reply with status 200.
pub(in crate::wire) fn whole(body: Bytes, context: ReplyContext) -> Result<Whole, Failure> {
    let Ok(text) = std::str::from_utf8(&body) else {
        return Err(invalid("the provider's reply is not UTF-8"));
    };
    // Providers pad with blank lines while they queue.
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let lines = ["data:", "event:", "id:", "retry:", ":"];
    if lines.iter().any(|line| text.starts_with(line)) {
        return assemble::assemble(body, context);
    }
    let mut state = State::new(context, true);
    let read = plain::completion(text).or_else(|| serde_json::from_str(text).ok());
    if let Some(completion) = read
        && state.fits_whole(&completion)
        && let Some(usage) = completion.usage.0.sound()
    {
        state.pass_whole(&completion);
        state.tap.usage = Some(usage);
        let body = body.slice(body.len() - text.len()..);
        return Ok(Whole { body, tap: state.tap });
    }
    check(text)?;
    let mut out = Vec::with_capacity(text.len() + 256);
    if !state.repair(text, &mut out)? {
        return Err(invalid("the provider's reply has no choices"));
    }
    match state.failure.take() {
        Some(failure) => Err(failure),
        None => Ok(Whole { body: out.into(), tap: state.tap }),
    }
}

/// The text is a JSON object, which may be an answer.
///
/// # Errors
/// What it is instead.
pub(super) fn check(text: &str) -> Result<(), Failure> {
    if text.trim().is_empty() {
        return Err(invalid("the provider's reply is empty"));
    }
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        let shown: String = text.trim().chars().take(SHOWN_CHARS).collect();
        return Err(invalid(&format!("the provider's reply is no JSON: {shown}")));
    }
    // Some send an array with the error in it.
    if text.trim_start().starts_with('[') && text.contains("\"error\"") {
        return Err(classify_event(text.as_bytes()));
    }
    Ok(())
}

fn invalid(message: &str) -> Failure {
    Failure::new(Class::Invalid, 200, message)
}
