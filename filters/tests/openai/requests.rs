//! Requests of this wire: a few members edited, every other byte the caller's.

use weir_filters::peek;
use weir_filters::wire::{Ask, Outgoing, Params, Quirks, Wire};

struct To<'a> {
    wire: Wire,
    quirks: Quirks,
    params: Params,
    base_url: &'a str,
    api_version: Option<&'a str>,
}

fn to(base_url: &str) -> To<'_> {
    To {
        wire: Wire::OpenAi,
        quirks: Quirks::default(),
        params: Params::default(),
        base_url,
        api_version: None,
    }
}

fn ask(body: &str, to: &To<'_>) -> (String, Outgoing) {
    let peek = peek::chat(body.to_owned().into()).unwrap();
    let ask = Ask {
        peek: &peek,
        model: "up/model 1",
        quirks: &to.quirks,
        params: &to.params,
        max_output: 0,
        base_url: to.base_url,
        api_version: to.api_version,
    };
    let out = to.wire.request(&ask).unwrap();
    (String::from_utf8(out.body.concat().to_vec()).unwrap(), out)
}

const PLAIN: &str =
    r#"{ "model" : "alias", "messages":[{"role":"user","content":"h\u00ed"}], "top_p":1.0 }"#;

#[test]
fn only_the_model_changes_in_a_plain_request() {
    let (body, out) = ask(PLAIN, &to("http://x/v1"));
    assert_eq!(body, PLAIN.replace("alias", "up/model 1"));
    assert_eq!((out.path.as_str(), out.strip_usage), ("/chat/completions", false));
    assert!(out.headers.is_empty() && out.dropped.is_empty());
}

fn streamed(options: &str) -> String {
    let options =
        if options.is_empty() { String::new() } else { format!(",\"stream_options\":{options}") };
    format!(
        r#"{{"model":"a","messages":[{{"role":"user","content":"x"}}],"stream":true{options}}}"#
    )
}

#[test]
fn usage_is_asked_for_in_the_caller_s_place_s24_s25() {
    for (options, want) in [
        ("", r#"{"include_usage":true}"#),
        ("null", r#"{"include_usage":true}"#),
        (r#"{"include_usage":false}"#, r#"{"include_usage":true}"#),
        (r#"{"step_usage_chunks":true}"#, r#"{"step_usage_chunks":true,"include_usage":true}"#),
    ] {
        let (body, out) = ask(&streamed(options), &to("http://x"));
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let want: serde_json::Value = serde_json::from_str(want).unwrap();
        assert_eq!((&body["stream_options"], out.strip_usage), (&want, true), "{options}");
    }
    let asked = streamed(r#"{"include_usage":true}"#);
    let (body, out) = ask(&asked, &to("http://x"));
    assert_eq!((body, out.strip_usage), (asked.replace("\"a\"", "\"up/model 1\""), false));
}

#[test]
fn stream_options_go_to_no_one_who_refuses_them_s25() {
    let (body, out) = ask(&streamed("").replace("true", "false"), &to("http://x"));
    assert!(!body.contains("stream_options") && !out.strip_usage);
    let whole =
        streamed(r#"{"include_usage":true}"#).replace("\"stream\":true", "\"stream\":false");
    assert!(!ask(&whole, &to("http://x")).0.contains("stream_options"));
    let mut never = to("http://x");
    never.quirks.stream_options = false;
    for options in ["", r#"{"include_usage":true}"#] {
        let (body, out) = ask(&streamed(options), &never);
        assert!(!body.contains("stream_options") && !out.strip_usage, "{body}");
    }
    let mut unasked = to("http://x");
    unasked.quirks.usage_unasked = true;
    let (body, out) = ask(&streamed(""), &unasked);
    assert!(!body.contains("stream_options") && !out.strip_usage);
}

#[test]
fn our_own_members_never_leave_and_params_apply() {
    let mut with = to("http://x");
    with.params.drop = vec!["seed".into()];
    with.params.rename.insert("max_tokens".into(), "max_completion_tokens".into());
    let body =
        PLAIN.replace("\"top_p\"", "\"task_type\":\"t\",\"seed\":1,\"max_tokens\":5,\"top_p\"");
    let (body, out) = ask(&body, &with);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body.get("task_type").or(body.get("seed")).or(body.get("max_tokens")), None);
    assert_eq!(body["max_completion_tokens"], 5);
    assert_eq!(out.dropped, ["seed"]);
}

#[test]
fn azure_has_the_deployment_in_the_path_except_on_its_v1_surface() {
    let path = |base, version| {
        let to = To { wire: Wire::Azure, api_version: version, ..to(base) };
        let (body, out) = ask(PLAIN, &to);
        assert!(body.contains("up/model 1"));
        out.path
    };
    let deployment = "/deployments/up%2Fmodel%201/chat/completions?api-version=";
    assert_eq!(path("https://x", None), format!("/openai{deployment}2024-10-21"));
    assert_eq!(
        path("https://x/", Some("2025-01-01-preview")),
        format!("/openai{deployment}2025-01-01-preview")
    );
    assert_eq!(path("https://x/openai", None), format!("{deployment}2024-10-21"));
    assert_eq!(path("https://x/openai/v1", None), "/chat/completions");
    assert_eq!(
        path("https://x/openai/v1/", Some("preview")),
        "/chat/completions?api-version=preview"
    );
}

#[test]
fn members_that_a_provider_refuses_in_messages_are_left_out_and_named() {
    let body = r#"{"model":"a", "messages":[{"role":"user","content":"x"},
        {"role":"assistant","content":"y","reasoning_content":"hm","n":1.0}]}"#;
    let quirks = Quirks { refused: vec!["reasoning_content".into()], ..Quirks::default() };
    let (sent, out) = ask(body, &To { quirks, ..to("http://x/v1") });
    assert!(sent.contains(r#"{"role":"assistant","content":"y","n":1.0}"#), "{sent}");
    assert_eq!(out.dropped, ["messages.reasoning_content"]);
    assert!(ask(body, &to("http://x/v1")).0.contains(r#""reasoning_content":"hm""#));
}
