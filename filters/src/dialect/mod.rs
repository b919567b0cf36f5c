//! What callers speak: the shape of their requests, replies and errors.
//!
//! A request of any [`Api`] either passes to a provider of the same protocol with a few members
//! edited, or becomes a chat ([`crate::chat`]) that every wire takes; its reply then comes back
//! as strict chat chunks, out of which [`canon`] lets the dialect write its own events.

use crate::error::{ApiError, Failure};
use crate::peek::{self, BadBody, Peek};
use crate::usage::Units;
use crate::wire::{Ask, Outgoing, Reply, ReplyContext, Whole, Wire, note};
use bytes::Bytes;
use names::Names;
pub use passed::Passed;

mod canon;
mod cap;
mod completions;
mod embeddings;
mod messages;
mod names;
mod passed;
mod responses;

/// A client protocol, as far as errors and lists go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// OpenAI's: `/v1/chat/completions` and its family.
    #[default]
    OpenAi,
    /// Anthropic's: `/v1/messages`.
    Anthropic,
}

impl Dialect {
    /// As events and logs write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }
}

/// What a caller asks for, and in whose words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Api {
    /// OpenAI's chat completions.
    #[default]
    Chat,
    /// Anthropic's Messages.
    Messages,
    /// Anthropic's counting of a message's tokens.
    CountTokens,
    /// OpenAI's Responses.
    Responses,
    /// OpenAI's completions of a bare prompt.
    Completions,
    /// OpenAI's embeddings.
    Embeddings,
    /// Handed on.
    Passed(Passed),
}

/// What the reading of a reply must know of its request.
#[derive(Debug, Clone, Default)]
pub struct Memo {
    /// The provider speaks the caller's protocol: bytes pass.
    native: bool,
    /// What tools are called upstream and by the caller.
    names: Names,
    /// How vectors are to be written.
    vectors: embeddings::Encoding,
    /// Bodies to be asked after the first one, of the same path; their replies are one answer.
    parts: Vec<Bytes>,
}

impl Memo {
    /// The bodies that follow the first one, where a provider takes less at once than the caller
    /// asks for. Each is asked when the one before is answered.
    #[must_use]
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }
}

impl Api {
    /// The errors' dialect.
    #[must_use]
    pub const fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }

    /// Its requests may cost something.
    #[must_use]
    pub fn costs(self) -> bool {
        self != Self::CountTokens
    }

    /// Its answers come at once or not at all: nothing is generated.
    #[must_use]
    pub fn is_quick(self) -> bool {
        match self {
            Self::Embeddings => true,
            Self::Passed(passed) => passed.is_quick(),
            _ => false,
        }
    }

    /// Its replies may be anything, and leave as what the provider says they are.
    #[must_use]
    pub fn is_opaque(self) -> bool {
        matches!(self, Self::Passed(_))
    }

    /// What a whole reply has beside tokens.
    #[must_use]
    pub fn units(self, request: &Peek, reply: &Bytes) -> Units {
        match self {
            Self::Passed(passed) => passed.units(request, reply),
            _ => Units::default(),
        }
    }

    /// Reads a caller's body.
    ///
    /// # Errors
    /// [`BadBody`], in the words the caller sees.
    pub fn read(self, body: Bytes) -> Result<Peek, BadBody> {
        let form = match self {
            Self::Chat => peek::CHAT,
            Self::Messages | Self::CountTokens => peek::MESSAGES,
            Self::Responses => peek::RESPONSES,
            Self::Completions => peek::COMPLETIONS,
            Self::Embeddings => peek::INPUT,
            Self::Passed(passed) => return passed.read(body),
        };
        peek::form(body, &form)
    }

    /// A local answer, for what needs no provider: `prompt_tokens` as [`Peek::estimate`] gives it.
    #[must_use]
    pub fn local(self, prompt_tokens: u64) -> Option<Bytes> {
        let counts = self == Self::CountTokens;
        counts.then(|| format!("{{\"input_tokens\":{prompt_tokens}}}").into())
    }

    /// The request for one try.
    ///
    /// # Errors
    /// What the caller is told when the provider cannot be asked this at all.
    pub fn request(self, wire: Wire, ask: &Ask<'_>) -> Result<(Outgoing, Memo), ApiError> {
        match self {
            Self::Chat | Self::CountTokens => Ok((wire.request(ask)?, Memo::default())),
            Self::Messages if wire == Wire::Anthropic => Ok((messages::pass(ask)?, native())),
            Self::Messages => translated(self, messages::to_chat(wire, ask)?, wire, ask),
            Self::Responses if has_responses(wire, ask) => Ok((responses::pass(ask)?, native())),
            Self::Responses => translated(self, responses::to_chat(wire, ask)?, wire, ask),
            Self::Completions if completions::has(wire, ask) => {
                Ok((completions::pass(ask)?, native()))
            }
            Self::Completions => translated(self, completions::to_chat(wire, ask)?, wire, ask),
            Self::Embeddings => {
                let vectors = embeddings::Encoding::asked(ask.peek)?;
                let (outgoing, parts) = embeddings::request(wire, ask)?;
                Ok((outgoing, Memo { vectors, parts, ..native() }))
            }
            Self::Passed(passed) => Ok((passed.request(wire, ask)?, native())),
        }
    }

    /// A filter for one streamed reply.
    #[must_use]
    pub fn stream(self, wire: Wire, memo: Memo, context: ReplyContext) -> Box<dyn Reply> {
        match self {
            // Neither of the last two streams.
            Self::Chat | Self::CountTokens | Self::Embeddings | Self::Passed(_) => {
                wire.stream(context)
            }
            Self::Messages if memo.native => messages::tap(context),
            Self::Messages => {
                let speaker = messages::Stream::new(memo.names, &context);
                canon::stream(wire, context, speaker)
            }
            Self::Responses if memo.native => responses::tap(context),
            Self::Responses => {
                let speaker = responses::Stream::new(memo.names, &context);
                canon::stream(wire, context, speaker)
            }
            Self::Completions if memo.native => completions::tap(context),
            Self::Completions => {
                let speaker = completions::Stream::new(&context);
                canon::stream(wire, context, speaker)
            }
        }
    }

    /// Reads a whole JSON reply with status 200.
    ///
    /// # Errors
    /// The provider's failure, when the 200 is none.
    pub fn whole(
        self,
        wire: Wire,
        memo: &Memo,
        body: Bytes,
        context: ReplyContext,
    ) -> Result<Whole, Failure> {
        match self {
            Self::Chat | Self::CountTokens => wire.whole(body, context),
            Self::Messages if memo.native => messages::pass_whole(body, &context),
            Self::Messages => canon::whole(wire, body, context, |message, context, usage| {
                messages::whole(message, &memo.names, context, usage)
            }),
            Self::Responses if memo.native => responses::pass_whole(body, &context),
            Self::Responses => canon::whole(wire, body, context, |message, context, usage| {
                responses::whole(message, &memo.names, context, usage)
            }),
            Self::Completions if memo.native => completions::pass_whole(body, &context),
            Self::Completions => canon::whole(wire, body, context, completions::whole),
            Self::Embeddings if !memo.parts.is_empty() => {
                embeddings::whole_of_many(&body, memo.vectors, &context)
            }
            Self::Embeddings => embeddings::whole(wire, body, memo.vectors, &context),
            Self::Passed(passed) => passed.whole(body, &context),
        }
    }

    /// Looks at the reply to one of [`Memo::parts`]: the prompt tokens that it tells.
    ///
    /// # Errors
    /// It is no part of an answer.
    pub fn part(self, body: &[u8]) -> Result<Option<u64>, Failure> {
        embeddings::part(body)
    }

    /// The replies to all of a request's bodies as the one that [`Self::whole`] reads.
    #[must_use]
    pub fn join(self, replies: &[Bytes]) -> Bytes {
        let joined = replies.join(&b","[..]);
        [b"[", &joined[..], b"]"].concat().into()
    }

    /// An error as the last event of a stream whose reply has no filter to say it.
    #[must_use]
    pub fn error_event(self, error: &ApiError, request_id: &str) -> Bytes {
        match self {
            Self::Responses => responses::failed(error, request_id),
            _ => error.event(self.dialect(), request_id),
        }
    }
}

/// The provider has `/responses`; Azure has it on its v1 surface alone.
fn has_responses(wire: Wire, ask: &Ask<'_>) -> bool {
    let here = wire == Wire::OpenAi || (wire == Wire::Azure && ask.base_url.contains("/openai/v1"));
    here && ask.quirks.responses
}

fn native() -> Memo {
    Memo { native: true, ..Memo::default() }
}

/// A dialect's request as a chat.
struct Chat {
    /// The chat's body.
    body: Vec<u8>,
    /// Members that a chat on this wire cannot say.
    dropped: Vec<String>,
    names: Names,
}

/// The request for a wire, out of the chat that a dialect's request became.
fn translated(
    api: Api,
    chat: Chat,
    wire: Wire,
    ask: &Ask<'_>,
) -> Result<(Outgoing, Memo), ApiError> {
    let peek = peek::chat(chat.body.into()).map_err(|bad| in_words_of(api, bad, ask.peek))?;
    let mut outgoing = wire.request(&Ask { peek: &peek, ..*ask })?;
    // What the wire strips for callers of chat never reaches a caller of another dialect.
    outgoing.strip_usage = false;
    for name in std::mem::take(&mut outgoing.dropped) {
        let theirs = names::member(api, &name, ask.peek).map(str::to_owned);
        note(&mut outgoing.dropped, &theirs.unwrap_or(name));
    }
    chat.dropped.iter().for_each(|name| note(&mut outgoing.dropped, name));
    Ok((outgoing, Memo { names: chat.names, ..Memo::default() }))
}

/// A fault of the chat, told of the member that the caller wrote.
fn in_words_of(api: Api, bad: BadBody, asked: &Peek) -> ApiError {
    let BadBody::Member { param, message } = &bad else { return bad.into() };
    let Some(theirs) = names::member(api, param, asked) else { return bad.into() };
    let message = message.replace(&format!("`{param}`"), &format!("`{theirs}`"));
    BadBody::Member { param: theirs.into(), message }.into()
}

impl From<BadBody> for ApiError {
    fn from(bad: BadBody) -> Self {
        use crate::error::Code;
        match bad {
            BadBody::Json(message) => Self::new(Code::InvalidJson, message),
            BadBody::Member { param, message } => {
                Self::new(Code::InvalidRequest, message).param(param)
            }
        }
    }
}
