//! `weir check` and `weir init`: a config looked at, and one to start from.

use super::{Env, Fault, Loaded, Reading, diff, fault, load, preset, source, zero};
use crate::access;
use std::path::Path;

/// Exit code of a bad config.
const BAD_CONFIG: u8 = 78;

/// Loads everything; the text to print and the exit code (0, or 78 with every fault in the text).
#[must_use]
pub fn check(path: &Path) -> (String, u8) {
    match load(path) {
        Ok(loaded) => (sound(path, &loaded), 0),
        Err(faults) => (lines(&faults), BAD_CONFIG),
    }
}

/// [`check`], and what keys and models gain or lose when `old` is replaced by `path`.
#[must_use]
pub fn check_diff(path: &Path, old: &Path) -> (String, u8) {
    let (new, old) = match (load(path), load(old)) {
        (Ok(new), Ok(old)) => (new, old),
        (new, old) => {
            let faults: Vec<Fault> =
                [new.err(), old.err()].into_iter().flatten().flatten().collect();
            return (lines(&faults), BAD_CONFIG);
        }
    };
    let changes = diff(&old.snapshot, &new.snapshot);
    let changes =
        if changes.is_empty() { "no key or model gains or loses anything".into() } else { changes };
    let restart = super::needs_restart(&old.snapshot, &new.snapshot);
    let mut text = format!("{}\n{changes}", sound(path, &new));
    if !restart.is_empty() {
        text.push_str(&format!("\nneeds a restart: {}", restart.join(", ")));
    }
    (text, 0)
}

/// Looks at one preset's file by itself; every fault of it.
#[must_use]
pub fn check_preset(path: &Path) -> Vec<Fault> {
    let book = fault::Book::new(&|_| None);
    preset::alone(&book, path);
    book.faults()
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn sound(path: &Path, loaded: &Loaded) -> String {
    let snapshot = &loaded.snapshot;
    let mut text = String::new();
    for warning in &loaded.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text.push_str(&format!(
        "{}: sound: {} providers, {} models, {} keys, version {}",
        path.display(),
        snapshot.routes.providers.len(),
        snapshot.routes.models.len(),
        snapshot.keys.0.len(),
        snapshot.version,
    ));
    text
}

/// Writes `weir.toml` into a folder (made where it is missing): five lines that load.
/// The text tells the key's secret, of which the file holds the hash alone.
///
/// # Errors
/// There is one already, or the folder cannot be written to.
pub fn init(folder: &Path) -> Result<String, String> {
    init_with(folder, &|name| std::env::var(name).ok())
}

/// [`init`] under an environment of the caller's: it decides which provider is written.
///
/// # Errors
/// As for [`init`].
pub fn init_with(folder: &Path, env: Env<'_>) -> Result<String, String> {
    let path = folder.join("weir.toml");
    let secret = access::new_secret()?;
    let hash = source::hex(&access::hash(secret.expose()));
    let found = zero::available(env);
    // Without any provider's key in the environment, the one that needs none.
    let provider = found.first().copied().unwrap_or("ollama");
    let text = format!(
        "# The provider: its address, prices and its key's variable come from the preset.\n\
         [providers.{provider}]\n\
         # Who may call, and the hash of the secret they send (`weir keys hash` makes one).\n\
         [keys.me]\n\
         hash = \"sha256:{hash}\"\n"
    );
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let write = || {
        use std::io::Write as _;
        std::fs::File::create_new(&path)?.write_all(text.as_bytes())
    };
    write().map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{} is there already", path.display()),
        _ => format!("{}: {e}", path.display()),
    })?;
    Ok(format!(
        "wrote {} for {provider}; the key's secret, shown this once: {}\n\
         next: weir run --config {}",
        path.display(),
        secret.expose(),
        path.display(),
    ))
}

impl Reading {
    /// The faults, if any, one a line.
    #[must_use]
    pub fn complaint(&self) -> String {
        self.result.as_ref().err().map(|faults| lines(faults)).unwrap_or_default()
    }
}
