//! How much a model usually says: what is held for a request that names no maximum.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Held before anything has been learned.
pub const FIRST: u64 = 1024;
/// Answers before the mean is believed; until then [`FIRST`] is held at least.
const ENOUGH: u32 = 8;
/// Weight of the newest answer once the mean is old enough to drift with its model: one in 64.
const WINDOW: u32 = 64;
/// Held at least: an answer of one word has a few tokens around it.
const LEAST: u64 = 16;
/// Models that are remembered; requests can name no more than config serves, patterns aside.
const MODELS_MAX: usize = 1_000;

#[derive(Debug, Default, Clone, Copy)]
struct Learned {
    answers: u32,
    mean: f64,
    variance: f64,
}

/// The running mean and deviation of each model's output.
#[derive(Debug, Default)]
pub struct Outputs(Mutex<HashMap<String, Learned>>);

impl Outputs {
    /// Mean plus two deviations, in tokens of one answer.
    #[must_use]
    pub fn usual(&self, model: &str) -> u64 {
        let learned = self.0.lock().get(model).copied().unwrap_or_default();
        let most = learned.mean + 2.0 * learned.variance.max(0.0).sqrt();
        // Never negative, and far below where a float skips numbers.
        let most = (most.ceil() as u64).max(LEAST);
        if learned.answers < ENOUGH { most.max(FIRST) } else { most }
    }

    /// Models that are known, and how many may be.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.0.lock().len(), MODELS_MAX)
    }

    /// One more whole answer of so many tokens.
    pub fn learn(&self, model: &str, tokens: u64) {
        let mut all = self.0.lock();
        if !all.contains_key(model) && all.len() >= MODELS_MAX {
            return;
        }
        let learned = match all.get_mut(model) {
            Some(learned) => learned,
            None => all.entry(model.to_owned()).or_default(),
        };
        learned.answers = learned.answers.saturating_add(1);
        let weight = 1.0 / f64::from(learned.answers.min(WINDOW));
        let off = tokens as f64 - learned.mean;
        learned.mean += weight * off;
        learned.variance = (1.0 - weight) * (learned.variance + weight * off * off);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_answers_are_soon_held_as_short_ones() {
        let outputs = Outputs::default();
        assert_eq!(outputs.usual("m"), FIRST);
        (0..4).for_each(|_| outputs.learn("m", 20));
        assert_eq!(outputs.usual("m"), FIRST, "four answers prove little");
        (0..4).for_each(|_| outputs.learn("m", 20));
        assert_eq!(outputs.usual("m"), 20);
        assert_eq!(outputs.usual("other"), FIRST);
    }

    #[test]
    fn two_deviations_hold_nearly_every_answer() {
        let outputs = Outputs::default();
        let answers: Vec<u64> = (0..400).map(|i| 200 + (i * 37) % 101).collect();
        answers.iter().for_each(|n| outputs.learn("m", *n));
        let held = outputs.usual("m");
        let over = answers.iter().filter(|n| **n > held).count();
        assert!(over < 10 && held < 400, "{held} holds all but {over} of 400");
    }

    #[test]
    fn a_model_that_says_more_is_followed() {
        let outputs = Outputs::default();
        (0..500).for_each(|_| outputs.learn("m", 50));
        (0..200).for_each(|_| outputs.learn("m", 2_000));
        assert!(outputs.usual("m") > 1_800, "{}", outputs.usual("m"));
    }

    #[test]
    fn names_do_not_grow_without_end() {
        let outputs = Outputs::default();
        (0..2 * MODELS_MAX).for_each(|i| outputs.learn(&format!("m{i}"), 1));
        assert_eq!(outputs.0.lock().len(), MODELS_MAX);
    }
}
