//! Provider errors in the caller's words: every recorded one here, others in `words`, bytes in
//! `caller`.
#![allow(clippy::disallowed_methods)] // tests read fixtures
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_filters::dialect::Dialect;
use weir_filters::error::{ApiError, CLASSES, Class, ErrorMap, Failure, classify, classify_event};
use weir_filters::wire::{ReplyContext, Wire};

mod caller;
mod words;

/// What a caller sees of a class when its only target failed: status, code, type, x-should-retry.
/// The statuses of BadRequest are checked beside this.
fn seen(class: Class) -> (u16, &'static str, &'static str, bool) {
    const REQUEST: &str = "invalid_request_error";
    match class {
        Class::BadRequest => (400, "invalid_request", REQUEST, false),
        Class::ContextLength => (400, "context_length_exceeded", REQUEST, false),
        Class::ContentFilter => (400, "content_filter", REQUEST, false),
        Class::ModelNotFound => (404, "model_not_found", REQUEST, false),
        Class::TooLarge => (413, "request_too_large", REQUEST, false),
        Class::Auth => (502, "upstream_auth", "api_error", false),
        Class::Quota => (502, "upstream_quota", "api_error", false),
        Class::RateLimited => (429, "upstream_rate_limited", "rate_limit_error", true),
        Class::RateHopeless => (429, "upstream_rate_limited", "rate_limit_error", false),
        Class::Timeout => (504, "upstream_timeout", "timeout_error", false),
        Class::Overloaded | Class::Server => (502, "upstream_error", "api_error", true),
        Class::Invalid => (502, "upstream_invalid_response", "api_error", false),
    }
}

/// What a status means where no word of the body says otherwise.
fn by_status(status: u16) -> Class {
    match status {
        401 | 403 => Class::Auth,
        402 => Class::Quota,
        404 => Class::ModelNotFound,
        408 | 425 | 504 => Class::Timeout,
        413 => Class::TooLarge,
        429 => Class::RateLimited,
        498 | 503 | 529 => Class::Overloaded,
        400..=499 => Class::BadRequest,
        _ => Class::Server,
    }
}

/// Recorded cases whose words overrule their status, and errors inside a 200, by the beginning of
/// their id.
const WORDED: [(&str, Class); 34] = [
    ("anthropic/err400-real-error-scenarios-anthropic-claude-haiku", Class::ContextLength),
    ("deepseek/err400-doc-400", Class::ContextLength),
    ("llamacpp/err400-error-matrix-context-overflow", Class::ContextLength),
    ("openai/err400-doc-context-length", Class::ContextLength),
    ("openrouter/err400-real-error-scenarios", Class::ContextLength),
    ("qwen/err400-doc-invalid-parameter-error-400", Class::ContextLength),
    ("vllm/err400-doc-old-flat-error", Class::ContextLength),
    ("zhipu/err400-doc-1261", Class::ContextLength),
    ("qwen/err400-doc-data-inspection-failed-400", Class::ContentFilter),
    ("zhipu/err400-doc-1301", Class::ContentFilter),
    ("openrouter/err400-embedding-matrix-error", Class::ModelNotFound),
    ("qianfan/err401-doc-v2-invalid-model", Class::ModelNotFound),
    ("zhipu/err400-doc-1211", Class::ModelNotFound),
    ("qianfan/err429-doc-v2-server-high-load", Class::Overloaded),
    ("zhipu/err429-doc-1113", Class::Quota),
    ("groq/err413-doc-413-with-rate-limit-code", Class::RateHopeless),
    ("xai/err400-error-handling-with-xai", Class::Auth),
    // inside a 200
    ("anthropic/doc-stream-error-after-start", Class::Overloaded),
    ("anthropic/doc-stream-error-first-event", Class::Overloaded),
    ("anthropic/doc-stream-error-mid", Class::Overloaded),
    ("azure/azure-prompt-content-filtering", Class::ContentFilter),
    ("groq/groq-tool-use-failed-error-streaming", Class::BadRequest),
    ("ollama/doc-midstream-error", Class::Server),
    ("openai/doc-midstream-error", Class::Server),
    ("openai/openai-error-1-chunks", Class::Quota),
    ("qianfan/doc-v1-error-http200-110", Class::Auth),
    ("qianfan/doc-v1-error-http200-111", Class::Auth),
    ("qianfan/doc-v1-error-http200-18", Class::RateLimited),
    ("qianfan/doc-v1-error-http200-336002", Class::BadRequest),
    ("qianfan/doc-v1-error-http200-336003", Class::BadRequest),
    ("qianfan/doc-v1-error-http200-336502", Class::RateLimited),
    ("qianfan/utils-mock-server-v3", Class::Overloaded),
    ("qwen/doc-native-stream-error", Class::ContentFilter),
    ("vllm/doc-midstream-error-then-done", Class::Server),
];

struct Case {
    id: String,
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// All cases of the fixtures folder, or nothing and a notice.
fn cases() -> Vec<Case> {
    let root = std::env::var("WEIR_FIXTURES").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures"),
        PathBuf::from,
    );
    let folders = |path: &Path| -> Vec<PathBuf> {
        let list = std::fs::read_dir(path).into_iter().flatten().flatten();
        list.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let cases: Vec<Case> =
        folders(&root).iter().flat_map(|p| folders(p)).filter_map(|p| case(&p)).collect();
    if cases.is_empty() {
        assert_ne!(std::env::var("WEIR_REQUIRE").as_deref(), Ok("1"), "no fixtures in {root:?}");
        eprintln!("skipped: no fixtures in {}", root.display());
    }
    cases
}

fn case(folder: &Path) -> Option<Case> {
    let meta = std::fs::read_to_string(folder.join("meta.toml")).ok()?;
    let meta: toml::Table = meta.parse().unwrap();
    let headers = meta.get("response_headers").and_then(|headers| headers.as_table());
    Some(Case {
        id: meta["id"].as_str()?.to_owned(),
        status: u16::try_from(meta["status"].as_integer()?).ok()?,
        headers: headers
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.to_lowercase(), value.as_str().unwrap().to_owned()))
            .collect(),
        body: std::fs::read(folder.join(meta.get("response_file")?.as_str()?)).ok()?,
    })
}

fn worded(case: &Case) -> Option<Class> {
    // an error inside a 200 must be named whole: its neighbours are answers
    let hit = |start: &str| match case.status {
        200 => case.id == start,
        _ => case.id.starts_with(start),
    };
    WORDED.iter().find(|(start, _)| hit(start)).map(|(_, class)| *class)
}

/// The `[errors]` of a provider's preset; empty where it has none.
fn words_of(provider: &str) -> ErrorMap {
    let path = format!("{}/../conf/providers/{provider}.toml", env!("CARGO_MANIFEST_DIR"));
    let preset: toml::Table = std::fs::read_to_string(path).unwrap_or_default().parse().unwrap();
    let rows = preset.get("errors").and_then(|errors| errors.as_table().cloned());
    let rows = rows.unwrap_or_default();
    let class = |name: &str| CLASSES.iter().find(|(other, ..)| *other == name).unwrap().1;
    ErrorMap::new(rows.iter().map(|(name, value)| (name.as_str(), class(value.as_str().unwrap()))))
}

/// An error inside a 200 as its wire reads it.
fn event(id: &str, value: &[u8]) -> Failure {
    match id.starts_with("qianfan/") {
        true => Wire::Qianfan.whole(value.to_vec().into(), context()).unwrap_err(),
        false => classify_event(value),
    }
}

fn context() -> ReplyContext {
    ReplyContext {
        usage_asked: false,
        strip_usage: false,
        id: "chatcmpl-t".into(),
        created: 1,
        model: "m".into(),
        encoding: None,
        prompt_tokens: 7,
    }
}

/// The failure in the words of the preset that a case's folder names.
fn refined(case: &Case, failure: Failure) -> Failure {
    let folder = case.id.split('/').next().unwrap();
    words_of(folder).refine(failure, case.status == 200)
}

/// The error object of a 200: the body, or the first event or line that is an error.
fn inside(body: &[u8]) -> Option<Vec<u8>> {
    let is_error = |text: &&[u8]| {
        let Ok(value) = serde_json::from_slice::<Value>(text) else {
            return false;
        };
        let failed = value.get("type").is_some_and(|t| t == "error" || t == "response.failed");
        let dashscope = value.get("code").is_some() && value.get("message").is_some();
        failed
            || dashscope
            || value.get("error_code").is_some()
            || value.get("error").is_some_and(|error| !error.is_null())
    };
    if is_error(&body) {
        return Some(body.to_vec());
    }
    let lines = body.split(|b| *b == b'\n');
    let datas = lines.map(|line| line.strip_prefix(b"data:").unwrap_or(line));
    datas.into_iter().find(is_error).map(<[u8]>::to_vec)
}

fn check(id: &str, failure: &Failure, class: Class) {
    assert_eq!(failure.class, class, "{id}: {failure:?}");
    assert!(!failure.message.is_empty() && failure.message.chars().count() <= 2_000, "{id}");
    assert!(!failure.message.contains('<') || !failure.message.contains("html"), "{id}");
    let error = ApiError::from_failure(failure, 1);
    let (mut status, code, kind, retry) = seen(class);
    if class == Class::BadRequest && [404, 409, 413, 422].contains(&failure.status) {
        status = failure.status;
    }
    let got = (error.status, error.code.as_str(), error.code.kind(), error.retry);
    assert_eq!(got, (status, code, kind, retry), "{id}: {error:?}");
    if error.status == 429 {
        assert_eq!(error.retry_after.is_some(), retry, "{id}: {error:?}");
    }
    for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
        let value: Value = serde_json::from_slice(&error.body(dialect, "req-1")).unwrap();
        assert_eq!(value["error"]["message"], error.message.as_str(), "{id}");
    }
}

#[test]
fn every_recorded_error_gets_its_class_status_and_code() {
    let mut checked = 0;
    for case in cases() {
        if case.status == 200 {
            let Some(class) = worded(&case) else {
                continue;
            };
            let value = inside(&case.body).unwrap_or_else(|| panic!("{}: no error", case.id));
            check(&case.id, &refined(&case, event(&case.id, &value)), class);
        } else {
            let header = |name: &str| {
                case.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
            };
            let failure = refined(&case, classify(case.status, &header, &case.body));
            assert_eq!(failure.status, case.status, "{}", case.id);
            check(&case.id, &failure, worded(&case).unwrap_or(by_status(case.status)));
        }
        checked += 1;
    }
    assert!(checked == 0 || checked >= 100, "{checked} cases are too few");
}

#[test]
fn the_recorded_waits_are_heard() {
    let waits = [
        ("azure/err429-doc-rate-limit", Some(7_000)),
        ("azure/err429-real-error-scenarios-azure-grok", Some(1_000)), // its retry-after-ms is 0
        ("openai/err429-doc-rate-limit-tpm", Some(3_890)),
        ("gemini/err429-doc-resource-exhausted", None),
        ("openai/err400-vision-vision-2", None), // has reset headers, but is no 429
    ];
    for case in cases() {
        let Some((_, wait)) = waits.iter().find(|(id, _)| case.id.starts_with(id)) else {
            continue;
        };
        let header = |name: &str| {
            case.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
        };
        let failure = classify(case.status, &header, &case.body);
        assert_eq!(failure.retry_after, wait.map(Duration::from_millis), "{}", case.id);
    }
}
