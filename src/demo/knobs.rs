//! The script of the demo: it does what the last message of a request asks for.

use super::answer::{Answer, Cut, Tool, Usage};
use super::request::Request;
use super::script::{Action, Script};
use super::{anthropic, openai};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Only so much of a message is read for wishes.
const WISH_BYTES_MAX: usize = 300;

/// A message may not make the demo build a reply larger than this.
const WORDS_MAX: u64 = 100_000;

/// A silence longer than this is `hang=1`.
const WAIT_MAX: f64 = 3600.0;

/// The `name=value` words of a request's last message.
#[derive(Debug, Clone, Default)]
pub struct Wish(Vec<(String, String)>);

impl Wish {
    /// Reads them; a body of another shape has none.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let body = request.json();
        let last = body["messages"].as_array().and_then(|m| m.last());
        let text = last.map(|m| text(&m["content"])).unwrap_or_default();
        let end = (0..=text.len().min(WISH_BYTES_MAX)).rev().find(|i| text.is_char_boundary(*i));
        let pairs = text[..end.unwrap_or(0)].split_whitespace().filter_map(|w| w.split_once('='));
        Self(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }
    /// The value of a wish.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }
    /// A wish that is a whole number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
    /// A wish that is seconds, with a fraction or without.
    #[must_use]
    pub fn seconds(&self, name: &str) -> Option<Duration> {
        let seconds: f64 = self.get(name)?.parse().ok()?;
        (0.0..=WAIT_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
    }
}

/// The script. Wishes: `in=9 out=3 cached=0 reasoning=0` (what is reported; `usage=none` reports
/// nothing), `words=3`, `finish=length`, `tool=NAME`, `think=2`, `wait=0.2` (before the reply),
/// `delay=0.01` (before each word), `status=500`, `retry_after=7`, `hang=1`, `reset=1`,
/// `malformed=html|json|half|empty`, and for streams `cut=2`, `end=2`, `stall=2`, `error=2` (after
/// so many words: RST, a clean end, silence, an error event).
#[must_use]
pub fn knobs() -> Script {
    Arc::new(play)
}

fn play(request: &Request) -> Vec<Action> {
    let route = request.route();
    if request.method == "GET" && route.ends_with("/models") {
        return vec![Action::json(200, &models())];
    }
    let anthropic = route.ends_with("/messages");
    if request.method != "POST" || !(anthropic || route.ends_with("/chat/completions")) {
        return vec![Action::json(404, &openai::error("no such path", "not_found_error"))];
    }
    let wish = Wish::of(request);
    let mut actions: Vec<_> = wish.seconds("wait").map(Action::Wait).into_iter().collect();
    match failure(&wish, anthropic) {
        Some(failed) => actions.extend(failed),
        None => actions.extend(answer(&wish, request).reply(request)),
    }
    actions
}

/// The failures that need no answer.
fn failure(wish: &Wish, anthropic: bool) -> Option<Vec<Action>> {
    if wish.get("hang").is_some() {
        return Some(vec![Action::Hang]);
    }
    if wish.get("reset").is_some() {
        return Some(vec![Action::Reset]);
    }
    if let Some(status) = wish.number("status").and_then(|n| u16::try_from(n).ok()) {
        let kind = error_type(status);
        let body = if anthropic {
            anthropic::error("as asked", kind)
        } else {
            openai::error("as asked", kind)
        };
        let after = wish.get("retry_after").map(|v| ("retry-after", v));
        return Some(vec![Action::json_with(status, after.as_slice(), &body)]);
    }
    let html = vec![("content-type".to_owned(), "text/html".to_owned())];
    let json = vec![("content-type".to_owned(), "application/json".to_owned())];
    Some(vec![match wish.get("malformed")? {
        "html" => Action::Whole(200, html, "<html><body>busy</body></html>".into()),
        "json" => Action::Whole(200, json, "{}".into()),
        "half" => Action::Whole(200, json, r#"{"id":"chatcmpl-simulated","choi"#.into()),
        _ => Action::Whole(200, json, "".into()),
    }])
}

fn answer(wish: &Wish, request: &Request) -> Answer {
    let mut answer = Answer { words: words(wish), ..Answer::default() };
    if let Some(model) = request.json()["model"].as_str() {
        answer.model = model.into();
    }
    let spoken = answer.words.len() as u64;
    answer.usage = (wish.get("usage") != Some("none")).then(|| Usage {
        input: wish.number("in").unwrap_or(9),
        cached: wish.number("cached").unwrap_or(0),
        output: wish.number("out").unwrap_or(spoken),
        reasoning: wish.number("reasoning").unwrap_or(0),
    });
    answer.delay = wish.seconds("delay").unwrap_or_default();
    let thoughts = wish.number("think").unwrap_or(0).min(WORDS_MAX);
    answer.thinking = (0..thoughts).map(|i| format!("t{i} ")).collect();
    if let Some(name) = wish.get("tool") {
        answer.tools = vec![Tool {
            id: "call_simulated".into(),
            name: name.into(),
            arguments: r#"{"city":"Berlin","days":3}"#.into(),
        }];
        answer.finish = "tool_calls".into();
    }
    if let Some(finish) = wish.get("finish") {
        answer.finish = finish.into();
    }
    let cuts =
        [("cut", Cut::Reset), ("end", Cut::End), ("stall", Cut::Hang), ("error", Cut::Error)];
    answer.cut = cuts.iter().find_map(|(name, cut)| {
        let at = usize::try_from(wish.number(name)?).ok()?;
        Some((at, *cut))
    });
    answer
}

fn words(wish: &Wish) -> Vec<String> {
    match wish.number("words") {
        Some(n) => (0..n.min(WORDS_MAX)).map(|i| format!("w{i} ")).collect(),
        None => ["Hello", " from", " a", " simulated", " provider", "."].map(str::to_owned).into(),
    }
}

/// A message's content: a string, or parts with text.
fn text(content: &Value) -> String {
    match content {
        Value::String(s) => s.clone(),
        Value::Array(parts) => {
            let texts: Vec<_> = parts.iter().filter_map(|p| p["text"].as_str()).collect();
            texts.join(" ")
        }
        _ => String::new(),
    }
}

fn error_type(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

fn models() -> Value {
    let model = |id| json!({"id": id, "object": "model", "created": 0, "owned_by": "simulated"});
    json!({"object": "list", "data": [model("gpt-4o-mini"), model("claude-sonnet-4-5")]})
}
