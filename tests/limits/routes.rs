//! The same rules on every route.

use super::world;
use crate::harness::{Ask, Reply};
use serde_json::json;

/// Every route that asks a provider for something, with the least it takes.
fn routes() -> Vec<Ask> {
    let say = json!([{"role": "user", "content": "hi"}]);
    let bodies = [
        ("/v1/chat/completions", json!({"messages": say})),
        ("/v1/messages", json!({"messages": say, "max_tokens": 5})),
        ("/v1/responses", json!({"input": "hi"})),
        ("/v1/completions", json!({"prompt": "hi"})),
        ("/v1/embeddings", json!({"input": "hi"})),
        ("/v1/moderations", json!({"input": "hi"})),
        ("/v1/rerank", json!({"query": "hi", "documents": ["a"]})),
        ("/v1/images/generations", json!({"prompt": "hi"})),
        ("/v1/audio/speech", json!({"input": "hi", "voice": "v"})),
    ];
    let ask = |(path, mut body): (&str, serde_json::Value)| {
        body["model"] = json!("m");
        Ask::post(path, &body)
    };
    bodies.into_iter().map(ask).collect()
}

#[tokio::test]
async fn every_route_is_held_against_its_owners_rules_r05() {
    let names: Vec<String> = (0..routes().len()).map(|i| format!("k{i}")).collect();
    let lines = "limits = [{ concurrent = 1 }, { rpm = 2 }]";
    let keys: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), lines)).collect();
    let (far, near) = world(&keys, "").await;
    for (name, ask) in names.iter().zip(routes()) {
        let ask = ask.key(&format!("sk-{name}"));
        let before = far.count();
        let all = [near.ask(&ask).await, near.ask(&ask).await, near.ask(&ask).await];
        let statuses = all.each_ref().map(Reply::status);
        let text = all[2].text();
        assert!(!statuses[..2].contains(&429), "{name}: a slot comes back: {statuses:?}");
        assert!(statuses[2] == 429 && text.contains("rpm"), "{name}: {statuses:?} {text}");
        assert_eq!(far.count() - before, 2, "{name}: who is refused reaches nobody");
    }
}
