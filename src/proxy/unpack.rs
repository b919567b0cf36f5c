//! Compressed request bodies, unpacked piece by piece as they come, never further than asked for.

use flate2::{Decompress, FlushDecompress, Status};
use std::fmt;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// Unpacked at a time: a bomb is met after at most this much.
const STEP: usize = 32 << 10;
/// The largest window a sender may ask for, 8 MiB as its logarithm (RFC 9659, section 3). The
/// memory is touched only as far as output fills it, and output is counted.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// What gzip's window needs, as its logarithm (RFC 1952 allows no other).
const GZIP_WINDOW_LOG: u8 = 15;

/// A compressed body that is being unpacked.
pub struct Unpack {
    coder: Coder,
    /// Between two members (frames): a body may end here.
    whole: bool,
}

enum Coder {
    Gzip(Decompress),
    Deflate(Decompress),
    Zstd(Box<Decoder<'static>>),
}

impl fmt::Debug for Unpack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpack").field("whole", &self.whole).finish_non_exhaustive()
    }
}

/// What keeps a body from being unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop<R> {
    /// It is not what its `content-encoding` says.
    Broken,
    /// Whoever takes the bytes takes no more.
    Refused(R),
}

impl Unpack {
    /// For a `content-encoding`; `None` where it is not known. `deflate` is zlib's format
    /// (RFC 9110, section 8.4.1.2).
    #[must_use]
    pub fn new(coding: &str) -> Option<Self> {
        let is = |name: &str| coding.eq_ignore_ascii_case(name);
        let coder = if is("gzip") || is("x-gzip") {
            Coder::Gzip(Decompress::new_gzip(GZIP_WINDOW_LOG))
        } else if is("deflate") {
            Coder::Deflate(Decompress::new(true))
        } else if is("zstd") {
            let mut decoder = Decoder::new().ok()?;
            decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX)).ok()?;
            Coder::Zstd(Box::new(decoder))
        } else {
            return None;
        };
        Some(Self { coder, whole: true })
    }

    /// Unpacks one piece and hands over what comes out, a step at a time.
    ///
    /// # Errors
    /// The piece is broken, or `take` refuses.
    pub fn push<R>(
        &mut self,
        mut input: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), R>,
    ) -> Result<(), Stop<R>> {
        let mut out = vec![0; STEP];
        // A full step may have left more inside, even when the input is used up.
        let mut full = false;
        while !input.is_empty() || full {
            let (read, wrote) = self.step(input, &mut out).ok_or(Stop::Broken)?;
            if read == 0 && wrote == 0 {
                return if input.is_empty() { Ok(()) } else { Err(Stop::Broken) };
            }
            take(&out[..wrote]).map_err(Stop::Refused)?;
            input = &input[read..];
            full = wrote == out.len();
        }
        Ok(())
    }

    /// Whether what came so far is complete.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Option<(usize, usize)> {
        match &mut self.coder {
            Coder::Gzip(inner) => {
                if self.whole && !input.is_empty() {
                    // One more member; a body is one file of any number of them (RFC 1952, 2.2).
                    *inner = Decompress::new_gzip(GZIP_WINDOW_LOG);
                }
                inflate(inner, input, out, &mut self.whole)
            }
            Coder::Deflate(inner) => {
                let fresh = inner.total_in() == 0;
                if self.whole && !fresh {
                    return input.is_empty().then_some((0, 0));
                }
                inflate(inner, input, out, &mut self.whole)
            }
            Coder::Zstd(inner) => {
                let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(out));
                let left = inner.run(&mut from, &mut to).ok()?;
                let moved = (from.pos(), to.pos());
                if moved != (0, 0) {
                    self.whole = left == 0;
                }
                Some(moved)
            }
        }
    }
}

fn inflate(
    inner: &mut Decompress,
    input: &[u8],
    out: &mut [u8],
    whole: &mut bool,
) -> Option<(usize, usize)> {
    let (read, wrote) = (inner.total_in(), inner.total_out());
    let status = inner.decompress(input, out, FlushDecompress::None).ok()?;
    let read = usize::try_from(inner.total_in() - read).ok()?;
    let wrote = usize::try_from(inner.total_out() - wrote).ok()?;
    *whole = match status {
        Status::StreamEnd => true,
        _ if read > 0 => false,
        _ => *whole,
    };
    Some((read, wrote))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write as _;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::default());
        to.write_all(text).unwrap();
        to.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut to = ZlibEncoder::new(Vec::new(), Compression::default());
        to.write_all(text).unwrap();
        to.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        ::zstd::encode_all(text, 3).unwrap()
    }

    /// Unpacks in pieces of `cut` bytes; `None` where the body is broken or not whole.
    fn unpacked(coding: &str, packed: &[u8], cut: usize) -> Option<Vec<u8>> {
        let mut unpack = Unpack::new(coding).unwrap();
        let mut out = Vec::new();
        for piece in packed.chunks(cut) {
            let took = unpack.push(piece, |bytes| {
                out.extend_from_slice(bytes);
                Ok::<(), ()>(())
            });
            took.ok()?;
        }
        unpack.is_whole().then_some(out)
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|i| if i % 7 == 0 { (i / 7 % 251) as u8 } else { b'a' }).collect()
    }

    #[test]
    fn a_body_comes_out_whole_at_every_cut() {
        let long = text(3 * STEP + 11);
        let cases = [("gzip", gzip(&long)), ("deflate", zlib(&long)), ("zstd", zstd(&long))];
        for (coding, packed) in &cases {
            for cut in [1, 2, 3, 7, 64, packed.len()] {
                assert_eq!(unpacked(coding, packed, cut).as_ref(), Some(&long), "{coding} {cut}");
            }
        }
        assert_eq!(unpacked("X-GZip", &gzip(b"a"), 1), Some(b"a".to_vec()));
        assert_eq!(unpacked("gzip", &gzip(b""), 1), Some(Vec::new()));
        assert!(Unpack::new("br").is_none() && Unpack::new("gzip, zstd").is_none());
    }

    #[test]
    fn several_members_are_one_body() {
        let two = |a: Vec<u8>, b: Vec<u8>| [a, b].concat();
        for cut in [1, 5, 1000] {
            let gzips = two(gzip(b"one "), gzip(b"two"));
            assert_eq!(unpacked("gzip", &gzips, cut), Some(b"one two".to_vec()));
            let zstds = two(zstd(b"one "), zstd(b"two"));
            assert_eq!(unpacked("zstd", &zstds, cut), Some(b"one two".to_vec()));
        }
    }

    #[test]
    fn what_is_cut_short_or_damaged_or_followed_by_noise_is_no_body() {
        let long = text(5000);
        for (coding, packed) in
            [("gzip", gzip(&long)), ("deflate", zlib(&long)), ("zstd", zstd(&long))]
        {
            for end in [1, packed.len() / 2, packed.len() - 1] {
                assert_eq!(unpacked(coding, &packed[..end], 64), None, "{coding} cut at {end}");
            }
            let noise = [&packed[..], b"noise"].concat();
            assert_eq!(unpacked(coding, &noise, 64), None, "{coding} and noise");
            assert_eq!(unpacked(coding, b"{\"model\":\"m\"}", 64), None, "{coding} of plain text");
        }
        let mut damaged = gzip(&long);
        let at = damaged.len() - 6;
        damaged[at] ^= 1;
        assert_eq!(unpacked("gzip", &damaged, 64), None, "its checksum is looked at");
    }

    #[test]
    fn a_bomb_is_left_at_the_first_step_that_is_refused() {
        let zeros = vec![0; 64 << 20];
        for (coding, bomb) in [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))] {
            let mut taken = 0;
            let stop = Unpack::new(coding).unwrap().push(&bomb, |bytes| {
                taken += bytes.len();
                if taken > 1 << 20 { Err("enough") } else { Ok(()) }
            });
            assert_eq!(stop, Err(Stop::Refused("enough")));
            assert!(taken <= (1 << 20) + STEP, "{taken}");
        }
    }

    #[test]
    fn a_window_beyond_the_standard_is_broken() {
        let mut to = ::zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        to.window_log(27).unwrap();
        to.include_contentsize(false).unwrap();
        to.write_all(&text(1 << 20)).unwrap();
        assert_eq!(unpacked("zstd", &to.finish().unwrap(), 4096), None);
    }
}
