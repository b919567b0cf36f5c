//! How long a provider asks us to wait: headers, durations, HTTP dates, its own words.

use std::time::Duration;

/// Longer than this is no wait but a date or nonsense (an epoch in a reset header). A
/// `retry-after` beyond it counts as this long.
const WAIT_MAX: Duration = Duration::from_secs(7 * 86_400);

/// A wait as headers and bodies write it: `7`, `0.5`, `1.5s`, `12ms`, `6m0s`, `1h2m3s`, `1d`.
/// Plain numbers are seconds. `None` for zero, for more than a week and for anything else.
#[must_use]
pub fn parse_wait(text: &str) -> Option<Duration> {
    seconds(sum(text)?)
}

/// The same in seconds, whatever it comes to.
fn sum(text: &str) -> Option<f64> {
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
    Some(total)
}

/// From the reply's headers: `retry-after-ms`, `retry-after` (seconds, an HTTP date or seconds
/// since 1970, measured against the reply's own `date`, so that no clock is needed), and for a 429
/// the reset of what is used up (`x-ratelimit-remaining-tokens: 0`).
pub(super) fn from_headers(
    header: &dyn Fn(&str) -> Option<String>,
    limited: bool,
) -> Option<Duration> {
    if let Some(wait) = header("retry-after-ms")
        .and_then(|ms| ms.trim().parse::<f64>().ok())
        .and_then(|ms| at_most(ms / 1_000.0))
    {
        return Some(wait);
    }
    if let Some(text) = header("retry-after")
        && let Some(wait) = retry_after(&text, header)
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

fn retry_after(text: &str, header: &dyn Fn(&str) -> Option<String>) -> Option<Duration> {
    let Some(asked) = sum(text) else { return until(text, &header("date")?) };
    let now = || header("date").and_then(|date| http_date(&date));
    let moment = || now().and_then(|now| seconds(asked - now as f64));
    (asked > WAIT_MAX.as_secs_f64()).then(moment).flatten().or_else(|| at_most(asked))
}

/// The reset of a limit: a duration, or an RFC 3339 time measured against the reply's `date`.
pub(super) fn from_reset(text: &str, header: &dyn Fn(&str) -> Option<String>) -> Option<Duration> {
    parse_wait(text).or_else(|| {
        let now = http_date(&header("date")?)?;
        seconds(rfc3339(text)?.checked_sub(now)? as f64)
    })
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

/// A provider's own number, which must not count for nothing because it is absurd.
fn at_most(asked: f64) -> Option<Duration> {
    seconds(asked.min(WAIT_MAX.as_secs_f64()))
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
    moment((year, (month / 3) as u64, day), (hour, minute, second))
}

/// Seconds since 1970 of `2024-02-29T23:59:59Z`, with or without a fraction, in UTC.
fn rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.trim().strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by: char| -> Option<(u64, u64, u64)> {
        let mut parts = text.split(by).map(|part| part.parse::<u64>().ok());
        Some((parts.next()??, parts.next()??, parts.next()??))
    };
    let time = time.split('.').next()?;
    let ((year, month, day), clock) = (numbers(date, '-')?, numbers(time, ':')?);
    let sound = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    let sound = sound && (1..=31).contains(&day) && clock.0 < 24 && clock.1 < 60 && clock.2 <= 60;
    sound.then(|| moment((year, month - 1, day), clock)).flatten()
}

/// Of a year, a month from 0 and a day from 1, and of hour, minute and second.
fn moment(date: (u64, u64, u64), (hour, minute, second): (u64, u64, u64)) -> Option<u64> {
    let (year, month, day) = date;
    // March is the first month, so that the leap day is a year's last
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
    fn an_absurd_wait_is_the_longest_one_and_an_epoch_is_a_date() {
        let date = "Thu, 29 Feb 2024 23:59:59 GMT"; // 1_709_251_199
        let check = |name: &str, text: &str, want: Option<u64>| {
            let look = |asked: &str| match asked {
                "date" => Some(date.to_owned()),
                asked => (asked == name).then(|| text.to_owned()),
            };
            assert_eq!(from_headers(&look, true).map(|d| d.as_secs()), want, "{name}: {text}");
        };
        let week = WAIT_MAX.as_secs();
        check("retry-after", "999999999999", Some(week));
        check("retry-after", "99999999999999999999999999999999", Some(week));
        check("retry-after-ms", "999999999999999", Some(week));
        check("retry-after", "1709251209", Some(10));
        check("retry-after", "Fri, 01 Mar 2024 00:00:07 GMT", Some(8));
        check("retry-after", "-5", None);
        assert_eq!(rfc3339("2024-02-29T23:59:59.25Z"), Some(1_709_251_199));
        assert_eq!(rfc3339("2024-13-29T23:59:59Z").or(rfc3339("1767225600")), None);
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
