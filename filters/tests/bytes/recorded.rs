//! Recorded requests, which no edit touches.

use std::path::PathBuf;
use weir_filters::peek::{self, Edits};

/// Every recorded OpenAI-shaped request. `WEIR_FIXTURES` names the folder.
#[test]
fn recorded_requests_pass_through_as_they_came() {
    let root = std::env::var_os("WEIR_FIXTURES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures"),
        PathBuf::from,
    );
    let providers = match std::fs::read_dir(&root) {
        Ok(found) => found,
        Err(_) if std::env::var_os("WEIR_REQUIRE").is_none() => {
            eprintln!("skipped: no fixtures in {}", root.display());
            return;
        }
        Err(e) => panic!("{}: {e}", root.display()),
    };
    let cases = providers.flatten().filter_map(|p| std::fs::read_dir(p.path()).ok()).flatten();
    let mut chats = 0;
    for case in cases.flatten() {
        let Ok(body) = std::fs::read(case.path().join("request.json")) else {
            continue;
        };
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        if value["messages"].as_array().is_none_or(Vec::is_empty) {
            continue;
        }
        chats += 1;
        let peek = peek::chat(body.clone().into()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        assert_eq!(peek.model.as_deref(), value["model"].as_str(), "{case:?}");
        assert_eq!(peek.stream, value["stream"] == true, "{case:?}");
        assert_eq!(peek.members.len(), value.as_object().unwrap().len(), "{case:?}");
        assert_eq!(Edits::default().apply(&peek).concat(), body, "{case:?}");
    }
    assert!(chats > 100, "{chats} recorded chats in {}", root.display());
}
