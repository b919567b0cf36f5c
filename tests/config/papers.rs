//! Certificates where the shipped config has its own.

use crate::harness::tls::Papers;
use std::path::Path;

/// A folder with the files that the shipped config speaks of, and others of their kind.
fn papers() -> &'static Path {
    static FOLDER: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (authority, other) = (Papers::authority(), Papers::authority());
        let ours = authority.issue("gateway.example");
        let key = ours.key.ec_key().unwrap().private_key_to_pem().unwrap();
        let files = [
            ("ca.pem", authority.cert_pem()),
            ("cert.pem", ours.cert_pem()),
            ("key.pem", ours.key_pem()),
            ("other.pem", ours.cert_pem() + &other.cert_pem()),
            ("same-key.pem", String::from_utf8(key).unwrap()),
        ];
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    });
    folder.path()
}

/// Text of a config with our own folder where it says `tls/`.
pub fn placed(text: &str) -> String {
    let folder = papers().display().to_string();
    text.replace("\"tls/", &format!("\"{folder}/")).replace(":tls/", &format!(":{folder}/"))
}
