//! What the events of a gathered stream say: usage, pictures, an error, or that the end is missing.

use crate::chat::raw::{Members, Text};
use crate::error::{Class, Failure, classify_event};
use crate::sse::{Decoder, Event};
use crate::wire::TRUNCATED;
use bytes::Bytes;

/// All of a stream's events, read.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The last usage object, as JSON.
    pub usage: Option<String>,
    /// Pictures that were finished.
    pub images: u64,
    /// Pieces came.
    begun: bool,
    /// The event that ends them came.
    ended: bool,
}

/// It may be a stream: what begins so and is none (a transcript) says nothing in [`read`].
pub(super) fn is_stream(body: &[u8]) -> bool {
    let text = body.trim_ascii_start();
    [&b"event:"[..], b"data:", b":"].iter().any(|start| text.starts_with(start))
}

/// # Errors
/// One of its events is an error; or OpenAI's own events began and their last one never came
/// (openai-openapi: `transcript.text.done`, `speech.audio.done`, `image_….completed`).
pub(super) fn read(body: &Bytes) -> Result<Told, Failure> {
    let mut told = Told::default();
    let mut events = Decoder::default();
    events.push(body.clone());
    // An event above the cap is not read, and none behind it.
    while let Ok(Some(event)) = events.next_event() {
        told.take(&event)?;
    }
    if let Some(event) = events.finish() {
        told.take(&event)?;
    }
    if told.begun && !told.ended {
        let cut = Failure::new(Class::Server, 200, "the provider's stream ended too early");
        return Err(Failure { code: Some(TRUNCATED.into()), ..cut });
    }
    Ok(told)
}

impl Told {
    fn take(&mut self, event: &Event) -> Result<(), Failure> {
        let Some(data) = &event.data else { return Ok(()) };
        let Some(members) = std::str::from_utf8(data).ok().and_then(Members::of) else {
            return Ok(());
        };
        let said = |name: &str| members.get(name).filter(|value| value.get() != "null");
        let kind = members.text("type").unwrap_or(Text::default());
        let name = event.name.as_deref();
        if said("error").is_some() || &*kind == "error" || name == Some(b"error") {
            return Err(classify_event(data));
        }
        if let Some(usage) = said("usage") {
            self.usage = Some(usage.get().to_owned());
        }
        self.begun |= kind.ends_with(".delta") || kind.ends_with(".partial_image");
        let picture = kind.ends_with(".completed");
        self.images += u64::from(picture);
        self.ended |= picture || kind.ends_with(".done");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(body: &'static str) -> Result<Told, Failure> {
        assert!(is_stream(body.as_bytes()));
        read(&Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn the_last_usage_counts_and_every_finished_picture() {
        let said = told(
            "data: {\"type\":\"image_generation.partial_image\"}\n\n\
             event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\",\
             \"usage\":{\"input_tokens\":1,\"output_tokens\":2}}\n\n\
             data: {\"type\":\"image_generation.completed\",\"usage\":{\"input_tokens\":3}}\n\n",
        );
        let said = said.unwrap();
        assert_eq!((said.images, said.usage.as_deref()), (2, Some("{\"input_tokens\":3}")));
    }

    #[test]
    fn an_error_or_a_missing_end_is_no_answer() {
        let delta = "data: {\"type\":\"transcript.text.delta\",\"delta\":\"he\"}\n\n";
        assert_eq!(told(delta).unwrap_err().code.as_deref(), Some(TRUNCATED));
        for body in [
            "data: {\"type\":\"speech.audio.delta\"}\n\ndata: {\"error\":{\"message\":\"\"}}\n\n",
            "event: error\ndata: {\"message\":\"no\"}\n\n",
            "data: {\"type\":\"error\",\"message\":\"no\"}\n\n",
        ] {
            assert!(told(body).is_err(), "{body}");
        }
        // Other hosts' events, and a transcript that looks like one.
        assert!(told("data: {\"choices\":[]}\n\ndata: [DONE]\n\n").is_ok());
        assert!(told("data: and so on").is_ok());
    }
}
