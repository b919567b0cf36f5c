//! References to secrets: `env:`, `file:`, `cred:`, `vault:`; a literal is taken with a warning.

use super::fault::{At, Book};
use crate::base::Secret;
use zeroize::Zeroizing;

/// The forms a reference can have.
const SCHEMES: &[&str] = &["env:", "file:", "cred:", "vault:"];

/// Whether a string is a reference.
pub(super) fn is_reference(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// The secret behind a string; a fault is recorded where there is none.
pub(super) fn secret(book: &Book<'_>, at: At, key: &str, text: &str) -> Option<Secret> {
    if text.is_empty() {
        book.fault(at, key, "is empty");
        return None;
    }
    if !is_reference(text) {
        book.warn(at, key, "holds a secret in the clear; write env:NAME or file:/path instead");
    }
    value(book, at, key, text).map(|value| Secret::new(&value))
}

/// What a string says: itself, or what its reference holds; a fault where that is nothing.
pub(super) fn value(book: &Book<'_>, at: At, key: &str, text: &str) -> Option<Zeroizing<String>> {
    match resolve(book, at, text) {
        Ok(value) => Some(value),
        Err(why) => {
            book.fault(at, key, why);
            None
        }
    }
}

/// A document of several lines behind a reference, such as a key file; a fault where there is none.
pub(super) fn document(
    book: &Book<'_>,
    at: At,
    key: &str,
    text: &str,
) -> Option<Zeroizing<String>> {
    let found = match is_reference(text) {
        true => fetch(book, at, text),
        false => {
            Err("a reference is needed here: file:/path, env:NAME, cred:NAME, vault:NAME".into())
        }
    };
    found.map_err(|why| book.fault(at, key, why)).ok()
}

fn resolve(book: &Book<'_>, at: At, text: &str) -> Result<Zeroizing<String>, String> {
    let found = fetch(book, at, text)?;
    if found.chars().any(char::is_control) {
        return Err(
            "holds a line end or another control character, so no header can carry it".into()
        );
    }
    Ok(found)
}

/// A text of many lines: what a reference holds, or the file of that path.
pub(super) fn paper(book: &Book<'_>, at: At, text: &str) -> Result<Zeroizing<String>, String> {
    if is_reference(text) {
        return fetch(book, at, text);
    }
    contents(book, book.folder(at.file).join(text))
}

/// What a reference holds, or the text itself; never empty, and without a last line end.
fn fetch(book: &Book<'_>, at: At, text: &str) -> Result<Zeroizing<String>, String> {
    let found = if let Some(name) = text.strip_prefix("env:") {
        let value = (book.env)(name).map(Zeroizing::new);
        value.ok_or_else(|| format!("the environment variable {name} is not set"))?
    } else if let Some(path) = text.strip_prefix("file:") {
        if path.is_empty() {
            return Err("file: names no file".into());
        }
        contents(book, book.folder(at.file).join(path))?
    } else if let Some(name) = text.strip_prefix("cred:") {
        let folder = (book.env)("CREDENTIALS_DIRECTORY")
            .ok_or("cred: needs CREDENTIALS_DIRECTORY, which systemd sets for LoadCredential=")?;
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(format!("{name:?} is no name of a credential"));
        }
        contents(book, std::path::Path::new(&folder).join(name))?
    } else if let Some(name) = text.strip_prefix("vault:") {
        book.sealed(name)?
    } else {
        Zeroizing::new(text.to_owned())
    };
    let found = found.strip_suffix('\n').map_or(&**found, |f| f.strip_suffix('\r').unwrap_or(f));
    if found.is_empty() {
        return Err(format!("{text} is empty"));
    }
    Ok(Zeroizing::new(found.to_owned()))
}

fn contents(book: &Book<'_>, path: std::path::PathBuf) -> Result<Zeroizing<String>, String> {
    let text =
        super::source::read_for(book, &path).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(Zeroizing::new(text))
}
