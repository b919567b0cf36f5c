//! A span of time, cut so that whole days and hours are read from their sums and the rest from the
//! rows.

use crate::meter::sums::{DAY, HOUR};

/// In a second.
pub(super) const MICROS: i64 = 1_000_000;

/// What a piece is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Events,
    Hours,
    Days,
}

impl From {
    /// The table, its column of time, and how many microseconds one of that is.
    pub(super) fn table(self) -> (&'static str, &'static str, i64) {
        match self {
            Self::Events => ("events", "ts", 1),
            Self::Hours => ("rollups JOIN groups ON id = group_id", "start", MICROS),
            Self::Days => ("rollups_daily JOIN groups ON id = group_id", "start", MICROS),
        }
    }
}

/// A piece, from its first microsecond since 1970 up to the first behind it.
pub(super) type Piece = (From, i64, i64);

/// The pieces of a span, in order. `days`: sums of days will do.
pub(super) fn pieces(since: i64, until: i64, days: bool) -> Vec<Piece> {
    let (first, last) = (up(since, HOUR), down(until, HOUR));
    if first >= last {
        return whole(vec![(From::Events, since, until)]);
    }
    let from = if days { up(first, DAY).min(last) } else { last };
    let to = if days { down(last, DAY).max(from) } else { last };
    whole(vec![
        (From::Events, since, first),
        (From::Hours, first, from),
        (From::Days, from, to),
        (From::Hours, to, last),
        (From::Events, last, until),
    ])
}

fn whole(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.retain(|(_, from, to)| from < to);
    pieces
}

/// The last beginning of a stretch that is not after `at`; the ends of time are beginnings.
fn down(at: i64, length: i64) -> i64 {
    if at == i64::MAX { at } else { at.saturating_sub(at.rem_euclid(length * MICROS)) }
}

/// The first one that is not before it.
fn up(at: i64, length: i64) -> i64 {
    match at.rem_euclid(length * MICROS) {
        _ if at == i64::MIN => at,
        0 => at,
        rest => at.saturating_add(length * MICROS - rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_of_time_is_days() {
        assert_eq!(pieces(i64::MIN, i64::MAX, true), [(From::Days, i64::MIN, i64::MAX)]);
        assert_eq!(pieces(i64::MIN, i64::MAX, false), [(From::Hours, i64::MIN, i64::MAX)]);
    }

    proptest! {
        #[test]
        fn pieces_cover_a_span_without_overlap_and_sums_are_whole(
            since in 0i64..10_000_000, length in 0i64..1_000_000, days: bool,
        ) {
            let (since, until) = (since * MICROS + 7, (since + length) * MICROS + 9);
            let all = pieces(since, until, days);
            let mut at = since;
            for (from, start, end) in all {
                prop_assert_eq!(start, at);
                at = end;
                let unit = match from {
                    From::Events => 1,
                    From::Hours => HOUR * MICROS,
                    From::Days => DAY * MICROS,
                };
                prop_assert!(start % unit == 0 && end % unit == 0);
                prop_assert!(from != From::Events || end - start < 2 * HOUR * MICROS);
                prop_assert!(from != From::Hours || !days || end - start < 2 * DAY * MICROS);
            }
            prop_assert_eq!(at, until);
        }
    }
}
