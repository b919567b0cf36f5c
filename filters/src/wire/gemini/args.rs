//! A call's arguments out of pieces with a path each (`$.items[0].name`), digits and order kept.

use crate::chat::raw::{Members, Text, put_comma, put_name, put_text};
use crate::wire::scribe::object_text;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Values of one call's arguments; each piece can make a few. Real calls have hundreds.
const NODES_MAX: usize = 1 << 14;
/// Steps of one path, as deep as JSON readers go.
const DEPTH_MAX: usize = 100;
/// Bytes of one call's arguments: what one event may hold.
const BYTES_MAX: usize = crate::sse::EVENT_BYTES_MAX;

/// One piece.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    json_path: Text<'a>,
    #[serde(borrow)]
    string_value: Option<Text<'a>>,
    #[serde(borrow)]
    number_value: Option<&'a RawValue>,
    bool_value: Option<bool>,
}

/// The arguments so far.
#[derive(Debug)]
pub(super) struct Arguments {
    root: Node,
    nodes: usize,
    bytes: usize,
}

#[derive(Debug)]
enum Node {
    Null,
    /// Anything else that is no object or array built here.
    Raw(String),
    Text(String),
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
}

enum Key<'a> {
    Name(&'a str),
    Index(usize),
}

impl Arguments {
    /// Arguments that begin with this object.
    pub fn of(raw: Option<&RawValue>) -> Self {
        Self { root: Node::Raw(object_text(raw)), nodes: 0, bytes: 0 }
    }

    /// Adds a piece; false when it cannot be: its path is none, or it grew too large.
    pub fn add(&mut self, piece: &Piece<'_>) -> bool {
        let Some(path) = path(&piece.json_path) else { return false };
        let mut at = &mut self.root;
        for key in path {
            let Some(next) = at.step(&key, &mut self.nodes) else { return false };
            at = next;
        }
        match (&piece.string_value, piece.number_value, piece.bool_value) {
            (Some(text), ..) => {
                self.bytes += text.len();
                match at {
                    Node::Text(whole) => whole.push_str(text),
                    _ => *at = Node::Text(text.0.clone().into_owned()),
                }
            }
            (_, Some(number), _) => *at = Node::Raw(number.get().to_owned()),
            (_, _, Some(truth)) => *at = Node::Raw(truth.to_string()),
            _ => *at = Node::Null,
        }
        self.bytes += piece.json_path.len();
        self.bytes <= BYTES_MAX && self.nodes <= NODES_MAX
    }

    /// As compact JSON, an object always.
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        self.root.put(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

impl Node {
    fn step(&mut self, key: &Key<'_>, nodes: &mut usize) -> Option<&mut Self> {
        if let Self::Raw(raw) = self {
            *self = Self::read(raw, nodes);
        }
        match key {
            Key::Name(name) => {
                if !matches!(self, Self::Object(_)) {
                    *self = Self::Object(Vec::new());
                }
                let Self::Object(members) = self else { return None };
                let at = members.iter().position(|(n, _)| n == name).unwrap_or(members.len());
                if at == members.len() {
                    *nodes += 1;
                    members.push(((*name).to_owned(), Self::Null));
                }
                members.get_mut(at).map(|(_, node)| node)
            }
            Key::Index(at) => {
                if !matches!(self, Self::Array(_)) {
                    *self = Self::Array(Vec::new());
                }
                let Self::Array(list) = self else { return None };
                let more = (at + 1).saturating_sub(list.len());
                *nodes += more;
                if *nodes > NODES_MAX {
                    return None;
                }
                list.resize_with(list.len() + more, || Self::Null);
                list.get_mut(*at)
            }
        }
    }

    /// One level of a value that a path goes into.
    fn read(raw: &str, nodes: &mut usize) -> Self {
        let leaf = |raw: &RawValue| Self::Raw(raw.get().to_owned());
        if let Some(members) = Members::of(raw) {
            *nodes += members.0.len();
            let members = members.0.into_iter().map(|(name, raw)| (name.0.into_owned(), leaf(raw)));
            return Self::Object(members.collect());
        }
        let list: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
        *nodes += list.len();
        Self::Array(list.into_iter().map(leaf).collect())
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Raw(raw) => out.extend_from_slice(raw.as_bytes()),
            Self::Text(text) => put_text(out, text),
            Self::Object(members) => {
                out.push(b'{');
                for (name, node) in members {
                    put_name(out, name);
                    node.put(out);
                }
                out.push(b'}');
            }
            Self::Array(list) => {
                out.push(b'[');
                for node in list {
                    put_comma(out);
                    node.put(out);
                }
                out.push(b']');
            }
        }
    }
}

/// The steps of `$.a[0]['b c'].d`.
fn path(text: &str) -> Option<Vec<Key<'_>>> {
    let mut rest = text.strip_prefix('$').unwrap_or(text);
    let mut keys = Vec::new();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'));
            let (key, after) = match quote {
                Some(quote) => {
                    let (name, after) = inner[1..].split_once(quote)?;
                    (Key::Name(name), after.strip_prefix(']')?)
                }
                None => {
                    let (index, after) = inner.split_once(']')?;
                    (Key::Index(index.parse().ok().filter(|n| *n < NODES_MAX)?), after)
                }
            };
            keys.push(key);
            rest = after;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            keys.push(Key::Name(&name[..end]));
            rest = &name[end..];
        }
    }
    // Arguments are an object, so the first step is a name.
    let sound = matches!(keys.first(), Some(Key::Name(_))) && keys.len() <= DEPTH_MAX;
    sound.then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(start: Option<&str>, pieces: &[&str]) -> Option<String> {
        let raw = start.map(|s| serde_json::from_str::<&RawValue>(s).unwrap());
        let mut arguments = Arguments::of(raw);
        for piece in pieces {
            if !arguments.add(&serde_json::from_str(piece).unwrap()) {
                return None;
            }
        }
        Some(arguments.text())
    }

    #[test]
    fn pieces_are_put_where_their_paths_say() {
        let pieces = [
            r#"{"jsonPath":"$.a[0].s","stringValue":"x\"","willContinue":true}"#,
            r#"{"jsonPath":"$.a[0].s","stringValue":"y"}"#,
            r#"{"jsonPath":"$.a[0].n","numberValue":1.50}"#,
            r#"{"jsonPath":"$.a[1]['b c']","boolValue":true}"#,
            r#"{"jsonPath":"$.z","nullValue":null}"#,
        ];
        let want = r#"{"a":[{"s":"x\"y","n":1.50},{"b c":true}],"z":null}"#;
        assert_eq!(built(None, &pieces).as_deref(), Some(want));
    }

    #[test]
    fn pieces_join_what_was_there() {
        let pieces = [r#"{"jsonPath":"$.a[1]","stringValue":"x"}"#];
        let start = r#"{ "a": [1.0], "b": 2.00 }"#;
        assert_eq!(built(Some(start), &pieces).as_deref(), Some(r#"{"a":[1.0,"x"],"b":2.00}"#));
        assert_eq!(built(None, &[]).as_deref(), Some("{}"));
    }

    #[test]
    fn a_path_that_is_none_or_absurd_is_refused() {
        for path in
            ["", "$", "$..a", "$[", "$['a", "$[x]", "$[0]", "$.a[99999999]", &".a".repeat(101)]
        {
            let piece = serde_json::json!({"jsonPath": path, "boolValue": true}).to_string();
            assert_eq!(built(None, &[&piece]), None, "{path}");
        }
        let mut arguments = Arguments::of(None);
        let mut held = true;
        for n in 0..3 {
            let piece = format!(r#"{{"jsonPath":"$.a[{n}][9000]","boolValue":true}}"#);
            held &= arguments.add(&serde_json::from_str(&piece).unwrap());
        }
        assert!(!held);
    }
}
