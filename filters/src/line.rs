//! One JSON object on one line, member after member: what the hot path writes for every request
//! costs no more than the copying of its bytes.

use std::fmt::Write as _;

/// A member's name as it stands before its value, `,"name":`.
#[derive(Debug, Clone, Copy)]
pub struct Name(#[doc(hidden)] pub &'static str);

/// A [`Name`] of a literal that needs no escaping.
#[macro_export]
macro_rules! name {
    ($name:literal) => {
        $crate::line::Name(concat!(",\"", $name, "\":"))
    };
}

/// An object that is being written.
#[derive(Debug)]
pub struct Line<'a> {
    out: &'a mut Vec<u8>,
    /// Where it begins.
    at: usize,
}

/// Hands formatted text on as bytes.
struct Bytes<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl<'a> Line<'a> {
    /// Opens an object at the end of `out`.
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        let at = out.len();
        Self { out, at }
    }

    /// Closes it.
    pub fn close(self) {
        // The first member's comma stands where the brace belongs.
        match self.out.get_mut(self.at) {
            Some(comma) => *comma = b'{',
            None => self.out.push(b'{'),
        }
        self.out.push(b'}');
    }

    fn name(&mut self, name: Name) {
        self.out.extend_from_slice(name.0.as_bytes());
    }

    /// A string.
    pub fn text(&mut self, name: Name, value: &str) -> &mut Self {
        self.name(name);
        string(value, self.out);
        self
    }

    /// A string or null.
    pub fn maybe(&mut self, name: Name, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(name, value),
            None => self.raw(name, b"null"),
        }
    }

    /// A string of what `value` displays, which must need no escaping.
    pub fn plain(&mut self, name: Name, value: &dyn std::fmt::Display) -> &mut Self {
        self.name(name);
        self.out.push(b'"');
        let _ = write!(Bytes(self.out), "{value}"); // writing to memory cannot fail
        self.out.push(b'"');
        self
    }

    /// A number that serde_json writes; null where JSON has none.
    pub fn fraction(&mut self, name: Name, value: f64) -> &mut Self {
        self.name(name);
        let _ = serde_json::to_writer(&mut *self.out, &value); // writing to memory cannot fail
        self
    }

    /// An integer.
    pub fn number(&mut self, name: Name, value: u64) -> &mut Self {
        self.name(name);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self
    }

    /// An integer or null.
    pub fn count(&mut self, name: Name, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.number(name, value),
            None => self.raw(name, b"null"),
        }
    }

    /// True or false.
    pub fn flag(&mut self, name: Name, value: bool) -> &mut Self {
        self.raw(name, if value { b"true" } else { b"false" })
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, name: Name, json: &[u8]) -> &mut Self {
        self.name(name);
        self.out.extend_from_slice(json);
        self
    }

    /// A list; `put` writes each of its elements.
    pub fn list<T>(&mut self, name: Name, all: &[T], put: impl Fn(&T, &mut Vec<u8>)) -> &mut Self {
        self.name(name);
        self.out.push(b'[');
        for (at, one) in all.iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            put(one, self.out);
        }
        self.out.push(b']');
        self
    }

    /// An object; `put` writes its members.
    pub fn object(&mut self, name: Name, put: impl FnOnce(&mut Line<'_>)) -> &mut Self {
        self.name(name);
        let mut inner = Line::open(self.out);
        put(&mut inner);
        inner.close();
        self
    }
}

/// Writes a JSON string, as serde_json does.
pub fn string(text: &str, out: &mut Vec<u8>) {
    if !is_plain(text) {
        let _ = serde_json::to_writer(out, text); // writing to memory cannot fail
        return;
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Bytes that are looked at before asking whether one of them was found.
const BLOCK: usize = 512;
/// Shorter texts are no work for vectors.
const SHORT: usize = 64;

/// The text stands for itself between the quotes of a JSON string: nothing in it is escaped, or
/// would have to be.
pub(crate) fn is_plain(text: &str) -> bool {
    if text.len() < SHORT {
        return is_short_plain(text.as_bytes());
    }
    let odd = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // No early end within a block: sixteen bytes are looked at in one step.
    let any = |block: &[u8]| block.iter().fold(false, |any, byte| any | odd(*byte));
    !text.as_bytes().chunks(BLOCK).any(any)
}

/// A name: eight bytes in one step, the last eight of them once more in part.
fn is_short_plain(text: &[u8]) -> bool {
    if let Some(last) = text.last_chunk::<8>() {
        let (words, _) = text.as_chunks::<8>();
        let odd = words.iter().fold(odd_in(*last), |odd, word| odd | odd_in(*word));
        return odd == 0;
    }
    let mut word = [b' '; 8];
    word[..text.len()].copy_from_slice(text);
    odd_in(word) == 0
}

/// How many bytes at the beginning of `text` stand for themselves in a JSON string.
pub(crate) fn plain_run(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (place, word) in words.iter().enumerate() {
        let odd = odd_in(*word);
        if odd != 0 {
            // Borrows go to later bytes only: the first that is found is one.
            return place * 8 + odd.trailing_zeros() as usize / 8;
        }
    }
    let odd = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    words.len() * 8 + rest.iter().position(odd).unwrap_or(rest.len())
}

/// Not zero where one of the bytes is a control, a quote or a backslash: a subtraction borrows from
/// a byte's highest bit where the byte is less, and what had that bit itself is none of them.
fn odd_in(word: [u8; 8]) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(word);
    let less = |word: u64, than: u64| word.wrapping_sub(EACH * than) & !word;
    let is = |byte: u8| less(word ^ (EACH * u64::from(byte)), 1);
    (less(word, 0x20) | is(b'"') | is(b'\\')) & (EACH << 7)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // tests
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_object_of_every_kind_of_member_is_what_serde_reads() {
        let mut out = Vec::new();
        let mut line = Line::open(&mut out);
        line.text(name!("a"), "x\"\n\u{1}ß✓\\")
            .maybe(name!("b"), None)
            .maybe(name!("c"), Some("y"));
        line.number(name!("d"), u64::MAX)
            .count(name!("e"), None)
            .flag(name!("f"), true)
            .plain(name!("g"), &1.5)
            .fraction(name!("l"), f64::NAN);
        line.list(name!("h"), &["p", "q\""], |one, out| string(one, out));
        line.object(name!("i"), |inner| {
            inner.number(name!("j"), 0).raw(name!("k"), b"[1]");
        });
        line.close();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let want = serde_json::json!({
            "a": "x\"\n\u{1}ß✓\\", "b": null, "c": "y", "d": u64::MAX, "e": null, "f": true,
            "g": "1.5", "l": null, "h": ["p", "q\""], "i": {"j": 0, "k": [1]},
        });
        assert_eq!(read, want);
        let mut empty = Vec::new();
        Line::open(&mut empty).close();
        assert_eq!(empty, b"{}");
    }

    proptest! {
        #[test]
        fn a_run_ends_at_the_first_byte_that_is_escaped(
            text in "[\\x00-\\x7f]{0,9}\\PC{0,30}[\\x00-\\x7f]{0,30}",
        ) {
            let odd = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
            let want = text.bytes().position(odd).unwrap_or(text.len());
            prop_assert_eq!(plain_run(text.as_bytes()), want);
        }

        #[test]
        fn any_string_is_written_as_serde_json_writes_it(text in "\\PC{0,40}[\\x00-\\x7f]{0,30}") {
            let mut out = Vec::new();
            string(&text, &mut out);
            prop_assert_eq!(out, serde_json::to_vec(&text).unwrap());
        }
    }
}
