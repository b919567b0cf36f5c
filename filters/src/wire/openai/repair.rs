//! A chunk or a completion in any shape seen in the field, written anew by the strict rules.

use super::finish::{self, Finish};
use super::fits::called;
use super::members::{self, Members, put_key, put_member};
use super::state::State;
use crate::error::{Class, Failure, classify_event};
use crate::tokens::Channel;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Members of the top level that are written or left out by rule; the rest stays as it came.
const TOP: [&str; 7] = ["id", "object", "created", "model", "choices", "usage", "error"];
const CHOICE: [&str; 4] = ["index", "delta", "message", "finish_reason"];
const SAID: [&str; 6] =
    ["role", "content", "reasoning_content", "refusal", "tool_calls", "function_call"];

impl State {
    /// Writes the object as it may leave; false where nothing of it may (a prelude, usage alone,
    /// what comes after the end). [`State::failure`] is set where it says that the answer is
    /// broken.
    ///
    /// # Errors
    /// The failure, where it is one and no part of an answer.
    pub(super) fn repair(&mut self, json: &str, out: &mut Vec<u8>) -> Result<bool, Failure> {
        let Some(top) = Members::read(json) else {
            return Err(Failure::new(Class::Invalid, 200, "the provider sent no JSON object"));
        };
        if is_failure(&top) {
            return Err(classify_event(json.as_bytes()));
        }
        if let Some(usage) = top.get("usage") {
            self.note_usage(usage.get());
        }
        if let Some(groq) = top.get("x_groq") {
            self.note_groq(groq.get());
        }
        let choices = top.list("choices");
        if choices.is_empty() {
            return Ok(false);
        }
        self.adopt_from(&top);
        self.put_head(out);
        put_key("choices", out);
        out.push(b'[');
        let empty = out.len();
        for (place, choice) in choices.iter().enumerate() {
            if let Some(choice) = Members::read(choice.get()) {
                self.repair_choice(place, &choice, out);
            }
        }
        if out.len() == empty {
            return Ok(false);
        }
        out.push(b']');
        if self.whole {
            put_key("usage", out);
            out.extend_from_slice(self.caller_usage().as_bytes());
        }
        top.put_rest(&TOP, out);
        out.push(b'}');
        Ok(true)
    }

    fn repair_choice(&mut self, place: usize, choice: &Members<'_>, out: &mut Vec<u8>) {
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        let index = choice.number("index").and_then(|n| u32::try_from(n).ok());
        let index = index.filter(|n| *n < super::CHOICES_MAX && !self.whole).unwrap_or(place);
        if self.choice_mut(index).finished {
            return;
        }
        if out.last() == Some(&b'}') {
            out.push(b',');
        }
        out.extend_from_slice(format!("{{\"index\":{index}").as_bytes());
        put_key(if self.whole { "message" } else { "delta" }, out);
        out.push(b'{');
        let said = self.said(index, choice);
        let ended = self.repair_said(index, &said, choice.text("finish_reason"), out);
        out.push(b'}');
        put_key("finish_reason", out);
        match ended {
            Some(ended) => members::put_text(ended, out),
            None => out.extend_from_slice(b"null"),
        }
        choice.put_rest(&CHOICE, out);
        out.push(b'}');
        if let Some(ended) = ended {
            self.end_choice(index, ended);
        }
    }

    /// What the choice says. Perplexity repeats the whole text as `message` beside each delta, and
    /// some hosts send `message` in place of it.
    fn said<'a>(&self, index: u32, choice: &Members<'a>) -> Members<'a> {
        let so_far = self.choice(index).is_some_and(|choice| choice.text);
        let message = || choice.object("message").filter(|_| !so_far);
        choice.object("delta").or_else(message).unwrap_or_default()
    }

    /// Writes a delta's or message's members and gives the finish_reason that goes with them.
    fn repair_said(
        &mut self,
        index: u32,
        said: &Members<'_>,
        word: Option<Cow<'_, str>>,
        out: &mut Vec<u8>,
    ) -> Option<&'static str> {
        if self.whole || !self.choice_mut(index).role {
            put_member("role", "assistant", out);
            self.choice_mut(index).role = true;
        }
        self.repair_texts(index, said, out);
        if let Some(function) = said.object("function_call") {
            self.choice_mut(index).legacy = true;
            for text in [function.text("name"), function.text("arguments")].into_iter().flatten() {
                self.say(index, Channel::Tool(0), &text);
            }
            put_key("function_call", out);
            out.extend_from_slice(
                said.get("function_call").map_or("null", RawValue::get).as_bytes(),
            );
        }
        let mut fragments = self.take_calls(index, said);
        let ended = self.read_finish(index, word);
        if ended.is_some_and(|ended| ended != "length") {
            self.fill_calls(index, &mut fragments);
        }
        self.put_calls(index, &fragments, out);
        let renamed = said.text("reasoning_content").is_none() && said.text("reasoning").is_some();
        if renamed {
            let known: Vec<&str> = SAID.iter().copied().chain(["reasoning"]).collect();
            said.put_rest(&known, out);
        } else {
            said.put_rest(&SAID, out);
        }
        ended
    }

    /// Content, reasoning and refusal, each a string.
    fn repair_texts(&mut self, index: u32, said: &Members<'_>, out: &mut Vec<u8>) {
        let content = said.get("content").map(read_content).unwrap_or_default();
        match &content.text {
            Some(text) => put_member("content", text, out),
            None if self.whole || said.has("content") && said.get("content").is_none() => {
                put_key("content", out);
                out.extend_from_slice(b"null");
            }
            None => {}
        }
        let text = content.text.unwrap_or_default();
        self.choice_mut(index).text |= !text.is_empty();
        self.say(index, Channel::Content, &text);
        let told = said.text("reasoning_content").or_else(|| said.text("reasoning"));
        let reasoning = match (content.thinking, told) {
            (Some(thinking), Some(told)) => Some(Cow::Owned(thinking + &told)),
            (Some(thinking), None) => Some(Cow::Owned(thinking)),
            (None, told) => told,
        };
        if let Some(reasoning) = reasoning {
            put_member("reasoning_content", &reasoning, out);
            self.say(index, Channel::Reasoning, &reasoning);
        }
        if let Some(refusal) = said.text("refusal") {
            put_member("refusal", &refusal, out);
            self.say(index, Channel::Refusal, &refusal);
        } else if said.has("refusal") {
            put_key("refusal", out);
            out.extend_from_slice(b"null");
        }
    }

    fn read_finish(&mut self, index: u32, word: Option<Cow<'_, str>>) -> Option<&'static str> {
        let called = self.choice(index).is_some_and(called);
        // A whole reply has ended, whether or not it says why.
        let word = word.filter(|word| !self.whole || !matches!(word.as_ref(), "" | "null"));
        let word = word.or(self.whole.then_some(Cow::Borrowed("unsaid")))?;
        let ended = match finish::read(&word, called)? {
            Finish::Ended(ended) => ended,
            Finish::Broken => {
                let message = format!("the provider broke the answer off: {word}");
                let mut failure = Failure::new(Class::Server, 200, &message);
                failure.code = Some(word.into_owned());
                self.failure = Some(failure);
                return None;
            }
        };
        let calls = self.choice(index).map(|choice| choice.calls.as_slice()).unwrap_or_default();
        if ended != "length" && calls.iter().any(|call| call.number.is_none()) {
            let failure = Failure::new(Class::Invalid, 200, "a tool call has no name");
            self.failure = Some(failure);
            return None;
        }
        Some(ended)
    }
}

/// An error object or string, or one of the flat shapes that some hosts send in an answer's place.
fn is_failure(top: &Members<'_>) -> bool {
    let nothing = ["false", "0", "\"\"", "{}", "[]"];
    if top.get("error").is_some_and(|error| !nothing.contains(&error.get())) {
        return true;
    }
    // MiniMax's way; it stands in sound answers too, with a 0.
    let told = top.get("base_resp").and_then(|told| Members::read(told.get()));
    let told = told.and_then(|told| told.get("status_code"));
    if told.is_some_and(|code| code.get() != "0") && top.list("choices").is_empty() {
        return true;
    }
    let answer = top.has("choices") || top.has("usage");
    let words = ["message", "error_msg", "error_code", "detail", "msg"];
    top.text("object").as_deref() == Some("error")
        || (!answer && words.iter().any(|word| top.get(word).is_some()))
}

#[derive(Default)]
struct Content<'a> {
    text: Option<Cow<'a, str>>,
    thinking: Option<String>,
}

/// Content as a string, or as parts (Mistral: `text`, `thinking`, and others that are no text).
fn read_content(value: &RawValue) -> Content<'_> {
    if !value.get().starts_with('[') {
        return Content { text: members::text(value), thinking: None };
    }
    let mut content = Content::default();
    for part in members::list(value).into_iter().filter_map(|part| Members::read(part.get())) {
        match part.text("type").as_deref() {
            Some("text") => {
                let text = part.text("text").unwrap_or_default();
                content.text.get_or_insert_default().to_mut().push_str(&text);
            }
            Some("thinking") => {
                let thinking = content.thinking.get_or_insert_default();
                thinking.push_str(&part.text("thinking").unwrap_or_default());
                let inner = part.list("thinking").into_iter();
                for inner in inner.filter_map(|inner| Members::read(inner.get())) {
                    thinking.push_str(&inner.text("text").unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    content
}
