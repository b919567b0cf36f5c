//! Token classes that never overlap, money that is never a float, and what one is worth in the other.

use serde::{Deserialize, Serialize};

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

/// Billionths of a US dollar.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(pub u64);

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

/// What a model costs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Price {
    /// The base step.
    pub base: Rates,
    /// Steps for long prompts, ascending: a whole prompt above `.0` tokens is charged at `.1`.
    pub tiers: Vec<(u64, Rates)>,
    /// Added to every request.
    pub per_request: NanoUsd,
    /// Where the numbers come from, for the event's `price_source`: `config`, or a preset's source and date.
    pub source: String,
}

impl Price {
    /// The exact cost, summed over all classes and rounded (half up) once. Saturates.
    #[must_use]
    pub fn cost(&self, _usage: &Usage) -> NanoUsd {
        unimplemented!()
    }
}
