//! What a Claude model takes, by its name: its generations differ in sampling, thinking and calls.

/// What one model takes, wherever it is hosted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claude {
    /// `temperature`, `top_p`, `top_k`; the others answer 400 "`temperature` is deprecated for this
    /// model" (Anthropic's guide to migrating to Opus 4.7).
    pub samples: bool,
    /// Thinking with a budget of tokens; the others answer 400 "Use thinking.type.adaptive and
    /// output_config.effort" (the same guide, and AWS's card of the model).
    pub budgets: bool,
    /// A tool choice that forces a call; the others answer 400 "tool_choice: type \"tool\" and
    /// \"any\" are not supported for this model" (reported for Opus 5.5, Sonnet 5.5, Fable 5.1).
    pub forced: bool,
}

impl Claude {
    /// By the model's id, which may have a region, a vendor or a path before it and a date behind.
    /// A name that says no version is taken for one of the first generations.
    pub(super) fn of(model: &str) -> Self {
        let Some((family, version)) = named(model) else {
            return Self { samples: true, budgets: true, forced: true };
        };
        let (settled, unforced) = match family {
            "opus" => ((4, 7), (5, 5)),
            "sonnet" => ((5, 0), (5, 5)),
            "haiku" => ((5, 5), (u32::MAX, 0)),
            "fable" | "mythos" => ((0, 0), (5, 1)),
            _ => ((u32::MAX, 0), (u32::MAX, 0)),
        };
        let old = version < settled;
        Self { samples: old, budgets: old, forced: version < unforced }
    }

    /// The word of `output_config.effort` for one of OpenAI's; `None` for `none` and unknown ones.
    pub(super) fn effort(word: &str) -> Option<&'static str> {
        Some(match word {
            "minimal" | "low" => "low",
            "medium" => "medium",
            "high" => "high",
            "xhigh" => "xhigh",
            "max" => "max",
            _ => return None,
        })
    }
}

/// Family and version of `…claude-opus-4-7…`; the first generations have the number first.
fn named(model: &str) -> Option<(&str, (u32, u32))> {
    let (_, name) = model.rsplit_once("claude-")?;
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let family = words.next().filter(|word| word.bytes().all(|b| b.is_ascii_lowercase()))?;
    // A longer number is a date.
    let mut number =
        || words.next().filter(|word| word.len() <= 2).and_then(|word| word.parse().ok());
    let major = number();
    let minor = major.and_then(|_| number());
    Some((family, (major.unwrap_or(0), minor.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_read_off_every_hosts_way_to_name_it() {
        let old = Claude { samples: true, budgets: true, forced: true };
        let settled = Claude { samples: false, budgets: false, forced: true };
        let newest = Claude { forced: false, ..settled };
        for (model, want) in [
            ("claude-3-5-sonnet-20241022", old),
            ("claude-opus-4-20250514", old),
            ("claude-opus-4-6", old),
            ("claude-sonnet-4-6@20260101", old),
            ("claude-haiku-4-5", old),
            ("claude-haiku-latest", old),
            ("claude-x", old),
            ("gpt-5", old),
            ("claude-opus-4-7", settled),
            ("anthropic/claude-opus-4.8", settled),
            ("us.anthropic.claude-opus-4-7-v1:0", settled),
            ("claude-sonnet-5-20260630", settled),
            ("claude-opus-5", settled),
            ("claude-haiku-5-5", settled),
            ("claude-fable-5", settled),
            ("claude-opus-5-5", newest),
            ("eu.anthropic.claude-sonnet-5-5-20260901-v1:0", newest),
            ("claude-opus-6", newest),
            ("claude-fable-5-1", newest),
        ] {
            assert_eq!(Claude::of(model), want, "{model}");
        }
    }
}
