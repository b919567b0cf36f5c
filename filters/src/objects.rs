//! JSON objects out of bytes at any cut: lines of NDJSON, an array that comes in pieces, or one
//! object alone.

use crate::sse::EVENT_BYTES_MAX;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;

/// Splits a byte stream into its objects. What stands between them (white space, commas, the
/// brackets of an array around all) is passed over; whether an object is sound JSON is left to its
/// reader.
#[derive(Debug, Default)]
pub struct Splitter {
    /// The unfinished object's bytes out of earlier chunks.
    held: BytesMut,
    /// What is left of the newest chunk.
    chunk: Bytes,
    /// Open braces and brackets of the unfinished object; 0 between objects.
    depth: usize,
    string: bool,
    escaped: bool,
    /// An array's bracket was opened around the objects and is not closed yet.
    array: bool,
    dead: bool,
}

/// Not a sequence of objects, or an object longer than [`EVENT_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadObjects {
    /// A byte that begins no object.
    #[error("the reply is no sequence of JSON objects")]
    Other,
    /// Longer than [`EVENT_BYTES_MAX`].
    #[error("an object is longer than {EVENT_BYTES_MAX} bytes")]
    TooLong,
}

impl Splitter {
    /// Takes the next bytes of the stream. Whole objects inside one chunk are slices of it.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.chunk = [self.chunk.as_ref(), chunk.as_ref()].concat().into();
        }
    }

    /// The next whole object, if there is one.
    ///
    /// # Errors
    /// [`BadObjects`] once; the splitter is then dead.
    pub fn next_object(&mut self) -> Result<Option<Bytes>, BadObjects> {
        if self.dead {
            return Ok(None);
        }
        if self.depth == 0 && !self.skip()? {
            return Ok(None);
        }
        let Some(end) = self.scan() else {
            if self.held.len() + self.chunk.len() > EVENT_BYTES_MAX {
                return Err(self.die(BadObjects::TooLong));
            }
            self.held.extend_from_slice(&self.chunk);
            self.chunk = Bytes::new();
            return Ok(None);
        };
        if self.held.is_empty() {
            return Ok(Some(self.chunk.split_to(end)));
        }
        self.held.extend_from_slice(&self.chunk[..end]);
        self.chunk.advance(end);
        Ok(Some(self.held.split().freeze()))
    }

    /// Nothing is open: neither an object nor the array around all.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.depth == 0 && !self.array
    }

    fn die(&mut self, bad: BadObjects) -> BadObjects {
        *self = Self { dead: true, ..Self::default() };
        bad
    }

    /// Passes over what stands before an object; true when one begins.
    fn skip(&mut self) -> Result<bool, BadObjects> {
        while let Some(&byte) = self.chunk.first() {
            match byte {
                b'{' => return Ok(true),
                b'[' => self.array = true,
                b']' => self.array = false,
                b',' => {}
                _ if byte.is_ascii_whitespace() => {}
                _ => return Err(self.die(BadObjects::Other)),
            }
            self.chunk.advance(1);
        }
        Ok(false)
    }

    /// The length of the chunk up to the end of the object, if it ends in there.
    fn scan(&mut self) -> Option<usize> {
        let mut at = 0;
        while at < self.chunk.len() {
            if self.escaped {
                self.escaped = false;
                at += 1;
                continue;
            }
            if self.string {
                at += memchr2(b'"', b'\\', &self.chunk[at..])?;
                self.escaped = self.chunk[at] == b'\\';
                self.string = self.escaped;
                at += 1;
                continue;
            }
            match self.chunk[at] {
                b'"' => self.string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
            if self.depth == 0 {
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> (Vec<String>, Splitter) {
        let mut splitter = Splitter::default();
        let mut out = Vec::new();
        for piece in pieces {
            splitter.push(Bytes::copy_from_slice(piece));
            while let Ok(Some(object)) = splitter.next_object() {
                out.push(String::from_utf8(object.to_vec()).unwrap());
            }
        }
        (out, splitter)
    }

    #[test]
    fn objects_are_the_same_at_every_cut() {
        let texts = [
            "{\"a\":\"}\\\"{\"}\n{\"b\":[{}]}\r\n\n{}",
            "[{\"a\":\"}\\\"{\"}\n,\r\n{\"b\":[{}]},{}]\n",
            " [ {\"a\":\"}\\\"{\"} , {\"b\":[{}]} , {} ] ",
        ];
        for text in texts {
            for at in 0..text.len() {
                let (first, second) = text.as_bytes().split_at(at);
                let (objects, splitter) = split(&[first, second]);
                assert_eq!(objects, ["{\"a\":\"}\\\"{\"}", "{\"b\":[{}]}", "{}"], "{at}");
                assert!(splitter.is_closed());
            }
            let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(split(&bytes).0.len(), 3);
        }
    }

    #[test]
    fn what_is_cut_is_not_closed() {
        for text in ["{", "[", "[{}", "[{},", "{\"a\":\"}", "{}{"] {
            assert!(!split(&[text.as_bytes()]).1.is_closed(), "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused_once() {
        let mut splitter = Splitter::default();
        splitter.push(Bytes::from_static(b"{} <html>{}"));
        assert_eq!(splitter.next_object(), Ok(Some(Bytes::from_static(b"{}"))));
        assert_eq!(splitter.next_object(), Err(BadObjects::Other));
        assert_eq!(splitter.next_object(), Ok(None));
    }

    #[test]
    fn an_endless_object_is_cut_off() {
        let mut splitter = Splitter::default();
        splitter.push(Bytes::from_static(b"{\""));
        assert_eq!(splitter.next_object(), Ok(None));
        splitter.push(Bytes::from(vec![b'a'; EVENT_BYTES_MAX]));
        assert_eq!(splitter.next_object(), Err(BadObjects::TooLong));
    }
}
