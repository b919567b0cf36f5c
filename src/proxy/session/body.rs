//! The request body of one try, handed out in pieces.

use crate::proxy::cork::Held;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use weir_filters::peek::Segments;

/// One write to the provider. Between two the reply is looked at, so that an early answer is seen
/// before a large body is through; larger pieces would only delay that.
const PIECE_MAX: usize = 128 << 10;
/// Pieces on their way at once: one being written and one ready behind it. Pingora's pipe holds
/// four, and looks at neither the client nor our timers while it is full.
const AHEAD_MAX: usize = 2;

/// What is still to be sent.
#[derive(Debug, Default)]
pub struct Feed {
    left: VecDeque<Bytes>,
    empty: bool,
    room: Arc<Room>,
    held: Option<Held>,
}

impl Feed {
    /// A body from its start.
    #[must_use]
    pub fn new(body: Segments) -> Self {
        let left: VecDeque<Bytes> = body.0.into_iter().filter(|b| !b.is_empty()).collect();
        let empty = left.is_empty();
        Self { left, empty, room: Arc::default(), held: None }
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

    /// Everything has been written too.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.is_done() && self.room.lent() == 0
    }

    /// What was sent before the first piece is held until that is sent too.
    pub fn follows(&mut self, held: Option<Held>) {
        self.held = held;
    }

    /// The next piece, or none where enough are on their way: then [`Feed::room`] tells when.
    pub fn next_piece(&mut self) -> Option<Bytes> {
        if self.room.lent() >= AHEAD_MAX {
            return None;
        }
        let piece = self.cut()?;
        self.room.lent.fetch_add(1, Ordering::AcqRel);
        let lent = Lent { piece, room: self.room.clone(), _held: self.held.take() };
        Some(Bytes::from_owner(lent))
    }

    /// Where the next piece must wait for one to be written; `None` where there is no next one.
    #[must_use]
    pub fn room(&self) -> Option<Arc<Room>> {
        (!self.is_done()).then(|| self.room.clone())
    }

    /// A slice where a segment is large, a join where segments are small, since
    /// each piece is a write of its own.
    fn cut(&mut self) -> Option<Bytes> {
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

/// How many pieces are on their way.
#[derive(Debug, Default)]
pub struct Room {
    lent: AtomicUsize,
    back: Notify,
}

impl Room {
    fn lent(&self) -> usize {
        self.lent.load(Ordering::Acquire)
    }

    /// Waits until a piece has been written since the last such wait.
    pub async fn back(&self) {
        self.back.notified().await;
    }
}

/// A piece that says when it is written: Pingora lets go of it then.
struct Lent {
    piece: Bytes,
    room: Arc<Room>,
    /// Let go with the piece.
    _held: Option<Held>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.room.lent.fetch_sub(1, Ordering::AcqRel);
        self.room.back.notify_one();
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
    #[test]
    fn two_pieces_are_on_their_way_and_the_next_waits_for_one() {
        let body = Bytes::from(vec![7; 4 * PIECE_MAX]);
        let mut feed = Feed::new(Segments([body].into()));
        let (a, b) = (feed.next_piece(), feed.next_piece());
        assert!(a.is_some() && b.is_some() && feed.next_piece().is_none());
        let room = feed.room().expect("two are left");
        drop(a);
        let c = feed.next_piece();
        assert!(c.is_some() && feed.next_piece().is_none() && room.lent() == AHEAD_MAX);
        drop((b, c));
        let last = feed.next_piece();
        assert!(last.as_ref().is_some_and(|piece| piece.len() == PIECE_MAX));
        assert!(feed.is_done() && feed.room().is_none(), "nothing waits for the last one");
        assert!(!feed.is_written());
        drop(last);
        assert!(feed.is_written());
    }

    #[test]
    fn a_body_of_one_piece_is_not_copied() {
        let body = Bytes::from(vec![7; PIECE_MAX]);
        let mut feed = Feed::new(Segments([body.clone()].into()));
        assert_eq!(feed.next_piece().map(|piece| piece.as_ptr()), Some(body.as_ptr()));
    }
}
