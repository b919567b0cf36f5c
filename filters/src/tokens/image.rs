//! What an image costs: its size out of the first bytes of its base64, and a rule for the size.

/// Tokens of an image whose size nobody knows: 1024 × 1024 by the tile rule.
pub(super) const IMAGE_TOKENS: u64 = 765;
/// Tokens of an image with `detail: low`, and of the part that every image has.
pub(super) const IMAGE_BASE: u64 = 85;
const TILE_TOKENS: u64 = 170;
/// Segments of a JPEG that may stand before its size; cameras write about ten.
const SEGMENTS_MAX: usize = 64;

/// Tokens of an image of `width` × `height` pixels by OpenAI's tile rule for gpt-4o: fitted into
/// 2048 × 2048, then its shorter side into 768, 170 for each tile of 512 × 512 and 85 beside them.
/// Other models have other prices; this is an estimate for them.
#[must_use]
pub fn image_tokens(width: u32, height: u32) -> u64 {
    if width == 0 || height == 0 {
        return IMAGE_TOKENS;
    }
    let (width, height) = (f64::from(width), f64::from(height));
    let fit = (2048.0 / width.max(height)).min(1.0);
    let short = (768.0 / (width.min(height) * fit)).min(1.0);
    let tiles = |side: f64| ((side * fit * short).round() / 512.0).ceil().max(1.0) as u64;
    IMAGE_BASE + TILE_TOKENS * tiles(width) * tiles(height)
}

/// Width and height in pixels of a PNG, JPEG, GIF or WebP in base64. Reads a few groups, never the
/// whole; `None` for other formats and where the base64 is broken before the size.
#[must_use]
pub fn size_of_image(base64: &[u8]) -> Option<(u32, u32)> {
    let image = Base64(base64);
    match [image.at(0)?, image.at(1)?, image.at(2)?, image.at(3)?] {
        [0x89, b'P', b'N', b'G'] => {
            let side = |at| Some(image.big(at)? << 16 | image.big(at + 2)?);
            Some((side(16)?, side(20)?))
        }
        [b'G', b'I', b'F', b'8'] => Some((image.little(6)?, image.little(8)?)),
        [0xFF, 0xD8, ..] => jpeg(&image),
        [b'R', b'I', b'F', b'F'] => webp(&image),
        _ => None,
    }
}

/// The frame header (SOF0 to SOF15 but DHT, JPG and DAC) behind any number of segments.
fn jpeg(image: &Base64) -> Option<(u32, u32)> {
    let mut at = 2;
    for _ in 0..SEGMENTS_MAX {
        while image.at(at + 1)? == 0xFF {
            at += 1; // fill bytes
        }
        let marker = image.at(at + 1)?;
        if image.at(at)? != 0xFF {
            return None;
        }
        if matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC) {
            return Some((image.big(at + 7)?, image.big(at + 5)?));
        }
        at += 2 + image.big(at + 2)? as usize;
    }
    None
}

fn webp(image: &Base64) -> Option<(u32, u32)> {
    if [image.at(8)?, image.at(9)?, image.at(10)?, image.at(11)?] != *b"WEBP" {
        return None;
    }
    match [image.at(12)?, image.at(13)?, image.at(14)?, image.at(15)?] {
        [b'V', b'P', b'8', b' '] => Some((image.little(26)? & 0x3FFF, image.little(28)? & 0x3FFF)),
        [b'V', b'P', b'8', b'L'] => {
            let bits = image.little(21)? | image.little(23)? << 16;
            Some(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
        }
        [b'V', b'P', b'8', b'X'] => {
            let side = |at| Some(image.little(at)? | u32::from(image.at(at + 2)?) << 16);
            Some((side(24)? + 1, side(27)? + 1))
        }
        _ => None,
    }
}

/// Bytes of a base64 text by their place, decoded when asked for.
struct Base64<'a>(&'a [u8]);

impl Base64<'_> {
    fn at(&self, index: usize) -> Option<u8> {
        let group = self.0.get(index / 3 * 4..)?;
        let part = index % 3;
        let (high, low) = (sextet(*group.get(part)?)?, sextet(*group.get(part + 1)?)?);
        let shift = 2 * part as u32 + 2;
        Some(((u32::from(high) << shift) | (u32::from(low) >> (6 - shift))) as u8)
    }

    fn big(&self, at: usize) -> Option<u32> {
        Some(u32::from(self.at(at)?) << 8 | u32::from(self.at(at + 1)?))
    }

    fn little(&self, at: usize) -> Option<u32> {
        Some(u32::from(self.at(at + 1)?) << 8 | u32::from(self.at(at)?))
    }
}

/// The value of one base64 character, of either alphabet.
pub(super) fn sextet(char: u8) -> Option<u8> {
    Some(match char {
        b'A'..=b'Z' => char - b'A',
        b'a'..=b'z' => char - b'a' + 26,
        b'0'..=b'9' => char - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;

    fn size(bytes: &[u8]) -> Option<(u32, u32)> {
        size_of_image(base64::engine::general_purpose::STANDARD.encode(bytes).as_bytes())
    }

    fn with(mut head: Vec<u8>, more: &[u8]) -> Vec<u8> {
        head.extend_from_slice(more);
        head
    }

    #[test]
    fn sizes_are_read_out_of_every_common_format() {
        let png = with(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), b"\0\0\x04\0\0\0\x03\0\x08\x06");
        assert_eq!(size(&png), Some((1024, 768)));
        assert_eq!(size(b"GIF89a\x40\x01\xF0\0\xF7\0\0"), Some((320, 240)));
        let exif = with(b"\xFF\xD8\xFF\xE1\x80\x02".to_vec(), &[0; 0x8000]);
        let sof = b"\xFF\xC4\0\x03\0\xFF\xFF\xC2\0\x11\x08\x02\x58\x03\x20\x03";
        assert_eq!(size(&with(exif.clone(), sof)), Some((800, 600)));
        assert_eq!(size(&exif), None, "cut before its size");
        let riff = b"RIFF\0\0\0\0WEBP".to_vec();
        let lossy = b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x90\x01\x2c\x01";
        assert_eq!(size(&with(riff.clone(), lossy)), Some((400, 300)));
        let lossless = b"VP8L\0\0\0\0\x2f\x8f\xc1\x4a\0";
        assert_eq!(size(&with(riff.clone(), lossless)), Some((400, 300)));
        let extended = b"VP8X\x0a\0\0\0\0\0\0\0\x8f\x01\0\x2b\x01\0";
        assert_eq!(size(&with(riff, extended)), Some((400, 300)));
        assert_eq!(size(b"RIFF\0\0\0\0WAVEfmt "), None);
        assert_eq!(size_of_image(b"hello world"), None);
        assert_eq!(size_of_image(b""), None);
    }

    #[test]
    fn the_tile_rule_gives_its_published_numbers() {
        // OpenAI's vision guide: 1024 × 1024 is 765, 2048 × 4096 is 1105
        assert_eq!(image_tokens(1024, 1024), 765);
        assert_eq!(image_tokens(2048, 4096), 1105);
        assert_eq!(image_tokens(1, 1), 255);
        assert_eq!(image_tokens(512, 512), 255);
        assert_eq!(image_tokens(0, 9), IMAGE_TOKENS);
        assert!(image_tokens(u32::MAX, 1) <= 85 + 170 * 8);
        assert!(image_tokens(u32::MAX, u32::MAX) <= 85 + 170 * 8);
    }
}
