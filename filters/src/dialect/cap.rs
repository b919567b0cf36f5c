//! A bound on the output of a request that names none, in the member its provider honours.

use super::{Api, messages};
use crate::error::ApiError;
use crate::peek::{Edits, Peek};
use crate::wire::Wire;

impl Api {
    /// The body with a bound of `most` tokens for each answer; `None` where it has one already, and
    /// for what generates no tokens. The caller's own members stay as they are.
    ///
    /// # Errors
    /// None that a body that was read once can have.
    pub fn capped(
        self,
        peek: &Peek,
        most: u64,
        target: (Wire, &str),
    ) -> Result<Option<Peek>, ApiError> {
        let Some(member) = self.bound(target).filter(|_| peek.max_tokens.is_none()) else {
            return Ok(None);
        };
        let mut edits = Edits::default();
        edits.set(member, most.to_string());
        let capped = self.read(edits.apply(peek).concat())?;
        Ok(Some(capped))
    }

    /// The member that bounds the output. OpenAI's reasoning models refuse chat's first one, and
    /// others do not know its second.
    fn bound(self, (wire, model): (Wire, &str)) -> Option<&'static str> {
        let openai = matches!(wire, Wire::OpenAi | Wire::Azure);
        match self {
            Self::Chat if openai && messages::reasons(model) => Some("max_completion_tokens"),
            Self::Chat | Self::Messages | Self::Completions => Some("max_tokens"),
            Self::Responses => Some("max_output_tokens"),
            Self::CountTokens | Self::Embeddings | Self::Passed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;

    const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"é"}],"x":1.0}"#;

    fn capped(api: Api, wire: Wire, model: &str, body: &str) -> Option<String> {
        let peek = api.read(Bytes::copy_from_slice(body.as_bytes())).unwrap();
        let capped = api.capped(&peek, 77, (wire, model)).unwrap()?;
        assert_eq!(capped.max_tokens, Some(77));
        Some(String::from_utf8(capped.body.to_vec()).unwrap())
    }

    #[test]
    fn a_bound_joins_the_body_in_the_member_its_provider_honours() {
        let with = |member: &str| Some(format!("{},\"{member}\":77}}", &BODY[..BODY.len() - 1]));
        let check = |wire, model, member| {
            assert_eq!(capped(Api::Chat, wire, model, BODY), with(member), "{model}");
        };
        check(Wire::OpenAi, "gpt-4o", "max_tokens");
        check(Wire::OpenAi, "o3-mini", "max_completion_tokens");
        check(Wire::Azure, "gpt-5", "max_completion_tokens");
        check(Wire::Anthropic, "gpt-5", "max_tokens");
        assert_eq!(capped(Api::Messages, Wire::OpenAi, "o3", BODY), with("max_tokens"));
        let body = r#"{"model":"m","input":"hi"}"#;
        let got = capped(Api::Responses, Wire::OpenAi, "m", body).unwrap();
        assert_eq!(got, r#"{"model":"m","input":"hi","max_output_tokens":77}"#);
        assert_eq!(capped(Api::Embeddings, Wire::OpenAi, "m", body), None);
    }

    #[test]
    fn null_is_no_bound_and_the_callers_own_stands() {
        let null = r#"{"messages":[{}],"max_tokens":null}"#;
        let got = capped(Api::Chat, Wire::OpenAi, "m", null).unwrap();
        assert_eq!(got, r#"{"messages":[{}],"max_tokens":77}"#);
        let own = r#"{"messages":[{}],"max_completion_tokens":5}"#;
        assert_eq!(capped(Api::Chat, Wire::OpenAi, "m", own), None);
    }
}
