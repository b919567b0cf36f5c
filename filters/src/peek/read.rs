//! The members weir reads, with their types and ranges; the rest is between caller and provider.

use super::edit::{self, Slot};
use super::{BadBody, Member, Peek, Segments, scan};

/// Longest `model`, `task_type` or `budget_tier` in bytes. Bedrock allows 2,048 for a model's ARN,
/// the longest of any provider; more is no name and would only fill logs.
pub const NAME_BYTES_MAX: usize = 2048;

/// Largest `max_tokens`: 2^53 - 1, above which JSON numbers are no longer exact everywhere
/// (RFC 8259 section 6). Keeps sums of holds far from overflow.
pub const LIMIT_MAX: u64 = (1 << 53) - 1;

/// Largest `n`, OpenAI's own.
pub const N_MAX: u64 = 128;

/// What is read of one dialect's body.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The member that holds the prompt.
    pub prompt: &'static str,
    /// The prompt must be an array that is not empty; else it must only stand there.
    pub list: bool,
    /// Members that limit the output in tokens; of several the smaller counts.
    pub limits: &'static [&'static str],
}

/// Chat completions.
pub const CHAT: Form =
    Form { prompt: "messages", list: true, limits: &["max_tokens", "max_completion_tokens"] };
/// Anthropic's Messages, and the counting of their tokens.
pub const MESSAGES: Form = Form { prompt: "messages", list: true, limits: &["max_tokens"] };
/// Responses.
pub const RESPONSES: Form = Form { prompt: "input", list: false, limits: &["max_output_tokens"] };
/// Completions of a bare prompt.
pub const COMPLETIONS: Form = Form { prompt: "prompt", list: false, limits: &["max_tokens"] };
/// Embeddings and moderations.
pub const INPUT: Form = Form { prompt: "input", list: false, limits: &[] };
/// Bodies that are handed on: only what every endpoint has is read.
pub const OTHER: Form = Form { prompt: "", list: false, limits: &[] };

/// What `extra_body` may not hold: who answers and how is said at the top level only.
const NOT_IN_EXTRA: [&str; 4] = ["model", "stream", "stream_options", "extra_body"];

/// Moves the members of `extra_body` to the top level, where it is given.
pub(super) fn merge_extra(peek: Peek) -> Result<Peek, BadBody> {
    let Some(extra) = peek.find("extra_body") else {
        return Ok(peek);
    };
    let text = text(&peek, extra);
    if text == "null" {
        return Ok(peek);
    }
    if !text.starts_with('{') {
        return Err(BadBody::member("extra_body", "`extra_body` must be an object"));
    }
    let inner = inner(&peek, extra)?;
    let mut names: Vec<&str> = inner.members.iter().map(|m| inner.name(m)).collect();
    names.sort_unstable();
    if let Some(name) = NOT_IN_EXTRA.iter().find(|n| names.binary_search(n).is_ok()) {
        let message = format!("`{name}` may not stand in `extra_body`");
        return Err(BadBody::member("extra_body", message));
    }
    let body = merged(&peek, &inner).concat();
    let members = super::check(&body)?;
    Ok(Peek { body, members, ..Peek::default() })
}

/// The members of `inner` in place of those of the same name, the others behind them. Sorted, since
/// both sides may hold a thousand.
fn merged(peek: &Peek, inner: &Peek) -> Segments {
    let value = |m: &Member| inner.body.slice(m.value.clone());
    let mut extra: Vec<_> = inner.members.iter().map(|m| (inner.name(m), m, false)).collect();
    extra.sort_unstable_by_key(|(name, ..)| *name);
    let mut slots: Vec<_> =
        (0..peek.members.len()).filter_map(|i| Slot::original(peek, i)).collect();
    for slot in &mut slots {
        slot.gone = slot.name == "extra_body";
        let found = extra.binary_search_by_key(&&*slot.name, |(name, ..)| *name);
        if let Some((_, member, used)) = found.ok().and_then(|i| extra.get_mut(i)) {
            slot.gone = std::mem::replace(used, true);
            slot.value = Some(value(member));
        }
    }
    extra.retain(|(.., used)| !used);
    extra.sort_unstable_by_key(|(_, member, _)| member.key.start);
    slots.extend(extra.into_iter().map(|(name, m, _)| Slot::inserted(name.into(), value(m))));
    edit::write(peek, &slots)
}

/// Fills in what the members say.
pub(super) fn form(mut peek: Peek, form: &Form) -> Result<Peek, BadBody> {
    prompt(&peek, form)?;
    peek.model = name(&peek, "model", false)?;
    peek.stream = flag(&peek, "stream")?;
    peek.include_usage = include_usage(&peek)?;
    for limit in form.limits {
        let limit = integer(&peek, limit, LIMIT_MAX)?;
        peek.max_tokens = peek.max_tokens.into_iter().chain(limit).min();
    }
    if form.counts() {
        peek.n = integer(&peek, "n", N_MAX)?.unwrap_or(1);
    }
    peek.task_type = name(&peek, "task_type", true)?;
    peek.budget_tier = name(&peek, "budget_tier", true)?;
    Ok(peek)
}

/// A member's object as a body of its own, its spans counted from its own start.
pub(super) fn inner(peek: &Peek, member: &Member) -> Result<Peek, BadBody> {
    let members = scan::members(text(peek, member)).map_err(|f| {
        let at = member.value.start + f.at;
        BadBody::Json(format!("invalid JSON at byte {at}: {}", f.what))
    })?;
    let body = peek.body.slice(member.value.clone());
    Ok(Peek { body, members, ..Peek::default() })
}

impl Form {
    /// Its callers may ask for several answers by `n`.
    fn counts(&self) -> bool {
        matches!(self.prompt, "prompt") || self.limits.len() > 1
    }
}

fn text<'a>(peek: &'a Peek, member: &Member) -> &'a str {
    // Checked as UTF-8 before, so the default is never taken.
    std::str::from_utf8(peek.value(member)).unwrap_or_default()
}

fn prompt(peek: &Peek, form: &Form) -> Result<(), BadBody> {
    let name = form.prompt;
    let fault = |what: &str| Err(BadBody::member(name, format!("`{name}` {what}")));
    match peek.find(name).map(|member| peek.value(member)) {
        _ if name.is_empty() => Ok(()),
        None => fault("is missing"),
        Some([b'[', rest @ ..]) if form.list && rest.trim_ascii_start() == b"]" => {
            fault("must not be empty")
        }
        Some([b'[', ..]) => Ok(()),
        Some(_) if form.list => fault("must be an array"),
        Some(_) => Ok(()),
    }
}

/// A non-empty string without control characters: it goes into logs, labels and headers.
fn name(peek: &Peek, key: &str, nullable: bool) -> Result<Option<String>, BadBody> {
    let Some(member) = peek.find(key) else {
        return Ok(None);
    };
    let text = text(peek, member);
    if nullable && text == "null" {
        return Ok(None);
    }
    if !text.starts_with('"') {
        return Err(BadBody::member(key, format!("`{key}` must be a string")));
    }
    let fault = |what| Err(BadBody::member(key, format!("`{key}` {what}")));
    match scan::unescape(text) {
        None => fault("holds a lone surrogate"),
        Some(s) if s.is_empty() => fault("must not be empty"),
        Some(s) if s.len() > NAME_BYTES_MAX => fault("is longer than 2048 bytes"),
        Some(s) if s.contains(char::is_control) => fault("holds a control character"),
        Some(s) => Ok(Some(s)),
    }
}

fn flag(peek: &Peek, key: &str) -> Result<bool, BadBody> {
    match peek.find(key).map(|m| peek.value(m)) {
        Some(b"true") => Ok(true),
        Some(b"false" | b"null") | None => Ok(false),
        Some(_) => Err(BadBody::member(key, format!("`{key}` must be true or false"))),
    }
}

fn include_usage(peek: &Peek) -> Result<bool, BadBody> {
    const PARAM: &str = "stream_options";
    let Some(member) = peek.find(PARAM) else {
        return Ok(false);
    };
    match peek.value(member) {
        b"null" => return Ok(false),
        [b'{', ..] => {}
        _ => return Err(BadBody::member(PARAM, "`stream_options` must be an object")),
    }
    let options = inner(peek, member)?;
    flag(&options, "include_usage").map_err(|_| {
        let message = "`stream_options.include_usage` must be true or false";
        BadBody::member("stream_options.include_usage", message)
    })
}

/// An integer from 1 to `max`, written as one: `1e3` and `3.0` are refused, since providers differ
/// on them. Null is absent.
fn integer(peek: &Peek, key: &str, max: u64) -> Result<Option<u64>, BadBody> {
    let Some(member) = peek.find(key) else {
        return Ok(None);
    };
    let text = text(peek, member);
    if text == "null" {
        return Ok(None);
    }
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(n) if digits && (1..=max).contains(&n) => Ok(Some(n)),
        _ => {
            let message = format!("`{key}` must be an integer from 1 to {max}");
            Err(BadBody::member(key, message))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use crate::peek::{self, BadBody, Peek};
    use bytes::Bytes;

    /// A chat body with these members beside its messages.
    fn with(members: &str) -> Result<Peek, BadBody> {
        let comma = if members.is_empty() { "" } else { "," };
        peek::chat(Bytes::from(format!(r#"{{"messages":[{{}}]{comma}{members}}}"#)))
    }

    fn param(members: &str) -> String {
        match with(members) {
            Err(BadBody::Member { param, message }) => {
                assert!(message.contains('`'), "{message}");
                param
            }
            other => panic!("{members}: {other:?}"),
        }
    }

    fn json(body: impl Into<Bytes>) -> String {
        match peek::chat(body.into()) {
            Err(BadBody::Json(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_absent_or_null_has_its_default() {
        let nulls = r#""stream":null,"stream_options":null,"max_tokens":null,"n":null,
            "max_completion_tokens":null,"task_type":null,"budget_tier":null,"extra_body":null"#;
        for members in ["", nulls] {
            let peek = with(members).unwrap();
            assert!(peek.model.is_none() && !peek.stream && !peek.include_usage);
            assert_eq!((peek.max_tokens, peek.n), (None, 1));
            assert!(peek.task_type.is_none() && peek.budget_tier.is_none());
        }
    }

    #[test]
    fn members_are_read_whatever_their_key_looks_like() {
        let peek = with(concat!(
            r#""mod\u0065l":"gpt-4\u006f","stream":true,"n":2,"max_tokens":9,"#,
            r#""max_completion_tokens":7,"stream_options":{"x":[],"include_usage":true},"#,
            r#""task_type":"chat","budget_tier":"low","user":{"model":1,"stream":2}"#,
        ))
        .unwrap();
        assert_eq!(peek.model.as_deref(), Some("gpt-4o"));
        assert!(peek.stream && peek.include_usage);
        assert_eq!((peek.max_tokens, peek.n), (Some(7), 2));
        assert_eq!(peek.task_type.as_deref(), Some("chat"));
        assert_eq!(peek.budget_tier.as_deref(), Some("low"));
        assert_eq!(peek.value(peek.find("model").unwrap()), br#""gpt-4\u006f""#);
    }

    #[test]
    fn bad_limits_never_fail_open() {
        let limits = ["max_tokens", "max_completion_tokens", "n"];
        let bad = [
            "0",
            "-0",
            "-1",
            "-9223372036854775808",
            "1e308",
            "1e3",
            "3.5",
            "3.0",
            "\"100\"",
            "18446744073709551616",
            "99999999999999999999999",
            "9007199254740992",
            "true",
            "[1]",
            "{}",
            "\"\"",
        ];
        for name in limits {
            for value in bad {
                assert_eq!(param(&format!(r#""{name}":{value}"#)), name, "{value}");
            }
        }
        assert_eq!(param(r#""n":129"#), "n");
        let most = with(r#""n":128,"max_tokens":9007199254740991"#).unwrap();
        assert_eq!((most.n, most.max_tokens), (128, Some(9_007_199_254_740_991)));
    }

    #[test]
    fn wrong_types_of_what_we_read_name_the_member() {
        let long = format!(r#""model":"{}""#, "m".repeat(2049));
        for (members, name) in [
            (r#""model":"""#, "model"),
            (r#""model":null"#, "model"),
            (r#""model":1"#, "model"),
            (r#""model":"a\nb""#, "model"),
            (r#""model":"a\ud800""#, "model"),
            (&long, "model"),
            (r#""stream":"true""#, "stream"),
            (r#""stream":1"#, "stream"),
            (r#""stream_options":true"#, "stream_options"),
            (r#""stream_options":[]"#, "stream_options"),
            (r#""stream_options":{"include_usage":1}"#, "stream_options.include_usage"),
            (
                r#""stream_options":{"include_usage":true,"include_usag\u0065":false}"#,
                "stream_options",
            ),
            (r#""task_type":1"#, "task_type"),
            (r#""budget_tier":{}"#, "budget_tier"),
            (r#""extra_body":[]"#, "extra_body"),
            (r#""extra_body":"{}""#, "extra_body"),
        ] {
            assert_eq!(param(members), name, "{members}");
        }
        for messages in ["{}", r#"{"messages":[ ]}"#, r#"{"messages":{}}"#, r#"{"messages":null}"#]
        {
            let fault = peek::chat(Bytes::from(messages)).unwrap_err();
            assert!(matches!(fault, BadBody::Member { param, .. } if param == "messages"));
        }
    }

    #[test]
    fn duplicates_are_refused_wherever_they_stand() {
        for (members, name) in [
            (r#""model":"a","model":"a""#, "model"),
            (r#""model":"a","mod\u0065l":"b""#, "model"),
            (r#""messages":[1]"#, "messages"),
            (r#""stream":true,"stream":true"#, "stream"),
            (r#""stream_options":null,"stream_options":null"#, "stream_options"),
            (r#""max_tokens":1,"max_tokens":1"#, "max_tokens"),
            (r#""n":1,"n":1"#, "n"),
            (r#""task_type":"a","task_type":"a""#, "task_type"),
            (r#""extra_body":{},"extra_body":{}"#, "extra_body"),
            (r#""n":1,"n":2,"extra_body":{"n":3}"#, "n"),
        ] {
            assert_eq!(param(members), name, "{members}");
        }
        assert_eq!(param(r#""user":1,"user":2"#), "user");
        let nested = r#"{"messages":[{"role":"user","content":"a","content":"b"}]}"#;
        let BadBody::Member { param, message } = peek::chat(nested.into()).unwrap_err() else {
            panic!("no member's fault")
        };
        assert_eq!(param, "messages");
        assert_eq!(message, "`content` stands more than once in an object of `messages`");
    }

    #[test]
    fn extra_body_replaces_and_joins_but_never_says_who_answers() {
        let peek = with(concat!(
            r#""max_tokens":1, "extra_body" : {"max_tok\u0065ns":5,"top_k":1.0,"a":{"b":[]}},"#,
            r#""user":"u""#,
        ))
        .unwrap();
        assert_eq!(peek.max_tokens, Some(5));
        let body = r#"{"messages":[{}],"max_tokens":5,"user":"u","top_k":1.0,"a":{"b":[]}}"#;
        assert_eq!(peek.body, body);
        for inner in [
            r#""model":"x""#,
            r#""mod\u0065l":"x""#,
            r#""stream":true"#,
            r#""stream_options":{}"#,
            r#""extra_body":{}"#,
            r#""a":1,"a":2"#,
            r#""a":1,"b":3,"\u0061":2"#,
        ] {
            assert_eq!(param(&format!(r#""extra_body":{{{inner}}}"#)), "extra_body", "{inner}");
        }
        assert_eq!(param(r#""extra_body":{"n":0}"#), "n");
        assert_eq!(param(r#""extra_body":{"messages":[]}"#), "messages");
    }

    #[test]
    fn what_is_no_json_says_so_and_where() {
        assert_eq!(json(""), "the body is empty; expected a JSON object");
        assert_eq!(json("\u{feff}{}"), "byte order mark at byte 0; send plain UTF-8");
        assert_eq!(json(&b"{\"a\":\"\xff\"}"[..]), "invalid UTF-8 at byte 6");
        assert_eq!(json("[1]"), "invalid JSON at byte 0: expected a JSON object");
        assert_eq!(json("{} x"), "invalid JSON at byte 3: expected nothing more after the object");
        assert_eq!(json(r#"{"a":[1"#), "invalid JSON at byte 7: unexpected end of the body");
        let nested = |open: &str| format!(r#"{{"messages":{}"#, open.repeat(1_000_000));
        assert!(json(nested("[")).ends_with("nested deeper than 64"));
        assert!(json(nested("{\"a\":")).ends_with("nested deeper than 64"));
        assert!(json("[".repeat(1_000_000)).starts_with("invalid JSON at byte 0"));
        let spaces = json(vec![b' '; 10 << 20]);
        assert_eq!(spaces, "invalid JSON at byte 10485760: expected a JSON object, found nothing");
        assert_eq!(json(vec![b'a'; 10 << 20]), "invalid JSON at byte 0: expected a JSON object");
    }
}
