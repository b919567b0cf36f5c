//! Why a choice ended, in the five words that OpenAI's specification knows.

/// What a provider's word means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    /// The choice ended so.
    Ended(&'static str),
    /// The provider broke the answer off; no client may take it for a whole one.
    Broken,
}

/// The specification's own words (openai-openapi, `finish_reason`).
const KNOWN: [&str; 5] = ["stop", "length", "tool_calls", "content_filter", "function_call"];

/// Reads a provider's word. `called`: the choice has called a tool. `None`: it goes on (some
/// providers write `""` or `"null"` for null).
pub(super) fn read(word: &str, called: bool) -> Option<Finish> {
    let ended = match word {
        "" | "null" => return None,
        // An agent waits for ever for a call that never came.
        "tool_calls" | "tool_use" if !called => "stop",
        // Anthropic's word; some compatible hosts keep it.
        "tool_use" => "tool_calls",
        // Mistral; Anthropic; Zhipu and Anthropic.
        "model_length" | "max_tokens" | "model_context_window_exceeded" => "length",
        // Zhipu.
        "sensitive" => "content_filter",
        // OpenRouter and Mistral; Zhipu; DeepSeek; vLLM.
        "error" | "network_error" | "insufficient_system_resource" | "abort" => {
            return Some(Finish::Broken);
        }
        word => match KNOWN.iter().find(|known| **known == word) {
            Some(known) => known,
            // `eos`, `stop_sequence`, `end_turn` and whatever comes next.
            None if called => "tool_calls",
            None => "stop",
        },
    };
    Some(Finish::Ended(ended))
}

/// The word needs no translation.
pub(super) fn known(word: &str, called: bool) -> Option<&'static str> {
    match read(word, called) {
        Some(Finish::Ended(ended)) if ended == word => Some(ended),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_s_words_stay() {
        for word in KNOWN {
            assert_eq!(known(word, true), Some(word));
        }
        assert_eq!(known("stop", false), Some("stop"));
    }

    #[test]
    fn a_word_of_a_provider_s_own_becomes_one_of_the_five() {
        for (word, called, want) in [
            ("eos", false, "stop"),
            ("stop_sequence", false, "stop"),
            ("eos", true, "tool_calls"),
            ("tool_use", true, "tool_calls"),
            ("tool_calls", false, "stop"),
            ("model_length", false, "length"),
            ("max_tokens", false, "length"),
            ("model_context_window_exceeded", false, "length"),
            ("sensitive", false, "content_filter"),
        ] {
            assert_eq!(read(word, called), Some(Finish::Ended(want)), "{word}");
            assert_eq!(known(word, called), None, "{word}");
        }
    }

    #[test]
    fn a_broken_answer_is_no_end_and_null_goes_on() {
        for word in ["error", "network_error", "insufficient_system_resource", "abort"] {
            assert_eq!(read(word, false), Some(Finish::Broken), "{word}");
        }
        assert_eq!(read("null", false), None);
        assert_eq!(read("", true), None);
    }
}
