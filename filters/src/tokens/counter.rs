//! Counting a stream's text as it passes, no byte twice.

use super::lease::Lease;
use super::{Encoding, RUN_BYTES_MAX, Tally, count, cut};
use crate::usage::Source;
use std::collections::HashMap;

/// A tail holds this much whatever the others do. Most answers are shorter, and most providers
/// tell what they used, in their last event: then nothing is ever counted. Two thousand streams
/// that hold so much each hold 32 MB; what is longer is held while the shared pool lasts.
const FIRST_BYTES_MIN: usize = 16 << 10;
/// The same of every other text, of which a stream may have many.
const OTHER_BYTES_MIN: usize = 4 << 10;
/// When someone asks, a tail longer than this is counted up to its last safe cut and let go, so
/// that who asks often has little counted twice.
const ASKED_BYTES_MIN: usize = 1 << 10;
/// Texts that are kept apart (choices × channels). A provider that opens more than this many is
/// broken or hostile: the rest share one tail, for some tokens of error and no memory.
const TAILS_MAX: usize = 128;

/// Which text a delta belongs to; each has a tail of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// `content`
    Content,
    /// `reasoning_content`
    Reasoning,
    /// `refusal`
    Refusal,
    /// Arguments (and name) of tool call number n.
    Tool(u32),
}

/// Counts a stream's text as it passes: deltas gather in a tail and are counted when someone asks,
/// or at safe cuts when the tail is full; no byte is tokenised twice but those of a short tail, and
/// the sum equals the whole text's count. Holds 16 KiB of the first choice's content, and 4 KiB for
/// each of at most 130 other texts; up to 512 KiB of each out of 32 MiB that all counters of the
/// process share; of a run without a safe cut [`RUN_BYTES_MAX`] more.
#[derive(Debug)]
pub struct Counter {
    encoding: Option<Encoding>,
    /// The first choice's content, which is all that most answers have.
    first: Tail,
    tails: HashMap<(u32, Channel), Tail>,
    /// What the full map has no room for: reasoning, and the rest.
    shared: [Tail; 2],
    /// Tokens whose text is gone.
    counted: Sums<u64>,
    /// Without an encoding: all that passed.
    tally: Sums<Tally>,
    any: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sums<T> {
    other: T,
    reasoning: T,
}

impl<T> Sums<T> {
    fn of(&mut self, reasoning: bool) -> &mut T {
        if reasoning { &mut self.reasoning } else { &mut self.other }
    }
}

/// Text that is not counted yet.
#[derive(Debug, Default)]
struct Tail {
    text: String,
    /// Up to here there is no safe cut.
    seen: usize,
    /// Tokens of `text`, if someone asked since it last grew.
    known: Option<u64>,
    /// Memory of `text` that is not the tail's own.
    lease: Lease,
}

impl Counter {
    /// `None` estimates instead of counting.
    #[must_use]
    pub fn new(encoding: Option<Encoding>) -> Self {
        Self {
            encoding,
            first: Tail::default(),
            tails: HashMap::new(),
            shared: [Tail::default(), Tail::default()],
            counted: Sums::default(),
            tally: Sums::default(),
            any: false,
        }
    }

    /// Takes a delta of one choice's channel.
    pub fn push(&mut self, choice: u32, channel: Channel, delta: &str) {
        if delta.is_empty() {
            return;
        }
        self.any = true;
        let reasoning = channel == Channel::Reasoning;
        let Some(encoding) = self.encoding else {
            self.tally.of(reasoning).add(delta.as_bytes());
            return;
        };
        let key = (choice, channel);
        if key == (0, Channel::Content) {
            self.counted.other += self.first.push(delta, encoding, FIRST_BYTES_MIN);
            return;
        }
        let tail = if self.tails.len() < TAILS_MAX || self.tails.contains_key(&key) {
            self.tails.entry(key).or_default()
        } else {
            &mut self.shared[usize::from(reasoning)]
        };
        *self.counted.of(reasoning) += tail.push(delta, encoding, OTHER_BYTES_MIN);
    }

    /// Some text has passed.
    #[must_use]
    pub fn any(&self) -> bool {
        self.any
    }

    /// Tokens so far, tails included. May be called more than once; later pushes go on.
    pub fn total(&mut self) -> u64 {
        if self.encoding.is_none() {
            let Sums { other, reasoning } = self.tally;
            return (other.quarters() + reasoning.quarters()).div_ceil(4);
        }
        self.sum(false) + self.sum(true)
    }

    /// Of these, reasoning.
    pub fn reasoning(&mut self) -> u64 {
        if self.encoding.is_none() {
            return self.tally.reasoning.tokens();
        }
        self.sum(true)
    }

    /// How the numbers were made: `Counted` or `Estimated`.
    #[must_use]
    pub fn source(&self) -> Source {
        match self.encoding {
            Some(_) => Source::Counted,
            None => Source::Estimated,
        }
    }

    fn sum(&mut self, reasoning: bool) -> u64 {
        let Some(encoding) = self.encoding else {
            return 0;
        };
        let own = self
            .tails
            .iter_mut()
            .filter(|((_, channel), _)| (*channel == Channel::Reasoning) == reasoning);
        let first = (!reasoning).then_some(&mut self.first);
        let tails = own.map(|(_, tail)| tail).chain([&mut self.shared[usize::from(reasoning)]]);
        let (mut counted, mut waiting) = (0, 0);
        for tail in tails.chain(first) {
            if tail.text.len() >= ASKED_BYTES_MIN {
                counted += tail.settle(encoding);
            }
            waiting += tail.tokens(encoding);
        }
        let sum = self.counted.of(reasoning);
        *sum += counted;
        *sum + waiting
    }
}

impl Tail {
    /// Takes a delta; tokens of the text that it let go, if it must not hold `batch` bytes.
    fn push(&mut self, delta: &str, encoding: Encoding, batch: usize) -> u64 {
        let len = self.text.len() + delta.len();
        let room = len < batch.max(self.lease.bytes()) || self.grow(len);
        self.text.push_str(delta);
        self.known = None;
        if room { 0 } else { self.settle(encoding) }
    }

    /// Takes memory for a text of `len` bytes; twice as much each time, as a string does.
    fn grow(&mut self, len: usize) -> bool {
        let size = (len + 1).next_power_of_two();
        let grown = self.lease.grow(size);
        if grown {
            self.text.reserve_exact(size - self.text.len());
        }
        grown
    }

    /// Counts up to the last safe cut; tokens of the text that it let go.
    fn settle(&mut self, encoding: Encoding) -> u64 {
        let at = match cut::last_safe(&self.text, self.seen, self.text.len()) {
            Some(at) => at,
            None if self.text.len() >= RUN_BYTES_MAX => self.text.len(),
            // The last letter's neighbour is still to come.
            None => {
                self.seen = cut::floor(&self.text, self.text.len() - 1);
                return 0;
            }
        };
        let tokens = count(&self.text[..at], encoding);
        self.text.drain(..at);
        self.text.shrink_to(RUN_BYTES_MAX);
        self.lease.end();
        (self.seen, self.known) = (0, None);
        // What is left has no safe cut, so only its length can be wrong.
        if self.text.len() < RUN_BYTES_MAX {
            return tokens;
        }
        tokens + count(&std::mem::take(&mut self.text), encoding)
    }

    fn tokens(&mut self, encoding: Encoding) -> u64 {
        if self.text.is_empty() {
            return 0;
        }
        *self.known.get_or_insert_with(|| count(&self.text, encoding))
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::Pool;
    use super::*;

    const ENCODING: Encoding = Encoding::O200k;

    fn tail(pool: &'static Pool) -> Tail {
        Tail { lease: Lease::of(pool), ..Tail::default() }
    }

    #[test]
    fn a_text_is_held_uncounted_while_the_pool_lasts_and_gives_it_back() {
        static POOL: Pool = Pool::new(64 << 10);
        let words = "word ".repeat(200);
        let (mut one, mut other) = (tail(&POOL), tail(&POOL));
        for _ in 0..60 {
            assert_eq!(one.push(&words, ENCODING, 4096), 0);
        }
        assert_eq!((one.text.len(), one.text.capacity()), (60_000, 64 << 10));
        // Nothing is left for another, which counts as it goes.
        let mut counted = 0;
        for _ in 0..60 {
            counted += other.push(&words, ENCODING, 4096);
            assert!(other.text.len() <= 4096 && other.lease.bytes() == 0);
        }
        assert_eq!(counted + other.tokens(ENCODING), count(&words.repeat(60), ENCODING));
        // The answer is counted, or thrown away: its memory is there for the next.
        let all = one.settle(ENCODING);
        assert_eq!(all + one.tokens(ENCODING), count(&words.repeat(60), ENCODING));
        assert!(one.lease.bytes() == 0 && one.text.capacity() <= RUN_BYTES_MAX);
        for _ in 0..60 {
            assert_eq!(other.push(&words, ENCODING, 4096), 0);
        }
        drop(other);
        assert_eq!(one.push(&words.repeat(60), ENCODING, 4096), 0);
    }

    #[test]
    fn what_outgrows_its_lease_is_counted_to_the_token() {
        static POOL: Pool = Pool::new(10 << 10);
        let text = "It's déjà vu (v1.2), 今天天气很好，fn main() {}\n".repeat(900);
        for size in [1, 7, 300, 5000, 20_000] {
            let (mut tail, mut sum, mut rest) = (tail(&POOL), 0, &*text);
            while !rest.is_empty() {
                let (delta, more) = rest.split_at(cut::floor(rest, size.max(4)));
                sum += tail.push(delta, ENCODING, 4096);
                rest = more;
            }
            assert_eq!(sum + tail.tokens(ENCODING), count(&text, ENCODING), "{size}");
        }
    }
}
