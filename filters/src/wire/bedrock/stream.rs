//! A ConverseStream as strict chunks of a chat completion: binary frames, one event in each.

use super::blocks::{Delta, Open, Tokens, ToolUse};
use super::{finish_reason, message};
use crate::chat::raw::{Text, lenient};
use crate::error::{Class, classify};
use crate::frames::{Decoder, Frame};
use crate::sse::EVENT_BYTES_MAX;
use crate::wire::scribe::Scribe;
use crate::wire::{Reply, ReplyContext, Step, Tap};
use bytes::Bytes;
use serde::Deserialize;

/// The filter of one reply.
#[derive(Debug)]
pub(super) struct Stream {
    scribe: Scribe,
    form: Form,
    /// Blocks that are being written, by the provider's index.
    open: Vec<(u64, Open)>,
    stop_reason: Option<String>,
}

#[derive(Debug)]
enum Form {
    Unknown,
    Frames(Decoder),
    /// JSON, gathered until its end.
    Json(Vec<u8>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(default)]
    content_block_index: u64,
    #[serde(borrow)]
    start: Option<Start<'a>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start<'a> {
    #[serde(borrow)]
    tool_use: Option<ToolUse<'a>>,
}

impl Reply for Stream {
    fn feed(&mut self, chunk: Bytes, step: &mut Step) {
        if !self.scribe.ended() {
            self.take(&chunk);
        }
        self.scribe.hand_over(step);
    }

    fn finish(&mut self, clean: bool, step: &mut Step) {
        if !self.scribe.ended() {
            self.close(clean);
        }
        self.scribe.hand_over(step);
    }

    fn cut(&mut self, step: &mut Step) {
        if !self.scribe.ended() {
            self.scribe.shorten();
        }
        self.scribe.hand_over(step);
    }

    fn tap(&mut self) -> &mut Tap {
        self.scribe.tap()
    }
}

impl Stream {
    pub fn new(context: ReplyContext) -> Self {
        let scribe = Scribe::stream(context);
        Self { scribe, form: Form::Unknown, open: Vec::new(), stop_reason: None }
    }

    fn take(&mut self, chunk: &[u8]) {
        if matches!(self.form, Form::Unknown) {
            self.form = match chunk.trim_ascii_start().first() {
                None => return,
                Some(b'{') => Form::Json(Vec::new()),
                Some(b'<') => return self.scribe.fail(Class::Invalid, "the reply is a page"),
                Some(_) => Form::Frames(Decoder::default()),
            };
        }
        match &mut self.form {
            Form::Unknown => {}
            Form::Json(body) if body.len() + chunk.len() > EVENT_BYTES_MAX => {
                self.scribe.fail(Class::Invalid, "the reply is no stream and too long");
            }
            Form::Json(body) => body.extend_from_slice(chunk),
            Form::Frames(decoder) => {
                decoder.push(chunk);
                self.frames();
            }
        }
    }

    fn frames(&mut self) {
        while !self.scribe.ended() {
            let Form::Frames(decoder) = &mut self.form else { return };
            match decoder.next_frame() {
                Ok(Some(frame)) => self.frame(&frame),
                Ok(None) => return,
                Err(bad) => self.scribe.fail(Class::Invalid, &bad.to_string()),
            }
        }
    }

    fn close(&mut self, clean: bool) {
        if let Form::Json(body) = &self.form {
            return match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
                Err(_) if !clean => self.scribe.cut(false),
                _ => message::read(body, &mut self.scribe),
            };
        }
        // The answer is whole though its usage never came.
        match self.stop_reason {
            Some(_) => self.complete(),
            None => self.scribe.cut(clean),
        }
    }

    fn frame(&mut self, frame: &Frame) {
        let kind = frame.header(":message-type").unwrap_or("event");
        if kind != "event" {
            return self.exception(frame);
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(&frame.payload) else {
            return self.scribe.fail(Class::Invalid, "an event of the stream cannot be read");
        };
        match frame.header(":event-type").unwrap_or_default() {
            "contentBlockStart" => self.begin(&event),
            "contentBlockDelta" => self.delta(&event),
            "contentBlockStop" => self.end_block(event.content_block_index),
            "messageStop" => {
                let reason = event.stop_reason.unwrap_or_default();
                self.stop_reason = Some(reason.0.into_owned());
            }
            "metadata" => {
                self.scribe.usage = event.usage.and_then(Tokens::usage);
                if self.stop_reason.is_some() {
                    self.complete();
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, event: &Event<'_>) {
        self.end_block(event.content_block_index);
        if let Some(call) = event.start.as_ref().and_then(|start| start.tool_use.as_ref()) {
            let open = Open::tool(call, &mut self.scribe);
            self.open.push((event.content_block_index, open));
        }
    }

    fn delta(&mut self, event: &Event<'_>) {
        let Some(delta) = &event.delta else { return };
        let index = event.content_block_index;
        let at = match self.open.iter().position(|(n, _)| *n == index) {
            Some(at) => at,
            None => {
                self.open.push((index, Open::by(delta)));
                self.open.len() - 1
            }
        };
        self.open[at].1.add(delta, &mut self.scribe);
    }

    fn end_block(&mut self, index: u64) {
        if let Some(at) = self.open.iter().position(|(n, _)| *n == index) {
            let (_, open) = self.open.swap_remove(at);
            open.close(&mut self.scribe);
        }
    }

    fn complete(&mut self) {
        for (_, open) in std::mem::take(&mut self.open) {
            open.close(&mut self.scribe);
        }
        let reason = self.stop_reason.take().unwrap_or_default();
        self.scribe.open(0);
        self.scribe.finish(0, finish_reason(&reason, self.scribe.tools(0) > 0));
        self.scribe.complete();
    }

    /// An exception is what the status and `x-amzn-errortype` are outside of a stream. An error (of
    /// the transport) has its words in headers.
    fn exception(&mut self, frame: &Frame) {
        let kind = frame.header(":exception-type").or(frame.header(":error-code"));
        let kind = kind.unwrap_or_default();
        let said = frame.header(":error-message").map(|text| {
            let mut body = b"{".to_vec();
            crate::chat::raw::put_member(&mut body, "message", text);
            body.push(b'}');
            body
        });
        let body = said.as_deref().unwrap_or(&frame.payload);
        let header = |name: &str| (name == "x-amzn-errortype").then(|| kind.to_owned());
        self.scribe.failed(classify(status(kind), &header, body));
    }
}

/// The status that an exception has outside of a stream (Converse, errors).
fn status(kind: &str) -> u16 {
    match kind.to_ascii_lowercase().as_str() {
        "throttlingexception" | "modelnotreadyexception" => 429,
        "validationexception" | "servicequotaexceededexception" => 400,
        "accessdeniedexception" | "unrecognizedclientexception" => 403,
        "resourcenotfoundexception" => 404,
        "modeltimeoutexception" => 408,
        "modelstreamerrorexception" | "modelerrorexception" => 424,
        "serviceunavailableexception" => 503,
        _ => 500,
    }
}
