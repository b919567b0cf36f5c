//! Secrets out of a text: what looks like one leaves a log as `***`.

use std::borrow::Cow;

/// A shorter value after a key-like word is a name, not a secret.
const SECRET_CHARS_MIN: usize = 12;
/// A shorter tail after a vendor's prefix is no credential.
const TAIL_CHARS_MIN: usize = 6;
/// Prefixes by which vendors make their credentials known.
const PREFIXES: &[&str] =
    &["sk-", "sk_", "pk-", "gsk_", "xai-", "hf_", "r8_", "AIza", "AKIA", "ASIA", "ghp_", "eyJ"];
/// What a byte may be the beginning of: a log line is mostly made of others.
const BEGINS: [u8; 256] = {
    let mut begins = [0; 256];
    begins[b'=' as usize] = ANYWHERE;
    begins[b':' as usize] = ANYWHERE;
    begins[b'B' as usize] = A_WORD;
    begins[b'b' as usize] = A_WORD;
    let mut prefixes: &[&str] = PREFIXES;
    while let [first, rest @ ..] = prefixes {
        begins[first.as_bytes()[0] as usize] = A_WORD;
        prefixes = rest;
    }
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        if b.is_ascii_alphanumeric() || b == b'_' || b == b'-' {
            begins[byte] |= GOES_ON;
        }
        byte += 1;
    }
    begins
};
/// A secret is announced here, whatever stands before.
const ANYWHERE: u8 = 1;
/// A secret begins here, where a word does.
const A_WORD: u8 = 2;
/// No word begins behind it. One bit above [`A_WORD`].
const GOES_ON: u8 = 4;
/// Words before `=` or `:` that announce a secret, in any case, as a name's ending.
const WORDS: &[&str] = &[
    "key",
    "token",
    "secret",
    "password",
    "passwd",
    "authorization",
    "credential",
    "signature",
    "sig",
];

/// The text without its secrets: credentials by their vendor's prefix, `Bearer …`, `?key=…` and
/// its kin in URLs, `user:password@` in URLs, and long mixed values after a word such as
/// `token`. Borrowed when there is nothing to hide.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = next(bytes, at) {
        match secret_at(bytes, found) {
            Some((from, to)) => {
                out.push_str(&text[copied..from]);
                out.push_str("***");
                (copied, at) = (to, to);
            }
            None => at = found + 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The first place from `at` on where a secret may begin or be announced.
fn next(text: &[u8], at: usize) -> Option<usize> {
    let mut before = at.checked_sub(1).map_or(0, |last| BEGINS[usize::from(text[last])]);
    let found = text[at..].iter().position(|byte| {
        let kind = BEGINS[usize::from(*byte)];
        // No word begins in a word.
        let asks = kind & (ANYWHERE | A_WORD) & !((before & GOES_ON) >> 1);
        before = kind;
        asks != 0
    });
    found.map(|found| at + found)
}

/// The secret that begins at `at` or is announced there: a range on ASCII borders.
fn secret_at(text: &[u8], at: usize) -> Option<(usize, usize)> {
    match text[at] {
        b'=' | b':' => announced(text, at).or_else(|| userinfo(text, at)),
        b'B' | b'b' => bearer(text, at),
        _ => prefixed(text, at),
    }
}

fn prefixed(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let prefix = PREFIXES.iter().find(|p| text[at..].starts_with(p.as_bytes()))?;
    let from = at + prefix.len();
    let to = end_of(text, from);
    (to - from >= TAIL_CHARS_MIN).then_some((from, to))
}

fn bearer(text: &[u8], at: usize) -> Option<(usize, usize)> {
    const WORD: &[u8] = b"bearer";
    let word = text.get(at..at + WORD.len())?;
    let gap = text[at + WORD.len()..].iter().take_while(|b| **b == b' ').count();
    let from = at + WORD.len() + gap;
    let to = end_of(text, from);
    // "bearer of news" is prose: short words of letters alone stay.
    let secret = to - from >= SECRET_CHARS_MIN || text[from..to].iter().any(u8::is_ascii_digit);
    (word.eq_ignore_ascii_case(WORD) && gap > 0 && to > from && secret).then_some((from, to))
}

/// A value behind `word=`, `word: ` or `"word":"`.
fn announced(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut end = at;
    while end > 0 && matches!(text[end - 1], b'"' | b'\'' | b' ' | b'\\') {
        end -= 1;
    }
    let start = text[..end].iter().rposition(|b| !is_name(*b)).map_or(0, |i| i + 1);
    let name = &text[start..end];
    WORDS.iter().find(|word| {
        let tail = name.len().checked_sub(word.len()).map(|i| &name[i..]);
        tail.is_some_and(|t| t.eq_ignore_ascii_case(word.as_bytes()))
    })?;
    let skipped = |b: &u8| matches!(b, b' ' | b'"' | b'\'' | b'\\');
    let from = at + 1 + text[at + 1..].iter().take_while(|b| skipped(b)).count();
    let to = end_of(text, from);
    let value = &text[from..to];
    let query = start > 0 && matches!(text[start - 1], b'?' | b'&') && text[at] == b'=';
    let mixed = value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic);
    let long = value.len() >= SECRET_CHARS_MIN && mixed;
    ((query || long) && to > from).then_some((from, to))
}

/// `scheme://user:password@host`: what stands between `//` and `@`.
fn userinfo(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let from = at + 3;
    if text.get(at..from)? != b"://" {
        return None;
    }
    let ends = |b: &u8| matches!(b, b'/' | b'?' | b'#' | b'"' | b'\'') || b.is_ascii_whitespace();
    let host = from + text[from..].iter().position(ends).unwrap_or(text.len() - from);
    let to = from + text[from..host].iter().rposition(|b| *b == b'@')?;
    (to > from).then_some((from, to))
}

fn end_of(text: &[u8], from: usize) -> usize {
    from + text[from..].iter().take_while(|b| is_value(**b)).count()
}

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'-'
}

fn is_value(b: u8) -> bool {
    is_name(b) || matches!(b, b'.' | b'+' | b'/' | b'=' | b'~' | b'%')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_of_a_secret_is_hidden_and_its_place_is_kept() {
        let check = |from: &str, to: &str| assert_eq!(redact(from), to);
        check("key sk-proj-abc123def456 refused", "key sk-*** refused");
        check("sk-weir-0a1b2c3d4e", "sk-***");
        check("authorization: Bearer abc.def-123", "authorization: Bearer ***");
        check("GET /v1/x?alt=sse&key=AIzaSyA1234567 HTTP", "GET /v1/x?alt=sse&key=*** HTTP");
        check("/x?api_key=abc&b=1", "/x?api_key=***&b=1");
        check(r#"{"x-api-key": "0123456789abcdef0123"}"#, r#"{"x-api-key": "***"}"#);
        check("token=4f9a8b7c6d5e4f3a2b1c", "token=***");
        check("redis://weir:pw@host:6379/0", "redis://***@host:6379/0");
        check("eyJhbGciOi.eyJzdWIi.c2ln", "eyJ***");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in [
            "task-summarize-long of team risk-management-1",
            "key=ci team=search model=gpt-4o",
            "max_tokens: 4096, output_tokens=128",
            "the bearer of news",
            "http://127.0.0.1:8080/v1/chat/completions?x=1",
            "2026-01-01T00:00:00Z listening",
            "völlig ✓ ungefährlich: key",
            "",
        ] {
            assert!(matches!(redact(text), Cow::Borrowed(t) if t == text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_secret_survives_in_any_text(
            before in "[a-z äß✓.,:;{}\\[\\]]{0,30}",
            secret in "[A-Za-z0-9_-]{20,60}",
            after in "([ \"',;)}][a-z äß✓]{0,20})?",
            form in 0..5usize,
        ) {
            // A mixed value, whatever was drawn: letters and digits both.
            let secret = format!("a1{secret}");
            let text = match form {
                0 => format!("{before} sk-{secret}{after}"),
                1 => format!("{before} Bearer {secret}{after}"),
                2 => format!("{before} /v1?key={secret}{after}"),
                3 => format!("{before} \"api_key\":\"{secret}\"{after}"),
                _ => format!("{before} https://u:{secret}@host/x{after}"),
            };
            let clean = redact(&text).into_owned();
            prop_assert!(!clean.contains(&secret), "{clean}");
            prop_assert!(clean.starts_with(&before) && clean.ends_with(&after), "{clean}");
            let again = redact(&clean);
            prop_assert_eq!(again.as_ref(), clean.as_str());
        }

        #[test]
        fn any_text_at_all_is_taken(text in "\\PC{0,200}") {
            let _ = redact(&text);
        }
    }
}
