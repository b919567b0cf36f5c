//! Whom a trusted caller says it speaks for.

use weir_filters::peek::Peek;

/// A longer name is cut: it goes into every event.
const USER_BYTES_MAX: usize = 256;

/// The end user of a request whose key may name one: the header first, then the body's `user`,
/// `safety_identifier` and `metadata.user_id`.
pub(super) fn end_user(header: Option<&str>, peek: &Peek) -> Option<String> {
    let member = |name| peek.find(name).map(|m| peek.value(m));
    let text = |raw: &[u8]| serde_json::from_slice::<String>(raw).ok();
    let metadata = |raw: &[u8]| {
        #[derive(serde::Deserialize)]
        struct Metadata {
            user_id: Option<String>,
        }
        serde_json::from_slice::<Metadata>(raw).ok().and_then(|m| m.user_id)
    };
    let found = (header.map(str::to_owned))
        .or_else(|| member("user").and_then(text))
        .or_else(|| member("safety_identifier").and_then(text))
        .or_else(|| member("metadata").and_then(metadata))?;
    let sound = found.chars().filter(|c| !c.is_control());
    let mut name = String::new();
    for c in sound {
        if name.len() + c.len_utf8() > USER_BYTES_MAX {
            break;
        }
        name.push(c);
    }
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn the_header_wins_and_the_body_is_read_in_order() {
        let check = |header, body: &str, want: Option<&str>| {
            let body =
                format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}]{body}}}"#);
            let peek = weir_filters::peek::chat(Bytes::from(body)).unwrap();
            assert_eq!(end_user(header, &peek).as_deref(), want);
        };
        let all = r#","user":"u","safety_identifier":"s","metadata":{"user_id":"m"}"#;
        check(Some("h"), all, Some("h"));
        check(None, all, Some("u"));
        check(None, r#","safety_identifier":"s","metadata":{"user_id":"m"}"#, Some("s"));
        check(None, r#","metadata":{"user_id":"m","x":[1]}"#, Some("m"));
        check(None, r#","user":7,"metadata":3"#, None);
        check(None, "", None);
        check(Some(&"é".repeat(300)), "", Some(&"é".repeat(128)));
    }
}
