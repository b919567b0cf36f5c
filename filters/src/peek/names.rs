//! The names in every open object, so that no object holds one twice: of two, we would act on one
//! and the provider on the other.

use super::scan::unescape;
use crate::peek::DEPTH_MAX;
use std::ops::Range;

/// Up to here each name is held against all before it; larger objects are sorted at their end.
const COMPARED_MAX: usize = 16;

/// Names of the objects that are open now, the outermost's first.
pub(super) struct Names {
    stack: Vec<Name>,
    /// Where in the stack each open object's names begin.
    starts: [u32; DEPTH_MAX + 1],
    open: usize,
    /// Names that are written with escapes.
    unescaped: Vec<String>,
}

#[derive(Clone, Copy)]
struct Name {
    print: u32,
    /// The text's place in the body, or [`ESCAPED`] and its place in `unescaped`.
    start: u32,
    len: u32,
    /// Where it stands in the body.
    at: u32,
}

/// In `len`: no text in the body is so long.
const ESCAPED: u32 = u32::MAX;

impl Names {
    pub(super) fn new() -> Self {
        // An agent's message, tool and schema together: one allocation for nearly every body.
        let stack = Vec::with_capacity(64);
        Self { stack, starts: [0; DEPTH_MAX + 1], open: 0, unescaped: Vec::new() }
    }

    #[inline]
    pub(super) fn enter(&mut self) {
        self.open += 1;
        if let Some(start) = self.starts.get_mut(self.open) {
            *start = self.stack.len() as u32;
        }
    }

    /// Leaves the innermost object; where one of its names stands a second time.
    #[inline]
    pub(super) fn leave(&mut self, bytes: &[u8]) -> Option<usize> {
        let start = self.start();
        self.open = self.open.saturating_sub(1);
        let twice = if self.stack.len() - start > COMPARED_MAX {
            self.repeated(start, bytes)
        } else {
            None
        };
        self.stack.truncate(start);
        twice
    }

    /// Adds a name of the innermost object by its span, quotes included; false where it is found to
    /// stand there already.
    #[inline]
    pub(super) fn add(&mut self, bytes: &[u8], key: &Range<usize>, escaped: bool) -> bool {
        let at = key.start as u32;
        let (start, len) = (at + 1, (key.len() - 2) as u32);
        let name = if escaped {
            self.escaped(bytes, key)
        } else {
            Name { print: print(text(bytes, start, len)), start, len, at }
        };
        let first = self.start();
        let others = self.stack.get(first..).unwrap_or_default();
        let fresh = others.len() >= COMPARED_MAX
            || others
                .iter()
                .all(|other| other.print != name.print || !self.same(bytes, *other, name));
        self.stack.push(name);
        fresh
    }

    #[inline]
    fn start(&self) -> usize {
        self.starts.get(self.open).map_or(0, |start| *start as usize)
    }

    #[cold]
    fn escaped(&mut self, bytes: &[u8], key: &Range<usize>) -> Name {
        let quoted = bytes.get(key.clone()).unwrap_or_default();
        let quoted = std::str::from_utf8(quoted).unwrap_or_default();
        // A lone surrogate has no text; the bytes then stand for themselves.
        let name = unescape(quoted).unwrap_or_else(|| quoted.to_owned());
        let print = print(name.as_bytes());
        self.unescaped.push(name);
        let start = self.unescaped.len() as u32 - 1;
        Name { print, start, len: ESCAPED, at: key.start as u32 }
    }

    fn text<'a>(&'a self, bytes: &'a [u8], name: Name) -> &'a [u8] {
        match name.len {
            ESCAPED => self.unescaped.get(name.start as usize).map_or(&[], String::as_bytes),
            len => text(bytes, name.start, len),
        }
    }

    fn same(&self, bytes: &[u8], a: Name, b: Name) -> bool {
        self.text(bytes, a) == self.text(bytes, b)
    }

    #[cold]
    fn repeated(&mut self, start: usize, bytes: &[u8]) -> Option<usize> {
        let mut names = self.stack.split_off(start);
        names.sort_unstable_by(|a, b| {
            let by_print = a.print.cmp(&b.print);
            let by_text = || self.text(bytes, *a).cmp(self.text(bytes, *b));
            by_print.then_with(by_text).then(a.at.cmp(&b.at))
        });
        let twice =
            names.array_windows().filter(|[a, b]| a.print == b.print && self.same(bytes, *a, *b));
        twice.map(|[_, b]| b.at as usize).min()
    }
}

#[inline]
fn text(bytes: &[u8], start: u32, len: u32) -> &[u8] {
    let start = start as usize;
    bytes.get(start..start + len as usize).unwrap_or_default()
}

/// Differs for nearly all names that differ: their length, first and last bytes.
#[inline]
fn print(name: &[u8]) -> u32 {
    let length = name.len() as u32;
    match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(head), Some(tail)) => {
            let tail = u32::from_le_bytes(*tail).wrapping_mul(0x9e37_79b1);
            u32::from_le_bytes(*head) ^ tail ^ length.rotate_left(16)
        }
        _ => name.iter().fold(length << 24, |print, byte| print.rotate_left(8) ^ u32::from(*byte)),
    }
}
