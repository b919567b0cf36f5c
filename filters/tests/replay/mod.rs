//! Recorded provider answers, cut anywhere, and the strict rules of what may leave the filters.

#![allow(dead_code)] // every test binary uses a part of it
#![allow(clippy::disallowed_methods)] // tests read fixtures
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)] // tests

pub mod chat;
pub mod drive;
pub mod messages;
pub mod noise;
pub mod responses;

use bytes::Bytes;
use std::path::{Path, PathBuf};

/// Files up to this size are cut at every byte.
const EVERY_BYTE_MAX: usize = 8 << 10;
/// Two-piece cuts of larger files, at seeded places.
const SEEDED_CUTS: usize = 256;

/// One recorded exchange (`meta.toml`, `request.json`, `response.*`).
#[derive(Debug, Clone)]
pub struct Case {
    /// `provider/name`.
    pub id: String,
    pub provider: String,
    /// `openai-chat`, `anthropic-messages`, …
    pub wire: String,
    pub status: u16,
    /// `sse`, `json`, `text`, `ndjson`, `bin`, …
    pub kind: String,
    pub stream: bool,
    pub note: String,
    pub headers: Vec<(String, String)>,
    pub request: Option<serde_json::Value>,
    /// The provider's body, byte for byte.
    pub body: Bytes,
}

fn folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    std::env::var_os("WEIR_FIXTURES").map_or_else(default, PathBuf::from)
}

/// Every recorded case of one wire, by id. Without the folder: none and a notice, or a failure
/// when `WEIR_REQUIRE=1`.
pub fn cases(wire: &str) -> Vec<Case> {
    let root = folder();
    if !root.is_dir() {
        assert!(std::env::var("WEIR_REQUIRE").as_deref() != Ok("1"), "no fixtures at {root:?}");
        eprintln!("notice: no fixtures at {root:?}, recorded cases are not replayed");
        return Vec::new();
    }
    let list = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
        paths.retain(|p| p.is_dir());
        paths.sort();
        paths
    };
    let all: Vec<PathBuf> = list(&root).iter().flat_map(|p| list(p)).collect();
    let all = all.iter().filter(|p| p.join("meta.toml").is_file()).map(|p| load(p));
    let found: Vec<Case> = all.filter(|c| c.wire == wire).collect();
    assert!(!found.is_empty(), "no case of wire {wire} at {root:?}");
    found
}

fn load(dir: &Path) -> Case {
    let meta = std::fs::read_to_string(dir.join("meta.toml")).unwrap();
    let meta: toml::Table = meta.parse().unwrap_or_else(|e| panic!("{dir:?}: {e}"));
    let text = |name: &str| meta.get(name).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    let headers = meta.get("response_headers").and_then(|v| v.as_table());
    let headers = headers.into_iter().flatten();
    let headers =
        headers.map(|(k, v)| (k.to_lowercase(), v.as_str().unwrap_or_default().to_owned()));
    let request = std::fs::read(dir.join("request.json")).ok();
    let kind = text("kind");
    let streamed = ["sse", "ndjson", "bin"].contains(&kind.as_str());
    Case {
        id: text("id"),
        provider: text("provider"),
        wire: text("wire"),
        status: u16::try_from(meta["status"].as_integer().unwrap()).unwrap(),
        stream: streamed || meta["stream"].as_bool().unwrap(),
        note: text("note"),
        headers: headers.collect(),
        request: request.map(|r| serde_json::from_slice(&r).unwrap()),
        body: std::fs::read(dir.join(text("response_file"))).unwrap().into(),
        kind,
    }
}

/// Every way this body is cut: in one piece, byte by byte, and in two pieces (small ones at every
/// byte, large ones at the events' edges and at seeded places). Each cut is a list of positions.
pub fn cuts(body: &[u8]) -> Vec<Vec<usize>> {
    let mut cuts = vec![Vec::new(), (1..body.len()).collect()];
    if body.len() <= EVERY_BYTE_MAX {
        cuts.extend((1..body.len()).map(|at| vec![at]));
        return cuts;
    }
    let blank: [&[u8]; 3] = [b"\n\n", b"\r\n", b"\r\r"];
    let edges = body.windows(2).enumerate().filter(|(_, w)| blank.contains(w));
    let edges: Vec<usize> = edges.map(|(at, _)| at).take(SEEDED_CUTS).collect();
    cuts.extend(edges.iter().flat_map(|at| [1, 2].map(|n| vec![(at + n).min(body.len() - 1)])));
    // Every event in a piece of its own.
    let mut alone: Vec<usize> =
        edges.iter().map(|at| at + 2).filter(|at| *at < body.len()).collect();
    alone.dedup();
    cuts.push(alone);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ body.len() as u64;
    for _ in 0..SEEDED_CUTS {
        // Knuth's MMIX generator: the same places at every run.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) % (body.len() as u64 - 1) + 1;
        cuts.push(vec![usize::try_from(at).unwrap()]);
    }
    cuts
}

/// The body in the pieces of one cut (ascending positions).
pub fn pieces(body: &Bytes, cut: &[usize]) -> Vec<Bytes> {
    let ends = cut.iter().copied().chain([body.len()]);
    let mut from = 0;
    let piece = |to: usize| {
        let piece = body.slice(from..to);
        from = to;
        piece
    };
    ends.map(piece).filter(|p| !p.is_empty()).collect()
}

/// SSE that we sent, held to more than the grammar: UTF-8, an event only with data, no empty data,
/// a closed last event. Gives `(event name, data)` and adds what is wrong to `faults`.
pub fn frames(body: &[u8], faults: &mut Vec<String>) -> Vec<(Option<String>, String)> {
    let Ok(text) = std::str::from_utf8(body) else {
        faults.push("not UTF-8".into());
        return Vec::new();
    };
    if text.starts_with('\u{feff}') {
        faults.push("BOM sent".into());
    }
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    if !text.is_empty() && !text.ends_with("\n\n") {
        faults.push("the last event is not closed by a blank line".into());
    }
    let mut events = Vec::new();
    for block in text.split("\n\n").filter(|b| !b.trim().is_empty()) {
        let (mut name, mut data, mut other) = (None, Vec::new(), false);
        for line in block.split('\n').filter(|l| !l.is_empty() && !l.starts_with(':')) {
            let (key, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            other |= key != "data";
            match key {
                "data" => data.push(value),
                "event" => name = Some(value.to_owned()),
                "id" | "retry" => {}
                _ => faults.push(format!("a line that is no SSE field: {line:?}")),
            }
        }
        let data = data.join("\n");
        if !data.trim().is_empty() {
            events.push((name, data));
        } else if other || block.contains("data") {
            faults.push(format!("an event without data: {block:?}"));
        }
    }
    events
}
