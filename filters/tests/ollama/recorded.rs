//! Every recorded reply, whole and cut anywhere, against an independent reading of it.

use super::replay::drive::{Want, every_cut, every_end, every_shortening};
use super::replay::{Case, cases};
use serde_json::Value;
use weir_filters::error::{Class, classify};
use weir_filters::usage::Usage;
use weir_filters::wire::Wire;

fn read(case: &Case) -> Want {
    let mut want = Want::default();
    for line in case.body.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).unwrap();
        want.fails |= line.get("error").is_some();
        let message = &line["message"];
        want.text += message["content"].as_str().unwrap_or_default();
        want.reasoning += message["thinking"].as_str().unwrap_or_default();
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let name = function["name"].as_str().unwrap().to_owned();
            want.tools.push((name, Some(function["arguments"].clone())));
        }
        if line["done"] == true {
            want.finish = Some(match line["done_reason"].as_str() {
                Some("length") => "length",
                _ if !want.tools.is_empty() => "tool_calls",
                _ => "stop",
            });
            let input = line["prompt_eval_count"].as_u64().unwrap_or(7);
            let output = line["eval_count"].as_u64().unwrap();
            want.usage = Some(Usage { input, output, ..Usage::default() });
        }
    }
    want
}

#[test]
fn every_recorded_reply_reads_the_same_at_every_cut() {
    for case in cases("ollama-chat").into_iter().filter(|case| case.status == 200) {
        let want = read(&case);
        every_cut(Wire::Ollama, &case, &want);
        want.judge_whole(Wire::Ollama, &case);
        every_shortening(Wire::Ollama, &case, &want);
        every_end(Wire::Ollama, &case, &want, |body| {
            String::from_utf8_lossy(body).contains("\"done\":true")
        });
    }
}

#[test]
fn every_recorded_error_has_its_class() {
    for case in cases("ollama-chat").into_iter().filter(|case| case.status != 200) {
        let failure = classify(case.status, &|_| None, &case.body);
        let want = match case.status {
            404 => Class::ModelNotFound,
            _ => Class::Overloaded,
        };
        assert_eq!(failure.class, want, "{}", case.id);
        assert!(!failure.message.is_empty());
    }
}
