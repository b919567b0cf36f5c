//! Counting tokens: exactly where we have the model's vocabulary, honestly estimated where not.
//!
//! A text is only ever tokenised in pieces of at most [`RUN_BYTES_MAX`], so that time is linear
//! whatever it holds: tokenisers are super-linear in one long run of letters, blanks or line ends.
//! Pieces end at *safe cuts*, places that no pre-token spans, where the sum of the parts is the
//! whole; only a run without one is cut anywhere, at the price of at most a token.

mod body;
mod counter;
mod cut;
mod image;
mod lease;

pub use body::estimate_body;
pub use counter::{Channel, Counter};
pub use image::{image_tokens, size_of_image};

/// Longest piece that is tokenised at once, in bytes.
pub const RUN_BYTES_MAX: usize = 4 << 10;

/// A vocabulary that can be counted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// GPT-4o and later.
    O200k,
    /// GPT-4, GPT-3.5.
    Cl100k,
}

/// Families and their vocabulary, after tiktoken's own registry; the longer name stands first.
const FAMILIES: [(&str, Encoding); 14] = [
    ("gpt-4o", Encoding::O200k),
    ("gpt-4.1", Encoding::O200k),
    ("gpt-4.5", Encoding::O200k),
    ("gpt-5", Encoding::O200k),
    ("gpt-oss", Encoding::O200k), // o200k_harmony: the same for plain text
    ("chatgpt-4o", Encoding::O200k),
    ("o1", Encoding::O200k),
    ("o3", Encoding::O200k),
    ("o4", Encoding::O200k),
    ("gpt-4", Encoding::Cl100k),
    ("gpt-3.5", Encoding::Cl100k),
    ("gpt-35", Encoding::Cl100k), // Azure's spelling
    ("text-embedding-3", Encoding::Cl100k),
    ("text-embedding-ada-002", Encoding::Cl100k),
];

impl Encoding {
    /// By its published name (`o200k_base`, `cl100k_base`).
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "o200k_base" | "o200k_harmony" => Some(Self::O200k),
            "cl100k_base" => Some(Self::Cl100k),
            _ => None,
        }
    }

    /// Its published name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
        }
    }

    /// The vocabulary a model is known to use (`gpt-4o`, `o3-mini`, `gpt-4`), whatever stands
    /// before the last `/`, as a fine-tuned model (`ft:gpt-4o:…`) or with a date behind it; `None`
    /// when nobody says.
    #[must_use]
    pub fn of_model(model: &str) -> Option<Self> {
        let name = model.rsplit('/').next().unwrap_or(model);
        let name = name.strip_prefix("ft:").unwrap_or(name).to_ascii_lowercase();
        FAMILIES.iter().find_map(|(family, encoding)| {
            let rest = name.strip_prefix(family)?;
            (!rest.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some(*encoding)
        })
    }

    /// Loads the vocabulary now (about 100 ms), so that no request waits for it.
    pub fn preload(self) {
        self.tokens("weir");
    }

    /// Tokens of one piece. Special tokens are plain text here, as in a prompt.
    fn tokens(self, piece: &str) -> u64 {
        match tiktoken::get_encoding(self.name()) {
            Some(vocabulary) => vocabulary.count(piece) as u64,
            // only a build without the vocabulary's feature comes here
            None => estimate(piece.as_bytes()),
        }
    }
}

/// Tokens of a whole text; linear in its length whatever it holds. Exact but for at most one token
/// for each [`RUN_BYTES_MAX`] of a run without a safe cut.
#[must_use]
pub fn count(text: &str, encoding: Encoding) -> u64 {
    let (mut rest, mut total) = (text, 0);
    while rest.len() > RUN_BYTES_MAX {
        let window = cut::floor(rest, RUN_BYTES_MAX);
        let at = cut::last_safe(rest, 0, window).unwrap_or(window);
        total += encoding.tokens(&rest[..at]);
        rest = &rest[at..];
    }
    total + encoding.tokens(rest)
}

/// Estimate of a text's tokens from its bytes: ASCII bytes / 4 + 0.75 per other character, rounded
/// up.
#[must_use]
pub fn estimate(text: &[u8]) -> u64 {
    let mut tally = Tally::default();
    tally.add(text);
    tally.tokens()
}

/// What an estimate is made of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    /// ASCII bytes.
    ascii: u64,
    /// Other characters.
    wide: u64,
}

/// Bytes that are looked at together for being plain.
const ASCII_BLOCK: usize = 4 << 10;

impl Tally {
    fn add(&mut self, text: &[u8]) {
        // byte-sized sums of at most 255 terms: the compiler makes whole vectors of them
        let mut rest = text;
        while !rest.is_empty() {
            // Most of a text is plain, and to see that costs a tenth of counting it.
            let (block, later) = rest.split_at(rest.len().min(ASCII_BLOCK));
            rest = later;
            if block.is_ascii() {
                self.ascii += block.len() as u64;
            } else {
                self.count(block);
            }
        }
    }

    fn count(&mut self, text: &[u8]) {
        for part in text.chunks(255) {
            let (mut ascii, mut wide) = (0_u8, 0_u8);
            for byte in part {
                ascii = ascii.wrapping_add(u8::from(*byte < 0x80));
                wide = wide.wrapping_add(u8::from(*byte >= 0xC0));
            }
            self.ascii += u64::from(ascii);
            self.wide += u64::from(wide);
        }
    }

    fn tokens(self) -> u64 {
        self.quarters().div_ceil(4)
    }

    /// Quarters of a token.
    fn quarters(self) -> u64 {
        self.wide.saturating_mul(3).saturating_add(self.ascii)
    }
}
