//! AWS Signature Version 4: headers out of a request, credentials and a time.
//!
//! The steps and their names are those of docs.aws.amazon.com, "Create a signed AWS API request".

use bytes::Bytes;
use ring::{digest, hmac};
use std::fmt::Write;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SECONDS_PER_DAY: u64 = 86_400;

/// Who signs.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The access key's id.
    pub access_key: &'a str,
    /// The secret access key.
    pub secret_key: &'a str,
    /// For credentials that were lent for a while.
    pub session_token: Option<&'a str>,
}

/// Where a signature is good for.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// `us-east-1`
    pub region: &'a str,
    /// `bedrock`
    pub service: &'a str,
}

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `POST`
    pub method: &'a str,
    /// As it stands in the request line, percent-encoded, without the query. `.` and `..` segments
    /// and double slashes are none of ours and are not resolved.
    pub path: &'a str,
    /// As it stands in the request line, behind the question mark; may be empty.
    pub query: &'a str,
    /// The headers to be signed, `host` among them; each name once.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body in its pieces.
    pub body: &'a [Bytes],
}

/// The headers to add to the request: `x-amz-date`, `x-amz-security-token` where there is one, and
/// `authorization`. `time` in Unix seconds; the service refuses one that is 5 minutes off.
#[must_use]
pub fn sign(
    request: &Request<'_>,
    credentials: &Credentials<'_>,
    scope: Scope<'_>,
    time: u64,
) -> Vec<(&'static str, String)> {
    let stamp = stamp(time);
    let date = &stamp[..8];
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), squeeze(value)))
        .collect();
    headers.push(("x-amz-date".into(), stamp.clone()));
    if let Some(token) = credentials.session_token {
        headers.push(("x-amz-security-token".into(), token.to_owned()));
    }
    headers.sort();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let canonical = canonical(request, &headers, &names);
    let region = scope.region;
    let place = format!("{date}/{region}/{}/aws4_request", scope.service);
    let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("{ALGORITHM}\n{stamp}\n{place}\n{hash}");
    let seed = format!("AWS4{}", credentials.secret_key);
    let steps = [date, region, scope.service, "aws4_request", &text];
    let signature = steps.iter().fold(seed.into_bytes(), |key, step| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        hmac::sign(&key, step.as_bytes()).as_ref().to_vec()
    });
    let authorization = format!(
        "{ALGORITHM} Credential={}/{place}, SignedHeaders={names}, Signature={}",
        credentials.access_key,
        hex(&signature)
    );
    let mut out = vec![("x-amz-date", stamp), ("authorization", authorization)];
    if let Some(token) = credentials.session_token {
        out.push(("x-amz-security-token", token.to_owned()));
    }
    out
}

fn canonical(request: &Request<'_>, headers: &[(String, String)], names: &str) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for piece in request.body {
        hash.update(piece);
    }
    let mut out = format!("{}\n", request.method);
    // Every service but S3 encodes the path once more.
    encode(request.path, &mut out);
    out.push('\n');
    let pairs = request.query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(&str, &str)> =
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    pairs.sort_unstable();
    for (at, (name, value)) in pairs.iter().enumerate() {
        let lead = if at == 0 { "" } else { "&" };
        // Writing to a String cannot fail.
        let _ = write!(out, "{lead}{name}={value}");
    }
    out.push('\n');
    for (name, value) in headers {
        let _ = writeln!(out, "{name}:{value}");
    }
    let _ = write!(out, "\n{names}\n{}", hex(hash.finish().as_ref()));
    out
}

/// Percent-encodes all but unreserved characters and the slash.
fn encode(path: &str, out: &mut String) {
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// A header's value without the space around it, and one space where there were many.
fn squeeze(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// `20150830T123600Z`. The calendar's arithmetic counts years from March, so that a leap day is the
/// last of its year.
fn stamp(time: u64) -> String {
    let (days, second) = (time / SECONDS_PER_DAY, time % SECONDS_PER_DAY);
    // Days since 1 March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + carry;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 August 2015, 12:36 UTC, the time of the published vectors.
    const TIME: u64 = 1_440_938_160;
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHG\
        BuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phU\
        ZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0\
        u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    struct Vector<'a> {
        target: (&'a str, &'a str),
        query: &'a str,
        headers: &'a [(&'a str, &'a str)],
        body: &'a str,
        token: Option<&'a str>,
        service: &'a str,
    }

    const GET: Vector<'_> = Vector {
        target: ("GET", "/"),
        query: "",
        headers: &[("Host", "example.amazonaws.com")],
        body: "",
        token: None,
        service: "service",
    };
    const POST: Vector<'_> = Vector { target: ("POST", "/"), ..GET };

    fn signed(vector: &Vector<'_>) -> Vec<(&'static str, String)> {
        let credentials = Credentials {
            access_key: "AKIDEXAMPLE",
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            session_token: vector.token,
        };
        // The body in two pieces, one of them empty.
        let body = [Bytes::new(), Bytes::copy_from_slice(vector.body.as_bytes())];
        let (method, path) = vector.target;
        let (query, headers) = (vector.query, vector.headers);
        let request = Request { method, path, query, headers, body: &body };
        let scope = Scope { region: "us-east-1", service: vector.service };
        sign(&request, &credentials, scope, TIME)
    }

    #[track_caller]
    fn check(vector: &Vector<'_>, signature: &str) {
        let headers = signed(vector);
        let authorization = &headers.iter().find(|(name, _)| *name == "authorization").unwrap().1;
        assert!(authorization.ends_with(&format!("Signature={signature}")), "{authorization}");
    }

    /// The suite's cases by name (AWS Signature Version 4 test suite).
    #[test]
    fn the_published_vectors_are_signed_as_published() {
        check(&GET, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
        check(&POST, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
        // get-vanilla-query-order-key-case
        let query = Vector { query: "Param2=value2&Param1=value1", ..GET };
        check(&query, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
        // get-utf8, get-space-unnormalized
        let utf8 = Vector { target: ("GET", "/\u{1234}"), ..GET };
        check(&utf8, "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
        let space = Vector { target: ("GET", "/example space/"), ..GET };
        check(&space, "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741");
        // post-header-key-sort, with space around the value
        let headers = [("Host", "example.amazonaws.com"), ("My-Header1", "  value1 ")];
        let sorted = Vector { headers: &headers, ..POST };
        check(&sorted, "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c");
        // post-x-www-form-urlencoded
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let headers = [form, ("Host", "example.amazonaws.com")];
        let form = Vector { headers: &headers, body: "Param1=value1", ..POST };
        check(&form, "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
        // post-sts-header-before
        let lent = Vector { token: Some(TOKEN), ..POST };
        check(&lent, "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead");
    }

    /// The worked example of the documentation.
    #[test]
    fn the_documented_example_is_signed_as_documented() {
        let kind = "application/x-www-form-urlencoded; charset=utf-8";
        let headers = [("content-type", kind), ("host", "iam.amazonaws.com")];
        let query = "Action=ListUsers&Version=2010-05-08";
        let headers = signed(&Vector { query, headers: &headers, service: "iam", ..GET });
        assert_eq!(headers[0], ("x-amz-date", "20150830T123600Z".to_owned()));
        let want = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
            SignedHeaders=content-type;host;x-amz-date, \
            Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";
        assert_eq!(headers[1], ("authorization", want.to_owned()));
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn a_lent_credential_sends_its_token() {
        let headers = signed(&Vector { token: Some(TOKEN), ..POST });
        assert_eq!(headers[2], ("x-amz-security-token", TOKEN.to_owned()));
    }

    #[test]
    fn a_path_is_encoded_once_more() {
        let mut out = String::new();
        encode("/model/anthropic.claude-3%3A0/converse", &mut out);
        assert_eq!(out, "/model/anthropic.claude-3%253A0/converse");
    }

    #[test]
    fn the_stamp_is_the_calendars() {
        for (time, want) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_800, "20000301T000000Z"),
            (1_709_164_800, "20240229T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(stamp(time), want);
        }
    }
}
