//! One pass over JSON bytes: checks the whole grammar, gives the spans of the outermost members.
//!
//! No tree, no recursion (open brackets are bits of one word), no allocation but the member list
//! and the names in the open objects.

use super::fault::{Fault, What};
use super::names::Names;
use super::{DEPTH_MAX, Member};
use std::ops::Range;

/// More top-level members are refused: chat bodies have some twenty, and each costs memory here.
pub const MEMBERS_MAX: usize = 1024;

/// Bytes of a long string that are looked at together.
const PIECE: usize = 4 << 10;

/// Open brackets below the top are kept as bits of a `u64`, the top one is implied.
const _: () = assert!(DEPTH_MAX <= 65);

/// The members of the one object that `text` holds.
pub(super) fn members(text: &str) -> Result<Vec<Member>, Fault> {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, top: 0, names: Names::new() };
    scan.document().map_err(|what| Fault { what, at: scan.at, top: scan.top })
}

/// The text of a JSON string, quotes included; `None` where it holds a lone surrogate.
pub(super) fn unescape(string: &str) -> Option<String> {
    serde_json::from_str(string).ok()
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    top: usize,
    names: Names,
}

impl Scan<'_> {
    fn document(&mut self) -> Result<Vec<Member>, What> {
        self.space();
        match self.byte() {
            Some(b'{') => self.at += 1,
            Some(_) => return Err(What::NoObject),
            None => return Err(What::Nothing),
        }
        let found = self.object()?;
        self.space();
        if self.byte().is_some() { Err(What::Trailing) } else { Ok(found) }
    }

    /// What is wrong at this byte, or that there is none.
    #[cold]
    fn fault<T>(&self, what: What) -> Result<T, What> {
        Err(if self.at < self.bytes.len() { what } else { What::Cut })
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips white space; long runs (megabytes of it are a known attack) in blocks.
    #[inline]
    fn space(&mut self) {
        if self.byte().is_none_or(|b| b > b' ') {
            return;
        }
        let mut run = 0;
        while self.byte().is_some_and(is_space) {
            self.at += 1;
            run += 1;
            while run > 32 && self.block().is_some_and(is_all_space) {
                self.at += 32;
            }
        }
    }

    #[inline]
    fn block<const N: usize>(&self) -> Option<&[u8; N]> {
        self.bytes.get(self.at..)?.first_chunk()
    }

    /// After the top `{`, to behind its `}`.
    fn object(&mut self) -> Result<Vec<Member>, What> {
        let mut found = Vec::with_capacity(16);
        self.space();
        if self.byte() == Some(b'}') {
            self.at += 1;
            return Ok(found);
        }
        loop {
            if found.len() == MEMBERS_MAX {
                return self.fault(What::Many);
            }
            self.top = self.at;
            let (key, unescaped) = self.name()?;
            self.colon()?;
            let start = self.at;
            self.value()?;
            found.push(Member { unescaped, key, value: start..self.at });
            self.space();
            match self.byte() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    self.leave()?;
                    return Ok(found);
                }
                _ => return self.fault(What::InObject),
            }
            self.space();
        }
    }

    /// A key's span, and its text where that differs from the bytes.
    fn name(&mut self) -> Result<(Range<usize>, Option<Box<str>>), What> {
        let start = self.at;
        let escaped = self.key()?;
        let key = start..self.at;
        if !escaped {
            return Ok((key, None));
        }
        let text = self.bytes.get(key.clone()).and_then(|b| std::str::from_utf8(b).ok());
        match text.and_then(unescape) {
            Some(name) => Ok((key, Some(name.into_boxed_str()))),
            None => {
                self.at = start;
                Err(What::Surrogate)
            }
        }
    }

    /// A string where only a member's name may stand, and only once; whether it holds an escape.
    #[inline]
    fn key(&mut self) -> Result<bool, What> {
        let start = self.at;
        match self.byte() {
            Some(b'"') => {
                let escaped = self.string()?;
                if self.names.add(self.bytes, &(start..self.at), escaped) {
                    return Ok(escaped);
                }
                self.at = start;
                Err(What::Twice)
            }
            _ => self.fault(What::Name),
        }
    }

    /// Behind the end of an object.
    #[inline]
    fn leave(&mut self) -> Result<(), What> {
        match self.names.leave(self.bytes) {
            None => Ok(()),
            Some(twice) => {
                self.at = twice;
                Err(What::Twice)
            }
        }
    }

    #[inline]
    fn colon(&mut self) -> Result<(), What> {
        self.space();
        if self.byte() != Some(b':') {
            return self.fault(What::Colon);
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// One value of any depth. Bit 0 of `open` is the innermost bracket: 1 an object, 0 an array.
    fn value(&mut self) -> Result<(), What> {
        let (mut open, mut depth) = (0u64, 0usize);
        loop {
            match self.byte() {
                Some(bracket @ (b'{' | b'[')) => {
                    if depth + 1 >= DEPTH_MAX {
                        return self.fault(What::Deep);
                    }
                    self.at += 1;
                    self.space();
                    let object = bracket == b'{';
                    // `}` and `]` stand two behind `{` and `[` in ASCII.
                    if self.byte() == Some(bracket + 2) {
                        self.at += 1;
                    } else {
                        open = open << 1 | u64::from(object);
                        depth += 1;
                        if object {
                            self.names.enter();
                            self.key()?;
                            self.colon()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            if self.close(&mut open, &mut depth)? {
                return Ok(());
            }
        }
    }

    /// Behind a value: closes what ends here and steps to the next value; true when all is closed.
    #[inline]
    fn close(&mut self, open: &mut u64, depth: &mut usize) -> Result<bool, What> {
        while *depth > 0 {
            self.space();
            let object = *open & 1 == 1;
            match self.byte() {
                Some(b',') => {
                    self.at += 1;
                    self.space();
                    if object {
                        self.key()?;
                        self.colon()?;
                    }
                    return Ok(false);
                }
                Some(b'}') if object => {
                    self.at += 1;
                    self.leave()?;
                }
                Some(b']') if !object => self.at += 1,
                _ if object => return self.fault(What::InObject),
                _ => return self.fault(What::InArray),
            }
            *open >>= 1;
            *depth -= 1;
        }
        Ok(true)
    }

    fn scalar(&mut self) -> Result<(), What> {
        match self.byte() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => self.fault(What::Value),
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), What> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        if word.starts_with(rest) {
            self.at = self.bytes.len();
        }
        self.fault(What::Value)
    }

    /// RFC 8259 section 6: no leading zero, digits on both sides of the point.
    fn number(&mut self) -> Result<(), What> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), What> {
        let start = self.at;
        while self.byte().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { self.fault(What::Digit) } else { Ok(()) }
    }

    /// From the opening quote to behind the closing one; whether there was an escape.
    fn string(&mut self) -> Result<bool, What> {
        let start = self.at;
        self.at += 1;
        let mut escaped = false;
        loop {
            self.plain();
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return self.fault(What::Control),
                None => {
                    self.at = start;
                    return Err(What::Endless);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<(), What> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let hex = self.bytes.get(self.at + 2..self.at + 6);
                if !hex.is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit)) {
                    return self.fault(What::Escape);
                }
                self.at += 6;
            }
            _ => return self.fault(What::Escape),
        }
        Ok(())
    }

    /// Steps over string bytes that mean themselves: short stretches by words, long ones by what a
    /// vector search finds.
    fn plain(&mut self) {
        while let Some(word) = self.block::<8>() {
            let hit = special(u64::from_le_bytes(*word));
            if hit != 0 {
                self.at += hit.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
            if self.block::<32>().is_some_and(is_plain) {
                self.at += 32;
                self.long();
            }
        }
        while self.byte().is_some_and(|b| b >= 0x20 && b != b'"' && b != b'\\') {
            self.at += 1;
        }
    }

    /// To the next quote, backslash or control character, or to the end; looked for in pieces, so
    /// that both looks at a piece find it in the cache.
    fn long(&mut self) {
        while let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) {
            let piece = &rest[..rest.len().min(PIECE)];
            let end = memchr::memchr2(b'"', b'\\', piece);
            let text = &piece[..end.unwrap_or(piece.len())];
            // No early end: whole vectors of bytes are compared at once.
            if text.iter().fold(false, |hit, b| hit | (*b < 0x20)) {
                self.at += text.iter().position(|b| *b < 0x20).unwrap_or(0);
                return;
            }
            self.at += text.len();
            if end.is_some() {
                return;
            }
        }
    }
}

#[inline]
fn is_space(b: u8) -> bool {
    (b == b' ') | (b == b'\n') | (b == b'\r') | (b == b'\t')
}

fn is_all_space(block: &[u8; 32]) -> bool {
    block.iter().fold(true, |all, &b| all & is_space(b))
}

fn is_plain(block: &[u8; 32]) -> bool {
    !block.iter().fold(false, |hit, &b| hit | (b < 0x20) | (b == b'"') | (b == b'\\'))
}

/// The high bit of the first byte that ends a plain stretch (quote, backslash, control character).
/// Higher bytes may be marked wrongly by the borrow, the lowest mark is always right.
fn special(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let below = |w: u64, n: u64| w.wrapping_sub(ONES * n) & !w;
    let quote = below(word ^ (ONES * b'"' as u64), 1);
    let slash = below(word ^ (ONES * b'\\' as u64), 1);
    (below(word, 0x20) | quote | slash) & (ONES * 0x80)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn fault(text: &str) -> (String, usize) {
        let f = members(text).unwrap_err();
        (f.what.to_string(), f.at)
    }

    #[test]
    fn each_fault_is_named_with_its_byte() {
        for (text, what, at) in [
            ("", "expected a JSON object, found nothing", 0),
            ("   ", "expected a JSON object, found nothing", 3),
            ("[1]", "expected a JSON object", 0),
            ("aaaa", "expected a JSON object", 0),
            (r#"{"a":1} x"#, "expected nothing more after the object", 8),
            (r#"{"a":1"#, "unexpected end of the body", 6),
            (r#"{"a":tru"#, "unexpected end of the body", 8),
            (r#"{"a":trux}"#, "expected a value", 5),
            (r#"{"a":"b"#, "string without an end", 5),
            (r#"{"a" 1}"#, "expected `:`", 5),
            (r#"{"a":1 "b":2}"#, "expected `,` or `}`", 7),
            (r#"{"a":1,}"#, "expected a member's name in double quotes", 7),
            (r#"{"a":[1,]}"#, "expected a value", 8),
            (r#"{"a":[1}"#, "expected `,` or `]`", 7),
            (r#"{"a":01}"#, "expected `,` or `}`", 6),
            (r#"{"a":1.}"#, "expected a digit", 7),
            (r#"{"a":-}"#, "expected a digit", 6),
            (r#"{"a":"\x"}"#, "bad escape in a string", 6),
            (r#"{"a":"\u12g4"}"#, "bad escape in a string", 6),
            ("{\"a\":\"b\n\"}", "control character in a string", 7),
            (r#"{"\ud800":1}"#, "lone surrogate in a member's name", 1),
        ] {
            assert_eq!(fault(text), (what.to_string(), at), "{text}");
        }
    }

    #[test]
    fn depth_64_passes_and_65_does_not() {
        let nested = |n: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(n), "]".repeat(n));
        assert_eq!(members(&nested(63)).unwrap().len(), 1);
        assert_eq!(fault(&nested(64)), ("nested deeper than 64".to_string(), 5 + 63));
        assert_eq!(fault(&format!(r#"{{"a":{}"#, "{\"b\":".repeat(70))).0, "nested deeper than 64");
        assert_eq!(
            fault(&format!(r#"{{"a":{}"#, "[{\"b\":".repeat(1_000_000))).0,
            "nested deeper than 64"
        );
        let quoted = format!(r#"{{"a":"{}\"{}"}}"#, "[".repeat(500), "{".repeat(500));
        assert_eq!(members(&quoted).unwrap().len(), 1);
    }

    #[test]
    fn members_have_a_ceiling() {
        let member = |n: usize| format!("\"{n}\":0");
        let many = |n: usize| format!("{{{}}}", (0..n).map(member).collect::<Vec<_>>().join(","));
        assert_eq!(members(&many(MEMBERS_MAX)).unwrap().len(), MEMBERS_MAX);
        assert_eq!(fault(&many(MEMBERS_MAX + 1)).0, "more than 1024 members in one object");
    }

    #[test]
    fn a_name_stands_once_in_each_object_however_it_is_written() {
        let wide = |last: &str| {
            let names = (0..5000).map(|n| format!("\"name_{n:05}_x\":{{}},"));
            format!(r#"{{"a":{{{}"{last}":1}}}}"#, names.collect::<String>())
        };
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"m":[{"role":1,"role":2}]}"#,
            r#"{"m":[{"role":1,"x":{"role":1},"r\u006fle":2}]}"#,
            r#"{"m":{"x":[{"":1,"":2}]}}"#,
            r#"{"m":{"\ud800":1,"\ud800":2}}"#,
            &wide("name_00007_x"),
            &wide(r"name_0000\u0037_x"),
        ] {
            let told = members(text).map(|_| ());
            let twice = told.is_err_and(|fault| fault.what == What::Twice);
            assert!(twice, "{text:.80}");
        }
        assert_eq!(fault(r#"{"b":0,"m":[{"a":1,"a":2}]}"#).1, 19);
        for text in [
            r#"{"a":{"a":[{"a":1},{"a":1}],"b":{"a":1}},"b":{"b":2}}"#,
            r#"{"aa":1,"aaa":1,"aaaa":1,"aaaaa":1,"aaaaaa":1,"baaaaa":1,"aaaaab":1,"":1}"#,
            r#"{"x":{"\ud800":1,"\ud801":2}}"#,
            &wide("name_99999_x"),
        ] {
            assert!(members(text).is_ok(), "{text:.80}");
        }
    }

    proptest! {
        #[test]
        fn names_are_compared_as_serde_json_reads_them(
            names in proptest::collection::vec("[ab]{0,2}([a-c]{8})?", 0..40)
        ) {
            let listed: Vec<_> = names.iter().map(|name| format!("{name:?}:1")).collect();
            let text = format!(r#"{{"x":{{{}}}}}"#, listed.join(","));
            let set: std::collections::HashSet<_> = names.iter().collect();
            prop_assert_eq!(members(&text).is_ok(), set.len() == names.len());
        }
    }

    /// Objects that are nearly JSON, a good part of them wholly.
    const NEARLY: &str = concat!(
        r#"\{("(a|\\n|\\u00e9|é|\\|")?":? ?(-?0?1(\.5)?(e\+?[0-9])?|"[a-z\\"\n\u{1}é]{0,40}""#,
        r#"|tru[ae]|null|\[1,?[1]?\]|\{("a":)?1?\}),? ?){0,4}\} ?"#,
    );

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 4000,
            failure_persistence: None,
            ..Default::default()
        })]

        // The reference is serde_json; it takes deeper nesting, which is not produced here.
        #[test]
        fn accepts_what_serde_json_accepts(
            text in NEARLY
        ) {
            let reference = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            let told = members(&text);
            let twice = told.as_ref().is_err_and(|fault| fault.what == What::Twice);
            prop_assert!(twice || told.is_ok() == reference, "{}", text);
        }

        #[test]
        fn every_byte_that_ends_a_plain_stretch_is_found(
            plain in 0..9_000usize,
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let bytes = [&vec![b'a'; plain], bytes.as_slice(), b"\""].concat();
            let mut scan = Scan { bytes: &bytes, at: 0, top: 0, names: Names::new() };
            scan.plain();
            let first = bytes.iter().position(|&b| b < 0x20 || b == b'"' || b == b'\\').unwrap();
            prop_assert_eq!(scan.at, first);
        }
    }
}
