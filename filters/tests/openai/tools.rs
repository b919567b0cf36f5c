//! Tool calls in every shape that providers stream them.

use super::replay::chat::Tool;
use super::*;

fn tool(name: &str, arguments: &str, id: &str) -> Tool {
    Tool { name: name.into(), arguments: arguments.into(), id: id.into() }
}

fn tools(body: &str) -> Vec<Tool> {
    stream(body, UNASKED).seen(UNASKED).choices[&0].tools.clone()
}

fn calls(fragments: &[&str], finish: &str) -> String {
    let mut body = chunk(ROLE, "null");
    for fragment in fragments {
        body += &chunk(&format!("{{\"tool_calls\":[{fragment}]}}"), "null");
    }
    body + &chunk("{}", finish) + DONE
}

#[test]
fn sound_tool_calls_pass_as_they_came() {
    let body = calls(
        &[
            r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}"#,
            r#"{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}"#,
            r#"{"index":0,"function":{"arguments":"{\"x\":1}"}}"#,
        ],
        "\"tool_calls\"",
    );
    let told = stream(&body, UNASKED);
    assert_eq!(told.text(), body);
    assert_eq!(
        told.seen(UNASKED).choices[&0].tools,
        [tool("f", "{\"x\":1}", "a"), tool("g", "{}", "b")]
    );
}

#[test]
fn tool_calls_are_numbered_densely_whatever_their_index() {
    let from_one = calls(
        &[
            r#"{"index":1,"id":"a","type":"function","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":1,"function":{"arguments":"}"}}"#,
            r#"{"index":3,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}"#,
        ],
        "\"tool_calls\"",
    );
    assert_eq!(tools(&from_one), [tool("f", "{}", "a"), tool("g", "{}", "b")]);
    let none = calls(
        &[
            r#"{"id":"a","type":"function","function":{"name":"f","arguments":"{"}}"#,
            r#"{"function":{"arguments":"}"}}"#,
            r#"{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}"#,
        ],
        "\"tool_calls\"",
    );
    assert_eq!(tools(&none), [tool("f", "{}", "a"), tool("g", "{}", "b")]);
    let shared = calls(
        &[
            r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":0,"id":"b","type":"function","function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":0,"function":{"arguments":"}"}}"#,
        ],
        "\"tool_calls\"",
    );
    assert_eq!(tools(&shared), [tool("f", "{}", "a"), tool("g", "{}", "b")]);
}

#[test]
fn a_tool_call_begins_once_with_id_type_and_name() {
    let repeated = calls(
        &[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"}"}}"#,
        ],
        "\"tool_calls\"",
    );
    assert_eq!(tools(&repeated), [tool("f", "{}", "a")]);
    let no_id = calls(
        &[
            r#"{"index":0,"id":"","type":"function","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":1,"id":null,"type":"function","function":{"name":"g","arguments":"{}"}}"#,
        ],
        "\"tool_calls\"",
    );
    let made = tools(&no_id);
    assert_eq!(made, [tool("f", "{}", "call_made_0_0"), tool("g", "{}", "call_made_0_1")]);
    let same_id = calls(
        &[
            r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":1,"id":"a","type":"function","function":{"name":"g","arguments":"{}"}}"#,
        ],
        "\"tool_calls\"",
    );
    assert_eq!(tools(&same_id), [tool("f", "{}", "a"), tool("g", "{}", "call_made_0_1")]);
    let late_name = calls(
        &[
            r#"{"index":0,"id":"a","type":"function","function":{"arguments":"{\"x\""}}"#,
            r#"{"index":0,"function":{"name":"f","arguments":":1}"}}"#,
        ],
        "\"tool_calls\"",
    );
    assert_eq!(tools(&late_name), [tool("f", "{\"x\":1}", "a")]);
}

#[test]
fn arguments_are_text_and_never_missing() {
    let object = calls(
        &[concat!(
            r#"{"index":0,"id":"a","type":"function","#,
            r#""function":{"name":"f","arguments":{"x": 1.50}}}"#
        )],
        "\"tool_calls\"",
    );
    assert_eq!(tools(&object), [tool("f", "{\"x\": 1.50}", "a")]);
    for arguments in ["", ",\"arguments\":null", ",\"arguments\":\"\"", ",\"arguments\":\" \""] {
        let call = format!(
            r#"{{"index":0,"id":"a","type":"function","function":{{"name":"f"{arguments}}}}}"#
        );
        let body = calls(&[&call], "\"tool_calls\"");
        assert_eq!(tools(&body)[0].arguments.trim(), "{}", "{arguments}");
        // Cut arguments are not made good.
        let seen = stream(calls(&[&call], "\"length\""), UNASKED).seen(UNASKED);
        assert_eq!(seen.choices[&0].tools[0].arguments.trim(), "", "{arguments}");
    }
    let cut = calls(
        &[r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x"}}"#],
        "\"length\"",
    );
    assert_eq!(stream(&cut, UNASKED).text(), cut);
}

#[test]
fn a_call_without_a_name_is_no_answer() {
    let body =
        calls(&[r#"{"index":0,"id":"a","type":"function","function":null}"#], "\"tool_calls\"");
    assert_eq!(stream(&body, UNASKED).class(), Class::Invalid);
}

#[test]
fn a_whole_call_beside_its_finish_gets_its_arguments_there() {
    let call =
        r#"{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":""}}]}"#;
    assert_eq!(tools(&(chunk(call, "\"tool_calls\"") + DONE)), [tool("f", "{}", "a")]);
}

#[test]
fn a_custom_tool_s_free_text_passes_with_a_dense_index() {
    let begin = r#"{"index":INDEX,"id":"a","type":"custom","custom":{"name":"f","input":""}}"#;
    let more = r#"{"index":INDEX,"custom":{"input":"ls -l"}}"#;
    let body = calls(&[begin, more], "\"tool_calls\"");
    let told = stream(body.replace("INDEX", "4"), UNASKED);
    assert_eq!(told.text(), body.replace("INDEX", "0"));
    // "f" and "ls -l", six ASCII bytes.
    assert_eq!(told.tokens, 2);
}

#[test]
fn calls_share_no_id_though_one_waits_for_its_name() {
    let made = calls(
        &[
            r#"{"index":1,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":0,"function":{"arguments":"{}"}}"#,
            r#"{"index":0,"id":"a","type":"function","function":{"name":"g"}}"#,
            r#"{"index":7,"function":{"name":"h","arguments":"{}"}}"#,
        ],
        "\"tool_calls\"",
    );
    let want = [("f", "a"), ("g", "call_made_0_1"), ("h", "call_made_0_2")];
    assert_eq!(tools(&made), want.map(|(name, id)| tool(name, "{}", id)));
    let given = calls(
        &[
            r#"{"index":0,"id":"a","function":{"arguments":"{}"}}"#,
            r#"{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}"#,
            r#"{"index":0,"function":{"name":"f"}}"#,
        ],
        "\"tool_calls\"",
    );
    let want = [("g", "call_made_0_1"), ("f", "a")];
    assert_eq!(tools(&given), want.map(|(name, id)| tool(name, "{}", id)));
}

#[test]
fn a_call_that_waits_for_its_name_takes_no_index() {
    let body = calls(
        &[
            r#"{"index":0,"id":"a","type":"function","function":{"arguments":"{"}}"#,
            r#"{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}"#,
            r#"{"index":0,"function":{"name":"f","arguments":"}"}}"#,
        ],
        "\"tool_calls\"",
    );
    assert_eq!(tools(&body), [tool("g", "{}", "b"), tool("f", "{}", "a")]);
}
