//! The blocks of a message's stream that passes: counted, numbered densely, one open at a time.

use super::{Open, Passing};
use crate::chat::raw::{put_raw, text};
use crate::dialect::messages::sent::Sent;
use crate::dialect::messages::stream::event;
use crate::error::Class;
use crate::sse::Run;
use crate::tokens::Channel;
use crate::wire::Step;
use crate::wire::anthropic::event::Event;
use serde_json::value::RawValue;

impl Passing {
    pub(super) fn open_block(
        &mut self,
        read: &Event<'_>,
        sent: &Sent<'_>,
        run: &mut Run,
        step: &mut Step,
    ) {
        let Some(block) = read.block() else { return };
        self.begin(run, step);
        self.close_open(run, step);
        let kind = &*block.kind;
        let tool = (kind == "tool_use").then_some(self.tools);
        self.tools += u32::from(tool.is_some());
        self.open = Some(Open { theirs: read.index(), tool });
        let channel = tool.map_or(Channel::Content, Channel::Tool);
        for text in [&block.name, &block.text] {
            self.tap.counter.push(0, channel, text.as_deref().unwrap_or_default());
        }
        // Text and thinking begin with their first piece, anything else with its block.
        if !matches!(kind, "text" | "thinking") || block.text.is_some_and(|t| !t.is_empty()) {
            self.started = true;
            step.alive = true;
        }
        let mut changes = self.renumbered(read.index());
        if tool.is_some()
            && block.input.is_none()
            && let Some(raw) = read.raw_block().and_then(|raw| raw.strip_suffix('}'))
        {
            changes.push(("content_block", format!("{raw},\"input\":{{}}}}")));
        }
        sent.pass(&changes, run, step);
    }

    pub(super) fn delta(
        &mut self,
        read: &Event<'_>,
        sent: &Sent<'_>,
        run: &mut Run,
        step: &mut Step,
    ) {
        let Some(delta) = read.delta() else { return };
        if self.open.as_ref().is_none_or(|open| open.theirs != read.index()) {
            let kind = match (delta.text, delta.thinking, delta.partial_json) {
                (Some(_), ..) => "text",
                (_, Some(_), _) => "thinking",
                (.., Some(_)) => {
                    return self.fail(step, Class::Invalid, "a tool's input came without its call");
                }
                _ => return,
            };
            self.open_missing(read.index(), kind, run, step);
        }
        let tool = self.open.as_ref().and_then(|open| open.tool);
        self.count(Channel::Content, delta.text);
        self.count(Channel::Reasoning, delta.thinking);
        self.count(tool.map_or(Channel::Content, Channel::Tool), delta.partial_json);
        self.started = true;
        step.alive = true;
        sent.pass(&self.renumbered(read.index()), run, step);
    }

    /// A block whose start the provider left out; its text must not be lost.
    fn open_missing(&mut self, theirs: u64, kind: &str, run: &mut Run, step: &mut Step) {
        self.begin(run, step);
        self.close_open(run, step);
        self.open = Some(Open { theirs, tool: None });
        let mut out = Vec::new();
        let index = self.blocks.to_string();
        event(&mut out, "content_block_start", |out| {
            put_raw(out, "index", &index);
            let seal = if kind == "thinking" { r#","signature":"""# } else { "" };
            let block = format!(r#"{{"type":"{kind}","{kind}":""{seal}}}"#);
            put_raw(out, "content_block", &block);
        });
        run.write(out.into(), &mut step.out);
    }

    pub(super) fn close_block(
        &mut self,
        read: &Event<'_>,
        sent: &Sent<'_>,
        run: &mut Run,
        step: &mut Step,
    ) {
        if self.open.as_ref().is_some_and(|open| open.theirs == read.index()) {
            sent.pass(&self.renumbered(read.index()), run, step);
            self.open = None;
            self.blocks += 1;
        }
    }

    /// A block that the provider left open.
    pub(super) fn close_open(&mut self, run: &mut Run, step: &mut Step) {
        if self.open.take().is_none() {
            return;
        }
        let mut out = Vec::new();
        let index = self.blocks.to_string();
        event(&mut out, "content_block_stop", |out| put_raw(out, "index", &index));
        run.write(out.into(), &mut step.out);
        self.blocks += 1;
    }

    /// The index that the caller must see, where the provider's is another.
    fn renumbered(&self, theirs: u64) -> Vec<(&'static str, String)> {
        let other = theirs != self.blocks;
        other.then(|| ("index", self.blocks.to_string())).into_iter().collect()
    }

    fn count(&mut self, channel: Channel, raw: Option<&RawValue>) {
        match raw.map(|raw| (raw, text(raw))) {
            Some((_, Some(text))) => self.tap.counter.push(0, channel, &text),
            // Half of a surrogate pair: no text, but it was generated.
            Some((raw, None)) => self.tap.counter.push(0, channel, raw.get()),
            None => {}
        }
    }
}
