//! Usage in a stream: read wherever it stands, given once to who asked and to nobody else.

use super::*;

fn numbers(told: &Told) -> Option<(u64, u64)> {
    told.usage.map(|usage| (usage.input, usage.output))
}

#[test]
fn usage_is_read_beside_empty_missing_or_odd_choices_s19_s20() {
    for odd in [
        usage_chunk(USAGE),
        usage_chunk(USAGE).replace("\"choices\":[],", ""),
        usage_chunk(USAGE).replace("\"choices\":[]", "\"choices\":{}"),
        usage_chunk(USAGE).replace("\"choices\":[]", "\"choices\":null"),
    ] {
        for ask in [ASKED, UNASKED, STRIPPED] {
            let told = stream(sound() + &odd + DONE, ask);
            let usage = if ask.asked { usage_chunk(USAGE) } else { String::new() };
            assert_eq!(told.text(), sound() + &usage + DONE);
            assert_eq!(numbers(&told), Some((5, 7)));
        }
    }
}

#[test]
fn who_did_not_ask_sees_no_usage_and_who_did_sees_it_once_s24() {
    let plain = sound() + DONE;
    let nulls = sound().replace("]}\n\n", "],\"usage\":null}\n\n");
    let told = stream(nulls.clone() + &usage_chunk(USAGE) + DONE, STRIPPED);
    assert_eq!(told.text(), plain);
    assert_eq!(numbers(&told), Some((5, 7)));
    let asked = nulls.clone() + &usage_chunk(USAGE) + DONE;
    assert_eq!(stream(&asked, ASKED).text(), asked);
    // Without our asking, the provider's own nulls are the provider's bytes.
    assert_eq!(stream(nulls.clone() + DONE, UNASKED).text(), nulls + DONE);
}

#[test]
fn a_stripped_member_leaves_every_other_byte_in_place() {
    let odd = sound().replace("]}\n\n", "], \"usage\" : null , \"p\": \"abc\"}\n\n") + DONE;
    let told = stream(&odd, STRIPPED);
    assert_eq!(told.text(), odd.replace(", \"usage\" : null ", " "));
    let first = sound().replace("{\"id\"", "{\"usage\":null,\"id\"") + DONE;
    assert_eq!(stream(first, STRIPPED).text(), sound() + DONE);
}

#[test]
fn usage_is_read_in_the_finish_chunk_or_before_it_s26() {
    let inside = sound().replace("\"stop\"}]}", &format!("\"stop\"}}],\"usage\":{USAGE}}}"));
    let before = usage_chunk(USAGE) + &sound();
    for body in [inside + DONE, before + DONE] {
        for ask in [ASKED, UNASKED, STRIPPED] {
            let told = stream(&body, ask);
            let usage = if ask.asked { usage_chunk(USAGE) } else { String::new() };
            assert_eq!(told.text(), sound() + &usage + DONE);
            assert_eq!(numbers(&told), Some((5, 7)));
        }
    }
}

#[test]
fn usage_that_never_comes_is_counted_s27() {
    let words = chunk(r#"{"content":"some words "}"#, "null").repeat(20);
    let body = chunk(ROLE, "null") + &words + &chunk("{}", "\"stop\"");
    let body = body.replace("]}\n\n", "],\"usage\":null}\n\n") + DONE;
    let told = stream(&body, ASKED);
    assert_eq!(told.usage, None);
    // 220 ASCII bytes by four.
    assert_eq!(told.tokens, 55);
    let usage = told.seen(ASKED).usage.unwrap();
    assert_eq!(usage["prompt_tokens"], 11);
    assert_eq!(usage["completion_tokens"], 55);
    assert_eq!(usage["total_tokens"], 66);
}

#[test]
fn running_totals_are_never_added_up_s28_s30() {
    let mut body = chunk(ROLE, "null");
    for n in 1..=5 {
        let usage =
            format!(r#"{{"prompt_tokens":64,"completion_tokens":{n},"total_tokens":{}}}"#, 64 + n);
        body += &chunk_with_usage(r#"{"content":"x"}"#, "null", &usage);
    }
    body += &(chunk("{}", "\"stop\"") + DONE);
    let told = stream(&body, ASKED);
    assert_eq!(numbers(&told), Some((64, 5)));
    let usage = told.seen(ASKED).usage.unwrap();
    assert_eq!(usage["completion_tokens"], 5);
}

#[test]
fn usage_in_two_places_is_one_usage() {
    let inside = sound().replace("\"stop\"}]}", &format!("\"stop\"}}],\"usage\":{USAGE}}}"));
    let told = stream(inside + &usage_chunk(USAGE) + DONE, ASKED);
    assert_eq!(told.text(), sound() + &usage_chunk(USAGE) + DONE);
    assert_eq!(numbers(&told), Some((5, 7)));
    let groq =
        sound().replace("\"stop\"}]}", &format!("\"stop\"}}],\"x_groq\":{{\"usage\":{USAGE}}}}}"));
    let told = stream(groq.clone() + DONE, UNASKED);
    assert_eq!((told.text(), numbers(&told)), ((groq + DONE).as_str(), Some((5, 7))));
}

#[test]
fn cached_and_reasoning_tokens_are_parts_c01_k08() {
    let usage = concat!(
        r#"{"prompt_tokens":10000,"completion_tokens":500,"total_tokens":10500,"#,
        r#""prompt_tokens_details":{"cached_tokens":8000},"#,
        r#""completion_tokens_details":{"reasoning_tokens":400}}"#
    );
    let told = stream(sound() + &usage_chunk(usage) + DONE, ASKED);
    let want = Usage { input: 2000, cached: 8000, cache_write: 0, output: 500, reasoning: 400 };
    assert_eq!(told.usage, Some(want));
    assert_eq!(told.text(), sound() + &usage_chunk(usage) + DONE);
}
