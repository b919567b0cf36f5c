//! Files of the tree, and their code without comments, strings and tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that are not ours, or not source.
const SKIPPED: [&str; 5] = ["target", ".git", "data", "__pycache__", "node_modules"];

/// Endings of files that are text of ours.
const TEXT: [&str; 12] =
    ["rs", "toml", "md", "py", "lua", "sh", "txt", "html", "js", "css", "yml", "json"];

/// One file.
#[derive(Debug, Clone)]
pub struct File {
    /// From the project's root, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
    /// Code that ships: in `src/`, not a test.
    pub fn ships(&self) -> bool {
        let ours = self.path.starts_with("src/") || self.path.starts_with("filters/src/");
        ours && self.is_rust() && !self.is_test()
    }
    /// A file that holds tests alone.
    pub fn is_test(&self) -> bool {
        let parts: Vec<_> = self.path.split('/').collect();
        parts.contains(&"tests") || parts.last() == Some(&"tests.rs")
    }
    /// The code, blanked by [`blank`], without its `#[cfg(test)]` items.
    pub fn code(&self) -> String {
        without_tests(&blank(&self.text))
    }
}

/// The project's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of the tree.
pub fn tree() -> Vec<File> {
    let mut files = vec![];
    walk(&root(), &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(files.iter().any(|f| f.path == "src/lib.rs"), "the tree was not found");
    files
}

fn walk(folder: &Path, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(&path, files);
            }
            continue;
        }
        let ending = path.extension().map(|e| e.to_string_lossy().into_owned());
        let known = ending.as_deref().is_some_and(|e| TEXT.contains(&e));
        let relative = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        if known || relative == "Makefile" || relative == ".ci/run" {
            let text = fs::read_to_string(&path).unwrap();
            files.push(File { path: relative, text });
        }
    }
}

/// The text with comments, strings and characters made blank; lines and columns stay (in
/// characters).
pub fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = skip(&chars, i);
        if end == i {
            out.push(chars[i]);
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// The end of the comment or literal that starts at `i`, else `i`.
fn skip(c: &[char], i: usize) -> usize {
    let next = c.get(i + 1).copied();
    let before = i.checked_sub(1).and_then(|p| c.get(p)).copied();
    let in_word = before.is_some_and(|b| b.is_alphanumeric() || b == '_');
    match c[i] {
        '/' if next == Some('/') => (i..c.len()).find(|j| c[*j] == '\n').unwrap_or(c.len()),
        '/' if next == Some('*') => block_comment(c, i),
        '"' => string(c, i + 1),
        'r' if !in_word || before == Some('b') => raw_string(c, i).unwrap_or(i),
        '\'' => character(c, i),
        _ => i,
    }
}

fn block_comment(c: &[char], start: usize) -> usize {
    let (mut depth, mut i) = (0, start);
    while i + 1 < c.len() {
        match (c[i], c[i + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                i += 1;
                continue;
            }
        }
        i += 2;
        if depth == 0 {
            return i;
        }
    }
    c.len()
}

fn string(c: &[char], mut i: usize) -> usize {
    while i < c.len() && c[i] != '"' {
        i += if c[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(c.len())
}

fn raw_string(c: &[char], start: usize) -> Option<usize> {
    let hashes = c[start + 1..].iter().take_while(|x| **x == '#').count();
    let open = start + 1 + hashes;
    if c.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: &usize| c[*i] == '"' && c[i + 1..].iter().take(hashes).all(|x| *x == '#');
    Some((open + 1..c.len()).find(closes).map_or(c.len(), |i| i + 1 + hashes))
}

/// A character literal, or nothing when the quote begins a lifetime.
fn character(c: &[char], i: usize) -> usize {
    match (c.get(i + 1), c.get(i + 2)) {
        (Some('\\'), _) => (i + 3..c.len()).find(|j| c[*j] == '\'').map_or(c.len(), |j| j + 1),
        (Some(_), Some('\'')) => i + 3,
        _ => i,
    }
}

/// Blanked code without the items that `#[cfg(test)]` stands before. The lines go too.
pub fn without_tests(code: &str) -> String {
    let mut rest = code;
    let mut out = String::new();
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        rest = &item[item_end(item)..];
    }
    out.push_str(rest);
    out
}

/// Where the item at the start of blanked code ends: its `;`, or its last brace.
fn item_end(item: &str) -> usize {
    let mut depth = 0_usize;
    for (i, c) in item.char_indices() {
        match c {
            ';' if depth == 0 => return i + 1,
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    item.len()
}

/// The words of blanked code with where they start.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let ident = |c: char| c.is_alphanumeric() || c == '_';
    code.split(move |c| !ident(c)).filter(|w| !w.is_empty()).map(move |w| {
        let at = w.as_ptr() as usize - code.as_ptr() as usize;
        (at, w)
    })
}

/// The 1-based line of a byte.
pub fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

#[test]
fn comments_strings_and_tests_are_no_code() {
    let text = "a /* b /* c */ d */ \"e\\\"f\" r#\"g\"h\"# 'i' '\\'' &'j str // k\nl";
    let words: Vec<_> = words(&blank(text)).map(|(_, w)| w.to_owned()).collect();
    assert_eq!(words, ["a", "j", "str", "l"]);
    assert_eq!(blank(text).lines().count(), 2);
    let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\n#[cfg(test)]\nmod x;\nfn c() {}";
    let left = without_tests(code);
    assert!(left.contains("fn a") && left.contains("fn c") && !left.contains("fn b"));
    assert!(!left.contains("mod x"));
}
