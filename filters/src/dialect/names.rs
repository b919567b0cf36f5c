//! Names of tools: what a caller calls them, and what a provider can bear. And names of members,
//! in the caller's own words.

use super::Api;
use crate::peek::Peek;
use std::collections::BTreeMap;

/// OpenAI's limit (openai-openapi, `FunctionObject.name`), and most others'.
const NAME_BYTES_MAX: usize = 64;

/// Where a tool came from, for its calls to be told in the caller's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tool {
    /// The caller's name.
    pub name: String,
    /// The namespace it stood in (Responses).
    pub namespace: Option<String>,
    /// It takes free text, not JSON (Responses).
    pub custom: bool,
}

/// Tools by the name a provider knows them by; only those whose name or kind had to change.
#[derive(Debug, Clone, Default)]
pub(super) struct Names(BTreeMap<String, Tool>);

impl Names {
    /// The provider's name of a tool.
    pub(super) fn give(&mut self, tool: Tool) -> String {
        let full = match &tool.namespace {
            Some(space) => format!("{space}__{}", tool.name),
            None => tool.name.clone(),
        };
        let given = sound(&full);
        if given != tool.name || tool.custom {
            self.0.insert(given.clone(), tool);
        }
        given
    }

    /// The same for a call in the history. A plain function that OpenAI's tool search found bears
    /// its own name as a namespace there (recorded).
    pub(super) fn called(&mut self, mut tool: Tool) -> String {
        let own = tool.namespace.as_ref() == Some(&tool.name);
        if own && !self.0.values().any(|known| *known == tool) {
            tool.namespace = None;
        }
        self.give(tool)
    }

    /// The tool behind a provider's name, where that is not simply a function of this name.
    pub(super) fn find(&self, given: &str) -> Option<&Tool> {
        self.0.get(given)
    }

    /// The caller's name of a tool.
    pub(super) fn name<'a>(&'a self, given: &'a str) -> &'a str {
        self.find(given).map_or(given, |tool| &tool.name)
    }
}

/// The name itself where every provider takes it; else its allowed characters and a hash, so that
/// two long names stay two.
fn sound(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.len() <= NAME_BYTES_MAX && name.chars().all(fits) {
        return name.to_owned();
    }
    // FNV-1a, 32 bits: the same name is the same in every process.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    let kept: String = name.chars().map(|c| if fits(c) { c } else { '_' }).take(55).collect();
    format!("{kept}_{hash:08x}")
}

/// What a caller of this dialect wrote for a member of chat, where that has another name.
pub(super) fn member(api: Api, chat: &str, asked: &Peek) -> Option<&'static str> {
    Some(match (api, chat) {
        (Api::Messages, "user") => "metadata.user_id",
        (Api::Messages, "stop") => "stop_sequences",
        (Api::Messages, "reasoning_effort") if asked.find("thinking").is_some() => "thinking",
        (Api::Messages, "reasoning_effort") => "output_config.effort",
        (Api::Messages, "response_format") => "output_config.format",
        (Api::Messages, "messages.thinking_blocks" | "messages.reasoning_content") => {
            "messages.content.thinking"
        }
        (Api::Messages, "messages.cache_control" | "tools.cache_control") => "cache_control",
        (Api::Messages, "parallel_tool_calls") => "tool_choice.disable_parallel_tool_use",
        (Api::Responses, "reasoning_effort") => "reasoning.effort",
        (Api::Responses, "response_format") => "text.format",
        (Api::Responses, "messages.thinking_blocks" | "messages.reasoning_content") => {
            "input.reasoning"
        }
        (Api::Responses, "messages.tool_calls.function.arguments") => "input.arguments",
        (Api::Responses, "messages") => "input",
        (Api::Completions, "messages") => "prompt",
        (Api::Responses, "max_tokens" | "max_completion_tokens") => "max_output_tokens",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_provider_cannot_bear_is_renamed() {
        let mut names = Names::default();
        let plain = |name: &str| Tool { name: name.into(), ..Tool::default() };
        assert_eq!(names.give(plain("get_weather")), "get_weather");
        assert!(names.find("get_weather").is_none());
        let long = "mcp__server__".repeat(6);
        let given = [names.give(plain(&long)), names.give(plain(&format!("{long}x")))];
        assert!(given[0] != given[1] && given.iter().all(|n| n.len() == 64));
        assert_eq!(names.name(&given[0]), long);
        let spaced = Tool { namespace: Some("agents".into()), ..plain("close") };
        assert_eq!(names.give(spaced.clone()), "agents__close");
        assert_eq!(names.find("agents__close"), Some(&spaced));
        let found = Tool { namespace: Some("close".into()), ..plain("close") };
        assert_eq!(names.called(found.clone()), "close");
        assert_eq!(names.give(found.clone()), "close__close");
        assert_eq!(names.called(found), "close__close");
    }
}
