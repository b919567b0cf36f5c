//! Usage as OpenAI-like providers write it: read into classes, and made good for the caller.

use super::chunk::Object;
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

    /// Classes that do not overlap.
    fn classes(&self) -> Usage {
        let (prompt, completion) = (self.prompt.unwrap_or(0), self.completion.unwrap_or(0));
        // xAI counts reasoning beside the completion, and only its total tells.
        let beside = self.reasoning > 0
            && self.total.is_some()
            && self.total
                == prompt.checked_add(completion).and_then(|n| n.checked_add(self.reasoning));
        let output = if beside { completion.saturating_add(self.reasoning) } else { completion };
        let cached = self.cached.min(prompt);
        let cache_write = self.cache_write.min(prompt - cached);
        Usage {
            input: prompt - cached - cache_write,
            cached,
            cache_write,
            output,
            reasoning: self.reasoning.min(output),
        }
    }
}

/// A usage object of a JSON reply as it mostly is: integers under OpenAI's names. What does not
/// read into this goes the long way.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Told {
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) total_tokens: u64,
    pub(super) prompt_tokens_details: Option<Object<PromptDetails>>,
    pub(super) completion_tokens_details: Option<Object<CompletionDetails>>,
    pub(super) prompt_cache_hit_tokens: Option<u64>,
    pub(super) cached_tokens: Option<u64>,
    pub(super) reasoning_tokens: Option<u64>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct PromptDetails {
    pub(super) cached_tokens: Option<u64>,
    pub(super) cache_write_tokens: Option<u64>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct CompletionDetails {
    pub(super) reasoning_tokens: Option<u64>,
}

impl Told {
    /// What it counts, if a caller may have it byte for byte.
    pub(super) fn sound(&self) -> Option<Usage> {
        let prompt = self.prompt_tokens_details.as_ref().map(|details| &details.0);
        let completion = self.completion_tokens_details.as_ref().map(|details| &details.0);
        let first = |counts: [Option<u64>; 3]| counts.into_iter().flatten().find(|n| *n > 0);
        let shown = prompt.and_then(|details| details.cached_tokens);
        let cached = first([shown, self.prompt_cache_hit_tokens, self.cached_tokens]);
        let reasoning = completion.and_then(|details| details.reasoning_tokens);
        let numbers = Numbers {
            prompt: Some(self.prompt_tokens),
            completion: Some(self.completion_tokens),
            total: Some(self.total_tokens),
            cached: cached.unwrap_or(0),
            cache_write: prompt.and_then(|details| details.cache_write_tokens).unwrap_or(0),
            reasoning: first([reasoning, self.reasoning_tokens, None]).unwrap_or(0),
        };
        let least = self.prompt_tokens.saturating_add(self.completion_tokens);
        let sound = self.total_tokens >= least && shown.unwrap_or(0) == numbers.cached;
        sound.then(|| numbers.classes())
    }
}

/// Reads a usage object; `None` where it counts nothing. Cached tokens are inside `prompt_tokens`
/// and reasoning inside `completion_tokens`; recorded providers overstate both, so they are
/// clamped.
pub(super) fn read(json: &str) -> Option<Usage> {
    let n = Numbers::of(&Members::read(json)?);
    (n.prompt.is_some() || n.completion.is_some()).then(|| n.classes())
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
    fn the_short_way_says_what_the_long_one_does() {
        for json in [
            r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}"#,
            r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":
                {"cached_tokens":4,"cache_write_tokens":2,"audio_tokens":0},
                "completion_tokens_details":{"reasoning_tokens":1}}"#,
            r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":14,
                "completion_tokens_details":{"reasoning_tokens":3}}"#,
            r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":10}"#,
            r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"cached_tokens":3}"#,
            r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,
                "prompt_tokens_details":null,"prompt_cache_hit_tokens":0,"queue_time":0.25}"#,
        ] {
            let told: Told = serde_json::from_str(json).unwrap();
            let as_it_is = matches!(for_caller(json), Some(Cow::Borrowed(_)));
            assert_eq!(told.sound(), read(json).filter(|_| as_it_is), "{json}");
        }
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
