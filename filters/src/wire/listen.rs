//! A provider's reply in text framing (events, JSON lines, an array in pieces, one object), item by
//! item to the wire that understands it.

use super::scribe::Scribe;
use super::{Reply, ReplyContext, Step, Tap, Whole};
use crate::error::{Class, Failure};
use crate::objects::Splitter;
use crate::sse::{self, Decoder};
use bytes::Bytes;

/// What a wire makes of its provider's words.
pub(super) trait Reader: Send {
    /// One JSON object, with the name of its event where it had one. It is an object by its first
    /// byte alone.
    fn object(&mut self, name: Option<&str>, data: &[u8], scribe: &mut Scribe);

    /// The body is over: cleanly as HTTP says (`clean`), and with nothing left open (`closed`).
    fn close(&mut self, clean: bool, closed: bool, scribe: &mut Scribe) {
        let _ = closed;
        scribe.cut(clean);
    }
}

/// One streamed reply.
#[derive(Debug)]
pub(super) struct Listener<R> {
    reader: R,
    scribe: Scribe,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Unknown,
    Events(Decoder),
    Objects(Splitter),
}

impl<R: Reader> Listener<R> {
    pub fn new(reader: R, context: ReplyContext) -> Self {
        Self { reader, scribe: Scribe::stream(context), form: Form::Unknown }
    }

    fn take(&mut self, chunk: Bytes) {
        if matches!(self.form, Form::Unknown) {
            self.form = match chunk.trim_ascii_start().first() {
                None => return,
                Some(b'{' | b'[') => Form::Objects(Splitter::default()),
                Some(b'<') => return self.scribe.fail(Class::Invalid, "the reply is a page"),
                Some(_) => Form::Events(Decoder::new()),
            };
        }
        match &mut self.form {
            Form::Unknown => {}
            Form::Events(decoder) => decoder.push(chunk),
            Form::Objects(splitter) => splitter.push(chunk),
        }
        while !self.scribe.ended() {
            let next = match &mut self.form {
                Form::Unknown => Ok(false),
                Form::Events(decoder) => match decoder.next_event() {
                    Ok(None) => Ok(false),
                    Ok(Some(event)) => {
                        hear(&mut self.reader, &event, &mut self.scribe);
                        Ok(true)
                    }
                    Err(error) => Err(error.to_string()),
                },
                Form::Objects(splitter) => match splitter.next_object() {
                    Ok(None) => Ok(false),
                    Ok(Some(object)) => {
                        self.reader.object(None, &object, &mut self.scribe);
                        Ok(true)
                    }
                    Err(error) => Err(error.to_string()),
                },
            };
            match next {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => self.scribe.fail(Class::Invalid, &why),
            }
        }
    }

    fn close(&mut self, clean: bool) {
        let closed = match &mut self.form {
            Form::Unknown => true,
            // The last event may lack its blank line; when it was cut it is no event at all.
            Form::Events(decoder) => {
                if let Some(event) = decoder.finish()
                    && event.data.as_deref().is_some_and(is_json)
                {
                    hear(&mut self.reader, &event, &mut self.scribe);
                }
                true
            }
            Form::Objects(splitter) => splitter.is_closed(),
        };
        if !self.scribe.ended() {
            self.reader.close(clean, closed, &mut self.scribe);
        }
    }
}

impl<R: Reader> Reply for Listener<R> {
    fn feed(&mut self, chunk: Bytes, step: &mut Step) {
        if !self.scribe.ended() {
            self.take(chunk);
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

/// A reply with status 200 where no stream was asked for, whatever framing it came in.
///
/// # Errors
/// The provider's failure, or what is no answer at all.
pub(super) fn whole<R: Reader>(
    reader: R,
    body: Bytes,
    context: ReplyContext,
) -> Result<Whole, Failure> {
    if body.trim_ascii().is_empty() {
        return Err(Failure::new(Class::Invalid, 200, "the reply is empty"));
    }
    let mut listener = Listener { reader, scribe: Scribe::whole(context), form: Form::Unknown };
    listener.take(body);
    listener.close(true);
    listener.scribe.into_whole()
}

fn hear(reader: &mut impl Reader, event: &sse::Event, scribe: &mut Scribe) {
    let Some(data) = event.data.as_deref().map(<[u8]>::trim_ascii) else {
        // Comments are signs of life; `retry:` alone would break clients.
        if event.comment {
            scribe.comment("keep-alive");
        }
        return;
    };
    if matches!(data, b"" | b"null" | b"[DONE]") {
        return;
    }
    if data.first() != Some(&b'{') {
        return scribe.fail(Class::Invalid, "an event of the stream is no JSON object");
    }
    let name = event.name.as_deref().and_then(|name| std::str::from_utf8(name).ok());
    reader.object(name, data, scribe);
}

fn is_json(data: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok()
}
