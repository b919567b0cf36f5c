//! Forms (`multipart/form-data`, RFC 7578): where the model stands, and nothing else.

use crate::peek::{BadBody, NAME_BYTES_MAX, Peek, Segments};
use bytes::Bytes;
use memchr::memmem;
use std::ops::Range;

/// RFC 2046, section 5.1.1, allows 70 characters.
const BOUNDARY_BYTES_MAX: usize = 70;
/// More parts than this are no form of any endpoint.
const PARTS_MAX: usize = 256;
/// The head of a part is two or three lines.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Reads a form's model.
///
/// # Errors
/// No form, or a model that is no name.
pub(super) fn read(body: Bytes) -> Result<Peek, BadBody> {
    let bad = |what: &str| BadBody::Json(format!("invalid form: {what}"));
    let boundary = boundary(&body).ok_or_else(|| bad("no boundary in its first line"))?.to_vec();
    let delimiter = [b"\r\n--", boundary.as_slice()].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut model: Option<Range<usize>> = None;
    let (mut at, mut closed) = (2 + boundary.len(), false);
    for _ in 0..PARTS_MAX {
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            closed = true;
            break;
        }
        let head = rest.get(..rest.len().min(HEAD_BYTES_MAX)).unwrap_or_default();
        let end = memmem::find(head, b"\r\n\r\n").ok_or_else(|| bad("a part without its head"))?;
        let start = at + end + 4;
        let tail = body.get(start..).unwrap_or_default();
        let len = finder.find(tail).ok_or_else(|| bad("it ends inside a part"))?;
        if is_model(&rest[..end]) && model.replace(start..start + len).is_some() {
            return Err(BadBody::Member {
                param: "model".into(),
                message: "`model` stands more than once".into(),
            });
        }
        at = start + len + delimiter.len();
    }
    if !closed {
        return Err(bad("it is not closed, or has too many parts"));
    }
    let name = model.clone().map(|span| name(&body[span])).transpose()?;
    let members = model.map(|span| Peek::span("model", span)).into_iter().collect();
    Ok(Peek { body, members, model: name, ..Peek::default() })
}

fn name(value: &[u8]) -> Result<String, BadBody> {
    let text = std::str::from_utf8(value).unwrap_or_default().trim();
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains(char::is_control) {
        let message = "`model` must be the name of a model".into();
        return Err(BadBody::Member { param: "model".into(), message });
    }
    Ok(text.to_owned())
}

/// The form's boundary: what follows the two dashes of its first line.
fn boundary(body: &[u8]) -> Option<&[u8]> {
    let line = body.get(..body.len().min(BOUNDARY_BYTES_MAX + 4))?;
    let end = memmem::find(line, b"\r\n")?;
    let boundary = line.get(2..end)?;
    // RFC 2046's characters for it, the space aside.
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(b);
    (!boundary.is_empty() && boundary.iter().all(fits)).then_some(boundary)
}

/// A part's head names the field `model`.
fn is_model(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.lines().any(|line| {
        let Some((name, value)) = line.split_once(':') else { return false };
        name.trim().eq_ignore_ascii_case("content-disposition")
            && value.split(';').skip(1).any(|param| {
                let param = param.trim();
                param == "name=\"model\"" || param == "name=model"
            })
    })
}

/// The header that belongs to this form.
pub(super) fn content_type(body: &[u8]) -> String {
    let boundary = boundary(body).unwrap_or_default();
    format!("multipart/form-data; boundary=\"{}\"", String::from_utf8_lossy(boundary))
}

/// The form with another model; with one more part where it named none.
pub(super) fn with_model(peek: &Peek, model: &str) -> Segments {
    let body = &peek.body;
    if let Some(member) = peek.find("model") {
        let (before, after) = (body.slice(..member.value.start), body.slice(member.value.end..));
        return Segments(vec![before, model.to_owned().into(), after]);
    }
    let boundary = String::from_utf8_lossy(boundary(body).unwrap_or_default());
    let part = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n"
    );
    Segments(vec![part.into(), body.clone()])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn form(parts: &[(&str, &str)]) -> Bytes {
        let part = |(head, value): &(&str, &str)| {
            format!("--b-1\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
        };
        (parts.iter().map(part).collect::<String>() + "--b-1--\r\n").into()
    }

    #[test]
    fn a_form_s_model_is_found_and_replaced_and_all_else_stays() {
        let file = ("name=\"file\"; filename=\"a.wav\"", "RIFF\r\n--b\r\nname=\"model\"");
        let body = form(&[file, ("name=\"model\"", "public"), ("name=\"language\"", "en")]);
        let peek = read(body).unwrap();
        assert_eq!(peek.model.as_deref(), Some("public"));
        let want = form(&[file, ("name=\"model\"", "whisper-1"), ("name=\"language\"", "en")]);
        assert_eq!(with_model(&peek, "whisper-1").concat(), want);
        assert_eq!(content_type(&want), "multipart/form-data; boundary=\"b-1\"");
    }

    #[test]
    fn a_form_without_a_model_gets_one() {
        let peek = read(form(&[("name=\"language\"", "en")])).unwrap();
        assert!(peek.model.is_none());
        let want = form(&[("name=\"model\"", "whisper-1"), ("name=\"language\"", "en")]);
        assert_eq!(with_model(&peek, "whisper-1").concat(), want);
    }

    #[test]
    fn what_is_no_form_is_refused_at_every_cut() {
        let whole = form(&[("name=\"model\"", "m"), ("name=\"x\"", "y")]);
        for end in 2..whole.len() - 4 {
            assert!(read(whole.slice(..end)).is_err(), "{end}");
        }
        let twice = form(&[("name=\"model\"", "m"), ("name=model", "n")]);
        assert!(matches!(read(twice), Err(BadBody::Member { param, .. }) if param == "model"));
        let nameless = form(&[("name=\"model\"", " ")]);
        assert!(matches!(read(nameless), Err(BadBody::Member { .. })));
    }
}
