//! Embeddings in both forms, completions of a prompt, and what is handed on.

use super::replay::cases;
use super::{To, chunks, context, filter, hello};
use bytes::Bytes;
use serde_json::{Value, json};
use weir_filters::dialect::{Api, Passed};
use weir_filters::peek::Peek;
use weir_filters::usage::Usage;
use weir_filters::wire::{Quirks, Wire};

fn vectors(asked: &str, reply: &Value) -> Value {
    let body = json!({"model": "m", "input": "x", "encoding_format": asked});
    let (_, _, memo) = To::new(Wire::OpenAi).ask(Api::Embeddings, &body);
    let reply = Bytes::from(reply.to_string());
    let whole = Api::Embeddings.whole(Wire::OpenAi, &memo, reply, context()).unwrap();
    serde_json::from_slice(&whole.body).unwrap()
}

#[test]
fn vectors_come_in_the_form_that_was_asked_for() {
    let floats = json!([0.5, -1.25, 0.0625]);
    let base64 = "AAAAPwAAoL8AAIA9";
    for from in [floats.clone(), json!(base64)] {
        let reply = json!({"data": [{"embedding": from}]});
        let got = vectors("float", &reply);
        assert_eq!(got["data"][0]["embedding"], floats);
        assert_eq!(got["usage"], json!({"prompt_tokens": 7, "total_tokens": 7}));
        assert_eq!(vectors("base64", &reply)["data"][0]["embedding"], base64);
    }
}

#[test]
fn recorded_embeddings_pass_as_they_came() {
    for case in cases("openai-embeddings").iter().filter(|case| case.status == 200) {
        let mut body = case.request.clone().unwrap_or_default();
        body["input"] = json!("x");
        let (sent, _, memo) = To::new(Wire::OpenAi).ask(Api::Embeddings, &body);
        assert_eq!(sent["model"], "up-model");
        let whole = Api::Embeddings.whole(Wire::OpenAi, &memo, case.body.clone(), context());
        let Ok(whole) = whole else {
            assert!(case.provider == "ollama", "{}: Ollama's own shape alone is none", case.id);
            continue;
        };
        let theirs: Value = serde_json::from_slice(&case.body).unwrap();
        let ours: Value = serde_json::from_slice(&whole.body).unwrap();
        assert_eq!(ours["data"], theirs["data"], "{}", case.id);
        let prompt = theirs["usage"]["prompt_tokens"].as_u64().unwrap();
        assert_eq!(whole.tap.usage, Some(Usage { input: prompt, ..Usage::default() }));
    }
}

#[test]
fn a_prompt_is_a_chat_where_the_provider_has_no_completions() {
    let mut body = hello(Api::Completions);
    body["stream"] = json!(true);
    let (sent, _, memo) = To::new(Wire::OpenAi).ask(Api::Completions, &body);
    assert_eq!(sent["messages"], json!([{"role": "user", "content": "hi"}]));
    let stream = chunks(&[json!({"content": "ho"})], "length");
    let reply = filter(Api::Completions, Wire::OpenAi, memo, &[stream], true);
    let text = String::from_utf8(reply.out).unwrap();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: ").filter(|data| *data != "[DONE]"))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert!(events.iter().all(|event| event["object"] == "text_completion"));
    assert_eq!(events[0]["choices"][0]["text"], "ho");
    assert_eq!(events[1]["choices"][0]["finish_reason"], "length");
    assert!(text.ends_with("data: [DONE]\n\n"));
    body["prompt"] = json!(["a", "b"]);
    let error = To::new(Wire::OpenAi).try_ask(Api::Completions, &body).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("prompt"));
    let quirks = Quirks { completions: true, ..Quirks::default() };
    let (sent, _, _) = To { quirks, ..To::new(Wire::OpenAi) }.ask(Api::Completions, &body);
    assert_eq!(sent["prompt"], json!(["a", "b"]));
}

#[test]
fn recorded_completions_pass() {
    let to = To { model: "babbage-002", ..To::new(Wire::OpenAi) };
    let mut body = hello(Api::Completions);
    body["stream"] = json!(true);
    let (sent, _, memo) = to.ask(Api::Completions, &body);
    assert_eq!(sent["stream_options"], json!({"include_usage": true}));
    for case in cases("openai-completions").iter().filter(|case| case.kind == "sse") {
        for at in [0, 1, case.body.len() / 2] {
            let parts = [case.body.slice(..at), case.body.slice(at..)];
            let parts: Vec<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let reply = filter(Api::Completions, Wire::OpenAi, memo.clone(), &parts, true);
            assert!(reply.complete && reply.usage.is_some(), "{}", case.id);
            assert!(!String::from_utf8(reply.out).unwrap().contains("prompt_tokens"));
        }
    }
}

#[test]
fn what_is_handed_on_is_counted_by_its_own_units() {
    let units = |passed: Passed, request: Value, reply: Value| {
        let api = Api::Passed(passed);
        let peek: Peek = api.read(Bytes::from(request.to_string())).unwrap();
        api.units(&peek, &reply.to_string().into())
    };
    let images = json!({"data": [{"b64_json": "x"}, {"b64_json": "y"}]});
    assert_eq!(units(Passed::ImageGeneration, json!({"prompt": "p"}), images).images, 2);
    let speech = units(Passed::Speech, json!({"input": "héllo"}), json!(0));
    assert_eq!(speech.characters, 5);
    let heard = json!({"text": "x", "usage": {"type": "duration", "seconds": 9}});
    assert_eq!(units(Passed::Transcription, json!({}), heard).seconds, 9.0);
    let heard = json!({"text": "x", "duration": 8.47});
    assert_eq!(units(Passed::Transcription, json!({}), heard).seconds, 8.47);
    assert_eq!(units(Passed::Rerank, json!({}), json!({"results": []})), Default::default());
}

#[test]
fn what_is_handed_on_keeps_its_bytes_and_an_error_in_a_200_is_found() {
    let (sent, _, memo) = To::new(Wire::OpenAi)
        .ask(Api::Passed(Passed::Rerank), &json!({"model": "m", "query": "q", "documents": []}));
    assert_eq!(sent, json!({"model": "up-model", "query": "q", "documents": []}));
    let whole = |body: &[u8]| {
        let body = Bytes::copy_from_slice(body);
        Api::Passed(Passed::Speech).whole(Wire::OpenAi, &memo, body, context())
    };
    assert_eq!(whole(b"\xff\xfb\x90audio").unwrap().body, &b"\xff\xfb\x90audio"[..]);
    assert!(whole(br#"{"error":{"message":"no"}}"#).is_err());
    assert!(whole(b"").is_err());
    let refused = To::new(Wire::Anthropic)
        .try_ask(Api::Passed(Passed::Speech), &json!({"model": "m", "input": "x"}));
    assert_eq!(refused.unwrap_err().param.as_deref(), Some("model"));
}

#[test]
fn other_providers_embeddings_are_openai_s_to_the_caller() {
    let body = json!({"model": "m", "input": ["a", "b"], "dimensions": 2, "user": "u"});
    let (sent, dropped, _) = To::new(Wire::Gemini).ask(Api::Embeddings, &body);
    let one = |text: &str| {
        json!({"model": "models/up-model", "content": {"parts": [{"text": text}]},
               "outputDimensionality": 2})
    };
    assert_eq!(sent, json!({"requests": [one("a"), one("b")]}));
    assert_eq!(dropped, ["user"]);
    let (sent, _, _) = To::new(Wire::Ollama).ask(Api::Embeddings, &body);
    assert_eq!(sent, json!({"model": "up-model", "input": ["a", "b"], "dimensions": 2}));
    let (sent, _, _) = To::new(Wire::Cohere).ask(Api::Embeddings, &body);
    let cohere = json!({"texts": ["a", "b"], "input_type": "search_document",
        "embedding_types": ["float"], "output_dimension": 2});
    let mut named = cohere.clone();
    named["model"] = json!("up-model");
    assert_eq!(sent, named);
    let to = To { model: "cohere.embed-v4:0", ..To::new(Wire::Bedrock) };
    let (sent, _, _) = to.ask(Api::Embeddings, &body);
    assert_eq!(sent, cohere);
    let query = json!({"model": "m", "input": "a", "input_type": "search_query"});
    let (sent, dropped, _) = To::new(Wire::Cohere).ask(Api::Embeddings, &query);
    assert_eq!((&sent["input_type"], dropped.len()), (&json!("search_query"), 0));
    let (sent, _, _) = To::new(Wire::Vertex).ask(Api::Embeddings, &body);
    let parameters = json!({"outputDimensionality": 2});
    let instances = json!([{"content": "a"}, {"content": "b"}]);
    assert_eq!(sent, json!({"instances": instances, "parameters": parameters}));
    let one = json!({"model": "m", "input": "a", "dimensions": 256});
    let (sent, _, _) = To::new(Wire::Bedrock).ask(Api::Embeddings, &one);
    assert_eq!(sent, json!({"inputText": "a", "dimensions": 256}));
    let tokens = json!({"model": "m", "input": [1, 2]});
    let error = To::new(Wire::Gemini).try_ask(Api::Embeddings, &tokens).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("input"));

    let read = |wire: Wire, body: Value| -> Value {
        let (_, _, memo) = To::new(wire).ask(Api::Embeddings, &json!({"model": "m", "input": "x"}));
        let whole = Api::Embeddings.whole(wire, &memo, body.to_string().into(), context()).unwrap();
        serde_json::from_slice(&whole.body).unwrap()
    };
    let got = read(Wire::Gemini, json!({"embeddings": [{"values": [0.5]}, {"values": [1]}]}));
    assert_eq!(got["data"][1], json!({"object": "embedding", "index": 1, "embedding": [1]}));
    let got = read(Wire::Ollama, json!({"embeddings": [[0.5]], "prompt_eval_count": 3}));
    assert_eq!(got["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
    let prompt = |tokens: u64| json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let meta = json!({"billed_units": {"input_tokens": 4}});
    let got = read(Wire::Cohere, json!({"embeddings": {"float": [[0.5]]}, "meta": meta}));
    assert_eq!((&got["data"][0]["embedding"], &got["usage"]), (&json!([0.5]), &prompt(4)));
    let got = read(Wire::Bedrock, json!({"embedding": [0.5], "inputTextTokenCount": 3}));
    assert_eq!((&got["data"][0]["embedding"], &got["usage"]), (&json!([0.5]), &prompt(3)));
    let got =
        read(Wire::Bedrock, json!({"embeddings": [[0.5]], "response_type": "embeddings_floats"}));
    assert_eq!((&got["data"][0]["embedding"], &got["usage"]), (&json!([0.5]), &prompt(7)));
    let one = |n: u64| json!({"embeddings": {"values": [n], "statistics": {"token_count": n}}});
    let got = read(Wire::Vertex, json!({"predictions": [one(1), one(2)]}));
    assert_eq!((&got["data"][1]["embedding"], &got["usage"]), (&json!([2]), &prompt(3)));
}

#[test]
fn dashscope_s_embeddings_are_asked_ten_at_a_time_and_put_in_their_places() {
    let to = To::new(Wire::DashScope);
    let body = json!({"model": "m", "input": ["a", "b"], "dimensions": 2, "user": "u",
                      "input_type": "search_query"});
    let (out, _) = to.try_ask(Api::Embeddings, &body).unwrap();
    assert_eq!(out.path, "/services/embeddings/text-embedding/text-embedding");
    let sent: Value = serde_json::from_slice(&out.body.concat()).unwrap();
    let want = json!({"model": "up-model", "input": {"texts": ["a", "b"]},
                      "parameters": {"dimension": 2, "text_type": "query"}});
    assert_eq!((sent, out.dropped), (want, vec!["user".to_owned()]));
    let other = json!({"model": "m", "input": "a", "input_type": "clustering"});
    let (sent, dropped, _) = to.ask(Api::Embeddings, &other);
    assert_eq!(sent, json!({"model": "up-model", "input": {"texts": ["a"]}}));
    assert_eq!(dropped, ["input_type"]);
    // The third and fourth generation take ten texts, the first two 25.
    let many: Vec<String> = (0..26).map(|n| n.to_string()).collect();
    let calls = |model: &'static str| {
        let to = To { model, ..To::new(Wire::DashScope) };
        to.ask(Api::Embeddings, &json!({"model": "m", "input": many})).2.parts().len() + 1
    };
    assert_eq!((calls("text-embedding-v4"), calls("text-embedding-v2")), (3, 2));

    let reply = json!({"output": {"embeddings": [
        {"text_index": 1, "embedding": [2]}, {"text_index": 0, "embedding": [0.5]}]},
        "usage": {"total_tokens": 5}, "request_id": "r"});
    let (_, _, memo) = to.ask(Api::Embeddings, &body);
    let whole = Api::Embeddings.whole(to.wire, &memo, reply.to_string().into(), context()).unwrap();
    let got: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(
        (&got["data"][0]["embedding"], &got["data"][1]["embedding"]),
        (&json!([0.5]), &json!([2]))
    );
    assert_eq!((whole.tap.usage.unwrap().input, &got["usage"]["total_tokens"]), (5, &json!(5)));
}
