//! Every recorded reply, whole and cut anywhere, against an independent reading of it.

use super::replay::drive::{Want, every_cut, every_end, every_shortening};
use super::replay::{Case, cases};
use serde_json::{Value, json};
use weir_filters::error::{ApiError, Class, classify};
use weir_filters::usage::Usage;
use weir_filters::wire::Wire;

fn objects(case: &Case) -> Vec<Value> {
    let body = String::from_utf8(case.body.to_vec()).unwrap();
    match case.kind.as_str() {
        "sse" => {
            let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
            lines.map(|line| serde_json::from_str(line).unwrap()).collect()
        }
        _ => vec![serde_json::from_str(&body).unwrap()],
    }
}

/// Puts a piece of arguments where its path says.
fn put(root: &mut Value, piece: &Value) {
    let path = piece["jsonPath"].as_str().unwrap().trim_start_matches("$.");
    let pointer = path.replace("].", "/").replace(['[', '.'], "/").replace(']', "");
    let mut at = root;
    for key in pointer.split('/') {
        at = match key.parse::<usize>() {
            Ok(index) => {
                if at.is_null() {
                    *at = json!([]);
                }
                let list = at.as_array_mut().unwrap();
                while list.len() <= index {
                    list.push(Value::Null);
                }
                &mut list[index]
            }
            Err(_) => &mut at[key],
        };
    }
    match piece.get("stringValue") {
        Some(text) => {
            let before = at.as_str().unwrap_or_default().to_owned();
            *at = (before + text.as_str().unwrap()).into();
        }
        None => *at = piece.get("numberValue").or(piece.get("boolValue")).unwrap().clone(),
    }
}

fn read(case: &Case) -> Want {
    let mut want = Want::default();
    let mut reason = None;
    let mut usage = serde_json::Map::new();
    for object in objects(case) {
        if let Some(given) = object["usageMetadata"].as_object() {
            usage.extend(given.clone());
        }
        want.fails |= !object["error"].is_null();
        if !object["promptFeedback"]["blockReason"].is_null() {
            reason = Some("SAFETY".to_owned());
        }
        for candidate in object["candidates"].as_array().into_iter().flatten() {
            for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
                let text = part["text"].as_str().unwrap_or_default();
                if part["thought"] == true {
                    want.reasoning += text;
                } else {
                    want.text += text;
                }
                let call = &part["functionCall"];
                if let Some(name) = call["name"].as_str() {
                    let args = call.get("args").cloned().unwrap_or_else(|| json!({}));
                    want.tools.push((name.to_owned(), Some(args)));
                }
                for piece in call["partialArgs"].as_array().into_iter().flatten() {
                    put(want.tools.last_mut().unwrap().1.as_mut().unwrap(), piece);
                }
            }
            reason = candidate["finishReason"].as_str().map(str::to_owned).or(reason);
        }
    }
    want.finish = Some(match reason.as_deref() {
        Some("MAX_TOKENS") => "length",
        Some("SAFETY" | "MODEL_ARMOR") => "content_filter",
        _ if !want.tools.is_empty() => "tool_calls",
        _ => "stop",
    });
    let get = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or(0);
    let thoughts = get("thoughtsTokenCount");
    let prompt = get("promptTokenCount") + get("toolUsePromptTokenCount");
    let cached = get("cachedContentTokenCount");
    let usage = Usage {
        input: prompt - cached,
        cached,
        cache_write: 0,
        output: get("candidatesTokenCount") + thoughts,
        reasoning: thoughts,
    };
    want.usage = (usage.total() > 0).then_some(usage);
    want
}

fn answers() -> Vec<(Case, Want)> {
    let all = ["gemini-generate", "gemini-stream"].into_iter().flat_map(cases);
    let sound = all.filter(|case| case.status == 200 && case.kind != "text");
    sound.map(|case| (case.clone(), read(&case))).collect()
}

/// Hazards S18, T07 and T09: text, calls and usage are the same wherever the network cuts; thoughts
/// are added to the output, and cached tokens are inside the prompt.
#[test]
fn every_recorded_reply_reads_the_same_at_every_cut_s18_t07_t09() {
    for (case, want) in answers() {
        let wire = if case.provider == "vertex" { Wire::Vertex } else { Wire::Gemini };
        every_cut(wire, &case, &want);
        want.judge_whole(wire, &case);
    }
}

#[test]
fn every_recorded_stream_cut_short_is_an_answer_or_a_failure_never_both() {
    for (case, want) in answers() {
        if case.kind == "sse" {
            every_end(Wire::Gemini, &case, &want, |body| {
                let said = String::from_utf8_lossy(body);
                said.contains("\"finishReason\"") || said.contains("blockReason")
            });
        }
    }
}

#[test]
fn every_recorded_reply_can_be_shortened_anywhere() {
    for (case, want) in answers() {
        every_shortening(Wire::Gemini, &case, &want);
    }
}

/// The same chunks as one array, as the provider sends them without `alt=sse`.
#[test]
fn every_recorded_stream_reads_the_same_as_an_array() {
    for (case, want) in answers() {
        if case.kind == "sse" {
            let chunks: Vec<String> = objects(&case).iter().map(Value::to_string).collect();
            let body = format!("[{}\n]\n", chunks.join("\n,\r\n"));
            let array = Case { body: body.into(), ..case };
            every_cut(Wire::Gemini, &array, &want);
            every_end(Wire::Gemini, &array, &want, |body| body.trim_ascii().ends_with(b"]"));
        }
    }
}

#[test]
fn a_recorded_array_without_its_bracket_is_no_answer() {
    for case in cases("gemini-stream").into_iter().filter(|case| case.kind == "text") {
        let want = Want { fails: true, ..Want::default() };
        every_cut(Wire::Gemini, &case, &want);
    }
}

#[test]
fn every_recorded_error_has_its_class() {
    for case in ["gemini-generate", "gemini-stream"].into_iter().flat_map(cases) {
        if case.status == 200 {
            continue;
        }
        let header = |name: &str| {
            case.headers.iter().find(|(k, _)| k == name).map(|(_, value)| value.clone())
        };
        let failure = classify(case.status, &header, &case.body);
        let want = match case.status {
            400 => Class::BadRequest,
            404 => Class::ModelNotFound,
            429 => Class::RateLimited,
            503 => Class::Overloaded,
            504 => Class::Timeout,
            _ => Class::Server,
        };
        assert_eq!(failure.class, want, "{}", case.id);
        assert!(!failure.message.is_empty(), "{}", case.id);
        // The same body inside a 200 is the same failure.
        let inside = Wire::Gemini.whole(case.body.clone(), super::drive::context(false));
        let inside = inside.map(|_| ()).unwrap_err();
        let code = |failure| ApiError::from_failure(failure, 1).code;
        assert_eq!(code(&inside), code(&failure), "{}", case.id);
    }
}
