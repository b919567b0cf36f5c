//! The canonical chat: OpenAI's shape, unknown fields kept in `rest`. What every translating wire
//! and dialect goes through.

use crate::error::{ApiError, Code};
use crate::peek::{OWN, Peek};
use raw::{Members, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

pub mod media;
pub mod raw;
pub mod reply;
pub(crate) mod thought;

/// Members that [`Peek`] says already, beside those that are the gateway's own.
const PEEKED: [&str; 3] = ["model", "stream", "stream_options"];

/// A chat completion request, borrowed from its body.
#[derive(Debug, Default)]
pub struct Chat<'a> {
    /// `messages`, never empty.
    pub messages: Vec<Message<'a>>,
    /// `tools`
    pub tools: Vec<Tool<'a>>,
    /// `tool_choice`
    pub tool_choice: Option<ToolChoice<'a>>,
    /// `parallel_tool_calls`
    pub parallel_tool_calls: Option<bool>,
    /// `response_format`
    pub response_format: Option<Format<'a>>,
    /// `max_completion_tokens` or `max_tokens`; of both the smaller, which holds to either and is
    /// what was held for the request.
    pub max_tokens: Option<u64>,
    /// `temperature`
    pub temperature: Option<Number<'a>>,
    /// `top_p`
    pub top_p: Option<Number<'a>>,
    /// `stop`, a string or an array.
    pub stop: Vec<Text<'a>>,
    /// `n`
    pub n: Option<u64>,
    /// `user`
    pub user: Option<Text<'a>>,
    /// `reasoning_effort`
    pub reasoning_effort: Option<Text<'a>>,
    /// Every other member that is not null, as it came.
    pub rest: Vec<(&'a str, &'a RawValue)>,
    /// Paths of what stands inside of messages, tools and the format and has no place in this
    /// shape, once each: `messages.audio`, `tools.function.examples`.
    pub unread: Vec<String>,
}

/// A number with the digits it was written in.
#[derive(Debug, Clone, Copy)]
pub struct Number<'a> {
    /// As written.
    pub raw: &'a str,
    /// For comparing, never for writing.
    pub value: f64,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `system` and `developer`
    System,
    /// `user`
    User,
    /// `assistant`
    Assistant,
    /// `tool`
    Tool,
}

impl Role {
    /// As OpenAI, and most after it, write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One message.
#[derive(Debug)]
pub struct Message<'a> {
    /// `role`
    pub role: Role,
    /// `content`; a string is one text part, null none. A `refusal` is a text part too.
    pub content: Vec<Part<'a>>,
    /// `name`
    pub name: Option<Text<'a>>,
    /// `tool_calls`
    pub tool_calls: Vec<ToolCall<'a>>,
    /// `tool_call_id`, always there when the role is `tool`.
    pub tool_call_id: Option<Text<'a>>,
    /// `thinking_blocks` as replies of [`reply`] carry them.
    pub thinking_blocks: Vec<Thinking<'a>>,
    /// `reasoning_content` of a message that calls tools and has no `thinking_blocks`, which say it
    /// too. Of an answer that is over no provider wants it back.
    pub reasoning_content: Option<Text<'a>>,
    /// `cache_control` of the whole message.
    pub cache_control: Option<&'a RawValue>,
}

/// One part of a message's content.
#[derive(Debug)]
pub struct Part<'a> {
    /// What it is.
    pub body: PartBody<'a>,
    /// `cache_control`
    pub cache_control: Option<&'a RawValue>,
}

/// What a part is.
#[derive(Debug)]
pub enum PartBody<'a> {
    /// `text`
    Text(Text<'a>),
    /// `image_url`: a `data:` or `http(s):` URL.
    Image(Text<'a>),
    /// `file`
    File(File<'a>),
    /// Any other `type`, with the whole part as it came.
    Other(Text<'a>, &'a RawValue),
}

/// A file's content or name; one of `data` and `id` is there.
#[derive(Debug, Deserialize)]
pub struct File<'a> {
    /// `file_data`: a `data:` URL or bare base64.
    #[serde(borrow, rename = "file_data")]
    pub data: Option<Text<'a>>,
    /// `file_id` at the provider.
    #[serde(borrow, rename = "file_id")]
    pub id: Option<Text<'a>>,
    /// `filename`
    #[serde(borrow, rename = "filename")]
    pub name: Option<Text<'a>>,
}

/// A provider's reasoning that must come back unchanged in tool loops.
#[derive(Debug, Deserialize)]
pub struct Thinking<'a> {
    /// `thinking` or `redacted_thinking`
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// The text.
    #[serde(borrow)]
    pub thinking: Option<Text<'a>>,
    /// The provider's seal on the text.
    #[serde(borrow)]
    pub signature: Option<Text<'a>>,
    /// The sealed text of a redacted one.
    #[serde(borrow)]
    pub data: Option<Text<'a>>,
}

/// A call the model made.
#[derive(Debug)]
pub struct ToolCall<'a> {
    /// `id`
    pub id: Text<'a>,
    /// `function.name`
    pub name: Text<'a>,
    /// `function.arguments`: JSON as text, if the model wrote sound JSON.
    pub arguments: Text<'a>,
}

/// A tool the model may call.
#[derive(Debug)]
pub enum Tool<'a> {
    /// `type: function`
    Function(Function<'a>),
    /// Any other `type`, with the whole tool as it came.
    Other(Text<'a>, &'a RawValue),
}

/// A function's declaration.
#[derive(Debug, Deserialize)]
pub struct Function<'a> {
    /// `name`
    #[serde(borrow)]
    pub name: Text<'a>,
    /// `description`
    #[serde(borrow)]
    pub description: Option<Text<'a>>,
    /// `parameters`, a JSON schema.
    #[serde(borrow)]
    pub parameters: Option<&'a RawValue>,
    /// `strict`
    pub strict: Option<bool>,
    /// `cache_control`, also taken from the tool itself.
    #[serde(borrow)]
    pub cache_control: Option<&'a RawValue>,
}

/// Whether and which tool must be called.
#[derive(Debug, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// `auto`
    Auto,
    /// `none`
    None,
    /// `required`
    Required,
    /// This function.
    Function(Text<'a>),
    /// `allowed_tools`, with `mode: required` or not.
    Allowed {
        /// One of them must be called.
        required: bool,
    },
}

/// The form of the answer.
#[derive(Debug)]
pub enum Format<'a> {
    /// `text`
    Text,
    /// `json_object`
    JsonObject,
    /// `json_schema` with its schema, if it has one.
    JsonSchema(Option<&'a RawValue>),
}

impl<'a> Chat<'a> {
    /// Reads the whole chat out of a peeked body.
    ///
    /// # Errors
    /// `invalid_request` with the member at fault, where OpenAI would refuse its type too.
    pub fn read(peek: &'a Peek) -> Result<Self, ApiError> {
        let mut chat = Self::default();
        for member in &peek.members {
            let name = peek.name(member);
            if PEEKED.contains(&name) || OWN.contains(&name) {
                continue;
            }
            let value = serde_json::from_slice(peek.value(member));
            let raw: &'a RawValue = value.map_err(|e| refuse(name, &e))?;
            if raw.get() == "null" {
                continue;
            }
            chat.take(name, raw)?;
        }
        if chat.messages.is_empty() {
            return Err(wrong("messages", "messages must be an array of at least one message"));
        }
        Ok(chat)
    }

    fn take(&mut self, name: &'a str, raw: &'a RawValue) -> Result<(), ApiError> {
        match name {
            "messages" => self.messages = read::messages(raw, &mut self.unread)?,
            "tools" => self.tools = read::tools(raw, &mut self.unread)?,
            "tool_choice" => self.tool_choice = Some(read::tool_choice(raw)?),
            "parallel_tool_calls" => self.parallel_tool_calls = Some(parse(name, raw)?),
            "response_format" => self.response_format = Some(read::format(raw, &mut self.unread)?),
            "temperature" => self.temperature = Some(read::number(name, raw)?),
            "top_p" => self.top_p = Some(read::number(name, raw)?),
            "stop" if raw.get().starts_with('[') => self.stop = parse(name, raw)?,
            "stop" => self.stop = vec![parse(name, raw)?],
            "max_tokens" | "max_completion_tokens" => {
                let limit: u64 = parse(name, raw)?;
                self.max_tokens = Some(self.max_tokens.map_or(limit, |other| other.min(limit)));
            }
            "n" => self.n = Some(parse(name, raw)?),
            "user" => self.user = Some(parse(name, raw)?),
            "reasoning_effort" => self.reasoning_effort = Some(parse(name, raw)?),
            _ => self.rest.push((name, raw)),
        }
        Ok(())
    }
}

mod read;

fn parse<'a, T: Deserialize<'a>>(param: &str, raw: &'a RawValue) -> Result<T, ApiError> {
    serde_json::from_str(raw.get()).map_err(|e| refuse(param, &e))
}

fn refuse(param: &str, error: &serde_json::Error) -> ApiError {
    let said = error.to_string();
    // The position is one inside the member: no help to the caller.
    let said = said.split(" at line ").next().unwrap_or_default();
    wrong(param, &format!("{param}: {said}"))
}

/// What is wrong with one part of one message, both counted from 0.
pub(crate) fn bad_part((message, part): (usize, usize), what: &str) -> ApiError {
    let param = format!("messages[{message}].content[{part}]");
    wrong(&param, &format!("{param}: {what}"))
}

pub(crate) fn wrong(param: &str, message: &str) -> ApiError {
    ApiError::new(Code::InvalidRequest, message).param(param)
}
