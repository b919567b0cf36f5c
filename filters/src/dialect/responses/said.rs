//! What a passing response has said so far, so that it can be ended before its provider ends it.

use super::items::{Head, Status, inside, put_usage, quoted};
use super::tap::Event;
use crate::chat::raw::{Members, put_comma, put_member, put_name, put_raw};
use crate::usage::Usage;
use bytes::Bytes;

/// Items that are whole, and the one that is being written.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// As raw JSON.
    done: Vec<String>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    index: u64,
    part: u64,
    /// The item as it was announced.
    item: String,
    /// A part of a message is open.
    parted: bool,
    /// The inside of a JSON string.
    text: String,
}

impl Said {
    pub(super) fn note(&mut self, kind: &str, event: &Event<'_>) {
        match kind {
            "response.output_item.added" => {
                let item = event.item.map(|raw| raw.get().to_owned()).unwrap_or_default();
                let (index, part) = (event.output_index, 0);
                self.open = Some(Open { index, part, item, parted: false, text: String::new() });
            }
            "response.output_item.done" => {
                self.done.extend(event.item.map(|raw| raw.get().to_owned()));
                self.open = None;
            }
            _ => {
                let Some(open) = &mut self.open else { return };
                match kind {
                    "response.content_part.added" => {
                        (open.part, open.parted) = (event.content_index, true);
                        open.text.clear();
                    }
                    "response.content_part.done" => open.parted = false,
                    "response.output_text.delta" | "response.function_call_arguments.delta" => {
                        open.text.push_str(event.delta.map_or("", |raw| inside(raw.get())));
                    }
                    _ => {}
                }
            }
        }
    }

    /// The events that close what is open, and the last one.
    pub(super) fn cut(&mut self, head: Head<'_>, next: u64, usage: &Usage) -> (Bytes, Bytes) {
        let (mut out, mut number) = (Vec::new(), next);
        let mut event = |out: &mut Vec<u8>, kind: &str, write: &dyn Fn(&mut Vec<u8>)| {
            out.extend_from_slice(format!("event: {kind}\ndata: {{").as_bytes());
            put_member(out, "type", kind);
            put_raw(out, "sequence_number", &number.to_string());
            write(out);
            out.extend_from_slice(b"}\n\n");
            number += 1;
        };
        if let Some(open) = self.open.take()
            && let Some(item) = open.item()
        {
            let at = |out: &mut Vec<u8>| put_raw(out, "output_index", &open.index.to_string());
            if open.parted {
                let part = |out: &mut Vec<u8>| {
                    at(out);
                    put_raw(out, "content_index", &open.part.to_string());
                };
                event(&mut out, "response.output_text.done", &|out| {
                    part(out);
                    put_raw(out, "text", &quoted(&open.text));
                });
                event(&mut out, "response.content_part.done", &|out| {
                    part(out);
                    put_raw(out, "part", &open.text_part());
                });
            }
            event(&mut out, "response.output_item.done", &|out| {
                at(out);
                put_raw(out, "item", &item);
            });
            self.done.push(item);
        }
        let mut tail = Vec::new();
        event(&mut tail, "response.incomplete", &|out| {
            put_name(out, "response");
            self.put(out, head, usage);
        });
        (out.into(), tail.into())
    }

    fn put(&self, out: &mut Vec<u8>, head: Head<'_>, usage: &Usage) {
        out.push(b'{');
        put_member(out, "id", head.id);
        put_member(out, "object", "response");
        put_raw(out, "created_at", &head.created.to_string());
        put_member(out, "status", Status::Incomplete("").word());
        put_raw(out, "error", "null");
        put_raw(out, "incomplete_details", r#"{"reason":"max_output_tokens"}"#);
        put_member(out, "model", head.model);
        put_name(out, "output");
        out.push(b'[');
        for item in &self.done {
            put_comma(out);
            out.extend_from_slice(item.as_bytes());
        }
        out.extend_from_slice(b"]");
        put_name(out, "usage");
        put_usage(out, usage);
        out.push(b'}');
    }
}

impl Open {
    fn text_part(&self) -> String {
        let text = quoted(&self.text);
        format!("{{\"type\":\"output_text\",\"text\":{text},\"annotations\":[]}}")
    }

    /// The item with what came of it; `None` for a kind whose parts are not known here.
    fn item(&self) -> Option<String> {
        let members = Members::of(&self.item)?;
        let own = match members.text("type").as_deref() {
            Some("message") => ("content", format!("[{}]", self.text_part())),
            Some("function_call") => ("arguments", quoted(&self.text)),
            _ => return None,
        };
        let mut out = b"{".to_vec();
        for (name, raw) in &members.0 {
            match &**name {
                "status" => put_member(&mut out, "status", "incomplete"),
                name if name == own.0 => put_raw(&mut out, name, &own.1),
                name => put_raw(&mut out, name, raw.get()),
            }
        }
        out.push(b'}');
        String::from_utf8(out).ok()
    }
}
