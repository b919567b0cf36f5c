//! `[[routes]]`: a request's model by who asks and what for; the first that holds wins.

use crate::base::Glob;

/// What a rule asks for; all of it must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct When {
    /// The key's name.
    pub key: Option<String>,
    /// Its team.
    pub team: Option<String>,
    /// Its department.
    pub department: Option<String>,
    /// Its user.
    pub user: Option<String>,
    /// One of its tags.
    pub tag: Option<String>,
    /// `chat`, `messages`, …
    pub endpoint: Option<String>,
    /// `task_type`.
    pub task_type: Option<String>,
    /// The model that is asked for, after aliases; exact or with `*`.
    pub model: Option<Glob>,
    /// The estimated prompt has more tokens than this.
    pub prompt_tokens_over: Option<u64>,
}

/// One of `[[routes]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// When it holds.
    pub when: When,
    /// The model that then serves.
    pub model: String,
}

/// A request as rules see it.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in `When`
pub struct Facts<'a> {
    pub key: &'a str,
    pub team: Option<&'a str>,
    pub department: Option<&'a str>,
    pub user: Option<&'a str>,
    pub tags: &'a [String],
    pub endpoint: &'a str,
    pub task_type: Option<&'a str>,
    pub model: &'a str,
    pub prompt_tokens: u64,
}

impl When {
    /// Whether it holds for a request.
    #[must_use]
    pub fn holds(&self, f: &Facts<'_>) -> bool {
        let same = |want: &Option<String>, is: Option<&str>| {
            want.as_deref().is_none_or(|want| is == Some(want))
        };
        same(&self.key, Some(f.key))
            && same(&self.team, f.team)
            && same(&self.department, f.department)
            && same(&self.user, f.user)
            && self.tag.as_ref().is_none_or(|tag| f.tags.contains(tag))
            && same(&self.endpoint, Some(f.endpoint))
            && same(&self.task_type, f.task_type)
            && self.model.as_ref().is_none_or(|glob| glob.matches(f.model))
            && self.prompt_tokens_over.is_none_or(|over| f.prompt_tokens > over)
    }

    /// Whether it holds wherever `other` does, so that `other` is never reached behind it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let wide = |a: &Option<String>, b: &Option<String>| a.is_none() || a == b;
        let model = match (&self.model, &other.model) {
            (None, _) => true,
            (Some(_), None) => false,
            // A pattern matches another one as a text where it covers it.
            (Some(a), Some(b)) => a.matches(b.as_str()),
        };
        let over = self
            .prompt_tokens_over
            .is_none_or(|a| other.prompt_tokens_over.is_some_and(|b| a <= b));
        wide(&self.key, &other.key)
            && wide(&self.team, &other.team)
            && wide(&self.department, &other.department)
            && wide(&self.user, &other.user)
            && wide(&self.tag, &other.tag)
            && wide(&self.endpoint, &other.endpoint)
            && wide(&self.task_type, &other.task_type)
            && model
            && over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(name: &str) -> When {
        When { team: Some(name.into()), ..When::default() }
    }

    #[test]
    fn every_condition_must_hold() {
        let facts =
            Facts { team: Some("a"), prompt_tokens: 10, model: "gpt-4o", ..Facts::default() };
        assert!(team("a").holds(&facts) && !team("b").holds(&facts));
        let more = When { prompt_tokens_over: Some(10), ..team("a") };
        assert!(!more.holds(&facts));
        assert!(When { prompt_tokens_over: Some(9), ..team("a") }.holds(&facts));
        assert!(When { model: Some(Glob::new("gpt-*")), ..team("a") }.holds(&facts));
        assert!(!When { tag: Some("x".into()), ..When::default() }.holds(&facts));
    }

    #[test]
    fn a_wider_rule_hides_a_narrower_one() {
        let narrow = When { prompt_tokens_over: Some(5), ..team("a") };
        assert!(team("a").covers(&narrow) && !narrow.covers(&team("a")));
        assert!(!team("b").covers(&narrow) && When::default().covers(&narrow));
        let glob = |g: &str| When { model: Some(Glob::new(g)), ..When::default() };
        assert!(glob("gpt-*").covers(&glob("gpt-4o")) && !glob("gpt-4o").covers(&glob("gpt-*")));
    }
}
