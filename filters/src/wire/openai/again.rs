//! A chunk that says the same as the one before but for its text: most of a stream is such chunks,
//! and comparing bytes costs a tenth of reading JSON.

use super::chunk::{Chunk, Few, Said};
use super::members::Text;
use crate::line::is_plain;
use crate::tokens::Channel;
use std::borrow::Cow;
use std::ops::Range;

/// OpenAI pads its chunks with random characters under this name, against traffic analysis.
const PADDING: &str = "\"obfuscation\":\"";

/// What chunks have in common around their text.
#[derive(Debug)]
pub(super) struct Again {
    /// From the beginning to the quote that opens the text.
    before: String,
    /// From the quote that closes it to the end, or to the quote that opens the padding.
    after: String,
    /// From the quote that closes the padding to the end.
    tail: Option<String>,
    /// What is cut out of `after`, where that is.
    cut: Option<Range<usize>>,
    /// The choice that speaks.
    pub(super) index: u32,
    /// What it says.
    pub(super) channel: Channel,
}

impl Again {
    /// What a chunk that passed may be repeated as; `json` is what it was read from, and `cuts`
    /// what did not pass of it.
    pub(super) fn of(json: &str, chunk: &Chunk<'_>, cuts: &[Range<usize>]) -> Option<Self> {
        let mut choices = chunk.choices.iter();
        let (choice, more) = (choices.next()?, choices.next());
        let plain = more.is_none()
            && choice.finish_reason.is_none()
            && chunk.x_groq.is_none()
            && chunk.usage.is_none_or(|usage| usage.get() == "null");
        let (channel, text) = only(&choice.delta.0).filter(|_| plain)?;
        // A text with escapes is not where it was read from.
        let Text(Cow::Borrowed(text)) = text else { return None };
        let at = (text.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
        let (before, after) = (json.get(..at)?, json.get(at.checked_add(text.len())?..)?);
        let padded = after.split_once(PADDING).and_then(|(rest, padding)| {
            let (padding, tail) = padding.split_at_checked(padding.find('"')?)?;
            (!padding.contains('\\')).then_some((&after[..rest.len() + PADDING.len()], tail))
        });
        let (after, tail) = match padded {
            Some((after, tail)) => (after, Some(tail.to_owned())),
            None => (after, None),
        };
        let behind = before.len() + text.len();
        let cut = match cuts {
            [] => None,
            [one] => Some(one.start.checked_sub(behind)?..one.end.checked_sub(behind)?),
            _ => return None,
        };
        if cut.as_ref().is_some_and(|cut| cut.end > after.len()) {
            return None;
        }
        Some(Self {
            cut,
            before: before.to_owned(),
            after: after.to_owned(),
            tail,
            index: choice.index,
            channel,
        })
    }

    /// The text of a chunk that is the same but for it, and what is to be cut out of `json`.
    pub(super) fn said<'j>(&self, json: &'j str) -> Option<(Cow<'j, str>, Option<Range<usize>>)> {
        let (text, len) = self.text(json)?;
        let behind = self.before.len() + len;
        let cut = self.cut.as_ref().map(|cut| cut.start + behind..cut.end + behind);
        Some((text, cut))
    }

    /// The text, and its length as it is written.
    fn text<'j>(&self, json: &'j str) -> Option<(Cow<'j, str>, usize)> {
        let rest = json.strip_prefix(self.before.as_str())?;
        let rest = match &self.tail {
            None => rest,
            Some(tail) => {
                let rest = rest.strip_suffix(tail.as_str())?;
                // The padding is the last string, and has no quote in it.
                let open = memchr::memrchr(b'"', rest.as_bytes())? + 1;
                let (rest, padding) = rest.split_at_checked(open)?;
                is_plain(padding).then_some(rest)?
            }
        };
        let text = rest.strip_suffix(self.after.as_str())?;
        if is_plain(text) {
            return Some((Cow::Borrowed(text), text.len()));
        }
        // With the quotes around it: escapes are read, and a quote inside is no such chunk.
        let quoted = json.get(self.before.len() - 1..self.before.len() + text.len() + 1)?;
        Some((serde_json::from_str::<Text<'_>>(quoted).ok()?.0, text.len()))
    }
}

/// The one text of a delta that says nothing else.
fn only<'c, 'a>(said: &'c Said<'a>) -> Option<(Channel, &'c Text<'a>)> {
    let content = said.content.as_ref().and_then(Option::as_ref);
    let silent = said.role.is_none()
        && said.refusal.is_none()
        && said.reasoning.is_none()
        && said.function_call.is_none();
    match (content, &said.reasoning_content, &said.tool_calls) {
        _ if !silent => None,
        (Some(content), None, None) => Some((Channel::Content, content)),
        (None, Some(reasoning), None) => Some((Channel::Reasoning, reasoning)),
        (None, None, Some(calls)) => fragment(calls),
        _ => None,
    }
}

/// Arguments of one call that has begun before.
fn fragment<'c, 'a>(calls: &'c Few<super::chunk::Call<'a>>) -> Option<(Channel, &'c Text<'a>)> {
    let mut calls = calls.iter();
    let (call, more) = (calls.next()?, calls.next());
    let function = call.function.as_ref().filter(|function| function.name.is_none())?;
    let begun = more.is_none() && call.id.is_none() && call.kind.is_none() && call.custom.is_none();
    begun.then_some((Channel::Tool(call.index?), function.arguments.as_ref()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // tests
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = r#"{"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","#;

    fn again(json: &str) -> Option<Again> {
        Again::of(json, &serde_json::from_str(json).unwrap(), &[])
    }

    fn chunk(delta: &str, rest: &str) -> String {
        format!(r#"{HEAD}"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]{rest}}}"#)
    }

    #[test]
    fn only_a_chunk_that_says_one_plain_text_is_taken_for_the_next() {
        let pad = r#","usage":null,"obfuscation":"xYz""#;
        for (delta, rest, taken) in [
            (r#"{"content":"a"}"#, "", true),
            (r#"{"content":"a"}"#, pad, true),
            (r#"{"reasoning_content":"a"}"#, "", true),
            (r#"{"tool_calls":[{"index":1,"function":{"arguments":"{"}}]}"#, "", true),
            (r#"{"content":"a\n"}"#, "", false),
            (r#"{"content":null}"#, "", false),
            (r#"{"role":"assistant","content":"a"}"#, "", false),
            (r#"{"content":"a","reasoning_content":"b"}"#, "", false),
            (r#"{"content":"a"}"#, r#","usage":{"total_tokens":1}"#, false),
            (r#"{"tool_calls":[{"index":1,"id":"x","function":{"arguments":"a"}}]}"#, "", false),
        ] {
            assert_eq!(again(&chunk(delta, rest)).is_some(), taken, "{delta}{rest}");
        }
    }

    #[test]
    fn what_differs_in_more_than_its_text_is_read_anew() {
        for rest in ["", r#","obfuscation":"pp""#] {
            let again = again(&chunk(r#"{"content":"a"}"#, rest)).unwrap();
            let next = chunk(r#"{"content":"b"}"#, rest);
            assert_eq!(again.said(&next), Some(("b".into(), None)));
            for other in [
                next.replace("c1", "c2"),
                next.replace("null}]", "\"stop\"}]"),
                next.replace(r#""content":"b""#, r#""content":"b","refusal":"no""#),
                next.replace(r#""b""#, r#""b\""#),
                next.replace(r#""b""#, "null"),
                next.replace("}]", r#"}],"usage":{"a":"b"}"#),
                format!("{next} "),
            ] {
                assert_eq!(again.said(&other), None, "{other}");
            }
        }
    }

    #[test]
    fn what_was_cut_is_cut_again_where_it_is_now() {
        for (rest, cut) in [(r#","usage":null"#, 12), (r#","usage":null,"obfuscation":"x""#, 12)] {
            let json = chunk(r#"{"content":"a"}"#, rest);
            let at = json.find(rest).unwrap();
            let read = serde_json::from_str(&json).unwrap();
            let null = at..at + cut;
            let again = Again::of(&json, &read, std::slice::from_ref(&null)).unwrap();
            let next = chunk(r#"{"content":"bcd\n"}"#, rest);
            let at = next.find(rest).unwrap();
            let want = Some(("bcd\n".into(), Some(at..at + cut)));
            assert_eq!(again.said(&next), want);
            // Cuts before the text, or in the padding, are not known again.
            assert!(Again::of(&json, &read, std::slice::from_ref(&(1..2))).is_none());
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_a_parser_reads_it(
            text in "\\PC{0,9}[\\x00-\\x7f]{0,6}",
            pad in any::<bool>(),
        ) {
            let rest = if pad { r#","obfuscation":"q9""# } else { "" };
            let again = again(&chunk(r#"{"content":"a"}"#, rest)).unwrap();
            let written = serde_json::to_string(&text).unwrap();
            let json = chunk(&format!(r#"{{"content":{written}}}"#), rest);
            prop_assert_eq!(again.said(&json), Some((text.as_str().into(), None)));
            // Whatever stands there unescaped is taken only if a parser takes it, for the same.
            let json = chunk(&format!(r#"{{"content":"{text}"}}"#), rest);
            if let Some((read, _)) = again.said(&json) {
                let chunk: Chunk<'_> = serde_json::from_str(&json).unwrap();
                let content = chunk.choices.iter().next().and_then(|c| c.delta.0.content.clone());
                prop_assert_eq!(content.flatten().map(|text| text.0), Some(read));
            }
        }
    }
}
