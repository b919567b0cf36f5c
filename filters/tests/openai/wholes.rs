//! Replies that are no stream.

use super::replay::chat;
use super::*;

fn reply(message: &str, finish: &str, usage: &str) -> String {
    format!(
        "{{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\",\"choices\":\
         [{{\"index\":0,\"message\":{message},\"finish_reason\":{finish}}}],\"usage\":{usage}}}"
    )
}

const HI: &str = r#"{"role":"assistant","content":"hi"}"#;

fn seen(body: &str) -> chat::Seen {
    let seen = chat::json(&whole(body).unwrap().body);
    assert_eq!(seen.faults, [""; 0], "{body}");
    seen
}

#[test]
fn a_sound_reply_passes_as_it_came_and_padding_goes() {
    let sound = reply(HI, "\"stop\"", USAGE).replace("{\"id\"", "{\"x\": 1.50, \"id\"");
    let body = Bytes::from(format!("\n \n\r\n{sound}\n"));
    let mut told = Wire::OpenAi.whole(body.clone(), context(UNASKED)).unwrap();
    assert_eq!(told.body, format!("{sound}\n"));
    assert_eq!(told.body.as_ptr() as usize, body.as_ptr() as usize + 5);
    assert_eq!(told.tap.usage.map(|u| (u.input, u.output)), Some((5, 7)));
    assert_eq!((told.tap.finish, told.tap.counter.total()), (Some("stop"), 1));
}

#[test]
fn a_200_that_is_no_answer_is_a_failure_s32_s37() {
    for body in [
        "",
        " \n",
        "<html>busy</html>",
        "{",
        "{}",
        "[]",
        "null",
        "{\"choices\":[]}",
        "{\"choices\":null,\"id\":\"c\"}",
        "busy",
        &reply(HI, "\"stop\"", USAGE)[..60],
    ] {
        assert_eq!(whole(body).unwrap_err().class, Class::Invalid, "{body}");
    }
    let error = r#"{"error":{"message":"x","code":"insufficient_quota"}}"#;
    assert_eq!(whole(error).unwrap_err().class, Class::Quota);
    let broken = whole(reply(HI, "\"network_error\"", USAGE)).unwrap_err();
    assert_eq!(broken.class, Class::Server);
    let nameless = reply(r#"{"tool_calls":[{"id":"a","function":null}]}"#, "\"tool_calls\"", USAGE);
    assert_eq!(whole(nameless).unwrap_err().class, Class::Invalid);
}

#[test]
fn a_deviating_reply_is_made_good() {
    let bare = concat!(
        r#"{"choices":[{"message":{"content":[{"type":"thinking","thinking":"t"},"#,
        r#"{"type":"text","text":"hi"}]},"finish_reason":"eos","x":1.50}],"y":2}"#
    );
    let told = whole(bare).unwrap();
    let text = std::str::from_utf8(&told.body).unwrap();
    assert_eq!(seen(bare).choices[&0].reasoning, "t");
    assert!(text.contains("\"x\":1.50") && text.contains("\"y\":2"), "{text}");
    let calls = concat!(
        r#"{"content":null,"reasoning":"r","tool_calls":[{"function":{"name":"f","#,
        r#""arguments":{"a":1}}},{"id":"","function":{"name":"g"}}]}"#
    );
    let told = seen(&reply(calls, "\"tool_use\"", USAGE));
    let choice = &told.choices[&0];
    assert_eq!(choice.finish.as_deref(), Some("tool_calls"));
    assert_eq!([&choice.tools[0].arguments, &choice.tools[1].arguments], ["{\"a\":1}", "{}"]);
    assert_eq!(choice.reasoning, "r");
    assert_eq!(seen(&reply(HI, "null", USAGE)).choices[&0].finish.as_deref(), Some("stop"));
}

#[test]
fn missing_usage_is_counted_into_the_reply() {
    for usage in ["null", "{}"] {
        let told = whole(reply(HI, "\"stop\"", usage)).unwrap();
        assert_eq!(told.tap.usage, None);
        let usage = chat::json(&told.body).usage.unwrap();
        assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&11.into(), &1.into()));
    }
}

#[test]
fn events_in_place_of_a_reply_are_gathered_into_one_s36() {
    let call = concat!(
        r#"{"tool_calls":[{"index":0,"id":"a","type":"function","#,
        r#""function":{"name":"f","arguments":""}}]}"#
    );
    let more =
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":1}"}}],"reasoning":"r"}"#;
    let body = chunk(ROLE, "null")
        + &chunk(r#"{"content":"hi\n"}"#, "null")
        + &chunk(call, "null")
        + &chunk(more, "null")
        + &chunk("{}", "\"tool_calls\"")
        + &usage_chunk(USAGE)
        + DONE;
    let told = seen(&body);
    let choice = &told.choices[&0];
    assert_eq!((choice.text.as_str(), choice.reasoning.as_str()), ("hi\n", "r"));
    assert_eq!(
        (choice.tools[0].name.as_str(), choice.tools[0].arguments.as_str()),
        ("f", "{\"x\":1}")
    );
    assert_eq!(told.usage.unwrap()["total_tokens"], 12);
    let cut = whole(chunk(ROLE, "null") + &chunk(r#"{"content":"hi"}"#, "null")).unwrap_err();
    assert_eq!(cut.code.as_deref(), Some("truncated"));
}

#[test]
fn both_modes_tell_the_same_finish_reason_s23() {
    for word in ["stop", "length", "eos", "sensitive", "tool_calls"] {
        let whole = whole(reply(HI, &format!("\"{word}\""), USAGE)).unwrap();
        let told = stream(sound().replace("\"stop\"", &format!("\"{word}\"")) + DONE, UNASKED);
        assert_eq!(whole.tap.finish, told.finish, "{word}");
    }
}
