//! Providers' habits on the wire: line ends, cuts, comments, shapes, codings.

use super::{chunk, stop, word};
use crate::harness::*;
use bytes::Bytes;
use serde_json::{Value, json};

/// What the client sees of a body written in these pieces: content, whether it is whole; and the
/// event.
async fn passed(pieces: &[&[u8]]) -> (Reply, Value) {
    let body = pieces.iter().map(|p| Action::Body(Bytes::copy_from_slice(p)));
    let a = provider(fixed([vec![Action::stream()], body.collect()].concat())).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let reply = gateway.ask(&streamed()).await;
    let event = gateway.event().await;
    (reply, event)
}

async fn whole(pieces: &[&[u8]], content: &str, usage: Option<(u64, u64)>) -> Reply {
    let (reply, event) = passed(pieces).await;
    assert!(reply.done(), "{}", reply.text());
    assert_eq!(reply.content(), content);
    if let Some((input, output)) = usage {
        let got = (&event["input_tokens"], &event["output_tokens"], &event["usage_source"]);
        assert_eq!(got, (&input.into(), &output.into(), &"provider".into()));
    }
    assert_eq!(event["outcome"], "success");
    reply
}

fn data(delta: Value, finish: Value) -> String {
    format!("data: {}\n\n", chunk(delta, finish))
}

fn said(text: &str) -> String {
    data(json!({"content": text}), Value::Null)
}

const DONE: &str = "data: [DONE]\n\n";
const USED: &str = r#""usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}"#;

fn finish() -> String {
    data(json!({}), "stop".into())
}

#[tokio::test]
async fn a_character_cut_by_the_network_stays_whole() {
    let text = said("修复");
    let at = text.find('修').unwrap() + 2;
    let (left, right) = text.as_bytes().split_at(at);
    let reply = whole(&[left, right, finish().as_bytes(), DONE.as_bytes()], "修复", None).await;
    assert!(!reply.text().contains('\u{fffd}'));
}

#[tokio::test]
async fn every_line_end_is_a_line_end() {
    let all = said("a") + &finish() + "data: {\"choices\":[]," + USED + "}\n\n" + DONE;
    for end in ["\r\n", "\r", "\n"] {
        whole(&[all.replace('\n', end).as_bytes()], "a", Some((5, 7))).await;
    }
    let at = all.find("\n\n").unwrap();
    let crlf = all.replace('\n', "\r\n");
    whole(&[&crlf.as_bytes()[..=at], &crlf.as_bytes()[at + 1..]], "a", Some((5, 7))).await;
}

#[tokio::test]
async fn an_event_ends_with_its_blank_line_and_not_with_the_next_event() {
    for end in ["\n", "\r\n"] {
        let gate = Gate::new();
        let first = said("one").replace('\n', end);
        let (most, last) = first.split_at(first.len() - 1);
        let a = provider(fixed(vec![
            Action::stream(),
            Action::text(most),
            Action::text(last),
            Action::Pass(gate.clone()),
            word("two"),
        ]));
        let a = a.await;
        let gateway = gateway(&toml::simple(&a)).await;
        let mut client = gateway.client().await;
        client.begin(&streamed()).await;
        assert!(client.event().await.unwrap().contains("one"));
        gate.open(1);
        assert!(client.event().await.unwrap().contains("two"));
    }
}

#[tokio::test]
async fn odd_but_legal_framing_is_read() {
    let end = finish() + DONE;
    let check = async |first: String| drop(whole(&[(first + &end).as_bytes()], "x", None).await);
    check(said("x").replace("data: ", "data:")).await;
    check(format!(": PROCESSING\n\n: again\n\n{}", said("x"))).await;
    let one = chunk(json!({"content": "x"}), Value::Null).to_string();
    check(format!("id: 7\ndata: {one}\nretry: 100\nevent: message\nx-foo: 1\n\n")).await;
    let (left, right) = one.split_at(one.find("\"choices\"").unwrap());
    check(format!("data: {left}\ndata: {right}\n\n")).await;
    check(format!("data: null\n\n{}data: null\n\n", said("x"))).await;
    check(format!("\u{feff}{}", said("x"))).await;
    check(format!("\n\n\n{}\n\n", said("x"))).await;
    check(data(json!({"role": "assistant", "content": ""}), Value::Null) + &said("x")).await;
    check(said("x").replace("data: [DONE]", "data:[DONE]")).await;
}

#[tokio::test]
async fn the_end_is_found_in_every_shape() {
    let x = said("x");
    let check = async |rest: String, usage| {
        let reply = whole(&[(x.clone() + &rest).as_bytes()], "x", usage).await;
        assert_eq!(reply.finishes(), ["stop"], "{rest}");
    };
    let used = Some((5, 7));
    // No [DONE] after the finish; a last event without its blank line.
    check(finish(), None).await;
    check(finish() + "data: {\"choices\":[]," + USED + "}", used).await;
    for choices in ["\"choices\":[],", "\"choices\":null,", "\"choices\":{},", ""] {
        check(format!("{}data: {{\"id\":\"c\",{choices}{USED}}}\n\n{DONE}", finish()), used).await;
    }
    // Usage inside the finish, and before it.
    let inside = finish().replace("}\n\n", &format!(",{USED}}}\n\n"));
    check(inside + DONE, used).await;
    check(format!("data: {{\"choices\":[],{USED}}}\n\n{}{DONE}", finish()), used).await;
    check(finish().replace("\"delta\":{}", "\"delta\":null") + DONE, None).await;
    check(finish().replace("\"delta\":{},", "") + DONE, None).await;
}

#[tokio::test]
async fn what_is_no_event_of_the_wire_is_never_a_silent_success() {
    let (reply, event) =
        passed(&[(said("x") + "data: {not json}\n\n" + &said("y")).as_bytes()]).await;
    assert_eq!((reply.status(), event["outcome"] == "success"), (200, false));
    assert!(reply.error_event().is_some() && !reply.text().contains("[DONE]"), "{}", reply.text());
    let (reply, event) = passed(&[said("x").as_bytes(), said("y").as_bytes()]).await;
    assert_eq!((reply.content().as_str(), &event["outcome"]), ("xy", &"truncated".into()));
    assert!(reply.error_event().is_some() && !reply.text().contains("[DONE]"));
    assert_eq!(reply.finishes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_line_without_end_is_an_error_and_not_all_memory() {
    let mut actions = vec![Action::stream(), Action::text("data: ")];
    actions.extend((0..10).map(|_| Action::Body(vec![b'x'; 1 << 20].into())));
    actions.push(Action::Hang);
    let (a, b) = (provider(fixed(actions)).await, answering(Answer::default()).await);
    let gateway = gateway(&toml::pair(&a, &b)).await;
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && reply.header("x-weir-upstream") == Some("b"));
}

#[tokio::test]
async fn the_body_tells_what_it_is_and_not_its_label() {
    let script = |kind: &str, body: String| {
        fixed(vec![Action::Whole(200, vec![("content-type".into(), kind.into())], body.into())])
    };
    let events =
        said("a") + &said("b") + &finish() + "data: {\"choices\":[]," + USED + "}\n\n" + DONE;
    let a = provider(script("application/json", events.clone())).await;
    let gateway = gateway(&toml::simple(&a)).await;
    // Events under a length and a wrong name are a stream, and never bear that length.
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && reply.content() == "ab");
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    // Events for a caller of JSON become one.
    a.play(script("text/event-stream", events));
    let reply = gateway.ask(&chat()).await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let json = reply.json();
    assert_eq!(
        (&json["object"], &json["usage"]["total_tokens"]),
        (&"chat.completion".into(), &12.into())
    );
    let choice = &json["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&"ab".into(), &"stop".into())
    );
    // JSON for a caller of a stream becomes one.
    let message = json!({"role": "assistant", "content": "ab"});
    let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "up-model",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}});
    a.play(script("application/json", body.to_string()));
    let reply = gateway.ask(&streamed()).await;
    assert!(reply.done() && reply.content() == "ab" && reply.finishes() == ["stop"]);
    for event in gateway.events().await {
        assert_eq!(
            (&event["input_tokens"], &event["output_tokens"]),
            (&5.into(), &7.into()),
            "{event}"
        );
    }
}

#[tokio::test]
async fn a_compressed_reply_is_read_though_nobody_asked_for_it() {
    let gzip = |status: u16, kind: &str, body: &str| {
        let headers = [("content-type", kind), ("content-encoding", "gzip")];
        let headers = headers.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        fixed(vec![Action::Whole(status, headers, stored_gzip(body.as_bytes()).into())])
    };
    let a = provider(gzip(200, "text/event-stream", &(said("x") + &finish() + DONE))).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let clean = |reply: &Reply| assert_eq!(reply.header("content-encoding"), None);
    let stream = gateway.ask(&streamed().with("accept-encoding", "gzip")).await;
    clean(&stream);
    assert!(stream.done() && stream.content() == "x", "{}", stream.text());
    assert_eq!(a.requests()[0].request.header("accept-encoding"), Some("identity"));
    let message = json!({"role": "assistant", "content": "x"});
    let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "up-model",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    a.play(gzip(200, "application/json", &body.to_string()));
    let json = gateway.ask(&chat().with("accept-encoding", "gzip")).await;
    clean(&json);
    assert_eq!(json.json()["choices"][0]["message"]["content"], "x");
    a.play(gzip(400, "application/json", r#"{"error":{"message":"too hot"}}"#));
    let error = gateway.ask(&chat().with("accept-encoding", "gzip")).await;
    clean(&error);
    assert!(error.error().0 == 400 && error.text().contains("too hot"), "{}", error.text());
}

/// gzip (RFC 1952) of one stored block (RFC 1951 section 3.2.4).
fn stored_gzip(data: &[u8]) -> Vec<u8> {
    let crc = data.iter().fold(!0_u32, |crc, byte| {
        (0..8)
            .fold(crc ^ u32::from(*byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()))
    });
    let length = u16::try_from(data.len()).unwrap();
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(data);
    out.extend((!crc).to_le_bytes());
    out.extend(u32::from(length).to_le_bytes());
    out
}

#[tokio::test]
async fn a_reply_however_it_is_framed_leaves_one_event() {
    let message = json!({"role": "assistant", "content": "x"});
    let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "up-model",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    .to_string();
    let json = ("content-type".to_owned(), "application/json".to_owned());
    let close = ("connection".to_owned(), "close".to_owned());
    let a = provider(fixed(vec![])).await;
    let gateway = gateway(&toml::simple(&a)).await;
    let framings = [
        vec![Action::Whole(200, vec![json.clone()], body.clone().into())],
        vec![Action::Head(200, vec![json.clone()]), Action::text(&body)],
        vec![Action::Head(200, vec![json.clone(), close]), Action::text(&body)],
    ];
    for (n, framing) in framings.into_iter().enumerate() {
        a.play(fixed(framing));
        let reply = gateway.ask(&chat()).await;
        assert_eq!(reply.json()["choices"][0]["message"]["content"], "x");
        assert_eq!(gateway.events().await.len(), n + 1);
    }
    // Shorter than its length.
    let short = Action::Head(200, vec![json, ("content-length".into(), "500".into())]);
    a.play(fixed(vec![short, Action::text(&body), Action::Close]));
    assert_eq!(gateway.ask(&chat()).await.error(), (502, "upstream_error".into()));
    assert_eq!(gateway.events().await.len(), 4);
    assert_eq!(stop().len(), 2);
}
