//! Estimates of whole request bodies: images, tools, Chinese, history, speed, the stated band.

use crate::least;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_filters::tokens::{Encoding, count, estimate_body, image_tokens};

fn ask(content: Value) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

fn png(width: u32, height: u32, bytes: usize) -> String {
    let mut image = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    image.extend(width.to_be_bytes().into_iter().chain(height.to_be_bytes()));
    image.resize(bytes.max(40), 0x5A);
    STANDARD.encode(image)
}

proptest! {
#[test]
fn any_bytes_have_an_estimate(body in prop::collection::vec(any::<u8>(), 0..600)) {
    let text = String::from_utf8_lossy(&body).into_owned();
    let marks = ["\"data\":\"", ";base64,", "\"image_url\":\"http", "\\u", "\"detail\":\"low\""];
    for mark in marks {
        let body = [&body, mark.as_bytes(), text.as_bytes(), mark.as_bytes()].concat();
        prop_assert!(estimate_body(&body) <= body.len() as u64 + 4 * 765);
    }
}}

#[test]
fn k01_an_image_s_base64_is_never_counted_as_text() {
    let data = png(1024, 768, 750_000); // 1 MB of base64
    let url = format!("data:image/png;base64,{data}");
    let part = |more: Value| json!({"type": "image_url", "image_url": more});
    let source = json!({"type": "image", "source":
        {"type": "base64", "media_type": "image/png", "data": data}});
    let result = json!([{"type": "tool_result", "tool_use_id": "t", "content": [source]}]);
    let nested = json!({"shot": url, "raw": {"data": data}}).to_string();
    let one = image_tokens(1024, 768);
    let cases = [
        (ask(json!([{"type": "text", "text": "hi"}, part(json!({"url": url}))])), one),
        (ask(json!([part(json!({"url": url, "detail": "low"}))])), 85),
        (ask(json!([part(json!({"detail": "low", "url": url}))])), 85),
        (ask(json!([{"type": "input_image", "image_url": url}])), one),
        (ask(json!([part(json!({"url": "https://example.com/a.png"}))])), 765),
        (ask(json!([{"type": "image", "source": {"type": "url", "url": "https://e.com"}}])), 765),
        (ask(result), one),
        (ask(json!([{"type": "tool_result", "content": nested}])), 2 * one),
        (ask(json!([part(json!({"url": "data:image/heic;base64,AAAA"}))])), 765),
        (
            ask(json!([{"type": "input_audio", "input_audio":
            {"data": STANDARD.encode([7; 160_000]), "format": "mp3"}}])),
            765,
        ),
    ];
    for (body, media) in cases {
        let tokens = estimate_body(body.to_string().as_bytes());
        assert!((media..media + 60).contains(&tokens), "{tokens} for {media}");
    }
    let text = ask(json!({"data": "not base64, but a long sentence about data. ".repeat(100)}));
    assert!(estimate_body(text.to_string().as_bytes()) > 1_000, "a member named data may be text");
}

#[test]
fn k02_tools_and_system_text_are_in_the_estimate() {
    let mut body = ask(json!("hi"));
    let alone = estimate_body(body.to_string().as_bytes());
    assert!(alone < 20, "{alone}");
    body["tools"] = (0..30)
        .map(|i| {
            let text = "what the member means to the caller of this tool ".repeat(12);
            json!({"type": "function", "function": {"name": format!("tool_{i}"), "parameters":
                {"type": "object", "properties": {"x": {"type": "string", "description": text}}}}})
        })
        .collect();
    assert!(body.to_string().len() > 20_000);
    assert!(estimate_body(body.to_string().as_bytes()) > 3_000);
    let system = json!({"system": "be brief ".repeat(2_000), "messages": []});
    assert!(estimate_body(system.to_string().as_bytes()) > 4_000);
}

#[test]
fn k03_chinese_is_not_undercounted() {
    let text = "今天天气很好我们去公园玩".repeat(834); // 10,008 characters
    let body = ask(json!(text)).to_string();
    let escaped: String = body
        .chars()
        .map(|c| if c.is_ascii() { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) })
        .collect();
    let real = count(&text, Encoding::O200k);
    for body in [body, escaped] {
        let tokens = estimate_body(body.as_bytes());
        assert!((6_000..=16_000).contains(&tokens), "{tokens}");
        assert!(tokens as f64 >= 0.9 * real as f64, "{tokens} of {real}");
    }
    let odd = ask(json!("x")).to_string().replace('x', r"\ud83d\ude00\\u4f60\u0041");
    let plain = ask(json!("😀\\u4f60A")).to_string();
    assert_eq!(estimate_body(odd.as_bytes()), estimate_body(plain.as_bytes()));
}

#[test]
fn k09_null_content_and_tool_calls_are_counted() {
    let arguments =
        json!({"rows": vec![json!({"id": 12_345, "name": "a value"}); 300]}).to_string();
    assert!(arguments.len() > 8_000);
    let body = json!({"messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
            "function": {"name": "store", "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "c", "content": "stored"},
    ]});
    let tokens = estimate_body(body.to_string().as_bytes());
    assert!((2_000..4_500).contains(&tokens), "{tokens}");
}

#[test]
fn a_large_body_is_estimated_in_no_time() {
    let body =
        ask(json!("The quick brown fox jumps over the lazy dog.\n".repeat(4_500))).to_string();
    assert!(body.len() > 200_000);
    let work = |text: &str| estimate_body(text.as_bytes());
    // 50 to 60 us alone on a core of the reference machine
    let quick = |time: Duration, _| time < Duration::from_millis(1);
    let (time, again) = least(work, [&body, &body], quick);
    assert!(quick(time, again), "{time:?}");
    for hit in
        ["\"data\":\"", "\"url\":\"http", "x;base64,\\n", "\\u4f60", "\\\\", "\"data\":\"\\/"]
    {
        let [small, large] =
            [32 << 10, 256 << 10].map(|bytes: usize| hit.repeat(bytes / hit.len()));
        let linear = |short: Duration, long| long < short * 24 + Duration::from_millis(2);
        let (short, long) = least(work, [&small, &large], linear);
        assert!(linear(short, long), "{hit}: {short:?}, then {long:?}");
    }
}

/// What stands for the truth: 4 tokens a message and 3 to begin with, all strings that are prompt,
/// tools as their JSON.
fn cookbook(body: &Value) -> Option<u64> {
    fn add(value: &Value, sum: &mut u64) {
        const NO_TEXT: [&str; 10] = [
            "role",
            "type",
            "id",
            "tool_call_id",
            "tool_use_id",
            "image_url",
            "source",
            "file",
            "input_audio",
            "signature",
        ];
        match value {
            Value::String(text) => *sum += count(text, Encoding::O200k),
            Value::Array(list) => list.iter().for_each(|item| add(item, sum)),
            Value::Object(object) => object
                .iter()
                .filter(|(key, _)| !NO_TEXT.contains(&key.as_str()))
                .for_each(|(_, value)| add(value, sum)),
            _ => {}
        }
    }
    let messages = body.get("messages")?.as_array()?;
    let mut sum = 3 + 4 * messages.len() as u64;
    messages.iter().chain(body.get("system")).for_each(|message| add(message, &mut sum));
    let tools = body.get("tools").map_or(0, |tools| count(&tools.to_string(), Encoding::O200k));
    Some(sum + tools)
}

#[test]
fn estimates_of_recorded_requests_lie_in_the_stated_band() {
    let root = std::env::var("WEIR_FIXTURES").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures"),
        PathBuf::from,
    );
    let folders = |path: &Path| {
        std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let mut ratios = Vec::new();
    for case in folders(&root).flat_map(|provider| folders(&provider).collect::<Vec<_>>()) {
        let Ok(body) = std::fs::read(case.join("request.json")) else {
            continue;
        };
        let Ok(body) = serde_json::from_slice::<Value>(&body) else {
            continue;
        };
        let text = body.to_string();
        let media = ["base64", "image", "audio", "document"].iter().any(|word| text.contains(word));
        let Some(truth) = cookbook(&body).filter(|_| !media) else {
            continue;
        };
        let tokens = estimate_body(text.as_bytes());
        assert!(tokens + 8 >= truth, "{}: {tokens} of {truth}", case.display());
        assert!(tokens < 2 * truth + 150, "{}: {tokens} of {truth}", case.display());
        if truth >= 200 {
            ratios.push(tokens as f64 / truth as f64);
        }
    }
    if ratios.is_empty() {
        assert_ne!(std::env::var("WEIR_REQUIRE").as_deref(), Ok("1"), "no fixtures in {root:?}");
        eprintln!("skipped: no fixtures in {}", root.display());
        return;
    }
    ratios.sort_by(f64::total_cmp);
    eprintln!("{} requests, ratios {:.2?}", ratios.len(), ratios);
    assert!(ratios[0] >= 0.9 && ratios[ratios.len() - 1] <= 1.9, "{ratios:.2?}");
}
