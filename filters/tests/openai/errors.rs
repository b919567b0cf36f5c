//! Streams that fail: no client may take one for a whole answer.

use super::*;

const ERROR: &str =
    r#"{"error":{"message":"no luck","type":"server_error","param":null,"code":"internal"}}"#;

fn begun() -> String {
    chunk(ROLE, "null") + &chunk(r#"{"content":"hi"}"#, "null")
}

#[test]
fn a_truncated_answer_ends_in_failure_with_its_text_delivered_s16_s17() {
    for clean in [true, false] {
        let told = feed(&[begun().into()], clean, ASKED);
        assert_eq!(told.text(), begun());
        let failure = told.failure.unwrap();
        assert_eq!((failure.class, failure.code.as_deref()), (Class::Server, Some("truncated")));
        assert!(told.tokens > 0, "what came is paid for");
    }
}

#[test]
fn an_event_that_is_no_json_fails_the_stream_and_is_never_lost_silently_s11() {
    let told = stream(begun() + "data: {not json}\n\n" + &chunk("{}", "\"stop\"") + DONE, ASKED);
    assert_eq!((told.text(), told.class()), (begun().as_str(), Class::Invalid));
    for odd in ["data: 5\n\n", "data: \"x\"\n\n", "data: [1]\n\n", "data: {} {}\n\n"] {
        assert_eq!(stream(begun() + odd + DONE, ASKED).class(), Class::Invalid, "{odd}");
    }
    let told = stream([begun().as_bytes(), b"data: {\"a\":\"\xff\"}\n\n"].concat(), ASKED);
    assert_eq!(told.class(), Class::Invalid);
}

#[test]
fn rubbish_after_the_finish_takes_nothing_from_the_answer() {
    let told = stream(sound() + "data: {\"usage\":{\"prompt\n\n" + DONE, UNASKED);
    assert_eq!(told.text(), sound() + DONE);
    let told = feed(&[(sound() + "data: {\"usage\":{\"pro").into()], false, UNASKED);
    assert_eq!(told.text(), sound() + DONE);
}

#[test]
fn an_empty_or_silent_stream_is_no_answer_s32() {
    for body in ["", "\n\n", ": hi\n\n: hi\n\n", "data: {}\n\n", DONE, "data: {\"choices\":[]}\n\n"]
    {
        let told = stream(body, ASKED);
        assert_eq!(told.class(), Class::Invalid, "{body:?}");
        assert!(!told.started, "{body:?}");
    }
    let told = stream(chunk(ROLE, "null") + DONE, ASKED);
    assert_eq!((told.class(), told.started), (Class::Invalid, false));
}

#[test]
fn a_json_error_in_place_of_a_stream_is_that_error_s34_s35() {
    let body = r#"{"error":{"message":"slow down","type":"rate_limit_error","code":429}}"#;
    let told = stream(body, ASKED);
    assert_eq!((told.class(), told.started), (Class::RateLimited, false));
    assert_eq!(told.text(), "");
}

#[test]
fn markup_in_place_of_a_stream_is_no_answer_s37() {
    for body in ["<html>busy</html>", "\n <!doctype html>", "busy, try later", "[]", "{", "{}"] {
        let told = stream(body, ASKED);
        assert_eq!((told.class(), told.started), (Class::Invalid, false), "{body}");
        assert_eq!(told.tokens, 0);
    }
}

#[test]
fn a_json_answer_in_place_of_a_stream_becomes_one_s36() {
    let body = format!(
        r#"
        {{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,
        "message":{{"role":"assistant","content":"hi","tool_calls":[{{"id":"a","type":"function",
        "function":{{"name":"f","arguments":"{{}}"}}}}]}},"finish_reason":"tool_calls"}}],
        "usage":{USAGE}}}"#
    );
    let told = stream(&body, ASKED);
    let seen = told.seen(ASKED);
    assert_eq!((seen.choices[&0].text.as_str(), seen.choices[&0].tools.len()), ("hi", 1));
    assert_eq!(seen.choices[&0].finish.as_deref(), Some("tool_calls"));
    assert_eq!(
        seen.usage.unwrap().to_string(),
        serde_json::json!({
            "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12
        })
        .to_string()
    );
}

#[test]
fn an_error_inside_a_stream_ends_it_and_bills_nothing_s39() {
    let long = format!(r#"{{"error":{{"message":"{}"}}}}"#, "many words ".repeat(200));
    let told = stream(format!("data: {long}\n\n"), ASKED);
    assert_eq!((told.tokens, told.started, told.text()), (0, false, ""));
    assert_eq!(told.class(), Class::Server);
    // vLLM sends the marker after it, Groq names the event, some send a bare string.
    for event in [
        format!("data: {ERROR}\n\n{DONE}"),
        format!("event: error\ndata: {ERROR}\n\n"),
        "data: {\"error\":\"no luck\"}\n\n".to_owned(),
        "data: {\"object\":\"error\",\"message\":\"no luck\",\"code\":500}\n\n".to_owned(),
        "event: error\ndata: {\"message\":\"no luck\"}\n\n".to_owned(),
    ] {
        let told = stream(begun() + &event, ASKED);
        assert_eq!((told.text(), told.class()), (begun().as_str(), Class::Server), "{event}");
        assert!(told.failure.unwrap().message.contains("no luck"), "{event}");
    }
}

#[test]
fn an_error_s_own_number_gives_its_class() {
    for (code, class) in [
        ("429", Class::RateLimited),
        ("\"context_length_exceeded\"", Class::ContextLength),
        ("503", Class::Overloaded),
    ] {
        let body = format!("data: {{\"error\":{{\"message\":\"x\",\"code\":{code}}}}}\n\n");
        assert_eq!(stream(body, ASKED).class(), class, "{code}");
    }
}

#[test]
fn a_finish_that_means_failure_delivers_its_text_and_no_end() {
    for word in ["error", "network_error", "insufficient_system_resource"] {
        let last = chunk(r#"{"content":"ho"}"#, &format!("\"{word}\""));
        let told = stream(begun() + &last + DONE, ASKED);
        assert_eq!(told.class(), Class::Server);
        assert_eq!(told.seen(ASKED).choices[&0].text, "hiho");
        assert_eq!(told.failure.unwrap().code.as_deref(), Some(word));
    }
    // OpenRouter: the error object beside the finish.
    let last = chunk(r#"{"content":""}"#, "\"error\"")
        .replace("data: {", "data: {\"error\":{\"code\":502,\"message\":\"no luck\"},");
    let told = stream(begun() + &last + DONE, ASKED);
    assert_eq!((told.text(), told.class()), (begun().as_str(), Class::Server));
}

#[test]
fn an_event_that_never_ends_fails_the_stream_s10() {
    let mut filter = Wire::OpenAi.stream(context(ASKED));
    let mut step = Step::default();
    filter.feed(Bytes::from_static(b"data: "), &mut step);
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let mut fed = 0;
    while step.end.is_none() && fed < 16 {
        filter.feed(piece.clone(), &mut step);
        fed += 1;
    }
    assert!(matches!(step.end, Some(End::Failed(failure)) if failure.class == Class::Invalid));
    assert!(fed <= 9, "refused after {fed} MiB");
}

#[test]
fn a_state_in_place_of_choices_is_the_failure_it_states() {
    let body = r#"{"id":"a","choices":null,"base_resp":{"status_code":1008,"status_msg":"pay"}}"#;
    for told in [stream(body, ASKED), stream(format!("data: {body}\n\n"), ASKED)] {
        let failure = told.failure.unwrap();
        assert_eq!((failure.code.as_deref(), failure.message.as_str()), (Some("1008"), "pay"));
        assert!(!told.started);
    }
    let sound = chunk(ROLE, "null").replace("}\n\n", ",\"base_resp\":{\"status_code\":0}}\n\n");
    let told = stream(sound + &chunk(r#"{"content":"hi"}"#, "\"stop\"") + DONE, ASKED);
    assert!(told.failure.is_none(), "{:?}", told.failure);
}
