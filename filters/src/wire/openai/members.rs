//! A JSON object as its members in order, values unread: what is not understood stays as it came.

use crate::chat::raw;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// A string, borrowed where it has no escapes.
#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// An object's members.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(Vec<(Text<'a>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Read)
    }
}

impl<'a> Members<'a> {
    /// Reads an object; `None` where it is none.
    pub(super) fn read(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// A member's value; null is none. Of two, the last (as most parsers hold it).
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().rev().find(|(key, _)| key.0 == name);
        found.map(|(_, value)| *value).filter(|value| value.get() != "null")
    }

    /// The member stands there, be it null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key.0 == name)
    }

    /// A member that is an object.
    pub(super) fn object(&self, name: &str) -> Option<Members<'a>> {
        self.get(name).and_then(|value| Members::read(value.get()))
    }

    /// A member that is a string.
    pub(super) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(text)
    }

    /// A member that is an integer from 0 on.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(|value| value.get().parse().ok())
    }

    /// A member's elements; none where it is no array.
    pub(super) fn list(&self, name: &str) -> Vec<&'a RawValue> {
        self.get(name).map(list).unwrap_or_default()
    }

    /// Writes every member whose name is not `known`, a comma before each.
    pub(super) fn put_rest(&self, known: &[&str], out: &mut Vec<u8>) {
        for (name, value) in self.0.iter().filter(|(name, _)| !known.contains(&name.0.as_ref())) {
            put_key(&name.0, out);
            out.extend_from_slice(value.get().as_bytes());
        }
    }
}

/// The string, if the value is one.
pub(super) fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    raw::text(value).map(|text| text.0)
}

/// The elements, if the value is an array.
pub(super) fn list(value: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(value.get()).unwrap_or_default()
}

/// Writes a JSON string.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// Writes `"name":`, after a comma unless the object has just been opened.
pub(super) fn put_key(name: &str, out: &mut Vec<u8>) {
    if out.last().is_some_and(|last| *last != b'{') {
        out.push(b',');
    }
    put_text(name, out);
    out.push(b':');
}

/// Writes a member whose value is a string.
pub(super) fn put_member(name: &str, value: &str, out: &mut Vec<u8>) {
    put_key(name, out);
    put_text(value, out);
}

/// The bytes to cut so that the member with this `value` (a part of `json`) is gone, one comma
/// included. `None` where the value is no member's of `json`.
pub(super) fn cut(json: &str, value: &str) -> Option<Range<usize>> {
    let at = (value.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let end = at.checked_add(value.len()).filter(|end| *end <= json.len())?;
    let before = json.get(..at)?.trim_end().strip_suffix(':')?.trim_end().strip_suffix('"')?;
    // A key that we know has no quote in it, so the next one opens it.
    let before = before.get(..before.rfind('"')?)?.trim_end();
    if let Some(before) = before.strip_suffix(',') {
        return Some(before.len()..end);
    }
    let rest = json.get(end..)?;
    let comma = rest.trim_start().starts_with(',');
    let skip = if comma { rest.find(',')? + 1 } else { 0 };
    Some(before.len()..end + skip)
}

/// The same for a string's text, as borrowed from `json`.
pub(super) fn cut_text(json: &str, text: &str) -> Option<Range<usize>> {
    let at = (text.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    cut(json, json.get(at.checked_sub(1)?..at + text.len() + 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_cut_with_one_comma() {
        for (json, want) in [
            (r#"{"a":1,"usage":null}"#, r#"{"a":1}"#),
            (r#"{"a":1,"usage":null,"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"usage":{"x":","},"b":2}"#, r#"{"b":2}"#),
            (r#"{ "a": 1 , "usage" : null , "b":2}"#, r#"{ "a": 1  , "b":2}"#),
            (r#"{"usage":0}"#, "{}"),
        ] {
            let members = Members::read(json).unwrap_or_default();
            let value = members.0.iter().find(|(key, _)| key.0 == "usage").map(|(_, v)| v.get());
            let range = cut(json, value.unwrap_or_default()).unwrap_or_default();
            assert_eq!([&json[..range.start], &json[range.end..]].concat(), want);
        }
    }

    #[test]
    fn unknown_members_keep_their_bytes_and_order() {
        let members = Members::read(r#"{"z":1.50,"id":"x","a":[1, 2]}"#).unwrap_or_default();
        let mut out = b"{".to_vec();
        members.put_rest(&["id"], &mut out);
        assert_eq!(out, br#"{"z":1.50,"a":[1, 2]"#);
    }
}
