//! Images and files of a request.

use super::{ask, try_ask};
use serde_json::{Value, json};
use weir_filters::wire::Params;

/// The block of one user part.
fn block(part: &str) -> Value {
    let sent = ask(&format!(r#"[{{"role":"user","content":[{part}]}}]"#), "");
    sent.json["messages"][0]["content"][0].clone()
}

fn image(url: &str) -> Value {
    block(&format!(r#"{{"type":"image_url","image_url":{{"url":"{url}","detail":"low"}}}}"#))
}

#[test]
fn a_data_url_is_a_base64_source() {
    let source = |kind: &str| json!({"type": "base64", "media_type": kind, "data": "AAAA"});
    let want = json!({"type": "image", "source": source("image/png")});
    assert_eq!(image("data:image/png;base64,AAAA"), want);
    assert_eq!(image("DATA:image/PNG;charset=x;base64,AAAA"), want);
    assert_eq!(image("data:image/jpg;base64,AAAA")["source"], source("image/jpeg"));
    let want = json!({"type": "document", "source": source("application/pdf")});
    assert_eq!(image("data:application/pdf;base64,AAAA"), want);
}

#[test]
fn a_web_url_is_a_url_source_and_may_stand_bare() {
    let want = json!({"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}});
    assert_eq!(image("https://x.test/a.png"), want);
    assert_eq!(block(r#"{"type":"image_url","image_url":"https://x.test/a.png"}"#), want);
}

#[test]
fn files_are_documents_with_their_names() {
    let file = |data: &str| {
        block(&format!(r#"{{"type":"file","file":{{"filename":"a.pdf","file_data":"{data}"}}}}"#))
    };
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": "AAAA"});
    let want = json!({"type": "document", "source": source, "title": "a.pdf"});
    assert_eq!(file("data:application/pdf;base64,AAAA"), want);
    assert_eq!(file("AAAA"), want);
    let text = file("data:text/markdown;base64,SGVsbG8=");
    let source = json!({"type": "text", "media_type": "text/plain", "data": "Hello"});
    assert_eq!(text["source"], source);
    let by_id = block(r#"{"type":"file","file":{"file_id":"file_1"}}"#);
    assert_eq!(by_id["source"], json!({"type": "file", "file_id": "file_1"}));
}

#[test]
fn a_breakpoint_stays_on_its_part_and_a_messages_own_on_the_last_one() {
    let cached = block(
        r#"{"type":"image_url","image_url":{"url":"https://x.test/"},
            "cache_control":{"type":"ephemeral"}}"#,
    );
    assert_eq!(cached["cache_control"], json!({"type": "ephemeral"}));
    let sent = ask(
        r#"[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],
             "cache_control":{"type":"ephemeral"}}]"#,
        "",
    );
    let blocks = &sent.json["messages"][0]["content"];
    assert!(blocks[0].get("cache_control").is_none());
    assert_eq!(blocks[1]["cache_control"], json!({"type": "ephemeral"}));
}

#[test]
fn the_providers_own_blocks_pass_as_they_came() {
    let part = r#"{"type":"document","source":{"type":"text","media_type":"text/plain",
        "data":"x"},"citations":{"enabled":true}}"#;
    assert_eq!(block(part), serde_json::from_str::<Value>(part).unwrap());
}

#[test]
fn content_that_cannot_be_taken_is_refused_with_its_place() {
    for part in [
        r#"{"type":"image_url","image_url":{"url":"gs://bucket/a.png"}}"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,"}}"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/svg+xml,<svg/>"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}"#,
        r#"{"type":"file","file":{"file_data":"data:text/plain;base64,////"}}"#,
    ] {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"a"}},{part}]}}]}}"#
        );
        let error = try_ask(&body, &Params::default(), 0).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages[0].content[1]"), "{part}");
    }
}
