//! `weir check` and `weir init`: a config looked at, and one to start from.

use super::{Env, Fault, Loaded, Reading, diff, fault, load, preset, source, zero};
use crate::access;
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};

/// What a look at a config found.
#[derive(Debug)]
pub struct Report {
    path: PathBuf,
    found: Result<Box<Loaded>, Vec<Fault>>,
    /// What keys and models gain or lose against another config, and what needs a restart.
    changes: Option<(Vec<String>, Vec<&'static str>)>,
}

/// Loads everything; with `old` also what keys and models gain or lose when it is replaced.
#[must_use]
pub fn check(path: &Path, old: Option<&Path>) -> Report {
    let (new, old) = (load(path), old.map(load));
    let (found, changes) = match (new, old) {
        (Ok(new), None) => (Ok(Box::new(new)), None),
        (Ok(new), Some(Ok(old))) => {
            let (old, now) = (&old.snapshot, &new.snapshot);
            let lines = diff(old, now).lines().map(str::to_owned).collect();
            let restart = super::needs_restart(old, now);
            (Ok(Box::new(new)), Some((lines, restart)))
        }
        (new, old) => {
            let faults = [new.err(), old.and_then(Result::err)];
            (Err(faults.into_iter().flatten().flatten().collect()), None)
        }
    };
    Report { path: path.to_owned(), found, changes }
}

impl Report {
    /// There is no fault.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.found.is_ok()
    }

    /// `{"sound", "faults": [{"file","line","key","message"}], "warnings": [the same], …}`.
    #[must_use]
    pub fn json(&self) -> Value {
        let place = |f: &Fault| {
            json!({"file": f.file.display().to_string(), "line": f.line, "key": f.key,
                   "message": f.message})
        };
        let faults = self.found.as_ref().err().into_iter().flatten().map(place);
        let mut out = json!({
            "file": self.path.display().to_string(),
            "sound": self.is_sound(),
            "faults": faults.collect::<Vec<_>>(),
            "warnings": [],
        });
        if let Ok(loaded) = &self.found {
            let snapshot = &loaded.snapshot;
            out["warnings"] = loaded.warnings.iter().map(place).collect();
            out["providers"] = json!(snapshot.routes.providers.len());
            out["models"] = json!(snapshot.routes.models.len());
            out["keys"] = json!(snapshot.keys.0.len());
            out["version"] = json!(snapshot.version);
        }
        if let Some((lines, restart)) = &self.changes {
            out["diff"] = json!(lines);
            out["needs_restart"] = json!(restart);
        }
        out
    }
}

/// For people: every fault, or that there is none.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Err(faults) => f.write_str(&lines(faults))?,
            Ok(loaded) => f.write_str(&sound(&self.path, loaded))?,
        }
        let Some((changes, restart)) = &self.changes else { return Ok(()) };
        match changes.is_empty() {
            true => f.write_str("\nno key or model gains or loses anything")?,
            false => write!(f, "\n{}", changes.join("\n"))?,
        }
        if !restart.is_empty() {
            write!(f, "\nneeds a restart: {}", restart.join(", "))?;
        }
        Ok(())
    }
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
        "{}: sound: {}, {}, {}, version {}",
        path.display(),
        counted(snapshot.routes.providers.len(), "provider"),
        // What providers offer needs no table, and is served all the same.
        counted(snapshot.routes.models.len(), "model table"),
        counted(snapshot.keys.0.len(), "key"),
        snapshot.version,
    ));
    text
}

/// `1 key`, `2 keys`.
fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
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
