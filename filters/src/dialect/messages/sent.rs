//! One event of a message's stream on its way through.

use crate::peek::{self, Edits};
use crate::sse::{self, Run};
use crate::wire::Step;
use crate::wire::anthropic::event::Event;
use bytes::Bytes;

/// An event as it came.
pub(super) struct Sent<'a> {
    pub event: &'a sse::Event,
    pub data: &'a Bytes,
    pub kind: &'a str,
    /// The data says its type itself.
    pub typed: bool,
}

impl Sent<'_> {
    /// Passes it on, with these members changed.
    pub(super) fn pass(&self, changes: &[(&str, String)], run: &mut Run, step: &mut Step) {
        if changes.is_empty()
            && let Some(raw) = self.plain()
        {
            return run.pass(&raw, &mut step.out);
        }
        run.write(self.changed(changes), &mut step.out);
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.plain().unwrap_or_else(|| self.changed(&[]))
    }

    fn changed(&self, changes: &[(&str, String)]) -> Bytes {
        if changes.is_empty() && self.typed {
            return self.framed(self.data);
        }
        // It was read as an object before, so this is never the way.
        let Ok(peek) = peek::members(self.data.clone()) else { return self.framed(self.data) };
        let mut edits = Edits::default();
        if !self.typed {
            edits.set("type", format!("\"{}\"", self.kind));
        }
        for (name, value) in changes {
            edits.set(name, value.clone());
        }
        self.framed(&edits.apply(&peek).concat())
    }

    /// Its own bytes, where they are nothing but its name and its data, each on one line.
    fn plain(&self) -> Option<Bytes> {
        if !self.typed {
            return None;
        }
        let raw = &self.event.raw;
        let lead = raw.iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
        let rest = raw.get(lead..)?.strip_prefix(b"event:")?;
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        let rest = rest.strip_prefix(self.kind.as_bytes())?.strip_prefix(b"\ndata:")?;
        let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_suffix(b"\n\n")?;
        (rest.len() == self.data.len()).then(|| raw.slice(lead..))
    }

    fn framed(&self, data: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(data.len() + 64);
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(self.kind.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        // Line ends between tokens would end the data line; in strings they are escaped.
        out.extend(data.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }));
        out.extend_from_slice(b"\n\n");
        out.into()
    }
}

/// `None` for what is no JSON object.
pub(super) fn read(data: &[u8]) -> Option<Event<'_>> {
    serde_json::from_slice(data).ok()
}
