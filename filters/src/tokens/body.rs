//! The prompt tokens of a request from its bytes, before anyone is asked.

use super::Tally;
use super::image::{IMAGE_BASE, IMAGE_TOKENS, image_tokens, sextet, size_of_image};
use memchr::{memchr3, memchr3_iter, memmem};

/// A `data` member shorter than this is media only if it begins like a known format.
const BLIND_BYTES_MIN: usize = 1 << 10;
/// Bytes of JSON around a message that cost no tokens: `{"role":"user","content":""},` is 29 bytes
/// and costs 4 tokens (OpenAI's cookbook: 3 and the role).
const MESSAGE_BYTES: u64 = 13;
/// The same for a body: its model, `stream` and brackets cost nothing but 3 tokens to begin with.
const BODY_BYTES: u64 = 32;
/// What begins the payload of a data URL.
const BASE64: &[u8] = b";base64,";
/// What begins a key of media.
const DATA: &[u8] = b"\"data";
/// What ends a key of a link, before its quote.
const URL: &[u8] = b"url";
/// A message's key.
const ROLE: &[u8] = b"\"role\"";
/// How far around a URL its object's other members are looked for.
const NEAR_BYTES: usize = 96;

/// Estimate of a chat body's prompt tokens: all of its text (messages, tools, system) by
/// [`estimate`](super::estimate), images by size or 765, audio and documents by length; base64
/// never as text. `\u` escapes count as the character that they are, the JSON around a message
/// about as much as a chat's own overhead does.
///
/// Against o200k on the recorded requests of 200 tokens and more (text and overhead by the
/// cookbook's rule, tools as their JSON) it lies at 1.1 to 1.6 times, at 1.9 where opaque
/// signatures ride along; below that the JSON of the parameters weighs more. It was never more
/// than 8 tokens too low.
#[must_use]
pub fn estimate_body(body: &[u8]) -> u64 {
    let mut bill = Bill::default();
    bill.text.add(body);
    bill.marks(body);
    bill.total()
}

#[derive(Debug, Default)]
struct Bill {
    /// The body as if all were text.
    text: Tally,
    /// ASCII bytes of it that are none.
    hidden: u64,
    /// Wide characters that stand there in ASCII.
    wide: u64,
    /// Tokens of images, audio, documents.
    media: u64,
}

impl Bill {
    fn total(&self) -> u64 {
        let text = Tally {
            ascii: self.text.ascii.saturating_sub(self.hidden),
            wide: self.text.wide + self.wide,
        };
        text.tokens().saturating_add(self.media)
    }

    /// All that costs more or less than its bytes do. Whatever begins such a thing has a quote, a
    /// backslash or a semicolon, so one walk from one of these to the next finds all of it. Each
    /// kind goes on behind what it has read.
    fn marks(&mut self, body: &[u8]) {
        let (mut urls, mut members, mut links, mut escapes, mut roles) = (0, 0, 0, 0, 0);
        self.hidden += BODY_BYTES;
        for at in memchr3_iter(b'"', b'\\', b';', body) {
            let rest = &body[at..];
            match rest[0] {
                b';' if at >= urls && rest.starts_with(BASE64) => {
                    urls = self.data_url(body, at + BASE64.len());
                }
                b'\\' if at >= escapes && rest.get(1) == Some(&b'u') => {
                    escapes = self.escape(body, at);
                }
                b'"' => {
                    if at >= members && rest.starts_with(DATA) {
                        members = self.data_member(body, at + DATA.len());
                    }
                    if at >= links + URL.len() && body[..at].ends_with(URL) {
                        links = self.linked_image(body, at);
                    }
                    if at >= roles && rest.starts_with(ROLE) {
                        roles = at + ROLE.len();
                        self.hidden += MESSAGE_BYTES;
                    }
                }
                _ => {}
            }
        }
    }

    /// `data:image/png;base64,…`, wherever it stands; gives where its payload, which begins at
    /// `start`, ends.
    fn data_url(&mut self, body: &[u8], start: usize) -> usize {
        let end = payload_end(body, start);
        let before = &body[start.saturating_sub(NEAR_BYTES)..start];
        let kind = memmem::rfind(before, b"data:")
            .map_or(Kind::Unknown, |at| Kind::of_mime(&before[at + 5..]));
        self.payload(body, start..end, kind);
        end
    }

    /// `"data":"…"` of Anthropic's sources and OpenAI's `input_audio`, also in JSON in a string.
    /// The key ends at `at`; gives where to go on.
    fn data_member(&mut self, body: &[u8], at: usize) -> usize {
        let Some(start) = string_value(body, at) else { return at };
        let end = payload_end(body, start);
        let value = &body[start..end];
        let kind = Kind::of_start(value);
        if kind == Kind::Unknown && value.len() < BLIND_BYTES_MIN || !looks_base64(value) {
            return at;
        }
        self.payload(body, start..end, kind);
        end
    }

    fn payload(&mut self, body: &[u8], place: std::ops::Range<usize>, kind: Kind) {
        let value = &body[place.clone()];
        let mut tally = Tally::default();
        tally.add(value);
        self.hidden += tally.ascii;
        let raw = tally.ascii * 3 / 4;
        let kind = if kind == Kind::Unknown { Kind::of_start(value) } else { kind };
        self.media += match kind {
            Kind::Image if low_detail(body, place.clone()) => IMAGE_BASE,
            Kind::Image => size_of_image(value).map_or(IMAGE_TOKENS, |(w, h)| image_tokens(w, h)),
            Kind::Text => raw.div_ceil(4),
            // a page is 50 to 100 KB and 800 to 1,600 tokens
            Kind::Document => (raw / 64).max(IMAGE_TOKENS),
            // a second is 16 KB or more and 10 (OpenAI) to 32 (Google) tokens
            Kind::Sound => (raw / 500).max(IMAGE_BASE),
            Kind::Unknown => (raw / 500).max(IMAGE_TOKENS),
        };
    }

    /// Images by link: `"image_url":{"url":"http…"}`, `"image_url":"http…"`, and
    /// `"source":{"type":"url","url":"http…"}`. A `url` in any other object is text. The key ends
    /// at `quote`; gives where to go on.
    fn linked_image(&mut self, body: &[u8], quote: usize) -> usize {
        let (key, from) = (quote - URL.len(), quote + 1);
        let Some(start) = string_value(body, quote) else { return from };
        let before = &body[key.saturating_sub(NEAR_BYTES)..key];
        if !body[start..].starts_with(b"http") || !of_image(before) {
            return from;
        }
        let end = payload_end(body, start);
        self.media += if low_detail(body, start..end) { IMAGE_BASE } else { IMAGE_TOKENS };
        end
    }

    /// `\u4f60` is one character, not six; the second half of a surrogate pair is none. Gives where
    /// to go on.
    fn escape(&mut self, body: &[u8], found: usize) -> usize {
        let mut at = found;
        let slashes = body[..at].iter().rev().take_while(|b| **b == b'\\').count();
        if slashes % 2 == 1 {
            return at + 2; // an escaped backslash, then a plain u
        }
        while let Some([b'\\', b'u', a, b, c, _]) = body.get(at..at + 6) {
            let ascii = *a == b'0' && *b == b'0' && *c < b'8';
            let second = matches!(a, b'd' | b'D') && matches!(b, b'c'..=b'f' | b'C'..=b'F');
            self.hidden += if ascii { 5 } else { 6 };
            self.wide += u64::from(!ascii && !second);
            at += 6;
        }
        at.max(found + 2)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Image,
    Sound,
    Document,
    Text,
    Unknown,
}

impl Kind {
    fn of_mime(mime: &[u8]) -> Self {
        let starts = |list: &[&[u8]]| list.iter().any(|start| mime.starts_with(start));
        if starts(&[b"image/"]) {
            Self::Image
        } else if starts(&[b"audio/", b"video/"]) {
            Self::Sound
        } else if starts(&[b"text/", b"application/json"]) {
            Self::Text
        } else if starts(&[b"application/pdf", b"application/vnd", b"application/msword"]) {
            Self::Document
        } else {
            Self::Unknown
        }
    }

    /// By the first bytes of its base64.
    fn of_start(base64: &[u8]) -> Self {
        let starts = |list: &[&[u8]]| list.iter().any(|start| base64.starts_with(start));
        if starts(&[b"iVBORw0KGgo", b"/9j/", b"R0lGOD"]) {
            Self::Image
        } else if starts(&[b"JVBERi"]) {
            Self::Document
        } else if starts(&[b"UklGR"]) {
            // RIFF holds WebP and WAVE alike
            size_of_image(base64).map_or(Self::Sound, |_| Self::Image)
        } else if starts(&[b"SUQz", b"//u", b"//N", b"T2dnUw", b"ZkxhQ"]) {
            Self::Sound // MP3 with and without a tag, Ogg, FLAC
        } else {
            Self::Unknown
        }
    }
}

/// Where base64 that begins at `start` ends: at a quote, a blank, or an escape other than of `/`
/// and of line ends.
fn payload_end(body: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(found) = memchr3(b'"', b'\\', b' ', &body[at..]) {
        at += found;
        match body[at..] {
            [b'\\', b'/' | b'n' | b'r', ..] => at += 2,
            _ => return at,
        }
    }
    body.len()
}

/// The start of the string that is the value of the key whose end is at `at`: over the key's
/// closing quote, a colon and the opening quote, each quote maybe escaped, blanks between.
fn string_value(body: &[u8], at: usize) -> Option<usize> {
    let mut at = quote(body, at)?;
    at = blanks(body, at);
    if body.get(at) != Some(&b':') {
        return None;
    }
    quote(body, blanks(body, at + 1))
}

fn quote(body: &[u8], mut at: usize) -> Option<usize> {
    while body.get(at) == Some(&b'\\') {
        at += 1;
    }
    (body.get(at) == Some(&b'"')).then_some(at + 1)
}

fn blanks(body: &[u8], mut at: usize) -> usize {
    while body.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// What stands before `url"` makes it an image's: the key is `image_url`, or its object is the
/// value of `image_url` or `source`.
fn of_image(before: &[u8]) -> bool {
    let owner = memchr::memrchr(b'{', before).map_or(&[][..], |at| before[..at].trim_ascii_end());
    let owner = owner.strip_suffix(b":").unwrap_or_default().trim_ascii_end();
    before.ends_with(b"\"image_")
        || before.ends_with(b"\"")
            && (owner.ends_with(b"\"image_url\"") || owner.ends_with(b"\"source\""))
}

/// `"detail":"low"` beside an image, in the same object.
fn low_detail(body: &[u8], place: std::ops::Range<usize>) -> bool {
    let before = &body[place.start.saturating_sub(NEAR_BYTES)..place.start];
    let before = &before[memchr::memrchr(b'{', before).map_or(0, |at| at + 1)..];
    let after = &body[place.end..body.len().min(place.end + NEAR_BYTES)];
    let after = &after[..memchr::memchr(b'}', after).unwrap_or(after.len())];
    [before, after].into_iter().any(|near| {
        memmem::find(near, b"\"detail\"").is_some() && memmem::find(near, b"\"low\"").is_some()
    })
}

/// A look at five places; text has blanks and marks soon.
fn looks_base64(value: &[u8]) -> bool {
    let quarter = value.len() / 4;
    !value.is_empty()
        && (0..5).all(|part| {
            let from = (part * quarter).min(value.len().saturating_sub(16));
            value[from..]
                .iter()
                .take(if part == 0 { 64 } else { 16 })
                .all(|b| sextet(*b).is_some() || matches!(b, b'=' | b'\\'))
        })
}
