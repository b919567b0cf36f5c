//! Usage as OpenAI-like providers write it: read into classes, and made good for the caller.

use super::members::{Members, put_key};
use crate::usage::Usage;
use std::borrow::Cow;

/// The numbers as they stand, cached and reasoning under any of their names (DeepSeek writes
/// `prompt_cache_hit_tokens`, Moonshot `cached_tokens`).
struct Numbers {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    cached: u64,
    cache_write: u64,
    reasoning: u64,
}

impl Numbers {
    fn of(usage: &Members<'_>) -> Self {
        let prompt = usage.object("prompt_tokens_details").unwrap_or_default();
        let completion = usage.object("completion_tokens_details").unwrap_or_default();
        let first = |names: [Option<u64>; 3]| names.into_iter().flatten().find(|n| *n > 0);
        let cached = [
            prompt.number("cached_tokens"),
            usage.number("prompt_cache_hit_tokens"),
            usage.number("cached_tokens"),
        ];
        let reasoning =
            [completion.number("reasoning_tokens"), usage.number("reasoning_tokens"), None];
        Self {
            prompt: usage.number("prompt_tokens"),
            completion: usage.number("completion_tokens"),
            total: usage.number("total_tokens"),
            cached: first(cached).unwrap_or(0),
            cache_write: prompt.number("cache_write_tokens").unwrap_or(0),
            reasoning: first(reasoning).unwrap_or(0),
        }
    }
}

/// Reads a usage object; `None` where it counts nothing. Cached tokens are inside `prompt_tokens`
/// and reasoning inside `completion_tokens`; recorded providers overstate both, so they are
/// clamped.
pub(super) fn read(json: &str) -> Option<Usage> {
    let n = Numbers::of(&Members::read(json)?);
    if n.prompt.is_none() && n.completion.is_none() {
        return None;
    }
    let (prompt, completion) = (n.prompt.unwrap_or(0), n.completion.unwrap_or(0));
    // xAI counts reasoning beside the completion, and only its total tells.
    let beside = n.reasoning > 0
        && n.total.is_some()
        && n.total == prompt.checked_add(completion).and_then(|sum| sum.checked_add(n.reasoning));
    let output = if beside { completion.saturating_add(n.reasoning) } else { completion };
    let cached = n.cached.min(prompt);
    let cache_write = n.cache_write.min(prompt - cached);
    Some(Usage {
        input: prompt - cached - cache_write,
        cached,
        cache_write,
        output,
        reasoning: n.reasoning.min(output),
    })
}

/// The provider's usage object as a caller may see it: its own bytes where they hold to the
/// specification, else with the three counts as integers and the cached ones where clients look.
pub(super) fn for_caller(json: &str) -> Option<Cow<'_, str>> {
    let usage = Members::read(json)?;
    let n = Numbers::of(&usage);
    let (prompt, completion) = (n.prompt.unwrap_or(0), n.completion.unwrap_or(0));
    let least = prompt.saturating_add(completion);
    let details = usage.object("prompt_tokens_details");
    let cached = details.as_ref().and_then(|d| d.number("cached_tokens")).unwrap_or(0);
    let object = |name| usage.get(name).is_none_or(|v| v.get().starts_with('{'));
    let sound = n.prompt.is_some()
        && n.completion.is_some()
        && n.total.is_some_and(|total| total >= least)
        && cached == n.cached
        && object("prompt_tokens_details")
        && object("completion_tokens_details");
    if sound {
        return Some(Cow::Borrowed(json));
    }
    if n.prompt.is_none() && n.completion.is_none() {
        return None;
    }
    let total = n.total.unwrap_or(0).max(least);
    let mut out = counts(prompt, completion, total);
    if let Some(details) = usage.object("completion_tokens_details") {
        put_key("completion_tokens_details", &mut out);
        out.push(b'{');
        details.put_rest(&[], &mut out);
        out.push(b'}');
    }
    put_key("prompt_tokens_details", &mut out);
    out.extend_from_slice(format!(r#"{{"cached_tokens":{}"#, n.cached).as_bytes());
    details.unwrap_or_default().put_rest(&["cached_tokens"], &mut out);
    out.push(b'}');
    usage.put_rest(&KNOWN, &mut out);
    out.push(b'}');
    String::from_utf8(out).ok().map(Cow::Owned)
}

const KNOWN: [&str; 5] = [
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
];

/// A usage object of numbers that we counted ourselves.
pub(super) fn made(prompt: u64, completion: u64) -> String {
    let mut out = counts(prompt, completion, prompt.saturating_add(completion));
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

/// An object of the three counts, still open.
fn counts(prompt: u64, completion: u64, total: u64) -> Vec<u8> {
    let text = format!(
        r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}"#
    );
    text.into_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // tests
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, output: u64, reasoning: u64) -> Usage {
        Usage { input, cached, cache_write: 0, output, reasoning }
    }

    #[test]
    fn cached_tokens_are_a_part_of_the_prompt_c01() {
        let json = r#"{"prompt_tokens":10000,"completion_tokens":500,"total_tokens":10500,
            "prompt_tokens_details":{"cached_tokens":8000}}"#;
        assert_eq!(read(json), Some(usage(2000, 8000, 500, 0)));
    }

    #[test]
    fn reasoning_tokens_are_a_part_of_the_completion_k08() {
        let json = r#"{"prompt_tokens":1,"completion_tokens":500,"total_tokens":501,
            "completion_tokens_details":{"reasoning_tokens":400}}"#;
        assert_eq!(read(json), Some(usage(1, 0, 500, 400)));
    }

    #[test]
    fn reasoning_beside_the_completion_is_seen_by_its_total() {
        let json = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":22,
            "completion_tokens_details":{"reasoning_tokens":7}}"#;
        assert_eq!(read(json), Some(usage(10, 0, 12, 7)));
    }

    #[test]
    fn overstated_parts_are_clamped_c01() {
        let json = r#"{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8,
            "prompt_tokens_details":{"cached_tokens":163},"reasoning_tokens":5}"#;
        assert_eq!(read(json), Some(usage(0, 7, 1, 1)));
    }

    #[test]
    fn a_sound_usage_keeps_its_bytes_and_another_is_made_good() {
        let sound = r#"{"total_tokens": 3,"prompt_tokens":1,"completion_tokens":2,"x":1.50}"#;
        assert_eq!(for_caller(sound), Some(Cow::Borrowed(sound)));
        let odd = r#"{"prompt_tokens":5,"prompt_cache_hit_tokens":4,"total_tokens":null}"#;
        let made: serde_json::Value = serde_json::from_str(&for_caller(odd).unwrap()).unwrap();
        assert_eq!(made["completion_tokens"], 0);
        assert_eq!(made["total_tokens"], 5);
        assert_eq!(made["prompt_tokens_details"]["cached_tokens"], 4);
        assert_eq!(made["prompt_cache_hit_tokens"], 4);
        assert_eq!(for_caller("{}"), None);
        assert_eq!(read(r#"{"queue_time":1}"#), None);
    }
}
