//! Frames of AWS's event stream, written without the crate's code; the benches take them from here.

/// One frame. What is too long for its field is written as empty, which no reader takes.
pub(crate) fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap_or_default());
        head.extend(name.as_bytes());
        head.push(7);
        head.extend(u16::try_from(value.len()).unwrap_or_default().to_be_bytes());
        head.extend(value.as_bytes());
    }
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or_default().to_be_bytes();
    let mut out = size(head.len() + payload.len() + 16).to_vec();
    out.extend(size(head.len()));
    out.extend(crc(&out).to_be_bytes());
    out.extend(head);
    out.extend(payload);
    out.extend(crc(&out).to_be_bytes());
    out
}

/// CRC-32, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}
