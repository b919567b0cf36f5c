//! One write for what has come together. Pingora hands over four pieces at most at a time, though
//! many more may have been read already: a full hand waits for the next one, as long as that is
//! there now. Nothing ever waits for bytes that are still to come.

use super::{Downstream, STALLED, pace};
use bytes::Bytes;
use pingora::http::ResponseHeader;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::{Error, Result};
use std::task::Poll;

/// Pieces of a full hand (pingora-proxy 0.9.1, lib.rs, TASK_BUFFER_SIZE): when so many come
/// together, others are most likely behind them.
const HAND: usize = 4;
/// So much is written without looking for more.
const JOIN_BYTES_MAX: usize = 32 << 10;
/// Times that the task may run before the write. Both sides run in each, in alternating order: so
/// by the second the provider's has run, and in the third what it read is seen here first.
const TURNS: u8 = 3;

/// What is not written yet, of an answer whose end has not come.
#[derive(Default)]
pub(super) struct Later {
    header: Option<Box<ResponseHeader>>,
    pieces: Vec<Bytes>,
    bytes: usize,
}

/// What a wait at the client's side came to.
pub(super) enum Move {
    /// The client's next bytes, or its leaving.
    Read(Option<Bytes>),
    /// What was kept is written.
    Wrote,
}

impl Later {
    pub(super) fn is_empty(&self) -> bool {
        self.header.is_none() && self.pieces.is_empty()
    }

    /// Keeps what one hand came to, if it is worth it. Gives it back where it must go out now,
    /// with all that was kept before.
    pub(super) fn keep(&mut self, hand: usize, out: Vec<HttpTask>) -> Option<Vec<HttpTask>> {
        let new: usize = out.iter().map(size).sum();
        let ends = out.iter().any(HttpTask::is_end);
        let fits = out.iter().all(|t| matches!(t, HttpTask::Header(..) | HttpTask::Body(..)));
        if hand < HAND || ends || !fits || self.bytes + new > JOIN_BYTES_MAX {
            return Some(self.joined(out));
        }
        self.bytes += new;
        for task in out {
            match task {
                HttpTask::Header(header, _) => self.header = Some(header),
                HttpTask::Body(piece, _) => self.pieces.extend(piece),
                _ => {}
            }
        }
        None
    }

    /// What was kept, and `next` behind it.
    fn joined(&mut self, next: Vec<HttpTask>) -> Vec<HttpTask> {
        if self.is_empty() {
            return next;
        }
        let mut out = self.take();
        for task in next {
            match (out.last_mut(), task) {
                (Some(HttpTask::Body(Some(all), end)), HttpTask::Body(Some(piece), last)) => {
                    *all = [all.as_ref(), piece.as_ref()].concat().into();
                    *end = last;
                }
                (_, task) => out.push(task),
            }
        }
        out
    }

    /// All that was kept: one header and one body at most.
    pub(super) fn take(&mut self) -> Vec<HttpTask> {
        let Self { header, pieces, .. } = std::mem::take(self);
        let mut out = Vec::with_capacity(2);
        out.extend(header.map(|header| HttpTask::Header(header, false)));
        if !pieces.is_empty() {
            out.push(HttpTask::Body(Some(pieces.concat().into()), false));
        }
        out
    }
}

fn size(task: &HttpTask) -> usize {
    match task {
        HttpTask::Body(Some(piece), _) => piece.len(),
        _ => 0,
    }
}

impl Downstream {
    /// Whether writes may be joined: HTTP/2 frames them itself.
    pub(super) fn joins(&self) -> bool {
        matches!(&*self.inner, ServerSession::H1(_))
    }

    /// Hands what was kept to the client's session, once the provider's side has had its turns
    /// without anything new. The future may be dropped at any await, which loses nothing.
    pub(super) async fn release(&mut self) {
        if self.later.is_empty() {
            return;
        }
        let mut turns = 0;
        std::future::poll_fn(|context| {
            if turns == TURNS {
                return Poll::Ready(());
            }
            turns += 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        if let ServerSession::H1(h1) = &mut *self.inner {
            self.later.take().into_iter().for_each(|task| h1.send_proxy_task(task));
        }
    }
}

/// The client's next move, once it has all that was handed to its session. May be dropped at any
/// await: a write goes on where it was.
pub(super) async fn next_move(session: &mut ServerSession) -> Result<Move> {
    match session {
        ServerSession::H1(h1) if h1.has_pending_proxy_tasks() => {
            h1.write_proxy_tasks().await.map(|_| Move::Wrote)
        }
        other => other.read_body_or_idle(true).await.map(Move::Read),
    }
}

/// Writes what a dropped wait has left half written.
pub(super) async fn go_on(session: &mut ServerSession) -> Result<()> {
    match session {
        ServerSession::H1(h1) if h1.has_pending_proxy_tasks() => {
            h1.write_proxy_tasks().await.map(drop)
        }
        _ => Ok(()),
    }
}

/// The same where there is no time left: whoever does not take it at once does not read.
pub(super) fn go_on_now(session: &mut ServerSession) -> Result<()> {
    let write = std::pin::pin!(tokio::task::unconstrained(go_on(session)));
    match pace::now(write) {
        Poll::Ready(done) => done,
        Poll::Pending => Error::e_explain(STALLED, "the client does not read"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // tests
mod tests {
    use super::*;

    fn body(text: &'static str, end: bool) -> HttpTask {
        HttpTask::Body(Some(Bytes::from_static(text.as_bytes())), end)
    }

    fn text(tasks: &[HttpTask]) -> String {
        let one = |task: &HttpTask| match task {
            HttpTask::Header(..) => "H ".to_owned(),
            HttpTask::Body(Some(piece), end) => {
                format!("{}{}", std::str::from_utf8(piece).unwrap(), if *end { "." } else { "" })
            }
            _ => "?".to_owned(),
        };
        tasks.iter().map(one).collect()
    }

    /// A session whose request has been read, and its client.
    async fn session() -> (ServerSession, tokio::net::TcpStream) {
        use tokio::io::AsyncWriteExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut client = tokio::net::TcpStream::connect(at).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let stream =
            pingora::protocols::l4::stream::Stream::from(listener.accept().await.unwrap().0);
        let mut session = ServerSession::new_http1(Box::new(stream));
        assert!(session.read_request().await.unwrap());
        (session, client)
    }

    #[tokio::test]
    async fn without_time_a_client_gets_what_it_takes_at_once_or_is_left() {
        use tokio::io::AsyncReadExt as _;
        let (mut session, mut client) = session().await;
        assert!(go_on_now(&mut session).is_ok(), "nothing waits");
        let hand = |session: &mut ServerSession, task| match session {
            ServerSession::H1(h1) => h1.send_proxy_task(task),
            _ => panic!("not HTTP/1"),
        };
        let mut header = ResponseHeader::build(200, None).unwrap();
        header.insert_header("transfer-encoding", "chunked").unwrap();
        hand(&mut session, HttpTask::Header(Box::new(header), false));
        hand(&mut session, body("said before", false));
        assert!(go_on_now(&mut session).is_ok());
        let mut got = vec![];
        while !got.ends_with(b"said before\r\n") {
            client.read_buf(&mut got).await.unwrap();
        }
        // More than the buffers of two sockets hold.
        hand(&mut session, HttpTask::Body(Some(vec![0; 64 << 20].into()), false));
        assert_eq!(*go_on_now(&mut session).unwrap_err().etype(), STALLED);
    }

    #[test]
    fn full_hands_wait_and_all_that_waited_goes_out_in_order_with_the_next_that_does_not() {
        let header = Box::new(ResponseHeader::build(200, None).unwrap());
        let mut later = Later::default();
        let first = vec![HttpTask::Header(header, false), body("a", false)];
        assert!(later.keep(HAND, first).is_none());
        assert!(later.keep(HAND, vec![body("b", false)]).is_none());
        assert!(later.keep(HAND, Vec::new()).is_none());
        let out = later.keep(1, vec![body("c", false)]).unwrap();
        assert_eq!((text(&out), out.len()), ("H abc".to_owned(), 2));
        assert!(later.is_empty());
        assert_eq!(text(&later.keep(1, vec![body("d", false)]).unwrap()), "d");
    }

    #[test]
    fn an_end_never_waits_and_neither_does_a_large_write() {
        let mut later = Later::default();
        assert!(later.keep(HAND, vec![body("a", false)]).is_none());
        assert_eq!(text(&later.keep(HAND, vec![body("b", true)]).unwrap()), "ab.");
        let large = Bytes::from(vec![b'x'; JOIN_BYTES_MAX + 1]);
        assert!(later.keep(HAND, vec![HttpTask::Body(Some(large), false)]).is_some());
        assert!(later.keep(HAND, vec![HttpTask::Done]).is_some());
        assert!(later.is_empty() && later.keep(1, Vec::new()).unwrap().is_empty());
    }
}
