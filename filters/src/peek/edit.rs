//! Edits of top-level members: one pass, and every byte that no edit names stays the caller's own.

use super::{OWN, Peek, Segments};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;
use std::ops::Range;

/// Edits of top-level members, done in the order they were asked for, applied in one pass over the
/// original bytes.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Set(String, Bytes),
    Remove(String),
    /// Old and new names; all pairs at once, so that a swap is one.
    Rename(Vec<(String, String)>),
}

impl Edits {
    /// Replaces the value of `name`, or inserts the member at the end. `value` is raw JSON. Where
    /// the name stands twice, one is left.
    pub fn set(&mut self, name: &str, value: impl Into<Bytes>) {
        self.push(Step::Set(name.into(), value.into()));
    }
    /// Removes `name`, comma included, as often as it stands.
    pub fn remove(&mut self, name: &str) {
        self.push(Step::Remove(name.into()));
    }
    /// Renames the key, value untouched. Where another member is called `to` already, that one
    /// stands and `name` is removed.
    pub fn rename(&mut self, name: &str, to: &str) {
        self.push(Step::Rename(vec![(name.into(), to.into())]));
    }
    /// The edited body, without our own members ([`OWN`]).
    #[must_use]
    pub fn apply(self, peek: &Peek) -> Segments {
        self.splice(peek, &OWN)
    }

    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// The edited body without the original members named in `own`.
    pub(super) fn splice(&self, peek: &Peek, own: &[&str]) -> Segments {
        let mut slots = self.slots(peek);
        for slot in &mut slots {
            slot.gone |= slot
                .origin
                .is_some_and(|i| peek.members.get(i).is_some_and(|m| own.contains(&peek.name(m))));
        }
        write(peek, &slots)
    }

    /// The members as they are after all steps so far.
    pub(super) fn slots<'a>(&'a self, peek: &'a Peek) -> Vec<Slot<'a>> {
        let mut slots: Vec<Slot<'a>> = Vec::with_capacity(peek.members.len() + 4);
        slots.extend((0..peek.members.len()).filter_map(|i| Slot::original(peek, i)));
        for step in &self.steps {
            step.run(&mut slots);
        }
        slots
    }
}

/// One member on its way from the caller's body to the provider's.
#[derive(Debug, Clone)]
pub(super) struct Slot<'a> {
    /// Its name now.
    pub name: Cow<'a, str>,
    /// Its place in `Peek::members`; inserted ones have none.
    pub origin: Option<usize>,
    /// Its value now, where that is not the original one.
    pub value: Option<Bytes>,
    pub renamed: bool,
    pub gone: bool,
}

impl<'a> Slot<'a> {
    /// Member `i` as the caller wrote it.
    pub(super) fn original(peek: &'a Peek, i: usize) -> Option<Self> {
        let name = Cow::Borrowed(peek.name(peek.members.get(i)?));
        Some(Self { name, origin: Some(i), value: None, renamed: false, gone: false })
    }

    /// A member that the caller did not write.
    pub(super) fn inserted(name: String, value: Bytes) -> Self {
        let name = Cow::Owned(name);
        Self { name, origin: None, value: Some(value), renamed: false, gone: false }
    }
}

impl Step {
    pub(super) fn run(&self, slots: &mut Vec<Slot<'_>>) {
        match self {
            Self::Set(name, value) => set(slots, name, value),
            Self::Remove(name) => {
                slots.iter_mut().filter(|s| s.name == *name).for_each(|s| s.gone = true);
            }
            Self::Rename(pairs) => rename(slots, pairs),
        }
    }
}

fn set(slots: &mut Vec<Slot<'_>>, name: &str, value: &Bytes) {
    let mut done = false;
    for slot in slots.iter_mut().filter(|s| !s.gone && s.name == name) {
        slot.gone = done;
        slot.value = Some(value.clone());
        done = true;
    }
    if !done {
        slots.push(Slot::inserted(name.into(), value.clone()));
    }
}

fn rename(slots: &mut [Slot<'_>], pairs: &[(String, String)]) {
    if pairs.is_empty() {
        return;
    }
    let goal = |name: &str| pairs.iter().find(|(from, _)| from == name).map(|(_, to)| to);
    // Names that are taken by others: of members that stay, then of those renamed before.
    let mut taken: Vec<(&str, Cow<'_, str>)> = Vec::new();
    let staying: Vec<Cow<'_, str>> = slots
        .iter()
        .filter(|s| !s.gone && goal(&s.name).is_none())
        .map(|s| s.name.clone())
        .collect();
    for slot in slots.iter_mut().filter(|s| !s.gone) {
        let Some(to) = goal(&slot.name) else { continue };
        let clash = staying.iter().any(|name| name == to)
            || taken.iter().any(|(name, from)| name == to && *from != slot.name);
        slot.gone = clash;
        if !clash {
            let from = std::mem::replace(&mut slot.name, Cow::Owned(to.clone()));
            slot.renamed = true;
            taken.push((to, from));
        }
    }
}

/// Writes the slots over the original: what lies between two members (white space, the comma)
/// belongs to the second of them and goes with it.
pub(super) fn write(peek: &Peek, slots: &[Slot<'_>]) -> Segments {
    let mut out = Pieces::new(&peek.body);
    let brace = memchr::memchr(b'{', &peek.body).map_or(0, |at| at + 1);
    let first = peek.members.first().map_or(brace, |m| m.key.start);
    out.original(0..first);
    let mut any = false;
    for slot in slots.iter().filter(|s| !s.gone) {
        let Some((i, member)) = slot.origin.and_then(|i| Some((i, peek.members.get(i)?))) else {
            out.insert(if any { b"," } else { b"" });
            out.insert(quote(&slot.name).as_bytes());
            out.insert(b":");
            out.value(slot.value.as_ref().unwrap_or(&Bytes::new()));
            any = true;
            continue;
        };
        if let Some(previous) = i.checked_sub(1).and_then(|i| peek.members.get(i))
            && any
        {
            out.original(previous.value.end..member.key.start);
        }
        if slot.renamed {
            out.insert(quote(&slot.name).as_bytes());
        } else {
            out.original(member.key.clone());
        }
        out.original(member.key.end..member.value.start);
        match &slot.value {
            Some(value) if value != peek.value(member) => out.value(value),
            _ => out.original(member.value.clone()),
        }
        any = true;
    }
    let end = peek.members.last().map_or(first, |m| m.value.end);
    out.original(end..peek.body.len());
    out.finish()
}

/// A name as a JSON string.
fn quote(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// Gathers neighbouring ranges of the original, and neighbouring inserts, into one piece each.
struct Pieces<'a> {
    body: &'a Bytes,
    parts: Vec<Bytes>,
    range: Range<usize>,
    text: BytesMut,
}

/// Larger inserts are pieces of their own rather than copied.
const COPY_BYTES_MAX: usize = 1024;

impl<'a> Pieces<'a> {
    fn new(body: &'a Bytes) -> Self {
        Self { body, parts: Vec::with_capacity(4), range: 0..0, text: BytesMut::new() }
    }

    fn original(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        if self.text.is_empty() && self.range.end == range.start {
            self.range.end = range.end;
            return;
        }
        self.flush();
        self.range = range;
    }

    fn insert(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    fn value(&mut self, value: &Bytes) {
        if value.len() <= COPY_BYTES_MAX {
            return self.insert(value);
        }
        self.flush();
        self.parts.push(value.clone());
    }

    /// A range always comes before the text that was inserted behind it.
    fn flush(&mut self) {
        if !self.range.is_empty() {
            self.parts.push(self.body.slice(self.range.clone()));
        }
        if !self.text.is_empty() {
            self.parts.push(self.text.split().freeze());
        }
        self.range = 0..0;
    }

    fn finish(mut self) -> Segments {
        self.flush();
        Segments(self.parts)
    }
}
