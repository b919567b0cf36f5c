//! AWS event streams (`application/vnd.amazon.eventstream`): bytes in at any cut, checked frames
//! out.
//!
//! A frame is its own length, the length of its headers and a CRC of both (12 bytes, big-endian),
//! the headers, the payload, and a CRC of all before it (smithy.io, Amazon event stream
//! specification).

use bytes::{Buf, Bytes, BytesMut};

/// Longer is an attack, not a frame of a chat: real ones are some hundred bytes.
pub const FRAME_BYTES_MAX: usize = 8 << 20;

const PRELUDE_BYTES: usize = 12;
const CRC_BYTES: usize = 4;

/// One frame whose checksums hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    headers: Bytes,
    /// The payload.
    pub payload: Bytes,
}

/// Bytes that are no event stream, or were damaged on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The checksum of the lengths.
    #[error("a frame's lengths do not fit their checksum")]
    Prelude,
    /// The checksum of the whole frame.
    #[error("a frame does not fit its checksum")]
    Checksum,
    /// The lengths contradict each other, or the headers cannot be read.
    #[error("a frame contradicts itself")]
    Shape,
    /// Longer than [`FRAME_BYTES_MAX`].
    #[error("a frame is longer than {FRAME_BYTES_MAX} bytes")]
    TooLong,
}

impl Frame {
    /// The text of a header; `None` where it is not there or no text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut rest = self.headers.as_ref();
        while !rest.is_empty() {
            let (found, kind, value) = header(&mut rest)?;
            if found == name.as_bytes() {
                return (kind == TEXT).then(|| std::str::from_utf8(value).ok())?;
            }
        }
        None
    }
}

/// The type byte of a header that holds text.
const TEXT: u8 = 7;

/// Takes one header: its name, type and value.
fn header<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], u8, &'a [u8])> {
    let mut take = |n: usize| -> Option<&'a [u8]> {
        let (head, tail) = rest.split_at_checked(n)?;
        *rest = tail;
        Some(head)
    };
    let length = usize::from(take(1)?[0]);
    let name = take(length)?;
    let kind = take(1)?[0];
    let length = match kind {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4 => 4,
        5 | 8 => 8,
        6 | TEXT => {
            let length = take(2)?;
            usize::from(u16::from_be_bytes([length[0], length[1]]))
        }
        9 => 16,
        _ => return None,
    };
    Some((name, kind, take(length)?))
}

/// Splits a byte stream into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    held: BytesMut,
    /// The lengths of the unfinished frame are checked already.
    length: Option<(usize, usize)>,
    dead: bool,
}

impl Decoder {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, chunk: &[u8]) {
        if !self.dead {
            self.held.extend_from_slice(chunk);
        }
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// [`BadFrame`] once; the decoder is then dead, since where the next frame begins is unknown.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, BadFrame> {
        let next = self.take();
        if next.is_err() {
            *self = Self { dead: true, ..Self::default() };
        }
        next
    }

    /// No part of a frame is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn take(&mut self) -> Result<Option<Frame>, BadFrame> {
        let (total, headers) = match self.length {
            Some(lengths) => lengths,
            None if self.held.len() < PRELUDE_BYTES => return Ok(None),
            None => prelude(&self.held)?,
        };
        self.length = Some((total, headers));
        if self.held.len() < total {
            return Ok(None);
        }
        self.length = None;
        let mut bytes = self.held.split_to(total).freeze();
        let checksum = word(&bytes[total - CRC_BYTES..]);
        if crc32(&bytes[..total - CRC_BYTES]) != checksum {
            return Err(BadFrame::Checksum);
        }
        bytes.truncate(total - CRC_BYTES);
        bytes.advance(PRELUDE_BYTES);
        let headers = bytes.split_to(headers);
        let mut rest = headers.as_ref();
        while !rest.is_empty() {
            header(&mut rest).ok_or(BadFrame::Shape)?;
        }
        Ok(Some(Frame { headers, payload: bytes }))
    }
}

/// The lengths of a frame and of its headers.
fn prelude(held: &[u8]) -> Result<(usize, usize), BadFrame> {
    if crc32(&held[..8]) != word(&held[8..]) {
        return Err(BadFrame::Prelude);
    }
    let lengths = [word(held), word(&held[4..])].map(usize::try_from);
    let [Ok(total), Ok(headers)] = lengths else { return Err(BadFrame::TooLong) };
    if total > FRAME_BYTES_MAX {
        return Err(BadFrame::TooLong);
    }
    if total < PRELUDE_BYTES + CRC_BYTES || headers > total - PRELUDE_BYTES - CRC_BYTES {
        return Err(BadFrame::Shape);
    }
    Ok((total, headers))
}

/// The big-endian number that the first four bytes are.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// The CRC of Ethernet, zip and PNG (ISO-HDLC).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0, |crc, byte| CRC_TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8)
}

const CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let total = u32::try_from(headers.len() + payload.len() + 16).unwrap();
        let mut out = total.to_be_bytes().to_vec();
        out.extend(u32::try_from(headers.len()).unwrap().to_be_bytes());
        out.extend(crc32(&out).to_be_bytes());
        out.extend(headers);
        out.extend(payload);
        out.extend(crc32(&out).to_be_bytes());
        out
    }

    fn decode(pieces: &[&[u8]]) -> Result<Vec<Frame>, BadFrame> {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        assert!(decoder.is_empty());
        Ok(frames)
    }

    /// The check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
    #[test]
    fn the_checksum_is_the_one_of_the_catalogue() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn frames_are_the_same_at_every_cut() {
        let headers = b"\x02:a\x07\x00\x01x\x01b\x00\x01c\x02\x01\x01d\x09aaaaaaaaaaaaaaaa\
            \x01e\x06\x00\x02zz";
        let mut bytes = encode(headers, b"{}");
        bytes.extend(encode(b"", b""));
        let whole = decode(&[&bytes]).unwrap();
        assert_eq!((whole[0].header(":a"), whole[0].header("e")), (Some("x"), None));
        assert_eq!((whole[0].payload.as_ref(), whole[1].payload.as_ref()), (&b"{}"[..], &b""[..]));
        for at in 0..bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(decode(&[first, second]).unwrap(), whole);
        }
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(decode(&single).unwrap(), whole);
    }

    #[test]
    fn a_flipped_bit_is_found_anywhere() {
        let bytes = encode(b"\x02:a\x07\x00\x01x", b"payload");
        for at in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            let want = if at / 8 < 12 { BadFrame::Prelude } else { BadFrame::Checksum };
            assert_eq!(decode(&[&bad]), Err(want), "{at}");
        }
    }

    #[test]
    fn a_frame_that_contradicts_itself_is_refused() {
        let prelude = |total: u32, headers: u32| {
            let mut out = [total.to_be_bytes(), headers.to_be_bytes()].concat();
            out.extend(crc32(&out).to_be_bytes());
            out
        };
        assert_eq!(decode(&[&prelude(15, 0)]), Err(BadFrame::Shape));
        assert_eq!(decode(&[&prelude(20, 5)]), Err(BadFrame::Shape));
        assert_eq!(decode(&[&prelude(u32::MAX, 0)]), Err(BadFrame::TooLong));
        for headers in [&b"\x05a"[..], b"\x01a", b"\x01a\x0a", b"\x01a\x07\x00\x09x"] {
            assert_eq!(decode(&[&encode(headers, b"")]), Err(BadFrame::Shape));
        }
    }

    #[test]
    fn a_dead_decoder_stays_dead() {
        let mut decoder = Decoder::default();
        decoder.push(&[0; 12]);
        assert_eq!(decoder.next_frame(), Err(BadFrame::Prelude));
        decoder.push(&encode(b"", b""));
        assert_eq!(decoder.next_frame(), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                let _ = frame.header(":a");
            }
            decoder.push(&encode(&bytes, b""));
            while let Ok(Some(frame)) = decoder.next_frame() {
                let _ = frame.header(":a");
            }
        }
    }
}
