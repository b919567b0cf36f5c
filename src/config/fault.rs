//! What is wrong, gathered until everything has been looked at.

use super::watch::Contents;
use super::{Env, Fault};
use crate::vault::Vault;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A place: a file of the [`Book`], and a line of it (1-based; 0 is the whole file).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub file: usize,
    pub line: usize,
}

/// All that one load gathers besides the config itself.
pub(super) struct Book<'e> {
    /// Looks up environment variables.
    pub env: Env<'e>,
    files: RefCell<Vec<PathBuf>>,
    faults: RefCell<Vec<(At, Fault)>>,
    warnings: RefCell<Vec<(At, Fault)>>,
    /// Every file that was looked for, secrets included, and the hash of what it held.
    contents: RefCell<Contents>,
    /// Providers that config names and that have faults of their own.
    broken: RefCell<BTreeSet<String>>,
    /// What opens `vault:` references.
    vault: RefCell<Option<Arc<Vault>>>,
    /// A file could not be read, so names may be missing that it defines.
    partial: Cell<bool>,
}

impl<'e> Book<'e> {
    pub fn new(env: Env<'e>) -> Self {
        Self {
            env,
            files: RefCell::default(),
            faults: RefCell::default(),
            warnings: RefCell::default(),
            contents: RefCell::default(),
            broken: RefCell::default(),
            vault: RefCell::default(),
            partial: Cell::new(false),
        }
    }

    /// Gives a file its number.
    pub fn open(&self, path: PathBuf) -> usize {
        let mut files = self.files.borrow_mut();
        files.push(path);
        files.len() - 1
    }

    /// The file's path as faults name it.
    pub fn path(&self, file: usize) -> PathBuf {
        self.files.borrow().get(file).cloned().unwrap_or_default()
    }

    /// The folder that relative paths of this file start from.
    pub fn folder(&self, file: usize) -> PathBuf {
        self.path(file).parent().map(PathBuf::from).unwrap_or_default()
    }

    pub fn fault(&self, at: At, key: &str, message: impl Into<String>) {
        let fault = self.entry(at, key, message.into());
        self.faults.borrow_mut().push((at, fault));
    }

    pub fn warn(&self, at: At, key: &str, message: impl Into<String>) {
        let fault = self.entry(at, key, message.into());
        self.warnings.borrow_mut().push((at, fault));
    }

    /// From now on `vault:` references are opened by this; `None` where config has no vault.
    pub fn unlock(&self, vault: Option<Arc<Vault>>) {
        *self.vault.borrow_mut() = vault;
    }

    /// The value of an entry of the vault.
    pub fn sealed(&self, name: &str) -> Result<Zeroizing<String>, String> {
        match &*self.vault.borrow() {
            Some(vault) => vault.value(name).map_err(|e| e.to_string()),
            None => Err("vault: needs a [vault] with a sound `key`".into()),
        }
    }

    /// From now on a missing name proves nothing.
    pub fn hide(&self) {
        self.partial.set(true);
    }

    /// Whether every file has been read whole.
    pub fn whole(&self) -> bool {
        !self.partial.get()
    }

    /// Remembers what a file held; `None` where it could not be read.
    pub fn depends_on(&self, path: PathBuf, text: Option<&str>) {
        self.contents.borrow_mut().insert(path, text.map(crate::access::hash));
    }

    /// A provider is named but not compiled: its own faults will tell why.
    pub fn broken(&self, provider: &str) {
        self.broken.borrow_mut().insert(provider.to_owned());
    }

    /// It is compiled now.
    pub fn mended(&self, provider: &str) {
        self.broken.borrow_mut().remove(provider);
    }

    /// Whether a provider is named but could not be compiled.
    pub fn is_broken(&self, provider: &str) -> bool {
        self.broken.borrow().contains(provider)
    }

    /// Whether a name that nobody serves might be served once the other faults are mended.
    pub fn may_be_missing(&self) -> bool {
        self.partial.get() || !self.broken.borrow().is_empty()
    }

    pub fn sound(&self) -> bool {
        self.faults.borrow().is_empty()
    }

    pub fn faults(&self) -> Vec<Fault> {
        sorted(&self.faults)
    }

    pub fn warnings(&self) -> Vec<Fault> {
        sorted(&self.warnings)
    }

    /// Every file that the config depends on, and the hash of what it held.
    pub fn contents(&self) -> Contents {
        self.contents.borrow().clone()
    }

    fn entry(&self, at: At, key: &str, message: String) -> Fault {
        Fault { file: self.path(at.file), line: at.line, key: key.into(), message }
    }
}

fn sorted(list: &RefCell<Vec<(At, Fault)>>) -> Vec<Fault> {
    let mut list = list.borrow().clone();
    list.sort_by_key(|(at, _)| *at);
    // What two readers of one value found is told once.
    list.dedup();
    list.into_iter().map(|(_, fault)| fault).collect()
}

impl fmt::Display for Fault {
    /// `conf/weir.toml:12: providers.openai.retry.atempts: unknown key, did you mean "attempts"?`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.message)
    }
}

/// `, did you mean "…"?` for the nearest of the right names, or nothing where none is near.
pub(super) fn hint<'a>(wrong: &str, right: impl IntoIterator<Item = &'a str>) -> String {
    // A third of the letters may be wrong; a name of one or two letters is near nothing else.
    let reach = (wrong.chars().count().max(2) - 1).div_ceil(3).min(4);
    right
        .into_iter()
        .map(|name| (distance(wrong, name), name))
        .filter(|(far, _)| *far <= reach)
        .min()
        .map(|(_, name)| format!(", did you mean {name:?}?"))
        .unwrap_or_default()
}

/// Insertions, removals, replacements and swaps of neighbours that turn one name into the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            let mut best =
                (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_told_and_far_ones_are_not() {
        let names = ["attempts", "backoff", "max_backoff", "on"];
        assert_eq!(hint("atempts", names), ", did you mean \"attempts\"?");
        assert_eq!(hint("bakcoff", names), ", did you mean \"backoff\"?");
        assert_eq!(hint("max_backof", names), ", did you mean \"max_backoff\"?");
        assert_eq!(hint("colour", names), "");
        assert_eq!(hint("", names), "");
    }

    #[test]
    fn a_swap_of_neighbours_is_one_change() {
        assert_eq!((distance("ab", "ba"), distance("abc", "abc"), distance("", "abc")), (1, 0, 3));
    }

    #[test]
    fn a_fault_reads_as_a_compiler_would_write_it() {
        let fault = |line, key: &str| {
            Fault { file: "conf/weir.toml".into(), line, key: key.into(), message: "no".into() }
                .to_string()
        };
        assert_eq!(fault(12, "server.drain"), "conf/weir.toml:12: server.drain: no");
        assert_eq!(fault(0, ""), "conf/weir.toml: no");
    }
}
