//! The members weir reads, with their types and ranges; the rest is between caller and provider.

use super::{BadBody, Edits, Member, OWN, Peek, scan};

/// Longest `model`, `task_type` or `budget_tier` in bytes. Bedrock allows 2,048 for a model's ARN,
/// the longest of any provider; more is no name and would only fill logs.
pub const NAME_BYTES_MAX: usize = 2048;

/// Largest `max_tokens`: 2^53 - 1, above which JSON numbers are no longer exact everywhere
/// (RFC 8259 section 6). Keeps sums of holds far from overflow.
pub const LIMIT_MAX: u64 = (1 << 53) - 1;

/// Largest `n`, OpenAI's own.
pub const N_MAX: u64 = 128;

/// Every member that is read here. Each may stand once: with two, we would act on one and the
/// provider on the other.
const READ: [&str; 10] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n",
    OWN[0],
    OWN[1],
    OWN[2],
];

/// What `extra_body` may not hold: who answers and how is said at the top level only.
const NOT_IN_EXTRA: [&str; 4] = ["model", "stream", "stream_options", "extra_body"];

/// Moves the members of `extra_body` to the top level, where it is given.
pub(super) fn merge_extra(peek: Peek) -> Result<Peek, BadBody> {
    once(&peek)?;
    let Some(extra) = peek.find("extra_body") else {
        return Ok(peek);
    };
    let text = text(&peek, extra);
    if text == "null" {
        return Ok(peek);
    }
    if !text.starts_with('{') {
        return Err(BadBody::member(
            "extra_body",
            "`extra_body` must be an object",
        ));
    }
    let inner = inner(&peek, extra)?;
    let mut names: Vec<&str> = inner.members.iter().map(|m| inner.name(m)).collect();
    names.sort_unstable();
    if let Some([twice, _]) = names.array_windows().find(|[a, b]| a == b) {
        let message = format!("`{twice}` stands more than once in `extra_body`");
        return Err(BadBody::member("extra_body", message));
    }
    if let Some(name) = NOT_IN_EXTRA.iter().find(|n| names.binary_search(n).is_ok()) {
        let message = format!("`{name}` may not stand in `extra_body`");
        return Err(BadBody::member("extra_body", message));
    }
    let mut edits = Edits::default();
    for member in &inner.members {
        edits.set(inner.name(member), inner.body.slice(member.value.clone()));
    }
    edits.remove("extra_body");
    let body = edits.splice(&peek, &[]).concat();
    let members = super::check(&body)?;
    Ok(Peek {
        body,
        members,
        ..Peek::default()
    })
}

/// Fills in what the members say.
pub(super) fn chat(mut peek: Peek) -> Result<Peek, BadBody> {
    once(&peek)?;
    messages(&peek)?;
    peek.model = name(&peek, "model", false)?;
    peek.stream = flag(&peek, "stream")?;
    peek.include_usage = include_usage(&peek)?;
    let limits = [
        integer(&peek, "max_tokens", LIMIT_MAX)?,
        integer(&peek, "max_completion_tokens", LIMIT_MAX)?,
    ];
    peek.max_tokens = limits.into_iter().flatten().min();
    peek.n = integer(&peek, "n", N_MAX)?.unwrap_or(1);
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
    Ok(Peek {
        body,
        members,
        ..Peek::default()
    })
}

/// Refuses a second member of a name we read.
fn once(peek: &Peek) -> Result<(), BadBody> {
    let mut seen = [false; READ.len()];
    for member in &peek.members {
        let name = peek.name(member);
        let known = READ.iter().zip(&mut seen).find(|(read, _)| **read == name);
        if let Some((_, seen)) = known
            && std::mem::replace(seen, true)
        {
            return Err(BadBody::twice(name));
        }
    }
    Ok(())
}

fn text<'a>(peek: &'a Peek, member: &Member) -> &'a str {
    // Checked as UTF-8 before, so the default is never taken.
    std::str::from_utf8(peek.value(member)).unwrap_or_default()
}

fn messages(peek: &Peek) -> Result<(), BadBody> {
    let Some(member) = peek.find("messages") else {
        return Err(BadBody::member("messages", "`messages` is missing"));
    };
    match peek.value(member) {
        [b'[', rest @ ..] if rest.trim_ascii_start() != b"]" => Ok(()),
        [b'[', ..] => Err(BadBody::member("messages", "`messages` must not be empty")),
        _ => Err(BadBody::member("messages", "`messages` must be an array")),
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
        Some(_) => Err(BadBody::member(
            key,
            format!("`{key}` must be true or false"),
        )),
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
    let named = options
        .members
        .iter()
        .filter(|m| options.name(m) == "include_usage");
    if named.count() > 1 {
        return Err(BadBody::twice("stream_options.include_usage"));
    }
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
