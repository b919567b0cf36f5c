//! Periods of the calendar: when a budget's hour, day, week or month began, and when it ends.

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// A budget's period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight: 23 or 25 hours where clocks change.
    Day,
    /// From Monday to Monday (ISO 8601).
    Week,
    /// From the first to the first.
    Month,
    /// All time.
    Ever,
}

/// A stretch of time: from its first second to before its last; `end` is absent for all time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// Seconds since 1970.
    pub start: i64,
    /// Seconds since 1970.
    pub end: Option<i64>,
}

/// Where the calendar cannot answer (thousands of years away), a period of all time.
const EVER: Period = Period { start: i64::MIN, end: None };

impl Per {
    /// As config writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Ever => "ever",
        }
    }

    /// The period that holds this moment, by this zone's calendar.
    #[must_use]
    pub fn at(self, now: Timestamp, zone: &TimeZone) -> Period {
        self.bounds(now, zone).unwrap_or(EVER)
    }

    fn bounds(self, now: Timestamp, zone: &TimeZone) -> Option<Period> {
        let today = zone.to_datetime(now).date();
        let (first, length) = match self {
            Self::Ever => return None,
            Self::Hour => return Some(hour(now, zone)),
            Self::Day => (today, Span::new().days(1)),
            Self::Week => {
                let back = i64::from(today.weekday().since(Weekday::Monday));
                (today.checked_sub(Span::new().days(back)).ok()?, Span::new().weeks(1))
            }
            Self::Month => (today.first_of_month(), Span::new().months(1)),
        };
        let next = first.checked_add(length).ok()?;
        Some(Period { start: midnight(first, zone)?, end: Some(midnight(next, zone)?) })
    }
}

/// The first second of a day; where clocks skip midnight, the first that there is.
fn midnight(day: Date, zone: &TimeZone) -> Option<i64> {
    let moment = zone.to_timestamp(day.to_datetime(jiff::civil::Time::midnight()));
    Some(moment.ok()?.as_second())
}

/// The hour on the local clock's face. One that comes twice in autumn is two.
fn hour(now: Timestamp, zone: &TimeZone) -> Period {
    let offset = i64::from(zone.to_offset(now).seconds());
    let start = (now.as_second() + offset).div_euclid(3600) * 3600 - offset;
    Period { start, end: Some(start + 3600) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(per: Per, zone: &str, now: &str, start: &str, end: &str) {
        let zone = TimeZone::get(zone).unwrap();
        let second = |t: &str| t.parse::<Timestamp>().unwrap().as_second();
        let want = Period { start: second(start), end: Some(second(end)) };
        assert_eq!(per.at(now.parse().unwrap(), &zone), want, "{per:?} {now}");
    }

    #[test]
    fn a_day_begins_at_local_midnight() {
        let (start, end) = ("2026-05-01T16:00:00Z", "2026-05-02T16:00:00Z");
        check(Per::Day, "Asia/Shanghai", "2026-05-01T16:00:01Z", start, end);
        check(Per::Day, "Asia/Shanghai", "2026-05-02T13:30:00Z", start, end);
    }

    #[test]
    fn days_of_23_and_25_hours_are_days() {
        let zone = "Europe/Amsterdam";
        let (spring, summer) = ("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
        check(Per::Day, zone, "2026-03-29T12:00:00Z", spring, summer);
        check(Per::Day, zone, "2026-03-29T22:00:00Z", summer, "2026-03-30T22:00:00Z");
        let (autumn, winter) = ("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
        check(Per::Day, zone, "2026-10-25T22:59:59Z", autumn, winter);
        // The hour that comes twice is two hours.
        check(
            Per::Hour,
            zone,
            "2026-10-25T00:30:00Z",
            "2026-10-25T00:00:00Z",
            "2026-10-25T01:00:00Z",
        );
        check(
            Per::Hour,
            zone,
            "2026-10-25T01:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T02:00:00Z",
        );
    }

    #[test]
    fn months_end_on_their_last_day() {
        let month = |now, start, end| check(Per::Month, "UTC", now, start, end);
        let (jan, feb, mar) =
            ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z");
        month("2026-01-31T23:59:59Z", jan, feb);
        month("2026-02-01T00:00:00Z", feb, mar);
        month("2026-02-28T23:59:59Z", feb, mar);
        month("2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z");
    }

    #[test]
    fn weeks_begin_on_monday_and_hours_follow_half_hour_zones() {
        let (monday, next) = ("2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z");
        check(Per::Week, "UTC", "2026-12-06T23:59:59Z", monday, next);
        check(Per::Week, "UTC", monday, monday, next);
        let (start, end) = ("2026-05-01T05:30:00Z", "2026-05-01T06:30:00Z");
        check(Per::Hour, "Asia/Kolkata", "2026-05-01T06:00:00Z", start, end);
    }

    #[test]
    fn ever_has_no_end() {
        assert_eq!(Per::Ever.at(Timestamp::UNIX_EPOCH, &TimeZone::UTC), EVER);
    }
}
