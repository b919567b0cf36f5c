//! A wire driven by a recorded reply or a request of a test, and the judgement of what came out.

use super::{Case, chat, cuts, pieces};
use bytes::Bytes;
use serde_json::Value;
use weir_filters::error::{ApiError, Failure};
use weir_filters::peek;
use weir_filters::usage::Usage;
use weir_filters::wire::{Ask, End, Outgoing, Params, Quirks, ReplyContext, Step, Wire};

/// What was asked of the provider.
#[derive(Debug)]
pub struct Sent {
    pub path: String,
    pub text: String,
    pub json: Value,
    pub dropped: Vec<String>,
}

/// The request of a body for a model.
pub fn try_ask(wire: Wire, model: &str, body: &str, params: &Params) -> Result<Outgoing, ApiError> {
    let peek = peek::chat(Bytes::copy_from_slice(body.as_bytes())).expect("a body that is taken");
    let ask = Ask {
        peek: &peek,
        model,
        quirks: &Quirks::default(),
        params,
        max_output: 0,
        base_url: "https://provider.invalid/v1",
        api_version: None,
    };
    wire.request(&ask)
}

/// The request of `{"model","messages":…}` with more members.
pub fn ask(wire: Wire, model: &str, messages: &str, more: &str) -> Sent {
    let comma = if more.is_empty() { "" } else { "," };
    let body = format!("{{\"model\":\"m\",\"messages\":{messages}{comma}{more}}}");
    sent(try_ask(wire, model, &body, &Params::default()).expect("a request"))
}

/// The refusal of the same.
pub fn refused(wire: Wire, model: &str, messages: &str, more: &str) -> ApiError {
    let comma = if more.is_empty() { "" } else { "," };
    let body = format!("{{\"model\":\"m\",\"messages\":{messages}{comma}{more}}}");
    try_ask(wire, model, &body, &Params::default()).expect_err("a refusal")
}

pub fn sent(out: Outgoing) -> Sent {
    let text = String::from_utf8(out.body.concat().to_vec()).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    Sent { path: out.path, text, json, dropped: out.dropped }
}

pub fn context(usage_asked: bool) -> ReplyContext {
    ReplyContext {
        usage_asked,
        strip_usage: false,
        id: "chatcmpl-t".into(),
        created: 1_700_000_000,
        model: "up-model".into(),
        encoding: None,
        prompt_tokens: 7,
    }
}

/// One reply, filtered.
#[derive(Debug)]
pub struct Filtered {
    /// All that went out, the withheld tail included.
    pub out: Vec<u8>,
    pub end: Option<End>,
    pub started: bool,
    pub usage: Option<Usage>,
    pub finish: Option<&'static str>,
    pub model: Option<String>,
    pub counted: u64,
}

impl Filtered {
    pub fn complete(&self) -> bool {
        matches!(self.end, Some(End::Complete { .. }))
    }
    pub fn failure(&self) -> &Failure {
        match &self.end {
            Some(End::Failed(failure)) => failure,
            other => panic!("not failed: {other:?} {}", String::from_utf8_lossy(&self.out)),
        }
    }
    /// What a client reads, every strict rule held.
    pub fn seen(&self, asked: bool) -> chat::Seen {
        let seen = chat::stream(&self.out, asked, self.complete());
        let text = String::from_utf8_lossy(&self.out);
        assert!(seen.faults.is_empty(), "{:?} in {text}", seen.faults);
        seen
    }
}

/// Runs a stream in pieces; `clean`: it ended as HTTP says, else its connection was cut.
pub fn filter(wire: Wire, pieces: &[Bytes], asked: bool, clean: bool) -> Filtered {
    let mut reply = wire.stream(context(asked));
    let (mut out, mut end, mut started) = (Vec::new(), None, false);
    let mut take = |step: Step| {
        assert!(!step.alive || step.started, "alive before it started");
        assert!(!started || step.started, "started is taken back");
        out.extend(step.out.concat());
        started |= step.started;
        if step.end.is_some() {
            assert!(end.is_none(), "two ends");
            end = step.end;
        }
    };
    for piece in pieces {
        let mut step = Step::default();
        reply.feed(piece.clone(), &mut step);
        take(step);
    }
    let mut step = Step::default();
    reply.finish(clean, &mut step);
    take(step);
    if let Some(End::Complete { tail }) = &end {
        out.extend_from_slice(tail);
    }
    let tap = reply.tap();
    Filtered {
        out,
        end,
        started,
        usage: tap.usage,
        finish: tap.finish,
        model: tap.model.clone(),
        counted: tap.counter.total(),
    }
}

/// What a caller must see of a reply, read without the wire's code.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Want {
    pub text: String,
    pub reasoning: String,
    /// Name and arguments, `None` where they are no JSON.
    pub tools: Vec<(String, Option<Value>)>,
    pub finish: Option<&'static str>,
    /// `None`: the provider reported none.
    pub usage: Option<Usage>,
    /// It must fail.
    pub fails: bool,
}

impl Want {
    fn judge_choice(&self, id: &str, choice: &chat::Choice) {
        assert_eq!(choice.text, self.text, "{id}");
        assert_eq!(choice.reasoning, self.reasoning, "{id}");
        assert_eq!(choice.finish.as_deref(), self.finish, "{id}");
        let tools = choice.tools.iter();
        let tools: Vec<_> = tools
            .map(|tool| (tool.name.clone(), serde_json::from_str(&tool.arguments).ok()))
            .collect();
        assert_eq!(tools, self.tools, "{id}");
    }

    /// Judges one filtered stream.
    pub fn judge(&self, id: &str, got: &Filtered, asked: bool) {
        let seen = got.seen(asked);
        if self.fails {
            assert!(!got.complete(), "{id}: a failure ended well");
            return;
        }
        assert!(got.complete(), "{id}: {:?}", got.end);
        self.judge_choice(id, &seen.choices[&0]);
        assert_eq!(got.finish, self.finish, "{id}");
        assert_eq!(got.usage, self.usage, "{id}");
        if asked && let Some(want) = self.usage {
            let usage = seen.usage.unwrap();
            assert_eq!(usage["prompt_tokens"].as_u64(), Some(want.prompt()), "{id}");
            assert_eq!(usage["completion_tokens"].as_u64(), Some(want.output), "{id}");
        }
    }

    /// Judges the body as a whole reply.
    pub fn judge_whole(&self, wire: Wire, case: &Case) {
        let id = &case.id;
        let got = wire.whole(case.body.clone(), context(false));
        if self.fails {
            assert!(got.is_err(), "{id}: a failure is an answer");
            return;
        }
        let got = got.unwrap_or_else(|failure| panic!("{id}: {failure:?}"));
        let seen = chat::json(&got.body);
        assert!(seen.faults.is_empty(), "{id}: {:?}", seen.faults);
        self.judge_choice(id, &seen.choices[&0]);
        assert_eq!(got.tap.finish, self.finish, "{id}");
        assert_eq!(got.tap.usage, self.usage, "{id}");
        let usage = seen.usage.unwrap();
        if let Some(want) = self.usage {
            assert_eq!(usage["prompt_tokens"].as_u64(), Some(want.prompt()), "{id}");
            assert_eq!(usage["completion_tokens"].as_u64(), Some(want.output), "{id}");
            let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
            assert_eq!(cached, Some(want.cached), "{id}");
        }
    }
}

/// The reply as a stream, whole and at every cut: right, and the same bytes everywhere.
pub fn every_cut(wire: Wire, case: &Case, want: &Want) {
    for asked in [true, false] {
        let whole = filter(wire, std::slice::from_ref(&case.body), asked, true);
        want.judge(&case.id, &whole, asked);
        for cut in cuts(&case.body) {
            let got = filter(wire, &pieces(&case.body, &cut), asked, true);
            assert_eq!(got.out, whole.out, "{} at {cut:?}", case.id);
            assert_eq!(got.usage, whole.usage, "{} at {cut:?}", case.id);
            assert_eq!(got.complete(), whole.complete(), "{} at {cut:?}", case.id);
            assert_eq!(got.counted, whole.counted, "{} at {cut:?}", case.id);
        }
    }
}

/// The reply cut short: an answer only where `last_word` says that it had come, else a failure that
/// is called truncated once something had been said.
pub fn every_end(wire: Wire, case: &Case, want: &Want, last_word: impl Fn(&[u8]) -> bool) {
    let last = case.body.len().min(16 << 10);
    for at in (0..last).step_by(if last > 4096 { 7 } else { 1 }) {
        for clean in [true, false] {
            let got = filter(wire, &[case.body.slice(..at)], true, clean);
            let seen = got.seen(true);
            let text = seen.choices.get(&0).map_or("", |choice| &choice.text);
            assert!(want.text.starts_with(text), "{} cut at {at}: {text:?}", case.id);
            match &got.end {
                Some(End::Complete { .. }) => {
                    assert!(last_word(&case.body[..at]), "{} ends well cut at {at}", case.id);
                }
                Some(End::Failed(failure)) => {
                    let cut = failure.code.as_deref() == Some("truncated");
                    assert!(want.fails || cut == got.started, "{} at {at}: {failure:?}", case.id);
                }
                None => panic!("{} cut at {at} has no end", case.id),
            }
        }
    }
}

/// The reply ended for the caller in the middle: what came is an answer that ends by `length`, and
/// nothing follows it.
pub fn every_shortening(wire: Wire, case: &Case, want: &Want) {
    let last = case.body.len().min(16 << 10);
    for at in (0..last).step_by(if last > 4096 { 61 } else { 7 }) {
        let mut reply = wire.stream(context(true));
        let mut step = Step::default();
        reply.feed(case.body.slice(..at), &mut step);
        if step.end.is_some() {
            continue;
        }
        reply.cut(&mut step);
        let Some(End::Complete { tail }) = step.end else {
            panic!("{} shortened at {at}: {:?}", case.id, step.end);
        };
        let out = [step.out.concat(), tail.to_vec()].concat();
        let seen = chat::stream(&out, true, true);
        assert!(seen.faults.is_empty(), "{} at {at}: {:?}", case.id, seen.faults);
        assert_eq!(reply.tap().finish, Some("length"), "{} at {at}", case.id);
        assert!(want.text.starts_with(&seen.choices[&0].text), "{} at {at}", case.id);
        let mut step = Step::default();
        reply.feed(case.body.slice(at..), &mut step);
        reply.finish(true, &mut step);
        assert!(step.out.is_empty() && step.end.is_none(), "{} at {at}: more came", case.id);
    }
}
