//! Hides what looks like a credential in a text that others will read.

/// What stands in a secret's place.
const HIDDEN: &str = "[hidden]";
/// Beginnings of credentials and account ids that their makers document or print.
const PREFIXES: [&str; 17] = [
    "sk-", "sk_", "pk-", "rk-", "sess-", "org-", "proj_", "gsk_", "xai-", "AIza", "AKIA", "ASIA",
    "hf_", "ghp_", "eyJ", "bce-v3", "ya29.",
];
/// Shorter than this after a prefix is a word, not a secret (`pk-1`).
const PREFIXED_CHARS_MIN: usize = 4;
/// Shorter than this after "key" or "token" is a word, not a secret.
const NAMED_CHARS_MIN: usize = 20;
/// Words after "key" that may stand before the secret itself ("API key provided was: …").
const WORDS_BETWEEN_MAX: usize = 4;

/// Replaces what looks like a credential: a known beginning (`sk-…`, `AIza…`, a JWT), what follows
/// `Bearer` or `Basic`, and any 20 or more token characters with a digit soon after a word that
/// ends in "key", "token", "secret" or "password". Linear in the text's length.
#[must_use]
pub fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut named, mut bearer) = (text, 0, false);
    while !rest.is_empty() {
        let gap = rest.find(is_token).unwrap_or(rest.len());
        out.push_str(&rest[..gap]);
        rest = &rest[gap..];
        let end = rest.find(|c| !is_token(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail;
        if word.is_empty() {
            continue;
        }
        // a name and its value may be one run: `key=…`
        let (name, value) = match word.split_once('=') {
            Some((name, value)) if names(name) => (name, value),
            _ => ("", word),
        };
        let asked = named > 0 || !name.is_empty();
        let long = value.len() >= NAMED_CHARS_MIN;
        let secret = value.split(['/', '=']).any(prefixed)
            || bearer && (long || has_digit(value))
            || asked && long && has_digit(value) && !value.starts_with("//");
        if secret {
            if !name.is_empty() {
                out.push_str(name);
                out.push('=');
            }
            out.push_str(HIDDEN);
            // a sentence's full stop is no part of the secret
            out.push_str(&value[value.trim_end_matches('.').len()..]);
        } else {
            out.push_str(word);
        }
        bearer = word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic");
        bearer = bearer && rest.starts_with(' ');
        named = if names(word) { WORDS_BETWEEN_MAX } else { named.saturating_sub(1) };
    }
    out
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.*+=~/".contains(c)
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit() || b == b'*')
}

fn prefixed(word: &str) -> bool {
    PREFIXES.iter().any(|prefix| {
        word.strip_prefix(prefix)
            .is_some_and(|rest| rest.len() >= PREFIXED_CHARS_MIN && rest.bytes().any(|b| b != b'.'))
    })
}

fn names(word: &str) -> bool {
    let low = word.trim_end_matches(['=', '.', '-']).to_ascii_lowercase();
    ["key", "keys", "token", "secret", "password"].iter().any(|end| low.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden() {
        let secrets = [
            "Incorrect API key provided: sk-prov-SECRET1234. You can find it",
            "Incorrect API key provided: sk-REDA****************3456.",
            "header Authorization: Bearer abc.def-123 was refused",
            "API key not valid: AIzaSyA1234567890abcdefghijklmnopqrst",
            "key=0123456789abcdef0123456789abcdef&alt=sse",
            "The api_key '5f1c2a9e8b7d4c3f9a0b1c2d3e4f5a6b.Qm9vVGhlQ2F0' is disabled",
            "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln expired",
            "GET //proxy/v1/user=sk-live0123 failed",
            "limit reached in organization org-AbCdEf0123456789 on requests",
        ];
        let parts = [
            "SECRET1234",
            "3456",
            "abc.def",
            "SyA123",
            "0123456789ab",
            "5f1c2a",
            "c2ln",
            "live0",
            "AbCdEf",
        ];
        for (text, part) in secrets.iter().zip(parts) {
            let masked = mask(text);
            assert!(masked.contains(HIDDEN) && !masked.contains(part), "{masked}");
        }
        assert_eq!(
            mask("Incorrect API key provided: sk-prov-SECRET1234. You can"),
            "Incorrect API key provided: [hidden]. You can"
        );
    }

    #[test]
    fn plain_words_stay() {
        let texts = [
            "The task-based model gpt-4o-mini-2024-07-18 does not exist, ask-me.",
            "Find your API key at https://platform.openai.com/account/api-keys.",
            "max_tokens is too large: 999999. This model supports at most 16384 tokens",
            "messages.0.content.1.tool_use_id: call_AbCdEf0123456789AbCdEf01 is unknown",
            "基本 key 词 — 没有密钥",
            "",
            "Bearer authentication is required; a key: https://example.com/articles/9876543.",
            "Bearer",
        ];
        for text in texts {
            assert_eq!(mask(text), text);
        }
    }
}
