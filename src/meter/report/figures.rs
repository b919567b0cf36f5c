//! A group's figures: summed wider than any row, written exactly.

use super::query::Currency;
use crate::meter::histogram::Histogram;
use std::fmt;

/// Figures of a group; `cost` is `None` while no row of it had a price.
#[derive(Debug, Default, Clone)]
pub(super) struct Sums {
    pub requests: u128,
    pub errors: u128,
    /// Input, cached, cache writes, output, reasoning.
    pub tokens: [u128; 5],
    pub cost: Option<u128>,
    pub wasted: u128,
    pub ttft_ms: Vec<u64>,
    /// The same out of sums.
    pub rough: Histogram,
}

/// One figure, as JSON writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    /// There is none.
    Unknown,
    Whole(u128),
    /// So many parts of one, of which so many make one.
    Decimal(u128, u128),
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unknown => f.write_str("null"),
            Self::Whole(n) => whole_number(f, n),
            Self::Decimal(n, scale) => decimal(f, n, scale),
        }
    }
}

impl Sums {
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        for (sum, n) in self.tokens.iter_mut().zip(other.tokens) {
            *sum += n;
        }
        if let Some(cost) = other.cost {
            *self.cost.get_or_insert_default() += cost;
        }
        self.wasted += other.wasted;
        self.ttft_ms.extend(&other.ttft_ms);
        self.rough.merge(&other.rough);
    }

    /// In the order of [`names`].
    pub fn figures(&mut self, currency: Option<&Currency>) -> Vec<Figure> {
        let whole = |n: Option<u128>| n.map_or(Figure::Unknown, Figure::Whole);
        let decimal =
            |n: Option<u128>, scale| n.map_or(Figure::Unknown, |n| Figure::Decimal(n, scale));
        let mut all = Vec::with_capacity(FIGURES + 1);
        all.extend([self.requests, self.errors].map(Figure::Whole));
        all.extend(self.tokens.map(Figure::Whole));
        // Nothing asked is nothing spent; something asked without a price is not known.
        let cost = if self.requests == 0 { Some(0) } else { self.cost };
        all.extend([whole(cost), decimal(cost, NANO)]);
        if let Some(c) = currency {
            let rate = u128::from(c.nano_usd.get());
            all.push(decimal(cost.map(|n| (n * NANO + rate / 2) / rate), NANO));
        }
        all.push(Figure::Whole(self.wasted));
        let rate = (self.errors * MILLION + self.requests / 2).checked_div(self.requests);
        all.push(Figure::Decimal(rate.unwrap_or_default(), MILLION));
        if self.rough.is_empty() {
            self.ttft_ms.sort_unstable();
        } else {
            self.ttft_ms.drain(..).for_each(|ms| self.rough.add(ms));
        }
        for percent in [50, 95] {
            let ms = match self.rough.is_empty() {
                true => percentile(&self.ttft_ms, percent),
                false => self.rough.percentile(percent as u64),
            };
            all.push(whole(ms.map(u128::from)));
        }
        all
    }
}

/// How many figures a group has, without one in another currency.
const FIGURES: usize = 13;

/// Names of a group's figures.
pub(super) fn names(currency: Option<&Currency>) -> Vec<String> {
    let mut names: Vec<String> = [
        "requests",
        "errors",
        "input_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "cost_nano_usd",
        "cost_usd",
        "wasted_cost_nano_usd",
        "error_rate",
        "ttft_ms_p50",
        "ttft_ms_p95",
    ]
    .map(String::from)
    .into();
    if let Some(currency) = currency {
        names.insert(9, format!("cost_{}", currency.code.to_lowercase()));
    }
    names
}

const NANO: u128 = 1_000_000_000;
const MILLION: u128 = 1_000_000;

/// `n / scale`, exact, without zeros at its end; `scale` is a power of ten.
fn decimal(f: &mut fmt::Formatter<'_>, n: u128, scale: u128) -> fmt::Result {
    let (whole, mut part) = (n / scale, n % scale);
    whole_number(f, whole)?;
    if part == 0 {
        return Ok(());
    }
    let mut digits = scale.ilog10() as usize;
    while part.is_multiple_of(10) {
        (part, digits) = (part / 10, digits - 1);
    }
    write!(f, ".{part:0digits$}")
}

/// Most fit into 64 bits, which are written far quicker.
fn whole_number(f: &mut fmt::Formatter<'_>, n: u128) -> fmt::Result {
    match u64::try_from(n) {
        Ok(n) => write!(f, "{n}"),
        Err(_) => write!(f, "{n}"),
    }
}

/// The smallest value that at least so many percent of all are not above (nearest rank).
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_written_exactly() {
        for (nano, usd) in [
            (0, "0"),
            (1, "0.000000001"),
            (1_000_000_000, "1"),
            (2_500_000_000, "2.5"),
            (10 * 100_000_000, "1"),
            (u128::from(u64::MAX), "18446744073.709551615"),
        ] {
            assert_eq!(Figure::Decimal(nano, NANO).to_string(), usd);
        }
    }

    #[test]
    fn a_percentile_is_a_value_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), Some(50));
        assert_eq!(percentile(&hundred, 95), Some(95));
        assert_eq!(percentile(&[7], 95), Some(7));
        assert_eq!(percentile(&[1, 2, 3], 50), Some(2));
        assert_eq!(percentile(&[], 50), None);
    }
}
