//! What a reply's headers say is left of a provider's limits, before the first 429.
//!
//! OpenAI and Azure, Groq and others after them: `x-ratelimit-{limit,remaining,reset}-{requests,
//! tokens}`, with durations. Anthropic: `anthropic-ratelimit-{requests,tokens,input-tokens,
//! output-tokens}-{limit,remaining,reset}`, with RFC 3339 times.

use super::wait;
use std::time::Duration;

/// Less than this part of a limit is left for the calls that are on their way already.
const LOW_PART: u64 = 50;
/// A limit that is low, not used up, has enough again after this part of its whole refill.
const REFILL_PART: u32 = 4;

/// So little is left that another request like this one may be turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// Until there is enough again, where the provider says.
    pub reset: Option<Duration>,
}

/// One limit: its headers for what is left, the most and the reset, and whether it counts tokens.
struct Names {
    left: &'static str,
    most: &'static str,
    reset: &'static str,
    tokens: bool,
}

const fn names(left: &'static str, most: &'static str, reset: &'static str, tokens: bool) -> Names {
    Names { left, most, reset, tokens }
}

const COMMON: [Names; 2] = [
    names(
        "x-ratelimit-remaining-requests",
        "x-ratelimit-limit-requests",
        "x-ratelimit-reset-requests",
        false,
    ),
    names(
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-reset-tokens",
        true,
    ),
];
const ANTHROPIC: [Names; 3] = [
    names(
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-reset",
        false,
    ),
    names(
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-reset",
        true,
    ),
    names(
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-reset",
        true,
    ),
];

/// Whether a limit has too little left for another request of `tokens` prompt tokens. `header`
/// looks up lower-case names; its `date` is what times are counted from.
#[must_use]
pub fn spent(
    anthropic: bool,
    tokens: u64,
    header: &dyn Fn(&str) -> Option<String>,
) -> Option<Spent> {
    let all: &[Names] = if anthropic { &ANTHROPIC } else { &COMMON };
    let found = all.iter().filter_map(|names| of(names, tokens, header));
    // The one that lasts longest; where its end is not told, that is for the caller to guess.
    found.max_by_key(|spent| spent.reset)
}

fn of(names: &Names, tokens: u64, header: &dyn Fn(&str) -> Option<String>) -> Option<Spent> {
    // Azure writes -1 where it counts nothing.
    let left: u64 = header(names.left)?.trim().parse().ok()?;
    let gone = left == 0 || (names.tokens && left < tokens);
    let low = || {
        let most = header(names.most).and_then(|most| most.trim().parse::<u64>().ok());
        most.is_some_and(|most| left < most / LOW_PART)
    };
    if !gone && !low() {
        return None;
    }
    let reset = header(names.reset).and_then(|text| wait::from_reset(&text, header));
    Some(Spent { reset: reset.map(|d| if gone { d } else { d / REFILL_PART }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(anthropic: bool, tokens: u64, pairs: &[(&str, &str)], want: Option<Option<u64>>) {
        let look = |name: &str| {
            pairs.iter().find(|(k, _)| *k == name).map(|(_, value)| (*value).to_owned())
        };
        let got = spent(anthropic, tokens, &look);
        let want = want.map(|ms| Spent { reset: ms.map(Duration::from_millis) });
        assert_eq!(got, want, "{pairs:?}");
    }

    #[test]
    fn what_is_used_up_or_nearly_so_is_heard_in_openai_s_words() {
        let (left, most) = ("x-ratelimit-remaining-requests", "x-ratelimit-limit-requests");
        let reset = "x-ratelimit-reset-requests";
        check(false, 9, &[], None);
        check(false, 9, &[(left, "1"), (most, "60"), (reset, "6m0s")], None);
        check(false, 9, &[(left, "0"), (most, "60"), (reset, "6m0s")], Some(Some(360_000)));
        check(false, 9, &[(left, "0")], Some(None));
        check(false, 9, &[(left, "19"), (most, "1000"), (reset, "8s")], Some(Some(2_000)));
        check(false, 9, &[(left, "20"), (most, "1000"), (reset, "8s")], None);
        check(false, 9, &[(left, "-1")], None);
        let (left, reset) = ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens");
        check(false, 9, &[(left, "8"), (reset, "86ms")], Some(Some(86)));
        check(false, 9, &[(left, "9"), (reset, "86ms")], None);
    }

    #[test]
    fn anthropic_s_times_are_counted_from_the_reply_s_date() {
        let pairs = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2024-03-01T00:00:07Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "3"),
            ("anthropic-ratelimit-input-tokens-reset", "2024-03-01T00:00:09Z"),
            ("date", "Thu, 29 Feb 2024 23:59:59 GMT"),
        ];
        check(true, 4, &pairs, Some(Some(10_000)));
        check(true, 3, &pairs, Some(Some(8_000)));
        check(false, 4, &pairs, None);
        check(true, 3, &pairs[..1], Some(None));
    }
}
