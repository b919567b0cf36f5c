//! TOML values with their places, and typed reading that records faults instead of stopping.

use super::fault::{At, Book, hint};
use super::units;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub at: At,
    pub value: Value,
}

/// A TOML value. Numbers keep what was written, since prices are exact.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Integer(i128),
    Float(String),
    Bool(bool),
    Date(String),
    List(Vec<Node>),
    Table(Table),
}

/// Entries by key, each with the place of its key.
pub(super) type Table = BTreeMap<String, Entry>;

/// A key's place and its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub at: At,
    pub node: Node,
}

impl Value {
    /// What it is, for "… is needed here, not a …".
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a boolean",
            Self::Date(_) => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// A number as it was written.
    pub fn number(&self) -> Option<String> {
        match self {
            Self::Integer(n) => Some(n.to_string()),
            Self::Float(text) => Some(text.clone()),
            _ => None,
        }
    }
}

/// The keys of a kind of table. A later version adds a key by moving its name.
pub(super) struct Shape {
    /// Keys that work.
    pub known: &'static [&'static str],
    /// Keys of later versions, refused by name.
    pub later: &'static [&'static str],
}

/// A table being read: its keys have been checked against its shape.
#[derive(Clone)]
pub(super) struct View<'a> {
    pub book: &'a Book<'a>,
    pub table: &'a Table,
    /// Where the table stands.
    pub at: At,
    /// `providers.openai`, empty for the root.
    pub path: String,
}

/// `a.b`, with quotes where a name needs them.
pub(super) fn join(path: &str, key: &str) -> String {
    let bare =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

pub(super) const LATER: &str = "not in this version";

impl<'a> View<'a> {
    /// Looks at a table; keys outside its shape are faults.
    pub fn new(book: &'a Book<'a>, table: &'a Table, at: At, path: String, shape: &Shape) -> Self {
        let view = Self { book, table, at, path };
        for (key, entry) in table {
            if shape.later.contains(&key.as_str()) {
                let name = if view.path.is_empty() { format!("[{key}]") } else { key.clone() };
                view.book.fault(entry.at, &view.key(key), format!("`{name}` is {LATER}"));
            } else if !shape.known.contains(&key.as_str()) {
                let names = shape.known.iter().chain(shape.later).copied();
                let near = hint(key, names);
                view.book.fault(entry.at, &view.key(key), format!("unknown key{near}"));
            }
        }
        view
    }

    /// The dotted name of a key of this table.
    pub fn key(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// One item of a list, counted from 0.
    pub fn item(&self, key: &str, i: usize) -> String {
        format!("{}[{i}]", self.key(key))
    }

    pub fn get(&self, key: &str) -> Option<&'a Node> {
        self.table.get(key).map(|entry| &entry.node)
    }

    /// Where a key's value stands, or else the table.
    pub fn place(&self, key: &str) -> At {
        self.get(key).map_or(self.at, |node| node.at)
    }

    pub fn fault(&self, key: &str, message: impl Into<String>) {
        self.book.fault(self.place(key), &self.key(key), message);
    }

    /// The table itself is at fault.
    pub fn complain(&self, message: impl Into<String>) {
        self.book.fault(self.at, &self.path, message);
    }

    fn wrong(&self, key: &str, needed: &str, node: &Node) {
        self.fault(key, format!("{needed} is needed here, not {}", node.value.kind()));
    }

    pub fn text(&self, key: &str) -> Option<&'a str> {
        let node = self.get(key)?;
        let Value::Text(text) = &node.value else {
            self.wrong(key, "a string", node);
            return None;
        };
        if text.is_empty() {
            self.fault(key, "is empty");
            return None;
        }
        Some(text)
    }

    pub fn boolean(&self, key: &str, default: bool) -> bool {
        match self.get(key) {
            None => default,
            Some(Node { value: Value::Bool(b), .. }) => *b,
            Some(node) => {
                self.wrong(key, "true or false", node);
                default
            }
        }
    }

    pub fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let node = self.get(key)?;
        let Value::Integer(n) = node.value else {
            self.wrong(key, "a whole number", node);
            return None;
        };
        let inside = u64::try_from(n).ok().filter(|n| range.contains(n));
        if inside.is_none() {
            let (low, high) = (range.start(), range.end());
            self.fault(key, format!("{n} is not within {low} and {high}"));
        }
        inside
    }

    /// A duration above zero; `None` where it is written `"off"`.
    pub fn duration_or_off(&self, key: &str, default: Option<Duration>) -> Option<Duration> {
        if matches!(self.get(key), Some(Node { value: Value::Text(t), .. }) if t == "off") {
            return None;
        }
        self.time(key, false).or(default)
    }

    /// A duration above zero.
    pub fn duration(&self, key: &str, default: Duration) -> Duration {
        self.time(key, false).unwrap_or(default)
    }

    /// A duration that may be zero.
    pub fn duration_or_zero(&self, key: &str, default: Duration) -> Duration {
        self.time(key, true).unwrap_or(default)
    }

    fn time(&self, key: &str, zero: bool) -> Option<Duration> {
        let node = self.get(key)?;
        let Value::Text(text) = &node.value else {
            self.wrong(key, "a duration such as \"5s\"", node);
            return None;
        };
        match units::duration(text) {
            Ok(d) if d.is_zero() && !zero => {
                self.fault(key, "zero is no wait; write \"off\" where there is none, if it can be");
            }
            Ok(d) => return Some(d),
            Err(why) => self.fault(key, why),
        }
        None
    }

    /// Bytes.
    pub fn size(&self, key: &str, default: usize) -> usize {
        let read = match self.get(key) {
            None => return default,
            Some(Node { value: Value::Text(text), .. }) => units::size(text),
            Some(Node { value: Value::Integer(n), .. }) => units::size(&n.to_string()),
            Some(node) => {
                Err(format!("a size such as \"32MiB\" is needed here, not {}", node.value.kind()))
            }
        };
        read.unwrap_or_else(|why| {
            self.fault(key, why);
            default
        })
    }

    /// A list of strings, each with its place; `None` where the key is absent or no list.
    pub fn texts(&self, key: &str) -> Option<Vec<(At, &'a str)>> {
        let node = self.get(key)?;
        let Value::List(items) = &node.value else {
            self.wrong(key, "a list of strings", node);
            return None;
        };
        let mut out = Vec::new();
        for (i, item) in items.iter().enumerate() {
            match &item.value {
                Value::Text(text) if !text.is_empty() => out.push((item.at, text.as_str())),
                Value::Text(_) => self.book.fault(item.at, &self.item(key, i), "is empty"),
                other => {
                    let what = format!("a string is needed here, not {}", other.kind());
                    self.book.fault(item.at, &self.item(key, i), what);
                }
            }
        }
        Some(out)
    }

    /// The strings of a list, without places.
    pub fn words(&self, key: &str) -> Vec<String> {
        self.texts(key).unwrap_or_default().into_iter().map(|(_, t)| t.to_owned()).collect()
    }

    /// One of some words; `later` ones belong to another version.
    pub fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)], later: &[&str]) -> Option<T> {
        let text = self.text(key)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        if later.contains(&text) {
            self.fault(key, format!("{text:?} is {LATER}"));
        } else {
            let all: Vec<&str> =
                words.iter().map(|(word, _)| *word).chain(later.iter().copied()).collect();
            let near = hint(text, all.iter().copied());
            self.fault(key, format!("{text:?} is none of {}{near}", all.join(", ")));
        }
        None
    }

    /// A table of a known shape.
    pub fn table(&self, key: &str, shape: &Shape) -> Option<View<'a>> {
        self.child(key, self.get(key)?, shape)
    }

    /// A table of names that the user chose, such as `[providers]`.
    pub fn named(&self, key: &str) -> Vec<(&'a str, &'a Entry)> {
        match self.get(key) {
            None => Vec::new(),
            Some(Node { value: Value::Table(table), .. }) => {
                table.iter().map(|(name, entry)| (name.as_str(), entry)).collect()
            }
            Some(node) => {
                self.wrong(key, "a table", node);
                Vec::new()
            }
        }
    }

    /// The table in one entry of this one.
    pub fn child(&self, key: &str, node: &'a Node, shape: &Shape) -> Option<View<'a>> {
        view(self.book, node, self.key(key), shape)
    }
}

/// Looks at a value as a table; anything else is a fault.
pub(super) fn view<'a>(
    book: &'a Book<'a>,
    node: &'a Node,
    path: String,
    shape: &Shape,
) -> Option<View<'a>> {
    if let Value::Table(table) = &node.value {
        return Some(View::new(book, table, node.at, path, shape));
    }
    book.fault(node.at, &path, format!("a table is needed here, not {}", node.value.kind()));
    None
}

/// A value as JSON, numbers digit by digit as they were written.
///
/// # Errors
/// What JSON cannot say.
pub(super) fn json(node: &Node) -> Result<String, String> {
    let quoted = |text: &str| serde_json::to_string(text).map_err(|e| e.to_string());
    Ok(match &node.value {
        Value::Text(text) | Value::Date(text) => quoted(text)?,
        Value::Integer(n) => n.to_string(),
        Value::Float(text) => {
            let text = text.strip_prefix('+').unwrap_or(text);
            if serde_json::from_str::<&serde_json::value::RawValue>(text).is_err() {
                return Err(format!("{text} is no number in JSON"));
            }
            text.to_owned()
        }
        Value::Bool(b) => b.to_string(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(json).collect::<Result<_, _>>()?;
            format!("[{}]", items.join(","))
        }
        Value::Table(table) => {
            let pair = |(key, entry): (&String, &Entry)| {
                Ok::<_, String>(format!("{}:{}", quoted(key)?, json(&entry.node)?))
            };
            let members: Vec<String> = table.iter().map(pair).collect::<Result<_, _>>()?;
            format!("{{{}}}", members.join(","))
        }
    })
}
