//! Token classes that never overlap, money that is never a float, and what one costs in the other.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Tokens of one request, in classes that never overlap: `input + cached + cache_write` is the
/// whole prompt. `reasoning` alone is a part of another class (`output`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to a cache.
    pub input: u64,
    /// Prompt tokens read from the provider's cache.
    pub cached: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: u64,
    /// All generated tokens, reasoning included.
    pub output: u64,
    /// Generated tokens that were reasoning; never more than `output`.
    pub reasoning: u64,
}

/// More tokens of one class than any answer has: 400 times a context of ten million, which is the
/// longest that a model is sold with.
const TOKENS_MAX: u64 = 1 << 32;

impl Usage {
    /// Whether a provider may mean it. Numbers beyond any model's reach are a fault of theirs, and
    /// nobody is charged by them.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let classes = [self.input, self.cached, self.cache_write, self.output];
        classes.iter().all(|tokens| *tokens <= TOKENS_MAX)
    }

    /// From OpenAI's shape, where `cached` and `cache_write` are inside `prompt` and `reasoning` is
    /// inside `completion`. Numbers that contradict that (`cached_tokens` 163 of 7 and reasoning
    /// above completion are on record) are cut to fit, so no token is charged twice.
    #[must_use]
    pub fn from_openai(
        prompt: u64,
        cached: u64,
        cache_write: u64,
        completion: u64,
        reasoning: u64,
    ) -> Self {
        let cached = cached.min(prompt);
        let cache_write = cache_write.min(prompt - cached);
        let input = prompt - cached - cache_write;
        Self { input, cached, cache_write, output: completion, reasoning }.normalised()
    }

    /// From Anthropic's shape, whose prompt classes never overlap. `thinking` is inside `output`.
    #[must_use]
    pub fn from_anthropic(
        input: u64,
        cache_write: u64,
        cached: u64,
        output: u64,
        thinking: u64,
    ) -> Self {
        Self { input, cached, cache_write, output, reasoning: thinking }.normalised()
    }

    /// The whole prompt. Saturates.
    #[must_use]
    pub fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cached).saturating_add(self.cache_write)
    }

    /// Prompt and output. Saturates.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output)
    }

    /// With `reasoning` cut to `output`; the other classes cannot contradict each other.
    #[must_use]
    pub fn normalised(mut self) -> Self {
        self.reasoning = self.reasoning.min(self.output);
        self
    }
}

/// What is counted beside tokens.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Units {
    /// Images made.
    pub images: u64,
    /// Seconds of audio heard; never negative, never NaN.
    pub seconds: f64,
    /// Characters of speech.
    pub characters: u64,
}

/// Where a number of tokens came from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The provider reported it.
    Provider,
    /// Counted by the model's own tokenizer.
    Counted,
    /// Estimated from bytes.
    #[default]
    Estimated,
}

impl Source {
    /// As events write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Counted => "counted",
            Self::Estimated => "estimated",
        }
    }
}

/// Billionths of a US dollar.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(pub u64);

const NANOS_PER_USD: u64 = 1_000_000_000;

impl NanoUsd {
    /// More than one answer ever costs, about 281,000 USD: whoever reports it is mistaken. Small
    /// enough that sums of sixty thousand such answers fit into a number.
    pub const ANSWER_MAX: Self = Self(1 << 48);

    /// The sum, at most the largest amount.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Dollars with six to nine decimals: `0.000015`, `1.000000`, `0.0000155`.
impl fmt::Display for NanoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, mut nanos) = (self.0 / NANOS_PER_USD, self.0 % NANOS_PER_USD);
        // Written by hand: every answer's header says it.
        let mut decimals = [b'0'; 9];
        for digit in decimals.iter_mut().rev() {
            // A digit fits a byte.
            #[allow(clippy::cast_possible_truncation)]
            let value = (nanos % 10) as u8;
            *digit += value;
            nanos /= 10;
        }
        let last = decimals.iter().rposition(|digit| *digit != b'0').map_or(0, |at| at + 1);
        f.write_str(itoa::Buffer::new().format(dollars))?;
        f.write_str(".")?;
        f.write_str(std::str::from_utf8(&decimals[..last.max(6)]).unwrap_or_default())
    }
}

/// Not an amount of dollars: digits with at most nine behind a point, below about 18.4 billion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected dollars like 20 or 0.000015, with nine decimals at most")]
pub struct BadMoney;

/// Dollars, exactly.
impl FromStr for NanoUsd {
    type Err = BadMoney;

    fn from_str(text: &str) -> Result<Self, BadMoney> {
        let (dollars, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(dollars) || !digits(decimals) || decimals.len() > 9 {
            return Err(BadMoney);
        }
        let dollars: u64 = dollars.parse().map_err(|_| BadMoney)?;
        let nanos: u64 = format!("{decimals:0<9}").parse().map_err(|_| BadMoney)?;
        let whole = dollars.checked_mul(NANOS_PER_USD).ok_or(BadMoney)?;
        whole.checked_add(nanos).map(Self).ok_or(BadMoney)
    }
}

/// Prices of one step, in nano-USD per million tokens (USD 2.5 per million is 2_500_000_000).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Rates {
    /// Uncached prompt tokens.
    pub input: u64,
    /// Prompt tokens from the cache.
    pub cached_input: u64,
    /// Prompt tokens written to the cache.
    pub cache_write: u64,
    /// Generated tokens.
    pub output: u64,
    /// Generated reasoning tokens where they have a price of their own; else they cost `output`.
    pub reasoning: Option<u64>,
}

/// Prices of what is counted beside tokens.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UnitRates {
    /// One image.
    pub image: NanoUsd,
    /// One second of audio.
    pub audio_second: NanoUsd,
    /// One character of speech.
    pub character: NanoUsd,
}

impl UnitRates {
    /// What so much costs, seconds rounded half up. Saturates.
    fn cost(&self, units: &Units) -> NanoUsd {
        let images = u128::from(units.images) * u128::from(self.image.0);
        // Milliseconds are what clocks of audio tell; the cast saturates.
        let millis = (units.seconds * 1e3).round() as u64;
        let seconds = (u128::from(millis) * u128::from(self.audio_second.0) + 500) / 1000;
        let characters = u128::from(units.characters) * u128::from(self.character.0);
        let sum = images.saturating_add(seconds).saturating_add(characters);
        NanoUsd(u64::try_from(sum).unwrap_or(u64::MAX))
    }
}

/// What a model costs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Price {
    /// The base step.
    pub base: Rates,
    /// Steps for long prompts, ascending: a whole prompt above `.0` tokens is charged at `.1`.
    pub tiers: Vec<(u64, Rates)>,
    /// Added to every request.
    pub per_request: NanoUsd,
    /// For each of what is counted beside tokens.
    pub per_unit: UnitRates,
    /// Where the numbers come from, for the event's `price_source`: `config`, or a preset's source
    /// and date.
    pub source: String,
}

impl Price {
    /// The exact cost, summed over all classes and rounded (half up) once. Saturates.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> NanoUsd {
        let rates = self.rates(usage.prompt());
        let reasoning = if rates.reasoning.is_some() { usage.reasoning } else { 0 };
        let classes = [
            (usage.input, rates.input),
            (usage.cached, rates.cached_input),
            (usage.cache_write, rates.cache_write),
            (usage.output.saturating_sub(reasoning), rates.output),
            (reasoning.min(usage.output), rates.reasoning.unwrap_or_default()),
            (PER, self.per_request.0),
        ];
        let exact = classes.into_iter().fold(0u128, |sum, (tokens, rate)| {
            sum.saturating_add(u128::from(tokens) * u128::from(rate))
        });
        let per = u128::from(PER);
        let rounded = exact.saturating_add(per / 2) / per;
        NanoUsd(u64::try_from(rounded).unwrap_or(u64::MAX))
    }

    /// The same with what is counted beside tokens.
    #[must_use]
    pub fn cost_with(&self, usage: &Usage, units: &Units) -> NanoUsd {
        self.cost(usage).saturating_add(self.per_unit.cost(units))
    }

    /// The rates for a whole prompt of so many tokens: those of the highest step it is above.
    fn rates(&self, prompt: u64) -> &Rates {
        let above = self.tiers.iter().filter(|(above, _)| prompt > *above);
        above.max_by_key(|(above, _)| *above).map_or(&self.base, |(_, rates)| rates)
    }
}

/// Rates are for so many tokens.
const PER: u64 = 1_000_000;

/// Above a dollar per thousand tokens a price is a mistake in its unit.
const USD_PER_MILLION_MAX: f64 = 1_000.0;

/// A rate of [`Rates`] (nano-USD per million tokens, rounded) from a price in units of a currency
/// per million tokens and the worth of one unit in USD (1.0 for USD itself).
///
/// `None` for a negative or absurd price (above a dollar a token), and for a worth that is none
/// (zero, negative, not a number).
#[must_use]
pub fn rate(units_per_million: f64, usd_rate: f64) -> Option<u64> {
    let usd = units_per_million * usd_rate;
    let sound = units_per_million >= 0.0 && usd_rate > 0.0 && usd <= USD_PER_MILLION_MAX;
    // In range by the checks: at most 1e15, where every whole number is exact.
    sound.then(|| (usd * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn rates(input: f64, cached: f64, write: f64, output: f64) -> Rates {
        let r = |units| rate(units, 1.0).unwrap();
        Rates {
            input: r(input),
            cached_input: r(cached),
            cache_write: r(write),
            output: r(output),
            reasoning: None,
        }
    }

    fn price(base: Rates) -> Price {
        Price { base, ..Price::default() }
    }

    #[test]
    fn cached_tokens_are_charged_once_at_their_own_rate() {
        let price = price(rates(2.5, 1.25, 0.0, 10.0));
        let usage = Usage::from_openai(10_000, 8_000, 0, 500, 0);
        assert_eq!((usage.input, usage.prompt(), usage.total()), (2_000, 10_000, 10_500));
        assert_eq!(price.cost(&usage), NanoUsd(20_000_000));
    }

    #[test]
    fn what_no_model_can_say_is_not_plausible() {
        let most = Usage { input: TOKENS_MAX, output: TOKENS_MAX, ..Usage::default() };
        assert!(most.is_plausible());
        for usage in [
            Usage { input: TOKENS_MAX + 1, ..most },
            Usage { cached: u64::MAX, ..most },
            Usage { cache_write: 1 << 60, ..most },
            Usage { output: 1_000_000_000_000_000_000, ..most },
        ] {
            assert!(!usage.is_plausible(), "{usage:?}");
        }
    }

    #[test]
    fn contradicting_usage_is_cut_to_fit() {
        let grok = Usage::from_openai(7, 163, 9, 10, 0);
        assert_eq!(grok, Usage { cached: 7, output: 10, ..Usage::default() });
        let both = Usage::from_openai(10, 6, 9, 0, 0);
        assert_eq!((both.input, both.cached, both.cache_write), (0, 6, 4));
        let doubleword = Usage::from_openai(1, 0, 0, 5, 58);
        assert_eq!((doubleword.output, doubleword.reasoning), (5, 5));
        assert_eq!(Usage::from_anthropic(1, 2, 3, 4, 9).reasoning, 4);
    }

    #[test]
    fn anthropic_prompt_is_the_sum_of_its_classes() {
        let usage = Usage::from_anthropic(10, 20, 30, 40, 5);
        assert_eq!((usage.input, usage.cache_write, usage.cached), (10, 20, 30));
        assert_eq!((usage.prompt(), usage.total()), (60, 100));
    }

    #[test]
    fn reasoning_is_inside_output_unless_it_has_a_price() {
        let mut price = price(rates(0.0, 0.0, 0.0, 10.0));
        let usage = Usage::from_openai(0, 0, 0, 500, 400);
        assert_eq!(price.cost(&usage), NanoUsd(500 * 10_000));
        price.base.reasoning = rate(20.0, 1.0);
        assert_eq!(price.cost(&usage), NanoUsd(100 * 10_000 + 400 * 20_000));
        let broken = Usage { output: 5, reasoning: 50, ..Usage::default() };
        assert_eq!(price.cost(&broken), NanoUsd(5 * 20_000));
    }

    #[test]
    fn a_long_prompt_is_charged_whole_at_the_upper_step() {
        let mut price = price(rates(1.25, 0.0, 0.0, 10.0));
        price.tiers =
            vec![(500_000, rates(5.0, 0.0, 0.0, 20.0)), (200_000, rates(2.5, 0.0, 0.0, 15.0))];
        let cost = |prompt| price.cost(&Usage::from_openai(prompt, 0, 0, 100, 0));
        assert_eq!(cost(200_000), NanoUsd(251_000_000));
        assert_eq!(cost(200_001), NanoUsd(501_502_500));
        assert_eq!(cost(500_000), NanoUsd(1_251_500_000));
        assert_eq!(cost(500_001), NanoUsd(2_502_005_000));
        // Cached and written tokens are a part of the prompt that the step is measured by.
        let cached = Usage { cached: 200_000, input: 1, ..Usage::default() };
        assert_eq!(price.cost(&cached), NanoUsd(2_500));
    }

    #[test]
    fn halves_are_rounded_up_once_over_all_classes() {
        let rates = Rates { input: 250_000, output: 250_000, ..Rates::default() };
        let mut price = price(rates);
        let cost = |price: &Price, input, output| {
            price.cost(&Usage { input, output, ..Usage::default() }).0
        };
        assert_eq!(cost(&price, 1, 0), 0);
        assert_eq!(cost(&price, 1, 1), 1);
        assert_eq!(cost(&price, 2, 3), 1);
        price.per_request = NanoUsd(7);
        assert_eq!(cost(&price, 1, 1), 8);
    }

    #[test]
    fn units_are_charged_beside_tokens() {
        let per_unit = UnitRates {
            image: NanoUsd(40_000_000),
            audio_second: NanoUsd(100_000),
            character: NanoUsd(15_000),
        };
        let price = Price { per_unit, ..price(rates(5.0, 0.0, 0.0, 0.0)) };
        let cost = |units| price.cost_with(&Usage::from_openai(1000, 0, 0, 0, 0), &units).0;
        assert_eq!(cost(Units::default()), 5_000_000);
        assert_eq!(cost(Units { images: 2, ..Units::default() }), 85_000_000);
        assert_eq!(cost(Units { seconds: 1.5, ..Units::default() }), 5_150_000);
        assert_eq!(cost(Units { characters: 10, ..Units::default() }), 5_150_000);
        let all = Units { images: u64::MAX, seconds: f64::INFINITY, characters: u64::MAX };
        assert_eq!(cost(all), u64::MAX);
    }

    #[test]
    fn a_free_model_costs_nothing() {
        let usage = Usage::from_openai(u64::MAX, 5, 5, u64::MAX, 9);
        assert_eq!(Price::default().cost(&usage), NanoUsd(0));
    }

    #[test]
    fn ten_dimes_are_a_dollar() {
        let dime = "0.10".parse::<NanoUsd>().unwrap();
        let sum = (0..10).fold(NanoUsd(0), |sum, _| sum.saturating_add(dime));
        assert_eq!(sum, NanoUsd(1_000_000_000));
        assert_eq!(sum.to_string(), "1.000000");
    }

    #[test]
    fn money_is_written_in_decimals() {
        for (nanos, text) in [
            (0, "0.000000"),
            (1, "0.000000001"),
            (15_000, "0.000015"),
            (15_500, "0.0000155"),
            (20_000_000, "0.020000"),
            (501_502_500, "0.5015025"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(NanoUsd(nanos).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_money_is_refused() {
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", "0.0000000001", "NaN", " 1"] {
            assert_eq!(text.parse::<NanoUsd>(), Err(BadMoney), "{text}");
        }
        assert_eq!("18446744073.709551616".parse::<NanoUsd>(), Err(BadMoney));
        assert_eq!("99999999999999999999".parse::<NanoUsd>(), Err(BadMoney));
    }

    #[test]
    fn a_rate_is_exact_and_never_absurd() {
        assert_eq!(rate(2.5, 1.0), Some(2_500_000_000));
        assert_eq!(rate(0.075, 1.0), Some(75_000_000));
        assert_eq!(rate(0.000_000_001, 1.0), Some(1));
        assert_eq!(rate(2.0, 0.14), Some(280_000_000));
        assert_eq!(rate(0.0, 1.0), Some(0));
        assert_eq!(rate(1_000.0, 1.0), Some(1_000_000_000_000));
        for (units, usd) in [
            (1_000.1, 1.0),
            (3_000_000.0, 1.0),
            (-0.1, 1.0),
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
            (1.0, f64::NAN),
            (1.0, -1.0),
            (1.0, 0.0),
            (0.0, f64::INFINITY),
            (1.0, f64::INFINITY),
        ] {
            assert_eq!(rate(units, usd), None, "{units} {usd}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn money_survives_being_written(nanos: u64) {
            let text = NanoUsd(nanos).to_string();
            prop_assert_eq!(text.parse::<NanoUsd>(), Ok(NanoUsd(nanos)));
        }

        #[test]
        fn usage_always_adds_up(p: u64, c: u64, w: u64, o: u64, r: u64) {
            let usage = Usage::from_openai(p, c, w, o, r);
            prop_assert_eq!(usage.prompt(), p);
            prop_assert!(usage.reasoning <= usage.output);
            prop_assert_eq!(usage.total(), p.saturating_add(o));
        }

        #[test]
        fn no_usage_at_no_price_overflows(
            n in proptest::array::uniform5(any::<u64>()),
            r in proptest::array::uniform5(any::<u64>()),
            per_request: u64,
        ) {
            let [input, cached, cache_write, output, reasoning] = n;
            let usage = Usage { input, cached, cache_write, output, reasoning };
            let base = Rates {
                input: r[0],
                cached_input: r[1],
                cache_write: r[2],
                output: r[3],
                reasoning: (r[4] % 2 == 0).then_some(r[4]),
            };
            let price = Price { base, per_request: NanoUsd(per_request), ..Price::default() };
            prop_assert!(price.cost(&usage) >= price.per_request);
        }
    }
}
