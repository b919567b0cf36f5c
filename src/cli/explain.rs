//! `weir explain`: what would become of a request, or what became of one.

use super::{EXIT_USAGE, complain, say, snapshot, table};
use crate::flow::Gateway;
use crate::flow::explain::{Explained, Question, explain as ask};
use crate::meter::{Spool, report};
use crate::observe::{AccessLog, Metrics, Output};
use crate::proxy::dry::{self, Shown};
use crate::server;
use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_filters::dialect::Api;
use weir_filters::usage::NanoUsd;

/// A larger body is no request that the gateway would take by default.
const BODY_BYTES_MAX: u64 = 32 << 20;

/// What is asked.
#[derive(Debug, Args)]
pub struct Explain {
    /// The virtual key's name or id
    #[arg(long, value_name = "NAME", required_unless_present = "request")]
    key: Option<String>,
    /// The model that is asked for; else the body's
    #[arg(long, value_name = "M")]
    model: Option<String>,
    /// A request's body, `-` for standard input: shows the exact request that a provider would get
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Where it is sent: chat, messages, responses, completions, embeddings, … or a path; else the
    /// body tells
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// A past request instead, by its request id or event id
    #[arg(long, value_name = "ID", conflicts_with_all = ["key", "model", "body", "endpoint"])]
    request: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Prints it.
pub fn explain(path: Option<&Path>, args: &Explain) -> u8 {
    match (&args.request, &args.key) {
        (Some(id), _) => past(path, id, args.json),
        (None, Some(key)) => dry_run(path, key, args),
        (None, None) => fail("--key NAME or --request ID is needed", EXIT_USAGE),
    }
}

fn fail(why: &str, code: u8) -> u8 {
    complain(&format!("weir explain: {why}"));
    code
}

fn past(path: Option<&Path>, id: &str, as_json: bool) -> u8 {
    let store = match snapshot(path) {
        Ok(snapshot) => snapshot.store,
        Err(code) => return code,
    };
    match report::find(&store.path, id) {
        Ok(Some(event)) => {
            let all = || event.iter().cloned().collect::<Map<String, Value>>();
            say(&if as_json { pretty(&all()) } else { past_text(&event) });
            server::EXIT_OK
        }
        Ok(None) => fail(&format!("the ledger has no request {id:?}"), EXIT_USAGE),
        Err(error) => fail(&error.to_string(), server::EXIT_UNAVAILABLE),
    }
}

fn past_text(event: &[(String, Value)]) -> String {
    let mut out = String::new();
    let told = |value: &Value| !matches!(value, Value::Null) && *value != json!([]);
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (name, value) in event.iter().filter(|(name, v)| name != "attempts" && told(v)) {
        line(&mut out, name, &plain(value));
    }
    let names = ["provider", "model", "status", "duration_ms", "error"];
    let cells = |a: &Value| names.iter().map(|n| plain(&a[*n])).collect::<Vec<_>>();
    let tries = event.iter().find(|(name, _)| name == "attempts").map(|(_, tries)| tries);
    let tries = tries.and_then(Value::as_array).cloned().unwrap_or_default();
    if !tries.is_empty() {
        out.push('\n');
        out.push_str(&table(&names, tries.iter().map(cells)));
    }
    out.trim_end().to_owned()
}

fn dry_run(path: Option<&Path>, key: &str, args: &Explain) -> u8 {
    let body = match args.body.as_deref().map(read).transpose() {
        Ok(body) => body,
        Err(why) => return fail(&why, EXIT_USAGE),
    };
    if body.is_none() && args.model.is_none() {
        return fail("--model M or --body FILE is needed", EXIT_USAGE);
    }
    let named = args.endpoint.as_deref().unwrap_or_else(|| guess(body.as_deref()));
    let Some((endpoint, api)) = dry::endpoint(named) else {
        return fail(&format!("there is no endpoint {named:?}"), EXIT_USAGE);
    };
    // Counting tokens asks no provider.
    let shows = body.is_some() && api != Api::CountTokens;
    let question = Question {
        key: key.to_owned(),
        endpoint,
        api,
        model: args.model.clone(),
        body: body.unwrap_or_else(|| bare(api)),
    };
    let folder = Scratch::new();
    let gateway = match snapshot(path).map(|snapshot| gateway(snapshot, &folder.0)) {
        Ok(Ok(gateway)) => gateway,
        Ok(Err(why)) => return fail(&why, server::EXIT_UNAVAILABLE),
        Err(code) => return code,
    };
    let stream = streams(&question.body);
    let (told, first) = match ask(&gateway, question) {
        Ok(found) => found,
        Err(why) => return fail(&why, EXIT_USAGE),
    };
    let first = first.filter(|_| shows).map(|attempt| dry::show(&attempt, stream)).transpose();
    match first {
        Ok(first) => {
            say(&if args.json {
                as_json(&told, first.as_ref())
            } else {
                text(&told, first.as_ref())
            });
            server::EXIT_OK
        }
        Err(why) => fail(&why, server::EXIT_UNAVAILABLE),
    }
}

fn read(path: &Path) -> Result<Bytes, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut body = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().take(BODY_BYTES_MAX).read_to_end(&mut body).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(BODY_BYTES_MAX).read_to_end(&mut body).map_err(failed)?;
    }
    Ok(body.into())
}

/// A folder for a spool that nothing is written to, gone when this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("weir-explain-{}", uuid::Uuid::now_v7().simple());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What the system keeps of it, it clears away itself.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A gateway that listens nowhere and writes nothing but into a folder of its own.
fn gateway(snapshot: crate::config::Snapshot, folder: &Path) -> Result<Arc<Gateway>, String> {
    let spool = Spool::open(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let metrics = Metrics::new().map_err(|e| e.to_string())?;
    let access = AccessLog::open(&Output::Off, true).map_err(|e| e.to_string())?;
    Ok(Gateway::new(snapshot, spool, metrics, access))
}

/// The endpoint that takes bodies of this form.
fn guess(body: Option<&[u8]>) -> &'static str {
    let Some(Ok(body)) = body.map(serde_json::from_slice::<Map<String, Value>>) else {
        return "chat";
    };
    let has = |name: &str| body.contains_key(name);
    let tools = body.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    if has("messages") {
        let anthropic = has("system")
            || has("stop_sequences")
            || has("thinking")
            || tools.iter().any(|tool| tool.get("input_schema").is_some());
        return if anthropic { "messages" } else { "chat" };
    }
    match (has("input"), has("prompt")) {
        _ if has("query") && has("documents") => "rerank",
        (true, _) if has("encoding_format") || has("dimensions") => "embeddings",
        (true, _) => "responses",
        (_, true) => "completions",
        _ => "chat",
    }
}

/// The least body of an endpoint, for a question about a model alone.
fn bare(api: Api) -> Bytes {
    let messages = json!([{"role": "user", "content": ""}]);
    let body = match api {
        Api::Messages => json!({"messages": messages, "max_tokens": 1024}),
        Api::Chat | Api::CountTokens => json!({ "messages": messages }),
        Api::Completions => json!({"prompt": ""}),
        _ => json!({"input": ""}),
    };
    body.to_string().into()
}

fn streams(body: &[u8]) -> bool {
    let parsed = serde_json::from_slice::<Value>(body);
    parsed.is_ok_and(|body| body["stream"] == json!(true))
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Both in one object, the body's bytes as they are.
fn as_json(told: &Explained, request: Option<&Shown>) -> String {
    #[derive(serde::Serialize)]
    struct All<'a> {
        #[serde(flatten)]
        told: &'a Explained,
        request: Option<&'a Shown>,
    }
    pretty(&All { told, request })
}

fn line(out: &mut String, name: &str, value: &str) {
    // Writing into a String cannot fail.
    let _ = writeln!(out, "{name:<18} {value}");
}

fn text(told: &Explained, request: Option<&Shown>) -> String {
    let mut out = String::new();
    let team = told.team.as_ref().map(|team| format!(" (team {team})")).unwrap_or_default();
    line(&mut out, "key", &format!("{}{team}", told.key));
    line(&mut out, "endpoint", told.endpoint);
    line(&mut out, "asked for", told.asked.as_deref().unwrap_or("no model"));
    if let Some(alias) = &told.alias {
        let from = told.asked.as_deref().unwrap_or_default();
        line(&mut out, "alias", &format!("{from} -> {alias}"));
    }
    if let Some(route) = told.route {
        line(&mut out, "route", &format!("the {route}. of [[routes]]"));
    }
    if let (Some(model), Some(strategy)) = (&told.model, &told.strategy) {
        line(&mut out, "model", &format!("{model} (strategy {strategy})"));
    }
    if let Some(e) = &told.estimate {
        let sum = format!("{} prompt tokens, {} of an answer", e.prompt_tokens, e.output_tokens);
        line(&mut out, "estimate", &sum);
        if e.held_tokens > 0 {
            let held = format!("{} tokens, {} USD", e.held_tokens, NanoUsd(e.held_nano_usd));
            line(&mut out, "held", &held);
        }
    }
    if let Some(price) = &told.price {
        let p = format!(
            "{}: {} USD per million tokens in ({} cached, {} cache write), {} out; {}",
            price.target,
            price.input,
            price.cached_input,
            price.cache_write,
            price.output,
            price.source
        );
        line(&mut out, "price", p.trim_end_matches([';', ' ']));
    }
    if let Some(refused) = &told.refused {
        let why = format!("{} {}: {}", refused.status, refused.code, refused.message);
        line(&mut out, "refused", &why);
    }
    tables(told, &mut out);
    if let Some(request) = request {
        shown(request, &mut out);
    }
    out.trim_end().to_owned()
}

fn tables(told: &Explained, out: &mut String) {
    if !told.limits.is_empty() {
        let row = |l: &crate::flow::explain::Limit| {
            let money = l.counts == "usd";
            let say = |n: u64| if money { NanoUsd(n).to_string() } else { n.to_string() };
            let numbers = [l.limit, l.used, l.remaining].map(say);
            [vec![l.rule.clone(), l.counts.to_owned()], numbers.to_vec()].concat()
        };
        let names = ["limit", "counts", "most", "used", "left"];
        let _ = writeln!(out, "\n{}", table(&names, told.limits.iter().map(row)));
    }
    if !told.candidates.is_empty() {
        let dash = || "-".to_owned();
        let row = |c: &crate::route::tell::Candidate| {
            vec![
                c.order.map_or_else(dash, |n| n.to_string()),
                c.of.clone(),
                c.target.clone(),
                c.priority.to_string(),
                c.weight.to_string(),
                c.cost_nano_usd.map_or_else(dash, |n| NanoUsd(n).to_string()),
                c.score.map_or_else(dash, |n| format!("{n:.3}")),
                c.rejected.clone().unwrap_or_default(),
            ]
        };
        let names = ["try", "model", "target", "group", "weight", "usd", "score", "rejected"];
        let _ = writeln!(out, "\n{}", table(&names, told.candidates.iter().map(row)));
    }
}

fn shown(request: &Shown, out: &mut String) {
    let by = request.credential.as_ref().map(|c| format!(", credential {c}")).unwrap_or_default();
    let _ = writeln!(out, "\nto {}{by}:\n", request.provider);
    let _ = writeln!(out, "{} {}", request.method, request.url);
    for (name, value) in &request.headers {
        let _ = writeln!(out, "{name}: {value}");
    }
    let _ = writeln!(out, "\n{}", request.body.get());
    if !request.dropped.is_empty() {
        let _ = writeln!(out, "\ndropped: {}", request.dropped.join(", "));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_body_tells_where_it_belongs() {
        let check = |body: Value, want: &str| {
            assert_eq!(guess(Some(body.to_string().as_bytes())), want, "{body}");
        };
        check(json!({"messages": []}), "chat");
        check(json!({"messages": [], "system": "x"}), "messages");
        check(json!({"messages": [], "tools": [{"input_schema": {}}]}), "messages");
        check(json!({"messages": [], "tools": [{"type": "function"}]}), "chat");
        check(json!({"input": "x"}), "responses");
        check(json!({"input": ["x"], "dimensions": 3}), "embeddings");
        check(json!({"query": "q", "documents": []}), "rerank");
        check(json!({"prompt": "x"}), "completions");
        assert_eq!(guess(Some(b"no json")), "chat");
    }
}
