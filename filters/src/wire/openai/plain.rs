//! A completion as it mostly is, read by hand in a quarter of serde's time: one choice that says
//! text, usage in integers, strings without escapes but for the text. What reads here reads with
//! serde as the same; all else is left to serde.

use super::chunk::{Completion, Few, Object, Said, WholeChoice};
use super::members::Text;
use super::usage::{CompletionDetails, PromptDetails, Told};
use crate::line::plain_run;
use std::borrow::Cow;

/// Values that are passed over may be nested so deep.
const DEPTH_MAX: u8 = 8;
/// A `u64` has room for any number of so many digits.
const DIGITS_MAX: usize = 19;

/// The completion that `json` is; `None` where it may be one all the same.
pub(super) fn completion(json: &str) -> Option<Completion<'_>> {
    let mut reader = Reader { json, at: 0 };
    let completion = reader.completion()?;
    reader.space();
    (reader.at == json.len()).then_some(completion)
}

struct Reader<'a> {
    json: &'a str,
    at: usize,
}

/// Fills what must not stand there twice.
fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.is_none().then(|| *slot = Some(value))
}

impl<'a> Reader<'a> {
    fn completion(&mut self) -> Option<Completion<'a>> {
        let (mut id, mut object, mut created, mut model) = (None, None, None, None);
        let (mut choices, mut usage) = (None, None);
        self.object(|r, name| match name {
            "id" => once(&mut id, r.name()?),
            "object" => once(&mut object, r.name()?),
            "created" => once(&mut created, r.number()?),
            "model" => once(&mut model, r.name()?),
            "choices" => once(&mut choices, r.choices()?),
            "usage" => once(&mut usage, r.usage()?),
            "error" => None,
            _ => r.skip(0),
        })?;
        Some(Completion {
            id: id?,
            object: object?,
            created: created?,
            model: model?,
            choices: choices?,
            usage: Object(usage?),
            error: None,
        })
    }

    fn choices(&mut self) -> Option<Few<WholeChoice<'a>>> {
        self.open(b'[')?;
        let (mut index, mut message, mut finish_reason) = (None, None, None);
        self.object(|r, name| match name {
            "index" => once(&mut index, u32::try_from(r.number()?).ok()?),
            "message" => once(&mut message, r.message()?),
            "finish_reason" => once(&mut finish_reason, r.name()?),
            _ => r.skip(0),
        })?;
        self.open(b']')?;
        let message = Object(message?);
        Some(Few::one(WholeChoice { index: index?, message, finish_reason: finish_reason? }))
    }

    fn message(&mut self) -> Option<Said<'a>> {
        let (mut role, mut content, mut refusal) = (None, None, None);
        let (mut reasoning_content, mut reasoning) = (None, None);
        // What calls goes the long way; no call is a null.
        let (mut tool_calls, mut function_call) = (None, None);
        self.object(|r, name| match name {
            "role" => once(&mut role, r.or_null(Self::name)?),
            "content" => once(&mut content, r.or_null(Self::text)?),
            "refusal" => once(&mut refusal, r.or_null(Self::text)?),
            "reasoning_content" => once(&mut reasoning_content, r.or_null(Self::text)?),
            "reasoning" => once(&mut reasoning, r.or_null(Self::text)?),
            "tool_calls" => once(&mut tool_calls, r.null()?),
            "function_call" => once(&mut function_call, r.null()?),
            _ => r.skip(0),
        })?;
        Some(Said {
            role,
            content,
            reasoning_content: reasoning_content.flatten(),
            reasoning: reasoning.flatten(),
            refusal: refusal.flatten(),
            tool_calls: None,
            function_call: None,
        })
    }

    fn usage(&mut self) -> Option<Told> {
        let (mut prompt, mut completion, mut total) = (None, None, None);
        let (mut prompts, mut completions) = (None, None);
        let (mut hit, mut cached, mut reasoning) = (None, None, None);
        self.object(|r, name| match name {
            "prompt_tokens" => once(&mut prompt, r.number()?),
            "completion_tokens" => once(&mut completion, r.number()?),
            "total_tokens" => once(&mut total, r.number()?),
            "prompt_tokens_details" => once(&mut prompts, r.or_null(Self::prompts)?),
            "completion_tokens_details" => once(&mut completions, r.or_null(Self::completions)?),
            "prompt_cache_hit_tokens" => once(&mut hit, r.or_null(Self::number)?),
            "cached_tokens" => once(&mut cached, r.or_null(Self::number)?),
            "reasoning_tokens" => once(&mut reasoning, r.or_null(Self::number)?),
            _ => r.skip(0),
        })?;
        Some(Told {
            prompt_tokens: prompt?,
            completion_tokens: completion?,
            total_tokens: total?,
            prompt_tokens_details: prompts.flatten().map(Object),
            completion_tokens_details: completions.flatten().map(Object),
            prompt_cache_hit_tokens: hit.flatten(),
            cached_tokens: cached.flatten(),
            reasoning_tokens: reasoning.flatten(),
        })
    }

    fn prompts(&mut self) -> Option<PromptDetails> {
        let (mut cached, mut write) = (None, None);
        self.object(|r, name| match name {
            "cached_tokens" => once(&mut cached, r.or_null(Self::number)?),
            "cache_write_tokens" => once(&mut write, r.or_null(Self::number)?),
            _ => r.skip(0),
        })?;
        let (cached_tokens, cache_write_tokens) = (cached.flatten(), write.flatten());
        Some(PromptDetails { cached_tokens, cache_write_tokens })
    }

    fn completions(&mut self) -> Option<CompletionDetails> {
        let mut reasoning = None;
        self.object(|r, name| match name {
            "reasoning_tokens" => once(&mut reasoning, r.or_null(Self::number)?),
            _ => r.skip(0),
        })?;
        Some(CompletionDetails { reasoning_tokens: reasoning.flatten() })
    }
}

// JSON.
impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.json.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.rest().first() {
            self.at += 1;
        }
    }

    /// This byte, after any space.
    fn open(&mut self, byte: u8) -> Option<()> {
        self.space();
        (*self.rest().first()? == byte).then(|| self.at += 1)
    }

    /// An object; `member` reads the value that belongs to a name.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.open(b'{')?;
        if self.open(b'}').is_some() {
            return Some(());
        }
        loop {
            let name = self.name()?;
            self.open(b':')?;
            member(self, name)?;
            if self.open(b',').is_none() {
                return self.open(b'}');
            }
        }
    }

    /// A string without escapes.
    fn name(&mut self) -> Option<&'a str> {
        self.open(b'"')?;
        let end = self.at + plain_run(self.rest());
        let name = self.json.get(self.at..end)?;
        self.at = end;
        (*self.rest().first()? == b'"').then(|| self.at += 1)?;
        Some(name)
    }

    /// Any string.
    fn text(&mut self) -> Option<Text<'a>> {
        self.space();
        let start = self.at;
        if let Some(name) = self.name() {
            return Some(Text(Cow::Borrowed(name)));
        }
        self.at = start;
        let mut strings = serde_json::Deserializer::from_str(self.json.get(start..)?).into_iter();
        let text = strings.next()?.ok()?;
        self.at += strings.byte_offset();
        Some(Text(Cow::Owned(text)))
    }

    /// An integer from 0 on.
    fn number(&mut self) -> Option<u64> {
        self.space();
        let rest = self.rest();
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let leading = digits > 1 && rest.first() == Some(&b'0');
        let more = matches!(rest.get(digits), Some(b'.' | b'e' | b'E'));
        if digits == 0 || digits > DIGITS_MAX || leading || more {
            return None;
        }
        self.at += digits;
        Some(rest[..digits].iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')))
    }

    fn null(&mut self) -> Option<()> {
        self.space();
        self.word("null")
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.rest().starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    /// What `read` reads, or null.
    fn or_null<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.null().is_some() { Some(None) } else { read(self).map(Some) }
    }

    /// Passes over a value.
    fn skip(&mut self, depth: u8) -> Option<()> {
        self.space();
        match self.rest().first()? {
            b'"' => self.name().map(drop),
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'0'..=b'9' => self.number().map(drop),
            b'{' if depth < DEPTH_MAX => self.object(|r, _| r.skip(depth + 1)),
            b'[' if depth < DEPTH_MAX => {
                self.at += 1;
                if self.open(b']').is_some() {
                    return Some(());
                }
                loop {
                    self.skip(depth + 1)?;
                    if self.open(b',').is_none() {
                        return self.open(b']');
                    }
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // tests
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,
        "model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant",
        "content":"Hello,\n\u00e9 \"you\"","refusal":null,"annotations":[]},"logprobs":null,
        "finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":40,
        "total_tokens":52,"prompt_tokens_details":{"cached_tokens":3,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":7}},"service_tier":"default",
        "system_fingerprint":"fp"}"#;

    /// All that is read of it.
    fn told(c: &Completion<'_>) -> String {
        let choices: Vec<_> = c
            .choices
            .iter()
            .map(|choice| {
                let said = &choice.message.0;
                let texts = [&said.reasoning_content, &said.reasoning, &said.refusal];
                let texts = texts.map(|text| text.as_ref().map(|text| text.0.to_string()));
                let content = said.content.as_ref().map(|text| text.as_ref().map(|t| t.0.clone()));
                let calls = said.tool_calls.is_some() || said.function_call.is_some();
                (choice.index, said.role, content, texts, choice.finish_reason, calls)
            })
            .collect();
        let head = (c.id, c.object, c.created, c.model, c.error.is_some());
        format!("{head:?} {choices:?} {:?}", c.usage.0)
    }

    /// Read by hand and by serde; what the first reads the second reads alike.
    fn check(json: &str) -> bool {
        let Some(read) = completion(json) else { return false };
        let want = serde_json::from_str::<Completion<'_>>(json);
        assert_eq!(told(&read), told(&want.unwrap()), "{json}");
        true
    }

    #[test]
    fn the_usual_completion_is_read_and_odd_ones_are_left_to_serde() {
        assert!(check(WHOLE));
        let odd = [
            ("\"id\":\"chatcmpl-1\"", "\"id\":null"),
            ("\"id\":\"chatcmpl-1\"", "\"id\":\"a\\u0062\""),
            ("\"created\":1700000000", "\"created\":1.5"),
            ("\"created\":1700000000", "\"created\":01"),
            ("\"created\":1700000000", "\"created\":17000000000000000000"),
            ("\"created\":1700000000", "\"created\":1,\"created\":2"),
            ("\"refusal\":null", "\"refusal\":null,\"refusal\":null"),
            ("\"refusal\":null", "\"tool_calls\":[]"),
            ("\"service_tier\":\"default\"", "\"error\":null"),
            ("\"service_tier\":\"default\"", "\"x\":[[[[[[[[[[1]]]]]]]]]]"),
            ("\"service_tier\":\"default\"", "\"x\":-1.5e3"),
            ("\"finish_reason\":\"stop\"}", "\"finish_reason\":\"stop\"},{}"),
            ("\"index\":0", "\"index\":4294967296"),
            ("\"total_tokens\":52", "\"total_tokens\":null"),
        ];
        for (from, to) in odd {
            assert!(!check(&WHOLE.replacen(from, to, 1)), "{to}");
        }
        assert!(check(&WHOLE.replacen(
            "\"service_tier\"",
            "\"x\":[{},[true,{\"y\":[]}]],\"z\"",
            1
        )));
        assert!(check(&WHOLE.replacen("\"cached_tokens\":3", "\"cached_tokens\":null", 1)));
        assert!(check(&format!("{WHOLE} \n")) && !check(&format!("{WHOLE} x")));
    }

    #[test]
    fn cut_anywhere_it_is_none() {
        for end in (0..WHOLE.len()).filter(|end| WHOLE.is_char_boundary(*end)) {
            assert!(!check(&WHOLE[..end]), "{end}");
        }
    }

    proptest! {
        #[test]
        fn what_reads_by_hand_reads_with_serde_as_the_same(
            at in 0..WHOLE.len(),
            len in 0..4usize,
            with in "[\\x00-\\x7f]{0,3}|\"[a-z_]{1,8}\":|null|\\{|\\}|\\[|\\]|\\\\u12|é",
        ) {
            let end = (at + len).min(WHOLE.len());
            if WHOLE.is_char_boundary(at) && WHOLE.is_char_boundary(end) {
                check(&[&WHOLE[..at], &with, &WHOLE[end..]].concat());
            }
        }
    }
}
