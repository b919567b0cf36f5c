//! Every way a provider's chunks deviate, one test each.

use super::*;

#[test]
fn a_sound_stream_passes_as_one_slice_of_its_chunk() {
    let body = Bytes::from(sound() + ": ping\n\n");
    let mut filter = Wire::OpenAi.stream(context(UNASKED));
    let mut step = Step::default();
    filter.feed(body.clone(), &mut step);
    assert_eq!(step.out, std::slice::from_ref(&body));
    assert_eq!(step.out[0].as_ptr(), body.as_ptr());
    assert!(step.end.is_none(), "it may still be cut");
    filter.feed(Bytes::from_static(DONE.as_bytes()), &mut step);
    assert!(matches!(step.end, Some(End::Complete { tail }) if tail == DONE));
}

#[test]
fn nothing_but_content_starts_an_answer_s06() {
    let quiet = chunk(ROLE, "null").replace(ROLE, r#"{"role":"assistant"}"#);
    let prelude = "data: {\"choices\":[],\"id\":\"\",\"prompt_filter_results\":[]}\n\n";
    for (body, starts) in [
        (": PROCESSING\n\n".repeat(5), false),
        (prelude.to_owned(), false),
        (quiet, false),
        (chunk(ROLE, "null"), false),
        ("data: null\n\n".to_owned(), false),
        (chunk(r#"{"role":"assistant","content":"a"}"#, "null"), true),
        (chunk(r#"{"role":"assistant","reasoning":"a"}"#, "null"), true),
        (chunk(r#"{"role":"assistant","refusal":"a"}"#, "null"), true),
        (chunk("{}", "\"stop\""), true),
    ] {
        let mut filter = Wire::OpenAi.stream(context(UNASKED));
        let mut step = Step::default();
        filter.feed(body.clone().into(), &mut step);
        assert_eq!(step.started, starts, "{body}");
        assert_eq!(step.alive, starts && !body.contains("stop"), "{body}");
    }
}

#[test]
fn a_character_cut_in_two_stays_whole_s01() {
    let body = chunk(r#"{"role":"assistant","content":"修复"}"#, "\"stop\"") + DONE;
    assert_eq!(stream(&body, UNASKED).text(), body);
}

#[test]
fn crlf_and_cr_streams_are_read_at_once_s02_s03() {
    for end in ["\r\n", "\r"] {
        let body = (sound() + &usage_chunk(USAGE) + DONE).replace('\n', end);
        let told = stream(&body, ASKED);
        assert_eq!(told.text(), sound() + &usage_chunk(USAGE) + DONE);
        assert_eq!(told.usage.map(|u| (u.input, u.output)), Some((5, 7)));
        let mut filter = Wire::OpenAi.stream(context(UNASKED));
        let mut step = Step::default();
        let first = body.find(&end.repeat(2)).unwrap() + end.len() + 1;
        filter.feed(body[..first].to_owned().into(), &mut step);
        assert_eq!(step.out.concat(), chunk(ROLE, "null").as_bytes());
    }
}

#[test]
fn data_without_a_space_is_data_s04() {
    let body = sound().replace("data: ", "data:") + "data:[DONE]\n\n";
    assert_eq!(stream(&body, UNASKED).text(), sound().replace("data: ", "data:") + DONE);
}

#[test]
fn one_document_may_span_data_lines_s05() {
    let body = sound().replace(",\"object\"", ",\ndata:\"object\"") + DONE;
    assert_eq!(stream(&body, UNASKED).seen(UNASKED).choices[&0].text, "hi");
}

#[test]
fn other_fields_neither_break_an_event_nor_leave_s07() {
    let event = chunk(r#"{"content":"hi"}"#, "null");
    let odd =
        format!("id: 7\n{}retry: 100\nevent: message\nx-foo: 1\n\n", &event[..event.len() - 1]);
    let body = sound().replace(&event, &odd) + "retry: 3000\n\nid: 1\n\nevent: ping\n\n" + DONE;
    assert_eq!(stream(&body, UNASKED).text(), sound() + ": ping\n\n" + DONE);
}

#[test]
fn the_last_event_counts_without_its_blank_line_s08() {
    let body = sound() + usage_chunk(USAGE).trim_end();
    let told = stream(&body, ASKED);
    assert_eq!(told.text(), sound() + &usage_chunk(USAGE) + DONE);
    assert_eq!(told.usage.map(|u| (u.input, u.output)), Some((5, 7)));
}

#[test]
fn heartbeats_are_no_chunks_s12() {
    let body = sound().replace("\n\n", "\n\ndata: null\n\ndata: \n\ndata\n\n") + DONE;
    assert_eq!(stream(&body, UNASKED).text(), sound() + DONE);
}

#[test]
fn the_end_is_added_when_only_the_marker_is_missing_s16() {
    let told = stream(sound(), UNASKED);
    assert_eq!(told.text(), sound() + DONE);
    // A connection that breaks after the finish_reason took nothing from the answer.
    let told = feed(&[sound().into()], false, UNASKED);
    assert_eq!((told.failure, told.finish), (None, Some("stop")));
}

#[test]
fn a_marker_without_a_finish_reason_is_no_end() {
    let said = chunk(ROLE, "null") + &chunk(r#"{"content":"hi"}"#, "null");
    let called = chunk(
        concat!(
            r#"{"role":"assistant","tool_calls":[{"index":0,"id":"a","type":"function","#,
            r#""function":{"name":"f","arguments":"{\"a\":"}}]}"#
        ),
        "null",
    );
    for body in [said, called] {
        let told = stream(body.clone() + DONE, UNASKED);
        assert_eq!((told.text(), told.finish), (body.as_str(), None));
        let code = told.failure.and_then(|failure| failure.code);
        assert_eq!(code.as_deref(), Some("truncated"));
    }
}

#[test]
fn what_comes_after_the_end_is_swallowed() {
    let body = sound() + DONE + &chunk(r#"{"content":"more"}"#, "null") + ": late\n\n";
    assert_eq!(stream(&body, UNASKED).text(), sound() + DONE);
    let body = sound() + &chunk(r#"{"content":"more"}"#, "\"stop\"") + DONE;
    assert_eq!(stream(&body, UNASKED).text(), sound() + DONE);
}

#[test]
fn a_delta_may_be_null_or_missing_beside_the_finish_s21() {
    for delta in ["null", "[]", "\"\""] {
        let body = sound().replace("\"delta\":{},", &format!("\"delta\":{delta},")) + DONE;
        assert_eq!(stream(&body, UNASKED).text(), sound() + DONE);
    }
    let body = sound().replace("\"delta\":{},", "") + DONE;
    assert_eq!(stream(&body, UNASKED).text(), sound() + DONE);
}

#[test]
fn the_opening_chunk_stays_s22_and_the_finish_reason_too_s23() {
    let told = stream(sound() + DONE, UNASKED);
    assert!(told.text().starts_with(&chunk(ROLE, "null")));
    assert!(told.text().contains(r#""finish_reason":"stop""#));
}

#[test]
fn the_role_stands_on_the_first_delta_only() {
    let every =
        sound().replace("{\"content\":\"hi\"}", "{\"role\":\"assistant\",\"content\":\"hi\"}");
    assert_eq!(stream(every + DONE, UNASKED).text(), sound() + DONE);
    let never = sound().replace("\"role\":\"assistant\",", "");
    assert_eq!(stream(never + DONE, UNASKED).text(), sound() + DONE);
    let null = sound().replace("{\"content\":\"hi\"}", "{\"role\":null,\"content\":\"hi\"}");
    assert_eq!(stream(null + DONE, UNASKED).text(), sound() + DONE);
}

#[test]
fn id_created_and_model_are_the_first_real_chunk_s() {
    let prelude = concat!(
        r#"data: {"choices":[],"created":0,"id":"","model":"","object":"","#,
        r#""prompt_filter_results":[]}"#
    );
    let later = chunk(r#"{"content":"hi"}"#, "null");
    let other = later.replace("\"c\"", "\"d\"").replace(":1,", ":2,").replace("\"m\"", "\"n\"");
    let body = format!("{prelude}\n\n") + &sound().replace(&later, &other) + DONE;
    let told = stream(&body, UNASKED);
    assert_eq!(told.text(), sound() + DONE);
    assert_eq!(told.model.as_deref(), Some("m"));
    let bare = sound().replace(
        "\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",",
        "",
    );
    let made = sound().replace("\"c\"", "\"chatcmpl-made\"").replace(":1,", ":1700000000,");
    let told = stream(bare + DONE, UNASKED);
    assert_eq!(told.text(), made.replace("\"m\"", "\"up-model\"") + DONE);
    assert_eq!(told.model, None);
    let words = sound().replace(":1,", ":\"1\",");
    assert_eq!(stream(words + DONE, UNASKED).text(), sound() + DONE);
}

#[test]
fn a_finish_reason_is_said_once_and_in_five_words() {
    let twice = sound() + &chunk(r#"{"role":"assistant","content":""}"#, "\"stop\"") + DONE;
    assert_eq!(stream(twice, UNASKED).text(), sound() + DONE);
    let eos = sound().replace("\"stop\"", "\"eos\"") + DONE;
    assert_eq!(stream(eos, UNASKED).text(), sound() + DONE);
    let null = sound().replacen("\"finish_reason\":null", "\"finish_reason\":\"null\"", 1) + DONE;
    assert_eq!(stream(null, UNASKED).text(), sound() + DONE);
    let absent = sound().replacen(",\"finish_reason\":null", "", 2) + DONE;
    assert_eq!(stream(absent, UNASKED).text(), sound() + DONE);
    let lonely = sound().replace("\"stop\"", "\"tool_calls\"") + DONE;
    assert_eq!(stream(lonely, UNASKED).text(), sound() + DONE);
}

#[test]
fn two_choices_have_a_role_and_a_finish_each() {
    let second = sound().replace("\"index\":0", "\"index\":1").replace("hi", "ho");
    let body = sound() + &second + DONE;
    let seen = stream(&body, UNASKED).seen(UNASKED);
    assert_eq!([&seen.choices[&0].text, &seen.choices[&1].text], ["hi", "ho"]);
    let told =
        stream(sound() + &chunk(ROLE, "null").replace("\"index\":0", "\"index\":1"), UNASKED);
    assert_eq!(told.failure.unwrap().code.as_deref(), Some("truncated"));
}

#[test]
fn content_parts_and_reasoning_become_strings() {
    let parts = concat!(
        r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a\n"}]},"#,
        r#"{"type":"text","text":"b\""}]}"#
    );
    let body = sound().replace(r#"{"content":"hi"}"#, parts) + DONE;
    let seen = stream(&body, UNASKED).seen(UNASKED);
    assert_eq!(seen.choices[&0].text, "b\"");
    assert_eq!(seen.choices[&0].reasoning, "a\n");
    let renamed =
        sound().replace("{\"content\":\"hi\"}", r#"{"reasoning":"r","channel":"x"}"#) + DONE;
    let told = stream(&renamed, UNASKED);
    assert!(told.text().contains(r#"{"reasoning_content":"r","channel":"x"}"#), "{}", told.text());
    assert!(told.reasoning > 0);
}

#[test]
fn unknown_members_of_a_repaired_chunk_keep_their_bytes() {
    let odd = sound().replace("\"delta\":{},", "\"delta\":null,\"logprobs\":{\"x\":1.50},");
    let odd = odd.replace("]}\n\n", "],\"x_extra\":{\"b\":1e400,\"a\":2}}\n\n") + DONE;
    let told = stream(&odd, UNASKED);
    assert_eq!(
        told.text(),
        odd.replace("\"delta\":null,", "\"delta\":{},").replace(
            "\"delta\":{},\"logprobs\":{\"x\":1.50},\"finish_reason\":\"stop\"",
            "\"delta\":{},\"finish_reason\":\"stop\",\"logprobs\":{\"x\":1.50}",
        )
    );
}

#[test]
fn a_message_in_place_of_the_delta_is_read_once() {
    let body = chunk(r#"{"role":"assistant","content":"hi"}"#, "null").replace("delta", "message")
        + &chunk(r#"{"role":"assistant","content":"hi"}"#, "\"stop\"").replace("delta", "message")
        + DONE;
    assert_eq!(stream(body, UNASKED).seen(UNASKED).choices[&0].text, "hi");
}

#[test]
fn an_escaped_character_or_key_is_the_same_as_a_plain_one() {
    let body = sound().replace("\"role\"", "\"r\\u006fle\"").replace("hi", "h\\u0069") + DONE;
    let told = stream(body, STRIPPED);
    assert_eq!(told.seen(STRIPPED).choices[&0].text, "hi");
    let body = sound().replace("]}\n\n", "],\"us\\u0061ge\":null}\n\n") + DONE;
    assert_eq!(stream(body, STRIPPED).text(), sound() + DONE);
}
