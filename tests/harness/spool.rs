//! Usage events as they stand in a spool's segments.

use serde_json::Value;
use std::path::Path;

/// Every whole line that is an event, segment by segment in the order of their names. Lines of
/// admitted streams are left out.
pub fn read(dir: &Path) -> Vec<Value> {
    lines(dir).into_iter().filter(|line| line["event_id"].is_string()).collect()
}

/// Every whole line.
pub fn lines(dir: &Path) -> Vec<Value> {
    let Ok(entries) = std::fs::read_dir(dir) else { return vec![] };
    let mut files: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    let texts = files.iter().filter(|f| f.is_file()).filter_map(|f| std::fs::read(f).ok());
    texts.flat_map(|text| whole_lines(&text)).collect()
}

/// Bytes in all segments.
pub fn size(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.filter_map(|e| e.ok()?.metadata().ok()).map(|m| m.len()).sum()
}

fn whole_lines(text: &[u8]) -> Vec<Value> {
    let all = text.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n"));
    all.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}
