//! The openai wire: recorded answers cut anywhere, and the field's known ways to break a stream.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::print_stderr)] // tests

#[path = "../replay/mod.rs"]
mod replay;

mod again;
mod errors;
mod random;
mod recorded;
mod repairs;
mod requests;
mod tools;
mod usage;
mod wholes;

use bytes::Bytes;
use weir_filters::error::{Class, Failure};
use weir_filters::usage::Usage;
use weir_filters::wire::{End, ReplyContext, Step, Whole, Wire};

/// How a test asks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ask {
    /// The caller asked for usage.
    pub(crate) asked: bool,
    /// We asked in its place.
    pub(crate) strip: bool,
}

pub(crate) const ASKED: Ask = Ask { asked: true, strip: false };
pub(crate) const UNASKED: Ask = Ask { asked: false, strip: false };
pub(crate) const STRIPPED: Ask = Ask { asked: false, strip: true };

pub(crate) fn context(ask: Ask) -> ReplyContext {
    ReplyContext {
        usage_asked: ask.asked,
        strip_usage: ask.strip,
        id: "chatcmpl-made".into(),
        created: 1_700_000_000,
        model: "up-model".into(),
        encoding: None,
        prompt_tokens: 11,
    }
}

/// Everything a stream's filter told: what must not depend on the cut.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    /// For the client, the tail included.
    pub(crate) out: Vec<u8>,
    pub(crate) failure: Option<Failure>,
    pub(crate) usage: Option<Usage>,
    pub(crate) finish: Option<&'static str>,
    pub(crate) model: Option<String>,
    pub(crate) tokens: u64,
    pub(crate) reasoning: u64,
    pub(crate) started: bool,
}

impl Told {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
    /// What a client reads; every strict rule must hold.
    pub(crate) fn seen(&self, ask: Ask) -> replay::chat::Seen {
        let seen = replay::chat::stream(&self.out, ask.asked, self.failure.is_none());
        assert_eq!(seen.faults, [""; 0], "{}", self.text());
        seen
    }
    /// The class of the failure that ended it.
    pub(crate) fn class(&self) -> Class {
        self.failure.as_ref().unwrap_or_else(|| panic!("no failure: {}", self.text())).class
    }
}

pub(crate) fn feed(pieces: &[Bytes], clean: bool, ask: Ask) -> Told {
    let mut filter = Wire::OpenAi.stream(context(ask));
    let mut step = Step::default();
    for piece in pieces {
        filter.feed(piece.clone(), &mut step);
    }
    filter.finish(clean, &mut step);
    let mut out = step.out.concat();
    let failure = match step.end.expect("every stream has an end") {
        End::Complete { tail } => {
            out.extend_from_slice(&tail);
            None
        }
        End::Failed(failure) => Some(failure),
    };
    let tap = filter.tap();
    Told {
        out,
        failure,
        usage: tap.usage,
        finish: tap.finish,
        model: tap.model.clone(),
        tokens: tap.counter.total(),
        reasoning: tap.counter.reasoning(),
        started: step.started,
    }
}

/// A small stream in one piece, checked to be the same byte by byte and in two pieces anywhere.
pub(crate) fn stream(body: impl AsRef<[u8]>, ask: Ask) -> Told {
    let body = Bytes::copy_from_slice(body.as_ref());
    let told = feed(std::slice::from_ref(&body), true, ask);
    for cut in replay::cuts(&body) {
        let cut_told = feed(&replay::pieces(&body, &cut), true, ask);
        assert_eq!(cut_told, told, "cut at {cut:?}");
    }
    told
}

pub(crate) fn whole(body: impl AsRef<[u8]>) -> Result<Whole, Failure> {
    Wire::OpenAi.whole(Bytes::copy_from_slice(body.as_ref()), context(UNASKED))
}

/// One event of a sound stream.
pub(crate) fn chunk(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
         \"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// The same with usage beside the choices.
pub(crate) fn chunk_with_usage(delta: &str, finish: &str, usage: &str) -> String {
    chunk(delta, finish).replace("]}\n\n", &format!("],\"usage\":{usage}}}\n\n"))
}

pub(crate) fn usage_chunk(usage: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
         \"choices\":[],\"usage\":{usage}}}\n\n"
    )
}

pub(crate) const USAGE: &str = r#"{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}"#;
pub(crate) const ROLE: &str = r#"{"role":"assistant","content":""}"#;
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// Role, one word, stop: a sound stream without its `[DONE]`.
pub(crate) fn sound() -> String {
    chunk(ROLE, "null") + &chunk(r#"{"content":"hi"}"#, "null") + &chunk("{}", "\"stop\"")
}
