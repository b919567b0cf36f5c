//! The request body of one try, handed out in pieces.

use bytes::Bytes;
use std::collections::VecDeque;
use weir_filters::peek::Segments;

/// One write to the provider. Between two the reply is looked at, so that an early answer is seen
/// before a large body is through; larger pieces would only delay that.
const PIECE_MAX: usize = 128 << 10;

/// What is still to be sent.
#[derive(Debug, Default)]
pub struct Feed {
    left: VecDeque<Bytes>,
    empty: bool,
}

impl Feed {
    /// A body from its start.
    #[must_use]
    pub fn new(body: Segments) -> Self {
        let left: VecDeque<Bytes> = body.0.into_iter().filter(|b| !b.is_empty()).collect();
        let empty = left.is_empty();
        Self { left, empty }
    }

    /// The try has no body at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// Everything has been handed out.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// The next piece: a slice where a segment is large, a join where segments are small, since
    /// each piece is a write of its own.
    pub fn next_piece(&mut self) -> Option<Bytes> {
        let mut first = self.left.pop_front()?;
        if first.len() > PIECE_MAX {
            let piece = first.split_to(PIECE_MAX);
            self.left.push_front(first);
            return Some(piece);
        }
        let fits = |sum: usize, b: &Bytes| sum + b.len() <= PIECE_MAX;
        if !self.left.front().is_some_and(|b| fits(first.len(), b)) {
            return Some(first);
        }
        let mut joined = Vec::with_capacity(
            first.len() + self.left.iter().map(Bytes::len).sum::<usize>().min(PIECE_MAX),
        );
        joined.extend_from_slice(&first);
        while self.left.front().is_some_and(|b| fits(joined.len(), b)) {
            if let Some(next) = self.left.pop_front() {
                joined.extend_from_slice(&next);
            }
        }
        Some(joined.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_body_and_none_is_too_large() {
        let sizes = [0, 1, 5, PIECE_MAX, PIECE_MAX + 1, 3, 3, 2 * PIECE_MAX + 7, 9];
        let whole: Vec<u8> = (0..sizes.iter().sum::<usize>()).map(|i| (i % 251) as u8).collect();
        let (mut at, mut segments) = (0, Segments::default());
        for n in sizes {
            segments.0.push(Bytes::copy_from_slice(&whole[at..at + n]));
            at += n;
        }
        let mut feed = Feed::new(segments);
        let mut out = Vec::new();
        while let Some(piece) = feed.next_piece() {
            assert!(!piece.is_empty() && piece.len() <= PIECE_MAX);
            out.extend_from_slice(&piece);
        }
        assert!(out == whole && feed.is_done() && !feed.is_empty());
        assert!(Feed::new(Segments::default()).is_empty());
    }
}
