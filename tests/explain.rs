//! `weir explain`: a dry run says what a real request then does, to the byte, and shows no secret.

use crate::harness::*;
use serde_json::{Value, json};
use std::process::Output;

const SECRET: &str = "sk-planted-9f8e7d6c5b4a";

fn bodies(model: &str) -> [(&'static str, Value); 6] {
    let messages = json!([{"role": "user", "content": "héllo"}]);
    let chat = json!({"model": model, "messages": messages, "max_tokens": 7, "stream": true,
        "temperature": 0.50, "x_unknown": 1});
    let said = json!({"model": model, "messages": messages, "max_tokens": 7, "system": "be brief"});
    [
        ("/v1/chat/completions", chat),
        ("/v1/messages", said),
        ("/v1/responses", json!({"model": model, "input": "hi", "instructions": "be brief"})),
        ("/v1/completions", json!({"model": model, "prompt": "hi", "max_tokens": 3})),
        ("/v1/embeddings", json!({"model": model, "input": ["hi"], "dimensions": 2})),
        ("/v1/messages", looped(model)),
    ]
}

/// A tool loop of a coding agent, with what few providers know.
fn looped(model: &str) -> Value {
    let mark = json!({"type": "ephemeral"});
    json!({"model": model, "max_tokens": 4000, "stream": true, "top_k": 5,
        "system": [{"type": "text", "text": "s", "cache_control": mark}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": mark}],
        "messages": [{"role": "user", "content": "go"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2VhbA=="},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 1.50}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}]}]})
}

fn explained(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn all(output: &Output) -> (i32, String) {
    let text = [output.stdout.clone(), output.stderr.clone()].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn what_is_explained_is_what_a_provider_gets_in_every_dialect_and_wire() {
    let error = json!({"error": {"message": "no", "type": "x", "code": null}});
    let a = provider(fixed(vec![Action::json(400, &error)])).await;
    let weir = Weir::start(&(wires::tables(&a, SECRET) + &toml::key())).await;
    let file = weir.path().join("body.json");
    let mut compared = 0;
    for (wire, _) in wires::WIRES {
        for (path, body) in bodies(&format!("{wire}/up-model")) {
            std::fs::write(&file, body.to_string()).unwrap();
            let arguments = ["explain", "--key", "test", "--json", "--endpoint", path, "--body"];
            let output = weir.cli(&[&arguments[..], &[file.to_str().unwrap()]].concat());
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(!text.contains(SECRET), "{wire} {path}: {text}");
            let told = explained(&output);
            let before = a.count();
            weir.ask(&Ask::post(path, &body)).await;
            let Some(seen) = a.requests().pop().filter(|_| a.count() > before) else {
                assert_eq!(told["request"], Value::Null, "{wire} {path}");
                assert_ne!(told["refused"], Value::Null, "{wire} {path}");
                continue;
            };
            let (request, seen) = (&told["request"], seen.request);
            // The raw text: numbers and the order of members as well.
            let body = String::from_utf8(seen.body.to_vec()).unwrap();
            assert!(text.contains(&format!("\"body\": {body}")), "{wire} {path}: {text}\n{body}");
            let url = request["url"].as_str().unwrap();
            let sent = format!("http://127.0.0.1:{}{}", a.port(), seen.path);
            assert_eq!(url.replace("***", SECRET), sent, "{wire} {path}");
            let masked = |name: &str| ["authorization", "x-api-key", "api-key"].contains(&name);
            for (name, value) in request["headers"].as_object().unwrap() {
                let got = seen.header(name).unwrap_or_else(|| panic!("{wire} {path}: {name}"));
                let value = value.as_str().unwrap();
                match name.as_str() {
                    "x-request-id" | "traceparent" => {}
                    name if masked(name) => assert_eq!(value.replace("***", SECRET), got),
                    name => assert_eq!(value, got, "{wire} {path}: {name}"),
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 5 * wires::WIRES.len(), "{compared}");
}

fn routed(a: &Provider, b: &Provider) -> String {
    let priced = |name: &str, p: &Provider| toml::custom(name, "openai", &p.url(), "");
    [
        priced("a", a),
        "context = 100\n".into(),
        priced("b", b),
        "[models.m]\nstrategy = \"cost\"\ntargets = [\"a/up-model\", \"b/up-model\", \
         { to = \"b/other\", weight = 0 }]\nfallback = [\"spare\"]\n\
         [models.spare]\ntargets = [\"b/up-model\"]\n\
         [[routes]]\nwhen = { team = \"crew\", model = \"asked\" }\nmodel = \"m\"\n\
         [teams.crew]\naliases = { short = \"asked\" }\n[models.asked]\ntargets = [\"a/x\"]\n"
            .into(),
        toml::key(),
        "models = [\"m\", \"asked\"]\nlimits = { rpm = 5 }\n".into(),
    ]
    .concat()
}

#[tokio::test]
async fn every_step_from_alias_to_rejected_target_is_told() {
    let (a, b) = (answering(Answer::default()).await, answering(Answer::default()).await);
    let weir = Weir::prepare(&routed(&a, &b), Default::default(), &[]).await;
    let file = weir.path().join("body.json");
    let long = "words and ".repeat(100);
    let body = json!({"model": "short", "messages": [{"role": "user", "content": long}]});
    std::fs::write(&file, body.to_string()).unwrap();
    let arguments = ["explain", "--key", "test", "--body", file.to_str().unwrap()];
    let told = explained(&weir.cli(&[&arguments[..], &["--json"]].concat()));
    assert_eq!((&told["asked"], &told["alias"]), (&json!("short"), &json!("asked")));
    assert_eq!((&told["route"], &told["model"]), (&json!(1), &json!("m")));
    let rows = told["candidates"].as_array().unwrap();
    let row = |i: usize| (rows[i]["order"].as_u64(), rows[i]["rejected"].as_str().unwrap_or(""));
    assert!(row(0).1.contains("context holds 100 tokens"), "{rows:#?}");
    assert_eq!(row(1), (Some(1), ""));
    assert_eq!(row(2).1, "its weight is 0");
    assert_eq!(row(3), (None, "the key may not use this model"));
    assert!(told["estimate"]["prompt_tokens"].as_u64() > Some(100), "{told:#}");
    assert_eq!(told["limits"][0]["rule"], "key:test/rpm");
    assert_eq!(told["price"]["target"], "b/up-model");
    let (code, text) = all(&weir.cli(&arguments));
    assert_eq!(code, 0, "{text}");
    for said in ["short -> asked", "its weight is 0", "POST http://", "key:test/rpm"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert_eq!((a.count(), b.count()), (0, 0), "a dry run asks nobody");
    assert!(!weir.path().join("spool").exists(), "and leaves nothing");
    let counting = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"}]});
    std::fs::write(&file, counting.to_string()).unwrap();
    let counts = [&arguments[..], &["--json", "--endpoint", "/v1/messages/count_tokens"]].concat();
    let told = explained(&weir.cli(&counts));
    assert_eq!((&told["request"], &told["refused"]), (&Value::Null, &Value::Null), "{told:#}");
}

#[tokio::test]
async fn refusals_are_explained_and_bad_usage_is_told_apart() {
    let a = answering(Answer::default()).await;
    let weir = Weir::prepare(&toml::simple(&a), Default::default(), &[]).await;
    let run = |arguments: &[&str]| all(&weir.cli(&[&["explain"], arguments].concat()));
    let (code, text) = run(&["--key", "test", "--model", "nosuch"]);
    assert!(code == 0 && text.contains("404 model_not_found"), "{text}");
    let (code, text) = run(&["--key", "nobody", "--model", "m"]);
    assert!(code == 64 && text.contains("nobody"), "{text}");
    assert_eq!(run(&["--key", "test"]).0, 64);
    assert_eq!(run(&["--model", "m"]).0, 64);
    assert_eq!(run(&["--key", "test", "--body", "missing.json"]).0, 64);
    assert_eq!(run(&["--key", "test", "--model", "m", "--endpoint", "x"]).0, 64);
    assert_eq!(run(&["--request", "x"]).0, 69, "there is no ledger yet");
    weir.write("[providers.a]\nnonsense = 1\n");
    assert_eq!(run(&["--key", "test", "--model", "m"]).0, 78);
}

#[tokio::test]
async fn what_signs_is_shown_no_more_than_what_is_sent() {
    let text = format!(
        "[providers.aws]\npreset = \"bedrock\"\nregion = \"eu-west-1\"\napi_keys = [{{ \
         access_key_id = \"AKIAPLANTED\", secret_access_key = \"{SECRET}\", session_token = \
         \"lent-{SECRET}\" }}]\n"
    );
    let weir = Weir::prepare(&(text + &toml::key()), Default::default(), &[]).await;
    let file = weir.path().join("body.json");
    std::fs::write(&file, bodies("aws/some-model")[0].1.to_string()).unwrap();
    let arguments = ["explain", "--key", "test", "--json", "--body", file.to_str().unwrap()];
    let output = weir.cli(&arguments);
    let told = explained(&output);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains(SECRET) && !text.contains("AKIAPLANTED"), "{text}");
    let headers = told["request"]["headers"].as_object().unwrap();
    assert_eq!(
        (&headers["authorization"], &headers["x-amz-security-token"]),
        (&json!("***"), &json!("***"))
    );
}

#[tokio::test]
async fn a_past_request_and_a_key_of_the_store_are_explained() {
    let a = answering(Answer::default()).await;
    let weir = Weir::start(&toml::simple(&a)).await;
    assert!(weir.cli(&["keys", "create", "--name", "minted", "--rpm", "3"]).status.success());
    let told = explained(&weir.cli(&["explain", "--key", "minted", "--model", "m", "--json"]));
    assert_eq!((&told["limits"][0]["limit"], &told["model"]), (&json!(3), &json!("m")));
    weir.ask(&chat().with("x-request-id", "look-me-up")).await;
    let event = weir.events(1).await.remove(0);
    let booked = found("the row", || {
        let output = weir.cli(&["explain", "--request", "look-me-up", "--json"]);
        output.status.success().then(|| explained(&output))
    });
    let row = booked.await;
    for name in ["event_id", "provider", "model", "cost_nano_usd", "status", "attempts"] {
        assert_eq!(row[name], event[name], "{name}");
    }
    let id = event["event_id"].as_str().unwrap();
    let (code, text) = all(&weir.cli(&["explain", "--request", id]));
    assert!(code == 0 && text.contains("up-model") && text.contains("200"), "{text}");
    assert_eq!(weir.cli(&["explain", "--request", "nobody"]).status.code(), Some(64));
}
