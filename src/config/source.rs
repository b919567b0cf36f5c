//! Files into one tree: syntax, includes, and what two files may not both say.

use super::fault::{At, Book};
use super::value::{Entry, Node, Table, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Tables whose entries may come from several files; every other table belongs to one.
const GATHERED: &[&str] = &["providers", "models", "departments", "teams", "keys"];
/// Largest config file. A larger one is no config, and would be read whole.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Everything that was read.
pub(super) struct Tree {
    pub root: Table,
    /// Folders that `presets` names, with the place that does.
    pub presets: Vec<(At, PathBuf)>,
    /// Patterns to expand again when watching.
    pub globs: Vec<PathBuf>,
    /// Each text in the order of reading, for the version.
    pub texts: Vec<String>,
}

struct Reader<'b, 'e> {
    book: &'b Book<'e>,
    tree: Tree,
    done: Vec<PathBuf>,
    open: Vec<PathBuf>,
}

/// Reads a file and all it includes.
pub(super) fn gather(book: &Book<'_>, path: &Path) -> Tree {
    let mut reader = Reader { book, tree: empty(), done: Vec::new(), open: Vec::new() };
    reader.file(path, None);
    reader.tree
}

/// Reads a text as if it stood in this file.
pub(super) fn gather_text(book: &Book<'_>, path: &Path, text: &str) -> Tree {
    let mut reader = Reader { book, tree: empty(), done: Vec::new(), open: Vec::new() };
    reader.text(path, text.to_owned());
    reader.tree
}

fn empty() -> Tree {
    Tree { root: Table::new(), presets: Vec::new(), globs: Vec::new(), texts: Vec::new() }
}

impl Reader<'_, '_> {
    /// `named`: who includes it, for the fault when it cannot be read.
    fn file(&mut self, path: &Path, named: Option<At>) {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if self.open.contains(&real) {
            let at = named.unwrap_or_default();
            self.book.fault(at, "include", format!("{} includes itself", path.display()));
            return;
        }
        if self.done.contains(&real) {
            return;
        }
        match read_for(self.book, path) {
            Ok(text) => {
                self.done.push(real.clone());
                self.open.push(real);
                self.text(path, text);
                self.open.pop();
            }
            Err(why) => {
                let file = self.book.open(path.to_owned());
                self.book.hide();
                match named {
                    Some(at) => {
                        self.book.fault(at, "include", format!("{}: {why}", path.display()))
                    }
                    None => self.book.fault(At { file, line: 0 }, "", why),
                }
            }
        }
    }

    fn text(&mut self, path: &Path, text: String) {
        let file = self.book.open(path.to_owned());
        let parsed = parse(self.book, file, &text);
        self.tree.texts.push(text);
        let Some(mut table) = parsed else { return };
        let folder = self.book.folder(file);
        if let Some(entry) = table.remove("presets") {
            for (at, name) in self.strings("presets", &entry.node) {
                self.tree.presets.push((at, folder.join(name)));
            }
        }
        let includes = table.remove("include");
        let includes = includes.map_or_else(Vec::new, |e| self.strings("include", &e.node));
        merge(self.book, &mut self.tree.root, table);
        for (at, pattern) in includes {
            let pattern = folder.join(pattern);
            let found = expand(&pattern);
            if found.is_empty() && !pattern.to_string_lossy().contains('*') {
                self.file(&pattern, Some(at));
            }
            self.tree.globs.push(pattern);
            for path in found {
                self.file(&path, Some(at));
            }
        }
    }

    fn strings(&self, key: &str, node: &Node) -> Vec<(At, String)> {
        let Value::List(items) = &node.value else {
            let what = format!("a list of strings is needed here, not {}", node.value.kind());
            self.book.fault(node.at, key, what);
            return Vec::new();
        };
        let mut out = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(text) if !text.is_empty() => out.push((item.at, text.clone())),
                other => {
                    let what = format!("a path is needed here, not {}", other.kind());
                    self.book.fault(item.at, key, what);
                }
            }
        }
        out
    }
}

/// A file's text.
///
/// # Errors
/// Why there is none.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let meta = std::fs::metadata(path).map_err(|e| format!("cannot be read: {e}"))?;
    if !meta.is_file() {
        return Err("is no file".into());
    }
    if meta.len() > FILE_BYTES_MAX {
        return Err("is larger than 64 MiB".into());
    }
    std::fs::read_to_string(path).map_err(|e| format!("cannot be read: {e}"))
}

/// A file's text, remembered for the watcher; a missing file too, since it may appear.
///
/// # Errors
/// Why there is none.
pub(super) fn read_for(book: &Book<'_>, path: &Path) -> Result<String, String> {
    let text = read(path);
    book.depends_on(path.to_owned(), text.as_deref().ok());
    text
}

/// The table of a text. Its syntax errors are all recorded, and hide the rest of this file alone.
pub(super) fn parse(book: &Book<'_>, file: usize, text: &str) -> Option<Table> {
    let lines = Lines::new(file, text);
    let (root, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(table(root.get_ref(), &lines));
    }
    book.hide();
    for error in errors {
        let span = error.span().unwrap_or_default();
        let at = lines.at(span.start);
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        // The one message that means a key, and does not name it.
        let key = if message == "duplicate key" { text.get(span).unwrap_or_default() } else { "" };
        book.fault(at, key, message);
    }
    None
}

/// Offsets at which lines start.
struct Lines {
    file: usize,
    starts: Vec<usize>,
}

impl Lines {
    fn new(file: usize, text: &str) -> Self {
        let after = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        Self { file, starts: std::iter::once(0).chain(after).collect() }
    }

    fn at(&self, offset: usize) -> At {
        At { file: self.file, line: self.starts.partition_point(|start| *start <= offset) }
    }
}

fn table(from: &DeTable<'_>, lines: &Lines) -> Table {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let node =
            Node { at: lines.at(value.span().start), value: convert(value.get_ref(), lines) };
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        (name.to_string(), Entry { at: lines.at(key.span().start), node })
    };
    from.iter().map(entry).collect()
}

fn convert(from: &DeValue<'_>, lines: &Lines) -> Value {
    match from {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(n) => match i128::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Integer(n),
            Err(_) => Value::Float(n.to_string()),
        },
        DeValue::Float(n) => Value::Float(n.as_str().to_owned()),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(items) => Value::List(
            items
                .iter()
                .map(|item| Node {
                    at: lines.at(item.span().start),
                    value: convert(item.get_ref(), lines),
                })
                .collect(),
        ),
        DeValue::Table(inner) => Value::Table(table(inner, lines)),
    }
}

/// Takes what another file says; what both say is a fault that names both places.
fn merge(book: &Book<'_>, into: &mut Table, from: Table) {
    for (key, entry) in from {
        match (into.get_mut(&key).map(|e| &mut e.node.value), entry) {
            (None, entry) => {
                into.insert(key, entry);
            }
            (
                Some(Value::Table(here)),
                Entry { node: Node { value: Value::Table(more), .. }, .. },
            ) if GATHERED.contains(&key.as_str()) => {
                names(book, &key, here, more);
            }
            (Some(_), entry) => twice(book, &key, into.get(&key), &entry),
        }
    }
}

/// Entries of a gathered table. A provider's models may stand in a file of their own.
fn names(book: &Book<'_>, path: &str, into: &mut Table, from: Table) {
    for (name, entry) in from {
        let full = super::value::join(path, &name);
        let Some(old) = into.get_mut(&name) else {
            into.insert(name, entry);
            continue;
        };
        match (&mut old.node.value, entry) {
            (
                Value::Table(here),
                Entry { at, node: Node { at: place, value: Value::Table(more) } },
            ) if path == "providers" && (only_models(here) || only_models(&more)) => {
                // The provider stands where it says more than its models.
                if !only_models(&more) {
                    (old.at, old.node.at) = (at, place);
                }
                models(book, &full, here, more);
            }
            (_, entry) => twice(book, &full, Some(old), &entry),
        }
    }
}

fn models(book: &Book<'_>, path: &str, into: &mut Table, from: Table) {
    for (key, entry) in from {
        let Some(old) = into.get_mut(&key) else {
            into.insert(key, entry);
            continue;
        };
        let full = super::value::join(path, &key);
        match (&mut old.node.value, entry) {
            (Value::Table(here), Entry { node: Node { value: Value::Table(more), .. }, .. }) => {
                for (name, model) in more {
                    let full = super::value::join(&full, &name);
                    match here.get(&name) {
                        None => drop(here.insert(name, model)),
                        old => twice(book, &full, old, &model),
                    }
                }
            }
            (_, entry) => twice(book, &full, Some(old), &entry),
        }
    }
}

fn only_models(table: &Table) -> bool {
    table.keys().all(|key| key == "models")
}

fn twice(book: &Book<'_>, key: &str, old: Option<&Entry>, new: &Entry) {
    let at = old.map(|e| e.at).unwrap_or_default();
    let first = format!("{}:{}", book.path(at.file).display(), at.line);
    book.fault(new.at, key, format!("is defined twice, first in {first}"));
}

/// The files that a pattern names, sorted. `*` stands for any run of characters within one level.
pub(super) fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        let text = part.to_string_lossy();
        if !text.contains('*') {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let glob = crate::base::Glob::new(&text);
        found = found.iter().flat_map(|folder| listed(folder, &glob)).collect();
    }
    found.retain(|path| path.is_file());
    found.sort();
    found
}

fn listed(folder: &Path, glob: &crate::base::Glob) -> Vec<PathBuf> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(here) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // Hidden files are editors' and Kubernetes' own.
    names.filter(|n| !n.starts_with('.') && glob.matches(n)).map(|n| folder.join(n)).collect()
}

/// First 12 hex digits of the SHA-256 over texts, each with its length before it.
pub(super) fn version(texts: &[String]) -> String {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    for text in texts {
        digest.update(&(text.len() as u64).to_be_bytes());
        digest.update(text.as_bytes());
    }
    hex(&digest.finish().as_ref()[..6])
}

/// Lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Lays one table over another: `top` wins, key by key, and name by name below `models`.
pub(super) fn overlay(base: &Table, top: &Table) -> Table {
    let mut out = base.clone();
    for (key, entry) in top {
        let mut entry = entry.clone();
        if let (Some(Value::Table(below)), Value::Table(above)) =
            (out.get(key).map(|e| &e.node.value), &entry.node.value)
            && key == "models"
        {
            let mut all: BTreeMap<String, Entry> = below.clone();
            for (name, model) in above {
                let mut model = model.clone();
                if let (Some(Value::Table(old)), Value::Table(new)) =
                    (below.get(name).map(|e| &e.node.value), &model.node.value)
                {
                    model.node.value = Value::Table(overlay(old, new));
                }
                all.insert(name.clone(), model);
            }
            entry.node.value = Value::Table(all);
        }
        out.insert(key.clone(), entry);
    }
    out
}
