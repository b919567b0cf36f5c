//! From the strict chat stream that every wire gives to the events of a caller's dialect.

use crate::chat::Thinking;
use crate::chat::media::DataUrl;
use crate::chat::raw::{Members, Text};
use crate::error::{ApiError, Class, Failure};
use crate::usage::Usage;
use crate::wire::{End, Reply, ReplyContext, Step, Tap, Whole, Wire};
use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One chunk of a strict chat stream, strings unread.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub model: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub choices: Vec<Choice<'a>>,
}

/// A choice of a chunk, or of a completion.
#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub index: u32,
    #[serde(borrow, alias = "message")]
    pub delta: Delta<'a>,
    #[serde(borrow)]
    pub finish_reason: Option<Text<'a>>,
}

/// What a choice says: a part of it in a chunk, all of it in a completion. The raw ones are JSON
/// strings.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    pub tool_calls: Option<Vec<Call<'a>>>,
    #[serde(borrow)]
    pub function_call: Option<Function<'a>>,
    #[serde(borrow)]
    pub thinking_blocks: Option<Vec<Thinking<'a>>>,
    /// Pictures, each `{"image_url": {"url": "data:…"}}`.
    #[serde(borrow)]
    pub images: Option<&'a RawValue>,
}

impl Delta<'_> {
    /// Its pictures in base64.
    pub(super) fn pictures(&self) -> Vec<String> {
        let list = self.images.map(RawValue::get).unwrap_or_default();
        let list: Vec<Members<'_>> = serde_json::from_str(list).unwrap_or_default();
        let data = |picture: &Members<'_>| {
            let url = Members::of(picture.get("image_url")?.get())?.text("url")?;
            DataUrl::of(&url).map(|url| url.data.to_owned()).filter(|data| !data.is_empty())
        };
        list.iter().filter_map(data).collect()
    }
}

/// A tool call or a fragment of one.
#[derive(Debug, Deserialize)]
pub(super) struct Call<'a> {
    #[serde(default)]
    pub index: u32,
    #[serde(borrow)]
    pub id: Option<Text<'a>>,
    #[serde(borrow)]
    pub function: Option<Function<'a>>,
}

impl Call<'_> {
    /// Id and name where a call begins; some providers write both as `""` on every later fragment.
    pub(super) fn begins(&self) -> Option<(&str, &str)> {
        let id = self.id.as_deref().filter(|id| !id.is_empty())?;
        let name = self.function.as_ref()?.name.as_deref().filter(|name| !name.is_empty())?;
        Some((id, name))
    }
}

/// What is called.
#[derive(Debug, Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
}

/// A whole completion.
#[derive(Debug, Deserialize)]
struct Completion<'a> {
    #[serde(borrow)]
    model: Option<Text<'a>>,
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

/// Writes one dialect's events.
pub(super) trait Speaker: Send {
    /// A chunk of the answer.
    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut Vec<u8>);
    /// The answer is whole. What is written to `out` goes at once, what is given back only after
    /// the request's event is written.
    fn end(&mut self, usage: &Usage, out: &mut Vec<u8>) -> Vec<u8>;
    /// The answer has failed after parts of it were sent.
    fn error(&mut self, error: &ApiError, request_id: &str) -> Bytes;
}

/// A wire's reply as a dialect's.
pub(super) struct Translated<S> {
    wire: Box<dyn Reply>,
    speaker: S,
    /// The beginning of a chunk whose end is in the next piece.
    held: Vec<u8>,
    prompt_tokens: u64,
}

/// The filter of a reply on `wire` for a dialect's `speaker`.
pub(super) fn stream<S: Speaker + 'static>(
    wire: Wire,
    context: ReplyContext,
    speaker: S,
) -> Box<dyn Reply> {
    let prompt_tokens = context.prompt_tokens;
    let context = ReplyContext { usage_asked: false, strip_usage: false, ..context };
    let wire = wire.stream(context);
    Box::new(Translated { wire, speaker, held: Vec::new(), prompt_tokens })
}

impl<S: Speaker> Translated<S> {
    fn turn(&mut self, said: Step, step: &mut Step) {
        let mut out = Vec::new();
        let mut sound = true;
        for piece in &said.out {
            sound &= self.piece(piece, &mut out);
        }
        step.started |= said.started;
        step.alive |= said.alive;
        step.end = match said.end {
            _ if !sound => {
                let why = "the reply could not be put into the caller's dialect";
                Some(End::Failed(Failure::new(Class::Invalid, 200, why)))
            }
            Some(End::Complete { .. }) => {
                let usage = used(self.wire.tap(), self.prompt_tokens);
                let tail = self.speaker.end(&usage, &mut out).into();
                Some(End::Complete { tail })
            }
            other => other,
        };
        if !out.is_empty() {
            step.out.push(out.into());
        }
    }

    /// Takes one piece of the wire's chunks; false where it is no chunk, which no wire gives.
    fn piece(&mut self, piece: &Bytes, out: &mut Vec<u8>) -> bool {
        if self.held.is_empty() && piece.ends_with(b"\n\n") {
            return events(piece, &mut self.speaker, out);
        }
        self.held.extend_from_slice(piece);
        if !self.held.ends_with(b"\n\n") {
            return true;
        }
        let held = std::mem::take(&mut self.held);
        events(&held, &mut self.speaker, out)
    }
}

/// Whole events, one after the other.
pub(super) fn events(bytes: &[u8], speaker: &mut impl Speaker, out: &mut Vec<u8>) -> bool {
    let mut from = 0;
    for end in memmem::find_iter(bytes, b"\n\n") {
        let event = bytes.get(from..end).unwrap_or_default();
        from = end + 2;
        let Some(data) = event.strip_prefix(b"data:") else {
            // A comment is a sign of life in every dialect.
            if event.starts_with(b":") {
                out.extend_from_slice(event);
                out.extend_from_slice(b"\n\n");
            }
            continue;
        };
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(data.trim_ascii()) else {
            return false;
        };
        speaker.chunk(&chunk, out);
    }
    true
}

impl<S: Speaker> Reply for Translated<S> {
    fn feed(&mut self, chunk: Bytes, step: &mut Step) {
        let mut said = Step::default();
        self.wire.feed(chunk, &mut said);
        self.turn(said, step);
    }

    fn finish(&mut self, clean: bool, step: &mut Step) {
        let mut said = Step::default();
        self.wire.finish(clean, &mut said);
        self.turn(said, step);
    }

    fn cut(&mut self, step: &mut Step) {
        let mut said = Step::default();
        self.wire.cut(&mut said);
        self.turn(said, step);
    }

    fn tap(&mut self) -> &mut Tap {
        self.wire.tap()
    }

    fn error(&mut self, error: &ApiError, request_id: &str) -> Option<Bytes> {
        Some(self.speaker.error(error, request_id))
    }
}

/// The provider's usage, or ours where it gave none.
pub(super) fn used(tap: &mut Tap, prompt_tokens: u64) -> Usage {
    tap.usage.unwrap_or_else(|| Usage {
        input: prompt_tokens,
        output: tap.counter.total(),
        reasoning: tap.counter.reasoning(),
        ..Usage::default()
    })
}

/// A whole answer's first choice, for a dialect to write.
pub(super) struct Message<'a> {
    /// The provider's name of the model.
    pub model: Option<Text<'a>>,
    /// What it says.
    pub said: Delta<'a>,
    /// One of OpenAI's finish reasons.
    pub finish: Text<'a>,
    /// All choices, where a dialect has several.
    pub others: Vec<Choice<'a>>,
}

/// A whole reply on `wire` as `write` puts it.
///
/// # Errors
/// The provider's failure, when the 200 is none.
pub(super) fn whole(
    wire: Wire,
    body: Bytes,
    context: ReplyContext,
    write: impl FnOnce(&Message<'_>, &ReplyContext, &Usage) -> Bytes,
) -> Result<Whole, Failure> {
    let context = ReplyContext { usage_asked: false, strip_usage: false, ..context };
    let mut whole = wire.whole(body, context.clone())?;
    let none = || Failure::new(Class::Invalid, 200, "the provider's reply has no choices");
    let text = whole.body.clone();
    let completion: Completion<'_> = serde_json::from_slice(&text).map_err(|_| none())?;
    let mut choices = completion.choices.into_iter();
    let first = choices.next().ok_or_else(none)?;
    let message = Message {
        model: completion.model,
        said: first.delta,
        finish: first.finish_reason.unwrap_or_default(),
        others: choices.collect(),
    };
    let usage = used(&mut whole.tap, context.prompt_tokens);
    let body = write(&message, &context, &usage);
    Ok(Whole { body, tap: whole.tap })
}
