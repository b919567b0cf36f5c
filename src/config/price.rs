//! Prices and currencies: decimals as written into whole nano-USD, exact and rounded once.

use super::fault::{Book, hint};
use super::value::{Node, Shape, Value, View, view};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use weir_filters::usage::{NanoUsd, Price, Rates, UnitRates};

const PRICE: Shape = Shape {
    known: &[
        "currency",
        "input",
        "cached_input",
        "cache_write",
        "output",
        "reasoning",
        "per_request",
        "image",
        "audio_second",
        "character",
        "tiers",
        "source",
        "date",
    ],
    later: &["input_audio", "batch"],
};
const TIER: Shape = Shape {
    known: &["above", "input", "cached_input", "cache_write", "output", "reasoning"],
    later: &["image", "audio_second", "character", "input_audio", "batch"],
};

/// Nano-USD in one USD.
const NANO: i128 = 1_000_000_000;
/// USD 1 per 1,000 tokens, in nano-USD per million. Above it somebody mistook the unit.
const DEAREST: u64 = 1_000 * 1_000_000_000;
/// USD 0.0001 per million. Below it somebody wrote a price per token.
const CHEAPEST: u64 = 100_000;
/// USD 100. Above it somebody mistook the unit of `per_request`.
const PER_REQUEST_MAX: u64 = 100 * 1_000_000_000;
/// Digits of a decimal that still multiply without overflow: two such and NANO fit an i128.
const DIGITS_MAX: usize = 14;
/// Steps of one price.
const TIERS_MAX: usize = 16;

/// USD for one unit of each currency; USD itself is 1.
pub(super) type Currencies = BTreeMap<String, Decimal>;

/// `mantissa / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal {
    mantissa: i128,
    scale: u32,
}

impl Decimal {
    const ONE: Self = Self { mantissa: 1, scale: 0 };

    /// Reads `12`, `0.14`, `2.5e-1`; never negative.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no price");
        let lower = text.strip_prefix('+').unwrap_or(text).to_ascii_lowercase();
        let (digits, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
        let exponent: i32 = exponent.parse().map_err(|_| wrong())?;
        if digits.starts_with('-') {
            return Err("is below zero".into());
        }
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let part = part.trim_end_matches('0');
        let all = format!("{whole}{part}");
        if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let significant = all.trim_start_matches('0');
        if significant.len() > DIGITS_MAX {
            return Err(format!("{text} has more than {DIGITS_MAX} digits"));
        }
        let mantissa: i128 =
            if significant.is_empty() { 0 } else { significant.parse().map_err(|_| wrong())? };
        let scale = part.len() as i32 - exponent;
        if mantissa == 0 {
            return Ok(Self { mantissa, scale: 0 });
        }
        match scale {
            0..=18 => Ok(Self { mantissa, scale: scale as u32 }),
            -6..0 => Ok(Self { mantissa: mantissa * 10_i128.pow(scale.unsigned_abs()), scale: 0 }),
            _ => Err(format!("{text} is out of any price's range")),
        }
    }

    /// `self × rate` in nano units, rounded half up.
    fn nano(self, rate: Self) -> Option<u64> {
        let product = self.mantissa.checked_mul(rate.mantissa)?.checked_mul(NANO)?;
        let unit = 10_i128.checked_pow(self.scale + rate.scale)?;
        u64::try_from(product.checked_add(unit / 2)? / unit).ok()
    }
}

/// USD alone.
pub(super) fn usd() -> Currencies {
    Currencies::from([("USD".into(), Decimal::ONE)])
}

/// What one unit of each is worth in nano-USD, for reports.
pub(super) fn worth(currencies: &Currencies) -> BTreeMap<String, NonZeroU64> {
    let all = currencies.iter();
    all.filter_map(|(code, rate)| Some((code.clone(), NonZeroU64::new(rate.nano(Decimal::ONE)?)?)))
        .collect()
}

/// `[currency]`.
pub(super) fn currencies(root: &View<'_>) -> Currencies {
    let mut out = usd();
    for (code, entry) in root.named("currency") {
        let key = format!("currency.{code}");
        if code.len() != 3 || !code.bytes().all(|b| b.is_ascii_uppercase()) {
            root.book.fault(entry.at, &key, "is no currency; write its three capital letters");
            continue;
        }
        match entry.node.value.number().as_deref().map(Decimal::parse) {
            Some(Ok(rate)) if rate.mantissa == 0 => {
                root.book.fault(entry.node.at, &key, "a rate of zero makes everything free");
            }
            Some(Ok(rate)) if code == "USD" && rate != Decimal::ONE => {
                root.book.fault(entry.node.at, &key, "rates are in USD, so USD itself is 1");
            }
            Some(Ok(rate)) => drop(out.insert(code.to_owned(), rate)),
            Some(Err(why)) => root.book.fault(entry.node.at, &key, why),
            None => {
                root.book.fault(entry.node.at, &key, "a number, its worth in USD, is needed here")
            }
        }
    }
    out
}

/// A price table in nano-USD.
pub(super) fn price(
    book: &Book<'_>,
    node: &Node,
    path: String,
    rates: &Currencies,
) -> Option<Price> {
    let v = view(book, node, path, &PRICE)?;
    let currency = v.text("currency").unwrap_or("USD");
    let Some(rate) = rates.get(currency).copied() else {
        let near = hint(currency, rates.keys().map(String::as_str));
        v.fault("currency", format!("{currency} has no rate in [currency]{near}"));
        return None;
    };
    let base = step(&v, rate)?;
    let per_request = match v.get("per_request") {
        None => 0,
        Some(_) => amount(&v, "per_request", rate)?,
    };
    if per_request > PER_REQUEST_MAX {
        v.fault("per_request", "is over USD 100 for one request");
    }
    let unit = |key: &str| {
        let nano = v.get(key).and_then(|_| amount(&v, key, rate)).unwrap_or_default();
        if nano > PER_REQUEST_MAX {
            v.fault(key, "is over USD 100 for one");
        }
        NanoUsd(nano)
    };
    let per_unit = UnitRates {
        image: unit("image"),
        audio_second: unit("audio_second"),
        character: unit("character"),
    };
    let source = match (v.text("source"), v.text("date")) {
        (Some(source), Some(date)) => format!("{source} {date}"),
        (Some(source), None) => source.to_owned(),
        _ => "config".to_owned(),
    };
    let per_request = NanoUsd(per_request);
    Some(Price { base, tiers: tiers(&v, rate), per_request, per_unit, source })
}

fn tiers(v: &View<'_>, rate: Decimal) -> Vec<(u64, Rates)> {
    let Some(node) = v.get("tiers") else { return Vec::new() };
    let Value::List(items) = &node.value else {
        v.fault("tiers", format!("a list of tables is needed here, not {}", node.value.kind()));
        return Vec::new();
    };
    if items.len() > TIERS_MAX {
        v.fault("tiers", format!("has more than {TIERS_MAX} steps"));
    }
    let mut out: Vec<(u64, Rates)> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let Some(tier) = view(v.book, item, v.item("tiers", i), &TIER) else { continue };
        if tier.get("above").is_none() {
            tier.complain("a tier needs `above`, in tokens");
        }
        let Some(above) = tier.integer("above", 1..=1 << 40) else { continue };
        if out.last().is_some_and(|(last, _)| *last >= above) {
            tier.fault("above", "tiers must ascend");
        }
        if let Some(rates) = step(&tier, rate) {
            out.push((above, rates));
        }
    }
    out
}

/// One step's rates. `input` and `output` must be there: a price of zero is written, never meant.
fn step(v: &View<'_>, rate: Decimal) -> Option<Rates> {
    for key in ["input", "output"] {
        if v.get(key).is_none() {
            v.complain(format!("has no `{key}` price; write 0.0 where it is free"));
        }
    }
    let (input, output) = (per_million(v, "input", rate), per_million(v, "output", rate));
    let or_input = |key| if v.get(key).is_some() { per_million(v, key, rate) } else { input };
    let (cached_input, cache_write) = (or_input("cached_input"), or_input("cache_write"));
    let reasoning = per_million(v, "reasoning", rate);
    Some(Rates {
        input: input?,
        cached_input: cached_input?,
        cache_write: cache_write?,
        output: output?,
        reasoning,
    })
}

fn per_million(v: &View<'_>, key: &str, rate: Decimal) -> Option<u64> {
    let nano = amount(v, key, rate)?;
    if nano > DEAREST {
        v.fault(key, "is over USD 1 per 1,000 tokens; prices are per million tokens");
    } else if nano > 0 && nano < CHEAPEST {
        v.fault(
            key,
            "is under USD 0.0001 per million tokens; prices are per million, not per token",
        );
    }
    Some(nano)
}

fn amount(v: &View<'_>, key: &str, rate: Decimal) -> Option<u64> {
    let node = v.get(key)?;
    let Some(text) = node.value.number() else {
        v.fault(key, format!("a number is needed here, not {}", node.value.kind()));
        return None;
    };
    match Decimal::parse(&text).map(|d| d.nano(rate)) {
        Ok(Some(nano)) => return Some(nano),
        Ok(None) => v.fault(key, format!("{text} is out of any price's range")),
        Err(why) => v.fault(key, why),
    }
    None
}

/// Where a preset's price lacks its source or its date, for the check of presets.
pub(super) fn unsourced(book: &Book<'_>, node: &Node, path: &str) {
    let Value::Table(table) = &node.value else { return };
    for key in ["source", "date"] {
        if !table.contains_key(key) {
            book.fault(node.at, path, format!("a preset's price needs its `{key}`"));
        }
    }
}
