//! `[vault]`: the keys under which the store's credentials are sealed.

use super::value::{Shape, View};
use super::{Fault, Store, fault, secret, server, source, value};
use crate::vault::{Keys, Vault};
use std::path::Path;
use zeroize::Zeroizing;

const VAULT: Shape = Shape { known: &["key", "old_keys"], later: &[] };

/// The vault, where `[vault]` names its key and there are no faults in it.
pub(super) fn vault(root: &View<'_>, store: &Store) -> Option<Vault> {
    let v = root.table("vault", &VAULT)?;
    if v.get("key").is_none() {
        v.complain("needs `key`: a reference to 32 bytes in base64");
    }
    let first = v.text("key").map(|text| (v.place("key"), text));
    let old = v.texts("old_keys").unwrap_or_default();
    let listed: Vec<_> = first.into_iter().chain(old).collect();
    let name = |i: usize| v.key(if i == 0 { "key" } else { "old_keys" });
    let mut texts: Vec<Zeroizing<String>> = Vec::new();
    for (i, (at, text)) in listed.iter().enumerate() {
        if !secret::is_reference(text) {
            v.book.warn(*at, &name(i), "holds a key in the clear; write env:NAME or file:/path");
        }
        texts.extend(secret::value(v.book, *at, &name(i), text));
    }
    if first.is_none() || texts.len() < listed.len() {
        return None;
    }
    match Keys::new(texts.iter().map(|text| text.as_str())) {
        Ok(keys) => Some(Vault { path: store.path.clone(), keys }),
        Err((i, why)) => {
            v.book.fault(listed[i].0, &name(i), why);
            None
        }
    }
}

/// The vault of a config whose other tables may be at fault: they may name what is about to be
/// put into it.
///
/// # Errors
/// Every fault of `[store]` and `[vault]`, and of the files' syntax.
pub fn read_vault(path: &Path) -> Result<Vault, Vec<Fault>> {
    let book = fault::Book::new(&super::environment);
    let tree = source::gather(&book, path);
    let at = fault::At { file: 0, line: 0 };
    let root = value::View { book: &book, table: &tree.root, at, path: String::new() };
    let store = server::store(&root);
    let found = vault(&root, &store);
    if found.is_none() && root.get("vault").is_none() {
        book.fault(at, "vault", "there is no [vault] with a `key` in this config");
    }
    found.filter(|_| book.sound()).ok_or_else(|| book.faults())
}
