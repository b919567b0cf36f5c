//! Milliseconds, counted by value: exact below 128, within a hundredth above, so that percentiles
//! of any number of requests fit into a few hundred bytes.

use std::collections::BTreeMap;

/// Values keep so many leading bits.
const BITS: u32 = 7;

/// How often each value came.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// One more value.
    pub fn add(&mut self, ms: u64) {
        *self.0.entry(rounded(ms)).or_default() += 1;
    }

    /// All of another's.
    pub fn merge(&mut self, other: &Self) {
        for (ms, n) in &other.0 {
            let sum = self.0.entry(*ms).or_default();
            *sum = sum.saturating_add(*n);
        }
    }

    /// All of what [`Self::pack`] wrote; of anything else as much as can be read.
    pub fn add_packed(&mut self, mut bytes: &[u8]) {
        let mut last = 0u64;
        while let (Some(step), Some(n)) = (take(&mut bytes), take(&mut bytes)) {
            last = last.saturating_add(step);
            let sum = self.0.entry(last).or_default();
            *sum = sum.saturating_add(n);
        }
    }

    /// Nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest value that at least so many percent of all are not above (nearest rank).
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let all: u128 = self.0.values().map(|n| u128::from(*n)).sum();
        let rank = (all * u128::from(percent)).div_ceil(100);
        let mut seen = 0;
        let found = self.0.iter().find(|(_, n)| {
            seen += u128::from(**n);
            seen >= rank
        });
        found.map(|(ms, _)| *ms)
    }

    /// For the database: pairs of the step from the last value and how often it came, in LEB128.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(3 * self.0.len());
        let mut last = 0;
        for (ms, n) in &self.0 {
            put(&mut out, ms - last);
            put(&mut out, *n);
            last = *ms;
        }
        out
    }

    /// What [`Self::pack`] wrote; of anything else as much as can be read.
    #[must_use]
    pub fn unpack(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        all.add_packed(bytes);
        all
    }
}

/// A value without its bits of little weight, half of them added: in the middle of what it stands
/// for.
fn rounded(ms: u64) -> u64 {
    let drop = (64 - ms.leading_zeros()).saturating_sub(BITS);
    if drop == 0 { ms } else { (ms >> drop << drop) | (1 << (drop - 1)) }
}

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(0x80 | (n & 0x7f) as u8);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_values_are_exact_and_percentiles_are_of_the_nearest_rank() {
        let of = |values: &[u64]| {
            let mut all = Histogram::default();
            values.iter().for_each(|ms| all.add(*ms));
            all
        };
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(of(&hundred).percentile(50), Some(50));
        assert_eq!(of(&hundred).percentile(95), Some(95));
        assert_eq!(of(&[7]).percentile(95), Some(7));
        assert_eq!(of(&[1, 2, 3]).percentile(50), Some(2));
        assert_eq!(of(&[]).percentile(50), None);
    }

    proptest! {
        #[test]
        fn large_values_are_within_a_hundredth(ms in 0u64..u64::MAX / 2) {
            let off = rounded(ms).abs_diff(ms);
            prop_assert!(off <= ms / 100, "{ms} became {}", rounded(ms));
        }

        #[test]
        fn what_is_packed_is_unpacked(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut all = Histogram::default();
            values.iter().for_each(|ms| all.add(*ms));
            prop_assert_eq!(Histogram::unpack(&all.pack()), all);
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            let _ = Histogram::unpack(&bytes).percentile(50);
        }
    }
}
