//! The client's side over real sockets: bodies of any size and framing, connections that are kept,
//! clients that leave, and clients that do not read.

mod bodies;
mod coded;
mod early;
mod given_back;
mod heads;
mod idle;
mod kept;
mod leaving;
mod limits;
mod stalled;

use crate::harness::binary::Tables;
use crate::harness::*;
use bytes::Bytes;

/// A chat request's body of exactly `len` bytes for model `m`. Its text never repeats within any
/// window that matters, so a piece that is lost, doubled or moved is seen.
fn sized(len: usize) -> Bytes {
    const HEAD: &str = r#"{"model":"m","messages":[{"role":"user","content":""#;
    const TAIL: &str = r#""}]}"#;
    let text = len.checked_sub(HEAD.len() + TAIL.len()).expect("a longer body");
    let mut body = Vec::with_capacity(len);
    body.extend_from_slice(HEAD.as_bytes());
    let mut state = 0x9e37_79b9_u32;
    body.extend((0..text).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        b'a' + (state % 26) as u8
    }));
    body.extend_from_slice(TAIL.as_bytes());
    Bytes::from(body)
}

/// What a provider gets for [`sized`]: the same bytes with its own name of the model.
fn renamed(body: &[u8], model: &str) -> Vec<u8> {
    let at = memchr::memmem::find(body, br#""m""#).expect("the model");
    [&body[..at], format!("{model:?}").as_bytes(), &body[at + 3..]].concat()
}

/// `[server]` lines of a gateway.
fn server(lines: &str) -> Tables {
    Tables { server: lines.into(), ..Tables::default() }
}
