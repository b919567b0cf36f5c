//! Durations and sizes as config writes them: `"250ms"`, `"10m"`, `"32MiB"`.

use std::time::Duration;

/// Longest duration: ten years. Longer ones are typing errors, and sums with them would overflow.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 86_400);
/// Largest size: 1 TiB. No machine holds more bodies at once.
const SIZE_MAX: u64 = 1 << 40;

/// Milliseconds of each unit.
const TIMES: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
/// Bytes of each unit.
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// A duration: a whole number and one of `ms`, `s`, `m`, `h`, `d`. Zero is read as zero.
///
/// # Errors
/// What is wrong with it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{text:?} is no duration; write it as \"250ms\", \"5s\", \"10m\" or \"1h\"");
    let millis = scaled(text, TIMES).ok_or_else(wrong)?;
    let duration = Duration::from_millis(millis);
    if duration > DURATION_MAX {
        return Err(format!("{text:?} is longer than ten years"));
    }
    Ok(duration)
}

/// A size in bytes: a whole number and a unit, or a bare number of bytes; at least 1.
///
/// # Errors
/// What is wrong with it.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is no size; write it as \"64KiB\", \"32MiB\" or \"1GiB\"");
    let bytes = text.parse().ok().or_else(|| scaled(text, SIZES)).ok_or_else(wrong)?;
    match usize::try_from(bytes) {
        Ok(0) => Err(format!("{text:?} leaves no room at all")),
        Ok(n) if bytes <= SIZE_MAX => Ok(n),
        _ => Err(format!("{text:?} is larger than 1 TiB")),
    }
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let cut = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(cut);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    // A number too large for u64 is as wrong as one above the ceiling: say the ceiling.
    let number: u64 = if number.is_empty() { return None } else { number.parse().ok()? };
    Some(number.saturating_mul(*scale))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_one_unit() {
        for (text, millis) in
            [("5s", 5_000), ("250ms", 250), ("10m", 600_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        assert_eq!(duration("400d").unwrap(), Duration::from_secs(400 * 86_400));
        for text in
            ["", "5", "s", "5 s", "-5s", "1.5s", "5S", "5m5s", "4000d", "99999999999999999999s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("18446744073709551615d").is_err(), "no overflow");
    }

    #[test]
    fn sizes_are_whole_bytes() {
        for (text, bytes) in [
            ("32MiB", 32 << 20),
            ("1GiB", 1 << 30),
            ("64KiB", 65_536),
            ("1000", 1_000),
            ("1MB", 1_000_000),
        ] {
            assert_eq!(size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "MiB", "0", "0KiB", "1.5MiB", "1 MiB", "-1", "1mib", "2000GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
