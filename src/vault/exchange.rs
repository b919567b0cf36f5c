//! The exchange of a credential for a token: its request, and what the reply gives.

use crate::base::{Base, Grant, Secret};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use weir_filters::wire::segment;
use zeroize::Zeroizing;

/// What a token may be used for: any of the account's models (Google's OAuth scopes).
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// How long a claim is good for: the longest that Google takes.
const CLAIM_SECONDS: u64 = 3_600;

/// A form to be posted.
#[derive(Debug)]
pub struct Post<'g> {
    /// Where; its path is the whole path.
    pub at: &'g Base,
    /// `application/x-www-form-urlencoded`
    pub body: Secret,
}

/// The request of an exchange; `time` in Unix seconds.
///
/// # Errors
/// The key does not sign.
pub fn request(grant: &Grant, time: u64) -> Result<Post<'_>, String> {
    match grant {
        Grant::Google { at, audience, email, key_id, key, .. } => {
            let mut head = Map::from_iter([("alg".to_owned(), json!("RS256"))]);
            head.insert("typ".into(), json!("JWT"));
            head.extend(key_id.iter().map(|id| ("kid".to_owned(), json!(id))));
            let claim = json!({
                "iss": email, "scope": SCOPE, "aud": audience,
                "iat": time, "exp": time + CLAIM_SECONDS,
            });
            let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let text = format!("{}.{}", encode(Value::Object(head)), encode(claim));
            let signature = signature(key, text.as_bytes())?;
            let body = Zeroizing::new(format!(
                "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer\
                 &assertion={text}.{signature}"
            ));
            Ok(Post { at, body: Secret::new(&body) })
        }
        Grant::Baidu { at, api_key, secret_key } => {
            let body = Zeroizing::new(format!(
                "grant_type=client_credentials&client_id={}&client_secret={}",
                segment(api_key.expose()),
                segment(secret_key.expose())
            ));
            Ok(Post { at, body: Secret::new(&body) })
        }
    }
}

fn signature(key: &Secret, text: &[u8]) -> Result<String, String> {
    let der = STANDARD.decode(key.expose()).map(Zeroizing::new).unwrap_or_default();
    let pair = KeyPair::from_pkcs8(&der).map_err(|error| format!("the private key: {error}"))?;
    let mut out = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut out)
        .map_err(|_| "the private key does not sign")?;
    Ok(URL_SAFE_NO_PAD.encode(out))
}

/// What came of an exchange.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// A token, and how long it lives where that is told.
    Token(Secret, Option<Duration>),
    /// The credential was refused: the provider's code for it, which holds no secret.
    Denied(String),
    /// No token this time.
    Broken(String),
}

/// RFC 6749, sections 5.1 and 5.2; Baidu's alike.
#[derive(Deserialize)]
struct Reply {
    access_token: Option<String>,
    expires_in: Option<u64>,
    error: Option<String>,
}

/// Reads the reply of an exchange.
#[must_use]
pub fn answer(status: u16, body: &[u8]) -> Answer {
    let Ok(reply) = serde_json::from_slice::<Reply>(body) else {
        return Answer::Broken(format!("status {status}, and no JSON"));
    };
    let sound = |token: &String| !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
    match (reply.access_token.filter(sound), reply.error) {
        (Some(token), None) if status < 300 => {
            let life = reply.expires_in.map(Duration::from_secs);
            Answer::Token(Secret::new(&token), life)
        }
        // A status of the server's own is no judgement; a code is a word, or it could be anything.
        (_, Some(code)) if status < 500 && status != 429 => {
            let word = code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            Answer::Denied(if word { code } else { format!("status {status}") })
        }
        _ => Answer::Broken(format!("status {status}, and no token")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_keys_is_posted_encoded() {
        let at = Base { tls: true, host: "h".into(), port: 443, path: "/oauth/2.0/token".into() };
        let (api_key, secret_key) = (Secret::new("a+b"), Secret::new("c/d=é"));
        let grant = Grant::Baidu { at, api_key, secret_key };
        let post = request(&grant, 0).unwrap();
        assert_eq!(
            post.body.expose(),
            "grant_type=client_credentials&client_id=a%2Bb&client_secret=c%2Fd%3D%C3%A9"
        );
        assert!(!format!("{post:?} {grant:?}").contains("c/d"), "masked");
    }

    #[test]
    fn an_answer_is_a_token_a_refusal_or_nothing() {
        let token = |life| Answer::Token(Secret::new("t-1"), life);
        let check = |status, body: &str, want: Answer| {
            assert_eq!(answer(status, body.as_bytes()), want, "{status} {body}");
        };
        let second = Duration::from_secs(1);
        check(200, r#"{"access_token":"t-1","expires_in":3599}"#, token(Some(3_599 * second)));
        check(200, r#"{"access_token":"t-1","scope":"x"}"#, token(None));
        check(401, r#"{"error":"invalid_client"}"#, Answer::Denied("invalid_client".into()));
        check(400, r#"{"error":"sk-secret words"}"#, Answer::Denied("status 400".into()));
        for (status, body) in [
            (200, ""),
            (200, "<html>"),
            (200, r#"{"access_token":""}"#),
            (200, r#"{"access_token":"a\r\nb"}"#),
            (503, r#"{"error":"unavailable"}"#),
            (429, r#"{"error":"slow_down"}"#),
        ] {
            assert!(
                matches!(answer(status, body.as_bytes()), Answer::Broken(_)),
                "{status} {body}"
            );
        }
    }
}
