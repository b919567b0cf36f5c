//! An answer in no provider's form yet: words, numbers, and where it breaks.

use super::request::Request;
use super::script::{Action, Script};
use std::sync::Arc;
use std::time::Duration;

/// What the provider says it used; classes as OpenAI counts them (cached is inside input).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input: u64,
    /// Of these, read from the provider's cache.
    pub cached: u64,
    /// Generated tokens, reasoning included.
    pub output: u64,
    /// Of these, reasoning.
    pub reasoning: u64,
}

/// How an answer breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// RST.
    Reset,
    /// The body ends cleanly, without finish reason or terminator.
    End,
    /// Silence until the peer leaves.
    Hang,
    /// An error event, then a clean end.
    Error,
}

/// A call the model makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The call's identity.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments, as JSON text.
    pub arguments: String,
}

/// An answer. `Answer::default()` says `Hello world!` and reports 9 in, 3 out.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The text, one piece per event of a stream.
    pub words: Vec<String>,
    /// Reasoning before the text, one piece per event.
    pub thinking: Vec<String>,
    /// Calls after the text.
    pub tools: Vec<Tool>,
    /// What is reported; `None` reports nothing.
    pub usage: Option<Usage>,
    /// `stop`, `length`, `tool_calls`: in OpenAI's words.
    pub finish: String,
    /// The provider's name of the model.
    pub model: String,
    /// Silence before each word of a stream.
    pub delay: Duration,
    /// Where a stream breaks: after so many words.
    pub cut: Option<(usize, Cut)>,
    /// Headers beside the usual ones.
    pub headers: Vec<(String, String)>,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            words: vec!["Hello".into(), " world".into(), "!".into()],
            thinking: vec![],
            tools: vec![],
            usage: Some(Usage { input: 9, cached: 0, output: 3, reasoning: 0 }),
            finish: "stop".into(),
            model: "up-model".into(),
            delay: Duration::ZERO,
            cut: None,
            headers: vec![],
        }
    }
}

impl Answer {
    /// The whole text.
    #[must_use]
    pub fn text(&self) -> String {
        self.words.concat()
    }
    /// The reply in the form the request's path asks for: Anthropic's for `…/messages`, else
    /// OpenAI's; a stream when the body says so.
    #[must_use]
    pub fn reply(&self, request: &Request) -> Vec<Action> {
        if request.route().ends_with("/messages") {
            super::anthropic::reply(self, request)
        } else {
            super::openai::reply(self, request)
        }
    }
    /// A script that gives this answer to every request.
    #[must_use]
    pub fn script(self) -> Script {
        Arc::new(move |request| self.reply(request))
    }
    /// The words of a stream as actions: each made by `event`, with the delay before it.
    /// `Err` when the answer breaks there.
    pub(super) fn words_as(&self, event: impl Fn(&str) -> Action) -> Result<Vec<Action>, Broken> {
        let mut actions = vec![];
        for (i, word) in self.words.iter().enumerate() {
            if let Some((at, cut)) = self.cut
                && at == i
            {
                return Err(Broken { actions, cut });
            }
            if !self.delay.is_zero() {
                actions.push(Action::Wait(self.delay));
            }
            actions.push(event(word));
        }
        match self.cut {
            Some((_, cut)) => Err(Broken { actions, cut }),
            None => Ok(actions),
        }
    }
    pub(super) fn head(&self, content_type: &str) -> Vec<(String, String)> {
        let mut headers = vec![("content-type".into(), content_type.into())];
        headers.extend(self.headers.iter().cloned());
        headers
    }
}

/// What was said before an answer broke.
pub(super) struct Broken {
    pub(super) actions: Vec<Action>,
    pub(super) cut: Cut,
}

impl Broken {
    /// All of it, and the break; `error` is the wire's own error event.
    pub(super) fn end(mut self, error: Action) -> Vec<Action> {
        self.actions.extend(match self.cut {
            Cut::Reset => Some(Action::Reset),
            Cut::Hang => Some(Action::Hang),
            Cut::Error => Some(error),
            Cut::End => None,
        });
        self.actions
    }
}
