//! Events that came though no stream was asked for, gathered into the one JSON reply.

use super::chunk::{Call, Chunk, Few, Function, Said};
use super::members::{Text, put_key, put_member, put_text};
use super::stream::Stream;
use crate::error::{Class, Failure};
use crate::sse::Decoder;
use crate::wire::{End, Reply, ReplyContext, Step, Whole};
use bytes::Bytes;

#[derive(Default)]
struct Choice {
    index: u32,
    content: Option<String>,
    reasoning: Option<String>,
    refusal: Option<String>,
    calls: Vec<[String; 3]>,
    legacy: Option<[String; 2]>,
    finish: String,
}

/// The JSON reply of a body of events.
///
/// # Errors
/// As the stream's.
pub(super) fn assemble(body: Bytes, context: ReplyContext) -> Result<Whole, Failure> {
    let context = ReplyContext { usage_asked: false, strip_usage: true, ..context };
    let (mut stream, mut step) = (Stream::new(context), Step::default());
    stream.feed(body, &mut step);
    stream.finish(true, &mut step);
    if let Some(End::Failed(failure)) = step.end {
        return Err(failure);
    }
    let mut choices = Vec::new();
    let mut decoder = Decoder::new();
    decoder.push(step.out.concat().into());
    while let Ok(Some(event)) = decoder.next_event() {
        let Some(data) = event.data else { continue };
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(&data) else {
            return Err(Failure::new(Class::Invalid, 200, "the provider sent events, not JSON"));
        };
        for choice in chunk.choices.iter() {
            let gathered = find(&mut choices, choice.index);
            gathered.take(&choice.delta.0);
            gathered.finish.push_str(choice.finish_reason.unwrap_or_default());
        }
    }
    choices.sort_by_key(|choice| choice.index);
    let mut state = stream.state;
    state.whole = true;
    let mut out = Vec::new();
    state.put_head(&mut out);
    put_key("choices", &mut out);
    out.push(b'[');
    for choice in &choices {
        choice.put(&mut out);
    }
    out.push(b']');
    put_key("usage", &mut out);
    out.extend_from_slice(state.caller_usage().as_bytes());
    out.push(b'}');
    Ok(Whole { body: out.into(), tap: state.tap })
}

fn find(choices: &mut Vec<Choice>, index: u32) -> &mut Choice {
    let at = choices.iter().position(|choice| choice.index == index).unwrap_or_else(|| {
        choices.push(Choice { index, ..Choice::default() });
        choices.len() - 1
    });
    &mut choices[at]
}

fn add(to: &mut Option<String>, text: Option<&Text<'_>>) {
    if let Some(text) = text {
        to.get_or_insert_default().push_str(&text.0);
    }
}

fn parts<'a>(function: Option<&'a Function<'_>>) -> [&'a str; 2] {
    let name = function.and_then(|f| f.name.as_ref());
    let arguments = function.and_then(|f| f.arguments.as_ref());
    [name, arguments].map(|text| text.map_or("", |text| text.0.as_ref()))
}

impl Choice {
    fn take(&mut self, said: &Said<'_>) {
        add(&mut self.content, said.content.as_ref().and_then(Option::as_ref));
        add(&mut self.reasoning, said.reasoning_content.as_ref());
        add(&mut self.refusal, said.refusal.as_ref());
        if said.function_call.is_some() {
            let legacy = self.legacy.get_or_insert_default();
            let [name, arguments] = parts(said.function_call.as_ref());
            legacy[0].push_str(name);
            legacy[1].push_str(arguments);
        }
        said.tool_calls.iter().flat_map(Few::iter).for_each(|call| self.take_call(call));
    }

    fn take_call(&mut self, call: &Call<'_>) {
        let at = call.index.and_then(|index| usize::try_from(index).ok()).unwrap_or(0);
        let [name, arguments] = parts(call.function.as_ref());
        match self.calls.get_mut(at) {
            Some(known) => known[2].push_str(arguments),
            // The stream's indexes are dense.
            None => {
                let id = call.id.unwrap_or_default();
                self.calls.push([id, name, arguments].map(str::to_owned));
            }
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if out.ends_with(b"[") { b"{" } else { b",{" });
        put_key("index", out);
        out.extend_from_slice(self.index.to_string().as_bytes());
        put_key("message", out);
        out.push(b'{');
        put_member("role", "assistant", out);
        put_key("content", out);
        match &self.content {
            Some(content) => put_text(content, out),
            None => out.extend_from_slice(b"null"),
        }
        for (name, text) in [("reasoning_content", &self.reasoning), ("refusal", &self.refusal)] {
            if let Some(text) = text {
                put_member(name, text, out);
            }
        }
        self.put_calls(out);
        out.push(b'}');
        put_member("finish_reason", &self.finish, out);
        out.push(b'}');
    }

    fn put_calls(&self, out: &mut Vec<u8>) {
        if let Some([name, arguments]) = &self.legacy {
            put_key("function_call", out);
            put_function(name, arguments, out);
        }
        if self.calls.is_empty() {
            return;
        }
        put_key("tool_calls", out);
        out.push(b'[');
        for [id, name, arguments] in &self.calls {
            out.extend_from_slice(if out.ends_with(b"[") { b"{" } else { b",{" });
            put_member("id", id, out);
            put_member("type", "function", out);
            put_key("function", out);
            put_function(name, arguments, out);
            out.push(b'}');
        }
        out.push(b']');
    }
}

fn put_function(name: &str, arguments: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    put_member("name", name, out);
    put_member("arguments", arguments, out);
    out.push(b'}');
}
