//! Every path a caller can ask for, and what stands behind it.

use http::Method;
use weir_filters::dialect::{Api, Dialect, Passed};

/// What an endpoint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Proxied, or answered here where no provider is needed.
    Ask(Api),
    /// The list of models.
    Models,
    /// One model.
    Model,
    /// What the key has used and has left.
    Usage,
    /// Alive, without a key.
    Health,
    /// Ready, without a key.
    Ready,
    /// Of a later version.
    NotYet,
    /// Nothing is there.
    Unknown,
    /// There is something, under another method.
    OtherMethod(&'static str),
}

/// A path's meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// As metrics and events name it.
    pub label: &'static str,
    /// What it does.
    pub kind: Kind,
    /// How it answers.
    pub dialect: Dialect,
}

const fn at(label: &'static str, kind: Kind) -> Endpoint {
    Endpoint { label, kind, dialect: Dialect::OpenAi }
}

const fn ask(label: &'static str, api: Api) -> Endpoint {
    Endpoint { label, kind: Kind::Ask(api), dialect: api.dialect() }
}

const fn passed(label: &'static str, passed: Passed) -> Endpoint {
    ask(label, Api::Passed(passed))
}

/// Path, method, meaning. A path that ends in `*` stands for all below it.
const ENDPOINTS: &[(&str, &str, Endpoint)] = &[
    ("/v1/chat/completions", "POST", ask("chat", Api::Chat)),
    ("/v1/models", "GET", at("models", Kind::Models)),
    ("/v1/models/*", "GET", at("models", Kind::Model)),
    ("/", "GET", at("health", Kind::Health)),
    ("/health", "GET", at("health", Kind::Health)),
    ("/health/ready", "GET", at("health", Kind::Ready)),
    ("/v1/messages", "POST", ask("messages", Api::Messages)),
    ("/v1/messages/count_tokens", "POST", ask("count_tokens", Api::CountTokens)),
    ("/v1/responses", "POST", ask("responses", Api::Responses)),
    ("/v1/completions", "POST", ask("completions", Api::Completions)),
    ("/v1/embeddings", "POST", ask("embeddings", Api::Embeddings)),
    ("/v1/images/generations", "POST", passed("images", Passed::ImageGeneration)),
    ("/v1/images/edits", "POST", passed("images", Passed::ImageEdit)),
    ("/v1/images/variations", "POST", passed("images", Passed::ImageVariation)),
    ("/v1/audio/speech", "POST", passed("audio", Passed::Speech)),
    ("/v1/audio/transcriptions", "POST", passed("audio", Passed::Transcription)),
    ("/v1/audio/translations", "POST", passed("audio", Passed::Translation)),
    ("/v1/rerank", "POST", passed("rerank", Passed::Rerank)),
    ("/v1/moderations", "POST", passed("moderations", Passed::Moderation)),
    ("/v1/realtime", "GET", at("realtime", Kind::NotYet)),
    ("/v1/usage", "GET", at("usage", Kind::Usage)),
];

impl Endpoint {
    /// What a request's line asks for; the query does not matter.
    #[must_use]
    pub fn find(method: &Method, path: &str) -> Self {
        let fits = |pattern: &str| match pattern.strip_suffix('*') {
            Some(prefix) => path.len() > prefix.len() && path.starts_with(prefix),
            None => path == pattern,
        };
        let method = if method == Method::HEAD { "GET" } else { method.as_str() };
        let mut other = None;
        for (pattern, allowed, endpoint) in ENDPOINTS {
            if fits(pattern) && *allowed == method {
                return *endpoint;
            }
            if fits(pattern) {
                other = Some((*allowed, *endpoint));
            }
        }
        match other {
            Some((allowed, e)) => Self { kind: Kind::OtherMethod(allowed), ..e },
            None => at("other", Kind::Unknown),
        }
    }

    /// The first one of this label.
    #[must_use]
    pub fn named(label: &str) -> Option<Self> {
        ENDPOINTS.iter().map(|(_, _, endpoint)| *endpoint).find(|e| e.label == label)
    }

    /// Its requests leave an event: all that could have cost something.
    #[must_use]
    pub fn is_metered(&self) -> bool {
        match self.kind {
            Kind::Ask(api) => api.costs(),
            Kind::NotYet => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_exact_and_methods_matter() {
        let check = |m: Method, p, kind| assert_eq!(Endpoint::find(&m, p).kind, kind, "{m} {p}");
        check(Method::POST, "/v1/chat/completions", Kind::Ask(Api::Chat));
        check(Method::POST, "/v1/messages/count_tokens", Kind::Ask(Api::CountTokens));
        check(Method::GET, "/v1/chat/completions", Kind::OtherMethod("POST"));
        check(Method::POST, "/v1/chat/completions/", Kind::Unknown);
        check(Method::GET, "/v1/models/a/b", Kind::Model);
        check(Method::GET, "/v1/models/", Kind::Unknown);
        check(Method::HEAD, "/", Kind::Health);
        check(Method::POST, "/v1/images/edits", Kind::Ask(Api::Passed(Passed::ImageEdit)));
        check(Method::POST, "/v1/images/other", Kind::Unknown);
        assert_eq!(Endpoint::find(&Method::POST, "/wp-admin").label, "other");
    }
}
