//! Raw JSON in and out: text borrowed where it can be, objects as members, digits never touched.

use memchr::memchr;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// A JSON string, unescaped; borrowed from its document when it had no escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;
            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        from.deserialize_str(Reader)
    }
}

/// For members that an answer can do without (`deserialize_with`): a value of another shape reads
/// as none, where it would make the whole answer unreadable.
pub(crate) fn lenient<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw = <&RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

/// An object's members in their order, values unread.
#[derive(Debug, Clone, Default)]
pub struct Members<'a>(pub Vec<(Text<'a>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object; `None` when it is none.
    #[must_use]
    pub fn of(raw: &'a str) -> Option<Self> {
        serde_json::from_str(raw).ok()
    }
    /// The value of the first member of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(n, _)| &**n == name).map(|(_, value)| *value)
    }
    /// The text of the first member of this name, when it is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Text<'a>> {
        text(self.get(name)?)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;
            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reader)
    }
}

/// Adds to `unread`, once each, the paths of members that are none of `known` and say something:
/// null, `[]` and `{}` do not. `at` is the object's own path.
pub(crate) fn note_unread(unread: &mut Vec<String>, at: &str, object: &RawValue, known: &[&str]) {
    let members = Members::of(object.get()).unwrap_or_default();
    for (name, value) in &members.0 {
        let empty = matches!(value.get(), "null" | "[]" | "{}");
        if empty || known.contains(&&**name) {
            continue;
        }
        // A name is the caller's own, of any length.
        let name: String = name.chars().take(64).collect();
        let path = format!("{at}.{name}");
        if !unread.contains(&path) {
            unread.push(path);
        }
    }
}

/// The text of a raw value; `None` when it is no string (or holds a lone surrogate).
#[must_use]
pub fn text(raw: &RawValue) -> Option<Text<'_>> {
    let inside = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    // It was read as JSON before, so without an escape nothing can be wrong with it.
    match memchr(b'\\', inside.as_bytes()) {
        None => Some(Text(Cow::Borrowed(inside))),
        Some(_) => serde_json::from_str(raw.get()).ok(),
    }
}

/// Appends `text` as a JSON string.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    // Writing to a Vec cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// Appends `"name":`, after a comma unless an object or array has just been opened.
pub fn put_name(out: &mut Vec<u8>, name: &str) {
    put_comma(out);
    put_text(out, name);
    out.push(b':');
}

/// Appends a comma unless an object or array has just been opened.
pub fn put_comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), None | Some(b'{' | b'[')) {
        out.push(b',');
    }
}

/// Appends `"name":"text"` with its comma.
pub fn put_member(out: &mut Vec<u8>, name: &str, text: &str) {
    put_name(out, name);
    put_text(out, text);
}

/// Appends `"name":raw` with its comma.
pub fn put_raw(out: &mut Vec<u8>, name: &str, raw: &str) {
    put_name(out, name);
    out.extend_from_slice(raw.as_bytes());
}

/// Valid JSON without the space between its tokens; numbers and escapes stay as they were written.
#[must_use]
pub fn compact(raw: &str) -> String {
    let mut out = Vec::with_capacity(raw.len());
    let (mut inside, mut escaped) = (false, false);
    for &byte in raw.as_bytes() {
        if inside {
            inside = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if byte.is_ascii_whitespace() {
            continue;
        } else {
            inside = byte == b'"';
        }
        out.push(byte);
    }
    // Only ASCII bytes were left out, so this never allocates again.
    String::from_utf8(out).unwrap_or_else(|_| raw.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn compacting_leaves_digits_strings_and_escapes_alone() {
        let raw = r#"{ "a b" : [ 1.0 , 12345678901234567890 ],
            "q": "x \" y\\" , "é":1e400 }"#;
        let want = r#"{"a b":[1.0,12345678901234567890],"q":"x \" y\\","é":1e400}"#;
        assert_eq!(compact(raw), want);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn the_text_of_any_string_is_what_a_parser_reads(
            parts in prop::collection::vec(prop_oneof![
                prop::sample::select(vec![
                    r"\n", r"\r", r"\t", r"\b", r"\f", r"\/", r"\\", r#"\""#, r"\x", r"\", "\"",
                    r"\u00e9", r"\ud83d\ude00", r"\ud83d", r"\é",
                    "\n", "\u{1f}", "\u{7f}", "é", "你好", "🦀",
                ]).prop_map(str::to_owned),
                "[ -~é]{0,40}",
            ], 0..8),
        ) {
            let json = format!("\"{}\"", parts.concat());
            let raw: Option<&RawValue> = serde_json::from_str(&json).ok();
            let want = raw.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
            prop_assert_eq!(raw.and_then(text).map(|text| text.0.into_owned()), want);
        }
    }

    #[test]
    fn members_keep_order_and_raw_values() {
        let members = Members::of("{\"b\": 1.0, \"\\u0061\": \"x\\n\"}").unwrap_or_default();
        assert_eq!(members.0[0].1.get(), "1.0");
        assert_eq!(members.text("a").as_deref(), Some("x\n"));
        assert!(Members::of("[1]").is_none());
    }
}
