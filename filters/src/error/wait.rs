//! How long a provider asks us to wait: headers, durations, HTTP dates, its own words.

use std::time::Duration;

/// Longer than this is no wait but a date or nonsense (an epoch in a reset header).
const WAIT_MAX: Duration = Duration::from_secs(7 * 86_400);

/// A wait as headers and bodies write it: `7`, `0.5`, `1.5s`, `12ms`, `6m0s`, `1h2m3s`, `1d`.
/// Plain numbers are seconds. `None` for zero, for more than a week and for anything else.
#[must_use]
pub fn parse_wait(text: &str) -> Option<Duration> {
    let (mut rest, mut total) = (text.trim(), 0.0);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];
        match units.into_iter().find(|(unit, _)| rest.starts_with(unit)) {
            Some((unit, seconds)) => {
                total += number * seconds;
                rest = &rest[unit.len()..];
            }
            // a bare number has no companions
            None if rest.is_empty() && total == 0.0 => total = number,
            None => return None,
        }
    }
    seconds(total)
}

/// From the reply's headers: `retry-after-ms`, `retry-after` (seconds or an HTTP date, measured
/// against the reply's own `date`, so that no clock is needed), and for a 429 the reset of what is
/// used up (`x-ratelimit-remaining-tokens: 0`).
pub(super) fn from_headers(
    header: &dyn Fn(&str) -> Option<String>,
    limited: bool,
) -> Option<Duration> {
    if let Some(wait) = header("retry-after-ms")
        .and_then(|ms| ms.trim().parse::<f64>().ok())
        .and_then(|ms| seconds(ms / 1_000.0))
    {
        return Some(wait);
    }
    if let Some(text) = header("retry-after")
        && let Some(wait) = parse_wait(&text).or_else(|| until(&text, &header("date")?))
    {
        return Some(wait);
    }
    let spent = |what: &&'static str| {
        header(&format!("x-ratelimit-remaining-{what}")).is_some_and(|left| left.trim() == "0")
    };
    ["requests", "tokens"]
        .into_iter()
        .filter(|_| limited)
        .filter(spent)
        .filter_map(|what| parse_wait(&header(&format!("x-ratelimit-reset-{what}"))?))
        .max()
}

/// From a message: "Please try again in 3.89s", "retry after 7 seconds", "retry in 18.2s".
pub(super) fn from_text(message: &str) -> Option<Duration> {
    let low = message.to_ascii_lowercase();
    ["try again in ", "retry in ", "retry after "].into_iter().find_map(|lead| {
        let rest = &low[low.find(lead)? + lead.len()..];
        let mut words = rest.split_whitespace();
        let first = words.next()?.trim_end_matches(['.', ',', ';', ')']);
        let scale = match words.next().map(|unit| unit.trim_end_matches(['.', ',', ';', ')', 's']))
        {
            Some("minute") => 60,
            Some("hour") => 3_600,
            _ => 1,
        };
        parse_wait(first)?.checked_mul(scale).filter(|wait| *wait <= WAIT_MAX)
    })
}

fn seconds(seconds: f64) -> Option<Duration> {
    let wait = Duration::try_from_secs_f64(seconds).ok()?;
    (!wait.is_zero() && wait <= WAIT_MAX).then_some(wait)
}

/// From one HTTP date to another; `None` unless it lies ahead.
fn until(then: &str, now: &str) -> Option<Duration> {
    let ahead = http_date(then)?.checked_sub(http_date(now)?)?;
    seconds(ahead as f64)
}

/// Seconds since 1970 of an IMF-fixdate, the one form that senders may make (RFC 9110 5.6.7):
/// `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<u64> {
    let mut parts = text.trim().split_ascii_whitespace().skip(1);
    let day: u64 = parts.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let names = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = parts.next().filter(|name| name.len() == 3).and_then(|name| names.find(name))?;
    let year: u64 = parts.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let mut clock = parts.next()?.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if parts.next() != Some("GMT") || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // March is the first month, so that the leap day is a year's last
    let month = (month / 3) as u64;
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let epoch = 719_468; // the same sum for 1970-01-01
    (days.checked_sub(epoch)? * 24 + hour).checked_mul(3_600)?.checked_add(minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_form_of_a_wait_is_read() {
        let cases = [
            ("7", Some(7_000)),
            ("0.5", Some(500)),
            ("1.5s", Some(1_500)),
            ("12ms", Some(12)),
            ("6m0s", Some(360_000)),
            ("2m59.56s", Some(179_560)),
            ("1h2m3s", Some(3_723_000)),
            ("56.078s", Some(56_078)),
            ("1d", Some(86_400_000)),
            ("0", None),
            ("0s", None),
            ("", None),
            ("-1", None),
            ("soon", None),
            ("1.5.2s", None),
            ("3 apples", None),
            ("1767225600", None),
            ("9e99", None),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_wait(text), ms.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn an_http_date_counts_from_the_reply_s_own_date() {
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        assert_eq!(http_date("2024-02-29T23:59:59Z"), None);
        let wait = until("Fri, 01 Mar 2024 00:00:07 GMT", "Thu, 29 Feb 2024 23:59:59 GMT");
        assert_eq!(wait, Some(Duration::from_secs(8)));
        assert_eq!(until("Thu, 29 Feb 2024 23:59:59 GMT", "Fri, 01 Mar 2024 00:00:07 GMT"), None);
    }

    #[test]
    fn a_message_that_names_its_wait_is_heard() {
        let said = |text| from_text(text).map(|wait| wait.as_millis());
        assert_eq!(said("Please try again in 3.89s. Visit x"), Some(3_890));
        assert_eq!(said("Please retry after 7 seconds. Go here"), Some(7_000));
        assert_eq!(said("Please retry in 18.2s."), Some(18_200));
        assert_eq!(said("try again in 2 minutes"), Some(120_000));
        assert_eq!(said("try again in a while"), None);
    }
}
